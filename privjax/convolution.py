"""A 3 x 3 convolution followed by 2 x 2 max-pooling, fast on CPUs too.

XLA's CPU gradients of convolution and of pooling are several times slower than the products they
stand for, so on a CPU both are done here as one matrix product a block of images, small enough to
stay in cache. Accelerators keep XLA's own operations.

Images that are combinations of a few need no convolution of their own: it is linear, so that of the few is
combined instead.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

# Room for the patches and the outputs of a block of images: a core's share of the cache.
_BLOCK_BYTES = 4 << 20


def convolve_and_pool(x: Array, kernel: Array, *, implementation: str = "auto") -> Array:
    """max-pool(x * kernel): padded to the same size, then the maximum of each 2 x 2 square.

    Args:
      x: images [n, h, w, c]; of odd sides the last row or column is not pooled.
      kernel: [3, 3, c, filters].
      implementation: "native" (XLA's convolution), "blocked" (matrix products) or "auto":
        blocked when JAX's default backend is a CPU at trace time.

    Returns:
      [n, h // 2, w // 2, filters].
    """
    x, kernel = _of_one_type(x, kernel)
    if not _is_blocked(implementation):
        return _native_pool(_native(x, kernel))
    h, w, c = x.shape[1:]
    blocks = _in_blocks(x, h * w * (9 * c + kernel.shape[-1]))
    y = _blocked(blocks, kernel)
    return y.reshape(-1, *y.shape[2:])[: len(x)]


def convolve_and_pool_combined(
    z: Array, basis: Array, kernel: Array, *, implementation: str = "auto"
) -> Array:
    """`convolve_and_pool` of the images sum_k z[:, k] basis[k], for fewer images in the basis than rows.

    Args:
      z: coordinates [n, k].
      basis: images [k, h, w, c].
      kernel: [3, 3, c, filters].
      implementation: as for `convolve_and_pool`.

    Returns:
      [n, h // 2, w // 2, filters].
    """
    z, basis, kernel = _of_one_type(z, basis, kernel)
    k, h, w, _ = basis.shape
    filters = kernel.shape[-1]
    if not _is_blocked(implementation):
        few = _native(basis, kernel)
        return _native_pool((z @ few.reshape(k, -1)).reshape(-1, *few.shape[1:]))
    few = _patches(basis) @ kernel.reshape(-1, filters)
    # The four pixels of a square come first, so that pooling compares whole runs.
    few = few[:, : h // 2 * 2, : w // 2 * 2].reshape(k, h // 2, 2, w // 2, 2, filters)
    few = few.transpose(0, 2, 4, 1, 3, 5).reshape(k, -1)
    y = _combined(_in_blocks(z, few.shape[1]), few)
    return y.reshape(-1, h // 2, w // 2, filters)[: len(z)]


def _of_one_type(*arrays: Array) -> list[Array]:
    """As images of bytes or of half precision meet kernels of single precision."""
    dtype = jnp.result_type(*arrays)
    return [a.astype(dtype) for a in arrays]


def _is_blocked(implementation: str) -> bool:
    if implementation == "auto":
        return jax.default_backend() == "cpu"
    if implementation not in ("native", "blocked"):
        raise ValueError(f"implementation must be 'auto', 'native' or 'blocked', got {implementation!r}.")
    return implementation == "blocked"


def _in_blocks(rows: Array, numbers: int) -> Array:
    """Rows in blocks [blocks, size, ...], padded, when each needs room for so many numbers."""
    n = len(rows)
    size = max(1, min(n, _BLOCK_BYTES // (numbers * rows.dtype.itemsize)))
    # Blocks of even size, so that as little as possible is padding.
    size = max(1, -(-n // max(1, -(-n // size))))
    padded = jnp.pad(rows, [(0, -n % size)] + [(0, 0)] * (rows.ndim - 1))
    return padded.reshape(-1, size, *rows.shape[1:])


def _native(x, kernel):
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _native_pool(y):
    square = (1, 2, 2, 1)
    return lax.reduce_window(y, -jnp.inf, lax.max, square, square, "VALID")


def _patches(x):
    """The 3 x 3 neighbourhood of each pixel, [n, h, w, 9 c]."""
    h, w = x.shape[1:3]
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return jnp.concatenate([x[:, i : i + h, j : j + w] for i in range(3) for j in range(3)], -1)


def _block_forward(x, kernel):
    """One block: the pooled convolution and which of the four pixels was the largest."""
    h, w = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    patches = _patches(x)[:, :h, :w]
    filters = kernel.shape[-1]
    y = patches.reshape(-1, patches.shape[-1]) @ kernel.reshape(-1, filters)
    y = y.reshape(-1, h // 2, 2, w // 2, 2, filters)
    return _largest(y[:, :, 0, :, 0], y[:, :, 0, :, 1], y[:, :, 1, :, 0], y[:, :, 1, :, 1])


def _largest(a, b, c, d):
    """The largest of the four pixels of a square, and which it was."""
    top, bottom = jnp.maximum(a, b), jnp.maximum(c, d)
    # Of equal pixels the first counts, as in XLA's own gradient.
    which = jnp.where(bottom > top, 2 + (d > c).astype(jnp.uint8), (b > a).astype(jnp.uint8))
    return jnp.maximum(top, bottom), which


def _block_backward(x, kernel, which, g):
    """The gradients of one block in x and in the kernel, from that of its pooled output."""
    h, w = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    filters = kernel.shape[-1]
    pixel = jnp.arange(4, dtype=jnp.uint8).reshape(2, 1, 2, 1)
    which, g = (a[:, :, None, :, None, :] for a in (which, g))
    g = jnp.where(which == pixel, g, 0).reshape(-1, filters)
    patches, transpose = jax.vjp(lambda x: _patches(x)[:, :h, :w], x)
    # Products with the narrower side first are the faster ones.
    g_kernel = (g.T @ patches.reshape(-1, patches.shape[-1])).T
    (g_x,) = transpose((g @ kernel.reshape(-1, filters).T).reshape(patches.shape))
    return g_x, g_kernel.reshape(kernel.shape)


@jax.custom_vjp
def _blocked(x, kernel):
    return _blocked_forward(x, kernel)[0]


def _blocked_forward(x, kernel):
    y, which = lax.map(lambda block: _block_forward(block, kernel), x)
    # Patches are made again on the way back: keeping them is nine times the images, out of cache.
    return y, (x, kernel, which)


def _blocked_backward(saved, g):
    x, kernel, which = saved

    def body(g_kernel, block):
        x, which, g = block
        g_x, step = _block_backward(x, kernel, which, g)
        return g_kernel + step, g_x

    g_kernel, g_x = lax.scan(body, jnp.zeros_like(kernel), (x, which, g))
    return g_x, g_kernel


_blocked.defvjp(_blocked_forward, _blocked_backward)


@jax.custom_vjp
def _combined(z, few):
    """The largest of four of z few, few [k, 4 m] with the four pixels of a square in four runs: [.., m]."""
    return _combined_forward(z, few)[0]


def _combined_forward(z, few):
    y, which = lax.map(lambda block: _largest(*jnp.split(block @ few, 4, axis=1)), z)
    return y, (z, few, which)


def _combined_backward(saved, g):
    z, few, which = saved

    def body(g_few, block):
        z, which, g = block
        g = jnp.concatenate([jnp.where(which == pixel, g, 0) for pixel in range(4)], 1)
        return g_few + z.T @ g, g @ few.T

    g_few, g_z = lax.scan(body, jnp.zeros_like(few), (z, which, g))
    return g_z, g_few


_combined.defvjp(_combined_forward, _combined_backward)
