"""Squared distances of rows, as exact as their use asks for, and a root with a gradient everywhere."""

import functools
import math

import jax
import jax.numpy as jnp
from jax import Array

NARROW = 16  # rows up to this wide: differences cost no more than a product
SMALL = 1 << 20  # so many differences in all cost next to nothing


def squared_distances(a: Array, b: Array) -> Array:
    """|a_i - b_j|^2 by differences: exact to a few units in the last place at any scale and offset."""
    width = a.shape[1]
    if width <= 64:
        # One fused pass; the differences of one column never reach memory.
        total = jnp.zeros((a.shape[0], b.shape[0]), a.dtype)
        for k in range(width):
            total = total + (a[:, k, None] - b[None, :, k]) ** 2
        return total
    chunks = -(-width // 32)
    pad = ((0, 0), (0, 32 * chunks - width))
    a3 = jnp.pad(a, pad).reshape(-1, chunks, 32).swapaxes(0, 1)
    b3 = jnp.pad(b, pad).reshape(-1, chunks, 32).swapaxes(0, 1)
    start = squared_distances(a3[0], b3[0])
    return jax.lax.scan(lambda total, ab: (total + squared_distances(*ab), None), start, (a3[1:], b3[1:]))[0]


def by_differences(n: int, m: int, width: int) -> bool:
    """Whether distances of n to m rows come from exact differences, or from the faster product."""
    return width <= NARROW or n * m * width <= SMALL


def fast_squared_distances(a: Array, b: Array, *, fine: bool | Array = False) -> Array:
    """|a_i - b_j|^2, from a product when the rows, which then should be centred, are wide and many.

    The product leaves rounding of the size of |a|^2 + |b|^2 behind: what is no more than that becomes
    zero, so that equal rows are at distance zero however far out they lie.

    Args:
      a: rows [n, d].
      b: rows [m, d].
      fine: whether to keep 500 times less of that rounding, at three times the product's cost; may be traced.
    """
    if by_differences(len(a), len(b), a.shape[1]):
        return squared_distances(a, b)
    if fine is True:
        return _split_distances(a, b)
    size_a, size_b = (a * a).sum(1), (b * b).sum(1)
    product = jnp.matmul(a, b.T, precision="highest")
    if fine is not False:
        # A loop of one turn or none, as XLA spreads its body over the cores and not that of a conditional.
        # What then stands for the product is made of the distances: the plain way costs nothing more.
        def split(state):
            # The barrier ties the rows to the turn, or what never changes would be computed before the loop.
            x, y, _ = jax.lax.optimization_barrier((a, b, state[3]))
            return -0.5 * _split_distances(x, y), 0 * size_a, 0 * size_b, ~state[3]

        state = (product, size_a, size_b, fine)
        product, size_a, size_b, _ = jax.lax.while_loop(lambda state: state[3], split, state)
    size = size_a[:, None] + size_b[None, :]
    return _without_noise(size - 2 * product, size, a, math.sqrt(a.shape[1]))


def _split_distances(a: Array, b: Array) -> Array:
    """By splitting a = h + l: products of h are so short that they add up exactly, those of l are small.

    With h on a grid of q = 2^-11 times the largest norm (half the digits of the dtype, less one) every sum
    of products of two h is a whole number of q^2 below 2^24. Then, with c = 2 h.l + l.l,

        |a_i - b_j|^2 = |h_i - h_j|^2 + c_i + c_j - 2 (h_i.l_j + l_i.b_j).
    """
    digits = jnp.finfo(a.dtype).nmant + 1
    largest = jnp.maximum((a * a).sum(1).max(), (b * b).sum(1).max())
    # A sum with a number so large leaves of x what lies on the grid.
    anchor = 1.5 * jnp.sqrt(largest) * 2.0 ** (digits - digits // 2)
    parts = []
    for x in (a, b):
        h = (x + anchor) - anchor
        low = x - h
        parts.append((h, low, (h * h).sum(1), 2 * (h * low).sum(1) + (low * low).sum(1)))
    (ha, la, size_a, rest_a), (hb, lb, size_b, rest_b) = parts
    dot = functools.partial(jnp.matmul, precision="highest")
    exact = size_a[:, None] + size_b[None, :] - 2 * dot(ha, hb.T)
    cross = dot(jnp.concatenate([ha, la], 1), jnp.concatenate([lb, b], 1).T)
    d2 = exact + (rest_a[:, None] + rest_b[None, :] - 2 * cross)
    size = (a * a).sum(1)[:, None] + (b * b).sum(1)[None, :]
    return _without_noise(d2, size, a, math.sqrt(a.shape[1]) * 2.0 ** (1 - digits // 2))


def _without_noise(d2: Array, size: Array, a: Array, units: float) -> Array:
    noise = units * float(jnp.finfo(a.dtype).eps)
    return jnp.where(d2 <= noise * size, 0, d2)  # a comparison with NaN is false: NaN stays


def safe_sqrt(x: Array) -> Array:
    """Square root whose gradient at zero is zero; NaN stays NaN."""
    zero = x == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, x)))
