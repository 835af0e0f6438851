"""Kernel discriminant information: the part of p that a kernel ridge regression on z explains."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_solve
from jax.typing import ArrayLike
from jaxtyping import Float, Shaped

from privjax.kernels import DEFAULT_KERNEL, Kernel, Scalar, check_kernel, positive, prepare
from privjax.losses.checks import Batch, Weights, check_batch, check_matrix
from privjax.numerics import (
    match_vma,
    matmul,
    nonzero,
    safe_sqrt,
    subtract_mean,
    sums,
    value_and_grad_together,
)
from privjax.numerics.entries import Term


def kdi_loss(
    z: Float[ArrayLike, "n d"],
    p: Shaped[ArrayLike, "n ..."],
    *,
    kernel: Kernel = DEFAULT_KERNEL,
    rho: Scalar = 1e-4,
    num_classes: int | None = None,
    weights: Weights = None,
) -> Float[Array, ""]:
    """Compute the kernel discriminant information of p in z (eq. KDI_obj).

        tr( (Kc^2 + rho Kc)^+  Kc P P' Kc ),   Kc = C K C,   C = I - 1 1' / N

    It is the part of |C P|^2 that a kernel ridge regression with penalty rho explains: 0 if z explains
    nothing, |C P|^2 if it explains everything. It serves continuous p too. With a small rho a regression
    interpolates a small batch whether or not z and p are related, so compare values of the same batch size
    and rho only. The cost is a Cholesky factorisation, O(n^3).

    Args:
      z: Released rows.
      p: Class labels [n], or a real matrix [n, l]: one-hot, or continuous variables.
      kernel: A kernel of `privjax.kernels`. Default: the mixture of five Gaussians of the paper.
      rho: Ridge penalty, positive; clamped from below at the rounding floor of the kernel matrix.
      num_classes: Number of classes; needed with integer labels under jit.
      weights: Non-negative weights of the squared errors; a row of weight 0 changes nothing.

    Returns:
      The loss, at least float32.

    Example:
      >>> import jax.numpy as jnp, privjax
      >>> z = jnp.array([[0.0], [0.0], [5.0], [5.0]])
      >>> float(privjax.kdi_loss(z, jnp.array([0, 1, 0, 1])))
      0.0
      >>> round(float(privjax.kdi_loss(z, jnp.array([0, 0, 1, 1]))), 3)
      2.0
    """
    check_kernel("kernel", kernel)
    rho = positive("rho", rho)
    batch = check_batch(z, weights)
    p, _ = check_matrix(p, batch, num_classes)
    return _kdi(batch, p, kernel, jnp.asarray(rho, batch.z.dtype))


@jax.jit
def _kdi(batch: Batch, p: Array, kernel: Kernel, rho: Array) -> Array:
    def value(batch, p, kernel, rho):
        z, terms, scale = prepare(kernel, *batch)
        p = subtract_mean(p, batch.weights)
        root = match_vma(safe_sqrt(batch.weights), z, p)
        return _explained(match_vma(z, root), root, root[:, None] * p, terms, rho / scale / scale)

    return value_and_grad_together(value)(batch, p, kernel, jax.lax.stop_gradient(rho))


@jax.custom_vjp
def _explained(z: Array, root: Array, p: Array, terms: tuple[Term, ...], rho: Array) -> Array:
    """Compute tr(p' H (H + rho)^-1 p) with H = R Kc R, R the roots of the weights, for p with root'p = 0.

    With A = (H + rho)^-1 p it is |p|^2 - rho <p, A>, and its derivative in H is rho A A'. Both need one
    Cholesky factorisation only, and no pseudo-inverse that divides by rounding.
    """
    return _explained_forward(z, root, p, terms, rho)[0]


def _explained_forward(z, root, p, terms, rho):
    norm = nonzero(root @ root)
    h, size = sums.centred_gram(z, root * root / norm, terms)
    h = root[:, None] * root[None, :] * h
    ridge = sums.ridge_floor(len(h), size * (root * root).max(), rho)
    before, residual, a, low = _solve(h, ridge, p)
    # H has no component along the roots; the solution divides the rounding there by rho.
    a, low = sums.add_compensated(a, low, -root[:, None] * sums.exact_product(root[None, :], a, low) / norm)
    most = (p * p).sum()
    # For the exact A, <p, A> = <p, before> + <residual, A>: an error of a counts only times the small
    # residual.
    value = most - ridge * ((p * before).sum() + (residual * a).sum())
    # <p, H a> is the same number: worse conditioned in general, but exact where the difference cancels.
    value = jax.lax.cond(value < 1e-3 * most, lambda: (p * matmul(h, a)).sum(), lambda: value)
    value = jnp.where(value < 0, 0, jnp.where(value > most, most, value))  # unlike `clip`, keeps NaN
    return value, (z, root, p, terms, a, low, ridge)


def _explained_backward(residuals, value_bar):
    z, root, p, terms, a, low, ridge = residuals
    fitted = p - ridge * a  # H A
    z_bar = ridge * sums.quadratic_gradient(z, root[:, None] * a, root[:, None] * low, terms)
    root_bar = 2 * ridge * (a * fitted).sum(1) / nonzero(root)
    return value_bar * z_bar, value_bar * root_bar, value_bar * 2 * fitted, None, None


_explained.defvjp(_explained_forward, _explained_backward)


def _solve(h: Array, ridge: Array, p: Array) -> tuple[Array, ...]:
    """Solve (h + ridge) (a + low) = p by iterative refinement.

    The factorisation of a nearly singular matrix leaves a few correct digits. Each compensated residual adds
    as many, until a is correct to its last digit and `low` holds a few more.

    Returns:
      The solution before the last step, its residual, a, and low.
    """
    factor = (jnp.linalg.cholesky(h + ridge * jnp.eye(len(h), dtype=h.dtype), symmetrize_input=False), True)

    def refine(state):
        _, _, a, low, _, step = state
        residual = p - ridge * a - sums.exact_product(h, a, low) - ridge * low
        change = cho_solve(factor, residual)
        unfinished = (change * change).sum() > 1e-8 * (a * a).sum()
        return a + low, residual, *sums.add_compensated(a, low, change), unfinished, step + 1

    first = cho_solve(factor, p)
    state = refine((first, first, first, jnp.zeros_like(first), True, 0))
    return jax.lax.while_loop(lambda state: state[4] & (state[5] < 3), refine, state)[:4]
