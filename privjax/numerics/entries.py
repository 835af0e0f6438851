"""Entries of kernel matrices: squared distances of rows, and value and slope of every kind of kernel term.

A term is a function of the squared distance |a - b|^2 or of the product a.b of two rows. `KINDS` is the only
place that knows a kind: to add one, add an entry there and a constructor in `privjax.kernels`.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float

from privjax.numerics import match_vma, matmul, nonzero, safe_sqrt

Scalar = float | Array

NARROW = 16  # columns up to which differences cost no more than a product
_FEW_DIFFERENCES = 1 << 20  # entries times columns up to which differences cost next to nothing
_FUSED = 64  # columns that one fused pass handles


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class Term:
    """One term of a kernel.

    A Python number is static under jit: it belongs to the compiled program. An array is traced, so that it
    can be swept by `vmap`. No gradient flows into either.

    Attributes:
      kind: A key of `KINDS`.
      scale: The bandwidth of a distance kind; gamma of a polynomial.
      weight: Factor of the term.
      offset: The constant that a polynomial adds to the product.
      order: The power of a polynomial.
      relative: Whether `scale` is a multiple of the median distance of the rows at hand.
    """

    kind: str
    scale: Scalar
    weight: Scalar = 1.0
    offset: Scalar = 1.0
    order: int = 1
    relative: bool = False

    def __str__(self) -> str:
        order = f", order={self.order}" if self.order != 1 else ""
        return f"{self.weight} {self.kind}({self.scale}{order}{', relative' if self.relative else ''})"

    def tree_flatten(self) -> tuple[tuple[Scalar, ...], tuple]:
        """Split into leaves and structure; only floats are structure, as transformations use other types."""
        numbers = (self.scale, self.weight, self.offset)
        leaves = tuple(v for v in numbers if not isinstance(v, float))
        static = tuple(v if isinstance(v, float) else None for v in numbers)
        return leaves, (self.kind, static, self.order, self.relative)

    @classmethod
    def tree_unflatten(cls, structure: tuple, leaves: Sequence[Scalar]) -> Term:
        """Rebuild a term from `tree_flatten`."""
        kind, static, order, relative = structure
        arrays = iter(leaves)
        scale, weight, offset = (next(arrays) if v is None else v for v in static)
        return cls(kind, scale, weight, offset, order, relative)


class Kind(NamedTuple):
    """Arithmetic of one kind of kernel term k(t).

    Attributes:
      argument: "distance" if t is |a - b|^2, "product" if t is a.b.
      values: `values(terms, t, share)`: weight (k(t) - k(0)) of each term. With `share`, terms may share
        exponentials at the cost of a few roundings.
      slopes: `slopes(terms, t, share)`: weight dk/dt of each term. A distance kind gives 0 at t = 0: there
        z_i - z_j is 0, and a slope would only multiply its rounding.
      at_zero: k(0) of one term.
      normalise: For kinds that overflow, `normalise(term, largest |z|^2)`: a term k' of order one and a
        constant c with k = c^2 k'.
    """

    argument: Literal["distance", "product"]
    values: Callable[[Sequence[Term], Array, bool], list[Array]]
    slopes: Callable[[Sequence[Term], Array, bool], list[Array]]
    at_zero: Callable[[Term], Scalar]
    normalise: Callable[[Term, Array], tuple[Term, Array]] | None = None


def term_values(terms: Sequence[Term], t: Array, *, share: bool = True) -> list[Array]:
    """Evaluate weight (k(t) - k(0)) of each term, all of them of one `argument`."""
    return [v for kind, group in _by_kind(terms) for v in kind.values(group, t, share)]


def value(terms: Sequence[Term], t: Array) -> Array:
    """Evaluate sum_t weight (k(t) - k(0))."""
    return sum(term_values(terms, t), start=jnp.zeros_like(t))


def slope(terms: Sequence[Term], t: Array, *, share: bool = True) -> Array:
    """Evaluate the derivative of `value` in t; 0 where a squared distance is 0."""
    slopes = (s for kind, group in _by_kind(terms) for s in kind.slopes(group, t, share))
    return sum(slopes, start=jnp.zeros_like(t))


def _by_kind(terms: Sequence[Term]) -> list[tuple[Kind, list[Term]]]:
    groups = ((kind, [t for t in terms if t.kind == name]) for name, kind in KINDS.items())
    return [(kind, group) for kind, group in groups if group]


def split_terms(terms: Sequence[Term]) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """Separate the terms of distances from the terms of products."""
    distance = tuple(t for t in terms if KINDS[t.kind].argument == "distance")
    return distance, tuple(t for t in terms if KINDS[t.kind].argument == "product")


def scale_in(term: Term, dtype: DTypeLike) -> Scalar:
    """Give the scale of a term in a dtype, above zero and without a gradient."""
    if isinstance(term.scale, (int, float)):
        return max(float(term.scale), float(jnp.finfo(dtype).tiny))
    return jax.lax.stop_gradient(jnp.asarray(term.scale)).astype(dtype)


def expm1_negative(x: Array) -> Array:
    """Compute exp(x) - 1 for x <= 0 to about one eps, where XLA's `expm1` is slower and leaves three.

    A Taylor series of eight terms serves x > -0.5, where the difference would cancel; the ninth term is below
    2e-8 of the sum.
    """
    if x.dtype == jnp.float64:
        return jnp.expm1(x)
    series = jnp.full_like(x, 1 / math.factorial(8))
    for power in range(7, 0, -1):
        series = 1 / math.factorial(power) + x * series
    return jnp.where(x > -0.5, x * series, jnp.exp(x) - 1)


# ---- Kinds of terms ---------------------------------------------------------------------------------


def _gaussian_values(terms: Sequence[Term], d2: Array, share: bool) -> list[Array]:
    values = []
    for ladder in _ladders(terms, share):
        e = expm1_negative(d2 * _gaussian_rate(ladder[0], d2.dtype))
        values.append(ladder[0].weight * e)
        for wider, term in itertools.pairwise(ladder):
            for _ in range(2 * _halvings(wider, term)):
                e = e * (2 + e)  # (1 + e)^2 - 1, with no loss of relative precision for e in (-1, 0]
            values.append(term.weight * e)
    return values


def _gaussian_slopes(terms: Sequence[Term], d2: Array, share: bool) -> list[Array]:
    slopes = []
    for ladder in _ladders(terms, share):
        rate = _gaussian_rate(ladder[0], d2.dtype)
        # The mask comes before the squarings: XLA would turn exp(a) exp(a) back into exp(a + a).
        k = jnp.where(d2 == 0, 0, jnp.exp(d2 * rate))
        slopes.append((ladder[0].weight * rate) * k)
        for wider, term in itertools.pairwise(ladder):
            for _ in range(2 * _halvings(wider, term)):
                k = k * k
            slopes.append((term.weight * _gaussian_rate(term, d2.dtype)) * k)
    return slopes


def _gaussian_rate(term: Term, dtype: DTypeLike) -> Scalar:
    """Compute -1 / (2 sigma^2), finite for any bandwidth."""
    scale, limit = scale_in(term, dtype), float(jnp.finfo(dtype).max)
    if isinstance(scale, float):
        return max(-0.5 / max(scale * scale, sys.float_info.min), -limit)
    return jnp.maximum(-0.5 / (scale * scale), -limit)


def _ladders(terms: Sequence[Term], share: bool) -> list[list[Term]]:
    """Group Gaussians that share one exponential: each bandwidth is the one before over a power of two.

    Halving a bandwidth raises the kernel to its fourth power: two squarings. A ladder spans at most a factor
    of 16 in bandwidth, as each squaring doubles the rounding of k.
    """
    if not share:
        return [[t] for t in terms]
    static = [t for t in terms if isinstance(t.scale, (int, float))]
    ladders: list[list[Term]] = []
    for term in sorted(static, key=lambda t: -t.scale):
        for ladder in ladders:
            if 0 <= _halvings(ladder[-1], term) <= 3 and _halvings(ladder[0], term) <= 4:
                ladder.append(term)
                break
        else:
            ladders.append([term])
    return ladders + [[t] for t in terms if not isinstance(t.scale, (int, float))]


def _halvings(wider: Term, term: Term) -> int:
    """Count the halvings from one bandwidth to the other; -1 if the ratio is no power of two."""
    mantissa, exponent = math.frexp(wider.scale / term.scale)
    return exponent - 1 if mantissa == 0.5 else -1


def _laplacian_value(term: Term, d2: Array) -> Array:
    return term.weight * expm1_negative(-safe_sqrt(d2) / scale_in(term, d2.dtype))


def _laplacian_slope(term: Term, d2: Array) -> Array:
    """Compute d/d(d2) exp(-r/s) = -exp(-r/s) / (2 s r), r the distance."""
    r, s = safe_sqrt(d2), scale_in(term, d2.dtype)
    k = jnp.exp(-r / s)
    return term.weight * jnp.where((d2 == 0) | (k == 0), 0, -k / (2 * s * nonzero(r)))


def _polynomial_value(term: Term, t: Array) -> Array:
    """Compute (offset + u)^order - offset^order by Horner's rule, u = gamma t."""
    u, order = scale_in(term, t.dtype) * t, term.order
    total = jnp.ones_like(t)
    for power in range(order - 1, 0, -1):
        total = math.comb(order, power) * term.offset ** (order - power) + u * total
    return term.weight * (u * total)


def _polynomial_slope(term: Term, t: Array) -> Array:
    gamma = scale_in(term, t.dtype)
    return (term.weight * term.order * gamma) * (term.offset + gamma * t) ** (term.order - 1)


def _normalise_polynomial(term: Term, largest: Array) -> tuple[Term, Array]:
    """With m = max(1, gamma max|z|^2) the term is m^order (offset/m + gamma/m a.b)^order."""
    m = jnp.maximum(1, scale_in(term, largest.dtype) * largest)
    return replace(term, scale=term.scale / m, offset=term.offset / m), m ** (0.5 * term.order)


def _each(function: Callable[[Term, Array], Array]) -> Callable[[Sequence[Term], Array, bool], list[Array]]:
    """Turn a function of one term into one of a group whose terms share nothing."""
    return lambda terms, t, share: [function(term, t) for term in terms]


KINDS = {
    "gaussian": Kind("distance", _gaussian_values, _gaussian_slopes, lambda term: 1.0),
    "laplacian": Kind("distance", _each(_laplacian_value), _each(_laplacian_slope), lambda term: 1.0),
    "polynomial": Kind(
        "product",
        _each(_polynomial_value),
        _each(_polynomial_slope),
        at_zero=lambda term: term.offset**term.order,
        normalise=_normalise_polynomial,
    ),
}


# ---- Squared distances ------------------------------------------------------------------------------


def squared_distances(a: Float[Array, "n d"], b: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """Compute |a_i - b_j|^2 by differences: exact to a few eps at any scale and offset."""

    def add_column(total, columns):
        x, y = columns
        return total + (x[:, None] - y[None, :]) ** 2, None

    total = jnp.zeros((len(a), len(b)), a.dtype)
    if a.shape[1] > _FUSED:
        return jax.lax.scan(add_column, match_vma(total, a, b), (a.T, b.T), unroll=_FUSED // 2)[0]
    for columns in zip(a.T, b.T, strict=True):  # one fused pass: the differences never reach memory
        total, _ = add_column(total, columns)
    return total


def by_differences(n: int, m: int, width: int) -> bool:
    """Decide whether distances of n to m rows come from exact differences or from the faster product."""
    return width <= NARROW or n * m * width <= _FEW_DIFFERENCES


def fast_squared_distances(
    a: Float[Array, "n d"], b: Float[Array, "m d"], *, compensated: bool | Bool[Array, ""] = False
) -> Float[Array, "n m"]:
    """Compute |a_i - b_j|^2, from a product if the rows are wide and many; these should be centred.

    Distances below the rounding of the product, eps sqrt(d) (|a|^2 + |b|^2), become zero, so that equal rows
    are at distance zero wherever they lie. `compensated` splits the rows (see `privjax.numerics`): 500 times
    less rounding at three times the cost of the product. It may be traced.
    """
    if by_differences(len(a), len(b), a.shape[1]):
        return squared_distances(a, b)
    if compensated is True:
        return _split_distances(a, b)
    size_a, size_b = (a * a).sum(1), (b * b).sum(1)
    product = matmul(a, b.T)
    if compensated is not False:
        # A `while_loop` of at most one iteration in place of `cond`, whose body XLA does not spread over the
        # cores. Its carry is (product, |a|^2, |b|^2), which the iteration replaces by (-d2 / 2, 0, 0), so
        # that the sum below is d2 either way.
        def split(state):
            # The barrier makes the rows depend on the carry; else XLA would hoist the body out of the loop.
            x, y, _ = jax.lax.optimization_barrier((a, b, state[3]))
            return -0.5 * _split_distances(x, y), 0 * size_a, 0 * size_b, ~state[3]

        state = (product, size_a, size_b, compensated)
        product, size_a, size_b, _ = jax.lax.while_loop(lambda state: state[3], split, state)
    size = size_a[:, None] + size_b[None, :]
    return _without_rounding(size - 2 * product, size, a, math.sqrt(a.shape[1]))


def _split_distances(a: Array, b: Array) -> Array:
    """Compute |a_i - b_j|^2 by splitting a = h + l; derived in `privjax.numerics`."""
    digits = jnp.finfo(a.dtype).nmant + 1
    largest = jnp.maximum((a * a).sum(1).max(), (b * b).sum(1).max())
    # Adding and subtracting a number this large rounds x to the grid.
    anchor = 1.5 * jnp.sqrt(largest) * 2.0 ** (digits - digits // 2)
    parts = []
    for x in (a, b):
        h = (x + anchor) - anchor
        low = x - h
        parts.append((h, low, (h * h).sum(1), 2 * (h * low).sum(1) + (low * low).sum(1)))
    (ha, la, size_a, rest_a), (hb, lb, size_b, rest_b) = parts
    exact = size_a[:, None] + size_b[None, :] - 2 * matmul(ha, hb.T)
    cross = matmul(jnp.concatenate([ha, la], 1), jnp.concatenate([lb, b], 1).T)
    d2 = exact + (rest_a[:, None] + rest_b[None, :] - 2 * cross)
    size = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :]
    return _without_rounding(d2, size, a, math.sqrt(a.shape[1]) * 2.0 ** (1 - digits // 2))


def _without_rounding(d2: Array, size: Array, a: Array, units: float) -> Array:
    rounding = units * float(jnp.finfo(a.dtype).eps)
    return jnp.where(d2 <= rounding * size, 0, d2)  # a comparison with NaN is false: NaN stays


def needs_compensation(terms: Sequence[Term], z: Array) -> Bool[Array, ""]:
    """Decide whether the narrowest term sees the rounding of a product, as in tight clusters far apart."""
    rounding = math.sqrt(z.shape[1]) * float(jnp.finfo(z.dtype).eps) * (z * z).sum(1).max()
    narrowest = jnp.stack([jnp.asarray(scale_in(t, z.dtype), z.dtype) for t in terms]).min()
    return jax.lax.stop_gradient(rounding > 5e-4 * narrowest * narrowest)


def centre_rows(z: Array, weights: Array, valid: Array, terms: Sequence[Term]) -> Array:
    """Subtract the weighted mean of the rows if the kernel allows it; move rows that are not valid to it.

    Rows stay in place if their distances come from differences, since a fused shift may round the two sides
    of a difference differently, and for terms of products. A linear term (order 1) changes only by functions
    of one row, which centring the kernel removes.
    """
    products = split_terms(terms)[1]
    if any(t.kind != "polynomial" or t.order > 1 for t in products):
        return z
    mean = jax.lax.stop_gradient(weights @ z / nonzero(weights.sum()))
    if by_differences(len(z), *z.shape) and not products:
        return jnp.where(valid[:, None], z, mean[None, :])
    return jnp.where(valid[:, None], z - mean[None, :], 0)
