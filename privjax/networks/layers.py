"""The layers of private networks: each kind states its JAX, NumPy and ONNX form and its cost in one place.

A NumPy form uses its arguments and `np` alone, because the runner for devices is assembled from the
source of these functions.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from privjax.numerics.convolution import convolve_and_pool


class Layer(NamedTuple):
    """One layer with its parameters.

    Attributes:
      kind: A key of `LAYER_KINDS`.
      arrays: The parameters: NumPy arrays in an `Encoder`, traced arrays in training.
      shape: The shape of one row, where the kind needs it: the image of a convolution, the result of a
        reshape.
    """

    kind: str
    arrays: tuple[Any, ...] = ()
    shape: tuple[int, ...] = ()


class OnnxNode(NamedTuple):
    """An ONNX operation on the output of the one before it."""

    operation: str
    parameters: tuple[np.ndarray, ...] = ()
    attributes: Mapping[str, Any] = {}


class LayerKind(NamedTuple):
    """All that the library knows about one kind of layer.

    Attributes:
      jax: Forward pass `jax(x, *arrays, shape=)` in JAX, for training and StableHLO.
      numpy: Forward pass `numpy(x, *arrays, shape=)` in NumPy, for devices and the estimator, in the widest
        type of its inputs.
      onnx: The same pass as ONNX nodes.
      multiply_adds: Multiply-adds that one row costs.
      hidden: Whether dropout acts on the output, unless it is z.
    """

    jax: Callable[..., Array]
    numpy: Callable[..., np.ndarray]
    onnx: Callable[[Layer], Sequence[OnnxNode]]
    multiply_adds: Callable[[Layer], int] = lambda layer: 0
    hidden: bool = False


def _scale(x, shift, spread, *, shape):
    return (x - shift) / spread


def _reshape(x, *, shape):
    return x.reshape(x.shape[0], *shape)


def _dense(x, kernel, bias, *, shape):
    return x @ kernel + bias


def _dense_relu_jax(x, kernel, bias, *, shape):
    return jax.nn.relu(x @ kernel + bias)


def _dense_relu(x, kernel, bias, *, shape):
    return np.maximum(x @ kernel + bias, 0)


def _convolve_pool_relu_jax(x, kernel, bias, *, shape):
    # Blocks of images need a known number of rows; an exported program takes any number.
    implementation = "auto" if isinstance(x.shape[0], int) else "native"
    pooled = convolve_and_pool(x, kernel, implementation=implementation)
    # The maximum commutes with adding a constant and with ReLU, so both act on a quarter of the pixels.
    return jax.nn.relu(pooled + bias)


def _convolve_pool_relu(x, kernel, bias, *, shape):
    h, w = x.shape[1:3]
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    y = np.zeros((len(x), h, w, kernel.shape[-1]), np.result_type(x, kernel))
    for i in range(3):
        for j in range(3):
            y += padded[:, i : i + h, j : j + w] @ kernel[i, j]
    h, w = h // 2 * 2, w // 2 * 2  # with odd sides the last row or column is not pooled
    y = y[:, :h, :w].reshape(len(y), h // 2, 2, w // 2, 2, y.shape[-1]).max((2, 4))
    return np.maximum(y + bias, 0)


def _onnx_convolve_pool_relu(layer: Layer) -> Sequence[OnnxNode]:
    kernel, bias = layer.arrays
    return (
        OnnxNode("Transpose", attributes={"perm": [0, 3, 1, 2]}),  # ONNX has channels first
        OnnxNode("Conv", (np.ascontiguousarray(kernel.transpose(3, 2, 0, 1)), bias), {"pads": [1, 1, 1, 1]}),
        OnnxNode("MaxPool", attributes={"kernel_shape": [2, 2], "strides": [2, 2]}),
        OnnxNode("Relu"),
        OnnxNode("Transpose", attributes={"perm": [0, 2, 3, 1]}),
    )


LAYER_KINDS: dict[str, LayerKind] = {
    "scale": LayerKind(
        jax=_scale,
        numpy=_scale,
        onnx=lambda layer: [OnnxNode("Sub", layer.arrays[:1]), OnnxNode("Div", layer.arrays[1:])],
    ),
    "reshape": LayerKind(
        jax=_reshape,
        numpy=_reshape,
        # In ONNX a size of 0 copies the size of the input, here the number of rows.
        onnx=lambda layer: [OnnxNode("Reshape", (np.array([0, *layer.shape], np.int64),))],
    ),
    "dense": LayerKind(
        jax=_dense,
        numpy=_dense,
        onnx=lambda layer: [OnnxNode("Gemm", layer.arrays)],
        multiply_adds=lambda layer: layer.arrays[0].size,
    ),
    "dense_relu": LayerKind(
        jax=_dense_relu_jax,
        numpy=_dense_relu,
        onnx=lambda layer: [OnnxNode("Gemm", layer.arrays), OnnxNode("Relu")],
        multiply_adds=lambda layer: layer.arrays[0].size,
        hidden=True,
    ),
    "convolve_pool_relu": LayerKind(
        jax=_convolve_pool_relu_jax,
        numpy=_convolve_pool_relu,
        onnx=_onnx_convolve_pool_relu,
        multiply_adds=lambda layer: layer.arrays[0].size * layer.shape[0] * layer.shape[1],
        hidden=True,
    ),
}


def apply_numpy(layers: Sequence[Layer], x: np.ndarray) -> np.ndarray:
    """Apply layers to rows in NumPy, in the widest type of rows and parameters."""
    for layer in layers:
        x = LAYER_KINDS[layer.kind].numpy(x, *layer.arrays, shape=layer.shape)
    return x


def apply_jax(
    layers: Sequence[Layer], x: Array, *, key: Array | None = None, rate: Array | float = 0.0
) -> Array:
    """Apply layers to rows in JAX, with dropout on hidden layers when there is a key."""
    last = max((i for i, layer in enumerate(layers) if layer.arrays), default=0)
    hidden = [i for i, layer in enumerate(layers[:last]) if LAYER_KINDS[layer.kind].hidden]
    keys = dict(zip(hidden, layer_keys(key, len(hidden)), strict=True))
    for i, layer in enumerate(layers):
        x = LAYER_KINDS[layer.kind].jax(x, *layer.arrays, shape=layer.shape)
        x = dropout(x, key=keys.get(i), rate=rate)
    return x


def multiply_adds(layers: Sequence[Layer]) -> int:
    """Count the multiply-adds that one row costs, scaling aside."""
    return sum(LAYER_KINDS[layer.kind].multiply_adds(layer) for layer in layers)


def layer_keys(key: Array | None, number: int) -> Sequence[Array | None]:
    """Split a key into one for each layer; None gives None for each."""
    return [None] * number if key is None or not number else list(jax.random.split(key, number))


def dropout(x: Array, *, key: Array | None, rate: Array | float) -> Array:
    """Drop elements of x at a rate that may be traced, and scale the rest to keep the mean.

    Flax's dropout takes a Python number, so each rate would be another compilation. Here eight random bits
    decide one element, because drawing random words is most of the cost on a CPU. The rate is therefore
    rounded to 1/256, and the scale is that of the rounded rate. Without a key x is returned.
    """
    if key is None:
        return x
    kept_of_256 = jnp.round(256.0 * (1.0 - jnp.asarray(rate, jnp.float32)))
    size = x.size

    def draw(key):
        words = jax.random.bits(key, (-(-size // 4),), jnp.uint32)
        return jax.lax.bitcast_convert_type(words, jnp.uint8).reshape(-1)[:size].reshape(x.shape)

    # At rate 0 no bits are drawn: zeros lie below every threshold.
    bits = jax.lax.cond(kept_of_256 < 256, draw, lambda key: jnp.zeros(x.shape, jnp.uint8), key)
    kept = bits < kept_of_256.astype(jnp.uint16)
    return jnp.where(kept, x * (256.0 / jnp.maximum(kept_of_256, 1.0)).astype(x.dtype), 0)
