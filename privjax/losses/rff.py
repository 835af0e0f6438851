"""Maximum mean discrepancy in random Fourier features: linear in the rows of a batch."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Shaped

from privjax.kernels import Kernel, check_kernel, gaussian
from privjax.losses.checks import Batch, Weights, check_batch, check_labels, class_sizes, sum_of_others
from privjax.numerics import matmul, safe_sqrt, value_and_grad_together

_PAPER_KERNEL = gaussian()


class FourierFeatures(NamedTuple):
    """The feature map phi(z) = sqrt(2/m) cos(z @ frequencies + phases), drawn by `random_fourier_features`.

    Attributes:
      frequencies: Array [d, m].
      phases: Array [m].
    """

    frequencies: Float[Array, "d m"]
    phases: Float[Array, " m"]

    def __call__(self, z: Float[Array, "n d"]) -> Float[Array, "n m"]:
        """Compute phi(z), whose inner products approximate the kernel."""
        frequencies, phases = (jnp.asarray(a, z.dtype) for a in self)
        return math.sqrt(2 / len(phases)) * jnp.cos(matmul(z, frequencies) + phases[None, :])


def random_fourier_features(
    key: Array, dim: int, *, num_features: int = 1000, kernel: Kernel = _PAPER_KERNEL
) -> FourierFeatures:
    """Draw features whose inner products approximate a Gaussian kernel or a mixture of Gaussians.

    Each feature belongs to one Gaussian of the mixture, in proportion to its weight, and its frequency is
    normal with standard deviation 1 / bandwidth. Draw once and pass the same features to every step: fresh
    features per step would add their noise to the gradient.

    Args:
      key: A `jax.random` key.
      dim: The width d of z.
      num_features: The number m of features. Default: that of the paper.
      kernel: `gaussian(...)`, `gaussian_mixture(...)` or a mixture of these with weights that add up to one.

    Returns:
      The features.

    Example:
      >>> import jax, jax.numpy as jnp, privjax
      >>> phi = privjax.random_fourier_features(jax.random.key(0), dim=2, num_features=10_000)
      >>> z = jnp.array([[0.0, 0.0], [1.0, 0.0]])
      >>> jnp.abs(phi(z) @ phi(z).T - privjax.gaussian()(z)).max() < 0.05
      Array(True, dtype=bool)
    """
    if dim < 1 or num_features < 1:
        raise ValueError(f"dim and num_features must be positive, got {dim} and {num_features}.")
    check_kernel("kernel", kernel)
    if any(t.kind != "gaussian" or t.relative for t in kernel.terms):
        raise ValueError(f"kernel must consist of Gaussians with known bandwidths, got {kernel}.")
    weights = np.array([float(t.weight) for t in kernel.terms])
    if not np.isclose(weights.sum(), 1):
        raise ValueError(f"kernel must be a mean of Gaussians, but its weights add up to {weights.sum()}.")
    # Allot features by largest remainder: exact proportions, without the noise of a draw.
    exact = weights * num_features
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: num_features - counts.sum()]] += 1
    bandwidths = jnp.concatenate([jnp.full(c, t.scale) for c, t in zip(counts, kernel.terms, strict=True)])
    normal, uniform = jax.random.split(key)
    frequencies = jax.random.normal(normal, (dim, num_features)) / bandwidths[None, :]
    return FourierFeatures(frequencies, jax.random.uniform(uniform, (num_features,)) * 2 * jnp.pi)


def rff_mmd_loss(
    z: Float[ArrayLike, "n d"],
    p: Shaped[ArrayLike, "n ..."],
    *,
    features: FourierFeatures,
    num_classes: int | None = None,
    weights: Weights = None,
) -> Float[Array, ""]:
    """Compute `mmd_loss` with the random Fourier approximation of its kernel.

        sum_l N_l/N | mean_{i in l} phi(z_i) - mean_{i not in l} phi(z_i) |

    The cost is linear in the rows, where that of `mmd_loss` is quadratic. The error falls with the square
    root of the number of features. A class without rows contributes nothing.

    Args:
      z: Released rows.
      p: Class labels [n], or a one-hot matrix [n, l].
      features: Drawn once by `random_fourier_features`.
      num_classes: Number of classes; needed with integer labels under jit.
      weights: Non-negative weights of the rows; a row of weight 0 changes nothing.

    Returns:
      The loss, at least float32.

    Example:
      >>> import jax, jax.numpy as jnp, privjax
      >>> features = privjax.random_fourier_features(jax.random.key(0), dim=1)
      >>> z = jnp.array([[0.0], [1.0], [0.0], [1.0]])
      >>> float(privjax.rff_mmd_loss(z, jnp.array([0, 0, 1, 1]), features=features))
      0.0
    """
    batch = check_batch(z, weights)
    if not isinstance(features, FourierFeatures):
        raise TypeError("features must come from random_fourier_features(key, dim, ...).")
    if features.frequencies.ndim != 2 or features.frequencies.shape[0] != batch.z.shape[1]:
        raise ValueError(
            f"features are for z of width {features.frequencies.shape[0]}, got {batch.z.shape[1]}."
        )
    labels = check_labels(p, batch, num_classes)
    return _rff_mmd(batch, labels.classes, features, labels.num_classes) + labels.nan_flag


@partial(jax.jit, static_argnums=3)
def _rff_mmd(batch: Batch, index: Array, features: FourierFeatures, num_classes: int) -> Array:
    def value(batch, index, features):
        z, w, valid = batch
        size, rest, present, total = class_sizes(batch, index, num_classes)
        # A constant cancels, so phi(z) - phi(mean) serves as well. With cos a - cos b = -2 sin((a-b)/2)
        # sin((a+b)/2) it keeps its digits for rows close together, and needs one sine and cosine of (a-b)/2.
        mean = jax.lax.stop_gradient(w @ z / total)
        sin, cos = sin_cos(
            0.5 * matmul(jnp.where(valid[:, None], z - mean[None, :], 0), features.frequencies)
        )
        phase = mean @ features.frequencies + features.phases
        of_class = jax.nn.one_hot(index, num_classes, axis=0, dtype=z.dtype) * w[None, :]
        sums = jnp.cos(phase)[None, :] * (of_class @ (sin * sin))
        sums += jnp.sin(phase)[None, :] * (of_class @ (sin * cos))
        gap = -2 * math.sqrt(2 / len(phase)) * (sums / size[:, None] - sum_of_others(sums) / rest[:, None])
        return jnp.where(present, size / total * safe_sqrt((gap * gap).sum(1)), 0).sum()

    features = jax.tree.map(lambda a: jax.lax.stop_gradient(a).astype(batch.z.dtype), features)
    return value_and_grad_together(value)(batch, index, features)


# pi in three parts. Products of the first two with small whole numbers are exact.
_PI = [201 / 64, 254 / 2**18]
_PI.append(math.pi - sum(_PI))


@jax.custom_jvp
def sin_cos(x: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Compute sine and cosine in one pass.

    XLA's CPU code calls the C library for each element, which takes ten times as long. In float32 both are
    polynomials of the remainder of x after whole multiples of pi, right to an ulp of 1 or of x.
    """
    if x.dtype != jnp.float32:
        return jnp.sin(x), jnp.cos(x)
    halves = jnp.round(x / math.pi)
    for part in _PI:
        x = x - halves * part
    # Beyond 1e7 an ulp of x exceeds a turn: every angle is equally right, but no result may exceed 1.
    x = jnp.clip(x, -2.0, 2.0)
    sign = 1 - 2 * (halves - 2 * jnp.floor(halves / 2))
    square = x * x

    def series(first):  # 1 - x^2 / (first (first+1)) (1 - x^2 / ((first+2) (first+3)) (1 - ...))
        total = jnp.ones_like(x)
        for n in range(first + 12, first - 1, -2):
            total = 1 - square * total * (1 / (n * (n + 1)))
        return total

    return sign * x * series(2), sign * series(1)


@sin_cos.defjvp
def _sin_cos_jvp(primals, tangents):
    sin, cos = sin_cos(*primals)
    return (sin, cos), (cos * tangents[0], -sin * tangents[0])
