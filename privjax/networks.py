"""The private, public and discriminator networks of the paper, as one record of pure functions.

`Networks` is all that training knows of a network, so Flax NNX, Equinox or plain functions serve as
well as the Flax Linen modules built here. Constructors are cached: the same settings give the same
record, and so the same compiled training.
"""

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array

from privjax.convolution import convolve_and_pool, convolve_and_pool_combined

Params = dict[str, Any]


def no_discriminator(params: Params, z: Array) -> Array:
    """Stands in the record where an objective needs no discriminator."""
    raise ValueError(
        "networks has no discriminator: build it with num_private=, the number of private outputs."
    )


def no_projection(params: Params) -> None:
    """Stands in the record of networks without a subspace projection."""
    return None


class Networks(NamedTuple):
    """The three networks as pure functions of one dict of parameters.

    Attributes:
      init: `init(key)` gives `{"private": ..., "public": ..., "discriminator": ...}`, each a pytree
        of arrays; `{}` for a discriminator that is not there.
      private: `private(params, x, *, key=None, dropout=0.0)` gives z [n, d], what is released.
      public: `public(params, z, *, key=None, dropout=0.0)` gives logits [n, k], or predictions
        when y is continuous. It may read `params["private"]`, as the tied projection of SCNN does.
      discriminator: `discriminator(params, z)` gives scores [n, l].
      projection: `projection(params)` gives the matrix W to keep orthonormal, or None.
      settings: what `make_networks` builds the same record from; None for a record of your own.

    With `key=None` the networks are deterministic; with a key hidden layers are dropped at the rate
    `dropout`, an array, so that another rate is not another compilation.
    """

    init: Callable[[Array], Params]
    private: Callable[..., Array]
    public: Callable[..., Array]
    discriminator: Callable[[Params, Array], Array] = no_discriminator
    projection: Callable[[Params], Array | None] = no_projection
    settings: tuple[tuple[str, Any], ...] | None = None


def make_networks(settings: Mapping[str, Any]) -> Networks:
    """The networks that `dict(networks.settings)` describes, also when it has been through JSON."""
    settings = dict(settings)
    kinds = {"nn": nn_networks, "scnn": scnn_networks}
    kind = settings.pop("kind", None)
    if kind not in kinds:
        raise ValueError(f"settings must name their kind, one of {', '.join(kinds)}, got {kind!r}.")
    return kinds[kind](**settings)


def dropout(x: Array, *, key: Array | None, rate: Array | float) -> Array:
    """Drops elements of x at a rate that may be traced, and scales the rest so that the mean stays.

    Flax's own takes a Python number, which would compile again for each rate. Eight random bits
    decide an element, four to a word: drawing the bits is most of the cost on a CPU. So the
    rate is rounded to 1/256, and the scale is that of the rounded rate.
    """
    if key is None:
        return x
    kept_of_256 = jnp.round(256.0 * (1.0 - jnp.asarray(rate, jnp.float32)))
    size = x.size

    def draw(key):
        words = jax.random.bits(key, (-(-size // 4),), jnp.uint32)
        return jax.lax.bitcast_convert_type(words, jnp.uint8).reshape(-1)[:size].reshape(x.shape)

    # Without dropout no bits are drawn; element 0 is below every threshold.
    bits = jax.lax.cond(kept_of_256 < 256, draw, lambda key: jnp.zeros(x.shape, jnp.uint8), key)
    kept = bits < kept_of_256.astype(jnp.uint16)
    return jnp.where(kept, x * (256.0 / jnp.maximum(kept_of_256, 1.0)).astype(x.dtype), 0)


_drop = dropout  # the networks' own argument is called dropout too


def _layer_keys(key: Array | None, number: int) -> list[Array | None]:
    return [None] * number if key is None else list(jax.random.split(key, number))


class _Dense(nn.Module):
    """ReLU hidden layers with dropout, then a linear output."""

    widths: tuple[int, ...]
    num_outputs: int

    @nn.compact
    def __call__(self, x, key=None, rate=0.0):
        x = x.reshape(x.shape[0], math.prod(x.shape[1:]))
        for width, layer_key in zip(self.widths, _layer_keys(key, len(self.widths)), strict=True):
            x = dropout(nn.relu(nn.Dense(width)(x)), key=layer_key, rate=rate)
        return nn.Dense(self.num_outputs)(x)


class _ConvolutionPool(nn.Module):
    """ReLU(max-pool(3 x 3 convolution)) of images [n, h, w, c], or of combinations x [n, k] of a basis."""

    filters: int
    implementation: str

    @nn.compact
    def __call__(self, x, basis=None):
        shape = (3, 3, (x if basis is None else basis).shape[-1], self.filters)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros_init(), (self.filters,), jnp.float32)
        how = {"implementation": self.implementation}
        if basis is None:
            pooled = convolve_and_pool(x, kernel, **how)
        else:
            pooled = convolve_and_pool_combined(x, basis, kernel, **how)
        # A maximum commutes with adding a constant and with ReLU: both on a quarter of the size.
        return nn.relu(pooled + bias)


class _PublicConvolution(nn.Module):
    """Convolution and pooling, then dense layers, on the private sphere's image, or on its coordinates."""

    filters: int
    widths: tuple[int, ...]
    num_outputs: int
    implementation: str

    @nn.compact
    def __call__(self, h, key=None, rate=0.0, basis=None):
        keys = _layer_keys(key, 2)
        h = _ConvolutionPool(self.filters, self.implementation)(h, basis)
        h = dropout(h, key=keys[0], rate=rate)
        return _Dense(self.widths, self.num_outputs)(h, keys[1], rate)


class _Projection(nn.Module):
    """z = ReLU(W'h + b), W drawn orthonormal. A module of its own, as the public sphere reads W."""

    num_features: int

    @nn.compact
    def __call__(self, h):
        shape = (h.shape[-1], self.num_features)
        w = self.param("w", nn.initializers.orthogonal(), shape, jnp.float32)
        b = self.param("b", nn.initializers.zeros_init(), (self.num_features,), jnp.float32)
        return nn.relu(h @ w + b)


def _apply(module: nn.Module, params: Params, *args) -> Array:
    """Linen's apply for modules with parameters alone, typed as the array that ours return."""
    return module.apply({"params": params}, *args)  # pyright: ignore[reportReturnType]


def _init(module: nn.Module, key: Array, *shape: int) -> Params:
    return dict(module.init(key, jnp.zeros((1, *shape), jnp.float32))["params"])


def _discriminator(num_private: int, widths: tuple[int, ...]):
    """The init and apply of a dense discriminator; nothing dropped, nothing normalised."""
    if not num_private:
        return (lambda key, width: {}), no_discriminator
    module = _Dense(widths, num_private)
    return (
        lambda key, width: _init(module, key, width),
        lambda params, z: _apply(module, params["discriminator"], z),
    )


def _widths(name: str, widths: Sequence[int], *, minimum: int = 0) -> tuple[int, ...]:
    widths = tuple(int(width) for width in widths)
    if len(widths) < minimum or any(width < 1 for width in widths):
        raise ValueError(f"{name} must hold at least {minimum} positive widths, got {widths}.")
    return widths


def _count(name: str, number: int, *, minimum: int = 1) -> int:
    """A Python integer, also of one of NumPy's: settings are written as JSON."""
    if operator.index(number) < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {number}.")
    return operator.index(number)


def nn_networks(
    input_shape: int | Sequence[int],
    *,
    num_outputs: int,
    num_private: int = 0,
    private_widths: Sequence[int] = (50,),
    public_widths: Sequence[int] = (500,),
    discriminator_widths: Sequence[int] = (1024,),
) -> Networks:
    """The dense networks NN: z = ReLU(W'x + b) is the funnel, and dense layers predict y from z.

    Args:
      input_shape: shape of one row of x; it is flattened.
      num_outputs: classes of y, or its width when y is continuous.
      num_private: outputs of the discriminator: l for l classes of p, the sum over several p; 0 for
        none.
      private_widths: widths of the private sphere, the last that of z. Paper: 50, on MHEALTH 10.
      public_widths: hidden widths of the public sphere. Paper: 500 on sensor data, 1024 on faces.
      discriminator_widths: hidden widths. Paper: (1024,) on sensor data, (1024, 1024) on faces.
    """
    return _nn_networks(
        input_shape=_widths("input_shape", np.atleast_1d(input_shape).tolist(), minimum=1),
        num_outputs=_count("num_outputs", num_outputs),
        num_private=_count("num_private", num_private, minimum=0),
        private_widths=_widths("private_widths", private_widths, minimum=1),
        public_widths=_widths("public_widths", public_widths),
        discriminator_widths=_widths("discriminator_widths", discriminator_widths),
    )


@functools.cache
def _nn_networks(
    *, input_shape, num_outputs, num_private, private_widths, public_widths, discriminator_widths
):
    settings = (("kind", "nn"), *locals().items())
    # The funnel is the output of a dense stack, so it is never dropped.
    private_module = _Dense(private_widths[:-1], private_widths[-1])
    public_module = _Dense(public_widths, num_outputs)
    init_discriminator, discriminator = _discriminator(num_private, discriminator_widths)

    def init(key):
        keys = jax.random.split(key, 3)
        return {
            "private": _init(private_module, keys[0], *input_shape),
            "public": _init(public_module, keys[1], private_widths[-1]),
            "discriminator": init_discriminator(keys[2], private_widths[-1]),
        }

    def private(params, x, *, key=None, dropout=0.0):
        return nn.relu(_apply(private_module, params["private"], x, key, dropout))

    def public(params, z, *, key=None, dropout=0.0):
        return _apply(public_module, params["public"], z, key, dropout)

    # One compilation instead of one for each small operation of the initialisers.
    return Networks(jax.jit(init), private, public, discriminator, settings=settings)


def cnn_networks(image_shape: Sequence[int], **settings) -> Networks:
    """The convolutional networks CNN, without a projection: z is the flattened private layer.

    Args:
      image_shape: (height, width, channels) of one image; x may be flat rows of that size.
      **settings: as for `scnn_networks`, but for `num_features`.
    """
    if "num_features" in settings:
        raise TypeError("num_features belongs to scnn_networks: a CNN has no projection.")
    return scnn_networks(image_shape, num_features=0, **settings)


def scnn_networks(
    image_shape: Sequence[int],
    *,
    num_outputs: int,
    num_private: int = 0,
    num_features: int = 50,
    private_filters: int = 32,
    public_filters: int = 64,
    public_widths: Sequence[int] = (1024,),
    discriminator_widths: Sequence[int] = (1024, 1024),
    implementation: str = "auto",
) -> Networks:
    """The networks SCNN: a subspace projection (eq. cnn_funnel) between two convolutional spheres.

    z = ReLU(W'h(x) + b) is released, the public sphere works on the image W z, with the same W,
    which belongs to the private sphere and is kept orthonormal by a penalty (eq. orthonormality).

    Args:
      image_shape: (height, width, channels) of one image; x may be flat rows of that size.
      num_outputs: classes of y, or its width when y is continuous.
      num_private: outputs of the discriminator; 0 for none.
      num_features: width of z.
      private_filters: 3 x 3 filters of the private convolution.
      public_filters: 3 x 3 filters of the public convolution.
      public_widths: dense hidden widths after the public convolution.
      discriminator_widths: hidden widths of the discriminator.
      implementation: how to convolve, see `convolve_and_pool`.
    """
    if len(image_shape) != 3 or min(image_shape[:2]) < 4:
        raise ValueError(
            "image_shape must be (height, width, channels) with sides of 4 or more, "
            f"got {tuple(image_shape)}."
        )
    private_filters = _count("private_filters", private_filters)
    most = (image_shape[0] // 2) * (image_shape[1] // 2) * private_filters
    if num_features > most:
        raise ValueError(
            f"num_features must be at most {most}, the size of the private layer, got {num_features}: "
            "more columns cannot be orthonormal."
        )
    return _scnn_networks(
        image_shape=_widths("image_shape", image_shape),
        num_outputs=_count("num_outputs", num_outputs),
        num_private=_count("num_private", num_private, minimum=0),
        num_features=_count("num_features", num_features, minimum=0),
        private_filters=private_filters,
        public_filters=_count("public_filters", public_filters),
        public_widths=_widths("public_widths", public_widths),
        discriminator_widths=_widths("discriminator_widths", discriminator_widths),
        implementation=implementation,
    )


@functools.cache
def _scnn_networks(
    *,
    image_shape,
    num_outputs,
    num_private,
    num_features,
    private_filters,
    public_filters,
    public_widths,
    discriminator_widths,
    implementation,
):
    settings = (("kind", "scnn"), *locals().items())
    image = _ConvolutionPool(private_filters, implementation)
    project = _Projection(num_features) if num_features else None
    public_module = _PublicConvolution(public_filters, public_widths, num_outputs, implementation)
    hidden_shape = (image_shape[0] // 2, image_shape[1] // 2, private_filters)
    hidden_size = hidden_shape[0] * hidden_shape[1] * private_filters
    init_discriminator, discriminator = _discriminator(num_private, discriminator_widths)

    def init(key):
        keys = jax.random.split(key, 4)
        private = {"convolution": _init(image, keys[0], *image_shape)}
        if project is not None:
            private["projection"] = _init(project, keys[1], hidden_size)
        return {
            "private": private,
            "public": _init(public_module, keys[2], *hidden_shape),
            "discriminator": init_discriminator(keys[3], num_features or hidden_size),
        }

    def private(params, x, *, key=None, dropout=0.0):
        if math.prod(x.shape[1:]) != math.prod(image_shape):
            raise ValueError(f"x must hold images of shape {image_shape}, got rows of shape {x.shape[1:]}.")
        h = _apply(image, params["private"]["convolution"], x.reshape(-1, *image_shape))
        h = h.reshape(-1, hidden_size)
        if project is None:  # h itself is the layer between the spheres, which is never dropped
            return h
        return _apply(project, params["private"]["projection"], _drop(h, key=key, rate=dropout))

    def public(params, z, *, key=None, dropout=0.0):
        if project is None:
            image, basis = z.reshape(-1, *hidden_shape), None
        else:
            image, basis = z, params["private"]["projection"]["w"].T.reshape(-1, *hidden_shape)
            if len(z) <= num_features:  # the rows' own images W z are fewer than the basis has
                image, basis = jnp.tensordot(z, basis, 1), None
        return _apply(public_module, params["public"], image, key, dropout, basis)

    def projection(params):
        return params["private"]["projection"]["w"]

    return Networks(
        jax.jit(init),
        private,
        public,
        discriminator,
        no_projection if project is None else projection,
        settings,
    )
