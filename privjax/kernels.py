"""Kernels as values: what a kernel is, apart from where it is summed. A kernel is a sum of terms."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from privjax.distances import squared_distances
from privjax.terms import Scalar, Term, dot_value, radial_value, scale_in


class Kernel(NamedTuple):
    """A kernel: the sum of its terms. Made by the functions of this module."""

    terms: tuple[Term, ...]

    def __call__(self, a: ArrayLike, b: ArrayLike | None = None) -> Array:
        """The kernel matrix k(a_i, b_j) of the rows of two matrices (of one with itself)."""
        a = jnp.asarray(a)
        b = a if b is None else jnp.asarray(b)
        dtype = jnp.result_type(a, b)
        dtype = dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.float32
        a, b = a.astype(dtype), b.astype(dtype)
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
            raise ValueError(f"a kernel takes two matrices of equal width, got {a.shape} and {b.shape}")
        if any(t.kind == "median" for t in self.terms):
            return resolve(self, jnp.concatenate([a, b]))(a, b)
        radial, dot = split(self)
        at_zero = sum(t.weight * t.offset**t.order for t in self.terms)
        total = jnp.full((a.shape[0], b.shape[0]), at_zero, a.dtype)
        if radial:
            total += radial_value(radial, squared_distances(a, b))
        if dot:
            total += dot_value(dot, jnp.dot(a, b.T, precision="highest"))
        return total


def gaussian_mixture(bandwidths: Iterable[Scalar] | Array = (1.0, 2.0, 4.0, 8.0, 16.0)) -> Kernel:
    r"""Mean of Gaussians, (1/T) sum_t exp(-|a-b|^2 / (2 sigma_t^2)) (eq. gauss_mixture).

    Args:
      bandwidths: the sigma_t. Numbers that fall by powers of two share one exponential.
    """
    if not _is_sequence(bandwidths):
        raise ValueError("bandwidths must be a sequence; for a single one use gaussian(bandwidth)")
    scales = [_positive("bandwidths", s) for s in bandwidths]
    if not scales:
        raise ValueError("bandwidths is empty: give at least one positive number")
    return Kernel(tuple(Term("gaussian", s, 1.0 / len(scales)) for s in scales))


def gaussian(bandwidth: Scalar = 1.0) -> Kernel:
    """exp(-|a-b|^2 / (2 bandwidth^2))."""
    return Kernel((Term("gaussian", _positive("bandwidth", bandwidth)),))


def laplacian(bandwidth: Scalar = 1.0) -> Kernel:
    """exp(-|a-b| / bandwidth), with the Euclidean distance."""
    return Kernel((Term("laplacian", _positive("bandwidth", bandwidth)),))


def polynomial(order: int = 4, *, gamma: Scalar = 1.0) -> Kernel:
    """(1 + gamma a.b)^order: matches the moments of two distributions up to `order`."""
    if not isinstance(order, (int, np.integer)) or isinstance(order, bool) or order < 1:
        raise ValueError(f"order must be an integer of at least 1, got {order!r}")
    return Kernel((Term("polynomial", _positive("gamma", gamma), order=int(order)),))


def median_gaussian(multiples: Sequence[Scalar] = (1.0,)) -> Kernel:
    """Mean of Gaussians whose bandwidths are `multiples` of the median distance of the rows at hand.

    The median is that of `median_bandwidth`: of a subsample, floored, and a constant to the gradient.
    """
    if not _is_sequence(multiples):
        raise ValueError(f"multiples must be a sequence; for a single one write ({multiples!r},)")
    scales = [_positive("multiples", m) for m in multiples]
    if not scales:
        raise ValueError("multiples is empty: give at least one positive number")
    return Kernel(tuple(Term("median", m, 1.0 / len(scales)) for m in scales))


def mixture(*kernels: Kernel, weights: Sequence[float] | None = None) -> Kernel:
    """Weighted sum of kernels; the default weights are equal and add up to one."""
    if not kernels:
        raise ValueError("mixture needs at least one kernel")
    for kernel in kernels:
        check_kernel("kernels", kernel)
    if weights is None:
        weights = [1.0 / len(kernels)] * len(kernels)
    if len(weights) != len(kernels):
        raise ValueError(f"weights has {len(weights)} entries for {len(kernels)} kernels")
    factors = [_positive("weights", float(w)) for w in weights]
    return Kernel(
        tuple(replace(t, weight=t.weight * f) for k, f in zip(kernels, factors, strict=True) for t in k.terms)
    )


def check_kernel(name: str, kernel: Any) -> None:
    """A kernel is a value of this module, not a function."""
    if not isinstance(kernel, Kernel):
        raise TypeError(
            f"{name} must be a privjax kernel such as gaussian_mixture(), got {type(kernel).__name__}"
        )


def median_bandwidth(
    z: ArrayLike, *, weights: ArrayLike | None = None, max_rows: int = 512, floor: float = 1e-6
) -> Array:
    """Median distance between distinct rows of z: the usual guess at a Gaussian's bandwidth.

    Taken over at most `max_rows` rows, evenly spaced, so that it costs a fixed block whatever n is.
    Never below `floor` (a collapsed batch has median zero), and a constant to the gradient.
    Rows of weight zero are left out; other weights only say that a row is there.
    """
    z = jax.lax.stop_gradient(jnp.asarray(z))
    if z.ndim != 2:
        raise ValueError(f"z must be a matrix [n, d], got shape {z.shape}")
    if weights is not None and jnp.shape(weights) != z.shape[:1]:
        raise ValueError(f"weights must have shape ({len(z)},), one per row of z, got {jnp.shape(weights)}")
    there = jnp.ones(len(z), bool) if weights is None else jnp.asarray(weights) > 0
    return _median_bandwidth(z, there, max_rows, floor)


@partial(jax.jit, static_argnums=2)
def _median_bandwidth(z: Array, there: Array, max_rows: int, floor: float | Array) -> Array:
    z = z.astype(jnp.promote_types(z.dtype, jnp.float32))
    n = z.shape[0]
    m = min(n, max_rows)
    count = there.sum()
    # Rows that are there come first, so that the subsample does not depend on the others.
    place = jnp.arange(m)
    place = jnp.where(count > m, place * count // m, place)
    picked = jnp.argsort(~there, stable=True)[place]
    counted = place < count
    z = jnp.where(counted[:, None], z[picked], 0)
    pair = (place[:, None] < place[None, :]) & counted[:, None] & counted[None, :]
    distance = jnp.sqrt(squared_distances(z, z))
    median = jnp.where(pair.any(), jnp.maximum(_median(distance, pair), floor), floor)
    # A NaN of the data itself must come through.
    broken = jnp.isnan(jnp.where(pair, distance, 0)).any()
    return jax.lax.stop_gradient(jnp.where(broken, jnp.nan, median).astype(z.dtype))


def _median(values: Array, counted: Array) -> Array:
    """Median of the values that are counted, none of which is negative; of no use when there are none.

    By bisection of their bits, which are ordered as the values are: exact, and on a CPU many times faster
    than to sort a quarter of a million distances.
    """
    integer = jnp.int32 if values.dtype.itemsize == 4 else jnp.int64
    bits = jnp.where(counted, jax.lax.bitcast_convert_type(values, integer), jnp.iinfo(integer).max)
    total = counted.sum()
    ranks = jnp.stack([(total - 1) // 2, total // 2])  # the two in the middle, or the same twice

    def halve(_, bounds):
        low, high = bounds
        middle = low + (high - low) // 2
        enough = (bits[None] <= middle[:, None, None]).sum((1, 2)) > ranks
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    infinite = jax.lax.bitcast_convert_type(jnp.array(jnp.inf, values.dtype), integer)
    low = jnp.zeros_like(ranks, integer) + jnp.where(False, bits[0, 0], 0)  # as varying as the loop makes it
    start = low, low + infinite
    _, found = jax.lax.fori_loop(0, 8 * values.dtype.itemsize - 1, halve, start)
    return (jax.lax.bitcast_convert_type(found, values.dtype) / 2).sum()


def resolve(kernel: Kernel, z: Array, weights: Array | None = None) -> Kernel:
    """The same kernel with every scale known: median terms get their bandwidth from the rows of z."""
    if not any(t.kind == "median" for t in kernel.terms):
        return kernel
    median = median_bandwidth(z, weights=weights)
    return Kernel(
        tuple(
            replace(t, kind="gaussian", scale=t.scale * median) if t.kind == "median" else t
            for t in kernel.terms
        )
    )


def normalise(kernel: Kernel, z: Array) -> tuple[Kernel, Scalar]:
    """A kernel k' and a constant c with k = c^2 k', where k' on the rows of z is of order one.

    Polynomials of wide rows overflow long before the distances built on them do. With m = max(1,
    gamma max|z|^2) a term is m^order (1/m + gamma/m a.b)^order; the largest m^order goes into c^2.
    """
    if not any(t.kind == "polynomial" for t in kernel.terms):
        return kernel, 1.0
    largest = jax.lax.stop_gradient((z * z).sum(-1).max())
    sizes = [
        jnp.maximum(1, scale_in(t, z.dtype) * largest) if t.kind == "polynomial" else jnp.ones((), z.dtype)
        for t in kernel.terms
    ]
    roots = [m ** (0.5 * t.order) for m, t in zip(sizes, kernel.terms, strict=True)]
    c = jnp.stack(roots).max()
    terms = [
        replace(t, weight=t.weight * (root / c) ** 2, scale=t.scale / m, offset=t.offset / m)
        if t.kind == "polynomial"
        else replace(t, weight=t.weight / c / c)
        for t, m, root in zip(kernel.terms, sizes, roots, strict=True)
    ]
    return Kernel(tuple(terms)), c


def split(kernel: Kernel) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """The radial and the dot terms of a resolved kernel."""
    return (
        tuple(t for t in kernel.terms if t.kind != "polynomial"),
        tuple(t for t in kernel.terms if t.kind == "polynomial"),
    )


def _is_sequence(values: Any) -> bool:
    return hasattr(values, "__iter__") and getattr(values, "ndim", 1) > 0


def _positive(name: str, value: Any) -> Scalar:
    """A number checked now, or an array left to be traced (checked if it is concrete)."""
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be positive and finite, got {value}")
        return float(value)
    if not hasattr(value, "dtype"):
        raise TypeError(f"{name} must be a positive number, got {value!r}")
    value = jnp.asarray(value)
    if value.ndim or not jnp.issubdtype(value.dtype, jnp.number):
        raise ValueError(f"{name} must be a positive number, got shape {value.shape} {value.dtype}")
    if not isinstance(value, Tracer) and not (value > 0 and bool(jnp.isfinite(value))):
        raise ValueError(f"{name} must be positive and finite, got {value}")
    return value
