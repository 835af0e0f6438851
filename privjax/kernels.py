"""Kernels as values: what a kernel is, apart from where it is summed.

A kernel is a sum of terms. A *radial* term depends on the squared distance of two rows, a *dot* term on
their inner product. Every statistic of this library sees a kernel only through centred sums, in which a
constant added to the kernel cancels. So each term is evaluated as k minus its value at zero (`expm1`
instead of `exp`): that keeps full relative precision when all rows lie close together.
"""

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from privjax.distances import safe_sqrt, squared_distances

Scalar = float | Array


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class Term:
    """One term: weight * exp(...) with a bandwidth `scale`, or weight * (offset + scale a.b)^order.

    A Python number stays static under jit (it is part of the compiled program and was checked when the
    kernel was made); an array is traced, so that it can be swept. No gradient flows into either.
    """

    kind: Literal["gaussian", "laplacian", "polynomial", "median"]
    scale: Scalar
    weight: Scalar = 1.0
    offset: Scalar = 1.0
    order: int = 1

    def tree_flatten(self):
        """Floats are structure, all else leaves: transformations put bools and ints there."""
        numbers = (self.scale, self.weight, self.offset)
        leaves = tuple(v for v in numbers if not isinstance(v, float))
        static = tuple(v if isinstance(v, float) else None for v in numbers)
        return leaves, (self.kind, static, self.order)

    @classmethod
    def tree_unflatten(cls, structure, leaves):
        """Inverse of `tree_flatten`."""
        kind, static, order = structure
        arrays = iter(leaves)
        scale, weight, offset = (next(arrays) if v is None else v for v in static)
        return cls(kind, scale, weight, offset, order)


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
    z = z.astype(jnp.promote_types(z.dtype, jnp.float32))
    n = z.shape[0]
    there = jnp.ones(n, bool) if weights is None else jnp.asarray(weights) > 0
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
    start = jnp.zeros(2, integer), jnp.full(2, infinite)
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
        jnp.maximum(1, _scale(t, z.dtype) * largest) if t.kind == "polynomial" else jnp.ones((), z.dtype)
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


def radial_value(
    terms: Sequence[Term], d2: Array, *, expm1: Callable[[Array], Array] = jnp.expm1, share: bool = True
) -> Array:
    """sum_t weight_t (k_t(d2) - 1) for squared distances d2."""
    parts = radial_parts(terms, d2, expm1=expm1, share=share)
    return sum(parts, start=jnp.zeros_like(d2))


def radial_parts(
    terms: Sequence[Term], d2: Array, *, expm1: Callable[[Array], Array], share: bool
) -> list[Array]:
    """The summands weight_t (k_t(d2) - 1).

    With `share`, bandwidths a power of two apart share one exponential; each squaring costs a rounding.
    """
    parts = []
    for ladder in _ladders(terms) if share else [[t] for t in terms if t.kind == "gaussian"]:
        e = expm1(d2 * _exponent(ladder[0], d2.dtype))
        parts.append(ladder[0].weight * e)
        for wider, term in zip(ladder, ladder[1:], strict=False):
            for _ in range(_squarings(wider, term)):
                e = e * (2 + e)  # (1 + e)^2 - 1, with no loss of relative precision for e in (-1, 0]
            parts.append(term.weight * e)
    for term in terms:
        if term.kind == "laplacian":
            parts.append(term.weight * expm1(-safe_sqrt(d2) / _scale(term, d2.dtype)))
    return parts


def radial_slope(terms: Sequence[Term], d2: Array, *, share: bool = True) -> Array:
    """Derivative of `radial_value` in d2, where rows differ; 0 where they meet, as they pull nowhere.

    Left in there, what multiplies it, z_i g - g z_i, would be rounding of the size of z.
    """
    total = jnp.zeros_like(d2)
    for ladder in _ladders(terms) if share else [[t] for t in terms if t.kind == "gaussian"]:
        rate = _exponent(ladder[0], d2.dtype)
        # Chosen before the squarings: XLA would turn exp(a) exp(a) back into exp(a + a), five exponentials.
        k = jnp.where(d2 == 0, 0, jnp.exp(d2 * rate))
        total = total + (ladder[0].weight * rate) * k
        for wider, term in zip(ladder, ladder[1:], strict=False):
            for _ in range(_squarings(wider, term)):
                k = k * k
            total = total + (term.weight * _exponent(term, d2.dtype)) * k
    for term in terms:
        if term.kind == "laplacian":
            # d/d(d2) exp(-r/s) = -exp(-r/s) / (2 s r): the subgradient 0 where two rows meet.
            r, s = safe_sqrt(d2), _scale(term, d2.dtype)
            k = jnp.exp(-r / s)
            slope = -k / (2 * s * jnp.where(d2 == 0, 1, r))
            total = total + term.weight * jnp.where((d2 == 0) | (k == 0), 0, slope)
    return total


def dot_value(terms: Sequence[Term], t: Array) -> Array:
    """sum_t weight_t (k_t(t) - k_t(0)) for inner products t: (a + u)^m - a^m by Horner, u = gamma t."""
    total = jnp.zeros_like(t)
    for term in terms:
        u, m = _scale(term, t.dtype) * t, term.order
        value = jnp.ones_like(t)
        for power in range(m - 1, 0, -1):
            value = math.comb(m, power) * term.offset ** (m - power) + u * value
        total = total + term.weight * (u * value)
    return total


def dot_slope(terms: Sequence[Term], t: Array) -> Array:
    """Derivative of `dot_value` in t."""
    total = jnp.zeros_like(t)
    for term in terms:
        gamma = _scale(term, t.dtype)
        power = (term.offset + gamma * t) ** (term.order - 1)
        total = total + (term.weight * term.order * gamma) * power
    return total


def wants_fine(terms: Sequence[Term], z: Array) -> Array:
    """Whether a plain product's rounding of distances could be seen by the narrowest radial term.

    It is seen where tight clusters lie far apart: what a term tells of the rows of a cluster is then small
    beside what the clusters' own size rounds off.
    """
    rounding = math.sqrt(z.shape[1]) * float(jnp.finfo(z.dtype).eps) * (z * z).sum(1).max()
    narrowest = jnp.stack([jnp.asarray(_scale(t, z.dtype), z.dtype) for t in terms]).min()
    return jax.lax.stop_gradient(rounding > 5e-4 * narrowest * narrowest)


def expm1_negative(x: Array) -> Array:
    """exp(x) - 1 for x <= 0, at a third of the cost of a full `expm1`.

    The cubic is within 2e-7 below the threshold, the difference loses at most 5 bits above it. In
    float64 the threshold would have to be far smaller, so the library's function is used.
    """
    if x.dtype == jnp.float64:
        return jnp.expm1(x)
    cubic = x * (1 + x * (0.5 + x * (1 / 6)))
    return jnp.where(x > -0.0156, cubic, jnp.exp(x) - 1)


def accurate_expm1_negative(x: Array) -> Array:
    """exp(x) - 1 for x <= 0 to about one unit in the last place, where XLA's `expm1` leaves three.

    A Taylor series of eight terms (the ninth is below 2e-8 of the sum) where the difference would cancel.
    """
    if x.dtype == jnp.float64:
        return jnp.expm1(x)
    series = jnp.full_like(x, 1 / math.factorial(8))
    for power in range(7, 0, -1):
        series = 1 / math.factorial(power) + x * series
    return jnp.where(x > -0.5, x * series, jnp.exp(x) - 1)


def _ladders(terms: Sequence[Term]) -> list[list[Term]]:
    """Gaussian terms grouped so that each bandwidth is that of the one before over a power of two.

    From first to last no more than a factor of 16: the k of rows close together is 1 less very little, and
    each squaring doubles its rounding.
    """
    static = [t for t in terms if t.kind == "gaussian" and isinstance(t.scale, (int, float))]
    ladders: list[list[Term]] = []
    for term in sorted(static, key=lambda t: -t.scale):
        for ladder in ladders:
            if 0 <= _log2_ratio(ladder[-1], term) <= 3 and _log2_ratio(ladder[0], term) <= 4:
                ladder.append(term)
                break
        else:
            ladders.append([term])
    traced = [t for t in terms if t.kind == "gaussian" and not isinstance(t.scale, (int, float))]
    return ladders + [[t] for t in traced]


def _log2_ratio(wider: Term, term: Term) -> float:
    """log2 of the bandwidths' ratio where it is a whole number, else -1."""
    mantissa, exponent = math.frexp(wider.scale / term.scale)
    return exponent - 1 if mantissa == 0.5 else -1


def _squarings(wider: Term, term: Term) -> int:
    """Halving a bandwidth raises the kernel to its fourth power: two squarings."""
    return int(2 * _log2_ratio(wider, term))


def _exponent(term: Term, dtype: Any) -> Any:
    """-1 / (2 sigma^2), finite for a bandwidth however small."""
    scale, most = _scale(term, dtype), float(jnp.finfo(dtype).max)
    if isinstance(scale, float):
        return max(-0.5 / max(scale * scale, sys.float_info.min), -most)
    return jnp.maximum(-0.5 / (scale * scale), -most)


def _scale(term: Term, dtype: Any) -> Any:
    if isinstance(term.scale, (int, float)):
        return max(float(term.scale), float(jnp.finfo(dtype).tiny))
    return jax.lax.stop_gradient(jnp.asarray(term.scale)).astype(dtype)


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
