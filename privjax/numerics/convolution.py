"""A 3 x 3 convolution followed by 2 x 2 max pooling, fast on CPUs too.

XLA's CPU gradients of convolution and pooling are several times slower than matrix products of the same size.
On a CPU both are therefore one matrix product per block of images, with blocks small enough for the cache.
Accelerators use XLA's own operations.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.ad_checkpoint import checkpoint_name
from jax.typing import ArrayLike
from jaxtyping import Float, Num

_BLOCK_BYTES = 4 << 20  # patches and outputs of a block of images: one core's share of the cache


def convolve_and_pool(
    x: Num[ArrayLike, "n h w c"], kernel: Num[ArrayLike, "3 3 c filters"], *, implementation: str = "auto"
) -> Float[Array, "n h//2 w//2 filters"]:
    """Convolve images with zero padding and take the maximum of each 2 x 2 square.

    Args:
      x: Images; the last row or column of an odd side is not pooled.
      kernel: Filters.
      implementation: "native" (XLA's operations), "blocked" (matrix products) or "auto": blocked if JAX's
      default
        backend is a CPU at trace time.
    """
    x, kernel = _promote(x, kernel)
    if not _is_blocked(implementation):
        return _native_pool(_native(x, kernel))
    h, w, c = x.shape[1:]
    return _map_blocks(_convolve_and_pool_block, x, kernel, h * w * (9 * c + kernel.shape[-1]))


def convolve_and_pool_combined(
    z: Num[ArrayLike, "n k"],
    basis: Num[ArrayLike, "k h w c"],
    kernel: Num[ArrayLike, "3 3 c filters"],
    *,
    implementation: str = "auto",
) -> Float[Array, "n h//2 w//2 filters"]:
    """Apply `convolve_and_pool` to the images sum_k z[:, k] basis[k], of which there are more than k.

    Convolution is linear: convolve the basis once, then combine the results.

    Args:
      z: Coordinates of the images.
      basis: Basis images.
      kernel: Filters.
      implementation: As for `convolve_and_pool`.
    """
    z, basis, kernel = _promote(z, basis, kernel)
    k, h, w, _ = basis.shape
    filters = kernel.shape[-1]
    if not _is_blocked(implementation):
        convolved = _native(basis, kernel)
        return _native_pool((z @ convolved.reshape(k, -1)).reshape(-1, *convolved.shape[1:]))
    convolved = _patches(basis) @ kernel.reshape(-1, filters)
    # The four pixels of a square come first, so that pooling compares contiguous runs.
    convolved = convolved[:, : h // 2 * 2, : w // 2 * 2].reshape(k, h // 2, 2, w // 2, 2, filters)
    convolved = convolved.transpose(0, 2, 4, 1, 3, 5).reshape(k, -1)
    y = _map_blocks(_combine_and_pool_block, z, convolved, convolved.shape[1])
    return y.reshape(-1, h // 2, w // 2, filters)


def _promote(*arrays: ArrayLike) -> list[Array]:
    """Images may be bytes or half precision while kernels are float32."""
    dtype = jnp.result_type(*arrays)
    return [jnp.asarray(a, dtype) for a in arrays]


def _is_blocked(implementation: str) -> bool:
    if implementation == "auto":
        return jax.default_backend() == "cpu"
    if implementation not in ("native", "blocked"):
        raise ValueError(f"implementation must be 'auto', 'native' or 'blocked', got {implementation!r}.")
    return implementation == "blocked"


def _map_blocks(function: Callable, rows: Array, shared: Array, numbers: int) -> Array:
    """Apply `function(rows of a block, shared)` block by block; each row needs memory for `numbers` entries.

    The backward pass recomputes everything but the choice of the largest pixels: patches are nine times the
    images.
    """
    n = len(rows)
    size = max(1, min(n, _BLOCK_BYTES // (numbers * rows.dtype.itemsize)))
    size = max(1, -(-n // max(1, -(-n // size))))  # blocks of even size have the least padding
    padded = jnp.pad(rows, [(0, -n % size)] + [(0, 0)] * (rows.ndim - 1))
    policy = jax.checkpoint_policies.save_only_these_names("largest")
    apply = jax.checkpoint(lambda block: function(block, shared), policy=policy, prevent_cse=False)
    blocks = lax.map(apply, padded.reshape(-1, size, *rows.shape[1:]))
    return blocks.reshape(-1, *blocks.shape[2:])[:n]


def _native(x: Array, kernel: Array) -> Array:
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _native_pool(y: Array) -> Array:
    square = (1, 2, 2, 1)
    return lax.reduce_window(y, -jnp.inf, lax.max, square, square, "VALID")


def _convolve_and_pool_block(x: Array, kernel: Array) -> Array:
    h, w = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    filters = kernel.shape[-1]
    patches = _patches(x)[:, :h, :w]
    y = patches.reshape(-1, patches.shape[-1]) @ kernel.reshape(-1, filters)
    return _pool_squares(y.reshape(-1, h // 2, 2, w // 2, 2, filters))


def _combine_and_pool_block(z: Array, convolved: Array) -> Array:
    return _pool_squares((z @ convolved).reshape(len(z), 1, 2, 1, 2, -1))


def _patches(x: Array) -> Array:
    """Gather the 3 x 3 neighbourhood of each pixel, [n, h, w, 9 c]."""
    h, w = x.shape[1:3]
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return jnp.concatenate([x[:, i : i + h, j : j + w] for i in range(3) for j in range(3)], -1)


@jax.custom_vjp
def _pool_squares(y: Float[Array, "n h 2 w 2 f"]) -> Float[Array, "n h w f"]:
    """Take the maximum of each square; of equal pixels the first gets the gradient, as in XLA's own."""
    return _pool_squares_forward(y)[0]


def _pool_squares_forward(y):
    a, b, c, d = y[:, :, 0, :, 0], y[:, :, 0, :, 1], y[:, :, 1, :, 0], y[:, :, 1, :, 1]
    top, bottom = jnp.maximum(a, b), jnp.maximum(c, d)
    which = jnp.where(bottom > top, 2 + (d > c).astype(jnp.uint8), (b > a).astype(jnp.uint8))
    return jnp.maximum(top, bottom), checkpoint_name(which, "largest")


def _pool_squares_backward(which, g):
    pixel = jnp.arange(4, dtype=jnp.uint8).reshape(1, 1, 2, 1, 2, 1)
    which, g = (a[:, :, None, :, None, :] for a in (which, g))
    return (jnp.where(which == pixel, g, 0),)


_pool_squares.defvjp(_pool_squares_forward, _pool_squares_backward)
