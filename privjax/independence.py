"""How confident may one be that z is independent of p? Definition 1 of the paper as a permutation test."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from privjax.distances import safe_sqrt
from privjax.kernels import Kernel, check_kernel, gaussian_mixture, normalise, resolve
from privjax.losses import discriminant_information, kdi_loss, mmd_loss, rff_mmd_loss
from privjax.losses._gram import centred_kernel
from privjax.losses._inputs import Rows, as_array, labels, matrix, positive, rows
from privjax.losses.kdi import ridge_at_least
from privjax.losses.mmd import centred

CHUNK_BYTES = 1 << 28  # what the permutations in flight may hold
TIE = 1e-5  # statistics closer than this, relatively, differ by rounding alone


class Confidence(NamedTuple):
    """Result of `privacy_confidence`.

    Attributes:
      statistic: the statistic of z and p as they are.
      p_value: (1 + permutations at least as large) / (1 + permutations). Small: z tells about p. It is
        never zero, and where z is independent of p it is uniform.
      permuted: the statistic under each permutation, [num_permutations].
    """

    statistic: Array
    p_value: Array
    permuted: Array


def privacy_confidence(
    z: ArrayLike,
    p: ArrayLike,
    *,
    key: Array,
    num_permutations: int = 1000,
    statistic: Callable[[Array, Array], Array] | None = None,
    num_classes: int | None = None,
) -> Confidence:
    """Permutation test of "z is independent of p" (Definition 1): confidence is P[D >= observed].

    Rows of p are shuffled against those of z, which makes them independent and leaves both marginals as
    they are. A small p-value is evidence of leakage; a large one says only that this statistic, on these
    rows, saw none. Rows must be exchangeable: overlapping windows of one signal are not.

    Args:
      z: released rows [n, d].
      p: class labels [n], or a real matrix [n, l].
      key: a `jax.random` key.
      num_permutations: how many shuffles; the smallest possible p-value is 1 / (1 + num_permutations).
      statistic: a function (z, p) -> scalar, large under dependence, to which labels come as a one-hot
        matrix: a closed-form loss such as
        `mmd_loss`, `kdi_loss` or `functools.partial(rff_mmd_loss, features=...)`, or one of your own. By
        default `mmd_loss` for classes and `kdi_loss` with rho = 1 for a continuous p, which sees what tells
        about the mean of p: add columns such as p^2 to p to look further. What depends on z
        alone is computed once for `mmd_loss` and `kdi_loss` (and `functools.partial` of them).
      num_classes: number of classes; needed with integer labels under jit.
    """
    if not isinstance(num_permutations, (int, np.integer)) or num_permutations < 1:
        raise ValueError(f"num_permutations must be an integer of at least 1, got {num_permutations}")
    if statistic is not None and not callable(statistic):
        raise TypeError(f"statistic must be a function (z, p) -> scalar, got {statistic!r}")
    given = as_array(p)
    if statistic is None:
        # At the ridge of training a regression interpolates a small sample, shuffled or not.
        statistic = mmd_loss if _discrete(given) else functools.partial(kdi_loss, rho=1.0)
    loss, options = _split(statistic)
    # Inside the test they are traced, and can no longer be looked at.
    if "rho" in options:
        positive("rho", options["rho"])
    if "kernel" in options:
        check_kernel("kernel", options["kernel"])
    num_classes = options.pop("num_classes", num_classes)
    weights = options.pop("weights", None)
    batch = rows(z, weights)
    n, d = batch.z.shape
    prepared = loss in (mmd_loss, kdi_loss) and 4 * n * n <= CHUNK_BYTES and weights is None
    if weights is not None:
        options["weights"] = batch.weights
    if given.ndim == 1 or loss is mmd_loss:
        found = labels(given, batch, num_classes)
        p, broken = jax.nn.one_hot(found.of_row, found.num_classes, dtype=batch.z.dtype), found.broken
    else:
        p, broken = matrix(given, batch, num_classes)[0], 0.0
    chunk = max(1, min(num_permutations, CHUNK_BYTES // (8 * n * (p.shape[1] + d)), 64))
    return _test(batch, p, broken, key, options, loss, prepared, num_permutations, chunk)


@functools.partial(jax.jit, static_argnums=(5, 6, 7, 8))
def _test(batch, p, broken, key, options, loss, prepared, num_permutations, chunk) -> Confidence:
    if prepared:  # what depends on z alone, once
        of_p = (_mmd_of if loss is mmd_loss else _kdi_of)(batch, **options)
    else:
        of_p = functools.partial(loss, batch.z, **options)
    # Rows of weight zero keep their p: what is in the sums is shuffled among itself.
    counted = jnp.argsort(~batch.there, stable=True)

    def shuffled(key):
        bits = jnp.where(batch.there, jax.random.bits(key, p.shape[:1]), np.uint32(2**32 - 1))
        return of_p(p.at[counted].set(p[jnp.argsort(bits, stable=True)]))

    observed = of_p(p) + broken
    keys = jax.random.split(key, (-(-num_permutations // chunk), chunk))
    permuted = jax.lax.map(jax.vmap(shuffled), keys).ravel()[:num_permutations]
    exceed = (permuted >= observed - TIE * jnp.abs(observed)).sum()
    p_value = (1 + exceed) / (1 + num_permutations)
    return Confidence(observed, jnp.where(jnp.isnan(observed), jnp.nan, p_value), permuted)


def _split(statistic: Callable) -> tuple[Callable, dict[str, Any]]:
    """A loss of this library and its options, which may be arrays; any other function stays whole."""
    ours = (mmd_loss, kdi_loss, rff_mmd_loss, discriminant_information)
    if isinstance(statistic, functools.partial) and statistic.func in ours and not statistic.args:
        return statistic.func, dict(statistic.keywords)
    return statistic, {}


def _mmd_of(batch: Rows, *, kernel: Kernel = gaussian_mixture()) -> Callable[[Array], Array]:  # noqa: B008
    """mmd_loss as a function of p: sum_l sqrt(p_l' Kc p_l) / (N - N_l), with Kc the centred kernel."""
    k, _, scale = _centred_kernel(batch, kernel)
    n = batch.z.shape[0]

    def value(p):
        size = p.sum(0)
        present = (size > 0) & (size < n)
        form = _quadratic(k, p)
        gap = safe_sqrt(jnp.where(form < 0, 0, form)) / jnp.where(present, n - size, 1)
        return scale * jnp.where(present, gap, 0).sum()

    return value


def _kdi_of(
    batch: Rows,
    *,
    kernel: Kernel = gaussian_mixture(),  # noqa: B008
    rho: float | Array = 1e-4,
) -> Callable[[Array], Array]:
    """kdi_loss as a function of p: tr(p' Kc (Kc + rho)^-1 p)."""
    k, size, scale = _centred_kernel(batch, kernel)
    h = k + ridge_at_least(len(k), size, rho / scale / scale) * jnp.eye(k.shape[0], dtype=k.dtype)
    explained = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(h), True), k)
    return lambda p: _quadratic(explained, p - p.mean(0, keepdims=True)).sum()


def _centred_kernel(batch: Rows, kernel: Kernel) -> tuple[Array, Array, Array | float]:
    kernel, scale = normalise(resolve(kernel, batch.z), batch.z)
    n = batch.z.shape[0]
    return *centred_kernel(centred(batch, kernel), jnp.full(n, 1 / n, batch.z.dtype), kernel), scale


def _quadratic(k: Array, p: Array) -> Array:
    """p_l' k p_l of every column l."""
    return (p * jnp.matmul(k, p, precision="highest")).sum(0)


def _discrete(p: Array) -> bool:
    if p.ndim == 1:
        return True
    try:
        return bool((((p == 0) | (p == 1)).all(1) & ((p == 1).sum(1) == 1)).all())
    except jax.errors.ConcretizationTypeError as error:
        raise ValueError(
            "statistic is needed when p is a traced matrix: pass mmd_loss for classes, kdi_loss otherwise"
        ) from error
