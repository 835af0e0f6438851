r"""Numerics: how the objectives stay exact in float32, small in memory and fast on every back end.

An objective of this library is a quadratic form u'Ku of a kernel matrix K_ij = k(z_i, z_j), or the solution
of a linear system with K. Written down directly it loses digits, needs n x n memory, or compiles to a slow
loop. The modules of this package hold the remedies, and this page derives them. `eps` is the rounding unit of
the dtype.

**Kernel entries** (`entries`). A statistic compares groups, so its coefficients cancel, sum_i u_i = 0, and a
constant added to k has no effect. Each kernel term is therefore evaluated as k - k(0), with `expm1` in place
of `exp`: for rows at a small distance r the difference is about r^2 and keeps all of its digits, of which
1 - r^2 has lost those below eps.

**Squared distances** (`entries`). Differences give |a - b|^2 to a few eps for any origin. For wide rows
|a|^2 + |b|^2 - 2 a.b is several times faster, with an error of about eps sqrt(d) (|a|^2 + |b|^2). The rows
are centred first, which makes the bound small, and distances below it are set to zero. A narrow kernel on
tight clusters far apart would still see that error. Then each row is split, a = h + l, with h on a grid of
step q = 2^-11 max |a|. Every product of two h is a multiple of q^2 below 2^24 q^2, so float32 adds them up
exactly, and

    |a_i - b_j|^2 = |h_i - h_j|^2 + c_i + c_j - 2 (h_i.l_j + l_i.b_j),    c = 2 h.l + l.l

has rounding errors only in terms that contain l, 2^11 times smaller than the rows.

**Compensated sums** (`sums`). For t = fl(a + b) and b' = t - a, the error of a rounded sum is itself a float
(Knuth's two-sum): a + b = t + (a - (t - b')) + (b - b') exactly. A pair (high, low) that collects these
errors holds a sum to about twice the digits. A mean that is subtracted leaves the rounding of its own sum,
about eps |mean|; subtracting the mean of the remainder a second time removes it (`subtract_mean`).

**Products that cancel** (`sums.exact_product`). A kernel ridge regression divides by a ridge of 1e-6 of the
largest eigenvalue, so the residual p - (K + rho) a needs more digits than float32 products keep. Split
k = k1 + k2 and a = a1 + a2, where k1 holds 8 leading bits and a1 holds 11. The products in k1 a1 then add up
without rounding (Ozaki), and the other three products are small, and so are their errors.

**All pairs without an n x n array** (`sums.pair_sums`). The maximum mean discrepancy needs, for weights w and
labels s, r_i = sum_j K_ij w_j and c_i = sum_{j: s_j = s_i} K_ij w_j. Rows are cut into an odd number T of
blocks. Block I meets blocks I, I+1, ..., I+(T-1)/2, counted cyclically: every unordered pair of blocks once,
and each step of the loop has the same shape. K is symmetric, so one visit serves the sums of both blocks. The
backward pass visits the pairs again and recomputes K: the cotangents a of r and b of c give pair (i, j) the
coefficient D_ij = a_i w_j + w_i a_j + [s_i = s_j] (b_i w_j + w_i b_j), and row i the gradient sum_j D_ij
dk_ij/dz_i. Time and memory of both passes are independent of the number of classes.

**Back ends and transformations** (this module, `convolution`). On a CPU `vmap` would hold the matrices of all
members of a sweep at once, outside of the cache: `sequential_on_cpu` loops over them, and
`value_and_grad_together` makes that one loop for value and gradient. XLA's CPU kernels for the gradients of
convolution and pooling are slow: `convolution` replaces them by matrix products in cache-sized blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import sequential_vmap

matmul = functools.partial(jnp.matmul, precision="highest")  # accelerators would use fewer digits


def safe_sqrt(x: Array) -> Array:
    """Compute the square root with gradient zero at zero; NaN stays NaN."""
    zero = x == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, x)))


def nonzero(x: Array) -> Array:
    """Replace 0 by 1: for divisors that are zero only where the dividend is zero too."""
    return jnp.where(x == 0, 1, x)


def subtract_mean(x: Array, weights: Array) -> Array:
    """Subtract the weighted mean of the rows of x [n, ...]; the second pass removes the first one's error."""
    for _ in range(2):
        x = x - jnp.expand_dims(weights @ x / nonzero(weights.sum()), 0)
    return x


def match_vma(x: Array, *others: Array) -> Array:
    """Give x the device-varying type of other arrays.

    Under `shard_map` the carry of a loop must be device-varying from the first iteration if the loop makes it
    so.
    """
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return x
    for other in others:
        x = x + jnp.where(False, other.ravel()[0], 0).astype(x.dtype)
    return x


def sequential_on_cpu(function: Callable) -> Callable:
    """Map a function over members one after another when `vmap` meets it on a CPU."""

    def call(*args):
        return (sequential_vmap(function) if jax.default_backend() == "cpu" else function)(*args)

    return call


def value_and_grad_together(function: Callable[..., Array]) -> Callable[..., Array]:
    """Compute the gradient of a scalar function in its forward pass, sequentially over members on a CPU.

    Reverse mode under `vmap` then runs one loop over the members instead of one per primitive and transpose.
    Only the gradients of differentiated arguments are computed.
    """

    @jax.custom_vjp
    def call(*args):
        return sequential_on_cpu(function)(*args)

    def forward(*args):
        leaves, tree = jax.tree.flatten(args, is_leaf=lambda x: hasattr(x, "perturbed"))
        values = [leaf.value for leaf in leaves]
        active = [i for i, leaf in enumerate(leaves) if leaf.perturbed]

        def value_and_grad(*values):
            def of_active(chosen):
                full = list(values)
                for i, v in zip(active, chosen, strict=True):
                    full[i] = v
                return function(*jax.tree.unflatten(tree, full))

            return jax.value_and_grad(of_active)([values[i] for i in active])

        value, gradients = sequential_on_cpu(value_and_grad)(*values)
        full: list[Array | None] = [None] * len(values)  # None: no gradient
        for i, g in zip(active, gradients, strict=True):
            full[i] = g
        return value, jax.tree.unflatten(tree, full)

    def backward(gradients, value_bar):
        return jax.tree.map(lambda g: value_bar * g, gradients)

    call.defvjp(forward, backward, symbolic_zeros=True)
    return call
