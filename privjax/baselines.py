"""Encoders to compare with: what could be released without training the paper's networks.

Each function returns an encoder that is called as a trained one is, on NumPy rows x, and gives z.
All but `duca_mmd` are closed forms, computed offline in float64 NumPy.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import ArrayLike

from privjax.kernels import Kernel, gaussian_mixture
from privjax.losses import discriminant_information, mmd_loss

_MOST_CELLS = 2 * 10**8  # of a label matrix: beyond these, labels are identifiers that nobody numbered


class LinearEncoder(NamedTuple):
    """z = W'(x - mean) + offset on rows x of any shape, flattened; float32 out.

    Attributes:
      weights: W [features, d], or None for the identity.
      mean: [features], subtracted first.
      offset: [d], added last.
    """

    weights: np.ndarray | None
    mean: np.ndarray | float = 0.0
    offset: np.ndarray | float = 0.0

    def __call__(self, x: ArrayLike) -> np.ndarray:
        """Encodes rows of x."""
        x = np.asarray(x)
        x = x.reshape(len(x), math.prod(x.shape[1:]))
        if self.weights is None:
            return x.astype(np.float32)
        if x.shape[1] != len(self.weights):
            raise ValueError(f"x must have {len(self.weights)} columns, as in training, got {x.shape[1]}.")
        return ((x - self.mean) @ self.weights + self.offset).astype(np.float32)


def raw() -> LinearEncoder:
    """Releases x itself: the paper's full-dimensional point."""
    return LinearEncoder(None)


def random_projection(x: ArrayLike, *, num_features: int, seed: int = 0) -> LinearEncoder:
    """Orthonormal directions drawn at random, the same for every x of that width."""
    x = _rows(x)
    num_features = _checked_width(num_features, x)
    draws = np.random.default_rng(seed).normal(size=(x.shape[1], num_features))
    return LinearEncoder(np.linalg.qr(draws)[0], x.mean(0))


def pca(x: ArrayLike, *, num_features: int) -> LinearEncoder:
    """The directions of largest variance."""
    x = _rows(x)
    num_features = _checked_width(num_features, x)
    mean = x.mean(0)
    centred = x - mean
    directions = np.linalg.eigh(centred.T @ centred)[1]
    return LinearEncoder(directions[:, ::-1][:, :num_features], mean)


def duca(
    x: ArrayLike,
    y: ArrayLike,
    p: ArrayLike,
    *,
    num_features: int,
    privacy_weight: float,
    rho: float = 1.0,
    rho_prime: float = 1e-2,
) -> LinearEncoder:
    """Discriminant Utility-Cost Analysis, eq. exp_duca, by a generalised eigenproblem.

    With centred X and the label matrices Y and P it maximises
    tr(W'(XYY'X' - rho' I - privacy_weight XPP'X')W) under W'(XX' + rho I)W = I.

    Args:
      x: rows [n, ...].
      y: utility labels [n], or a matrix [n, k].
      p: private labels [n], or a matrix [n, l].
      num_features: columns of W.
      privacy_weight: the paper's lambda_P.
      rho: ridge of the constraint. The paper refers to other works for it; 1 is small against the
        scatter of standardised features.
      rho_prime: ridge of the objective; it prefers directions of large variance among equals.
    """
    x = _rows(x)
    num_features = _checked_width(num_features, x)
    _check_ridge(rho)
    mean = x.mean(0)
    centred = x - mean
    utility = centred.T @ _label_matrix("y", y, len(x))
    private = centred.T @ _label_matrix("p", p, len(x))
    identity = np.eye(x.shape[1])
    gain = utility @ utility.T - rho_prime * identity - privacy_weight * private @ private.T
    # With XX' + rho I = LL' and W = L'^-1 V the constraint is V'V = I: an ordinary eigenproblem.
    inverse = np.linalg.inv(np.linalg.cholesky(centred.T @ centred + rho * identity))
    directions = np.linalg.eigh(inverse @ gain @ inverse.T)[1]
    return LinearEncoder(inverse.T @ directions[:, ::-1][:, :num_features], mean)


def linear_erasure(x: ArrayLike, p: ArrayLike, *, tolerance: float = 1e-6) -> LinearEncoder:
    """The smallest linear change of x after which no linear predictor of p beats a constant.

    z = x - S^(1/2) Q S^(-1/2) (x - mean) with S the covariance of x and Q the projection on the
    columns of S^(-1/2) Cov(x, p). Then Cov(z, p) = 0, all that linear predictors live on, and of
    all such maps this one moves x least in mean square. The units of x and p do not matter.

    Args:
      x: rows [n, ...].
      p: private labels [n], or a matrix [n, l].
      tolerance: directions of the standardised x whose standard deviation is below this share of the
        largest count as constant, and are released as such.
    """
    x = _rows(x)
    mean = x.mean(0)
    rows, scale = _standardised(x)
    values, vectors = np.linalg.eigh(rows.T @ rows / len(x))
    deviations = np.sqrt(np.maximum(values, 0.0))
    kept = deviations > tolerance * deviations.max()
    vectors, deviations = vectors[:, kept], deviations[kept]
    # In whitened coordinates: the directions that covary with p.
    labels, _ = _standardised(_label_matrix("p", p, len(x)))
    covariance = (rows @ vectors / deviations).T @ labels / len(x)
    left, strengths, _ = np.linalg.svd(covariance, full_matrices=False)
    left = left[:, strengths > tolerance]
    rest = np.eye(len(deviations)) - left @ left.T
    weights = (vectors / deviations) @ rest @ (vectors * deviations).T
    return LinearEncoder(weights / scale[:, None] * scale, mean, mean)


def duca_mmd(
    x: ArrayLike,
    y: ArrayLike,
    p: ArrayLike,
    *,
    num_features: int,
    privacy_weight: float,
    rho: float = 1.0,
    kernel: Kernel | None = None,
    learning_rate: float = 1e-3,
    batch_size: int = 500,
    num_epochs: int = 100,
    seed: int = 0,
) -> LinearEncoder:
    """DUCA-MMD: z = W'x minimises -DI(z, y) + privacy_weight MMD(z, p).

    DI is the linear discriminant information of `discriminant_information`, which hardly knows the
    scale of z until z is small against rho, while MMD falls with the scale. So a tiny rho lets the
    training shrink z below the kernel's bandwidths instead of hiding p.

    Args:
      x: rows [n, ...].
      y: utility labels [n], or a matrix [n, k].
      p: private labels [n].
      num_features: width of z.
      privacy_weight: the paper's lambda_P. DI grows with the batch, up to about its size.
      rho: ridge of the discriminant information.
      kernel: of the MMD; the paper's mixture of Gaussians when None.
      learning_rate: of Adam.
      batch_size: rows a step.
      num_epochs: passes over x.
      seed: of the first W and of the order of rows.
    """
    x = _rows(x)
    num_features = _checked_width(num_features, x)
    _check_ridge(rho)
    for name, value in (("batch_size", batch_size), ("num_epochs", num_epochs)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    if np.ndim(p) != 1 or np.issubdtype(np.asarray(p).dtype, np.floating):
        raise TypeError("p must be integer labels [n]: MMD compares groups of rows.")
    groups = _label_matrix("p", p, len(x))
    mean = x.mean(0)
    key, draw = jax.random.split(jax.random.key(seed))
    # Orthonormal columns at first: z then starts at the scale of x.
    w = jax.nn.initializers.orthogonal()(draw, (x.shape[1], num_features))
    w = _train_linear(
        w,
        jnp.asarray(x - mean, jnp.float32),
        jnp.asarray(_label_matrix("y", y, len(x)), jnp.float32),
        jnp.asarray(groups.argmax(1)),
        key,
        jnp.asarray([privacy_weight, rho, learning_rate], jnp.float32),
        kernel=gaussian_mixture() if kernel is None else kernel,
        num_classes=groups.shape[1],
        batch_size=min(batch_size, len(x)),
        num_epochs=num_epochs,
    )
    return LinearEncoder(np.asarray(w, np.float64), mean)


@functools.partial(jax.jit, static_argnames=("num_classes", "batch_size", "num_epochs"))
def _train_linear(
    w: Array,
    x: Array,
    y: Array,
    p: Array,
    key: Array,
    settings: Array,
    *,
    kernel: Kernel,
    num_classes: int,
    batch_size: int,
    num_epochs: int,
) -> Array:
    privacy_weight, rho, learning_rate = settings
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


def _rows(x: ArrayLike) -> np.ndarray:
    x = np.asarray(x, np.float64)
    if x.ndim < 2 or len(x) < 2:
        raise ValueError(f"x must hold at least two rows [n, ...], got shape {x.shape}.")
    if not np.isfinite(x).all():
        raise ValueError("x must be finite: drop or fill the rows with NaN or infinity.")
    return x.reshape(len(x), -1)


def _checked_width(num_features: int, x: np.ndarray) -> int:
    if not 1 <= num_features <= x.shape[1]:
        raise ValueError(
            f"num_features must be between 1 and {x.shape[1]}, the width of x, got {num_features}."
        )
    return num_features


def _check_ridge(rho: float) -> None:
    if not 0 < rho < np.inf:
        raise ValueError(f"rho must be positive and finite, got {rho}.")


def _standardised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns of mean 0 and variance 1, and what they were divided by; 0 and 1 for constant columns."""
    centred = x - x.mean(0)
    scale = centred.std(0)
    varies = scale > 1e-12 * np.abs(x).max(0)  # the mean of a constant is rounded
    scale = np.where(varies, scale, 1.0)
    return np.where(varies, centred, 0.0) / scale, scale


def _label_matrix(name: str, labels: ArrayLike, n: int) -> np.ndarray:
    """Integer labels as one-hot rows; a matrix as it is."""
    labels = np.asarray(labels)
    if labels.ndim not in (1, 2) or len(labels) != n:
        raise ValueError(f"{name} must have one row for each of the {n} rows of x, got shape {labels.shape}.")
    if labels.ndim == 2:
        labels = labels.astype(np.float64)
        if not np.isfinite(labels).all():
            raise ValueError(f"{name} must be finite: drop or fill the rows with NaN or infinity.")
        return labels
    if labels.dtype != bool and not np.issubdtype(labels.dtype, np.integer):
        raise TypeError(f"{name} must be integer labels [n] or a matrix [n, k].")
    if labels.min() < 0:
        raise ValueError(f"{name} holds the label {labels.min()}: number the classes from 0.")
    if n * (int(labels.max()) + 1) > _MOST_CELLS:
        raise ValueError(f"{name} holds the label {labels.max()}: number the classes from 0.")
    matrix = np.zeros((n, int(labels.max()) + 1))
    matrix[np.arange(n), labels.astype(np.int64)] = 1
    return matrix
