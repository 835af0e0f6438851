"""Baseline encoders: releases to compare a trained encoder with.

Each function learns from rows x and returns an `Encoder` of raw rows. `duca_mmd` trains with gradients; the
others are closed forms, computed in float64 NumPy. Rows are scaled before the linear map, as in `fit`, except
in `raw` and `linear_erasure`, whose release has the units of x.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Shaped

from privjax.encoder import Encoder, fit_scaling
from privjax.kernels import gaussian_mixture
from privjax.losses import discriminant_information, mmd_loss
from privjax.networks import linear_networks
from privjax.training.data import as_labels, check_positive_integer

_X = Shaped[ArrayLike, "n ..."]
_Labels = Shaped[ArrayLike, " n"] | Shaped[ArrayLike, "n k"]
_CONSTANT = 1e-6  # directions below this fraction of the largest are not erased


def raw(x: _X) -> Encoder:
    """Return the identity: it releases x itself, flattened.

    Args:
      x: Rows [n, ...]; only their shape is used.

    Example:
      >>> raw(np.zeros((5, 2, 3)))(np.ones((1, 2, 3)))
      array([[1., 1., 1., 1., 1., 1.]], dtype=float32)
    """
    return _scale(x, "none")[1]


def random_projection(x: _X, *, num_features: int, seed: int = 0, scaling: str = "standard") -> Encoder:
    """Project x on random orthonormal directions.

    Args:
      x: Rows [n, ...].
      num_features: Width of z.
      seed: Seed of the directions, which depend on the width of x but not on its values.
      scaling: "standard", "minmax" or "none".

    Example:
      >>> random_projection(np.eye(5), num_features=2)
      Encoder(x [5] -> z [2], 27 parameters, scaling standard, release exact)
    """
    rows, scaler = _scale(x, scaling, num_features)
    draws = np.random.default_rng(seed).normal(size=(rows.shape[1], num_features))
    return _linear_encoder(scaler, rows, np.linalg.qr(draws)[0])


def pca(x: _X, *, num_features: int, scaling: str = "standard") -> Encoder:
    """Project x on the directions of largest variance.

    Args:
      x: Rows [n, ...].
      num_features: Width of z.
      scaling: "standard", "minmax" or "none".

    Example:
      >>> pca(np.eye(5), num_features=2)
      Encoder(x [5] -> z [2], 27 parameters, scaling standard, release exact)
    """
    rows, scaler = _scale(x, scaling, num_features)
    centred = rows - rows.mean(0)
    directions = np.linalg.eigh(centred.T @ centred)[1]
    return _linear_encoder(scaler, rows, directions[:, ::-1][:, :num_features])


def duca(
    x: _X,
    y: _Labels,
    p: _Labels,
    *,
    num_features: int,
    privacy_weight: float,
    rho: float = 1.0,
    rho_prime: float = 1e-2,
    scaling: str = "standard",
) -> Encoder:
    """Solve Discriminant Utility-Cost Analysis, eq. exp_duca, as a generalised eigenproblem.

    With centred X and the label matrices Y and P, W maximises
    tr(W'(XYY'X' - rho' I - privacy_weight XPP'X')W) subject to W'(XX' + rho I)W = I.

    Args:
      x: Rows [n, ...].
      y: Utility labels [n], or a matrix [n, k].
      p: Private labels [n], or a matrix [n, l].
      num_features: Width of z.
      privacy_weight: Weight lambda_P of the private scatter.
      rho: Ridge of the constraint (> 0). 1 is small compared with the scatter of standardised features.
      rho_prime: Ridge of the objective; it prefers directions of large variance.
      scaling: "standard", "minmax" or "none".

    Example:
      >>> duca(np.eye(6), np.arange(6) % 2, np.arange(6) % 3, num_features=2, privacy_weight=1.0)
      Encoder(x [6] -> z [2], 32 parameters, scaling standard, release exact)
    """
    rows, scaler = _scale(x, scaling, num_features, rho)
    centred = rows - rows.mean(0)
    utility = centred.T @ _label_matrix("y", y, len(centred))
    private = centred.T @ _label_matrix("p", p, len(centred))
    identity = np.eye(centred.shape[1])
    gain = utility @ utility.T - rho_prime * identity - privacy_weight * private @ private.T
    # With XX' + rho I = LL' and W = L'^-1 V the constraint is V'V = I: an ordinary eigenproblem.
    inverse = np.linalg.inv(np.linalg.cholesky(centred.T @ centred + rho * identity))
    directions = np.linalg.eigh(inverse @ gain @ inverse.T)[1]
    return _linear_encoder(scaler, rows, inverse.T @ directions[:, ::-1][:, :num_features])


def linear_erasure(x: _X, p: _Labels) -> Encoder:
    """Erase all linear information about p with the smallest linear change of x.

    z = x - S^(1/2) Q S^(-1/2) (x - mean), where S is the covariance of x and Q projects on the columns of
    S^(-1/2) Cov(x, p). Hence Cov(z, p) = 0, and no linear predictor of p from z beats a constant. No other
    such map has a smaller mean squared change of x. The units of x and p do not affect the result.

    Args:
      x: Rows [n, ...].
      p: Private labels [n], or a matrix [n, l].

    Example:
      >>> x, p = np.random.default_rng(0).normal(size=(20, 5)), np.arange(20) % 2
      >>> z = linear_erasure(x, p)(x)
      >>> bool(np.allclose(z[p == 0].mean(0), z[p == 1].mean(0), atol=1e-5))
      True
    """
    rows, scaler = _scale(x, "standard")
    scale, mean = _spread(rows), rows.mean(0)  # scaling is per channel, erasure per feature
    standardised = (rows - mean) / scale
    labels = _label_matrix("p", p, len(standardised))
    labels = (labels - labels.mean(0)) / _spread(labels)
    values, vectors = np.linalg.eigh(standardised.T @ standardised / len(labels))
    roots = np.sqrt(np.maximum(values, 0.0))
    kept = roots > _CONSTANT * roots.max()
    vectors, roots = vectors[:, kept], roots[kept]
    # In whitened coordinates: project out the directions that covary with p.
    covariance = (standardised @ vectors / roots).T @ labels / len(labels)
    left, strengths, _ = np.linalg.svd(covariance, full_matrices=False)
    left = left[:, strengths > _CONSTANT]
    rest = np.eye(len(roots)) - left @ left.T
    w = (vectors / roots) @ rest @ (vectors * roots).T
    shift, spread = (np.broadcast_to(array, scaler.input_shape).ravel() for array in scaler.scaling[1:])
    return _linear_encoder(scaler, rows, w / scale[:, None] * scale * spread, mean * spread + shift)


def duca_mmd(
    x: _X,
    y: _Labels,
    p: _Labels,
    *,
    num_features: int,
    privacy_weight: float,
    rho: float = 1.0,
    learning_rate: float = 1e-3,
    batch_size: int = 500,
    num_epochs: int = 100,
    seed: int = 0,
    scaling: str = "standard",
) -> Encoder:
    """Train DUCA-MMD: z = W'x minimises -DI(z, y) + privacy_weight MMD(z, p).

    DI is the linear `discriminant_information`, and the kernel of MMD is the paper's mixture of Gaussians.
    MMD falls with the scale of z, and DI does not until z is small compared with rho. A tiny rho therefore
    lets training shrink z below the bandwidths of the kernel without hiding p.

    Args:
      x: Rows [n, ...].
      y: Utility labels [n], or a matrix [n, k].
      p: Private labels [n].
      num_features: Width of z.
      privacy_weight: Weight lambda_P of MMD. DI is up to about the batch size.
      rho: Ridge of the discriminant information (> 0).
      learning_rate: Learning rate of Adam.
      batch_size: Maximum number of rows in a batch.
      num_epochs: Number of passes over x.
      seed: Seed of the initial W and the order of rows.
      scaling: "standard", "minmax" or "none".

    Example:
      >>> labels = np.arange(6) % 2, np.arange(6) % 3
      >>> duca_mmd(np.eye(6), *labels, num_features=2, privacy_weight=1.0, num_epochs=1)
      Encoder(x [6] -> z [2], 32 parameters, scaling standard, release exact)
    """
    rows, scaler = _scale(x, scaling, num_features, rho)
    check_positive_integer("batch_size", batch_size)
    check_positive_integer("num_epochs", num_epochs)
    groups, num_classes = as_labels("p", p, len(rows))
    if not num_classes:
        raise TypeError("p must be integer labels [n]: MMD compares groups of rows.")
    key, draw = jax.random.split(jax.random.key(seed))
    # Orthonormal columns give the initial z the scale of x.
    w = jax.nn.initializers.orthogonal()(draw, (rows.shape[1], num_features))
    utility = _label_matrix("y", y, len(rows))
    numbers = np.array([privacy_weight, rho, learning_rate])
    sizes = dict(num_classes=num_classes, batch_size=min(batch_size, len(rows)), num_epochs=num_epochs)
    w = _train_linear(w, rows - rows.mean(0), utility, groups, key, numbers, **sizes)
    return _linear_encoder(scaler, rows, np.asarray(w, np.float64))


@functools.partial(jax.jit, static_argnames=("num_classes", "batch_size", "num_epochs"))
def _train_linear(w, x, y, p, key, numbers, *, num_classes, batch_size, num_epochs) -> Array:
    privacy_weight, rho, learning_rate = numbers
    optimizer = optax.adam(learning_rate)
    num_batches = len(x) // batch_size

    def loss(w, rows):
        z = x[rows] @ w
        privacy = mmd_loss(z, p[rows], kernel=gaussian_mixture(), num_classes=num_classes)
        return privacy_weight * privacy - discriminant_information(z, y[rows], rho=rho)

    def step(carry, rows):
        w, state = carry
        updates, state = optimizer.update(jax.grad(loss)(w, rows), state)
        return (w + updates, state), None

    def epoch(carry, key):
        rows = jax.random.permutation(key, len(x))[: num_batches * batch_size]
        return jax.lax.scan(step, carry, rows.reshape(num_batches, batch_size))

    return jax.lax.scan(epoch, (w, optimizer.init(w)), jax.random.split(key, num_epochs))[0][0]


def _scale(
    x: _X, method: str, num_features: int = 1, rho: float = 1.0
) -> tuple[Float[np.ndarray, "n features"], Encoder]:
    """Check arguments; return scaled flat rows in float64, and the encoder that releases such rows."""
    raw_rows = np.asarray(x, np.float64)
    if raw_rows.ndim < 2 or len(raw_rows) < 2:
        raise ValueError(f"x must hold at least two rows [n, ...], got shape {raw_rows.shape}.")
    if not np.isfinite(raw_rows).all():
        raise ValueError("x must be finite: drop or fill the rows with NaN or infinity.")
    scaling = fit_scaling(raw_rows, method=method)
    rows = ((raw_rows - scaling.shift) / scaling.spread).reshape(len(raw_rows), -1)
    most = rows.shape[1]
    if not 1 <= num_features <= most:
        raise ValueError(f"num_features must be between 1 and {most}, the width of x, got {num_features}.")
    if not 0 < rho < math.inf:
        raise ValueError(f"rho must be positive and finite, got {rho}.")
    shape = raw_rows.shape[1:]
    return rows, Encoder(linear_networks(shape, num_features=None), {}, scaling, shape)


def _linear_encoder(
    scaler: Encoder, rows: np.ndarray, w: np.ndarray, offset: np.ndarray | float = 0.0
) -> Encoder:
    """Make the encoder z = W'(x - mean) + offset of scaled rows."""
    params = {"weights": w, "mean": rows.mean(0), "offset": np.broadcast_to(offset, w.shape[1:])}
    params = {name: jnp.asarray(array, jnp.float32) for name, array in params.items()}
    networks = linear_networks(scaler.input_shape, num_features=w.shape[1])
    return dataclasses.replace(scaler, networks=networks, params=params)


def _spread(x: np.ndarray) -> np.ndarray:
    """Standard deviation of each column; 1 for constant columns, whose mean is subject to rounding."""
    spread = x.std(0)
    return np.where(spread > 1e-12 * np.abs(x).max(0), spread, 1.0)


def _label_matrix(name: str, labels: ArrayLike, n: int) -> np.ndarray:
    """Return classes as one-hot rows, without columns for absent classes, and reals as a matrix."""
    values, num_classes = as_labels(name, labels, n)
    return np.asarray(values[:, None] == np.unique(values) if num_classes else values, np.float64)
