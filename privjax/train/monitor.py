"""What is looked at after each epoch: utility, the shape of z, a ridge probe of p."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from privjax.networks import Networks, Params
from privjax.train.data import Task, TrainData
from privjax.train.loss import utility_loss

# Rows that the probe is fitted on; it is to be cheap beside an epoch.
PROBE_ROWS = 1000


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
    train = _train_rows(data)
    validation = measured_rows(data)
    if data.validation_rows is None:
        # Two halves, so that the probe is not judged on the rows it was fitted on.
        half = max(1, len(validation) // 2)
        fitted = validation[:half]
        held_out = slice(half, None) if len(validation) > half else slice(None)
    else:
        fitted, held_out = train[:PROBE_ROWS], slice(None)

    def take(a, rows):
        # Clipped: the default masks every element for rows out of bounds, which costs more than all else.
        return jnp.take(a, rows, axis=0, mode="clip")

    z = networks.private(params, take(data.x, validation))
    outputs = networks.public(params, z)
    y = take(data.y, validation)
    weights = None if data.weights is None else take(data.weights, validation)
    z_fitted = networks.private(params, take(data.x, fitted))
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
            )
        )
    return Measures(
        utility_loss=utility_loss(outputs, y, task, weights),
        utility=utility_score(outputs, y, task, weights),
        effective_rank=effective_rank(z),
        live_units=live_units(z),
        probe=task.collect(probe),
    )


def measured_rows(data: TrainData) -> Array:
    """The validation rows; where there are none, the first of the training rows."""
    return _train_rows(data)[: 2 * PROBE_ROWS] if data.validation_rows is None else data.validation_rows


def _train_rows(data: TrainData) -> Array:
    return jnp.arange(len(data.x)) if data.train_rows is None else data.train_rows


def utility_score(outputs: Array, y: Array, task: Task, weights: Array | None = None) -> Array:
    """Accuracy of logits for labels y, or R^2 of predictions for a continuous y."""
    weights = jnp.ones(len(y)) if weights is None else weights
    weights = weights / jnp.maximum(weights.sum(), jnp.finfo(jnp.float32).tiny)
    if task.num_classes:
        return weights @ (outputs.argmax(-1) == y).astype(jnp.float32)
    return _r2(outputs, y, weights)


def effective_rank(z: Array) -> Array:
    """tr(C)^2 / tr(C^2) of the covariance C of z: d for d equal directions, 1 for one, 0 for none.

    The participation ratio of the eigenvalues, without computing them.
    """
    # The mean of a constant is rounded, which would look like a direction.
    z = jnp.where(_varies(z), z - z.mean(0), 0.0)
    # Scaled so that the square of a small covariance does not underflow.
    z = z / jnp.maximum(jnp.abs(z).max(), 1e-20)
    gram = z.T @ z if z.shape[1] <= z.shape[0] else z @ z.T
    trace = jnp.trace(gram)
    return jnp.where(trace > 0, trace**2 / jnp.maximum(jnp.sum(gram**2), 1e-20), 0.0)


def live_units(z: Array) -> Array:
    """How many units of z are not constant over the rows."""
    return jnp.sum(_varies(z)).astype(jnp.int32)


def _varies(z: Array) -> Array:
    return z.max(0) - z.min(0) > 1e-6 * jnp.maximum(jnp.abs(z).max(), 1e-20)


def ridge_probe(
    z: Array, p: Array, z_test: Array, p_test: Array, *, discrete: bool, ridge: float = 1e-3
) -> Array:
    """What ridge regression, in closed form, tells of p from z: a cheap lower bound on an attack.

    Args:
      z: rows to fit on [m, d].
      p: one-hot or real targets [m, l].
      z_test: rows to judge on.
      p_test: their targets.
      discrete: whether p is one-hot.
      ridge: relative to the mean variance of z.

    Returns:
      Balanced accuracy over the classes present when p is one-hot (1/l knows nothing), else R^2.
    """
    z_mean, p_mean = z.mean(0), p.mean(0)
    z, z_test, p = z - z_mean, z_test - z_mean, p - p_mean
    scale = jnp.maximum(jnp.sqrt(jnp.mean(z**2)), 1e-20)
    z, z_test = z / scale, z_test / scale
    m, d = z.shape
    # The smaller of the two equivalent systems.
    if d <= m:
        weights = _solve(z.T @ z + ridge * m * jnp.eye(d), z.T @ p)
    else:
        weights = z.T @ _solve(z @ z.T + ridge * m * jnp.eye(m), p)
    predicted = z_test @ weights + p_mean
    if not discrete:
        return _r2(predicted, p_test, jnp.full(len(p_test), 1.0 / len(p_test)))
    hits = (predicted.argmax(-1) == p_test.argmax(-1)).astype(jnp.float32)
    counts = p_test.sum(0)
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
