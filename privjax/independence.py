"""Permutation test of independence between z and the private variable (Definition 1 of the paper)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Shaped

from privjax.kernels import DEFAULT_KERNEL, Kernel, Scalar, check_kernel, positive, prepare
from privjax.losses import discriminant_information, kdi_loss, mmd_loss, rff_mmd_loss
from privjax.losses.checks import Batch, check_batch, check_labels, check_matrix, is_one_hot, to_array
from privjax.numerics import matmul, nonzero, safe_sqrt, subtract_mean
from privjax.numerics.sums import centred_gram, ridge_floor

CHUNK_BYTES = 1 << 28  # memory of the permutations that are evaluated together
TIE = 1e-5  # a smaller relative difference between two statistics is rounding


class Statistic(Protocol):
    """A measure of dependence between z and p, large under dependence."""

    def __call__(self, z: Float[Array, "n d"], p: Float[Array, "n l"], /) -> Float[Array, ""]:
        """Compute the statistic; class labels arrive as a one-hot matrix p."""
        ...


class Confidence(NamedTuple):
    """Result of `privacy_confidence`.

    Attributes:
      statistic: The statistic of z and p.
      p_value: (1 + permutations with at least that statistic) / (1 + permutations). A small value is evidence
      that z
        depends on p. It is never zero, and uniform if z is independent of p.
      permuted: The statistic of each permutation [num_permutations].
    """

    statistic: Float[Array, ""]
    p_value: Float[Array, ""]
    permuted: Float[Array, " k"]


def privacy_confidence(
    z: Float[ArrayLike, "n d"],
    p: Shaped[ArrayLike, "n ..."],
    *,
    key: Array,
    num_permutations: int = 1000,
    statistic: Statistic | None = None,
    num_classes: int | None = None,
) -> Confidence:
    """Test the hypothesis that z is independent of p by permutations: the confidence is P[D >= observed].

    Shuffling the rows of p against those of z makes them independent and keeps both marginal distributions. A
    small p-value is evidence of leakage. A large one says only that this statistic saw none in these rows.
    Rows must be exchangeable, which overlapping windows of one signal are not.

    Args:
      z: Released rows.
      p: Class labels [n], or a real matrix [n, l].
      key: A `jax.random` key.
      num_permutations: Number of permutations; the smallest possible p-value is 1 / (1 + num_permutations).
      statistic: A function (z, p) -> scalar, such as `mmd_loss` or `functools.partial(rff_mmd_loss,
        features=...)`. Default: `mmd_loss` for classes, and for continuous p `kdi_loss` with rho = 1, which
        sees dependence of the mean of p; append columns such as p^2 to see more. `mmd_loss` and `kdi_loss`
        compute their kernel matrix once.
      num_classes: Number of classes; needed with integer labels under jit.

    Returns:
      The statistic, its p-value and the statistics of the permutations.

    Example:
      >>> import jax, jax.numpy as jnp, privjax
      >>> z, s = jnp.linspace(0, 1, 20)[:, None], jnp.repeat(jnp.arange(2), 10)
      >>> result = privjax.privacy_confidence(z, s, key=jax.random.key(0), num_permutations=99)
      >>> round(float(result.p_value), 2)
      0.01
    """
    if not isinstance(num_permutations, (int, np.integer)) or num_permutations < 1:
        raise ValueError(f"num_permutations must be an integer of at least 1, got {num_permutations}.")
    if statistic is not None and not callable(statistic):
        raise TypeError(f"statistic must be a function (z, p) -> scalar, got {statistic!r}.")
    given = to_array(p)
    if statistic is None:
        # With the small ridge of training, a regression interpolates a small sample, shuffled or not.
        statistic = mmd_loss if _is_discrete(given) else functools.partial(kdi_loss, rho=1.0)
    loss, options = _split_partial(statistic)
    # Inside of the test the options are traced and can no longer be checked.
    if "rho" in options:
        positive("rho", options["rho"])
    if "kernel" in options:
        check_kernel("kernel", options["kernel"])
    num_classes = options.pop("num_classes", num_classes)
    weights = options.pop("weights", None)
    batch = check_batch(z, weights)
    n, d = batch.z.shape
    prepare = None if 4 * n * n > CHUNK_BYTES or weights is not None else _PREPARED.get(loss)
    if weights is not None:
        options["weights"] = batch.weights
    if given.ndim == 1 or loss is mmd_loss:
        labels = check_labels(given, batch, num_classes)
        p, nan_flag = jax.nn.one_hot(labels.classes, labels.num_classes, dtype=batch.z.dtype), labels.nan_flag
    else:
        p, nan_flag = check_matrix(given, batch, num_classes)[0], 0.0
    chunk = max(1, min(num_permutations, CHUNK_BYTES // (8 * n * (p.shape[1] + d)), 64))
    return _test(batch, p, nan_flag, key, options, loss, prepare, num_permutations, chunk)


@functools.partial(jax.jit, static_argnums=(5, 6, 7, 8))
def _test(
    batch: Batch,
    p: Array,
    nan_flag: Array | float,
    key: Array,
    options: dict[str, Any],
    loss: Callable[..., Array],
    prepare: Callable[..., Callable[[Array], Array]] | None,
    num_permutations: int,
    chunk: int,
) -> Confidence:
    of_p = prepare(batch, **options) if prepare else functools.partial(loss, batch.z, **options)
    # Rows of weight zero keep their p: only rows that count are shuffled among themselves.
    counted = jnp.argsort(~batch.valid, stable=True)

    def shuffled(key):
        bits = jnp.where(batch.valid, jax.random.bits(key, p.shape[:1]), np.uint32(2**32 - 1))
        return of_p(p.at[counted].set(p[jnp.argsort(bits, stable=True)]))

    observed = of_p(p) + nan_flag
    keys = jax.random.split(key, (-(-num_permutations // chunk), chunk))
    permuted = jax.lax.map(jax.vmap(shuffled), keys).ravel()[:num_permutations]
    exceed = (permuted >= observed - TIE * jnp.abs(observed)).sum()
    p_value = (1 + exceed) / (1 + num_permutations)
    return Confidence(observed, jnp.where(jnp.isnan(observed), jnp.nan, p_value), permuted)


def _split_partial(statistic: Statistic) -> tuple[Callable, dict[str, Any]]:
    """Separate a loss of this library from its options, which may be arrays; keep other functions whole."""
    losses = (mmd_loss, kdi_loss, rff_mmd_loss, discriminant_information)
    if isinstance(statistic, functools.partial) and statistic.func in losses and not statistic.args:
        return statistic.func, dict(statistic.keywords)
    return statistic, {}


def _prepare_mmd(batch: Batch, *, kernel: Kernel = DEFAULT_KERNEL) -> Callable[[Array], Array]:
    """Give mmd_loss as a function of p: sum_l sqrt(p_l' Kc p_l) / (N - N_l), Kc the centred kernel matrix."""
    k, _, scale = _centred_kernel(batch, kernel)

    def value(p):
        rest = len(p) - p.sum(0)
        present = (p.sum(0) > 0) & (rest > 0)
        form = _quadratic(k, p)
        gap = safe_sqrt(jnp.where(form < 0, 0, form)) / nonzero(rest)
        return scale * jnp.where(present, gap, 0).sum()

    return value


def _prepare_kdi(
    batch: Batch, *, kernel: Kernel = DEFAULT_KERNEL, rho: Scalar = 1e-4
) -> Callable[[Array], Array]:
    """Give kdi_loss as a function of p: tr(p' Kc (Kc + rho)^-1 p)."""
    k, size, scale = _centred_kernel(batch, kernel)
    h = k + ridge_floor(len(k), size, rho / scale / scale) * jnp.eye(len(k), dtype=k.dtype)
    explained = jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(h), True), k)
    return lambda p: _quadratic(explained, subtract_mean(p, batch.weights)).sum()


_PREPARED = {mmd_loss: _prepare_mmd, kdi_loss: _prepare_kdi}


def _centred_kernel(batch: Batch, kernel: Kernel) -> tuple[Array, Array, Scalar]:
    z, terms, scale = prepare(kernel, *batch)
    return *centred_gram(z, batch.weights / batch.weights.sum(), terms), scale


def _quadratic(k: Array, p: Array) -> Array:
    """Compute p_l' k p_l of every column l."""
    return (p * matmul(k, p)).sum(0)


def _is_discrete(p: Array) -> bool:
    if p.ndim == 1:
        return True
    try:
        return bool(is_one_hot(p).all())
    except jax.errors.ConcretizationTypeError as error:
        raise ValueError(
            "statistic is needed when p is a traced matrix: pass mmd_loss for classes, kdi_loss otherwise."
        ) from error
