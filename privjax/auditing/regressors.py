"""Attackers of a continuous private variable in closed form: ridge and kernel ridge regression."""

import numpy as np

from privjax.auditing.folds import fold_numbers, race, tunable
from privjax.auditing.gaussian import gaussian, squared_distances
from privjax.auditing.model import Model, Task

RIDGES = (1e-3, 1e-1, 1e1, 1e3)
KERNEL_RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
BANDWIDTHS = (0.25, 1.0, 4.0)
PIECE = 2048


def fit_ridge(task: Task, *, seed: int) -> Model:
    """Ridge regression, its ridge by 5-fold cross-validation."""
    z, t = task.z, task.target
    ridge, score, notes = 1.0, None, ("too few rows to tune",)
    if tunable(t):
        folds = fold_numbers(t, seed=seed)
        error = np.zeros(len(RIDGES))
        for fold in range(folds.max() + 1):
            held = folds == fold
            error += [
                ((predict(z[held]) - t[held]) ** 2).sum() for predict in _ridges(z[~held], t[~held], RIDGES)
            ]
        ridge, notes = RIDGES[int(error.argmin())], ()
        score = 1.0 - float(error.min()) / max(float(((t - t.mean()) ** 2).sum()), 1e-300)
    return Model(_ridges(z, t, (ridge,))[0], {"ridge": ridge, "cv_r2": score}, notes)


def _ridges(z: np.ndarray, t: np.ndarray, ridges):
    """One eigendecomposition, of the smaller of the two products, serves every ridge."""
    mean, level = z.mean(0), t.mean()
    centred = z - mean
    wide = z.shape[1] > len(z)
    values, vectors = np.linalg.eigh(centred @ centred.T if wide else centred.T @ centred)
    moment = vectors.T @ ((t - level) if wide else centred.T @ (t - level))
    weights = [vectors @ (moment / (np.maximum(values, 0) + ridge)) for ridge in ridges]
    weights = [centred.T @ w for w in weights] if wide else weights
    return [lambda new, w=w: (new - mean) @ w + level for w in weights]


def fit_kernel_ridge(task: Task, *, seed: int) -> Model:
    """Kernel ridge regression with the Gaussian kernel; ridge and bandwidth by 5-fold cross-validation."""
    z, t = task.z, task.target
    width = z.shape[1]
    grid = [(ridge, times / width) for times in BANDWIDTHS for ridge in reversed(KERNEL_RIDGES)]
    chosen, score, notes = (1e-1, 1.0 / width), None, ("too few rows to tune",)
    if tunable(t):
        found = race(
            grid, lambda settings, rows, folds: _worth(z[rows], t[rows], settings, folds), t, seed=seed
        )
        chosen, notes = found.setting, ()
        score = 1.0 + found.score / max(float(t.var()), 1e-300)
    ridge, gamma = chosen
    level = t.mean()
    weights = _solve(gaussian(squared_distances(z, z), gamma).astype(float), t - level, ridge)

    def predict(new):
        pieces = [new[i : i + PIECE] for i in range(0, max(len(new), 1), PIECE)]
        return np.concatenate([gaussian(squared_distances(p, z), gamma) @ weights + level for p in pieces])

    return Model(predict, {"ridge": ridge, "gamma": gamma, "cv_r2": score}, notes)


def _worth(z: np.ndarray, t: np.ndarray, settings, folds: np.ndarray) -> np.ndarray:
    """Minus the squared error of each held-out row, for each (ridge, gamma)."""
    worth = np.zeros((len(settings), len(t)))
    distances = squared_distances(z, z)
    for gamma in sorted({gamma for _, gamma in settings}):
        kernel = gaussian(distances, gamma).astype(float)
        for fold in range(folds.max() + 1):
            held, rest = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
            inner, outer = kernel[np.ix_(rest, rest)], kernel[np.ix_(held, rest)]
            level = t[rest].mean()
            for i, (ridge, g) in enumerate(settings):
                if g == gamma:
                    guess = outer @ _solve(inner, t[rest] - level, ridge) + level
                    worth[i, held] = -((guess - t[held]) ** 2)
    return worth


def _solve(kernel: np.ndarray, t: np.ndarray, ridge: float) -> np.ndarray:
    from scipy.linalg import cho_factor, cho_solve

    # The kernel was rounded to float32: its smallest eigenvalues may be below zero by as much.
    system = kernel + (ridge + 1e-6 * len(kernel)) * np.eye(len(kernel))
    return cho_solve(cho_factor(system, overwrite_a=True, check_finite=False), t, check_finite=False)
