"""Kernels as values: sums of terms, built by the functions of this module and passed to the objectives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Shaped

from privjax.numerics import entries, match_vma, matmul
from privjax.numerics.entries import KINDS, Scalar, Term, squared_distances


class Kernel(NamedTuple):
    """A kernel: a sum of terms.

    Build one with `gaussian`, `gaussian_mixture`, `laplacian`, `polynomial`, `median_gaussian` or `mixture`.
    A bandwidth that is a Python number is part of the compiled program; one in an array can be swept by
    `vmap`. No gradient flows into either.
    """

    terms: tuple[Term, ...]

    def __repr__(self) -> str:
        return " + ".join(map(str, self.terms))

    def __call__(
        self, a: Shaped[ArrayLike, "n d"], b: Shaped[ArrayLike, "m d"] | None = None
    ) -> Float[Array, "n m"]:
        """Compute the kernel matrix k(a_i, b_j) of the rows of two matrices, or of one with itself."""
        a = jnp.asarray(a)
        b = a if b is None else jnp.asarray(b)
        dtype = jnp.result_type(a, b)
        dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.float32
        a, b = a.astype(dtype), b.astype(dtype)
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
            raise ValueError(f"a kernel takes two matrices of equal width, got {a.shape} and {b.shape}.")
        if any(t.relative for t in self.terms):
            return resolve(self, jnp.concatenate([a, b]))(a, b)
        distance, product = entries.split_terms(self.terms)
        at_zero = sum(t.weight * KINDS[t.kind].at_zero(t) for t in self.terms)
        total = jnp.full((a.shape[0], b.shape[0]), at_zero, a.dtype)
        if distance:
            total += entries.value(distance, squared_distances(a, b))
        return total + entries.value(product, matmul(a, b.T)) if product else total


def gaussian_mixture(bandwidths: Iterable[Scalar] | Array = (1.0, 2.0, 4.0, 8.0, 16.0)) -> Kernel:
    """Build the mean of T Gaussian kernels (eq. gauss_mixture).

        k(a, b) = 1/T sum_t exp(-|a - b|^2 / (2 sigma_t^2))

    Several bandwidths see differences between distributions at several scales, so that none has to be chosen.
    The default is that of the paper, for rows with a spread of order one; `median_gaussian` adapts to any
    spread. Python numbers that differ by powers of two share one exponential.

    Args:
      bandwidths: The sigma_t, positive.

    Example:
      >>> import jax.numpy as jnp, privjax
      >>> kernel = privjax.gaussian_mixture((1.0, 2.0))
      >>> round(float(kernel(jnp.zeros((1, 1)), jnp.array([[2.0]]))[0, 0]), 3)
      0.371
    """
    scales = _positive_sequence("bandwidths", bandwidths, "gaussian(bandwidth)")
    return Kernel(tuple(Term("gaussian", s, 1.0 / len(scales)) for s in scales))


def gaussian(bandwidth: Scalar = 1.0) -> Kernel:
    """Build the Gaussian kernel k(a, b) = exp(-|a - b|^2 / (2 bandwidth^2)).

    It is characteristic: with many rows, its maximum mean discrepancy is zero for equal distributions only.

    Args:
      bandwidth: The standard deviation of the Gaussian, positive.

    Example:
      >>> import jax.numpy as jnp, privjax
      >>> round(float(privjax.gaussian(2.0)(jnp.zeros((1, 3)), jnp.ones((1, 3)))[0, 0]), 3)
      0.687
    """
    return Kernel((Term("gaussian", positive("bandwidth", bandwidth)),))


def laplacian(bandwidth: Scalar = 1.0) -> Kernel:
    """Build the Laplacian kernel k(a, b) = exp(-|a - b| / bandwidth), with the Euclidean distance.

    It is characteristic as a Gaussian is, with heavier tails and a gradient that does not vanish between
    close rows.

    Args:
      bandwidth: The distance at which the kernel falls to 1/e, positive.

    Example:
      >>> import jax.numpy as jnp, privjax
      >>> round(float(privjax.laplacian(2.0)(jnp.zeros((1, 4)), jnp.ones((1, 4)))[0, 0]), 3)
      0.368
    """
    return Kernel((Term("laplacian", positive("bandwidth", bandwidth)),))


def polynomial(order: int = 4, *, gamma: Scalar = 1.0) -> Kernel:
    """Build the polynomial kernel k(a, b) = (1 + gamma a.b)^order.

    It compares moments: its maximum mean discrepancy is zero if the moments of the distributions agree up to
    `order`.

    Args:
      order: The degree, at least 1.
      gamma: The factor of the product, positive.

    Example:
      >>> import jax.numpy as jnp, privjax
      >>> privjax.polynomial(2)(jnp.array([[1.0], [2.0]])).tolist()
      [[4.0, 9.0], [9.0, 25.0]]
    """
    if not isinstance(order, (int, np.integer)) or isinstance(order, bool) or order < 1:
        raise ValueError(f"order must be an integer of at least 1, got {order!r}.")
    return Kernel((Term("polynomial", positive("gamma", gamma), order=int(order)),))


def median_gaussian(multiples: Sequence[Scalar] = (1.0,)) -> Kernel:
    """Build the mean of Gaussians with multiples of the median distance of the rows as bandwidths.

    The bandwidths follow the rows, so that shrinking z hides no difference from the kernel. See
    `median_bandwidth`.

    Args:
      multiples: Factors of the median, positive.

    Example:
      >>> import jax.numpy as jnp, privjax
      >>> z, kernel = jnp.array([[0.0], [1.0], [2.0]]), privjax.median_gaussian()
      >>> bool((kernel(z) == kernel(8 * z)).all())
      True
    """
    scales = _positive_sequence("multiples", multiples, f"({multiples!r},)")
    return Kernel(tuple(Term("gaussian", m, 1.0 / len(scales), relative=True) for m in scales))


def mixture(*kernels: Kernel, weights: Sequence[float] | None = None) -> Kernel:
    """Build the weighted sum of kernels.

    Args:
      *kernels: The kernels.
      weights: One positive weight per kernel. Default: equal weights that add up to one.

    Example:
      >>> import privjax
      >>> privjax.mixture(privjax.gaussian(1.0), privjax.laplacian(2.0), weights=[0.9, 0.1])
      0.9 gaussian(1.0) + 0.1 laplacian(2.0)
    """
    if not kernels:
        raise ValueError("mixture needs at least one kernel.")
    for kernel in kernels:
        check_kernel("kernels", kernel)
    weights = [1.0 / len(kernels)] * len(kernels) if weights is None else weights
    if len(weights) != len(kernels):
        raise ValueError(f"weights has {len(weights)} entries for {len(kernels)} kernels.")
    factors = [positive("weights", float(w)) for w in weights]
    terms = (replace(t, weight=t.weight * f) for k, f in zip(kernels, factors, strict=True) for t in k.terms)
    return Kernel(tuple(terms))


def check_kernel(name: str, kernel: object) -> None:
    """Raise a TypeError unless the argument is a kernel of this module."""
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"{name} must be a privjax kernel such as gaussian_mixture(), got {type(kernel).__name__}."
        )


def median_bandwidth(
    z: Shaped[ArrayLike, "n d"],
    *,
    weights: Shaped[ArrayLike, " n"] | None = None,
    max_rows: int = 512,
    floor: float = 1e-6,
) -> Float[Array, ""]:
    """Compute the median distance between distinct rows, the usual choice of a Gaussian's bandwidth.

    It is taken over evenly spaced rows, so that its cost is bounded for any n, and is a constant to the
    gradient.

    Args:
      z: Rows.
      weights: Rows of weight zero are left out; any positive weight counts a row once.
      max_rows: Size of the subsample.
      floor: Smallest result; a batch of equal rows has the median zero.

    Example:
      >>> import jax.numpy as jnp, privjax
      >>> float(privjax.median_bandwidth(jnp.array([[0.0], [1.0], [5.0]])))
      4.0
    """
    z = jax.lax.stop_gradient(jnp.asarray(z))
    if z.ndim != 2:
        raise ValueError(f"z must be a matrix [n, d], got shape {z.shape}.")
    if weights is not None and jnp.shape(weights) != z.shape[:1]:
        raise ValueError(f"weights must have shape ({len(z)},), one per row of z, got {jnp.shape(weights)}.")
    valid = jnp.ones(len(z), bool) if weights is None else jnp.asarray(weights) > 0
    return _median_bandwidth(z, valid, max_rows, floor)


@partial(jax.jit, static_argnums=2)
def _median_bandwidth(z: Array, valid: Array, max_rows: int, floor: float | Array) -> Array:
    z = z.astype(jnp.promote_types(z.dtype, jnp.float32))
    m = min(len(z), max_rows)
    count = valid.sum()
    # Valid rows come first, so that the subsample does not depend on the others.
    place = jnp.arange(m)
    place = jnp.where(count > m, place * count // m, place)
    picked = jnp.argsort(~valid, stable=True)[place]
    counted = place < count
    z = jnp.where(counted[:, None], z[picked], 0)
    pair = (place[:, None] < place[None, :]) & counted[:, None] & counted[None, :]
    distance = jnp.sqrt(squared_distances(z, z))
    median = jnp.where(pair.any(), jnp.maximum(_masked_median(distance, pair), floor), floor)
    has_nan = jnp.isnan(jnp.where(pair, distance, 0)).any()
    return jax.lax.stop_gradient(jnp.where(has_nan, jnp.nan, median).astype(z.dtype))


def _masked_median(values: Float[Array, "..."], mask: Bool[Array, "..."]) -> Float[Array, ""]:
    """Compute the median of non-negative values under a mask; undefined for an empty mask.

    Bisection of the bit patterns, which are ordered as the values are: exact, and on a CPU many times faster
    than sorting a quarter of a million distances.
    """
    integer = jnp.int32 if values.dtype.itemsize == 4 else jnp.int64
    bits = jnp.where(mask, jax.lax.bitcast_convert_type(values, integer), jnp.iinfo(integer).max)
    total = mask.sum()
    ranks = jnp.stack([(total - 1) // 2, total // 2])  # the two middle ranks, equal for an odd total

    def halve(_, bounds):
        low, high = bounds
        middle = low + (high - low) // 2
        enough = (bits[None] <= middle[:, None, None]).sum((1, 2)) > ranks
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    infinite = jax.lax.bitcast_convert_type(jnp.array(jnp.inf, values.dtype), integer)
    low = match_vma(jnp.zeros_like(ranks, integer), bits)
    _, found = jax.lax.fori_loop(0, 8 * values.dtype.itemsize - 1, halve, (low, low + infinite))
    return (jax.lax.bitcast_convert_type(found, values.dtype) / 2).sum()


def resolve(kernel: Kernel, z: Float[Array, "n d"], weights: Float[Array, " n"] | None = None) -> Kernel:
    """Replace scales that are relative to the median distance by scales for the rows z."""
    if not any(t.relative for t in kernel.terms):
        return kernel
    median = median_bandwidth(z, weights=weights)
    return Kernel(
        tuple(replace(t, scale=t.scale * median, relative=False) if t.relative else t for t in kernel.terms)
    )


def prepare(
    kernel: Kernel, z: Float[Array, "n d"], weights: Float[Array, " n"], valid: Bool[Array, " n"]
) -> tuple[Float[Array, "n d"], tuple[Term, ...], Scalar]:
    """Find rows, terms of order one and a constant c with k = c^2 sum_t term_t, up to constants that cancel.

    Bandwidths are resolved, and rows are centred if the kernel allows it. Polynomials are scaled, since those
    of wide rows overflow long before the discrepancies built on them.
    """
    terms, c = resolve(kernel, z, weights).terms, 1.0
    if any(KINDS[t.kind].normalise for t in terms):
        largest = jax.lax.stop_gradient((z * z).sum(-1).max())
        one = jnp.ones((), z.dtype)
        pairs = [norm(t, largest) if (norm := KINDS[t.kind].normalise) else (t, one) for t in terms]
        c = jnp.stack([root for _, root in pairs]).max()
        terms = tuple(replace(t, weight=t.weight * (root / c) ** 2) for t, root in pairs)
    return entries.centre_rows(z, weights, valid, terms), terms, c


def positive(name: str, value: object, *, zero: bool = False) -> Scalar:
    """Check that a setting is a positive number (or zero, with `zero`), where its value is known.

    Returns:
      A float for a Python or NumPy number, else the JAX array.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number, np.ndarray, Array)):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    if jnp.ndim(value):
        raise ValueError(f"{name} must be a single number, got shape {jnp.shape(value)}.")
    if not isinstance(value, Tracer) and not (0 <= float(value) < math.inf and (zero or float(value) > 0)):
        says = "must not be negative or infinite" if zero else "must be positive and finite"
        raise ValueError(f"{name} {says}, got {value}.")
    return value if isinstance(value, Array) else float(value)


def _positive_sequence(name: str, values: Iterable[Scalar] | Array, single: str) -> list[Scalar]:
    if not hasattr(values, "__iter__") or getattr(values, "ndim", 1) == 0:
        raise ValueError(f"{name} must be a sequence; for a single one use {single}.")
    scales = [positive(name, s) for s in values]
    if not scales:
        raise ValueError(f"{name} is empty: give at least one positive number.")
    return scales


DEFAULT_KERNEL = gaussian_mixture()
