"""The MMD in random Fourier features: linear in the rows of a batch."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from privjax.distances import safe_sqrt
from privjax.kernels import Kernel, check_kernel, gaussian
from privjax.losses._inputs import Rows, labels, rows
from privjax.pairwise import as_one


def sin_cos(x: Array) -> tuple[Array, Array]:
    """Sine and cosine of x in one pass.

    XLA's own call the C library on a CPU, element by element, at several times the time. In float32 both
    are here polynomials of what is left of x after whole multiples of pi, right to an ulp of 1 or of x.
    """
    return _sin_cos(x) if x.dtype == jnp.float32 else (jnp.sin(x), jnp.cos(x))


# pi in three parts, the first two of so few digits that their products with small whole numbers are exact.
_PI = [201 / 64, 254 / 2**18]
_PI.append(math.pi - sum(_PI))


@jax.custom_jvp
def _sin_cos(x: Array) -> tuple[Array, Array]:
    halves = jnp.round(x / math.pi)
    for part in _PI:
        x = x - halves * part
    # From 1e7 on an ulp of x is more than a turn: any angle is as right as another, but none is above 1.
    x = jnp.clip(x, -2.0, 2.0)
    sign = 1 - 2 * (halves - 2 * jnp.floor(halves / 2))
    square = x * x

    def series(first):  # 1 - x^2 / (first (first+1)) (1 - x^2 / ((first+2) (first+3)) (1 - ...))
        total = jnp.ones_like(x)
        for n in range(first + 12, first - 1, -2):
            total = 1 - square * total * (1 / (n * (n + 1)))
        return total

    return sign * x * series(2), sign * series(1)


@_sin_cos.defjvp
def _sin_cos_jvp(primals, tangents):
    sin, cos = _sin_cos(*primals)
    return (sin, cos), (cos * tangents[0], -sin * tangents[0])


class FourierFeatures(NamedTuple):
    """Frequencies [d, m] and phases [m] of phi(z) = sqrt(2/m) cos(z @ frequencies + phases)."""

    frequencies: Array
    phases: Array

    def __call__(self, z: Array) -> Array:
        """phi(z) [n, m]: inner products of its rows approximate the kernel."""
        m = self.phases.shape[0]
        angles = jnp.matmul(z, self.frequencies.astype(z.dtype), precision="highest")
        return jnp.sqrt(2.0 / m).astype(z.dtype) * jnp.cos(angles + self.phases.astype(z.dtype)[None, :])


def random_fourier_features(
    key: Array,
    dim: int,
    *,
    num_features: int = 1000,
    kernel: Kernel = gaussian(),  # noqa: B008 (an immutable value)
) -> FourierFeatures:
    """Draw features whose inner products approximate a Gaussian or a mixture of Gaussians.

    Each feature belongs to one Gaussian of the mixture, in proportion to its weight; its frequency is
    normal with standard deviation 1/bandwidth. Draw once, and pass the same features to every step.

    Args:
      key: a `jax.random` key.
      dim: the width d of z.
      num_features: m; the paper's 1000 by default.
      kernel: `gaussian(...)`, `gaussian_mixture(...)` or a mixture of those.
    """
    if dim < 1 or num_features < 1:
        raise ValueError(f"dim and num_features must be positive, got {dim} and {num_features}")
    check_kernel("kernel", kernel)
    if any(t.kind != "gaussian" for t in kernel.terms):
        kinds = ", ".join(sorted({t.kind for t in kernel.terms} - {"gaussian"}))
        raise ValueError(f"kernel must be made of Gaussians with known bandwidths, got a {kinds} term")
    weights = np.array([float(t.weight) for t in kernel.terms])
    if not np.isclose(weights.sum(), 1):
        raise ValueError(f"kernel must be a mean of Gaussians, its weights add to {weights.sum()}")
    # Shares of the features by largest remainder: the mixture's weights, without a draw's noise.
    exact = weights * num_features
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: num_features - counts.sum()]] += 1
    bandwidths = jnp.concatenate([jnp.full(c, t.scale) for c, t in zip(counts, kernel.terms, strict=True)])
    normal, uniform = jax.random.split(key)
    frequencies = jax.random.normal(normal, (dim, num_features)) / bandwidths[None, :]
    return FourierFeatures(frequencies, jax.random.uniform(uniform, (num_features,)) * 2 * jnp.pi)


def rff_mmd_loss(
    z: ArrayLike,
    p: ArrayLike,
    *,
    features: FourierFeatures,
    num_classes: int | None = None,
    weights: ArrayLike | None = None,
) -> Array:
    """`mmd_loss` with the kernel's random Fourier approximation (the paper's (RF)MMD).

    sum_l N_l/N | mean_{i in l} phi(z_i) - mean_{i not in l} phi(z_i) |

    Args:
      z: released rows [n, d].
      p: class labels [n], or a one-hot matrix [n, l].
      features: drawn once by `random_fourier_features`.
      num_classes: number of classes; needed with integer labels under jit.
      weights: sample weights [n]; a row of weight 0 changes nothing.

    Returns:
      A scalar, at least float32.
    """
    batch = rows(z, weights)
    if not isinstance(features, FourierFeatures):
        raise TypeError("features must come from random_fourier_features(key, dim, ...)")
    if features.frequencies.ndim != 2 or features.frequencies.shape[0] != batch.z.shape[1]:
        raise ValueError(
            f"features are for z of width {features.frequencies.shape[0]}, got {batch.z.shape[1]}"
        )
    found = labels(p, batch, num_classes)
    return _rff_mmd(batch, found.of_row, found.broken, features, found.num_classes)


@partial(jax.jit, static_argnums=4)
def _rff_mmd(batch: Rows, index: Array, broken: Array, features, num_classes: int) -> Array:
    def value(batch, index, features):
        z, w, there = batch
        of_class = jax.nn.one_hot(index, num_classes, axis=0, dtype=z.dtype) * there[None, :]
        size = of_class @ w
        count = of_class.sum(1)
        present = (count > 0) & (count < count.sum())
        size = jnp.where(present, size, 1)
        total = jnp.where(w.sum() == 0, 1, w.sum())
        rest = jnp.where(present, _of_others(of_class @ w), 1)
        # A constant cancels, so phi(z) - phi(mean) will do: by cos a - cos b = -2 sin((a-b)/2) sin((a+b)/2)
        # it keeps its digits where the rows lie close together. One sine and cosine of (a-b)/2 give both.
        mean = jax.lax.stop_gradient(w @ z / total)
        half = 0.5 * jnp.matmul(
            jnp.where(there[:, None], z - mean[None, :], 0), features.frequencies, precision="highest"
        )
        sin, cos = sin_cos(half)
        phase = mean @ features.frequencies + features.phases

        def sums(x):
            return (of_class * w[None, :]) @ x

        turned = jnp.cos(phase)[None, :] * sums(sin * sin) + jnp.sin(phase)[None, :] * sums(sin * cos)
        # Less the mean of the rest, not N / M_l times less the mean of all: that would multiply the rounding.
        means = (turned / size[:, None] - _of_others(turned) / rest[:, None]) * -2
        means *= jnp.sqrt(2.0 / phase.shape[0])
        gap = safe_sqrt((means * means).sum(1))
        return jnp.where(present, size / total * gap, 0).sum()

    features = jax.tree.map(lambda a: jax.lax.stop_gradient(a).astype(batch.z.dtype), features)
    return as_one(value)(batch, index, features) + broken


def _of_others(sums: Array) -> Array:
    """Of sums by class [l, ...], the sum over all other classes; added up, as a difference would round."""
    before = jnp.cumsum(sums, 0)
    after = jnp.cumsum(sums[::-1], 0)[::-1]
    none = jnp.zeros_like(sums[:1])
    return jnp.concatenate([none, before[:-1]]) + jnp.concatenate([after[1:], none])
