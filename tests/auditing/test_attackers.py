"""Two-sided: what is in z is found by every attacker that can, and what is not is found by none."""

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import Ridge
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from privjax.auditing import audit
from privjax.auditing.adversaries import OUT_OF_FAMILY, PAPER, REGRESSORS
from privjax.auditing.gaussian import gaussian, squared_distances
from privjax.auditing.linear_svm import linear_scores, linear_svm_path, row_span
from privjax.auditing.model import Task
from privjax.auditing.rbf_svm import fit_votes
from privjax.auditing.regressors import fit_ridge

LINEAR = {"linear_svm", "logistic"}


def halves(z, s):
    n = len(z) // 3 * 2
    return z[:n], s[:n], z[n:], s[n:]


def accuracies(report, name="s"):
    return {a.name: a.value("accuracy") for a in report.attributes[name].attacks}


@pytest.fixture(scope="module")
def known():
    """One audit of a release that tells one variable plainly, hides two in curves, and lacks a fourth."""
    rng = np.random.default_rng(0)
    n = 750
    plain = rng.integers(0, 2, n)
    z = rng.normal(size=(n, 5))
    z[:, 0] += 4.0 * plain
    circle = (z[:, 1] ** 2 + z[:, 2] ** 2 > 2 * np.log(2)).astype(int)
    xor = ((z[:, 3] > 0) ^ (z[:, 4] > 0)).astype(int)
    absent = rng.integers(0, 2, n)
    s = {"plain": plain, "circle": circle, "xor": xor, "absent": absent}
    parts = halves(z, np.arange(n))
    of = lambda rows: {name: values[rows] for name, values in s.items()}  # noqa: E731
    return audit(parts[0], of(parts[1]), parts[2], of(parts[3]), network_widths=(64,), n_jobs=2)


def test_every_attacker_is_there(known):
    for attribute in known.attributes.values():
        assert {a.name for a in attribute.attacks} == {*PAPER, *OUT_OF_FAMILY}
        assert all(a.failed is None for a in attribute.attacks)


def test_what_z_contains_is_found_by_every_attacker(known):
    assert min(accuracies(known, "plain").values()) > 0.85
    assert all(a.value("auc") > 0.9 for a in known.attributes["plain"].attacks)
    assert known.attributes["plain"].confidence["p_value"] < 0.01


def test_what_z_lacks_is_found_by_none(known):
    attribute = known.attributes["absent"]
    for score in ("accuracy", "auc"):
        covered = [low <= 0.5 <= high for low, high in (a.scores[score].interval for a in attribute.attacks)]
        assert sum(covered) >= 8, score  # of nine, each right nineteen times in twenty
        assert all(abs(a.value(score) - 0.5) < 0.12 for a in attribute.attacks)
    assert attribute.confidence["p_value"] > 0.05


@pytest.mark.parametrize("name", ["circle", "xor"])
def test_curved_secrets_escape_linear_attackers_alone(known, name):
    found = accuracies(known, name)
    assert all(found[attacker] < 0.6 for attacker in LINEAR)
    assert found["random_forest"] > 0.85
    for attacker in {"rbf_svm", "network", "deep_network"}:
        assert found[attacker] > 0.8, (attacker, found)
    assert known.attributes[name].strongest()["accuracy"] == max(found.values())
    assert known.attributes[name].adversary() == max(found[attacker] for attacker in PAPER)


def test_the_quadratic_attacker_takes_wide_releases():
    rng = np.random.default_rng(0)
    s = rng.integers(0, 3, 400)
    hidden = rng.normal(size=(400, 5)) * np.array([0.3, 1.0, 3.0])[s][:, None]  # told by spreads alone
    z = hidden @ rng.normal(size=(5, 600)) + 0.01 * rng.normal(size=(400, 600))
    (found,) = audit(*halves(z, s), adversaries=["quadratic"]).attributes["s"].attacks
    assert found.value("accuracy") > 0.7
    assert found.notes == ("on 16 principal components of 600 columns",)
    (blind,) = audit(*halves(z, rng.permutation(s)), adversaries=["quadratic"]).attributes["s"].attacks
    assert blind.value("accuracy") < 0.5


def test_wide_rows_cost_no_more_than_their_span():
    rng = np.random.default_rng(0)
    z, s, new = rng.normal(size=(40, 300)), np.arange(40) % 3, rng.normal(size=(50, 300))
    basis = row_span(z)
    assert basis.shape == (300, 40)
    for C in (0.1, 10.0):
        (wide,), (narrow,) = (linear_svm_path(rows, s, 3, penalties=(C,)) for rows in (z, z @ basis))
        want = linear_scores(new, wide)
        np.testing.assert_allclose(linear_scores(new @ basis, narrow), want, atol=2e-3 * np.abs(want).max())
    narrow = z[:, :7]
    np.testing.assert_array_equal(narrow @ row_span(narrow), narrow)


def test_boosting_takes_wide_releases():
    rng = np.random.default_rng(0)
    s = rng.integers(0, 2, 300)
    z = (rng.normal(size=(300, 3)) + s[:, None]) @ rng.normal(size=(3, 3000)) + rng.normal(size=(300, 3000))
    (found,) = audit(*halves(z, s), adversaries=["boosting"]).attributes["s"].attacks
    assert found.value("accuracy") > 0.7
    assert found.notes == ("on 200 principal components of 3000 columns",)
    (blind,) = audit(*halves(z, rng.permutation(s)), adversaries=["boosting"]).attributes["s"].attacks
    assert blind.value("accuracy") < 0.65


@pytest.mark.parametrize("width", [5, 90])
def test_ridge_is_scikit_learns_narrow_or_wide(width):
    rng = np.random.default_rng(0)
    z, t, new = rng.normal(size=(40, width)), rng.normal(size=40), rng.normal(size=(7, width))
    model = fit_ridge(Task(z, t, 0), seed=0)
    want = Ridge(alpha=model.settings["ridge"]).fit(z, t).predict(new)
    np.testing.assert_allclose(model.predict(new), want, rtol=1e-6, atol=1e-9)


def test_continuous_variables():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(600, 4))
    s = {
        "linear": z[:, 0] + 0.1 * rng.normal(size=600),
        "square": z[:, 1] ** 2,
        "absent": rng.normal(size=600),
    }
    of = lambda rows: {name: values[rows] for name, values in s.items()}  # noqa: E731
    train, test = slice(0, 400), slice(400, 600)
    report = audit(z[train], of(train), z[test], of(test), network_widths=(64,), n_jobs=2)
    r2 = {
        name: {a.name: a.value("r2") for a in attribute.attacks}
        for name, attribute in report.attributes.items()
    }
    assert set(r2["linear"]) == set(REGRESSORS)
    assert min(r2["linear"].values()) > 0.85
    assert r2["square"]["ridge"] < 0.1
    assert min(v for name, v in r2["square"].items() if name != "ridge") > 0.6
    for attack in report.attributes["absent"].attacks:
        assert attack.value("r2") < 0.05
        low, high = attack.scores["rank_correlation"].interval
        assert low <= 0.05
        assert high >= -0.05
    assert report.adversary_accuracy == {"linear": None, "square": None, "absent": None}
    assert report.adversary_r2["linear"] == max(r2["linear"].values())
    assert report.attributes["square"].confidence["rows"] == 200


def test_the_linear_svm_is_liblinears():
    rng = np.random.default_rng(2)
    s = rng.integers(0, 4, 300)
    z = rng.normal(size=(300, 5)) + 1.5 * np.eye(4, 5)[s]
    for penalty, w in zip((0.1, 1.0), linear_svm_path(z, s, 4, penalties=(0.1, 1.0)), strict=True):
        oracle = LinearSVC(C=penalty, dual=False, tol=1e-8, max_iter=10_000).fit(z, s)
        np.testing.assert_allclose(
            linear_scores(z, w), oracle.decision_function(z), atol=2e-2, err_msg=str(penalty)
        )
        assert (linear_scores(z, w).argmax(1) == oracle.predict(z)).mean() > 0.99


@pytest.mark.parametrize("num_classes", [2, 5])
def test_the_rbf_svm_is_libsvms(num_classes):
    rng = np.random.default_rng(3)
    s = np.sort(rng.integers(0, num_classes, 300))
    z = rng.normal(size=(300, 3)) + s[:, None] * [0.7, 0.0, -0.3]
    new = rng.normal(size=(200, 3)) + 1.0
    machine = fit_votes(gaussian(squared_distances(z, z), 0.3), s, num_classes, penalty=5.0, tolerance=1e-4)
    oracle = SVC(C=5.0, gamma=0.3, tol=1e-4, decision_function_shape="ovo").fit(z, s)
    kernel = gaussian(squared_distances(new, z), 0.3)
    decisions = np.stack([d for _, _, d in machine.decisions(kernel)], axis=1)
    expected = oracle.decision_function(new).reshape(200, -1)
    # For two classes scikit-learn turns the sign round: above zero for the second.
    np.testing.assert_allclose(decisions, expected if num_classes > 2 else -expected, atol=2e-3)
    agree = (machine(kernel).argmax(1) == oracle.predict(new)).mean()
    assert agree > (0.9 if num_classes > 2 else 0.99)  # votes are whole there


def test_estimators_of_the_user():
    from sklearn.linear_model import LinearRegression

    rng = np.random.default_rng(4)
    s = rng.integers(0, 2, 150)
    z = np.stack([s + 0.1 * rng.normal(size=150), rng.normal(size=150)], axis=1)
    tree = DecisionTreeClassifier(max_depth=2)
    report = audit(*halves(z, s), adversaries=["linear_svm", tree, LinearRegression()])
    assert set(accuracies(report)) == {"linear_svm", "DecisionTreeClassifier"}  # a regressor suits no class
    assert min(accuracies(report).values()) > 0.95
    assert not hasattr(tree, "tree_")  # the user's own stays as it was
    named = audit(*halves(z, s), adversaries={"mine": tree})
    assert named.attributes["s"].attacks[0].group == "user"
    assert named.adversary_accuracy is None  # none of the paper's
    assert named.strongest["attacker"] == "mine"
    with pytest.raises(ValueError, match="adversaries must be among"):
        audit(*halves(z, s), adversaries=["svm"])
    with pytest.raises(TypeError, match="names or scikit-learn estimators"):
        audit(*halves(z, s), adversaries=[3])


def test_labels_may_be_words_and_one_hot_rows():
    rng = np.random.default_rng(5)
    s = rng.integers(0, 2, 150)
    z = s[:, None] + 0.1 * rng.normal(size=(150, 2))
    words = audit(*halves(z, np.array(["no", "yes"])[s]), adversaries="neighbours")
    one_hot = audit(*halves(z, np.eye(2)[s]), adversaries="neighbours")
    assert words.strongest["accuracy"] == one_hot.strongest["accuracy"] == 1.0


def test_standardising_is_the_attackers_first_step():
    rng = np.random.default_rng(6)
    s = rng.integers(0, 2, 150)
    telling = s + 0.1 * rng.normal(size=150)
    z = np.stack([1e-6 * telling, 1e6 * rng.normal(size=150) + 1e7], axis=1)
    report = audit(*halves(z, s), adversaries=["rbf_svm", "neighbours"])
    assert min(accuracies(report).values()) > 0.95


class _Overflows(DummyClassifier):
    """Guesses the largest class after an overflow that harms nothing."""

    def fit(self, X, y):
        np.float32(1e38) * np.float32(1e38)
        return super().fit(X, y)

    def predict_proba(self, X):
        np.array([1.0]) / np.array([0.0])
        return super().predict_proba(X)


def test_what_arithmetic_flags_silences_no_attacker():
    """The suite makes warnings errors: without care each of these would be a failed attacker."""
    z, s = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 3
    with pytest.raises(RuntimeWarning, match="overflow"):
        _Overflows().fit(z, s)
    with np.errstate(all="raise"):
        report = audit(z[:60], s[:60], z[60:], s[60:], adversaries=[_Overflows(), "linear_svm"], n_jobs=2)
    assert [attack.failed for attack in report.attributes["s"].attacks] == [None, None]
    assert report.attributes["s"].attacks[0].value("accuracy") == pytest.approx(1 / 3, abs=0.01)


class _Outliers(DummyClassifier):
    """Says -1 of whatever it thinks odd."""

    def predict(self, X):
        return -np.ones(len(X), int)


class _Unsure(DecisionTreeClassifier):
    """Predicts well, and has no probabilities to give."""

    def predict_proba(self, X):
        raise NotImplementedError


def test_what_an_estimator_predicts_is_taken_at_its_word():
    s = np.arange(150) % 2
    z = s[:, None] + 0.1 * np.random.default_rng(0).normal(size=(150, 2))
    report = audit(*halves(z, s), adversaries=[_Outliers(), _Unsure()])
    outliers, unsure = report.attributes["s"].attacks
    assert "predict gives classes from -1 to -1" in outliers.failed
    assert unsure.failed is None
    assert unsure.value("accuracy") == 1.0


def test_two_variables_of_one_name_are_refused():
    s = np.arange(60) % 2
    named = {"a": np.stack([s, 1.5 * s], axis=1), "a[0]": s}
    z = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(ValueError, match=r"two variables that are called 'a\[0\]'"):
        audit(z, named, z, named, adversaries="linear_svm")
