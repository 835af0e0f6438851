"""Maximum mean discrepancy between each private class and the rest."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Shaped

from privjax.distances import by_differences, safe_sqrt
from privjax.kernels import Kernel, check_kernel, gaussian_mixture, normalise, resolve
from privjax.losses._inputs import Rows, labels, rows
from privjax.pairwise import as_one, pair_sums

_FEW = 16  # where fewer than one row in so many are of other classes, these are looked at by themselves


def mmd_loss(
    z: Float[ArrayLike, "n d"],
    p: Shaped[ArrayLike, " n"] | Shaped[ArrayLike, "n l"],
    *,
    kernel: Kernel = gaussian_mixture(),  # noqa: B008 (an immutable value)
    num_classes: int | None = None,
    weights: Shaped[ArrayLike, " n"] | None = None,
) -> Float[Array, ""]:
    r"""One-vs-rest maximum mean discrepancy of z given the class p (eq. MMD_obj).

    sum_l N_l/N ( p_l'Kp_l / N_l^2 + q_l'Kq_l / M_l^2 - 2 p_l'Kq_l / (N_l M_l) )^(1/2)

    with q_l = 1 - p_l and M_l = N - N_l: the biased estimate, square root kept. It is zero when every
    class has the same empirical distribution; on a finite batch its expectation is not, so look at
    `privacy_confidence` before reading much into a value. A class without rows, or without rows of any
    other class to compare it with, contributes nothing. Time and memory do not depend on the number of
    classes, and no array of all pairs is made.

    Args:
      z: released rows [n, d].
      p: class labels [n], or a one-hot matrix [n, l].
      kernel: see `privjax.kernels`; the paper's mixture of five Gaussians by default.
      num_classes: number of classes; needed with integer labels under jit.
      weights: sample weights [n], non-negative; a row of weight 0 changes nothing.

    Returns:
      A scalar, at least float32.
    """
    check_kernel("kernel", kernel)
    batch = rows(z, weights)
    found = labels(p, batch, num_classes)
    return _mmd(batch, found.of_row, found.broken, kernel, found.num_classes)


@partial(jax.jit, static_argnums=4)
def _mmd(batch: Rows, index: Array, broken: Array, kernel: Kernel, num_classes: int) -> Array:
    def value(batch, index, kernel):
        z, w, _ = batch
        kernel, scale = normalise(resolve(kernel, z, w), z)
        z = centred(batch, kernel)
        r, c = pair_sums(z, w, index, kernel)
        return scale * _one_vs_rest(r, c, batch._replace(z=z), index, kernel, num_classes)

    return as_one(value)(batch, index, kernel) + broken


def centred(batch: Rows, kernel: Kernel) -> Array:
    """Rows less their mean where distances come from products; rows of weight zero at the mean.

    Where they come from differences rows stay as they are: a shift could round the two sides of a
    difference differently once it is fused into them. Products of rows are not those of shifted rows, but
    where they enter as they are (order 1) centring the kernel takes the difference away.
    """
    z, w, there = batch
    orders = [t.order for t in kernel.terms if t.kind == "polynomial"]
    if orders and max(orders) > 1:
        return z
    mean = jax.lax.stop_gradient(w @ z / jnp.where(w.sum() == 0, 1, w.sum()))
    if by_differences(len(z), *z.shape) and not orders:
        return jnp.where(there[:, None], z, mean[None, :])
    return jnp.where(there[:, None], z - mean[None, :], 0)


def _one_vs_rest(r: Array, c: Array, batch: Rows, index: Array, kernel: Kernel, num_classes: int) -> Array:
    """sum_l N_l/N MMD_l from the kernel sums of each row: over all rows (r), over its class (c).

    With e_l the weights of class l and w those of all rows, the contrast of class l with the rest is
    u_l = (N / M_l) (e_l / N_l - w / N), so that

        MMD_l^2 = (N / M_l)^2 mean_{i in l} [ (c_i/N_l - r_i/N) - (r_i/N - k) ],   k = sum_i w_i r_i / N^2.

    The differences are taken per row, before the mean: they are what is left after the large terms
    cancel, and the sum of the large terms would drown them. N / M_l multiplies what rounding left, so a
    class of nearly all rows is told by the few others.
    """
    w = batch.weights
    each = partial(jax.ops.segment_sum, segment_ids=index, num_segments=num_classes)
    size = each(w)
    before = jnp.cumsum(size) - size
    after = jnp.cumsum(size[::-1])[::-1] - size
    rest = before + after
    count = each(batch.there.astype(jnp.int32))
    present = (count > 0) & (count < count.sum())
    total = jnp.where(w.sum() == 0, 1, w.sum())
    size, rest = jnp.where(present, size, 1), jnp.where(present, rest, 1)

    overall = r / total
    for _ in range(2):  # the second pass takes away the rounding of the first
        overall = overall - (w @ overall) / total
    own = c / size[index] - r / total
    mean = each(w * (own - overall)) / size
    # (N_l / N) (N / M_l) sqrt(mean). Rounding may leave a zero slightly negative; NaN must stay.
    root = safe_sqrt(jnp.where(mean < 0, 0, mean))
    if num_classes == 2:  # both have the same discrepancy: that of the smaller class is the better told
        both = jnp.where(size[0] <= size[1], total / rest[0] * root[0], total / rest[1] * root[1])
        return jnp.where(present.all(), both, 0)
    terms = size / rest * root
    if few := len(w) // _FEW:
        largest = jnp.argmax(size)
        others = batch.there & (index != largest)
        picked = jnp.nonzero(others, size=few, fill_value=0)[0]
        v = jnp.where(jnp.arange(few) < others.sum(), w[picked], 0)
        own, _ = pair_sums(batch.z[picked], v, jnp.zeros_like(index, shape=few), kernel)
        own = own / rest[largest] - r[picked] / total
        mean = (v * (own - overall[picked])).sum() / rest[largest]
        instead = (others.sum() <= few) & (jnp.arange(num_classes) == largest)
        terms = jnp.where(instead, safe_sqrt(jnp.where(mean < 0, 0, mean)), terms)
    return jnp.where(present, terms, 0).sum()
