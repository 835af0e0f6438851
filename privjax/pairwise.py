"""Sums over all pairs of rows without an array of all pairs: the engine under the MMD.

Given rows z, weights w and integer labels s, `pair_sums` gives for every row i

    r_i = sum_j K_ij w_j          and          c_i = sum_{j: s_j = s_i} K_ij w_j

and its own backward pass, which recomputes K block by block. Neither the time nor the memory of either
pass knows how many classes there are.

K is symmetric, so each unordered pair of row blocks is visited once. With an odd number T of blocks,
block I against the blocks I, I+1, ..., I+(T-1)/2 (cyclically) meets every pair exactly once and always
has the same shape: a loop over I needs no list of pairs and no ragged edge.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import sequential_vmap

from privjax.distances import fast_squared_distances
from privjax.kernels import Kernel, split
from privjax.terms import dot_slope, dot_value, expm1_negative, radial_slope, radial_value, wants_fine

BLOCK = 576  # rows of a block: few turns of the loop, few pairs met twice, a block row near the cache
COLUMNS = 8192  # columns of a block row at most: bounds memory for any n


def one_at_a_time(function: Callable) -> Callable:
    """Under vmap a CPU runs members in turn: their arrays side by side would leave the cache."""

    def call(*args):
        return (sequential_vmap(function) if jax.default_backend() == "cpu" else function)(*args)

    return call


def varying_as(a: Array, *others: Array) -> Array:
    """The same numbers, which under shard_map differ between devices where those of the others do."""
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return a
    for other in others:
        a = a + jnp.where(False, other.ravel()[0], 0).astype(a.dtype)
    return a


def as_one(function: Callable[..., Array]) -> Callable[..., Array]:
    """A scalar function whose gradient comes with its value, and whose members run one at a time.

    Reverse mode then makes one loop over the members of a vmap, not one for each primitive and its
    transpose. Only arguments that are differentiated are worked on.
    """

    @jax.custom_vjp
    def call(*args):
        return one_at_a_time(function)(*args)

    def forward(*args):
        leaves, tree = jax.tree.flatten(args, is_leaf=lambda x: hasattr(x, "perturbed"))
        values = [leaf.value for leaf in leaves]
        active = [i for i, leaf in enumerate(leaves) if leaf.perturbed]

        def value_and_gradient(*values):
            def of_active(chosen):
                full = list(values)
                for i, v in zip(active, chosen, strict=True):
                    full[i] = v
                return function(*jax.tree.unflatten(tree, full))

            return jax.value_and_grad(of_active)([values[i] for i in active])

        value, gradients = one_at_a_time(value_and_gradient)(*values)
        full: list[Any] = [None] * len(values)  # None: no gradient
        for i, g in zip(active, gradients, strict=True):
            full[i] = g
        return value, jax.tree.unflatten(tree, full)

    def backward(gradients, value_bar):
        return jax.tree.map(lambda g: value_bar * g, gradients)

    call.defvjp(forward, backward, symbolic_zeros=True)
    return call


@jax.custom_vjp
def pair_sums(z: Array, w: Array, s: Array, kernel: Kernel) -> tuple[Array, Array]:
    """(r, c) as above, [n] each, with each kernel term less its value at zero.

    Differentiable in z and w; the kernel's scales are constants. Rows with w = 0 still get their r and
    c. Wide rows should be centred: their distances come from a product (`fast_squared_distances`).
    """
    return _sums(z, w, w, s, kernel)


def _forward(z, w, s, kernel):
    weighted = w.perturbed
    z, w, s = z.value, w.value, s.value
    kernel = jax.tree.map(lambda leaf: leaf.value, kernel, is_leaf=lambda x: hasattr(x, "perturbed"))
    return _sums(z, w, w, s, kernel), (z, w, s, kernel, weighted)


def _backward(residuals, cotangents):
    z, w, s, kernel, weighted = residuals
    r_bar, c_bar = (
        jnp.zeros_like(w) if type(t) is jax.custom_derivatives.SymbolicZero else t for t in cotangents
    )
    z_bar = _row_gradient(z, w, r_bar, c_bar, s, kernel)
    # K is symmetric, so the cotangent of w is again a pair of sums.
    w_bar = sum(_sums(z, r_bar, c_bar, s, kernel)) if weighted else None
    return z_bar, w_bar, None, None


pair_sums.defvjp(_forward, _backward, symbolic_zeros=True)


def _sums(z: Array, u: Array, v: Array, s: Array, kernel: Kernel) -> tuple[Array, Array]:
    """K u and (K * [s_i = s_j]) v."""
    n = z.shape[0]
    grid = _grid(n)
    rows = (z, u, v, s)
    total = jnp.zeros((2, n), z.dtype)
    for family in _families(kernel, z):

        def visit(block, family=family):
            (zi, ui, vi, si), (zj, uj, vj, sj), fresh = block
            k = lax.optimization_barrier(family.value_of(zi, zj))  # else each sum computes it again
            same = jnp.where(si[:, None] == sj[None, :], k, 0)
            own = jnp.stack([_dot(k, fresh * uj), _dot(same, fresh * vj)])
            return own, jnp.stack([_dot(ui, k), _dot(vi, same)])

        total += _sweep(visit, rows, grid, 2)
    return total[0], total[1]


def _row_gradient(z: Array, w: Array, a: Array, b: Array, s: Array, kernel: Kernel) -> Array:
    """Gradient in z of sum_i a_i (K w)_i + b_i ((K * [s_i = s_j]) w)_i.

    K_ij has the coefficient D_ij = a_i w_j + w_i a_j + [s_i = s_j] (b_i w_j + w_i b_j) over each
    unordered pair. A radial kernel gives row i the gradient 2 sum_j D_ij k'_ij (z_i - z_j), a dot
    kernel sum_j D_ij k'_ij z_j; both are one product with z beside a column of ones.
    """
    n, width = z.shape
    grid = _grid(n)
    gradient = jnp.zeros_like(z)
    for family in _families(kernel, z):
        # A shift changes no distance, and centred rows round less.
        factor = z - z.mean(0, keepdims=True) if family.radial else z
        rows = (z, w, a, b, s, jnp.concatenate([factor, jnp.ones((n, 1), z.dtype)], 1))

        def visit(block, family=family):
            (zi, wi, ai, bi, si, zi1), (zj, wj, aj, bj, sj, zj1), fresh = block
            same = jnp.where(si[:, None] == sj[None, :], _cross(bi, wj) + _cross(wi, bj), 0)
            d = _cross(ai, wj) + _cross(wi, aj) + same
            g = lax.optimization_barrier(d * family.slope_of(zi, zj))
            # Barriers: a transposition folded into a product makes it a third slower than a small copy.
            own = lax.optimization_barrier(_dot(g, fresh[:, None] * zj1))
            return own.T, _dot(lax.optimization_barrier(zi1.T), g)

        total = _sweep(visit, rows, grid, width + 1).T
        gradient += family.assemble(factor, total[:, :width], total[:, width:])
    return gradient


class _Family(NamedTuple):
    """Kernel terms that are a function of one quantity per pair of rows: distance or product."""

    radial: bool
    value_of: Callable[[Array, Array], Array]
    slope_of: Callable[[Array, Array], Array]
    assemble: Callable[[Array, Array, Array], Array]  # (z, sum_j g_ij z_j, sum_j g_ij) -> gradient


def _families(kernel: Kernel, z: Array) -> list[_Family]:
    """The kernel's two families, those it has, for the rows z."""
    radial, dot = split(kernel)
    families = []
    if radial:
        distances = partial(fast_squared_distances, fine=wants_fine(radial, z))
        families.append(
            _Family(
                True,
                lambda a, b: radial_value(radial, distances(a, b), expm1=expm1_negative),
                lambda a, b: radial_slope(radial, distances(a, b)),
                lambda z, gz, g: 2 * (z * g - gz),
            )
        )
    if dot:
        families.append(
            _Family(
                False,
                lambda a, b: dot_value(dot, _dot(a, b.T)),
                lambda a, b: dot_slope(dot, _dot(a, b.T)),
                lambda z, gz, g: gz,
            )
        )
    return families


class _Grid(NamedTuple):
    """T row blocks of `size`, T odd, each against `groups` times `span` blocks of columns."""

    blocks: int
    size: int
    span: int
    groups: int


def _grid(n: int) -> _Grid:
    blocks = -(-n // BLOCK) | 1
    size = -(-n // blocks)
    size += -size % 8  # whole vectors
    offsets = (blocks + 1) // 2
    groups = -(-offsets * size // COLUMNS)
    return _Grid(blocks, size, -(-offsets // groups), groups)


def _sweep(visit: Callable, rows: tuple[Array, ...], grid: _Grid, features: int) -> Array:
    """Visit every pair of blocks once; add up what each gives its rows and columns: [features, n].

    `visit((rows i, rows j, fresh))` returns [features, size] for the rows and [features, columns] for the
    columns. `fresh` is 1 for the columns that are met here and nowhere else, 0 for the others, which must
    not count for the rows.
    """
    n = rows[0].shape[0]
    blocks, size, span, groups = grid
    if blocks == 1:
        return visit((rows, rows, jnp.ones(n, rows[0].dtype)))[0]
    padded = blocks * size
    width = span * size
    # Rows of padding have zero weights; label -1 is nobody's. Columns wrap around: repeat the rows.
    rows = tuple(
        jnp.pad(
            a,
            [(0, padded - n)] + [(0, 0)] * (a.ndim - 1),
            constant_values=-1 if a.dtype.kind == "i" else 0,
        )
        for a in rows
    )
    wrap = groups * width
    columns = tuple(jnp.concatenate([a, a, a])[: padded + wrap] for a in rows)
    offsets = (blocks + 1) // 2

    def step(total, index):
        block, group = index // groups, index % groups
        start = block * size
        first = start + group * width
        offset = group * span + jnp.arange(width) // size
        own, other = visit(
            (
                tuple(lax.dynamic_slice_in_dim(a, start, size) for a in rows),
                tuple(lax.dynamic_slice_in_dim(a, first, width) for a in columns),
                (offset < offsets).astype(total.dtype),
            )
        )
        # The row block against itself, offset 0, is symmetric: its columns are its rows.
        other = jnp.where(((offset > 0) & (offset < offsets))[None, :], other, 0)
        for part, at in ((own, start), (other, first)):
            here = lax.dynamic_slice_in_dim(total, at, part.shape[1], 1)
            total = lax.dynamic_update_slice_in_dim(total, here + part, at, 1)
        return total, None

    # The loop starts as varying as it goes on.
    total = varying_as(jnp.zeros((features, padded + wrap), rows[0].dtype), *rows)
    total = lax.scan(step, total, jnp.arange(blocks * groups))[0]
    # Fold the wrapped columns back onto the rows they are.
    folded = total[:, :padded]
    for start in range(padded, padded + wrap, padded):
        tail = total[:, start : start + padded]
        folded = folded.at[:, : tail.shape[1]].add(tail)
    return folded[:, :n]


def _cross(a: Array, b: Array) -> Array:
    return a[:, None] * b[None, :]


_dot = partial(jnp.matmul, precision="highest")
