"""Baseline encoders: releases to compare a trained encoder with.

Each function learns from rows x and returns an `Encoder` of raw rows. `duca_mmd` trains with gradients; the
others are closed forms, computed in float64 NumPy. Rows are scaled before the linear map, as in `fit`, except
in `raw` and `linear_erasure`, whose release has the units of x.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Shaped

from privjax.encoder import Encoder, Scaling, fit_scaling
from privjax.kernels import Kernel, gaussian_mixture
from privjax.losses import discriminant_information, mmd_loss
from privjax.networks import linear_networks
from privjax.training.data import as_labels

_X = Shaped[ArrayLike, "n ..."]
_Labels = Shaped[ArrayLike, " n"] | Shaped[ArrayLike, "n k"]


def raw(x: _X) -> Encoder:
    """Return the identity: it releases x itself, flattened.

    Args:
      x: Rows [n, ...]; only their shape is used.

    Example:
      >>> import numpy as np
      >>> from privjax import baselines
      >>> baselines.raw(np.zeros((5, 2, 3)))(np.ones((1, 2, 3)))
      array([[1., 1., 1., 1., 1., 1.]], dtype=float32)
    """
    rows = _scale(x, "none")
    return Encoder(linear_networks(rows.shape, num_features=None), {}, rows.scaling, rows.shape)


def random_projection(x: _X, *, num_features: int, seed: int = 0, scaling: str = "standard") -> Encoder:
    """Project x on random orthonormal directions.

    Args:
      x: Rows [n, ...].
      num_features: Width of z.
      seed: Seed of the directions, which depend on the width of x but not on its values.
      scaling: "standard", "minmax" or "none".

    Example:
      >>> import numpy as np
      >>> from privjax import baselines
      >>> x = np.random.default_rng(0).normal(size=(20, 5))
      >>> baselines.random_projection(x, num_features=2)(x).shape
      (20, 2)
    """
    rows = _scale(x, scaling)
    width = _check_width(num_features, rows)
    draws = np.random.default_rng(seed).normal(size=(rows.x.shape[1], width))
    return _linear_encoder(rows, np.linalg.qr(draws)[0])


def pca(x: _X, *, num_features: int, scaling: str = "standard") -> Encoder:
    """Project x on the directions of largest variance.

    Args:
      x: Rows [n, ...].
      num_features: Width of z.
      scaling: "standard", "minmax" or "none".

    Example:
      >>> import numpy as np
      >>> from privjax import baselines
      >>> x = np.random.default_rng(0).normal(size=(20, 5))
      >>> baselines.pca(x, num_features=2)(x).shape
      (20, 2)
    """
    rows = _scale(x, scaling)
    width = _check_width(num_features, rows)
    centred = rows.x - rows.mean
    directions = np.linalg.eigh(centred.T @ centred)[1]
    return _linear_encoder(rows, directions[:, ::-1][:, :width])


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
      rho: Ridge of the constraint (> 0). The paper cites other works for its value; 1 is small compared with
        the scatter of standardised features.
      rho_prime: Ridge of the objective; it prefers directions of large variance.
      scaling: "standard", "minmax" or "none".

    Example:
      >>> import numpy as np
      >>> from privjax import baselines
      >>> x, labels = np.random.default_rng(0).normal(size=(20, 5)), np.arange(20)
      >>> baselines.duca(x, labels % 2, labels % 3, num_features=2, privacy_weight=1.0)(x).shape
      (20, 2)
    """
    rows = _scale(x, scaling)
    width = _check_width(num_features, rows)
    _check_ridge(rho)
    centred = rows.x - rows.mean
    utility = centred.T @ _label_matrix("y", y, len(centred))
    private = centred.T @ _label_matrix("p", p, len(centred))
    identity = np.eye(centred.shape[1])
    gain = utility @ utility.T - rho_prime * identity - privacy_weight * private @ private.T
    # With XX' + rho I = LL' and W = L'^-1 V the constraint is V'V = I: an ordinary eigenproblem.
    inverse = np.linalg.inv(np.linalg.cholesky(centred.T @ centred + rho * identity))
    directions = np.linalg.eigh(inverse @ gain @ inverse.T)[1]
    return _linear_encoder(rows, inverse.T @ directions[:, ::-1][:, :width])


def linear_erasure(x: _X, p: _Labels, *, tolerance: float = 1e-6) -> Encoder:
    """Erase all linear information about p with the smallest linear change of x.

    z = x - S^(1/2) Q S^(-1/2) (x - mean), where S is the covariance of x and Q projects on the columns of
    S^(-1/2) Cov(x, p). Hence Cov(z, p) = 0, and no linear predictor of p from z beats a constant. No other
    such map has a smaller mean squared change of x. The release has the units of x, and the units of x and p
    do not affect the result.

    Args:
      x: Rows [n, ...].
      p: Private labels [n], or a matrix [n, l].
      tolerance: Directions of the standardised x with a standard deviation below this fraction of the largest
        count as constant and are released unchanged.

    Example:
      >>> import numpy as np
      >>> from privjax import baselines
      >>> x, p = np.random.default_rng(0).normal(size=(20, 5)), np.arange(20) % 2
      >>> z = baselines.linear_erasure(x, p)(x)
      >>> bool(np.allclose(z[p == 0].mean(0), z[p == 1].mean(0), atol=1e-5))
      True
    """
    rows = _scale(x, "standard")
    deviations = rows.x - rows.mean
    scale = _spread(rows.x)  # scaling is per channel, erasure per feature
    standardised = deviations / scale
    labels = _label_matrix("p", p, len(standardised))
    labels = (labels - labels.mean(0)) / _spread(labels)
    values, vectors = np.linalg.eigh(standardised.T @ standardised / len(labels))
    roots = np.sqrt(np.maximum(values, 0.0))
    kept = roots > tolerance * roots.max()
    vectors, roots = vectors[:, kept], roots[kept]
    # In whitened coordinates: project out the directions that covary with p.
    covariance = (standardised @ vectors / roots).T @ labels / len(labels)
    left, strengths, _ = np.linalg.svd(covariance, full_matrices=False)
    left = left[:, strengths > tolerance]
    rest = np.eye(len(roots)) - left @ left.T
    w = (vectors / roots) @ rest @ (vectors * roots).T
    shift, spread = (
        np.broadcast_to(a, rows.shape).ravel() for a in (rows.scaling.shift, rows.scaling.spread)
    )
    return _linear_encoder(rows, w / scale[:, None] * scale * spread, rows.mean * spread + shift)


def duca_mmd(
    x: _X,
    y: _Labels,
    p: _Labels,
    *,
    num_features: int,
    privacy_weight: float,
    rho: float = 1.0,
    kernel: Kernel | None = None,
    learning_rate: float = 1e-3,
    batch_size: int = 500,
    num_epochs: int = 100,
    seed: int = 0,
    scaling: str = "standard",
) -> Encoder:
    """Train DUCA-MMD: z = W'x minimises -DI(z, y) + privacy_weight MMD(z, p).

    DI is the linear `discriminant_information`. It is nearly independent of the scale of z until z is small
    compared with rho, while MMD falls with the scale. A tiny rho therefore lets training shrink z below the
    bandwidths of the kernel without hiding p.

    Args:
      x: Rows [n, ...].
      y: Utility labels [n], or a matrix [n, k].
      p: Private labels [n].
      num_features: Width of z.
      privacy_weight: Weight lambda_P of MMD. DI is up to about the batch size.
      rho: Ridge of the discriminant information (> 0).
      kernel: Kernel of MMD; the paper's mixture of Gaussians if None.
      learning_rate: Learning rate of Adam.
      batch_size: Maximum number of rows in a batch.
      num_epochs: Number of passes over x.
      seed: Seed of the initial W and the order of rows.
      scaling: "standard", "minmax" or "none".

    Example:
      >>> import numpy as np
      >>> from privjax import baselines
      >>> x, labels = np.random.default_rng(0).normal(size=(20, 5)), np.arange(20)
      >>> settings = dict(num_features=2, privacy_weight=1.0, num_epochs=1)
      >>> baselines.duca_mmd(x, labels % 2, labels % 3, **settings)(x).shape
      (20, 2)
    """
    rows = _scale(x, scaling)
    width = _check_width(num_features, rows)
    _check_ridge(rho)
    for name, value in (("batch_size", batch_size), ("num_epochs", num_epochs)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    groups, num_classes = as_labels("p", p, len(rows.x))
    if not num_classes:
        raise TypeError("p must be integer labels [n]: MMD compares groups of rows.")
    key, draw = jax.random.split(jax.random.key(seed))
    # Orthonormal columns give the initial z the scale of x.
    w = jax.nn.initializers.orthogonal()(draw, (rows.x.shape[1], width))
    w = _train_linear(
        w,
        rows.x - rows.mean,
        _label_matrix("y", y, len(rows.x)),
        groups,
        key,
        np.array([privacy_weight, rho, learning_rate]),
        kernel=gaussian_mixture() if kernel is None else kernel,
        num_classes=num_classes,
        batch_size=min(batch_size, len(rows.x)),
        num_epochs=num_epochs,
    )
    return _linear_encoder(rows, np.asarray(w, np.float64))


@functools.partial(jax.jit, static_argnames=("num_classes", "batch_size", "num_epochs"))
def _train_linear(w, x, y, p, key, numbers, *, kernel, num_classes, batch_size, num_epochs) -> Array:
    privacy_weight, rho, learning_rate = numbers
    optimizer = optax.adam(learning_rate)
    num_batches = len(x) // batch_size

    def loss(w, rows):
        z = x[rows] @ w
        utility = discriminant_information(z, y[rows], rho=rho)
        return privacy_weight * mmd_loss(z, p[rows], kernel=kernel, num_classes=num_classes) - utility

    def step(carry, rows):
        w, state = carry
        updates, state = optimizer.update(jax.grad(loss)(w, rows), state)
        return (w + updates, state), None

    def epoch(carry, key):
        rows = jax.random.permutation(key, len(x))[: num_batches * batch_size]
        return jax.lax.scan(step, carry, rows.reshape(num_batches, batch_size))

    return jax.lax.scan(epoch, (w, optimizer.init(w)), jax.random.split(key, num_epochs))[0][0]


class _Rows(NamedTuple):
    """Scaled and flattened rows x [n, features] in float64, and the scaling of raw rows of a shape."""

    x: np.ndarray
    mean: np.ndarray
    shape: tuple[int, ...]
    scaling: Scaling


def _scale(x: _X, method: str) -> _Rows:
    raw_rows = np.asarray(x, np.float64)
    if raw_rows.ndim < 2 or len(raw_rows) < 2:
        raise ValueError(f"x must hold at least two rows [n, ...], got shape {raw_rows.shape}.")
    if not np.isfinite(raw_rows).all():
        raise ValueError("x must be finite: drop or fill the rows with NaN or infinity.")
    scaling = fit_scaling(raw_rows, method=method)
    rows = ((raw_rows - scaling.shift) / scaling.spread).reshape(len(raw_rows), -1)
    return _Rows(rows, rows.mean(0), raw_rows.shape[1:], scaling)


def _linear_encoder(rows: _Rows, w: np.ndarray, offset: np.ndarray | float = 0.0) -> Encoder:
    """Make the encoder z = W'(x - mean) + offset of scaled rows."""
    params = {"weights": w, "mean": rows.mean, "offset": np.broadcast_to(offset, w.shape[1:])}
    params = {name: jnp.asarray(array, jnp.float32) for name, array in params.items()}
    return Encoder(linear_networks(rows.shape, num_features=w.shape[1]), params, rows.scaling, rows.shape)


def _check_width(num_features: int, rows: _Rows) -> int:
    most = rows.x.shape[1]
    if not 1 <= num_features <= most:
        raise ValueError(f"num_features must be between 1 and {most}, the width of x, got {num_features}.")
    return num_features


def _check_ridge(rho: float) -> None:
    if not 0 < rho < math.inf:
        raise ValueError(f"rho must be positive and finite, got {rho}.")


def _spread(x: np.ndarray) -> np.ndarray:
    """Standard deviation of each column; 1 for constant columns, whose mean is subject to rounding."""
    spread = x.std(0)
    return np.where(spread > 1e-12 * np.abs(x).max(0), spread, 1.0)


def _label_matrix(name: str, labels: ArrayLike, n: int) -> np.ndarray:
    """Return classes as one-hot rows, without columns for absent classes, and reals as a matrix."""
    values, num_classes = as_labels(name, labels, n)
    if not num_classes:
        return np.asarray(values, np.float64)
    present, numbers = np.unique(values, return_inverse=True)
    return np.eye(len(present))[numbers]
