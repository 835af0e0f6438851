"""Attackers on releases whose leakage is known: they find what z contains, and nothing else."""

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from privjax.auditing import ATTACKERS, audit
from privjax.auditing.inputs import AttackTask
from privjax.auditing.tuned import train_linear_svm

LINEAR = {"linear_svm", "logistic"}
CLASSIFIERS = {name for name, attacker in ATTACKERS.items() if attacker.classes}
REGRESSORS = {name for name, attacker in ATTACKERS.items() if attacker.reals}


def split(z, s):
    n = len(z) // 3 * 2
    return z[:n], s[:n], z[n:], s[n:]


def split_named(z, s):
    n = len(z) // 3 * 2
    parts = [{name: values[rows] for name, values in s.items()} for rows in (slice(n), slice(n, None))]
    return z[:n], parts[0], z[n:], parts[1]


def accuracies(report, name="s"):
    return {attack.name: attack.value("accuracy") for attack in report.attributes[name].attacks}


@pytest.fixture(scope="module")
def known():
    """A release that shows one variable plainly, two in curves, and lacks a fourth."""
    rng = np.random.default_rng(0)
    n = 750
    plain = rng.integers(0, 2, n)
    z = rng.normal(size=(n, 5))
    z[:, 0] += 4.0 * plain
    circle = (z[:, 1] ** 2 + z[:, 2] ** 2 > 2 * np.log(2)).astype(int)
    xor = ((z[:, 3] > 0) ^ (z[:, 4] > 0)).astype(int)
    s = {"plain": plain, "circle": circle, "xor": xor, "absent": rng.integers(0, 2, n)}
    return audit(*split_named(z, s), network_widths=(64,), n_jobs=2)


@pytest.mark.slow
def test_every_attacker_scores_every_variable(known):
    for attribute in known.attributes.values():
        assert {attack.name for attack in attribute.attacks} == CLASSIFIERS
        assert all(attack.failed is None for attack in attribute.attacks)


def test_every_attacker_finds_a_plain_variable(known):
    assert min(accuracies(known, "plain").values()) > 0.85
    assert all(attack.value("auc") > 0.9 for attack in known.attributes["plain"].attacks)
    assert known.attributes["plain"].confidence.p_value < 0.01


def test_no_attacker_finds_an_absent_variable(known):
    attribute = known.attributes["absent"]
    for score in ("accuracy", "auc"):
        intervals = [attack.scores[score].interval for attack in attribute.attacks]
        covered = sum(low <= 0.5 <= high for low, high in intervals)
        assert covered >= len(intervals) - 1, score  # each interval misses one time in twenty
        assert all(abs(attack.value(score) - 0.5) < 0.12 for attack in attribute.attacks)
    assert attribute.confidence.p_value > 0.05


@pytest.mark.parametrize("name", ["circle", "xor"])
def test_only_linear_attackers_miss_a_curved_variable(known, name):
    found = accuracies(known, name)
    assert all(found[attacker] < 0.6 for attacker in LINEAR)
    assert found["random_forest"] > 0.85
    for attacker in ("rbf_svm", "network", "deep_network"):
        assert found[attacker] > 0.8, (attacker, found)
    attribute = known.attributes[name]
    assert attribute.best().value() == max(found.values())
    assert attribute.leakage() == max(
        value for key, value in found.items() if ATTACKERS[key].classes == "paper"
    )


def test_quadratic_attacker_reduces_a_wide_release():
    rng = np.random.default_rng(0)
    s = rng.integers(0, 3, 330)
    hidden = (
        rng.normal(size=(330, 5)) * np.array([0.3, 1.0, 3.0])[s][:, None]
    )  # classes differ in spread alone
    z = hidden @ rng.normal(size=(5, 600)) + 0.01 * rng.normal(size=(330, 600))
    (found,) = audit(*split(z, s), attackers=["quadratic"]).attributes["s"].attacks
    assert found.value("accuracy") > 0.7
    assert found.settings["columns"] == 16
    assert found.notes == ("on 220 principal components of 600 columns",)
    (blind,) = audit(*split(z, rng.permutation(s)), attackers=["quadratic"]).attributes["s"].attacks
    assert blind.value("accuracy") < 0.5


def test_boosting_reduces_a_wide_release():
    rng = np.random.default_rng(0)
    s = rng.integers(0, 2, 300)
    z = (rng.normal(size=(300, 3)) + s[:, None]) @ rng.normal(size=(3, 3000)) + rng.normal(size=(300, 3000))
    (found,) = audit(*split(z, s), attackers=["boosting"]).attributes["s"].attacks
    assert found.value("accuracy") > 0.7
    assert found.notes == ("on 200 principal components of 3000 columns",)
    (blind,) = audit(*split(z, rng.permutation(s)), attackers=["boosting"]).attributes["s"].attacks
    assert blind.value("accuracy") < 0.65


@pytest.mark.slow
def test_continuous_variables():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(600, 4))
    s = {
        "linear": z[:, 0] + 0.1 * rng.normal(size=600),
        "square": z[:, 1] ** 2,
        "absent": rng.normal(size=600),
    }
    report = audit(*split_named(z, s), network_widths=(64,), n_jobs=2)
    r2 = {
        name: {attack.name: attack.value("r2") for attack in attribute.attacks}
        for name, attribute in report.attributes.items()
    }
    assert set(r2["linear"]) == REGRESSORS
    assert min(r2["linear"].values()) > 0.85
    assert r2["square"]["ridge"] < 0.1
    assert min(value for name, value in r2["square"].items() if name != "ridge") > 0.6
    for attack in report.attributes["absent"].attacks:
        assert attack.value("r2") < 0.05
        low, high = attack.scores["rank_correlation"].interval
        assert low <= 0.05
        assert high >= -0.05
    assert report.attributes["linear"].leakage() == max(r2["linear"].values())
    assert report.attributes["square"].confidence.rows == 200


@pytest.mark.parametrize("penalty", [0.1, 1.0])
def test_linear_svm_is_that_of_liblinear(penalty):
    rng = np.random.default_rng(2)
    s = rng.integers(0, 4, 300)
    z = rng.normal(size=(300, 5)) + 1.5 * np.eye(4, 5)[s]
    scores = train_linear_svm(AttackTask(z, s, 4), {"C": penalty})(z)
    oracle = LinearSVC(C=penalty, dual=False, tol=1e-8, max_iter=10_000).fit(z, s)
    np.testing.assert_allclose(scores, oracle.decision_function(z), atol=2e-2)
    assert (scores.argmax(1) == oracle.predict(z)).mean() > 0.99


@pytest.mark.parametrize("num_classes", [2, 5])
def test_rbf_svm_is_that_of_libsvm(num_classes):
    rng = np.random.default_rng(3)
    s = rng.integers(0, num_classes, 300)
    z = rng.normal(size=(300, 3)) + s[:, None] * [0.7, 0.0, -0.3]
    new = rng.normal(size=(200, 3)) + 1.0
    fitted = ATTACKERS["rbf_svm"].fit(AttackTask(z, s, num_classes), seed=0)
    gamma = fitted.settings["bandwidth"] / 3
    oracle = SVC(C=fitted.settings["C"], gamma=gamma, break_ties=num_classes > 2).fit(z, s)
    assert (fitted.predict(new).argmax(1) == oracle.predict(new)).mean() > 0.99


def test_estimators_of_the_user():
    rng = np.random.default_rng(4)
    s = rng.integers(0, 2, 150)
    z = np.stack([s + 0.1 * rng.normal(size=150), rng.normal(size=150)], axis=1)
    tree = DecisionTreeClassifier(max_depth=2)
    report = audit(*split(z, s), attackers=["linear_svm", tree, LinearRegression()])
    assert set(accuracies(report)) == {"linear_svm", "DecisionTreeClassifier"}  # no regressor for classes
    assert min(accuracies(report).values()) > 0.95
    assert not hasattr(tree, "tree_")  # a clone was fitted
    named = audit(*split(z, s), attackers={"mine": tree})
    assert named.strongest.name == "mine"
    assert named.strongest.group == "user"
    assert named.leakage == named.strongest.value()  # without any of the paper's attackers
    with pytest.raises(ValueError, match="attackers must be among all, paper, fast, linear_svm"):
        audit(*split(z, s), attackers=["svm"])
    with pytest.raises(TypeError, match="names or scikit-learn estimators, got int"):
        audit(*split(z, s), attackers=[3])
    with pytest.raises(ValueError, match="attackers must suit s, which is classes"):
        audit(*split(z, s), attackers="ridge")


def test_labels_can_be_text_or_one_hot_rows():
    rng = np.random.default_rng(5)
    s = rng.integers(0, 2, 150)
    z = s[:, None] + 0.1 * rng.normal(size=(150, 2))
    text = audit(*split(z, np.array(["no", "yes"])[s]), attackers="neighbours")
    one_hot = audit(*split(z, np.eye(2)[s]), attackers="neighbours")
    assert text.leakage == one_hot.leakage == 1.0


def test_attackers_standardise_columns():
    rng = np.random.default_rng(6)
    s = rng.integers(0, 2, 150)
    revealing = s + 0.1 * rng.normal(size=150)
    z = np.stack([1e-6 * revealing, 1e6 * rng.normal(size=150) + 1e7], axis=1)
    report = audit(*split(z, s), attackers=["rbf_svm", "neighbours"])
    assert min(accuracies(report).values()) > 0.95


class _Overflows(DummyClassifier):
    """Guesses the largest class after a harmless overflow."""

    def fit(self, X, y):
        np.float32(1e38) * np.float32(1e38)
        return super().fit(X, y)

    def predict_proba(self, X):
        np.array([1.0]) / np.array([0.0])
        return super().predict_proba(X)


def test_a_floating_point_flag_ends_no_attack():
    """The suite turns warnings into errors: each of these attacks could fail."""
    z, s = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 3
    with pytest.raises(RuntimeWarning, match="overflow"):
        _Overflows().fit(z, s)
    with np.errstate(all="raise"):
        report = audit(z[:60], s[:60], z[60:], s[60:], attackers=[_Overflows(), "linear_svm"], n_jobs=2)
    assert [attack.failed for attack in report.attributes["s"].attacks] == [None, None]
    assert report.attributes["s"].attacks[0].value("accuracy") == pytest.approx(1 / 3, abs=0.01)


class _Outliers(DummyClassifier):
    """Predicts -1, as outlier detectors do."""

    def predict(self, X):
        return -np.ones(len(X), int)


class _Unsure(DecisionTreeClassifier):
    """Predicts well, but has no probabilities."""

    def predict_proba(self, X):
        raise NotImplementedError


def test_guesses_count_without_probabilities_and_unknown_classes_fail():
    s = np.arange(150) % 2
    z = s[:, None] + 0.1 * np.random.default_rng(0).normal(size=(150, 2))
    outliers, unsure = audit(*split(z, s), attackers=[_Outliers(), _Unsure()]).attributes["s"].attacks
    assert "predict must return classes from 0 to 1, got -1 to -1" in outliers.failed
    assert unsure.failed is None
    assert unsure.value("accuracy") == 1.0


def test_two_variables_of_one_name_are_refused():
    s = np.arange(60) % 2
    named = {"a": np.stack([s, 1.5 * s], axis=1), "a[0]": s}
    z = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(ValueError, match=r"s has two variables called 'a\[0\]'"):
        audit(z, named, z, named, attackers="linear_svm")
