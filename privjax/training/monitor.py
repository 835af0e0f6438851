"""What is looked at after each epoch: utility, the shape of z, a ridge probe of p."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from privjax.networks import Networks, Params
from privjax.training.data import Task, TrainData
from privjax.training.loss import utility_loss

# Rows that the probe is fitted on; it is to be cheap beside an epoch.
PROBE_ROWS = 1000
FEW_ROWS = 200  # with so few all are looked at


class Measures(NamedTuple):
    """Measured without dropout, on the validation rows (when there are none, on training rows).

    Attributes:
      utility_loss: L_U.
      utility: accuracy, or R^2 when y is continuous.
      effective_rank: see `effective_rank`.
      live_units: see `live_units`.
      probe: see `ridge_probe`; a dict when p is a dict.
    """

    utility_loss: Array
    utility: Array
    effective_rank: Array
    live_units: Array
    probe: Any


def measure(params: Params, data: TrainData, *, networks: Networks, task: Task) -> Measures:
    """Looks at one member's networks."""
    validation = measured_rows(data)
    alone = data.validation_rows is None
    # Every other row where there is one part, so that the probe is not judged on the rows it was fitted on.
    fitted = validation[::2] if alone else _spaced(_train_rows(data), PROBE_ROWS)
    held_out = slice(1, None, 2) if alone and len(validation) > 1 else slice(None)

    def take(a, rows):
        # Clipped: the default masks every element for rows out of bounds, which costs more than all else.
        return jnp.take(a, rows, axis=0, mode="clip")

    z = networks.private(params, take(data.x, validation))
    outputs = networks.public(params, z)
    y = take(data.y, validation)
    weights = jnp.ones(len(data.x)) if data.weights is None else data.weights
    w_fitted, w = take(weights, fitted), take(weights, validation)
    z_fitted = z[::2] if alone else networks.private(params, take(data.x, fitted))
    probe = []
    for attribute in task.private:
        p = attribute.pick(data.p)
        probe.append(
            ridge_probe(
                z_fitted,
                attribute.matrix(take(p, fitted)),
                z[held_out],
                attribute.matrix(take(p, validation[held_out])),
                discrete=attribute.num_classes > 0,
                weights=w_fitted,
                test_weights=w[held_out],
            )
        )
    return Measures(
        utility_loss=utility_loss(outputs, y, task, w),
        utility=utility_score(outputs, y, task, w),
        effective_rank=effective_rank(z, w),
        live_units=live_units(z, w),
        probe=task.collect(probe),
    )


def measured_rows(data: TrainData) -> Array:
    """The validation rows; where there are none, some of the training rows."""
    if data.validation_rows is not None:
        return data.validation_rows
    rows = _train_rows(data)
    # A quarter at most: to look at all rows of a small set takes a third of its epochs' time.
    return _spaced(rows, max(FEW_ROWS, min(2 * PROBE_ROWS, len(rows) // 4)))


def _spaced(rows: Array, most: int) -> Array:
    """At most so many rows, evenly spaced: data are often sorted by person or by label."""
    return rows if len(rows) <= most else rows[(np.arange(most) * len(rows)) // most]


def _train_rows(data: TrainData) -> Array:
    return jnp.arange(len(data.x)) if data.train_rows is None else data.train_rows


def utility_score(outputs: Array, y: Array, task: Task, weights: Array | None = None) -> Array:
    """Accuracy of logits for labels y, or R^2 of predictions for a continuous y."""
    weights = jnp.ones(len(y)) if weights is None else weights
    weights = weights / jnp.maximum(weights.sum(), jnp.finfo(jnp.float32).tiny)
    if task.num_classes:
        return weights @ (outputs.argmax(-1) == y).astype(jnp.float32)
    return _r2(outputs, y, weights)


def effective_rank(z: Array, weights: Array | None = None) -> Array:
    """tr(C)^2 / tr(C^2) of the covariance C of z: d for d equal directions, 1 for one, 0 for none.

    The participation ratio of the eigenvalues, without computing them.
    """
    w = _shares(z, weights)
    # The mean of a constant is rounded, which would look like a direction.
    z = jnp.where(_varies(z, w), z - w @ z, 0.0) * jnp.sqrt(w)[:, None]
    # Scaled so that the square of a small covariance does not underflow.
    z = z / jnp.maximum(jnp.abs(z).max(), 1e-20)
    gram = z.T @ z if z.shape[1] <= z.shape[0] else z @ z.T
    trace = jnp.trace(gram)
    return jnp.where(trace > 0, trace**2 / jnp.maximum(jnp.sum(gram**2), 1e-20), 0.0)


def live_units(z: Array, weights: Array | None = None) -> Array:
    """How many units of z are not constant over the rows that have a weight."""
    return jnp.sum(_varies(z, _shares(z, weights))).astype(jnp.int32)


def _shares(z: Array, weights: Array | None) -> Array:
    weights = jnp.ones(len(z)) if weights is None else weights
    return weights / jnp.maximum(weights.sum(), jnp.finfo(jnp.float32).tiny)


def _varies(z: Array, w: Array) -> Array:
    there = (w > 0)[:, None]
    spread = jnp.where(there, z, -jnp.inf).max(0) - jnp.where(there, z, jnp.inf).min(0)
    return spread > 1e-6 * jnp.maximum(jnp.abs(jnp.where(there, z, 0)).max(), 1e-20)


def ridge_probe(
    z: Array,
    p: Array,
    z_test: Array,
    p_test: Array,
    *,
    discrete: bool,
    ridge: float = 1e-3,
    weights: Array | None = None,
    test_weights: Array | None = None,
) -> Array:
    """What ridge regression, in closed form, tells of p from z: a cheap lower bound on an attack.

    Args:
      z: rows to fit on [m, d].
      p: one-hot or real targets [m, l].
      z_test: rows to judge on.
      p_test: their targets.
      discrete: whether p is one-hot.
      ridge: relative to the mean variance of z.
      weights: of the rows to fit on.
      test_weights: of the rows to judge on.

    Returns:
      Balanced accuracy over the classes present when p is one-hot (1/l knows nothing), else R^2.
    """
    m, d = z.shape
    w, w_test = _shares(z, weights), _shares(z_test, test_weights)
    z_mean, p_mean = w @ z, w @ p
    root = jnp.sqrt(m * w)[:, None]
    z, z_test, p = root * (z - z_mean), z_test - z_mean, root * (p - p_mean)
    scale = jnp.maximum(jnp.sqrt(jnp.mean(z**2)), 1e-20)
    z, z_test = z / scale, z_test / scale
    # The smaller of the two equivalent systems.
    if d <= m:
        slopes = _solve(z.T @ z + ridge * m * jnp.eye(d), z.T @ p)
    else:
        slopes = z.T @ _solve(z @ z.T + ridge * m * jnp.eye(m), p)
    predicted = z_test @ slopes + p_mean
    if not discrete:
        return _r2(predicted, p_test, w_test)
    hits = w_test * (predicted.argmax(-1) == p_test.argmax(-1))
    counts = w_test @ p_test
    present = counts > 0
    recalls = (hits @ p_test) / jnp.where(present, counts, 1.0)
    return jnp.sum(recalls * present) / jnp.maximum(present.sum(), 1)


def _solve(a: Array, b: Array) -> Array:
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a), b)


def _r2(predicted: Array, target: Array, weights: Array) -> Array:
    mean = weights @ target
    residual = weights @ jnp.sum((target - predicted) ** 2, axis=-1)
    total = weights @ jnp.sum((target - mean) ** 2, axis=-1)
    return 1.0 - residual / jnp.maximum(total, jnp.finfo(jnp.float32).tiny)
