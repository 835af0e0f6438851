"""Linear SVM, one class against the rest, every class and its whole path of penalties in one solver."""

from collections.abc import Callable

import numpy as np

from privjax.auditing.folds import fold_numbers, tunable
from privjax.auditing.model import Model, Task

PENALTIES = (0.01, 0.1, 1.0, 10.0)
TOLERANCE = 1e-3  # of the gradient, against that at zero weights
MAX_STEPS = 100


def fit_linear_svm(task: Task, *, seed: int) -> Model:
    """The linear SVM whose l2 penalty has the best 5-fold cross-validated accuracy."""
    basis = row_span(task.z)
    z, s, k = task.z @ basis, task.target, task.num_classes
    penalty, score, notes = 1.0, None, ("too few rows a class to tune",)
    if tunable(s):
        folds = fold_numbers(s, seed=seed)
        right = np.zeros(len(PENALTIES))
        for fold in range(folds.max() + 1):
            held = folds == fold
            path = linear_svm_path(z[~held], s[~held], k, penalties=PENALTIES)
            right += [(linear_scores(z[held], w).argmax(1) == s[held]).sum() for w in path]
        penalty, score, notes = PENALTIES[int(right.argmax())], float(right.max() / len(s)), ()
    w = linear_svm_path(z, s, k, penalties=(penalty,))[0]
    return Model(lambda rows: linear_scores(rows @ basis, w), {"C": penalty, "cv_accuracy": score}, notes)


def row_span(z: np.ndarray) -> np.ndarray:
    """Orthonormal columns that span the rows of z, where those are fewer than its columns.

    The weights of a linear model with an l2 penalty lie in that span, so the same model is found there.
    """
    return np.linalg.qr(z.T)[0] if z.shape[1] > len(z) else np.eye(z.shape[1])


def linear_scores(z: np.ndarray, w: np.ndarray) -> np.ndarray:
    """One score for each row and class."""
    return z @ w[:-1] + w[-1]


def linear_svm_path(
    z: np.ndarray, s: np.ndarray, num_classes: int, *, penalties: tuple[float, ...]
) -> list[np.ndarray]:
    """Minimises |w_l|^2 / 2 + C sum_i max(0, 1 - y_il w_l'z_i)^2 for each class l, one C after another.

    Truncated Newton with all classes side by side, so that the work is products of matrices; the
    intercept is a weight of a column of ones, penalised as the others are. Each C starts from the
    solution of the one before. A class without rows gets scores that never win.

    Returns:
      Weights [d + 1, num_classes] for each penalty, the intercept last.
    """
    x = np.concatenate([z, np.ones((len(z), 1))], axis=1).astype(np.float32)
    y = np.where(s[:, None] == np.arange(num_classes), 1.0, -1.0).astype(np.float32)
    w = np.zeros((x.shape[1], num_classes), np.float32)
    path = []
    for penalty in penalties:
        w = _newton(x, y, w, np.float32(penalty))
        found = w.astype(np.float64)
        found[-1, np.bincount(s, minlength=num_classes) == 0] = -np.inf
        path.append(found)
    return path


def _newton(x: np.ndarray, y: np.ndarray, w: np.ndarray, penalty: np.float32) -> np.ndarray:
    def value(w, margin):
        return 0.5 * (w**2).sum(0) + penalty * (np.maximum(margin, 0) ** 2).sum(0)

    goal = TOLERANCE * np.linalg.norm(2 * penalty * (x.T @ y), axis=0)
    margin = 1 - y * (x @ w)
    best = value(w, margin)
    for _ in range(MAX_STEPS):
        active = (margin > 0).astype(np.float32)
        gradient = w - 2 * penalty * (x.T @ (y * np.maximum(margin, 0)))
        open_ = np.flatnonzero(np.linalg.norm(gradient, axis=0) > goal)
        if not len(open_):
            break
        on = active[:, open_]
        step = _conjugate_gradients(
            lambda v, on=on: v + 2 * penalty * (x.T @ (on * (x @ v))), -gradient[:, open_]
        )
        along = y[:, open_] * (x @ step)
        slope = (gradient[:, open_] * step).sum(0)
        length = np.ones(len(open_), np.float32)
        for _ in range(20):  # halve the steps that do not descend, class by class
            tried = value(w[:, open_] + length * step, margin[:, open_] - length * along)
            bad = tried > best[open_] + 1e-4 * length * slope + 1e-6 * np.abs(best[open_])
            if not bad.any():
                break
            length[bad] *= 0.5
        w = w.copy()
        w[:, open_] += length * step
        margin[:, open_] -= length * along
        best = value(w, margin)
    return w


def _conjugate_gradients(
    times: Callable[[np.ndarray], np.ndarray], b: np.ndarray, *, tolerance: float = 0.1, steps: int = 50
) -> np.ndarray:
    """Solves A x = b for many right sides at once, each to a tenth of its size: Newton asks no more."""
    x, residual = np.zeros_like(b), b.copy()
    direction, size = residual.copy(), (residual**2).sum(0)
    goal = tolerance**2 * size
    for _ in range(steps):
        busy = size > goal
        if not busy.any():
            break
        product = times(direction)
        bend = np.maximum((direction * product).sum(0), np.finfo(np.float32).tiny)
        length = np.where(busy, size / bend, 0)
        x += length * direction
        residual -= length * product
        new = (residual**2).sum(0)
        direction = residual + np.where(busy, new / np.maximum(size, 1e-30), 0) * direction
        size = np.where(busy, new, size)
    return x
