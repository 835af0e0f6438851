"""Choices made on training rows alone: folds that suit any class sizes, and a race between settings."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

NUM_FOLDS = 5
# Rows in the first heat of a race: enough to tell bad settings, cheap for methods of cost n^2.
FIRST_HEAT = 2000
# In the second, or half of all rows. What still differs there is within a few tenths of a point, and all rows
# would take longer than everything before.
SECOND_HEAT = 4000
KEPT = 3  # settings that go on after the first heat


class Choice(NamedTuple):
    """The setting a race chose, its cross-validated score, and the rows it was last judged on."""

    setting: Any
    score: float
    rows: int
    heats: int


def fold_numbers(codes: np.ndarray, *, seed: int, num_folds: int = NUM_FOLDS) -> np.ndarray:
    """A fold for every row, each class dealt out evenly; a class of one row is in one fold only.

    Args:
      codes: class numbers [n], or reals, which are dealt out by rank.
      seed: of the shuffle.
      num_folds: folds, at most one a row.
    """
    n = len(codes)
    num_folds = max(1, min(num_folds, n))
    rng = np.random.default_rng([seed, 1])
    if np.issubdtype(codes.dtype, np.floating):  # neighbours in rank, shuffled among themselves
        codes = np.argsort(np.argsort(codes, kind="stable"), kind="stable") // num_folds
    order = rng.permutation(n)
    order = order[np.argsort(codes[order], kind="stable")]
    folds = np.empty(n, int)
    # Dealing on from class to class keeps the folds equal when classes are small.
    folds[order] = np.arange(n) % num_folds
    return folds


def sample_rows(codes: np.ndarray, size: int, *, seed: int) -> np.ndarray:
    """Sorted numbers of `size` rows with the proportions of the classes; all rows when there are fewer."""
    if size >= len(codes):
        return np.arange(len(codes))
    folds = fold_numbers(codes, seed=seed, num_folds=len(codes))
    # Every class is one run of fold numbers; taking them at equal steps takes the same share of each.
    taken = (np.arange(size) * len(codes)) // size
    return np.flatnonzero(np.isin(folds, taken))


def tunable(codes: np.ndarray) -> bool:
    """Whether a held-out row can be predicted at all: some class has two rows, and there are two classes."""
    if np.issubdtype(codes.dtype, np.floating):
        return len(codes) >= 4
    counts = np.bincount(codes)
    return bool((counts > 1).any() and (counts > 0).sum() > 1)


def race(
    settings: Sequence[Any],
    judge: Callable[[Sequence[Any], np.ndarray, np.ndarray], np.ndarray],
    codes: np.ndarray,
    *,
    seed: int,
) -> Choice:
    """Chooses a setting by 5-fold cross-validation, with most settings judged on a sample only.

    All settings are judged on a sample of the rows, the best three of them on at least twice as many. A
    setting that is behind the best by more than two standard errors of their difference, row by row, drops
    out, and a race with one left is over.

    Args:
      settings: in order of preference among equals.
      judge: `judge(settings, rows, folds)` gives [len(settings), len(rows)]: how well each row is
        predicted by a model that has not seen its fold, larger is better.
      codes: class numbers or reals [n], for sampling and folds.
      seed: of samples and folds.
    """
    n = len(codes)
    sizes = [n] if n <= 1.25 * FIRST_HEAT else [FIRST_HEAT, min(n, max(SECOND_HEAT, n // 2))]
    left = list(range(len(settings)))
    mean, heats = np.zeros(0), 0
    for heat, size in enumerate(sizes):
        rows = sample_rows(codes, size, seed=seed)
        folds = fold_numbers(codes[rows], seed=seed)
        worth = judge([settings[k] for k in left], rows, folds)
        mean, heats = worth.mean(1), heat + 1
        order = np.argsort(-mean, kind="stable")
        gap = worth[order[0]] - worth
        behind = gap.mean(1) > 2 * gap.std(1) / np.sqrt(len(rows)) + 1e-12
        keep = [k for k in order if not behind[k]][:KEPT]
        best = int(order[0])
        if len(keep) == 1 or heat == len(sizes) - 1:
            return Choice(settings[left[best]], float(mean[best]), len(rows), heats)
        left = sorted(left[k] for k in keep)
    raise AssertionError("a race ends with its last heat")
