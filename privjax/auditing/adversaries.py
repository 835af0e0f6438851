"""The attackers by name, and which of them a call asks for."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from privjax.auditing.estimators import (
    fit_boosting,
    fit_estimator,
    fit_forest,
    fit_logistic,
    fit_neighbours,
    fit_quadratic,
)
from privjax.auditing.linear_svm import fit_linear_svm
from privjax.auditing.model import Model
from privjax.auditing.network import DEEP_WIDTHS, WIDTHS
from privjax.auditing.rbf_svm import fit_rbf_svm
from privjax.auditing.regressors import fit_kernel_ridge, fit_ridge

PAPER = ("linear_svm", "rbf_svm", "random_forest", "network")
OUT_OF_FAMILY = ("boosting", "neighbours", "logistic", "quadratic", "deep_network")
REGRESSORS = ("ridge", "kernel_ridge", "random_forest", "boosting", "network")
FAST = ("linear_svm", "random_forest", "neighbours", "quadratic", "ridge")

Adversaries = str | Any | Sequence[str | Any] | Mapping[str, Any]


class Adversary(NamedTuple):
    """One attacker.

    Attributes:
      name: what the report calls it.
      group: "paper", "other" or "user".
      fit: `fit(task, *, seed)` gives a `Model`; None for a network.
      widths: hidden widths of a network.
      max_rows: training rows it takes at most; a sample of more.
    """

    name: str
    group: str
    fit: Callable[..., Model] | None = None
    widths: tuple[int, ...] = ()
    max_rows: int = 200_000


_FITS: dict[str, tuple[Callable[..., Model], int]] = {
    "linear_svm": (fit_linear_svm, 200_000),
    "rbf_svm": (fit_rbf_svm, 13_000),  # its kernel in double precision is 1.4 GB
    "random_forest": (fit_forest, 200_000),
    "boosting": (fit_boosting, 200_000),
    "neighbours": (fit_neighbours, 100_000),
    "logistic": (fit_logistic, 200_000),
    "quadratic": (fit_quadratic, 200_000),
    "ridge": (fit_ridge, 200_000),
    "kernel_ridge": (fit_kernel_ridge, 8_000),
}
_SETS = {
    "all": (*PAPER, *OUT_OF_FAMILY, "ridge", "kernel_ridge"),
    "paper": (*PAPER, "ridge", "kernel_ridge", "boosting"),
    "fast": FAST,
}


def choose(
    adversaries: Adversaries, *, discrete: bool, network_widths: Sequence[int] = WIDTHS
) -> list[Adversary]:
    """The attackers of a call that suit a variable with classes, or a continuous one.

    Args:
      adversaries: "all", "paper" or "fast"; a name; a scikit-learn estimator; a list of names and
        estimators, or a dict of estimators by name.
      discrete: whether the variable has classes.
      network_widths: hidden widths of "network".
    """
    if isinstance(adversaries, Mapping):
        items: list[Any] = list(adversaries.items())
    elif isinstance(adversaries, str) or hasattr(adversaries, "fit"):
        items = [adversaries]
    else:
        items = list(adversaries)
    chosen: dict[str, Adversary] = {}
    for item in items:
        for adversary in _members(item, discrete, tuple(network_widths)):
            name, number = adversary.name, 2
            while name in chosen and "user" in (adversary.group, chosen[name].group):
                name, number = f"{adversary.name}_{number}", number + 1
            chosen[name] = adversary._replace(name=name)
    return list(chosen.values())


def with_threads(adversary: Adversary, threads: int) -> Adversary:
    """The same attacker with its folds on so many threads, where it can; the numbers stay the same."""
    if adversary.fit is fit_rbf_svm and threads > 1:  # the one that others would wait for
        return adversary._replace(fit=functools.partial(fit_rbf_svm, threads=threads))
    return adversary


def _members(item: Any, discrete: bool, widths: tuple[int, ...]) -> list[Adversary]:
    if isinstance(item, str):
        names = _SETS.get(item, (item,))
        suited = (*PAPER, *OUT_OF_FAMILY) if discrete else REGRESSORS
        for name in names:
            if name not in (*PAPER, *OUT_OF_FAMILY, *REGRESSORS):
                known = ", ".join(dict.fromkeys((*_SETS, *PAPER, *OUT_OF_FAMILY, *REGRESSORS)))
                raise ValueError(f"adversaries must be among {known}, or estimators, got {name!r}.")
        if discrete and item == "paper":
            names = PAPER
        return [_built_in(name, discrete, widths) for name in names if name in suited]
    name, estimator = item if isinstance(item, tuple) and len(item) == 2 else (None, item)
    if not hasattr(estimator, "fit"):
        raise TypeError(
            f"adversaries must be names or scikit-learn estimators, got {type(estimator).__name__}."
        )
    if not _suits(estimator, discrete):
        return []
    fit = functools.partial(fit_estimator, estimator)
    return [Adversary(str(name or type(estimator).__name__), "user", fit)]


def _built_in(name: str, discrete: bool, widths: tuple[int, ...]) -> Adversary:
    group = "paper" if name in (PAPER if discrete else REGRESSORS) else "other"
    if name == "network":
        return Adversary(name, group, widths=widths)
    if name == "deep_network":
        return Adversary(name, group, widths=DEEP_WIDTHS)
    fit, max_rows = _FITS[name]
    return Adversary(name, group, fit, max_rows=max_rows)


def _suits(estimator: Any, discrete: bool) -> bool:
    """A classifier for classes, a regressor for reals; what is neither is tried on both."""
    from sklearn.base import is_classifier, is_regressor

    try:
        if is_classifier(estimator) or is_regressor(estimator):
            return is_classifier(estimator) == discrete
    except AttributeError:  # no tags: not one of scikit-learn's own kind
        pass
    return True
