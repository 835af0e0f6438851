"""Measures after each epoch: utility, the shape of z, and a ridge probe of the private variable."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Integer

from privjax.encoder import release_function
from privjax.networks import Params
from privjax.training.data import Task, TrainConfig, TrainData
from privjax.training.loss import utility_loss

_PROBE_ROWS = 1000  # rows that the probe is fitted on, so that it is cheap beside an epoch
_FEW_ROWS = 200  # data sets up to this size are measured on all rows
_RIDGE = 1e-3  # relative to the mean variance of z
_TINY = float(jnp.finfo(jnp.float32).tiny)


class Measures(NamedTuple):
    """Measures without dropout, on the validation rows, or on some training rows when there are none."""

    utility_loss: Array
    utility: Array  # accuracy, or R^2 when y is continuous
    effective_rank: Array
    live_units: Array
    probe: Array | dict[str, Array]  # see `ridge_probe`; a dict when p is a dict


def measure(params: Params, data: TrainData, *, config: TrainConfig, key: Array | None = None) -> Measures:
    """Measure the networks of one member, with a key when the release mechanism is stochastic."""
    task, release = config.task, release_function(config.networks, config.release)
    rows = measured_rows(data)
    alone = data.validation_rows is None
    # Without validation rows the probe is fitted on every other measured row and scored on the rest.
    fitted = rows[::2] if alone else _spaced(_train_rows(data), _PROBE_ROWS)
    held_out = slice(1, None, 2) if alone and len(rows) > 1 else slice(None)

    def take(a, rows):
        # The default mode masks every element for rows out of bounds, which costs more than all the rest.
        return jnp.take(a, rows, axis=0, mode="clip")

    def targets(attribute, rows):
        return attribute.matrix(take(attribute.pick(data.p), rows))

    z = release(params, take(data.x, rows), key=key)
    outputs = config.networks.public(params, z)
    y = take(data.y, rows)
    weights = jnp.ones(len(data.x)) if data.weights is None else data.weights
    w_fitted, w = take(weights, fitted), take(weights, rows)
    z_fitted = z[::2] if alone else release(params, take(data.x, fitted), key=key)
    probe = [
        ridge_probe(
            *(z_fitted, targets(attribute, fitted), z[held_out], targets(attribute, rows[held_out])),
            discrete=attribute.num_classes > 0,
            weights=w_fitted,
            test_weights=w[held_out],
        )
        for attribute in task.private
    ]
    return Measures(
        utility_loss=utility_loss(outputs, y, task, w),
        utility=utility_score(outputs, y, task, w),
        effective_rank=effective_rank(z, w),
        live_units=live_units(z, w),
        probe=task.collect(probe),
    )


def measured_rows(data: TrainData) -> Array:
    """Return the numbers of the validation rows, or of some training rows when there are none."""
    if data.validation_rows is not None:
        return data.validation_rows
    rows = _train_rows(data)
    # A quarter at most: measuring all rows of a small set takes a third of the time of its epochs.
    return _spaced(rows, max(_FEW_ROWS, min(2 * _PROBE_ROWS, len(rows) // 4)))


def _spaced(rows: Array, most: int) -> Array:
    """Pick at most `most` rows, evenly spaced, because data are often sorted by person or by label."""
    return rows if len(rows) <= most else rows[(np.arange(most) * len(rows)) // most]


def _train_rows(data: TrainData) -> Array:
    return jnp.arange(len(data.x)) if data.train_rows is None else data.train_rows


def utility_score(outputs: Array, y: Array, task: Task, weights: Array | None = None) -> Array:
    """Compute the accuracy of logits, or the R^2 of predictions for a continuous y."""
    shares = _shares(outputs, weights)
    if task.num_classes:
        return shares @ (outputs.argmax(-1) == y).astype(jnp.float32)
    return _r2(outputs, y, shares)


def effective_rank(z: Float[Array, "n d"], weights: Array | None = None) -> Float[Array, ""]:
    """Compute tr(C)^2 / tr(C^2) of the covariance C of z, the participation ratio of its eigenvalues."""
    w = _shares(z, weights)
    # The rounded mean of a constant unit would look like a direction.
    z = jnp.where(_varies(z, w), z - w @ z, 0.0) * jnp.sqrt(w)[:, None]
    # Scaled, so that the square of a small covariance does not underflow.
    z = z / jnp.maximum(jnp.abs(z).max(), 1e-20)
    gram = z.T @ z if z.shape[1] <= z.shape[0] else z @ z.T
    trace = jnp.trace(gram)
    return jnp.where(trace > 0, trace**2 / jnp.maximum(jnp.sum(gram**2), 1e-20), 0.0)


def live_units(z: Float[Array, "n d"], weights: Array | None = None) -> Integer[Array, ""]:
    """Count the units of z that are not constant over the rows of positive weight."""
    return jnp.sum(_varies(z, _shares(z, weights))).astype(jnp.int32)


def _shares(z: Array, weights: Array | None) -> Array:
    weights = jnp.ones(len(z)) if weights is None else weights
    return weights / jnp.maximum(weights.sum(), _TINY)


def _varies(z: Array, w: Array) -> Array:
    valid = (w > 0)[:, None]
    spread = jnp.where(valid, z, -jnp.inf).max(0) - jnp.where(valid, z, jnp.inf).min(0)
    return spread > 1e-6 * jnp.maximum(jnp.abs(jnp.where(valid, z, 0)).max(), 1e-20)


def ridge_probe(
    z: Float[Array, "m d"],
    p: Float[Array, "m l"],
    z_test: Float[Array, "n d"],
    p_test: Float[Array, "n l"],
    *,
    discrete: bool,
    weights: Array | None = None,
    test_weights: Array | None = None,
) -> Float[Array, ""]:
    """Score a ridge regression from z to p, in closed form: a cheap lower bound on an attack.

    The score is the balanced accuracy over the classes present when p is one-hot (1/l without any
    information), else R^2.
    """
    m, d = z.shape
    w, w_test = _shares(z, weights), _shares(z_test, test_weights)
    z_mean, p_mean = w @ z, w @ p
    root = jnp.sqrt(m * w)[:, None]
    z, z_test, p = root * (z - z_mean), z_test - z_mean, root * (p - p_mean)
    scale = jnp.maximum(jnp.sqrt(jnp.mean(z**2)), 1e-20)
    z, z_test = z / scale, z_test / scale
    # The smaller of the two equivalent systems.
    wide = d > m
    gram, right = (z @ z.T, p) if wide else (z.T @ z, z.T @ p)
    factor = jax.scipy.linalg.cho_factor(gram + _RIDGE * m * jnp.eye(len(gram)))
    solution = jax.scipy.linalg.cho_solve(factor, right)
    slopes = z.T @ solution if wide else solution
    predicted = z_test @ slopes + p_mean
    if not discrete:
        return _r2(predicted, p_test, w_test)
    hits = w_test * (predicted.argmax(-1) == p_test.argmax(-1))
    counts = w_test @ p_test
    present = counts > 0
    recalls = (hits @ p_test) / jnp.where(present, counts, 1.0)
    return jnp.sum(recalls * present) / jnp.maximum(present.sum(), 1)


def _r2(predicted: Array, target: Array, weights: Array) -> Array:
    mean = weights @ target
    residual = weights @ jnp.sum((target - predicted) ** 2, axis=-1)
    total = weights @ jnp.sum((target - mean) ** 2, axis=-1)
    return 1.0 - residual / jnp.maximum(total, _TINY)
