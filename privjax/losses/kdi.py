"""Kernel discriminant information: what a kernel ridge regression of p on z explains."""

import math

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_solve
from jax.typing import ArrayLike

from privjax.distances import safe_sqrt
from privjax.kernels import Kernel, check_kernel, gaussian_mixture, normalise, resolve
from privjax.losses._gram import add, centred_kernel, exact_product, quadratic_gradient
from privjax.losses._inputs import Rows, matrix, positive, rows
from privjax.losses.mmd import centred
from privjax.pairwise import as_one, varying_as


def kdi_loss(
    z: ArrayLike,
    p: ArrayLike,
    *,
    kernel: Kernel = gaussian_mixture(),  # noqa: B008 (an immutable value)
    rho: float | Array = 1e-4,
    num_classes: int | None = None,
    weights: ArrayLike | None = None,
) -> Array:
    r"""Kernel discriminant information of p in z (eq. KDI_obj).

    tr( (Kc^2 + rho Kc)^+  Kc P P' Kc ),  Kc = C K C: the part of |C P|^2 that the best kernel ridge
    regression with penalty rho accounts for; 0 when z explains nothing, |C P|^2 when it explains all.

    Args:
      z: released rows [n, d].
      p: class labels [n], or any real matrix [n, l] (one-hot, or continuous attributes).
      kernel: see `privjax.kernels`.
      rho: ridge penalty, positive; no less is taken than rounding leaves of one.
      num_classes: number of classes; needed with integer labels under jit.
      weights: sample weights [n] of the squared errors; a row of weight 0 changes nothing.

    Returns:
      A scalar, at least float32. It costs a Cholesky factorisation, O(n^3) in the rows of the batch.
    """
    check_kernel("kernel", kernel)
    positive("rho", rho)
    batch = rows(z, weights)
    p, _ = matrix(p, batch, num_classes)
    return _kdi(batch, p, kernel, jnp.asarray(rho, batch.z.dtype))


@jax.jit
def _kdi(batch: Rows, p: Array, kernel: Kernel, rho: Array) -> Array:
    def value(batch, p, kernel, rho):
        z, w, _ = batch
        kernel, scale = normalise(resolve(kernel, z, w), z)
        for _ in range(2):  # the second time takes away the rounding of the first
            p = p - (w @ p / jnp.where(w.sum() == 0, 1, w.sum()))[None, :]
        z = centred(batch, kernel)
        root = varying_as(safe_sqrt(w), z, p)
        return _explained(varying_as(z, root), root, root[:, None] * p, kernel, rho / scale / scale)

    return as_one(value)(batch, p, kernel, jax.lax.stop_gradient(rho))


@jax.custom_vjp
def _explained(z: Array, root: Array, p: Array, kernel: Kernel, rho: Array) -> Array:
    """tr(p' H (H + rho)^-1 p), H = R Kc R with R the roots of the weights, for p with root'p = 0.

    With A = (H + rho)^-1 p it is |p|^2 - rho <p, A>, and its derivative in H is rho A A'. That needs one
    Cholesky factorisation, and rho keeps it well away from the pseudo-inverse's division by rounding.
    """
    return _forward(z, root, p, kernel, rho)[0]


def _forward(z, root, p, kernel, rho):
    norm = jnp.where(root @ root == 0, 1, root @ root)
    h, size = centred_kernel(z, root * root / norm, kernel)
    h = root[:, None] * root[None, :] * h
    ridge = ridge_at_least(len(h), size * (root * root).max(), rho)
    before, left, a, low = _solve(h, ridge, p)
    # H has no part along the roots; what rounding put there was blown up by 1 / rho.
    a, low = add(a, low, -root[:, None] * exact_product(root[None, :], a, low) / norm)
    most = (p * p).sum()
    # With the exact A, <p, A> = <p, before> + <left, A>: an error of a enters only times the small residual.
    value = most - ridge * ((p * before).sum() + (left * a).sum())
    # The same as <p, H a>: worse conditioned in general, but exact where the difference cancels.
    value = jax.lax.cond(
        value < 1e-3 * most,
        lambda: (p * jnp.matmul(h, a, precision="highest")).sum(),
        lambda: value,
    )
    # Not clip or maximum: NaN must stay.
    value = jnp.where(value < 0, 0, jnp.where(value > most, most, value))
    return value, (z, root, p, kernel, a, low, ridge)


def _backward(residuals, value_bar):
    z, root, p, kernel, a, low, ridge = residuals
    fitted = p - ridge * a  # H A
    z_bar = ridge * quadratic_gradient(z, root[:, None] * a, root[:, None] * low, kernel)
    root_bar = 2 * ridge * (a * fitted).sum(1) / jnp.where(root == 0, 1, root)
    # rho is a constant.
    return value_bar * z_bar, value_bar * root_bar, value_bar * 2 * fitted, None, None


_explained.defvjp(_forward, _backward)


def _solve(h: Array, ridge: Array, p: Array) -> tuple[Array, ...]:
    """Solves (h + ridge) (a + low) = p: (the a before the last, its residual, a, low).

    The factorisation of a nearly singular matrix leaves a few digits right; a residual of high precision
    gives as many again, until a is right to its last digit and `low` holds a few more.
    """
    factor = (jnp.linalg.cholesky(h + ridge * jnp.eye(len(h), dtype=h.dtype), symmetrize_input=False), True)

    def refined(state):
        _, _, a, low, _, step = state
        left = p - ridge * a - exact_product(h, a, low) - ridge * low
        change = cho_solve(factor, left)
        more = (change * change).sum() > 1e-8 * (a * a).sum()
        return a + low, left, *add(a, low, change), more, step + 1

    first = cho_solve(factor, p)
    state = refined((first, first, first, jnp.zeros_like(first), True, 0))
    return jax.lax.while_loop(lambda state: state[4] & (state[5] < 3), refined, state)[:4]


def ridge_at_least(n: int, size: Array, rho: float | Array) -> Array:
    """rho, but no less than what rounding in an n x n matrix of that size leaves of a ridge."""
    least = 2 * math.sqrt(n) * jnp.finfo(size.dtype).eps * size
    return jnp.where(rho < least, least, rho)
