"""Linear criteria: discriminant information, and the penalty that keeps a projection orthonormal."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Shaped

from privjax.kernels import Scalar, positive
from privjax.losses.checks import Batch, Weights, check_batch, check_floating, check_matrix
from privjax.numerics import matmul, safe_sqrt, subtract_mean


def discriminant_information(
    x: Float[ArrayLike, "n d"],
    y: Shaped[ArrayLike, "n ..."],
    *,
    rho: Scalar,
    num_classes: int | None = None,
    weights: Weights = None,
) -> Float[Array, ""]:
    """Compute the discriminant information of y in x: `kdi_loss` with the linear kernel.

        tr( (S + rho I)^-1 S_B ),   S = Xc'Xc,   S_B = Xc'Y Y'Xc,   Xc the centred rows

    It is the part of |C Y|^2 that a linear ridge regression of y on x explains. The cost is linear in the
    rows, O(n d^2). Dependence that is not linear stays unseen.

    Args:
      x: Rows.
      y: Class labels [n], or a real matrix [n, l]: one-hot, or continuous variables.
      rho: Ridge penalty, positive.
      num_classes: Number of classes; needed with integer labels under jit.
      weights: Non-negative weights of the squared errors; a row of weight 0 changes nothing.

    Returns:
      The criterion, at least float32.

    Example:
      >>> import jax.numpy as jnp, privjax
      >>> x = jnp.array([[1.0], [2.0], [3.0], [4.0]])
      >>> round(float(privjax.discriminant_information(x, jnp.array([0, 0, 1, 1]), rho=1e-3)), 3)
      1.6
    """
    rho = positive("rho", rho)
    batch = check_batch(x, weights, name="x")
    y, _ = check_matrix(y, batch, num_classes)
    return _discriminant_information(batch, y, jnp.asarray(rho, batch.z.dtype))


@jax.jit
def _discriminant_information(batch: Batch, y: Array, rho: Array) -> Array:
    x, w, _ = batch
    root = safe_sqrt(w)[:, None]
    x, y = root * subtract_mean(x, w), root * subtract_mean(y, w)
    # The value depends on x only through x / sqrt(rho): the larger of the two sets the scale.
    size = jax.lax.stop_gradient(jnp.sqrt(jnp.maximum(rho, (x * x).sum(1).max())))
    x, rho = x / size, rho / size / size
    # With [x; sqrt(rho) I] = QR the trace is |Q_x' y|^2, Q_x the rows of Q beside x. A scatter matrix would
    # square the condition number. Below this floor rho is lost in the rounding of x itself.
    ridge = jnp.maximum(jnp.sqrt(rho), 128 * jnp.finfo(x.dtype).eps)
    q, _ = jnp.linalg.qr(jnp.concatenate([x, ridge * jnp.eye(x.shape[1], dtype=x.dtype)]))
    fitted = matmul(q[: x.shape[0]].T, y)
    return (fitted * fitted).sum()


def orthonormality_penalty(w: Float[ArrayLike, "d k"]) -> Float[Array, ""]:
    """Compute the deviation of the columns of W from orthonormality (eq. orthonormality).

        |W'W - I|_F^2

    It is zero if the columns are orthonormal. The private network's projection is trained with this penalty,
    which keeps the scale of z from being a way to lower a privacy loss.

    Args:
      w: The matrix.

    Returns:
      The penalty, at least float32.

    Example:
      >>> import jax.numpy as jnp, privjax
      >>> float(privjax.orthonormality_penalty(2 * jnp.eye(3)))
      27.0
    """
    w = check_floating("w", w)
    if w.ndim != 2:
        raise ValueError(f"w must be a matrix [d, k], got shape {w.shape}.")
    return _orthonormality_penalty(w)


@jax.jit
def _orthonormality_penalty(w: Array) -> Array:
    gap = matmul(w.T, w) - jnp.eye(w.shape[1], dtype=w.dtype)
    return (gap * gap).sum()
