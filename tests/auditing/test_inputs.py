"""Odd releases: each attacker handles them or the report says what it could not do."""

import json

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.svm import SVC

from privjax.auditing import audit
from privjax.auditing.adversaries import OUT_OF_FAMILY, PAPER

RNG = np.random.default_rng(0)
S = np.arange(60) % 3
Z = RNG.normal(size=(60, 4)) + 2.0 * np.eye(3, 4)[S]
TEST = RNG.normal(size=(30, 4)) + 2.0 * np.eye(3, 4)[S[:30]]
# The deep network is the network with more layers, and twice the time to compile.
NEARLY_ALL = [*PAPER, *(name for name in OUT_OF_FAMILY if name != "deep_network")]


def attacks(report):
    return report.attributes["s"].attacks


def complete(report):
    """Every attacker scored, or said why it did not; the report is strict JSON."""
    json.dumps(report.to_dict(), allow_nan=False)
    assert str(report)
    for attack in attacks(report):
        assert attack.failed is not None or attack.value("accuracy") is not None, attack
    return report


def test_a_constant_release():
    report = complete(audit(np.ones((60, 4)), S, np.ones((30, 4)), S[:30]))
    for attack in attacks(report):
        assert attack.failed is None
        assert attack.value("accuracy") == pytest.approx(report.attributes["s"].majority)
        assert any("constant" in note for note in attack.notes)
    assert report.attributes["s"].confidence["p_value"] == 1.0


def test_a_dead_unit_changes_nothing():
    dead = np.concatenate([Z, np.full((60, 1), 3.3)], axis=1)
    dead_test = np.concatenate([TEST, RNG.normal(size=(30, 1))], axis=1)  # alive only where nobody looks
    with_it = audit(dead, S, dead_test, S[:30], adversaries=["linear_svm", "rbf_svm", "quadratic"])
    without = audit(Z, S, TEST, S[:30], adversaries=["linear_svm", "rbf_svm", "quadratic"])
    assert "1 of 5 columns" in with_it.notes[0]
    assert [a.scores for a in attacks(with_it)] == [a.scores for a in attacks(without)]


def test_one_row_a_class():
    report = complete(audit(Z[:3], S[:3], TEST, S[:30], adversaries=NEARLY_ALL, network_widths=(32,)))
    assert any("too few rows a class to tune" in a.notes for a in attacks(report))
    assert sum(a.failed is None for a in attacks(report)) >= 7
    assert report.adversary_accuracy > 0.5  # the classes are far apart: one row tells


def test_a_class_missing_from_training():
    train = S != 2
    report = complete(audit(Z[train], S[train], TEST, S[:30], adversaries=NEARLY_ALL, network_widths=(32,)))
    attribute = report.attributes["s"]
    assert "1 classes are in no training row: their 10 test rows count as errors" in attribute.notes
    assert attribute.chance == pytest.approx(1 / 3)
    assert 0.5 < report.adversary_accuracy <= 2 / 3
    assert all(a.failed is None for a in attacks(report))


def test_fewer_rows_than_folds():
    rows = [0, 1, 3, 4]
    some = ["fast", "rbf_svm", "boosting", "logistic"]
    report = complete(audit(Z[rows], S[rows], TEST, S[:30], adversaries=some))
    assert report.adversary_accuracy > 0.4


def test_a_single_training_row_and_a_single_class():
    for rows in ([0], [0, 3, 6]):
        report = complete(audit(Z[rows], S[rows], TEST, S[:30]))
        assert report.adversary_accuracy == pytest.approx(1 / 3)
        assert all(a.notes for a in attacks(report))


def test_holes_are_filled_and_seen():
    rng = np.random.default_rng(1)
    s = rng.integers(0, 2, 300)
    z = rng.normal(size=(300, 3))
    z[s == 1, 0] = np.where(rng.random((s == 1).sum()) < 0.9, np.nan, 0.0)  # missing tells the class
    z[0, 1], z[1, 2] = np.inf, 1e308
    some = ["linear_svm", "rbf_svm", "random_forest", "neighbours", "logistic"]
    report = audit(z[:200], s[:200], z[200:], s[200:], adversaries=some)
    assert "not finite" in report.notes[0]
    for attack in attacks(report):
        assert attack.failed is None, attack
        assert attack.value("accuracy") > 0.8, attack.name
    late = audit(Z, S, np.where(np.eye(30, 4) > 0, np.nan, TEST), S[:30], adversaries="quadratic")
    assert late.notes == ("4 test rows of z are not finite: read as the training mean",)
    assert late.strongest["accuracy"] > 0.6
    everything = complete(audit(np.full((60, 4), np.nan), S, TEST, S[:30], adversaries="fast"))
    assert all(any("constant" in note for note in a.notes) for a in attacks(everything))


def test_continuous_variables_with_holes_and_constants():
    s = Z[:, 0].copy()
    s[3] = np.nan
    both = {"a": TEST[:, 0], "b": np.zeros(30)}
    report = audit(Z, {"a": s, "b": np.zeros(60)}, TEST, both, network_widths=(32,))
    json.dumps(report.to_dict(), allow_nan=False)
    assert report.attributes["a"].adversary() > 0.8
    assert "1 rows without a finite value are left out" in report.attributes["a"].notes
    assert report.attributes["b"].adversary() is None  # R^2 of a constant is not defined, and not 0


def test_a_continuous_variable_may_have_any_unit():
    found = []
    for unit in (1.0, 2.0**-560, 2.0**660):
        report = audit(Z, unit * Z[:, 0], TEST, unit * TEST[:, 0], adversaries=["ridge", "kernel_ridge"])
        found.append({a.name: a.value("r2") for a in report.attributes["s"].attacks})
    assert min(found[0].values()) > 0.8
    assert found[1] == found[0]
    assert found[2] == found[0]


def test_a_score_that_cannot_be_had_is_told():
    report = audit(Z, Z[:, 0], TEST, np.ones(30), adversaries="ridge")
    assert report.attributes["s"].adversary() is None
    assert any("does not change among the test rows" in note for note in report.attributes["s"].notes)
    assert audit(Z, Z[:, 0], TEST, TEST[:, 0], adversaries="ridge").attributes["s"].notes == ()


def test_the_size_of_a_release_hides_nothing():
    some = ["linear_svm", "quadratic"]
    usual = audit(Z, S, TEST, S[:30], adversaries=some)
    for factor in (1e35, 1e-300):
        scaled = audit(Z * factor, S, TEST * factor, S[:30], adversaries=some)
        assert scaled.adversary_accuracy == usual.adversary_accuracy > 0.6
        assert scaled.strongest == usual.strongest
    complete(audit(Z * 1e-300, S, np.full((30, 4), 1e308), S[:30], adversaries=some))


@pytest.mark.parametrize("size", [1e3, -1e12, 1e300])
def test_one_value_far_out_hides_nothing(size):
    z = Z.copy()
    z[7] = size
    who = ["linear_svm", "rbf_svm", "neighbours", "logistic", "quadratic", "network"]
    report = complete(audit(z, S, TEST, S[:30], adversaries=who, network_widths=(32,)))
    honest = complete(audit(Z, S, TEST, S[:30], adversaries=who, network_widths=(32,)))
    assert report.notes == ("4 of 4 columns of z have training values far out: drawn in",)
    assert not honest.notes
    for attack, plain in zip(attacks(report), attacks(honest), strict=True):
        assert attack.value("accuracy") >= plain.value("accuracy") - 0.1, attack
        assert plain.value("accuracy") > 0.6  # and there is something to hide


def test_a_column_that_is_mostly_one_value_keeps_the_others():
    z, test = np.zeros((300, 1)), np.zeros((300, 1))
    s = (np.arange(300) == 5).astype(int)
    z[5], test[5] = 9.0, 9.0
    report = audit(z, s, test, s, adversaries=["random_forest"])
    assert attacks(report)[0].value("balanced_accuracy") == 1.0
    assert not any("far out" in note for note in report.notes)


def test_tables_are_read_column_by_column():
    frames = [pd.DataFrame({"user": s, "age": z[:, 0]}) for s, z in ((S, Z), (S[:30], TEST))]
    report = audit(pd.DataFrame(Z).astype(object), frames[0], TEST, frames[1], adversaries="fast")
    alone = audit(Z, S, TEST, S[:30], adversaries="fast")
    assert report.attributes["user"].discrete
    assert not report.attributes["age"].discrete
    assert report.attributes["user"].adversary() == pytest.approx(alone.adversary_accuracy, abs=0.15)
    assert report.attributes["age"].adversary() > 0.8


def test_labels_of_two_types_are_told():
    mixed = np.array(["ann", None, "bob"], dtype=object)
    names = np.array(["ann", "cid", "bob"])
    for train, test in ((mixed[S], names[S[:30]]), (names[S], mixed[S[:30]])):
        with pytest.raises(TypeError, match="s has labels that cannot be compared"):
            audit(Z, train.astype(object), TEST, test.astype(object), adversaries="linear_svm")


def test_as_many_classes_as_rows():
    report = complete(audit(Z, np.arange(60), TEST, np.arange(30), adversaries=["random_forest", "logistic"]))
    assert all(attack.failed is None for attack in attacks(report))


def test_an_attacker_that_fails_does_not_stop_the_others():
    class Broken:
        def fit(self, z, s):
            raise RuntimeError("no licence")

        def get_params(self, deep=True):
            return {}

    mine = [("linear_svm", Broken()), ("ok", _tree()), "linear_svm"]
    report = complete(audit(Z, S, TEST, S[:30], adversaries=mine))
    by_name = {a.name: a for a in attacks(report)}
    assert "no licence" in by_name["linear_svm"].failed
    assert by_name["ok"].value("accuracy") > 0.6
    assert by_name["linear_svm_2"].value("accuracy") == report.adversary_accuracy
    assert "failed: RuntimeError: no licence" in str(report)


def _tree():
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(random_state=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Z, S, TEST[:, :3], S[:30]), "z_test must have the width of z_train"),
        ((Z, S[:10], TEST, S[:30]), "s_train must have one row for each of the 60 rows"),
        ((Z, {"a": S}, TEST, {"b": S[:30]}), "s_test lacks the variable 'a'"),
        ((Z, {}, TEST, {}), "s_train is an empty dict"),
        ((Z[:0], S[:0], TEST, S[:30]), "z_train must hold rows"),
        ((Z.ravel(), S, TEST, S[:30]), "z_train must hold rows"),
        ((Z, S, None, S[:30]), "z_test must be given"),
        ((Z, np.full(60, np.nan), TEST, np.ones(30)), "no finite value"),
        ((Z, np.where(S > 1, S, np.nan).astype(object), TEST, S[:30]), "missing labels"),
        ((Z, S, TEST, S[:30].astype(str)), "no test row of a class that is in training"),
        ((Z, {1: S, "1": S}, TEST, {1: S[:30], "1": S[:30]}), "two variables of the same name"),
    ],
)
def test_errors_say_what_to_do(arguments, message):
    with pytest.raises(ValueError, match=message):
        audit(*arguments)


def test_exact_numbers_are_not_taken_for_rounding():
    whole = (10**10 + S)[:, None]
    stamps = (1.7e12 + 1000.0 * S + RNG.random(60) * 100)[:, None]
    for z in (whole, stamps):
        report = complete(audit(z, S, z, S, adversaries=["random_forest", "linear_svm"]))
        assert report.strongest["accuracy"] == 1.0
    rounded = np.float32(3.3) * (1 + np.finfo(np.float32).eps * (S[:, None] - 1)).astype(np.float32)
    report = complete(audit(rounded, S, rounded, S, adversaries=["random_forest"]))
    assert "constant" in report.notes[0]


def test_nan_and_each_infinity_tell_apart():
    z = np.array([np.nan, np.inf, -np.inf])[S][:, None]
    report = complete(audit(z, S, z, S, adversaries=["linear_svm", "random_forest"]))
    assert report.strongest["accuracy"] == 1.0


def test_holes_are_not_far_out():
    z = 1000 + Z
    z[::20, 1] = np.nan
    report = complete(audit(z, S, TEST + 1000, S[:30], adversaries=["linear_svm"]))
    assert not any("far out" in note for note in report.notes)


def test_half_precision_of_jax():
    z = jnp.asarray(Z, jnp.bfloat16)
    report = complete(audit(z, S, z, S, adversaries=["linear_svm"]))
    assert report.strongest["accuracy"] > 0.6


def test_an_estimator_that_works_in_place_changes_nobodys_rows():
    def found(*more):
        report = complete(audit(Z, S, TEST, S[:30], adversaries=[*more, "neighbours", "quadratic"]))
        return {a.name: a.scores for a in attacks(report) if a.group != "user"}

    in_place = make_pipeline(Normalizer(copy=False), KNeighborsClassifier())
    assert found(in_place) == found()


def test_scores_of_pairs_are_no_scores_of_classes():
    machines = {"ovr": SVC(), "ovo": SVC(decision_function_shape="ovo")}
    one, other = attacks(complete(audit(Z, S, TEST, S[:30], adversaries=machines)))
    assert one.value("accuracy") == other.value("accuracy") > 0.6


def test_random_states_inside_a_pipeline_are_set():
    forest = make_pipeline(StandardScaler(), RandomForestClassifier(3))
    runs = [complete(audit(Z, S, TEST, S[:30], adversaries={"f": forest}, seed=4)) for _ in range(3)]
    assert len({attacks(run)[0].value("auc") for run in runs}) == 1


def test_predictions_that_are_no_numbers_fail_and_zero_is_a_score():
    class Constant(RegressorMixin, BaseEstimator):
        def __init__(self, value=0.0):
            self.value = value

        def fit(self, z, s):
            return self

        def predict(self, z):
            return np.full(len(z), self.value)

    s = np.tile([-1.0, 1.0], 30)
    who = {"nan": Constant(np.nan), "zero": Constant(0.0), "bad": Constant(5.0)}
    report = audit(Z, s, Z, s, adversaries=who)
    by_name = {a.name: a for a in attacks(report)}
    assert "not numbers" in by_name["nan"].failed
    assert report.strongest == {"attacker": "zero", "r2": 0.0}


def test_y_of_another_shape_or_of_two_types_is_told_or_read():
    column = audit(Z, S, TEST, S[:30], y_train=S[:, None], y_test=S[:30], adversaries=["linear_svm"])
    plain = audit(Z, S, TEST, S[:30], y_train=S, y_test=S[:30], adversaries=["linear_svm"])
    assert column.attributes["s"].label_alone == plain.attributes["s"].label_alone
    odd = np.array(["a", None] * 30, object)
    with pytest.raises(TypeError, match="y_train has labels that cannot be compared"):
        audit(Z, S, TEST, S[:30], y_train=odd, y_test=odd[:30])
    with pytest.raises(ValueError, match="the same columns"):
        audit(Z, S, TEST, S[:30], y_train=np.ones((60, 2)), y_test=np.ones(30))
    with pytest.raises(ValueError, match="seed must be a whole number, not negative"):
        audit(Z, S, TEST, S[:30], seed=-1)


def floor(y_train, y_test):
    report = audit(Z, S, TEST, S[:30], y_train=y_train, y_test=y_test, adversaries=[_tree()])
    return report.attributes["s"].label_alone["accuracy"].value


def test_one_missing_y_hides_nothing_of_what_y_tells():
    y = S.astype(float)
    assert floor(y, y[:30]) == 1.0
    y[0] = np.nan
    assert floor(y, y[:30]) >= 0.9
    missing = np.where(S == 1, np.nan, 7.0)  # that it is missing tells
    assert floor(missing, missing[:30]) == pytest.approx(2 / 3)
    assert floor(np.full(60, np.nan), np.full(30, np.nan)) == pytest.approx(1 / 3)


def test_y_may_be_a_table_of_text():
    words, other = np.array(["w", "walking", "x"])[S], np.arange(60) % 2
    y = pd.DataFrame({"a": words, "b": other})
    assert floor(y, y[:30]) == 1.0
    assert floor(y[["b"]], y[["b"]][:30]) < 0.5
    short = pd.DataFrame({"a": np.array(["w", "z", "x"])[S], "b": other})
    assert floor(short, y[:30]) == pytest.approx(2 / 3)  # "walking" is not "w"


def test_class_numbers_among_reals_are_told():
    def notes(s):
        report = audit(Z, s, TEST, s[:30], adversaries="ridge")
        return report.attributes["s"].notes

    assert any("make classes integers" in note for note in notes(S.astype(float)))
    assert notes(Z[:, 0]) == ()
