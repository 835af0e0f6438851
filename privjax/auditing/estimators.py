"""Attackers of other families: forest, boosting, neighbours, logistic regression, quadratic discriminant."""

from collections.abc import Callable
from typing import Any

import numpy as np

from privjax.auditing.folds import fold_numbers, sample_rows, tunable
from privjax.auditing.linear_svm import row_span
from privjax.auditing.model import Model, Task

NUM_TREES = 250
BOOSTED_TREES = 1500  # over all classes: a tree a class a round
NEIGHBOURS = (1, 5, 15, 45)
SHRINKAGES = (0.01, 0.1, 0.5)
NARROWER = (16, 64)  # components that it tries as well
WIDEST = 256  # columns that the quadratic discriminant takes: its cost is their cube, for every class
WIDEST_BOOSTED = 2048  # columns that boosting takes: a histogram of each for every leaf of every tree


def fit_forest(task: Task, *, seed: int) -> Model:
    """A random forest of 250 trees."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    forest = RandomForestClassifier if task.num_classes else RandomForestRegressor
    fitted = forest(NUM_TREES, random_state=seed, n_jobs=1).fit(task.z, task.target)
    return Model(_predictor(fitted, task), {"trees": NUM_TREES})


def fit_boosting(task: Task, *, seed: int) -> Model:
    """Histogram gradient boosting; of more than 2048 columns it takes 256 leading principal components."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if task.z.shape[1] > WIDEST_BOOSTED:
        return _on_components(fit_boosting, task, seed=seed)
    if task.num_classes:
        rounds = int(np.clip(BOOSTED_TREES // (task.num_classes if task.num_classes > 2 else 1), 20, 100))
        kind = HistGradientBoostingClassifier
    else:
        rounds, kind = 100, HistGradientBoostingRegressor
    options: dict[str, Any] = {"max_leaf_nodes": 15, "early_stopping": False, "random_state": seed}
    boosted = kind(max_iter=rounds, **options)
    return Model(_predictor(boosted.fit(task.z, task.target), task), {"rounds": rounds})


def fit_logistic(task: Task, *, seed: int) -> Model:
    """Multinomial logistic regression."""
    from sklearn.linear_model import LogisticRegression

    basis = row_span(task.z)
    task = task._replace(z=task.z @ basis)
    fitted = LogisticRegression(C=1.0, max_iter=500).fit(task.z, task.target)
    late = int(np.max(fitted.n_iter_)) >= 500
    predict = _predictor(fitted, task)
    return Model(
        lambda rows: predict(rows @ basis), {"C": 1.0}, ("stopped before it converged",) if late else ()
    )


def fit_neighbours(task: Task, *, seed: int) -> Model:
    """Nearest neighbours, each vote by closeness, k by leaving one row out."""
    from sklearn.neighbors import NearestNeighbors

    z, s, k = task.z, task.target, task.num_classes
    search = NearestNeighbors(algorithm="brute" if z.shape[1] > 15 else "auto").fit(z)

    def scores(distances, neighbours, count):
        # The rank breaks ties between classes; a nearer row weighs more.
        near = 1.0 / (distances[:, :count] + 1e-3 * distances[:, :count].mean(1, keepdims=True) + 1e-12)
        near /= near.sum(1, keepdims=True)
        votes = np.zeros((len(distances), k))
        np.add.at(votes, (np.arange(len(distances))[:, None], s[neighbours[:, :count]]), near)
        return votes

    sizes = [count for count in NEIGHBOURS if count < len(s)] or [len(s)]
    best, score, notes = sizes[0], None, ("too few rows a class to tune",)
    if tunable(s) and len(sizes) > 1:
        rows = sample_rows(s, 4000, seed=seed)
        # Each row's nearest is itself, or a copy of it, which then stands for it.
        distances, neighbours = search.kneighbors(z[rows], min(sizes[-1] + 1, len(s)))
        own = neighbours == rows[:, None]
        own[~own.any(1), -1] = True
        distances, neighbours = (a[~own].reshape(len(rows), -1) for a in (distances, neighbours))
        right = [(scores(distances, neighbours, count).argmax(1) == s[rows]).mean() for count in sizes]
        best, score, notes = sizes[int(np.argmax(right))], float(max(right)), ()

    def predict(new):
        distances, neighbours = search.kneighbors(new, best)
        return scores(distances, neighbours, best)

    return Model(predict, {"neighbours": best, "cv_accuracy": score}, notes)


def fit_quadratic(task: Task, *, seed: int) -> Model:
    """Quadratic discriminant analysis: a Gaussian a class, covariances drawn towards the common one.

    S_l = (1 - a) S_l + a S with S pooled over the classes; a by 5-fold cross-validation. Of more than 256
    columns it takes leading principal components.
    """
    if task.z.shape[1] > WIDEST:
        return _on_components(fit_quadratic, task, (WIDEST, *NARROWER), seed=seed)
    z, s, k = task.z, task.target, task.num_classes
    shrinkage, score, notes = 0.5, None, ("too few rows a class to tune",)
    if tunable(s):
        folds = fold_numbers(s, seed=seed)
        right = np.zeros(len(SHRINKAGES))
        for fold in range(folds.max() + 1):
            held = folds == fold
            for i, share in enumerate(SHRINKAGES):
                scores = _gaussians(z[~held], s[~held], k, share)(z[held])
                right[i] += (scores.argmax(1) == s[held]).sum()
        shrinkage, score, notes = SHRINKAGES[int(right.argmax())], float(right.max() / len(s)), ()
    return Model(_gaussians(z, s, k, shrinkage), {"shrinkage": shrinkage, "cv_accuracy": score}, notes)


def _on_components(
    fit: Callable[..., Model], task: Task, widths: tuple[int, ...] = (WIDEST,), *, seed: int
) -> Model:
    """An attacker who sees leading principal components of the training rows: as many as serve best."""
    from sklearn.decomposition import PCA

    most = min(WIDEST, len(task.z))
    components = PCA(most, svd_solver="randomized", random_state=seed).fit(task.z)
    z = components.transform(task.z)
    widths = tuple({min(width, most) for width in widths})
    tried = {width: fit(task._replace(z=z[:, :width]), seed=seed) for width in widths}
    width = max(tried, key=lambda width: tried[width].settings.get("cv_accuracy") or 0.0)
    model = tried[width]
    note = f"on {width} principal components of {task.z.shape[1]} columns"
    return model._replace(
        predict=lambda rows: model.predict(components.transform(rows)[:, :width]),
        notes=(*model.notes, note),
    )


def _gaussians(z: np.ndarray, s: np.ndarray, k: int, shrinkage: float):
    counts = np.bincount(s, minlength=k)
    present = np.flatnonzero(counts)
    means = {c: z[s == c].mean(0) for c in present}
    covariances = {c: (z[s == c] - means[c]).T @ (z[s == c] - means[c]) for c in present}
    pooled = np.sum(list(covariances.values()), axis=0) / len(z)
    pooled += 1e-6 * max(np.trace(pooled) / len(pooled), 1e-6) * np.eye(len(pooled))
    parts = []
    for c in present:
        values, vectors = np.linalg.eigh((1 - shrinkage) * covariances[c] / counts[c] + shrinkage * pooled)
        values = np.maximum(values, 1e-9 * values[-1])
        constant = np.log(counts[c] / len(z)) - 0.5 * np.log(values).sum()
        parts.append((c, means[c], vectors / np.sqrt(values), constant))

    def predict(new):
        scores = np.full((len(new), k), -np.inf)
        for c, mean, whiten, constant in parts:
            scores[:, c] = constant - 0.5 * (((new - mean) @ whiten) ** 2).sum(1)
        # As probabilities: only then may rows be compared with one another.
        likely = np.exp(scores - scores.max(1, keepdims=True))
        return likely / likely.sum(1, keepdims=True)

    return predict


def fit_estimator(estimator: Any, task: Task, *, seed: int) -> Model:
    """A scikit-learn estimator of the user's, on a clone of it; its random_state is set if it has none."""
    from sklearn.base import clone

    fresh: Any = clone(estimator)
    random = [k for k, v in fresh.get_params().items() if k.split("__")[-1] == "random_state" and v is None]
    if random:
        fresh.set_params(**dict.fromkeys(random, seed))
    settings = {"estimator": repr(estimator)}
    # Copies, as some work in place; and some forget to return themselves.
    fresh.fit(task.z.copy(), task.target.copy())
    predict = _predictor(fresh, task)
    return Model(lambda rows: predict(rows.copy()), settings)


def _predictor(fitted: Any, task: Task):
    """Scores [m, num_classes] of whatever a fitted estimator offers; reals for a regression."""
    if not task.num_classes:
        return lambda rows: np.asarray(fitted.predict(rows), float).reshape(len(rows))

    def predict(rows):
        guesses = np.asarray(fitted.predict(rows)).astype(int)
        if ((guesses < 0) | (guesses >= task.num_classes)).any():
            raise ValueError(
                f"predict gives classes from {guesses.min()} to {guesses.max()}, not those of fit"
            )
        hard = np.eye(task.num_classes)[guesses]
        for method in ("predict_proba", "decision_function"):
            if not hasattr(fitted, method):
                continue
            try:
                soft = np.asarray(getattr(fitted, method)(rows), float)
            except Exception:  # offered but not to be had: what it predicts counts all the same
                continue
            if soft.ndim == 1:
                soft = np.stack([-soft, soft], axis=1)
            # Scores of pairs of classes may be as many as there are classes: then the guesses disagree.
            if soft.shape == hard.shape and np.isfinite(soft).all() and (soft.argmax(1) == guesses).all():
                return soft
        return hard

    return predict
