"""From checked rows and labels to a trained model: the settings of an estimator as those of `fit`."""

import math
import numbers
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from privjax.estimator.labels import Label, describe
from privjax.estimator.model import Model, make_layers
from privjax.networks import nn_networks
from privjax.training import FitResult, fit, make_objective


def train(
    x: np.ndarray,
    y: Label,
    private: dict[str, Label],
    weights: np.ndarray | None,
    settings: dict[str, Any],
) -> tuple[Model, FitResult]:
    """Scales the rows and trains both spheres.

    Args:
      x: finite rows [n, features].
      y: what to keep.
      private: what to hide, by name; nothing when empty.
      weights: positive weights of the rows, or None for all equal.
      settings: the estimator's parameters.
    """
    objective = make_objective(settings["objective"])
    if settings["max_epochs"] is not None:
        schedule = objective.schedule._replace(max_epochs=_positive(settings["max_epochs"], "max_epochs"))
        objective = objective._replace(schedule=schedule)
    for name, label in private.items():
        if label.classes is None and not objective.continuous:
            raise ValueError(
                f"{describe(name)} is continuous, but {objective.name} compares classes: set "
                "objective='kdi' or 'lsdn', or cut it into classes."
            )
    if not private:
        objective = objective._replace(
            privacy_loss=_nothing, discriminator_loss=None, draw=None, continuous=True
        )
    width = _positive(settings["n_components"], "n_components")
    networks = nn_networks(
        x.shape[1],
        num_outputs=_width(y),
        num_private=sum(map(_width, private.values())) if objective.discriminator_loss else 0,
        private_widths=(*_widths(settings, "private_widths"), width),
        public_widths=_widths(settings, "public_widths"),
    )
    mean, spread = _scaling(x, weights) if settings["scale"] else (np.zeros_like(x[0]), np.ones_like(x[0]))
    weight = settings["privacy_weight"]
    if isinstance(weight, dict):  # by the names of columns, which need not be strings
        weight = {str(name): value for name, value in weight.items()}
    p = {name: label.values for name, label in private.items()} or np.zeros((len(x), 1))
    result = fit(
        _scaled(x, mean, spread),
        y.values,
        p,
        objective=objective,
        privacy_weight=weight,
        networks=networks,
        weights=weights,
        batch_size=_positive(settings["batch_size"], "batch_size"),
        seed=check_random_state(settings["random_state"]).randint(np.iinfo(np.int32).max),
    )
    if result.status == "diverged":
        warnings.warn(
            "training diverged, and ended with the last parameters that were finite: lower privacy_weight.",
            ConvergenceWarning,
            stacklevel=3,
        )
    params = result.state.params
    spheres = make_layers(params["private"]), make_layers(params["public"])
    return Model(mean, spread, *spheres, y.classes, y.mean, y.spread), result


def make_history(result: FitResult, hides: bool) -> dict[str, Any]:
    """What happened in each epoch, as JSON; nothing about privacy where nothing is hidden."""
    history = jax.tree.map(
        lambda a: [value if math.isfinite(value) else None for value in a.tolist()], result.history
    )
    losses, measures = history.losses._asdict(), history.measures._asdict()
    if not hides:
        del losses["privacy"], measures["probe"]
    return {"rate_scale": history.rate_scale, "losses": losses, "measures": measures}


def _nothing(z, p, **_):
    """A privacy loss that hides nothing."""
    return jnp.zeros(())


def _width(label: Label) -> int:
    return 1 if label.classes is None else len(label.classes)


def _scaling(x: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(over="ignore", invalid="ignore"):
        scaler = StandardScaler().fit(x.astype(np.float64), sample_weight=weights)
    return np.asarray(scaler.mean_), np.asarray(scaler.scale_)


def _scaled(x: np.ndarray, mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        x = (x - mean) / spread
    if not np.abs(x).max() <= np.finfo(np.float32).max:
        raise ValueError("X holds values too large for float32, in which training computes: divide them.")
    return x


def _widths(settings: dict[str, Any], name: str) -> list[int]:
    if np.ndim(settings[name]) != 1:
        raise ValueError(f"{name} must be a tuple of whole numbers, got {settings[name]!r}.")
    return [_positive(width, name) for width in settings[name]]


def _positive(value: Any, name: str) -> int:
    if not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}.")
    return int(value)
