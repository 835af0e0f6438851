"""The registry of attackers, and the attackers that scikit-learn offers without settings to choose.

To add an attacker, write a function `fit(task, *, seed, threads)` that returns a `FittedAttack`, and add an
entry to `_ENTRIES`. Names, sets, messages and the order of work follow from the entry.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from privjax.auditing import tuned
from privjax.auditing.inputs import AttackTask, FittedAttack
from privjax.auditing.network import fit_network
from privjax.auditing.tuned import NUM_FOLDS, grid

_NUM_TREES = 250
_BOOSTED_TREES = 1500  # in total: a round adds one for each class
_WIDEST_BOOSTED = 2048  # columns: every leaf of every tree has a histogram of each
_RIDGES = (1e-3, 1e-1, 1e1, 1e3)


class Estimator(Protocol):
    """A classifier or regressor of the user, as in scikit-learn."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from rows and their labels."""
        ...

    def predict(self, X: Any) -> Any:
        """Predict the labels of rows."""
        ...


Attackers = str | Estimator | Sequence[str | Estimator | tuple[str, Estimator]] | Mapping[str, Estimator]


class Attacker(NamedTuple):
    """One attacker.

    Attributes:
      name: Name in the report, and in the argument `attackers`.
      fit: `fit(task, *, seed, threads)` returns a `FittedAttack`; a network takes `widths` too.
      classes: Group among the attackers of a variable with classes: "paper", "other" or "user"; None if the
        attacker takes no classes.
      reals: Group among the attackers of a continuous variable, or None.
      cost: Approximate seconds for 8,000 rows of 50 columns and 30 classes. Slow attackers start first.
      fast: Whether the set "fast" has it.
      threads: Largest number of threads that `fit` can use.
      max_rows: Largest number of training rows; it is given a sample of more.
      widths: Hidden widths of a network.
    """

    name: str
    fit: Callable[..., FittedAttack]
    classes: str | None = None
    reals: str | None = None
    cost: float = 1.0
    fast: bool = False
    threads: int = 1
    max_rows: int = 200_000
    widths: tuple[int, ...] = ()

    def group(self, *, discrete: bool) -> str | None:
        """Return the group for a variable with classes or for a continuous one; None if unsuited."""
        return self.classes if discrete else self.reals


SETS: dict[str, Callable[[Attacker, bool], bool]] = {
    "all": lambda attacker, discrete: True,
    "paper": lambda attacker, discrete: attacker.group(discrete=discrete) == "paper",
    "fast": lambda attacker, discrete: attacker.fast,
}


def select_attackers(
    attackers: Attackers, *, discrete: bool, network_widths: Sequence[int] | None = None
) -> list[Attacker]:
    """Return those of the attackers that suit a variable with classes, or a continuous one.

    Args:
      attackers: "all", "paper" or "fast"; a name; a scikit-learn estimator; a list of names and estimators,
        or a dict of estimators by name.
      discrete: Whether the variable has classes.
      network_widths: Hidden widths of the attacker "network".
    """
    if isinstance(attackers, Mapping):
        attackers = list(attackers.items())
    items: Any = [attackers] if isinstance(attackers, str) or hasattr(attackers, "fit") else attackers
    selected: dict[str, Attacker] = {}
    for item in items:
        for attacker in _find(item, discrete) if isinstance(item, str) else [_from_estimator(item)]:
            if attacker.group(discrete=discrete) is None:
                continue
            if attacker.name == "network" and network_widths is not None:
                attacker = attacker._replace(widths=tuple(network_widths))
            name, number = attacker.name, 2
            while name in selected and selected[name].fit is not attacker.fit:
                name, number = f"{attacker.name}_{number}", number + 1
            selected[name] = attacker._replace(name=name)
    return list(selected.values())


def _find(name: str, discrete: bool) -> list[Attacker]:
    """Return the registered attackers of a set, or the one of that name."""
    if name in SETS:
        return [attacker for attacker in ATTACKERS.values() if SETS[name](attacker, discrete)]
    if name not in ATTACKERS:
        known = ", ".join((*SETS, *ATTACKERS))
        raise ValueError(f"attackers must be among {known}, or scikit-learn estimators, got {name!r}.")
    return [ATTACKERS[name]]


def _from_estimator(item: Any) -> Attacker:
    """Make an attacker of a user's estimator, which may come with a name."""
    from sklearn.base import is_classifier, is_regressor

    name, estimator = item if isinstance(item, tuple) and len(item) == 2 else (None, item)
    if not hasattr(estimator, "fit"):
        raise TypeError(
            f"attackers must be names or scikit-learn estimators, got {type(estimator).__name__}."
        )
    try:
        discrete, real = is_classifier(estimator), is_regressor(estimator)
    except AttributeError:  # not derived from scikit-learn's base classes
        discrete = real = False
    return Attacker(
        name=str(name or type(estimator).__name__),
        fit=partial(fit_estimator, estimator),
        classes="user" if discrete or not real else None,
        reals="user" if real or not discrete else None,
    )


def fit_forest(task: AttackTask, *, seed: int, threads: int = 1, kind: str = "RandomForest") -> FittedAttack:
    """Fit 250 trees; `kind` is "RandomForest" or "ExtraTrees", whose splits are random."""
    from sklearn import ensemble

    forest = getattr(ensemble, kind + ("Classifier" if task.num_classes else "Regressor"))
    model = forest(_NUM_TREES, random_state=seed, n_jobs=threads).fit(task.z, task.target)
    model.n_jobs = 1  # threads would sum the votes of trees in random order
    return FittedAttack(_predict_function(model, task), {"trees": _NUM_TREES})


def fit_boosting(task: AttackTask, *, seed: int, threads: int = 1) -> FittedAttack:
    """Fit gradient boosting on histograms; a very wide release is reduced to principal components."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if task.z.shape[1] > _WIDEST_BOOSTED:
        return tuned.on_components(fit_boosting, task, seed=seed)
    trees_per_round = task.num_classes if task.num_classes > 2 else 1
    rounds = int(np.clip(_BOOSTED_TREES // trees_per_round, 20, 100))
    options: dict[str, Any] = {"max_leaf_nodes": 15, "early_stopping": False, "random_state": seed}
    kind = HistGradientBoostingClassifier if task.num_classes else HistGradientBoostingRegressor
    model = kind(max_iter=rounds, **options).fit(task.z, task.target)
    return FittedAttack(_predict_function(model, task), {"rounds": rounds})


def fit_logistic(task: AttackTask, *, seed: int, threads: int = 1) -> FittedAttack:
    """Fit multinomial logistic regression."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=1.0, max_iter=500).fit(task.z, task.target)
    notes = ("stopped before it converged",) if np.max(model.n_iter_) >= 500 else ()
    return FittedAttack(_predict_function(model, task), {"C": 1.0}, notes)


def fit_ridge(task: AttackTask, *, seed: int, threads: int = 1) -> FittedAttack:
    """Fit ridge regression, its penalty chosen by leaving one row out."""
    from sklearn.linear_model import RidgeCV

    model: Any = RidgeCV(_RIDGES).fit(task.z, task.target)
    return FittedAttack(_predict_function(model, task), {"ridge": float(model.alpha_)})


def fit_estimator(estimator: Any, task: AttackTask, *, seed: int, threads: int = 1) -> FittedAttack:
    """Fit a clone of a user's estimator; unset random states get the seed."""
    from sklearn.base import clone

    model: Any = clone(estimator)
    unset = [k for k, v in model.get_params().items() if k.split("__")[-1] == "random_state" and v is None]
    if unset:
        model.set_params(**dict.fromkeys(unset, seed))
    model.fit(task.z.copy(), task.target.copy())  # copies, because some estimators work in place
    predict = _predict_function(model, task)
    return FittedAttack(lambda rows: predict(rows.copy()), {"estimator": repr(estimator)})


def _predict_function(model: Any, task: AttackTask) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from rows to scores [m, num_classes], or to reals [m], for a fitted estimator."""
    if not task.num_classes:
        return lambda rows: np.asarray(model.predict(rows), float).reshape(len(rows))

    def predict(rows: np.ndarray) -> np.ndarray:
        guesses = np.asarray(model.predict(rows)).astype(int)
        if ((guesses < 0) | (guesses >= task.num_classes)).any():
            found = f"{guesses.min()} to {guesses.max()}"
            raise ValueError(f"predict must return classes from 0 to {task.num_classes - 1}, got {found}.")
        hard = np.eye(task.num_classes)[guesses]
        for method in ("predict_proba", "decision_function"):
            try:
                soft = np.asarray(getattr(model, method)(rows), float)
            except Exception:  # missing, or not available with these settings: the guesses count all the same
                continue
            soft = np.stack([-soft, soft], axis=1) if soft.ndim == 1 else soft
            # Scores of pairs of classes can have the same shape; then their argmax is another class.
            if soft.shape == hard.shape and np.isfinite(soft).all() and (soft.argmax(1) == guesses).all():
                return soft
        return hard

    return predict


_tune = partial(partial, tuned.fit_tuned)
_bandwidths = (1.0, 0.25, 4.0)  # 1 is scikit-learn's gamma="scale"
_rbf_grid = grid(bandwidth=_bandwidths, C=(10.0, 0.1, 1.0, 100.0))
_ridge_grid = grid(bandwidth=_bandwidths, ridge=(0.1, 1.0, 0.01, 0.001))
_linear_svm = _tune(tuned.train_linear_svm, grid(C=(1.0, 0.01, 0.1, 10.0)))
_rbf_svm = _tune(tuned.train_rbf_svm, _rbf_grid, judge=tuned.judge_rbf_svm, slow=True)
_neighbours = _tune(tuned.train_neighbours, grid(neighbours=(1, 5, 15, 45)))
_kernel_ridge = _tune(tuned.train_kernel_ridge, _ridge_grid, slow=True)
_extra_trees = partial(fit_forest, kind="ExtraTrees")
_ENTRIES = (
    Attacker("linear_svm", _linear_svm, classes="paper", cost=3, fast=True, threads=NUM_FOLDS),
    # The kernel of 13,000 rows takes 1.4 GB.
    Attacker("rbf_svm", _rbf_svm, classes="paper", cost=10, threads=NUM_FOLDS, max_rows=13_000),
    Attacker("random_forest", fit_forest, classes="paper", reals="paper", cost=15, fast=True, threads=8),
    Attacker("network", fit_network, classes="paper", reals="paper", cost=3, widths=(1024,)),
    Attacker("boosting", fit_boosting, classes="other", reals="paper", cost=5),
    Attacker("extra_trees", _extra_trees, classes="other", reals="other", cost=4, threads=8),
    Attacker("neighbours", _neighbours, classes="other", cost=4, fast=True, max_rows=100_000),
    Attacker("logistic", fit_logistic, classes="other"),
    Attacker("quadratic", tuned.fit_quadratic, classes="other", fast=True),
    Attacker("deep_network", fit_network, classes="other", cost=3, widths=(256, 256, 256)),
    Attacker("ridge", fit_ridge, reals="paper", fast=True),
    Attacker("kernel_ridge", _kernel_ridge, reals="paper", cost=20, threads=NUM_FOLDS, max_rows=8_000),
)
ATTACKERS = {attacker.name: attacker for attacker in _ENTRIES}
