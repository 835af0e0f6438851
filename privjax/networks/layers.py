"""The layers of private networks, and the record of the three networks.

Each kind of layer states its JAX, NumPy and ONNX form and its cost in one place. A NumPy form uses its
arguments and `np` alone, because the runner for devices is assembled from the source of these functions.
"""

import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from privjax.numerics.convolution import convolve_and_pool

Params = dict[str, Any]
Arguments = ParamSpec("Arguments")
Constructor = Callable[Arguments, "Networks"]


class Layer(NamedTuple):
    """One layer with its parameters: NumPy arrays in an `Encoder`, traced arrays in training."""

    kind: str  # a key of `LAYER_KINDS`
    arrays: tuple[Any, ...] = ()
    shape: tuple[int, ...] = ()  # of one row: the image of a convolution, the result of a reshape


class OnnxNode(NamedTuple):
    """An ONNX operation on the output of the one before it."""

    operation: str
    parameters: tuple[np.ndarray, ...] = ()
    attributes: Mapping[str, Any] = {}


class LayerKind(NamedTuple):
    """All that the library knows about one kind of layer; forward passes take `(x, *arrays, shape=)`."""

    jax: Callable[..., Array]  # for training and StableHLO
    numpy: Callable[..., np.ndarray]  # for devices and the estimator, in the widest type of its inputs
    onnx: Callable[[Layer], Sequence[OnnxNode]]
    multiply_adds: Callable[[Layer], int] = lambda layer: 0  # of one row
    hidden: bool = False  # whether dropout acts on the output, unless it is z


def _scale(x, shift, spread, *, shape):
    return (x - shift) / spread


def _reshape(x, *, shape):
    return x.reshape(x.shape[0], *shape)


def _dense(x, kernel, bias, *, shape):
    return x @ kernel + bias


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


def _kernel_size(layer: Layer) -> int:
    return layer.arrays[0].size


LAYER_KINDS: dict[str, LayerKind] = {
    "scale": LayerKind(
        _scale, _scale, lambda layer: [OnnxNode("Sub", layer.arrays[:1]), OnnxNode("Div", layer.arrays[1:])]
    ),
    # In ONNX a size of 0 copies the size of the input, here the number of rows.
    "reshape": LayerKind(
        _reshape, _reshape, lambda layer: [OnnxNode("Reshape", (np.array([0, *layer.shape], np.int64),))]
    ),
    "dense": LayerKind(_dense, _dense, lambda layer: [OnnxNode("Gemm", layer.arrays)], _kernel_size),
    "dense_relu": LayerKind(
        lambda x, kernel, bias, *, shape: jax.nn.relu(x @ kernel + bias),
        _dense_relu,
        lambda layer: [OnnxNode("Gemm", layer.arrays), OnnxNode("Relu")],
        _kernel_size,
        hidden=True,
    ),
    "convolve_pool_relu": LayerKind(
        _convolve_pool_relu_jax,
        _convolve_pool_relu,
        _onnx_convolve_pool_relu,
        lambda layer: _kernel_size(layer) * layer.shape[0] * layer.shape[1],
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


def layer_keys(key: Array | None, number: int) -> Sequence[Array | None]:
    """Split a key into one for each layer; None gives None for each."""
    return [None] * number if key is None or not number else list(jax.random.split(key, number))


def dropout(x: Array, *, key: Array | None, rate: Array | float) -> Array:
    """Drop elements of x at a rate that may be traced, and scale the rest to keep the mean.

    Flax's dropout takes a Python number, so each rate would be another compilation. Here eight random bits
    decide one element, because random words are most of the cost on a CPU. So the rate is rounded to 1/256.
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


def no_public(params: Params, z: Array, *, key: Array | None = None, dropout: Any = 0.0) -> Array:
    """Raise: these networks are an encoder alone."""
    raise ValueError("networks has no public network: train nn_networks, cnn_networks or scnn_networks.")


def no_discriminator(params: Params, z: Array) -> Array:
    """Raise: these networks have no discriminator."""
    raise ValueError("networks has no discriminator: build it with num_private=, its number of outputs.")


class Networks(NamedTuple):
    """The private, public and discriminator networks, as pure functions of one dict of parameters.

    Flax NNX, Equinox or plain functions serve as well as the networks of this package. With `key=None` the
    networks are deterministic. With a key, units of hidden layers are dropped at the rate `dropout`, which
    may be traced.

    Attributes:
      init: `init(key)` returns `{"private": ..., "public": ..., "discriminator": ...}`, each a pytree
        of arrays; `{}` without a discriminator.
      private: `private(params, x, *, key=None, dropout=0.0)` returns z [n, d].
      public: `public(params, z, *, key=None, dropout=0.0)` returns logits [n, k], or predictions when
        y is continuous. It may read `params["private"]`, as the tied projection of SCNN does.
      discriminator: `discriminator(params, z)` returns scores [n, l].
      projection: `projection(params)` returns the matrix W to keep orthonormal, or None.
      settings: The settings from which `make_networks` builds the same record; None for a user's own.
      private_layers: `private_layers(params)` returns the private network as plain layers, which can be
        exported; None for a user's own networks.
    """

    init: Callable[[Array], Params]
    private: Callable[..., Array]
    public: Callable[..., Array]
    discriminator: Callable[[Params, Array], Array] = no_discriminator
    projection: Callable[[Params], Array | None] = lambda params: None
    settings: tuple[tuple[str, Any], ...] | None = None
    private_layers: Callable[[Params], tuple[Layer, ...]] | None = None


NETWORKS: dict[str, Callable[..., Networks]] = {}  # filled by `network_kind`


def network_kind(kind: str) -> Callable[[Constructor[Arguments]], Constructor[Arguments]]:
    """Register a constructor of networks, whose arguments are integers, or tuples for shapes and widths.

    It returns the same record for the same settings, so training compiles once.
    """

    def decorate(build: Constructor[Arguments]) -> Constructor[Arguments]:
        signature = inspect.signature(build)

        @functools.cache
        def build_once(items: tuple[tuple[str, Any], ...]) -> Networks:
            networks = build(**dict(items))  # pyright: ignore[reportCallIssue]
            # One compilation instead of one for each small operation of the initialisers.
            return networks._replace(init=jax.jit(networks.init), settings=(("kind", kind), *items))

        @functools.wraps(build)
        def constructor(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Networks:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return build_once(tuple((name, _plain(name, value)) for name, value in bound.arguments.items()))

        NETWORKS[kind] = constructor
        return constructor

    return decorate


def _plain(name: str, value: Any) -> Any:
    """Return an argument as Python integers, which can be hashed and written as JSON."""
    if value is None or (np.ndim(value) == 0 and not name.endswith("shape")):
        return value if value is None else operator.index(value)
    return tuple(operator.index(size) for size in np.atleast_1d(value).tolist())


def make_networks(settings: Mapping[str, Any]) -> Networks:
    """Build the networks whose `settings` these are, also after the settings went through JSON."""
    arguments = dict(settings)
    kind = arguments.pop("kind", None)
    if kind not in NETWORKS:
        raise ValueError(f"settings must name their kind, one of {', '.join(NETWORKS)}, got {kind!r}.")
    return NETWORKS[kind](**arguments)


def is_built_in(networks: Networks) -> bool:
    """Return whether `make_networks` builds these networks, with the same functions."""
    return networks.settings is not None and make_networks(dict(networks.settings)) == networks


def check_sizes(*, minimum: int = 1, **sizes: Any) -> None:
    """Raise ValueError for numbers below the minimum, and for widths that are too few or not positive."""
    for name, size in sizes.items():
        if isinstance(size, int) and size < minimum:
            raise ValueError(f"{name} must be at least {minimum}, got {size}.")
        if isinstance(size, tuple) and (len(size) < minimum or any(side < 1 for side in size)):
            raise ValueError(f"{name} must hold at least {minimum} positive widths, got {size}.")
