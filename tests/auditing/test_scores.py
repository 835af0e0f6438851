"""Scores against scikit-learn and SciPy, intervals against the truth in simulations."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import balanced_accuracy_score, r2_score, roc_auc_score

from privjax.auditing.scores import accuracy_scores, classification_scores, regression_scores


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    codes = rng.choice(4, 300, p=[0.5, 0.3, 0.15, 0.05])
    scores = np.round(rng.random((300, 4)) + 0.3 * np.eye(4)[codes], 1)  # with ties
    found = classification_scores(scores, codes, seed=0)
    guess = scores.argmax(1)
    assert found["accuracy"].value == pytest.approx((guess == codes).mean())
    assert found["balanced_accuracy"].value == pytest.approx(balanced_accuracy_score(codes, guess))
    each = [roc_auc_score(codes == k, scores[:, k]) for k in range(4)]
    assert found["auc"].value == pytest.approx(np.mean(each))
    for score in found.values():
        assert score.interval[0] <= score.value <= score.interval[1]

    truth = rng.normal(size=200)
    guess = np.round(truth + rng.normal(size=200), 1)
    found = regression_scores(guess, truth, seed=0)
    assert found["r2"].value == pytest.approx(r2_score(truth, guess))
    assert found["rank_correlation"].value == pytest.approx(spearmanr(guess, truth)[0])


def test_absent_classes():
    scores = np.eye(3)[[0, 1, 1, 0]]
    found = classification_scores(scores, np.array([0, 1, -1, -1]), seed=0)
    assert found["accuracy"].value == 0.5
    assert found["balanced_accuracy"].value == pytest.approx(2 / 3)
    assert classification_scores(scores, np.zeros(4, int), seed=0)["auc"] is None
    assert regression_scores(np.ones(5), np.ones(5), seed=0)["r2"] is None


def test_intervals_never_have_width_zero():
    for right in (np.zeros(50, int), np.ones(50, int)):
        scores = np.eye(2)[right]
        low, high = classification_scores(scores, np.ones(50, int), seed=0)["accuracy"].interval
        assert high - low > 0.02


@pytest.mark.parametrize("rate", [0.04, 0.3, 0.9])
def test_intervals_cover_the_truth_of_accuracies(rate):
    """They cover it 95 % of the time, with the class sizes of a small test part; half the width does not."""
    rng = np.random.default_rng(1)
    kept, narrow, balanced = [], [], []
    recalls = np.clip(rate + np.array([-0.03, 0.0, 0.03]), 0.01, 0.99)
    shares = np.array([0.2, 0.3, 0.5])
    for i in range(400):
        codes = rng.choice(3, 300, p=shares)
        right = rng.random(300) < recalls[codes]
        accuracy, of_classes = accuracy_scores(right, codes, seed=i)
        low, high = accuracy.interval
        truth, middle = float(shares @ recalls), accuracy.value
        kept.append(low <= truth <= high)
        narrow.append(middle - (middle - low) / 2 <= truth <= middle + (high - middle) / 2)
        low, high = of_classes.interval
        balanced.append(low <= recalls.mean() <= high)
    assert 0.92 <= np.mean(kept) <= 0.99
    assert 0.91 <= np.mean(balanced) <= 0.99
    assert np.mean(narrow) < 0.85


@pytest.mark.slow
def test_intervals_cover_the_truth_of_areas_and_correlations():
    rng = np.random.default_rng(2)
    kept = {"auc": [], "r2": [], "rank_correlation": []}
    # Two normal scores one spread apart: AUC = Phi(1 / sqrt 2). Truth plus noise of its size: r = 1/sqrt 2.
    area, r2, rank = 0.760250, 0.0, 6 / np.pi * np.arcsin(np.sqrt(0.5) / 2)
    for i in range(200):
        codes = rng.integers(0, 2, 200)
        score = rng.normal(size=200) + codes
        low, high = classification_scores(np.stack([-score, score], 1), codes, seed=i)["auc"].interval
        kept["auc"].append(low <= area <= high)
        truth = rng.normal(size=200)
        found = regression_scores(truth + rng.normal(size=200), truth, seed=i)
        for name, value in (("r2", r2), ("rank_correlation", rank)):
            low, high = found[name].interval
            kept[name].append(low <= value <= high)
    for name, times in kept.items():
        assert 0.9 <= np.mean(times) <= 0.99, (name, np.mean(times))
