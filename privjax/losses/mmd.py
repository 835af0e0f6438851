"""Maximum mean discrepancy between each private class and the rest."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Shaped

from privjax.kernels import DEFAULT_KERNEL, Kernel, check_kernel, prepare
from privjax.losses.checks import Batch, Weights, check_batch, check_labels, class_sizes
from privjax.numerics import safe_sqrt, subtract_mean, value_and_grad_together
from privjax.numerics.entries import Term
from privjax.numerics.sums import pair_sums

_RARE = 16  # if fewer than one row in 16 is outside of the largest class, these rows are summed by themselves


def mmd_loss(
    z: Float[ArrayLike, "n d"],
    p: Shaped[ArrayLike, "n ..."],
    *,
    kernel: Kernel = DEFAULT_KERNEL,
    num_classes: int | None = None,
    weights: Weights = None,
) -> Float[Array, ""]:
    r"""Compute the one-vs-rest maximum mean discrepancy of z given the private class (eq. MMD_obj).

        sum_l N_l/N ( p_l'K p_l / N_l^2 + q_l'K q_l / M_l^2 - 2 p_l'K q_l / (N_l M_l) )^(1/2)

    with the indicator p_l of class l, q_l = 1 - p_l, N_l rows in the class and M_l = N - N_l. It is zero when
    all classes have the same distribution of z. The estimate is biased: independent z give a small positive
    value on a finite batch, so use `privacy_confidence` to judge a value. A class without rows contributes
    nothing. Time and memory do not depend on the number of classes, and no n x n array is made.

    Args:
      z: Released rows.
      p: Class labels [n], or a one-hot matrix [n, l].
      kernel: A kernel of `privjax.kernels`. Default: the mixture of five Gaussians of the paper.
      num_classes: Number of classes; needed with integer labels under jit.
      weights: Non-negative weights of the rows; a row of weight 0 changes nothing.

    Returns:
      The loss, at least float32.

    Example:
      >>> import jax.numpy as jnp, privjax
      >>> z = jnp.array([[0.0], [1.0], [0.0], [1.0]])
      >>> float(privjax.mmd_loss(z, jnp.array([0, 0, 1, 1])))
      0.0
      >>> round(float(privjax.mmd_loss(z, jnp.array([0, 1, 0, 1]))), 3)
      0.47
    """
    check_kernel("kernel", kernel)
    batch = check_batch(z, weights)
    labels = check_labels(p, batch, num_classes)
    return _mmd(batch, labels.classes, kernel, labels.num_classes) + labels.nan_flag


@partial(jax.jit, static_argnums=3)
def _mmd(batch: Batch, index: Array, kernel: Kernel, num_classes: int) -> Array:
    def value(batch, index, kernel):
        z, terms, scale = prepare(kernel, *batch)
        return scale * _one_vs_rest(batch._replace(z=z), index, terms, num_classes)

    return value_and_grad_together(value)(batch, index, kernel)


def _one_vs_rest(batch: Batch, index: Array, terms: tuple[Term, ...], num_classes: int) -> Array:
    """Compute sum_l N_l/N MMD_l from the kernel sums r of each row over all rows and c over its class.

    With e_l the weights of class l and w those of all rows, the contrast of class l with the rest is
    u_l = (N / M_l) (e_l / N_l - w / N), so that

        MMD_l^2 = (N / M_l)^2 mean_{i in l} [ (c_i/N_l - r_i/N) - (r_i/N - k) ],   k = sum_i w_i r_i / N^2.

    The differences are taken per row, before the mean, since sums of the large terms would round away their
    small difference.
    """
    z, w, valid = batch
    r, c = pair_sums(z, w, index, terms)
    size, rest, present, total = class_sizes(batch, index, num_classes)
    overall = subtract_mean(r / total, w)
    own = c / size[index] - r / total
    mean = jax.ops.segment_sum(w * (own - overall), index, num_classes) / size
    root = _clipped_sqrt(mean)  # (M_l / N) MMD_l
    if num_classes == 2:  # both classes have the same discrepancy: that of the smaller class rounds less
        both = jnp.where(size[0] <= size[1], total / rest[0] * root[0], total / rest[1] * root[1])
        return jnp.where(present.all(), both, 0)
    losses = size / rest * root
    if few := len(w) // _RARE:
        # N / M_l multiplies the rounding of a class of nearly all rows: compute its loss from the few other
        # rows.
        largest = jnp.argmax(size)
        others = valid & (index != largest)
        picked = jnp.nonzero(others, size=few, fill_value=0)[0]
        v = jnp.where(jnp.arange(few) < others.sum(), w[picked], 0)
        own, _ = pair_sums(z[picked], v, jnp.zeros_like(index, shape=few), terms)
        own = own / rest[largest] - r[picked] / total
        mean = (v * (own - overall[picked])).sum() / rest[largest]
        is_rare = (others.sum() <= few) & (jnp.arange(num_classes) == largest)
        losses = jnp.where(is_rare, _clipped_sqrt(mean), losses)
    return jnp.where(present, losses, 0).sum()


def _clipped_sqrt(square: Array) -> Array:
    """Take the root of a mean that rounding may leave slightly negative; NaN stays."""
    return safe_sqrt(jnp.where(square < 0, 0, square))
