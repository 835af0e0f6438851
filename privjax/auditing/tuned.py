"""Attackers whose settings are chosen by cross-validation: SVMs, kernel ridge, neighbours, QDA."""

import contextvars
import functools
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from privjax.auditing.inputs import AttackTask, FittedAttack, sample_rows, stratified_order

NUM_FOLDS = 5

_SEARCH_ROWS = 20_000
_FIRST_ROUND, _SECOND_ROUND = 2000, 4000  # rows of a search in two rounds
_FINALISTS = 3
_LINEAR_STEPS = 500
_COARSE, _FINE = 0.1, 1e-3  # tolerances of libsvm in the search, and for the chosen setting
_COMPONENTS = 256

Setting = dict[str, Any]
Predict = Callable[[np.ndarray], np.ndarray]
Train = Callable[[AttackTask, Setting], Predict]
# judge(task, settings, rest, held) trains on the rows `rest`, and returns how well each setting predicts each
# of the rows `held`, [len(settings), len(held)].
Judge = Callable[[AttackTask, Sequence[Setting], np.ndarray, np.ndarray], np.ndarray]


def fit_quadratic(task: AttackTask, *, seed: int, threads: int = 1) -> FittedAttack:
    """Fit quadratic discriminant analysis; a wide release is reduced to principal components."""
    n, width = task.z.shape
    wide = width > _COMPONENTS
    # Covariances of many columns take many rows to learn, so fewer components can do better.
    columns = dict.fromkeys(min(count, n) for count in (_COMPONENTS, 16, 64)) if wide else (width,)
    settings = grid(columns=tuple(columns), shrinkage=(0.5, 0.01, 0.1))
    fit = functools.partial(fit_tuned, _train_quadratic, settings)
    return on_components(fit, task, seed=seed) if wide else fit(task, seed=seed)


def grid(**choices: Sequence[Any]) -> list[Setting]:
    """Return the combinations of choices; the first is the default."""
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]


def fit_tuned(
    train: Train,
    settings: Sequence[Setting],
    task: AttackTask,
    *,
    seed: int,
    judge: Judge | None = None,
    slow: bool = False,
    threads: int = 1,
) -> FittedAttack:
    """Fit an attacker with the setting that predicts held-out rows best, by 5-fold cross-validation.

    The search of a slow attacker has two rounds. All settings are compared on a sample of the rows; those
    within two standard errors of the best, three at most, are compared on a larger sample. The differences
    that remain are a few tenths of a point.

    Args:
      train: `train(task, setting)` returns a function that predicts. The task can lack a class.
      settings: In order of preference among equals; the first is the default.
      task: The training rows.
      seed: Seed of samples and folds.
      judge: A faster way to judge all settings on one fold than to call `train` for each.
      slow: Whether to search in two rounds.
      threads: Folds at a time; the numbers do not depend on it.
    """
    if task.num_classes:
        task = task.take(np.argsort(task.target, kind="stable"))  # libsvm reads the rows of a class together
    n, chosen, report, notes = len(task.target), settings[0], {}, ("too few rows to choose settings",)
    if _is_tunable(task):
        judge, notes = judge or functools.partial(_judge, train), ()
        two_rounds = slow and n > 1.25 * _FIRST_ROUND
        for size in (_FIRST_ROUND, max(_SECOND_ROUND, n // 2)) if two_rounds else (_SEARCH_ROWS,):
            part = task.take(sample_rows(task.target, size, seed=seed))
            quality = _cross_validate(judge, part, settings, seed=seed, threads=threads)
            mean = quality.mean(1)
            best = int(mean.argmax())
            chosen, report = settings[best], _report_quality(part, float(mean[best]))
            behind = quality[best] - quality
            close = behind.mean(1) <= 2 * behind.std(1) / np.sqrt(quality.shape[1]) + 1e-12
            finalists = np.argsort(-mean, kind="stable")[:_FINALISTS]
            settings = [settings[i] for i in sorted(finalists) if close[i]]
            if len(settings) == 1:
                break
    return FittedAttack(train(task, chosen), {**chosen, **report}, notes)


def fold_numbers(target: np.ndarray, *, seed: int) -> np.ndarray:
    """Return a fold for every row; classes, or the range of reals, are spread evenly over the folds."""
    folds = np.empty(len(target), int)
    folds[stratified_order(target, seed=seed)] = np.arange(len(target)) % NUM_FOLDS
    return folds


def on_components(fit: Callable[..., FittedAttack], task: AttackTask, *, seed: int) -> FittedAttack:
    """Fit an attacker on the leading principal components of z."""
    from sklearn.decomposition import PCA

    count = min(_COMPONENTS, len(task.z))
    components = PCA(count, svd_solver="randomized", random_state=seed).fit(task.z)
    fitted = fit(task._replace(z=components.transform(task.z)), seed=seed)
    return fitted._replace(
        predict=lambda rows: fitted.predict(components.transform(rows)),
        notes=(*fitted.notes, f"on {count} principal components of {task.z.shape[1]} columns"),
    )


def _cross_validate(
    judge: Judge, task: AttackTask, settings: Sequence[Setting], *, seed: int, threads: int
) -> np.ndarray:
    """Return how well each setting predicts each row, [len(settings), n]."""
    quality, folds = np.zeros((len(settings), len(task.target))), fold_numbers(task.target, seed=seed)
    splits = [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(folds.max() + 1)]
    contexts = [contextvars.copy_context() for _ in splits]  # a thread does not inherit NumPy's error state
    with ThreadPoolExecutor(threads) as pool:
        judged = pool.map(lambda context, split: context.run(judge, task, settings, *split), contexts, splits)
        for (_, held), found in zip(splits, judged, strict=True):
            quality[:, held] = found
    return quality


def _judge(
    train: Train, task: AttackTask, settings: Sequence[Setting], rest: np.ndarray, held: np.ndarray
) -> np.ndarray:
    predicted = (train(task.take(rest), setting)(task.z[held]) for setting in settings)
    return np.stack([_quality(one, task.take(held)) for one in predicted])


def _quality(predicted: np.ndarray, truth: AttackTask) -> np.ndarray:
    if truth.num_classes:
        return (predicted.argmax(1) == truth.target).astype(float)
    return -np.square(predicted - truth.target)


def _report_quality(task: AttackTask, mean: float) -> dict[str, Any]:
    if task.num_classes:
        return {"cv_accuracy": mean, "cv_rows": len(task.target)}
    return {"cv_r2": 1.0 + mean / max(float(task.target.var()), 1e-300), "cv_rows": len(task.target)}


def _is_tunable(task: AttackTask) -> bool:
    """Return whether held-out rows can be predicted: two classes, and one of them with two rows."""
    if not task.num_classes:
        return len(task.target) >= 4
    counts = np.bincount(task.target)
    return bool((counts > 1).any() and (counts > 0).sum() > 1)


def train_linear_svm(task: AttackTask, setting: Setting) -> Predict:
    """Minimise |w_l|^2 / 2 + C sum_i max(0, 1 - y_il w_l'z_i)^2 for every class l at once.

    The sum over the classes is minimised by one run of L-BFGS, whose steps are matrix products.
    scikit-learn's `LinearSVC` trains class after class, six to ten times slower on 30 classes. The
    intercept is penalised, as liblinear's is.
    """
    from scipy.optimize import minimize

    x = np.concatenate([task.z, np.ones((len(task.z), 1))], axis=1).astype(np.float32)
    y = np.where(task.target[:, None] == np.arange(task.num_classes), 1, -1).astype(np.float32)
    shape, penalty = (x.shape[1], task.num_classes), setting["C"]

    def loss_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w = flat.reshape(shape).astype(np.float32)
        slack = np.maximum(1 - y * (x @ w), 0)
        loss = flat @ flat / 2 + penalty * np.square(slack).sum(dtype=float)
        return float(loss), flat - 2 * penalty * (x.T @ (y * slack)).ravel().astype(float)

    options = {"maxiter": _LINEAR_STEPS, "ftol": 1e-7}
    start = np.zeros(shape[0] * shape[1])
    w = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options=options).x.reshape(shape)
    w[-1, np.bincount(task.target, minlength=task.num_classes) == 0] = -np.inf
    return lambda rows: rows @ w[:-1] + w[-1]


def train_rbf_svm(task: AttackTask, setting: Setting) -> Predict:
    """Train libsvm on the kernel exp(-gamma |z - z'|^2), gamma being the bandwidth over the width of z."""
    gamma = setting["bandwidth"] / task.z.shape[1]
    scores, _ = _fit_libsvm(_gaussian(_squared_distances(task.z, task.z), gamma), task, setting["C"], _FINE)
    return lambda rows: scores(_gaussian(_squared_distances(rows, task.z), gamma))


def judge_rbf_svm(
    task: AttackTask, settings: Sequence[Setting], rest: np.ndarray, held: np.ndarray
) -> np.ndarray:
    """Judge all settings on one fold. Distances serve every bandwidth, and a kernel every penalty."""
    distances = [_squared_distances(task.z[rows], task.z[rest]) for rows in (rest, held)]
    quality = np.zeros((len(settings), len(held)))
    for bandwidth in {setting["bandwidth"] for setting in settings}:
        inner, outer = (_gaussian(d, bandwidth / task.z.shape[1]) for d in distances)
        alike = [i for i, setting in enumerate(settings) if setting["bandwidth"] == bandwidth]
        found, bounded = np.zeros(len(held)), True
        for i in sorted(alike, key=lambda i: settings[i]["C"]):
            if bounded:  # without a multiplier at its bound, every larger penalty has the same solution
                scores, bounded = _fit_libsvm(inner, task.take(rest), settings[i]["C"], _COARSE)
                found = _quality(scores(outer), task.take(held))
            quality[i] = found
    return quality


def _fit_libsvm(
    kernel: np.ndarray, task: AttackTask, penalty: float, tolerance: float
) -> tuple[Predict, bool]:
    """Return scores as a function of the kernel with new rows, and whether a multiplier is at its bound."""
    from sklearn.svm import SVC

    classes, k = np.unique(task.target), task.num_classes
    if len(classes) == 1:
        return lambda kernel: np.tile(np.eye(k)[classes], (len(kernel), 1)), False
    machine = SVC(C=penalty, kernel="precomputed", tol=tolerance, cache_size=500).fit(kernel, task.target)

    def scores(kernel: np.ndarray) -> np.ndarray:
        decision = machine.decision_function(kernel)
        decision = np.stack([-decision, decision], axis=1) if decision.ndim == 1 else decision
        return _in_columns(decision, classes, k)

    return scores, bool(np.abs(machine.dual_coef_).max() >= penalty * (1 - 1e-6))


def _squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute |a_i - b_j|^2 in float32."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    distances = a @ b.T
    distances *= -2.0
    distances += (a**2).sum(1)[:, None]
    distances += (b**2).sum(1)
    return np.maximum(distances, 0.0, out=distances)


def _gaussian(distances: np.ndarray, gamma: float) -> np.ndarray:
    """Compute exp(-gamma D) in float32."""
    kernel = distances * np.float32(-gamma)
    return np.exp(kernel, out=kernel)


def train_neighbours(task: AttackTask, setting: Setting) -> Predict:
    """Train nearest neighbours, whose votes are weighted by closeness."""
    from sklearn.neighbors import KNeighborsClassifier

    count = min(setting["neighbours"], len(task.z))
    model = KNeighborsClassifier(count, weights="distance").fit(task.z, task.target)
    return lambda rows: _in_columns(model.predict_proba(rows), model.classes_, task.num_classes)


def train_kernel_ridge(task: AttackTask, setting: Setting) -> Predict:
    """Train ridge regression with the Gaussian kernel."""
    from sklearn.kernel_ridge import KernelRidge

    mean, gamma = task.target.mean(), setting["bandwidth"] / task.z.shape[1]
    model = KernelRidge(alpha=setting["ridge"], kernel="rbf", gamma=gamma)
    model.fit(task.z, task.target - mean)
    return lambda rows: model.predict(rows) + mean


def _train_quadratic(task: AttackTask, setting: Setting) -> Predict:
    """Fit a Gaussian to each class, its covariance S_l shrunk to (1 - a) S_l + a S, with S pooled.

    scikit-learn's QDA shrinks towards the identity, and refuses a class of one row.
    """
    z, a = task.z[:, : setting["columns"]], setting["shrinkage"]
    present, counts = np.unique(task.target, return_counts=True)
    groups = [z[task.target == label] for label in present]
    means = [group.mean(0) for group in groups]
    scatter = [(g - m).T @ (g - m) for g, m in zip(groups, means, strict=True)]
    pooled = np.sum(scatter, axis=0) / len(z)
    pooled += 1e-6 * max(np.trace(pooled) / len(pooled), 1e-6) * np.eye(len(pooled))
    gaussians = []
    for mean, count, s in zip(means, counts, scatter, strict=True):
        values, vectors = np.linalg.eigh((1 - a) * s / count + a * pooled)
        values = np.maximum(values, 1e-9 * values[-1])
        gaussians.append((mean, vectors / np.sqrt(values), np.log(count) - 0.5 * np.log(values).sum()))

    def predict(rows: np.ndarray) -> np.ndarray:
        rows = rows[:, : setting["columns"]]
        squares = [np.square((rows - mean) @ whiten).sum(1) for mean, whiten, _ in gaussians]
        likelihood = np.array([constant for _, _, constant in gaussians]) - 0.5 * np.stack(squares, axis=1)
        # Two rows can be compared only by their probabilities.
        probabilities = np.exp(likelihood - likelihood.max(1, keepdims=True))
        probabilities /= probabilities.sum(1, keepdims=True)
        return _in_columns(probabilities, present, task.num_classes)

    return predict


def _in_columns(scores: np.ndarray, classes: np.ndarray, num_classes: int) -> np.ndarray:
    """Return a column of scores for every class; a class without training rows is never the guess."""
    columns = np.full((len(scores), num_classes), scores.min() - 1.0)
    columns[:, classes] = scores
    return columns
