"""Sums over pairs of rows: the dense centred kernel matrix with few roundings, and blocked sums for any n.

The derivations are in `privjax.numerics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Integer

from privjax.numerics import entries, match_vma, matmul
from privjax.numerics.entries import NARROW, Scalar, Term, fast_squared_distances

BLOCK = 576  # rows of a block: few iterations, few pairs visited twice, a block row near the cache
COLUMNS = 8192  # columns of a block row at most: bounds memory for any n
_COMPENSATED_COLUMNS = 2  # columns of z up to which gradients take a compensated product for each column


# ---- Compensated sums and the dense matrix ----------------------------------------------------------


def add_compensated(high: Array, low: Array, term: Array) -> tuple[Array, Array]:
    """Add a term to high + low, with the rounding of high + term (Knuth's two-sum) collected in low."""
    total = high + term
    taken = total - high
    return total, low + ((high - (total - taken)) + (term - taken))


def exact_product(k: Array, a: Array, low: Array) -> Array:
    """Compute k (a + low) where large terms nearly cancel (Ozaki's splitting); `low` is the rounding of a."""
    k1, a1 = _leading_bits(k, 8), _leading_bits(a, 11)
    width = a.shape[1]
    large = matmul(k1, jnp.concatenate([a1, (a - a1) + low], 1))
    return large[:, :width] + matmul(k - k1, a) + large[:, width:]


def _leading_bits(x: Array, bits: int) -> Array:
    """Round to multiples of about 2^-bits of the largest entry, by adding and subtracting a large number."""
    anchor = jnp.abs(x).max() * 2.0 ** (jnp.finfo(x.dtype).nmant + 1 - bits)
    return (x + anchor) - anchor


def centred_gram(
    z: Float[Array, "n d"], share: Float[Array, " n"], terms: Sequence[Term]
) -> tuple[Float[Array, "n n"], Float[Array, ""]]:
    """Compute C K C' with C = I - 1 share', where each entry rounds about once, at its own size.

    Args:
      z: Rows from `centre_rows`.
      share: The weight of each row; adds up to one.
      terms: The terms of the kernel. Their values at zero are left out, since centring removes them.

    Returns:
      The matrix, and the size of the numbers that were rounded: for products, their size before centring.
    """
    distance, product = entries.split_terms(terms)
    parts, size = [], jnp.zeros((), z.dtype)
    if distance:
        d2 = fast_squared_distances(z, z, compensated=True)
        # Distances from products have larger errors than the squarings of a shared exponential.
        parts += entries.term_values(distance, d2, share=not entries.by_differences(len(z), *z.shape))
    if product:
        values = entries.term_values(product, matmul(z, z.T))
        size = sum((jnp.abs(part).max() for part in values), start=size)
        parts += values
    high, low = parts[0], jnp.zeros_like(parts[0])
    for part in parts[1:]:
        high, low = add_compensated(high, low, part)
    high, low = lax.optimization_barrier((high, low))  # else each use below would compute the kernel again
    rest, offsets = high, []
    for _ in range(2):  # the second pass removes the rounding of the first
        mean = rest @ share
        offsets.append(mean - share @ mean / 2)
        rest = rest - offsets[-1][:, None] - offsets[-1][None, :]
    for offset in offsets:
        high, low = add_compensated(high, low, -jnp.broadcast_to(offset[:, None], high.shape))
        high, low = add_compensated(high, low, -jnp.broadcast_to(offset[None, :], high.shape))
    gram = high + low
    return gram, jnp.maximum(size, jnp.abs(jnp.diagonal(gram)).max())


def ridge_floor(n: int, size: Array, rho: Scalar) -> Array:
    """Clamp rho from below at the rounding error of an n x n matrix with entries of that size."""
    floor = 2 * math.sqrt(n) * jnp.finfo(size.dtype).eps * size
    return jnp.where(rho < floor, floor, rho)


def quadratic_gradient(
    z: Float[Array, "n d"], b: Float[Array, "n l"], low: Float[Array, "n l"], terms: Sequence[Term]
) -> Float[Array, "n d"]:
    """Compute the gradient in z of tr(b' K b), for rows from `centre_rows` and columns b + low.

    Row i gets 4 sum_j (b_i.b_j) k'_ij (z_i - z_j) from terms of distances and 2 sum_j (b_i.b_j) k'_ij z_j
    from terms of products. With very few columns of z the sum over j comes first: it is the slope of the
    function K b at row i, which is small beside its summands.
    """
    distance, product = entries.split_terms(terms)
    gradient = jnp.zeros_like(z)
    if distance:
        d2 = fast_squared_distances(z, z, compensated=True)
        k = lax.optimization_barrier(entries.slope(distance, d2, share=z.shape[1] > NARROW))
        if z.shape[1] <= _COMPENSATED_COLUMNS:
            columns = [(b * exact_product(k * (c[:, None] - c[None, :]), b, low)).sum(1) for c in z.T]
            gradient += 4 * jnp.stack(columns, 1)
        else:
            g = lax.optimization_barrier(matmul(b, b.T) * k)
            if z.shape[1] <= NARROW:
                gradient += 4 * jnp.stack([(g * (c[:, None] - c[None, :])).sum(1) for c in z.T], 1)
            else:
                rows = z - z.mean(
                    0, keepdims=True
                )  # a shift changes no distance, and centred rows round less
                gradient += 4 * (rows * g.sum(1, keepdims=True) - matmul(g, rows))
    if product:
        gradient += 2 * matmul(matmul(b, b.T) * entries.slope(product, matmul(z, z.T)), z)
    return gradient


# ---- Blocked sums -----------------------------------------------------------------------------------


@jax.custom_vjp
def pair_sums(
    z: Float[Array, "n d"], w: Float[Array, " n"], s: Integer[Array, " n"], terms: tuple[Term, ...]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Compute r_i = sum_j K_ij w_j and c_i = sum_{j: s_j = s_i} K_ij w_j without an n x n array.

    Each kernel term enters less its value at zero. Differentiable in z and w; the scales of the terms are
    constants. Rows with w = 0 get their r and c as well. Wide rows should come from `centre_rows`.
    """
    return _sums(z, w, w, s, terms)


def _pair_sums_forward(z, w, s, terms):
    weighted = w.perturbed
    z, w, s = z.value, w.value, s.value
    terms = jax.tree.map(lambda leaf: leaf.value, terms, is_leaf=lambda x: hasattr(x, "perturbed"))
    return _sums(z, w, w, s, terms), (z, w, s, terms, weighted)


def _pair_sums_backward(residuals, cotangents):
    z, w, s, terms, weighted = residuals
    r_bar, c_bar = (
        jnp.zeros_like(w) if type(t) is jax.custom_derivatives.SymbolicZero else t for t in cotangents
    )
    z_bar = _row_gradient(z, w, r_bar, c_bar, s, terms)
    # K is symmetric, so the cotangent of w is again a pair of sums.
    w_bar = sum(_sums(z, r_bar, c_bar, s, terms)) if weighted else None
    return z_bar, w_bar, None, None


pair_sums.defvjp(_pair_sums_forward, _pair_sums_backward, symbolic_zeros=True)


def _sums(z: Array, u: Array, v: Array, s: Array, terms: Sequence[Term]) -> tuple[Array, Array]:
    """Compute K u and (K * [s_i = s_j]) v."""
    total = jnp.zeros((2, len(z)), z.dtype)
    for group, argument, _ in _groups(terms, z):

        def visit(rows, columns, unvisited, group=group, argument=argument):
            (zi, ui, vi, si), (zj, uj, vj, sj) = rows, columns
            k = lax.optimization_barrier(entries.value(group, argument(zi, zj)))  # else computed for each sum
            same = jnp.where(si[:, None] == sj[None, :], k, 0)
            own = jnp.stack([matmul(k, unvisited * uj), matmul(same, unvisited * vj)])
            return own, jnp.stack([matmul(ui, k), matmul(vi, same)])

        total += _visit_pairs(visit, (z, u, v, s), 2)
    return total[0], total[1]


def _row_gradient(z: Array, w: Array, a: Array, b: Array, s: Array, terms: Sequence[Term]) -> Array:
    """Compute the gradient in z of sum_i a_i (K w)_i + b_i ((K * [s_i = s_j]) w)_i.

    With the coefficients D_ij of `privjax.numerics`, row i gets 2 sum_j D_ij k'_ij (z_i - z_j) from terms of
    distances and sum_j D_ij k'_ij z_j from terms of products: both come from one product with z beside a
    column of ones.
    """
    n, width = z.shape
    gradient = jnp.zeros_like(z)
    for group, argument, is_distance in _groups(terms, z):
        # A shift changes no distance, and centred rows round less.
        factor = z - z.mean(0, keepdims=True) if is_distance else z
        factor1 = jnp.concatenate([factor, jnp.ones((n, 1), z.dtype)], 1)

        def visit(rows, columns, unvisited, group=group, argument=argument):
            (zi, wi, ai, bi, si, zi1), (zj, wj, aj, bj, sj, zj1) = rows, columns
            same = jnp.where(si[:, None] == sj[None, :], _outer(bi, wj) + _outer(wi, bj), 0)
            d = _outer(ai, wj) + _outer(wi, aj) + same
            g = lax.optimization_barrier(d * entries.slope(group, argument(zi, zj)))
            # Barriers: a transposition fused into a product makes it a third slower than a small copy.
            own = lax.optimization_barrier(matmul(g, unvisited[:, None] * zj1))
            return own.T, matmul(lax.optimization_barrier(zi1.T), g)

        total = _visit_pairs(visit, (z, w, a, b, s, factor1), width + 1).T
        gz, g = total[:, :width], total[:, width:]
        gradient += 2 * (factor * g - gz) if is_distance else gz
    return gradient


def _groups(terms: Sequence[Term], z: Array) -> Iterator[tuple[tuple[Term, ...], Callable, bool]]:
    """Give the terms of distances and those of products, each with their argument for two blocks of rows."""
    distance, product = entries.split_terms(terms)
    if distance:
        yield (
            distance,
            partial(fast_squared_distances, compensated=entries.needs_compensation(distance, z)),
            True,
        )
    if product:
        yield product, lambda a, b: matmul(a, b.T), False


def _grid(n: int) -> tuple[int, int, int, int]:
    """Cut n rows into an odd number of blocks; each meets `groups` times `span` blocks of columns."""
    blocks = -(-n // BLOCK) | 1
    size = -(-n // blocks)
    size += -size % 8  # whole vectors
    offsets = (blocks + 1) // 2
    groups = -(-offsets * size // COLUMNS)
    return blocks, size, -(-offsets // groups), groups


def _visit_pairs(visit: Callable, rows: tuple[Array, ...], features: int) -> Array:
    """Visit every unordered pair of blocks once and add up the results per row: [features, n].

    Args:
      visit: `visit(rows, columns, unvisited)` returns [features, size] for the rows and [features, columns]
        for the columns. `unvisited` is 1 for columns whose pairs belong to this visit and 0 for others, which
        must not count for the rows.
      rows: Arrays [n, ...] that are cut into blocks.
      features: Results per row.
    """
    n = rows[0].shape[0]
    blocks, size, span, groups = _grid(n)
    if blocks == 1:
        return visit(rows, rows, jnp.ones(n, rows[0].dtype))[0]
    padded, width = blocks * size, span * size
    # Rows of padding have weight zero and the label -1 of no class.
    rows = tuple(
        jnp.pad(
            a,
            [(0, padded - n)] + [(0, 0)] * (a.ndim - 1),
            constant_values=-1 if a.dtype.kind == "i" else 0,
        )
        for a in rows
    )
    wrap = groups * width  # columns are counted cyclically: repeat the rows
    columns = tuple(jnp.concatenate([a, a, a])[: padded + wrap] for a in rows)
    offsets = (blocks + 1) // 2

    def step(total, index):
        block, group = index // groups, index % groups
        start = block * size
        first = start + group * width
        offset = group * span + jnp.arange(width) // size
        own, other = visit(
            tuple(lax.dynamic_slice_in_dim(a, start, size) for a in rows),
            tuple(lax.dynamic_slice_in_dim(a, first, width) for a in columns),
            (offset < offsets).astype(total.dtype),
        )
        # A block against itself, offset 0, is symmetric: its columns are its rows.
        other = jnp.where(((offset > 0) & (offset < offsets))[None, :], other, 0)
        for part, at in ((own, start), (other, first)):
            here = lax.dynamic_slice_in_dim(total, at, part.shape[1], 1)
            total = lax.dynamic_update_slice_in_dim(total, here + part, at, 1)
        return total, None

    total = match_vma(jnp.zeros((features, padded + wrap), rows[0].dtype), *rows)
    total = lax.scan(step, total, jnp.arange(blocks * groups))[0]
    folded = total[:, :padded]  # add the repeated columns to the rows that they repeat
    for start in range(padded, padded + wrap, padded):
        tail = total[:, start : start + padded]
        folded = folded.at[:, : tail.shape[1]].add(tail)
    return folded[:, :n]


def _outer(a: Array, b: Array) -> Array:
    return a[:, None] * b[None, :]
