"""Linear relatives: discriminant information, and the penalty that keeps a projection orthonormal."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from privjax.distances import safe_sqrt
from privjax.losses._inputs import Rows, floating, matrix, positive, rows, widen


def discriminant_information(
    x: ArrayLike,
    y: ArrayLike,
    *,
    rho: float | Array,
    num_classes: int | None = None,
    weights: ArrayLike | None = None,
) -> Array:
    """Linear discriminant information tr( (S + rho I)^-1 S_B ): `kdi_loss` with the linear kernel.

    S = Xc'Xc is the scatter of the centred rows, S_B = Xc'Y Y'Xc. It is the part of |C Y|^2 that a ridge
    regression of y on x accounts for.

    Args:
      x: rows [n, d].
      y: class labels [n], or any real matrix [n, l].
      rho: ridge penalty, positive.
      num_classes: number of classes; needed with integer labels under jit.
      weights: sample weights [n] of the squared errors; a row of weight 0 changes nothing.
    """
    positive("rho", rho)
    batch = rows(x, weights, name="x")
    y, _ = matrix(y, batch, num_classes)
    return _discriminant_information(batch, y, jnp.asarray(rho, batch.z.dtype))


@jax.jit
def _discriminant_information(batch: Rows, y: Array, rho: Array) -> Array:
    x, w, there = batch
    total = jnp.where(w.sum() == 0, 1, w.sum())
    for _ in range(2):  # the second pass takes away the rounding of the first
        x = jnp.where(there[:, None], x - (w @ x / total)[None, :], 0)
        y = jnp.where(there[:, None], y - (w @ y / total)[None, :], 0)
    root = safe_sqrt(w)[:, None]
    x, y = root * x, root * y
    # The value depends on x only through x / sqrt(rho): the larger of the two sets the scale.
    size = jax.lax.stop_gradient(jnp.sqrt(jnp.maximum(rho, (x * x).sum(1).max())))
    x, rho = x / size, rho / size / size
    # With [x; sqrt(rho) I] = QR the trace is |Q_x' y|^2, Q_x the rows of Q that stand beside x. A scatter
    # matrix would square the condition number; below this floor rho is lost in the rounding of x itself.
    ridge = jnp.maximum(jnp.sqrt(rho), 128 * jnp.finfo(x.dtype).eps)
    q, _ = jnp.linalg.qr(jnp.concatenate([x, ridge * jnp.eye(x.shape[1], dtype=x.dtype)]))
    fitted = _dot(q[: x.shape[0]].T, y)
    return (fitted * fitted).sum()


def orthonormality_penalty(w: ArrayLike) -> Array:
    """|W'W - I|_F^2 (eq. orthonormality): zero when the columns of W [d, k] are orthonormal."""
    w = floating("w", w)
    if w.ndim != 2:
        raise ValueError(f"w must be a matrix [d, k], got shape {w.shape}")
    return _orthonormality_penalty(widen(w))


@jax.jit
def _orthonormality_penalty(w: Array) -> Array:
    gap = _dot(w.T, w) - jnp.eye(w.shape[1], dtype=w.dtype)
    return (gap * gap).sum()


def _dot(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")
