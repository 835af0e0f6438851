"""How good an attack is: scores of test rows, each with a bootstrap interval."""

from typing import NamedTuple

import numpy as np

LEVEL = 0.95
DRAWS = 1000
PIECE = 4096  # rows resampled at a time


class Score(NamedTuple):
    """A number and its interval; the interval is None where it cannot be said."""

    value: float
    interval: tuple[float, float] | None


def classification_scores(scores: np.ndarray, codes: np.ndarray, *, seed: int) -> dict[str, Score | None]:
    """Accuracy, balanced accuracy and macro AUC of scores [n, k] for class numbers [n].

    Rows of a class that is not in training (code -1) are errors. Balanced accuracy is the mean recall
    of the classes among the rows; the AUC is the mean over classes against the rest, None where no
    class has rows on both sides.
    """
    right = scores.argmax(1) == codes
    accuracy, balanced = hit_scores(right, codes, seed=seed)
    return {"accuracy": accuracy, "balanced_accuracy": balanced, "auc": _macro_auc(scores, codes, seed)}


def hit_scores(right: np.ndarray, codes: np.ndarray, *, seed: int) -> tuple[Score, Score]:
    """Accuracy and balanced accuracy with their intervals.

    The bootstrap draws rows, which is to draw counts of (class, right or wrong). Two hits and two
    misses are added over all classes (the plus-four rule): without them an attack that is always
    right, or never, would seem certain.
    """
    _, place = np.unique(codes, return_inverse=True)
    total = np.bincount(place).astype(float)
    hits = np.bincount(place, weights=right, minlength=len(total))
    extra = 2.0 / len(total)
    cells = np.concatenate([hits + extra, total - hits + extra])
    rng = np.random.default_rng([seed, 2])
    drawn = rng.multinomial(len(codes), cells / cells.sum(), size=DRAWS)
    good, bad = drawn[:, : len(total)], drawn[:, len(total) :]
    size = good + bad
    recall = np.where(size > 0, good / np.maximum(size, 1), np.nan)
    with np.errstate(invalid="ignore"):
        balanced = np.nansum(recall, 1) / np.maximum((size > 0).sum(1), 1)
    return (
        Score(float(hits.sum() / total.sum()), _interval(good.sum(1) / len(codes))),
        Score(float((hits / total).mean()), _interval(balanced)),
    )


def regression_scores(guess: np.ndarray, truth: np.ndarray, *, seed: int) -> dict[str, Score | None]:
    """R^2 and Spearman's rank correlation; None where the truth does not change."""
    guess = np.clip(np.nan_to_num(guess), -1e150, 1e150)
    shifted = truth - truth.mean()
    if len(truth) < 2 or not shifted.any():
        return {"r2": None, "rank_correlation": None}
    a, b = _ranks(guess[:, None])[:, 0], _ranks(truth[:, None])[:, 0]
    a, b = (a - a.mean()) / len(a), (b - b.mean()) / len(b)
    sums = np.stack([(guess - truth) ** 2, shifted, shifted**2, a, b, a * a, b * b, a * b], axis=1)

    def r2(m):
        return 1.0 - m[..., 0] / np.maximum(m[..., 2] - m[..., 1] ** 2, np.finfo(float).tiny)

    def correlation(m):
        across = m[..., 7] - m[..., 3] * m[..., 4]
        spread = (m[..., 5] - m[..., 3] ** 2) * (m[..., 6] - m[..., 4] ** 2)
        return np.where(spread > 1e-12, across / np.sqrt(np.maximum(spread, 1e-12)), 0.0)

    drawn = _resampled_means(sums, seed)
    whole = sums.mean(0)
    return {
        "r2": Score(float(r2(whole)), _interval(r2(drawn))),
        "rank_correlation": Score(float(correlation(whole)), _interval(correlation(drawn))),
    }


def _macro_auc(scores: np.ndarray, codes: np.ndarray, seed: int) -> Score | None:
    """Mean over classes of P[score of the class's row > score of another's], ties a half.

    To resample, each row's share in it is kept fixed (its placement among the rows of the other
    side), which makes the AUC a mean over rows.
    """
    k = scores.shape[1]
    member = codes[:, None] == np.arange(k)
    count = member.sum(0)
    usable = (count > 0) & (count < len(codes))
    if not usable.any():
        return None
    member, count = member[:, usable], count[usable].astype(float)
    others = len(codes) - count
    column = np.nan_to_num(scores[:, usable].astype(float), neginf=-1e300, posinf=1e300)
    everywhere = _ranks(column)
    placement = np.empty_like(column)
    for c in range(column.shape[1]):
        mine = member[:, c]
        placement[mine, c] = (everywhere[mine, c] - _ranks(column[mine, c : c + 1])[:, 0]) / others[c]
        below = everywhere[~mine, c] - _ranks(column[~mine, c : c + 1])[:, 0]
        placement[~mine, c] = 1.0 - below / count[c]
    area = (placement * member).sum(0) / count
    # n times a row's influence, so that its mean over rows is the change of the AUC.
    size = np.where(member, count, others) / len(codes)
    influence = ((placement - area) / size).mean(1)
    value = float(area.mean())
    low, high = _interval(value + _resampled_means(influence[:, None], seed)[:, 0])
    return Score(value, (max(low, 0.0), min(high, 1.0)))


def _resampled_means(values: np.ndarray, seed: int) -> np.ndarray:
    """Means of the columns of values [n, m] over resampled rows [DRAWS, m].

    Each row is drawn a Poisson number of times: the same as drawing n rows, but for their number.
    """
    rng = np.random.default_rng([seed, 3])
    total, size = np.zeros((DRAWS, values.shape[1])), np.zeros((DRAWS, 1))
    for start in range(0, len(values), PIECE):
        piece = values[start : start + PIECE]
        times = rng.poisson(1.0, (DRAWS, len(piece))).astype(float)
        total += times @ piece
        size += times.sum(1, keepdims=True)
    return total / np.maximum(size, 1.0)


def _interval(draws: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _ranks(columns: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata

    return rankdata(columns, axis=0)
