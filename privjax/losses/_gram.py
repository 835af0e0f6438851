"""The whole centred kernel matrix and products with it, with less rounding than float32 sums leave.

A ridge may be a millionth of the largest eigenvalue of such a matrix, and what it multiplies nearly cancels:
rounding that is harmless elsewhere is divided by the ridge here.
"""

import jax.numpy as jnp
from jax import Array, lax

from privjax.distances import NARROW, by_differences, fast_squared_distances
from privjax.kernels import Kernel, split
from privjax.terms import accurate_expm1_negative, dot_slope, dot_value, radial_parts, radial_slope

FEW = 2  # columns of z up to which gradients take a product of high precision for each column


def centred_kernel(z: Array, share: Array, kernel: Kernel) -> tuple[Array, Array]:
    """C K C' [n, n] with C = I - 1 share', for centred rows z and shares that add up to one; and its size.

    Terms enter less their values at zero, which centring takes away. They are added up together with
    what their sum rounds off, and the means are taken off in the same way: an entry rounds once, at its
    own size. The size is that of the numbers that have rounded: of products before they were centred.
    """
    radial, dot = split(kernel)
    parts = []
    size = jnp.zeros((), z.dtype)
    if radial:
        d2 = fast_squared_distances(z, z, fine=True)
        # Distances from products have rounded more than the squarings of a shared exponential do.
        ladders = not by_differences(len(z), *z.shape)
        parts += radial_parts(radial, d2, expm1=accurate_expm1_negative, share=ladders)
    if dot:
        parts += [dot_value([term], _dot(z, z.T)) for term in dot]
        size = sum((jnp.abs(part).max() for part in parts[-len(dot) :]), start=size)
    high, low = parts[0], jnp.zeros_like(parts[0])
    for part in parts[1:]:
        high, low = add(high, low, part)
    high, low = lax.optimization_barrier((high, low))  # else each use below computes the kernel again
    left = high
    offsets = []
    for _ in range(2):  # the second time takes away the rounding of the first
        mean = left @ share
        offsets.append(mean - share @ mean / 2)
        left = left - offsets[-1][:, None] - offsets[-1][None, :]
    for offset in offsets:
        high, low = add(high, low, -jnp.broadcast_to(offset[:, None], high.shape))
        high, low = add(high, low, -jnp.broadcast_to(offset[None, :], high.shape))
    centred = high + low
    return centred, jnp.maximum(size, jnp.abs(jnp.diagonal(centred)).max())


def quadratic_gradient(z: Array, b: Array, low: Array, kernel: Kernel) -> Array:
    """Gradient in z [n, d] of tr(b' K b), for centred rows z and the columns of b + low [n, l].

    Row i gets 4 sum_j (b_i.b_j) k'_ij (z_i - z_j) from a radial kernel, and 2 sum_j (b_i.b_j) k'_ij z_j from
    a dot kernel. For few columns of z the sum over j goes first: it is the slope of the function K b at
    row i, small beside its summands.
    """
    radial, dot = split(kernel)
    gradient = jnp.zeros_like(z)
    if radial:
        d2 = fast_squared_distances(z, z, fine=True)
        slope = lax.optimization_barrier(radial_slope(radial, d2, share=z.shape[1] > NARROW))
        if z.shape[1] <= FEW:
            columns = [(b * exact_product(slope * (c[:, None] - c[None, :]), b, low)).sum(1) for c in z.T]
            gradient += 4 * jnp.stack(columns, 1)
        elif z.shape[1] <= NARROW:
            g = lax.optimization_barrier(_dot(b, b.T) * slope)
            columns = [(g * (c[:, None] - c[None, :])).sum(1) for c in z.T]
            gradient += 4 * jnp.stack(columns, 1)
        else:
            g = lax.optimization_barrier(_dot(b, b.T) * slope)
            factor = z - z.mean(0, keepdims=True)  # a shift changes no distance, and centred rows round less
            gradient += 4 * (factor * g.sum(1, keepdims=True) - _dot(g, factor))
    if dot:
        gradient += 2 * _dot(_dot(b, b.T) * dot_slope(dot, _dot(z, z.T)), z)
    return gradient


def exact_product(k: Array, a: Array, low: Array) -> Array:
    """The product k (a + low) where large terms nearly cancel, far more exact than float32 sums.

    k = k1 + k2 and a = a1 + a2 with so few digits in k1 and a1 that their product adds up without
    rounding (Ozaki's splitting); the other products are small, and so is their rounding. `low` is what
    rounding took off a.
    """
    k1, a1 = _leading(k, 8), _leading(a, 11)
    width = a.shape[1]
    large = _dot(k1, jnp.concatenate([a1, (a - a1) + low], 1))
    return large[:, :width] + _dot(k - k1, a) + large[:, width:]


def _leading(x: Array, bits: int) -> Array:
    """Multiples of about 2^-bits of the largest entry: beside a large number the rest is lost."""
    anchor = jnp.abs(x).max() * 2.0 ** (jnp.finfo(x.dtype).nmant + 1 - bits)
    return (x + anchor) - anchor


def add(high: Array, low: Array, term: Array) -> tuple[Array, Array]:
    """The sum high + low + term, with the rounding of high + term (Knuth's two-sum) kept in low."""
    total = high + term
    taken = total - high
    return total, low + ((high - (total - taken)) + (term - taken))


def _dot(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")
