"""The arithmetic of kernels: values and slopes of their terms.

A *radial* term depends on the squared distance of two rows, a *dot* term on their inner product. Every
statistic of this library sees a kernel only through centred sums, in which a constant added to the kernel
cancels. So each term is evaluated as k minus its value at zero (`expm1` instead of `exp`): that keeps full
relative precision when all rows lie close together.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

from privjax.distances import safe_sqrt

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
            parts.append(term.weight * expm1(-safe_sqrt(d2) / scale_in(term, d2.dtype)))
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
            r, s = safe_sqrt(d2), scale_in(term, d2.dtype)
            k = jnp.exp(-r / s)
            slope = -k / (2 * s * jnp.where(d2 == 0, 1, r))
            total = total + term.weight * jnp.where((d2 == 0) | (k == 0), 0, slope)
    return total


def dot_value(terms: Sequence[Term], t: Array) -> Array:
    """sum_t weight_t (k_t(t) - k_t(0)) for inner products t: (a + u)^m - a^m by Horner, u = gamma t."""
    total = jnp.zeros_like(t)
    for term in terms:
        u, m = scale_in(term, t.dtype) * t, term.order
        value = jnp.ones_like(t)
        for power in range(m - 1, 0, -1):
            value = math.comb(m, power) * term.offset ** (m - power) + u * value
        total = total + term.weight * (u * value)
    return total


def dot_slope(terms: Sequence[Term], t: Array) -> Array:
    """Derivative of `dot_value` in t."""
    total = jnp.zeros_like(t)
    for term in terms:
        gamma = scale_in(term, t.dtype)
        power = (term.offset + gamma * t) ** (term.order - 1)
        total = total + (term.weight * term.order * gamma) * power
    return total


def wants_fine(terms: Sequence[Term], z: Array) -> Array:
    """Whether a plain product's rounding of distances could be seen by the narrowest radial term.

    It is seen where tight clusters lie far apart: what a term tells of the rows of a cluster is then small
    beside what the clusters' own size rounds off.
    """
    rounding = math.sqrt(z.shape[1]) * float(jnp.finfo(z.dtype).eps) * (z * z).sum(1).max()
    narrowest = jnp.stack([jnp.asarray(scale_in(t, z.dtype), z.dtype) for t in terms]).min()
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
    scale, most = scale_in(term, dtype), float(jnp.finfo(dtype).max)
    if isinstance(scale, float):
        return max(-0.5 / max(scale * scale, sys.float_info.min), -most)
    return jnp.maximum(-0.5 / (scale * scale), -most)


def scale_in(term: Term, dtype: Any) -> Any:
    """The scale of a term as a number of that dtype, above zero; no gradient flows into it."""
    if isinstance(term.scale, (int, float)):
        return max(float(term.scale), float(jnp.finfo(dtype).tiny))
    return jax.lax.stop_gradient(jnp.asarray(term.scale)).astype(dtype)
