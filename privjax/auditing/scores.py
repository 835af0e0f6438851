"""Scores of an attack on test rows, each with a 95 % bootstrap interval."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer

_LEVEL = 0.95
_DRAWS = 1000
_BLOCK_ROWS = 4096  # rows resampled at a time


class Score(NamedTuple):
    """A score and its interval."""

    value: float
    interval: tuple[float, float] | None


Scores = dict[str, Score | None]  # None for a score that is not defined on these rows


def classification_scores(
    scores: Float[np.ndarray, "n k"], classes: Integer[np.ndarray, " n"], *, seed: int
) -> Scores:
    """Compute accuracy, balanced accuracy and macro AUC.

    Args:
      scores: One score for each row and class; the largest is the guess.
      classes: Class numbers; -1, for a class without training rows, counts as an error.
      seed: Seed of the bootstrap.

    Returns:
      "accuracy", "balanced_accuracy" (mean recall of the classes among the rows) and "auc" (mean over the
      classes against the rest; None if no class has rows on both sides).
    """
    accuracy, balanced = accuracy_scores(scores.argmax(1) == classes, classes, seed=seed)
    return {"accuracy": accuracy, "balanced_accuracy": balanced, "auc": _macro_auc(scores, classes, seed)}


def accuracy_scores(right: np.ndarray, classes: np.ndarray, *, seed: int) -> tuple[Score, Score]:
    """Compute accuracy and balanced accuracy from whether each guess is right.

    Resampling rows is drawing counts of (class, right or wrong). Two hits and two misses are added, spread
    over the classes (the plus-four rule), because the interval of an attack that is always or never right
    would otherwise have width zero.
    """
    _, place = np.unique(classes, return_inverse=True)
    total = np.bincount(place).astype(float)
    hits = np.bincount(place, weights=right, minlength=len(total))
    cells = np.concatenate([hits, total - hits]) + 2.0 / len(total)
    drawn = np.random.default_rng([seed, 2]).multinomial(len(classes), cells / cells.sum(), size=_DRAWS)
    good, bad = np.split(drawn, 2, axis=1)
    size = good + bad
    balanced = (good / np.maximum(size, 1)).sum(1) / np.maximum((size > 0).sum(1), 1)
    return (
        Score(float(hits.sum() / total.sum()), _interval(good.sum(1) / len(classes))),
        Score(float((hits / total).mean()), _interval(balanced)),
    )


def regression_scores(guess: Float[np.ndarray, " n"], truth: Float[np.ndarray, " n"], *, seed: int) -> Scores:
    """Compute "r2" and "rank_correlation" (Spearman's); None if the truth is constant."""
    guess = np.clip(np.nan_to_num(guess), -1e150, 1e150)
    shifted = truth - truth.mean()
    if len(truth) < 2 or not shifted.any():
        return {"r2": None, "rank_correlation": None}
    a, b = _ranks(guess), _ranks(truth)
    a, b = (a - a.mean()) / len(a), (b - b.mean()) / len(b)
    moments = np.stack([(guess - truth) ** 2, shifted, shifted**2, a, b, a * a, b * b, a * b], axis=1)

    def r2(m: np.ndarray) -> np.ndarray:
        return 1.0 - m[..., 0] / np.maximum(m[..., 2] - m[..., 1] ** 2, np.finfo(float).tiny)

    def correlation(m: np.ndarray) -> np.ndarray:
        across = m[..., 7] - m[..., 3] * m[..., 4]
        spread = (m[..., 5] - m[..., 3] ** 2) * (m[..., 6] - m[..., 4] ** 2)
        return np.where(spread > 1e-12, across / np.sqrt(np.maximum(spread, 1e-12)), 0.0)

    drawn, mean = _resampled_means(moments, seed), moments.mean(0)
    return {
        name: Score(float(of(mean)), _interval(of(drawn))) if math.isfinite(of(mean)) else None
        for name, of in (("r2", r2), ("rank_correlation", correlation))
    }


def _macro_auc(scores: np.ndarray, classes: np.ndarray, seed: int) -> Score | None:
    """Compute the mean over classes of P[score of a row of the class > score of another row].

    The bootstrap is linear: a resampled AUC is approximated by the mean influence of its rows.
    """
    member = classes[:, None] == np.arange(scores.shape[1])
    usable = member.any(0) & ~member.all(0)
    if not usable.any():
        return None
    areas, influence = [], np.zeros(len(classes))
    for inside, column in zip(member.T[usable], np.nan_to_num(scores.T[usable].astype(float)), strict=True):
        count, others = inside.sum(), (~inside).sum()
        ranks, placement = _ranks(column), np.empty(len(column))
        # The share of rows on the other side that a row is correctly ordered with; ties count a half.
        placement[inside] = (ranks[inside] - _ranks(column[inside])) / others
        placement[~inside] = 1.0 - (ranks[~inside] - _ranks(column[~inside])) / count
        areas.append(placement[inside].mean())
        influence += (placement - areas[-1]) * len(classes) / np.where(inside, count, others)
    value = float(np.mean(areas))
    low, high = _interval(value + _resampled_means(influence[:, None] / len(areas), seed)[:, 0])
    return Score(value, (max(low, 0.0), min(high, 1.0)))


def _resampled_means(values: np.ndarray, seed: int) -> np.ndarray:
    """Compute means of the columns of values [n, m] over resampled rows, [draws, m].

    Each row is drawn a Poisson number of times, which differs from drawing n rows only in their number.
    """
    rng = np.random.default_rng([seed, 3])
    total, size = np.zeros((_DRAWS, values.shape[1])), np.zeros((_DRAWS, 1))
    for start in range(0, len(values), _BLOCK_ROWS):
        block = values[start : start + _BLOCK_ROWS]
        times = rng.poisson(1.0, (_DRAWS, len(block))).astype(float)
        total += times @ block
        size += times.sum(1, keepdims=True)
    return total / np.maximum(size, 1.0)


def _interval(draws: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(low), float(high)


def _ranks(column: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata

    return rankdata(column)
