"""The dense networks NN, and linear maps as networks."""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array

from privjax.networks.layers import Layer, apply_jax, dropout, layer_keys
from privjax.networks.record import Networks, Params, no_discriminator, no_public

InputShape = int | Sequence[int]


class DenseStack(nn.Module):
    """ReLU hidden layers with dropout, then a linear output."""

    widths: tuple[int, ...]
    num_outputs: int

    @nn.compact
    def __call__(self, x, key=None, rate=0.0):
        """Apply the layers to flattened rows."""
        x = x.reshape(x.shape[0], math.prod(x.shape[1:]))
        for width, layer_key in zip(self.widths, layer_keys(key, len(self.widths)), strict=True):
            x = dropout(nn.relu(nn.Dense(width)(x)), key=layer_key, rate=rate)
        return nn.Dense(self.num_outputs)(x)


def apply_module(module: nn.Module, params: Params, *args) -> Array:
    """Apply a Linen module that has parameters and no other state."""
    return module.apply({"params": params}, *args)  # pyright: ignore[reportReturnType]


def init_module(module: nn.Module, key: Array, *shape: int) -> Params:
    """Draw the parameters of a Linen module for rows of a shape."""
    return dict(module.init(key, jnp.zeros((1, *shape), jnp.float32))["params"])


def dense_discriminator(
    num_private: int, widths: tuple[int, ...]
) -> tuple[Callable[[Array, int], Params], Callable[[Params, Array], Array]]:
    """Return `init(key, width of z)` and `apply(params, z)` of a dense discriminator without dropout."""
    if not num_private:
        return (lambda key, width: {}), no_discriminator
    module = DenseStack(widths, num_private)
    return (
        lambda key, width: init_module(module, key, width),
        lambda params, z: apply_module(module, params["discriminator"], z),
    )


def dense_layers(params: Params, *, last: str) -> tuple[Layer, ...]:
    """Return the layers of a stack of dense layers.

    Args:
      params: Parameters `Dense_0`, `Dense_1`, ... of the stack.
      last: Kind of the last layer, "dense" or "dense_relu"; the others are "dense_relu".
    """
    stack = [params[f"Dense_{i}"] for i in range(len(params))]
    kinds = ["dense_relu"] * (len(stack) - 1) + [last]
    return tuple(
        Layer(kind, (layer["kernel"], layer["bias"])) for kind, layer in zip(kinds, stack, strict=True)
    )


def check_widths(name: str, widths: Sequence[int], *, minimum: int = 0) -> tuple[int, ...]:
    """Return widths as Python integers, at least `minimum` of them, all positive."""
    widths = tuple(int(width) for width in widths)
    if len(widths) < minimum or any(width < 1 for width in widths):
        raise ValueError(f"{name} must hold at least {minimum} positive widths, got {widths}.")
    return widths


def check_count(name: str, number: int, *, minimum: int = 1) -> int:
    """Return a Python integer, also from a NumPy integer, because settings are written as JSON."""
    if operator.index(number) < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {number}.")
    return operator.index(number)


class _DenseSettings(NamedTuple):
    input_shape: tuple[int, ...]
    num_outputs: int
    num_private: int
    private_widths: tuple[int, ...]
    public_widths: tuple[int, ...]
    discriminator_widths: tuple[int, ...]


def nn_networks(
    input_shape: InputShape,
    *,
    num_outputs: int,
    num_private: int = 0,
    private_widths: Sequence[int] = (50,),
    public_widths: Sequence[int] = (500,),
    discriminator_widths: Sequence[int] = (1024,),
) -> Networks:
    """Build the dense networks NN: the funnel is z = ReLU(W'x + b), and dense layers predict y from z.

    Args:
      input_shape: Shape of one row of x, which is flattened.
      num_outputs: Number of classes of y, or its width when y is continuous.
      num_private: Outputs of the discriminator: l for l classes of p, the sum over several p, 0 for no
        discriminator.
      private_widths: Widths of the private network; the last is the width of z. The paper has 50, and
        10 on MHEALTH.
      public_widths: Hidden widths of the public network. The paper has 500 on sensor data, 1024 on faces.
      discriminator_widths: Hidden widths of the discriminator. The paper has (1024,) on sensor data,
        (1024, 1024) on faces.

    Returns:
      The networks; the same settings return the same record, so training compiles once.

    Example:
      >>> networks = nn_networks(561, num_outputs=6)
      >>> networks.init(jax.random.key(0))["private"]["Dense_0"]["kernel"].shape
      (561, 50)
    """
    return _nn_networks(
        _DenseSettings(
            input_shape=check_widths("input_shape", np.atleast_1d(input_shape).tolist(), minimum=1),
            num_outputs=check_count("num_outputs", num_outputs),
            num_private=check_count("num_private", num_private, minimum=0),
            private_widths=check_widths("private_widths", private_widths, minimum=1),
            public_widths=check_widths("public_widths", public_widths),
            discriminator_widths=check_widths("discriminator_widths", discriminator_widths),
        )
    )


@functools.cache
def _nn_networks(settings: _DenseSettings) -> Networks:
    width = settings.private_widths[-1]
    private_module = DenseStack(settings.private_widths[:-1], width)
    public_module = DenseStack(settings.public_widths, settings.num_outputs)
    init_discriminator, discriminator = dense_discriminator(
        settings.num_private, settings.discriminator_widths
    )

    def init(key):
        keys = jax.random.split(key, 3)
        return {
            "private": init_module(private_module, keys[0], *settings.input_shape),
            "public": init_module(public_module, keys[1], width),
            "discriminator": init_discriminator(keys[2], width),
        }

    def private_layers(params):
        flat = Layer("reshape", shape=(math.prod(settings.input_shape),))
        return flat, *dense_layers(params["private"], last="dense_relu")

    def private(params, x, *, key=None, dropout=0.0):
        return apply_jax(private_layers(params), x, key=key, rate=dropout)

    def public(params, z, *, key=None, dropout=0.0):
        return apply_module(public_module, params["public"], z, key, dropout)

    return Networks(
        init=jax.jit(init),  # one compilation instead of one for each operation of the initialisers
        private=private,
        public=public,
        discriminator=discriminator,
        settings=(("kind", "nn"), *settings._asdict().items()),
        private_layers=private_layers,
    )


def linear_networks(input_shape: InputShape, *, num_features: int | None) -> Networks:
    """Build an encoder z = W'(x - mean) + offset, or the identity, without a public network.

    Its parameters are not trained here: the baselines compute them.

    Args:
      input_shape: Shape of one row of x, which is flattened.
      num_features: Width of z; None for the identity, which has no parameters.

    Returns:
      The networks; `params["private"]` holds `weights` [features, d], `mean` [features] and `offset` [d].

    Example:
      >>> networks = linear_networks(3, num_features=None)
      >>> networks.private({"private": {}}, jnp.ones((2, 3))).shape
      (2, 3)
    """
    shape = check_widths("input_shape", np.atleast_1d(input_shape).tolist(), minimum=1)
    return _linear_networks(
        shape, None if num_features is None else check_count("num_features", num_features)
    )


@functools.cache
def _linear_networks(input_shape: tuple[int, ...], num_features: int | None) -> Networks:
    size = math.prod(input_shape)
    flat = Layer("reshape", shape=(size,))

    def init(key):
        if num_features is None:
            return {"private": {}, "public": {}, "discriminator": {}}
        weights = jnp.zeros((size, num_features), jnp.float32)
        private = {"weights": weights, "mean": jnp.zeros(size), "offset": jnp.zeros(num_features)}
        return {"private": private, "public": {}, "discriminator": {}}

    def private_layers(params):
        if num_features is None:
            return (flat,)
        weights, mean, offset = (params["private"][name] for name in ("weights", "mean", "offset"))
        # The mean is subtracted first: W'x and W'mean may be large where their difference is small.
        centre = Layer("scale", (mean, np.ones(size, np.float32)))
        return flat, centre, Layer("dense", (weights, offset))

    def private(params, x, *, key=None, dropout=0.0):
        return apply_jax(private_layers(params), x)

    settings = (("kind", "linear"), ("input_shape", input_shape), ("num_features", num_features))
    return Networks(init, private, no_public, settings=settings, private_layers=private_layers)
