"""The dense networks NN, and linear maps as networks."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax import Array

from privjax.networks.layers import (
    Layer,
    Networks,
    Params,
    apply_jax,
    check_sizes,
    dropout,
    layer_keys,
    network_kind,
    no_discriminator,
    no_public,
)


class DenseStack(nn.Module):
    """ReLU hidden layers with dropout, then a linear output."""

    widths: Sequence[int]
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


def dense_discriminator(num_private: int, widths: Sequence[int]):
    """Return `init(key, width of z)` and `apply(params, z)` of a dense discriminator without dropout."""
    check_sizes(minimum=0, num_private=num_private, discriminator_widths=widths)
    if not num_private:
        return (lambda key, width: {}), no_discriminator
    module = DenseStack(widths, num_private)
    return (
        lambda key, width: init_module(module, key, width),
        lambda params, z: apply_module(module, params["discriminator"], z),
    )


def dense_layers(params: Params, *, last: str) -> tuple[Layer, ...]:
    """Return the layers of a `DenseStack`; `last` is the kind of the last one, the others are dense_relu."""
    kinds = ["dense_relu"] * (len(params) - 1) + [last]
    stack = [params[f"Dense_{i}"] for i in range(len(params))]
    return tuple(Layer(kind, (a["kernel"], a["bias"])) for kind, a in zip(kinds, stack, strict=True))


@network_kind("nn")
def nn_networks(
    input_shape: int | Sequence[int],
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
      private_widths: Widths of the private network; the last is the width of z. Paper: 50, 10 on MHEALTH.
      public_widths: Hidden widths of the public network. Paper: 500 on sensor data, 1024 on faces.
      discriminator_widths: Hidden widths. Paper: (1024,) on sensor data, (1024, 1024) on faces.

    Returns:
      The networks; the same settings return the same record.

    Example:
      >>> networks = nn_networks(561, num_outputs=6)
      >>> networks.init(jax.random.key(0))["private"]["Dense_0"]["kernel"].shape
      (561, 50)
    """
    check_sizes(input_shape=input_shape, num_outputs=num_outputs, private_widths=private_widths)
    check_sizes(minimum=0, public_widths=public_widths)
    size, width = int(np.prod(input_shape)), private_widths[-1]
    private_module = DenseStack(private_widths[:-1], width)
    public_module = DenseStack(public_widths, num_outputs)
    init_discriminator, discriminator = dense_discriminator(num_private, discriminator_widths)

    def init(key):
        keys = jax.random.split(key, 3)
        return {
            "private": init_module(private_module, keys[0], size),
            "public": init_module(public_module, keys[1], width),
            "discriminator": init_discriminator(keys[2], width),
        }

    def private_layers(params):
        return Layer("reshape", (), (size,)), *dense_layers(params["private"], last="dense_relu")

    def private(params, x, *, key=None, dropout=0.0):
        return apply_jax(private_layers(params), x, key=key, rate=dropout)

    def public(params, z, *, key=None, dropout=0.0):
        return apply_module(public_module, params["public"], z, key, dropout)

    return Networks(init, private, public, discriminator, private_layers=private_layers)


@network_kind("linear")
def linear_networks(input_shape: int | Sequence[int], *, num_features: int | None) -> Networks:
    """Build an encoder z = W'(x - mean) + offset, or the identity, without a public network.

    `params["private"]` holds `weights` [features, d], `mean` [features] and `offset` [d].
    """
    check_sizes(input_shape=input_shape, num_features=num_features)
    size = int(np.prod(input_shape))
    shapes = {}
    if num_features is not None:
        shapes = {"weights": (size, num_features), "mean": (size,), "offset": (num_features,)}

    def init(key):
        private = {name: jnp.zeros(shape, jnp.float32) for name, shape in shapes.items()}
        return {"private": private, "public": {}, "discriminator": {}}

    def private_layers(params):
        flat = Layer("reshape", (), (size,))
        if num_features is None:
            return (flat,)
        weights, mean, offset = (params["private"][name] for name in shapes)
        # The mean is subtracted first: W'x and W'mean may be large where their difference is small.
        return flat, Layer("scale", (mean, np.ones(size, np.float32))), Layer("dense", (weights, offset))

    def private(params, x, *, key=None, dropout=0.0):
        return apply_jax(private_layers(params), x)

    return Networks(init, private, no_public, private_layers=private_layers)
