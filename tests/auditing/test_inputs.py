"""Unusual inputs: every attacker handles them, or the report says why it does not."""

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

import privjax
from privjax.auditing import ATTACKERS, AuditReport, audit

RNG = np.random.default_rng(0)
S = np.arange(60) % 3
Z = RNG.normal(size=(60, 4)) + 2.0 * np.eye(3, 4)[S]
TEST = RNG.normal(size=(30, 4)) + 2.0 * np.eye(3, 4)[S[:30]]
# The deep network is the network with more layers, and takes twice the time to compile.
NEARLY_ALL = [name for name in ATTACKERS if name != "deep_network"]


def attacks(report):
    return report.attributes["s"].attacks


def complete(report):
    """Check that every attacker has a score or an error, and that the report is strict JSON."""
    kept = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert AuditReport.from_dict(kept) == report
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
    assert report.attributes["s"].confidence.p_value == 1.0


def test_a_dead_unit_changes_nothing():
    dead = np.concatenate([Z, np.full((60, 1), 3.3)], axis=1)
    dead_test = np.concatenate([TEST, RNG.normal(size=(30, 1))], axis=1)  # it varies in test rows alone
    with_it = audit(dead, S, dead_test, S[:30], attackers=["linear_svm", "rbf_svm", "quadratic"])
    without = audit(Z, S, TEST, S[:30], attackers=["linear_svm", "rbf_svm", "quadratic"])
    assert "1 of 5 columns" in with_it.notes[0]
    assert [a.scores for a in attacks(with_it)] == [a.scores for a in attacks(without)]


def test_one_row_a_class():
    report = complete(audit(Z[:3], S[:3], TEST, S[:30], attackers=NEARLY_ALL, network_widths=(32,)))
    assert any("too few rows to choose settings" in a.notes for a in attacks(report))
    assert sum(a.failed is None for a in attacks(report)) >= 7
    assert report.leakage > 0.5  # the classes are far apart: one row is enough


def test_a_class_missing_from_training():
    train = S != 2
    report = complete(audit(Z[train], S[train], TEST, S[:30], attackers=NEARLY_ALL, network_widths=(32,)))
    attribute = report.attributes["s"]
    assert "1 classes are in no training row: their 10 test rows count as errors" in attribute.notes
    assert attribute.chance == pytest.approx(1 / 3)
    assert 0.5 < report.leakage <= 2 / 3
    assert all(a.failed is None for a in attacks(report))


def test_fewer_rows_than_folds():
    rows = [0, 1, 3, 4]
    some = ["fast", "rbf_svm", "boosting", "logistic"]
    report = complete(audit(Z[rows], S[rows], TEST, S[:30], attackers=some))
    assert report.leakage > 0.4


def test_a_single_training_row_and_a_single_class():
    for rows in ([0], [0, 3, 6]):
        report = complete(audit(Z[rows], S[rows], TEST, S[:30]))
        assert report.leakage == pytest.approx(1 / 3)
        assert all(a.notes for a in attacks(report))


def test_missing_values_are_replaced_and_indicated():
    rng = np.random.default_rng(1)
    s = rng.integers(0, 2, 300)
    z = rng.normal(size=(300, 3))
    z[s == 1, 0] = np.where(rng.random((s == 1).sum()) < 0.9, np.nan, 0.0)  # missing in one class
    z[0, 1], z[1, 2] = np.inf, 1e308
    some = ["linear_svm", "rbf_svm", "random_forest", "neighbours", "logistic"]
    report = audit(z[:200], s[:200], z[200:], s[200:], attackers=some)
    assert "not finite" in report.notes[0]
    for attack in attacks(report):
        assert attack.failed is None, attack
        assert attack.value("accuracy") > 0.8, attack.name
    late = audit(Z, S, np.where(np.eye(30, 4) > 0, np.nan, TEST), S[:30], attackers="quadratic")
    assert late.notes == ("4 test rows of z are not finite: replaced by the median",)
    assert late.strongest.value() > 0.6
    everything = complete(audit(np.full((60, 4), np.nan), S, TEST, S[:30], attackers="fast"))
    assert all(any("constant" in note for note in a.notes) for a in attacks(everything))


def test_continuous_variables_with_missing_values_and_constants():
    s = Z[:, 0].copy()
    s[3] = np.nan
    both = {"a": TEST[:, 0], "b": np.zeros(30)}
    report = audit(Z, {"a": s, "b": np.zeros(60)}, TEST, both, network_widths=(32,))
    json.dumps(report.to_dict(), allow_nan=False)
    assert report.attributes["a"].leakage() > 0.8
    assert "1 rows without a finite value are left out" in report.attributes["a"].notes
    assert report.attributes["b"].leakage() is None  # the R^2 of a constant is undefined


def test_a_continuous_variable_may_have_any_unit():
    found = []
    for unit in (1.0, 2.0**-560, 2.0**660):
        report = audit(Z, unit * Z[:, 0], TEST, unit * TEST[:, 0], attackers=["ridge", "kernel_ridge"])
        found.append({a.name: a.value("r2") for a in report.attributes["s"].attacks})
    assert min(found[0].values()) > 0.8
    assert found[1] == found[0]
    assert found[2] == found[0]


def test_a_note_explains_a_score_that_is_not_defined():
    report = audit(Z, Z[:, 0], TEST, np.ones(30), attackers="ridge")
    assert report.attributes["s"].leakage() is None
    assert any("constant in the test rows" in note for note in report.attributes["s"].notes)
    assert audit(Z, Z[:, 0], TEST, TEST[:, 0], attackers="ridge").attributes["s"].notes == ()


def test_the_scale_of_a_release_hides_nothing():
    some = ["linear_svm", "quadratic"]
    usual = audit(Z, S, TEST, S[:30], attackers=some)
    for factor in (1e35, 1e-300):
        scaled = audit(Z * factor, S, TEST * factor, S[:30], attackers=some)
        assert scaled.leakage == usual.leakage > 0.6
        assert scaled.strongest.name == usual.strongest.name
    complete(audit(Z * 1e-300, S, np.full((30, 4), 1e308), S[:30], attackers=some))


@pytest.mark.parametrize("size", [1e3, -1e12, 1e300])
def test_one_outlier_hides_nothing(size):
    z = Z.copy()
    z[7] = size
    who = ["linear_svm", "rbf_svm", "neighbours", "logistic", "quadratic", "network"]
    report = complete(audit(z, S, TEST, S[:30], attackers=who, network_widths=(32,)))
    honest = complete(audit(Z, S, TEST, S[:30], attackers=who, network_widths=(32,)))
    assert report.notes == ("4 of 4 columns of z have outliers in training rows: clipped",)
    assert not honest.notes
    for attack, plain in zip(attacks(report), attacks(honest), strict=True):
        assert attack.value("accuracy") >= plain.value("accuracy") - 0.1, attack
        assert plain.value("accuracy") > 0.6


def test_rare_values_of_a_column_are_no_outliers():
    z, test = np.zeros((300, 1)), np.zeros((300, 1))
    s = (np.arange(300) == 5).astype(int)
    z[5], test[5] = 9.0, 9.0
    report = audit(z, s, test, s, attackers=["random_forest"])
    assert attacks(report)[0].value("balanced_accuracy") == 1.0
    assert not any("outliers" in note for note in report.notes)


def test_the_columns_of_a_table_are_variables_of_their_own_type():
    frames = [pd.DataFrame({"user": s, "age": z[:, 0]}) for s, z in ((S, Z), (S[:30], TEST))]
    report = audit(pd.DataFrame(Z).astype(object), frames[0], TEST, frames[1], attackers="fast")
    alone = audit(Z, S, TEST, S[:30], attackers="fast")
    assert report.attributes["user"].discrete
    assert not report.attributes["age"].discrete
    assert report.attributes["user"].leakage() == pytest.approx(alone.leakage, abs=0.15)
    assert report.attributes["age"].leakage() > 0.8


def test_labels_of_mixed_types_are_refused():
    mixed = np.array(["ann", None, "bob"], dtype=object)
    names = np.array(["ann", "cid", "bob"])
    for train, test in ((mixed[S], names[S[:30]]), (names[S], mixed[S[:30]])):
        with pytest.raises(TypeError, match="s has labels that cannot be compared"):
            audit(Z, train.astype(object), TEST, test.astype(object), attackers="linear_svm")


def test_as_many_classes_as_rows():
    report = complete(audit(Z, np.arange(60), TEST, np.arange(30), attackers=["random_forest", "logistic"]))
    assert all(attack.failed is None for attack in attacks(report))


def test_a_failing_attacker_does_not_stop_the_others():
    class Broken:
        def fit(self, z, s):
            raise RuntimeError("no licence")

        def get_params(self, deep=True):
            return {}

    mine = [("linear_svm", Broken()), ("ok", _tree()), "linear_svm"]
    report = complete(audit(Z, S, TEST, S[:30], attackers=mine))
    by_name = {a.name: a for a in attacks(report)}
    assert "no licence" in by_name["linear_svm"].failed
    assert by_name["ok"].value("accuracy") > 0.6
    assert by_name["linear_svm_2"].value("accuracy") == report.leakage
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
        ((Z, S, TEST, S[:30].astype(str)), "no test row of a training class"),
        ((Z, {1: S, "1": S}, TEST, {1: S[:30], "1": S[:30]}), "two variables of the same name"),
    ],
)
def test_errors_say_what_to_do(arguments, message):
    with pytest.raises(ValueError, match=message):
        audit(*arguments)


def test_large_numbers_are_not_taken_for_rounding():
    whole = (10**10 + S)[:, None]
    stamps = (1.7e12 + 1000.0 * S + RNG.random(60) * 100)[:, None]
    for z in (whole, stamps):
        report = complete(audit(z, S, z, S, attackers=["random_forest", "linear_svm"]))
        assert report.strongest.value() == 1.0
    rounded = np.float32(3.3) * (1 + np.finfo(np.float32).eps * (S[:, None] - 1)).astype(np.float32)
    report = complete(audit(rounded, S, rounded, S, attackers=["random_forest"]))
    assert "constant" in report.notes[0]


def test_nan_and_the_two_infinities_are_three_values():
    z = np.array([np.nan, np.inf, -np.inf])[S][:, None]
    report = complete(audit(z, S, z, S, attackers=["linear_svm", "random_forest"]))
    assert report.strongest.value() == 1.0


def test_linear_attackers_see_linear_information_only():
    """Heavy tails are not clipped: bent columns would show a linear attacker the erased variable."""
    rng = np.random.default_rng(5)
    s = np.arange(600) % 3
    x = rng.standard_t(3, size=(600, 6)) * (1 + s[:, None])  # only the spread depends on s
    x[:, 0] += s
    train, test = np.arange(600) < 400, np.arange(600) >= 400
    z = privjax.baselines.linear_erasure(x[train], s[train])(x)
    report = privjax.audit(z[train], s[train], z[test], s[test], attackers="linear_svm")
    assert report.leakage < 0.45
    assert not any("outliers" in note for note in report.notes)
    bent = np.clip(z, *np.quantile(z[train], [0.1, 0.6], axis=0))
    assert privjax.audit(bent[train], s[train], bent[test], s[test], attackers="linear_svm").leakage > 0.45


def test_missing_values_are_no_outliers():
    z = 1000 + Z
    z[::20, 1] = np.nan
    report = complete(audit(z, S, TEST + 1000, S[:30], attackers=["linear_svm"]))
    assert not any("outliers" in note for note in report.notes)


def test_bfloat16_is_accepted():
    z = jnp.asarray(Z, jnp.bfloat16)
    report = complete(audit(z, S, z, S, attackers=["linear_svm"]))
    assert report.strongest.value() > 0.6


def test_an_estimator_that_works_in_place_changes_no_other_attacker():
    def found(*more):
        report = complete(audit(Z, S, TEST, S[:30], attackers=[*more, "neighbours", "quadratic"]))
        return {a.name: a.scores for a in attacks(report) if a.group != "user"}

    in_place = make_pipeline(Normalizer(copy=False), KNeighborsClassifier())
    assert found(in_place) == found()


def test_decisions_of_pairs_are_not_read_as_decisions_of_classes():
    machines = {"ovr": SVC(), "ovo": SVC(decision_function_shape="ovo")}
    one, other = attacks(complete(audit(Z, S, TEST, S[:30], attackers=machines)))
    assert one.value("accuracy") == other.value("accuracy") > 0.6


def test_random_states_inside_a_pipeline_are_set():
    forest = make_pipeline(StandardScaler(), RandomForestClassifier(3))
    runs = [complete(audit(Z, S, TEST, S[:30], attackers={"f": forest}, seed=4)) for _ in range(3)]
    assert len({attacks(run)[0].value("auc") for run in runs}) == 1


def test_nan_predictions_fail_and_zero_is_a_score():
    class Constant(RegressorMixin, BaseEstimator):
        def __init__(self, value=0.0):
            self.value = value

        def fit(self, z, s):
            return self

        def predict(self, z):
            return np.full(len(z), self.value)

    s = np.tile([-1.0, 1.0], 30)
    who = {"nan": Constant(np.nan), "zero": Constant(0.0), "bad": Constant(5.0)}
    report = audit(Z, s, Z, s, attackers=who)
    by_name = {a.name: a for a in attacks(report)}
    assert "must be numbers" in by_name["nan"].failed
    assert (report.strongest.name, report.strongest.value()) == ("zero", 0.0)


def test_a_column_of_y_is_accepted_and_mixed_types_are_refused():
    column = audit(Z, S, TEST, S[:30], y_train=S[:, None], y_test=S[:30], attackers=["linear_svm"])
    plain = audit(Z, S, TEST, S[:30], y_train=S, y_test=S[:30], attackers=["linear_svm"])
    assert column.attributes["s"].label_alone == plain.attributes["s"].label_alone
    odd = np.array(["a", None] * 30, object)
    with pytest.raises(TypeError, match="y_train has labels that cannot be compared"):
        audit(Z, S, TEST, S[:30], y_train=odd, y_test=odd[:30])
    with pytest.raises(ValueError, match="the same columns"):
        audit(Z, S, TEST, S[:30], y_train=np.ones((60, 2)), y_test=np.ones(30))
    with pytest.raises(ValueError, match="seed must be a whole number, not negative"):
        audit(Z, S, TEST, S[:30], seed=-1)


def given_y_alone(y_train, y_test):
    report = audit(Z, S, TEST, S[:30], y_train=y_train, y_test=y_test, attackers=[_tree()])
    return report.attributes["s"].label_alone["accuracy"].value


def test_missing_values_of_y_are_information():
    y = S.astype(float)
    assert given_y_alone(y, y[:30]) == 1.0
    y[0] = np.nan
    assert given_y_alone(y, y[:30]) >= 0.9
    missing = np.where(S == 1, np.nan, 7.0)  # missing in one class
    assert given_y_alone(missing, missing[:30]) == pytest.approx(2 / 3)
    assert given_y_alone(np.full(60, np.nan), np.full(30, np.nan)) == pytest.approx(1 / 3)


def test_y_may_be_a_table_of_text():
    words, other = np.array(["w", "walking", "x"])[S], np.arange(60) % 2
    y = pd.DataFrame({"a": words, "b": other})
    assert given_y_alone(y, y[:30]) == 1.0
    assert given_y_alone(y[["b"]], y[["b"]][:30]) < 0.5
    short = pd.DataFrame({"a": np.array(["w", "z", "x"])[S], "b": other})
    assert given_y_alone(short, y[:30]) == pytest.approx(2 / 3)  # "walking" is not "w"


def test_a_note_warns_of_whole_numbers_among_reals():
    def notes(s):
        report = audit(Z, s, TEST, s[:30], attackers="ridge")
        return report.attributes["s"].notes

    assert any("convert them to integers" in note for note in notes(S.astype(float)))
    assert notes(Z[:, 0]) == ()
