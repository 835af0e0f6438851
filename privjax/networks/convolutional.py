"""The convolutional networks CNN and SCNN."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from privjax.networks.dense import DenseStack, apply_module, dense_discriminator, init_module
from privjax.networks.layers import (
    Layer,
    Networks,
    apply_jax,
    check_sizes,
    dropout,
    layer_keys,
    network_kind,
)
from privjax.numerics.convolution import convolve_and_pool, convolve_and_pool_combined


class _ConvolutionPool(nn.Module):
    """ReLU(max-pool(3 x 3 convolution)) of images [n, h, w, c], or of combinations x [n, k] of a basis."""

    filters: int

    @nn.compact
    def __call__(self, x, basis=None):
        shape = (3, 3, (x if basis is None else basis).shape[-1], self.filters)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros_init(), (self.filters,), jnp.float32)
        combined = basis is not None
        pooled = convolve_and_pool_combined(x, basis, kernel) if combined else convolve_and_pool(x, kernel)
        return nn.relu(pooled + bias)


class _PublicConvolution(nn.Module):
    """Convolution and pooling, then dense layers, on images or on their coordinates in a basis."""

    filters: int
    widths: Sequence[int]
    num_outputs: int

    @nn.compact
    def __call__(self, h, key=None, rate=0.0, basis=None):
        keys = layer_keys(key, 2)
        # Flax derives the random draws of the parameters from these names.
        h = _ConvolutionPool(self.filters, name="_ConvolutionPool_0")(h, basis)
        h = dropout(h, key=keys[0], rate=rate)
        return DenseStack(self.widths, self.num_outputs, name="_Dense_0")(h, keys[1], rate)


class _Projection(nn.Module):
    """The orthonormal W and the offset b of z = ReLU(W'h + b)."""

    num_features: int

    @nn.compact
    def __call__(self, h):
        shape = (h.shape[-1], self.num_features)
        w = self.param("w", nn.initializers.orthogonal(), shape, jnp.float32)
        b = self.param("b", nn.initializers.zeros_init(), (self.num_features,), jnp.float32)
        return h @ w + b


def cnn_networks(image_shape: Sequence[int], **settings) -> Networks:
    """Build the convolutional networks CNN, without a projection: z is the flattened private layer.

    Args:
      image_shape: (height, width, channels) of one image; x may also hold flat rows of that size.
      **settings: The arguments of `scnn_networks` except `num_features`.

    Returns:
      The networks; the same settings return the same record.

    Example:
      >>> cnn_networks((8, 8, 1), num_outputs=2) is cnn_networks([8, 8, 1], num_outputs=2)
      True
    """
    if "num_features" in settings:
        raise TypeError("num_features belongs to scnn_networks: a CNN has no projection.")
    return scnn_networks(image_shape, num_features=0, **settings)


@network_kind("scnn")
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
) -> Networks:
    """Build the networks SCNN: a subspace projection (eq. cnn_funnel) between two convolutional networks.

    The release is z = ReLU(W'h(x) + b), and the public network works on the image W z with the same W.
    W belongs to the private network and is kept orthonormal by a penalty (eq. orthonormality).

    Args:
      image_shape: (height, width, channels) of one image; x may also hold flat rows of that size.
      num_outputs: Number of classes of y, or its width when y is continuous.
      num_private: Outputs of the discriminator; 0 for no discriminator.
      num_features: Width of z.
      private_filters: Number of 3 x 3 filters of the private convolution.
      public_filters: Number of 3 x 3 filters of the public convolution.
      public_widths: Dense hidden widths after the public convolution.
      discriminator_widths: Hidden widths of the discriminator.

    Returns:
      The networks; the same settings return the same record.

    Example:
      >>> networks = scnn_networks((8, 8, 1), num_outputs=2, num_features=5)
      >>> params = networks.init(jax.random.key(0))
      >>> networks.private(params, jnp.ones((3, 64))).shape
      (3, 5)
    """
    image_shape = tuple(image_shape)
    if len(image_shape) != 3 or min(image_shape[:2]) < 4:
        raise ValueError(f"image_shape must be (height, width, channels), from 4 x 4 on, got {image_shape}.")
    check_sizes(image_shape=image_shape, num_outputs=num_outputs)
    check_sizes(private_filters=private_filters, public_filters=public_filters)
    check_sizes(minimum=0, num_features=num_features, public_widths=public_widths)
    hidden_shape = (image_shape[0] // 2, image_shape[1] // 2, private_filters)
    hidden_size = math.prod(hidden_shape)
    if num_features > hidden_size:
        raise ValueError(
            f"num_features must be at most {hidden_size}, the size of the private layer, got {num_features}: "
            "more columns cannot be orthonormal."
        )
    convolution, project = _ConvolutionPool(private_filters), _Projection(num_features)
    public_module = _PublicConvolution(public_filters, public_widths, num_outputs)
    init_discriminator, discriminator = dense_discriminator(num_private, discriminator_widths)

    def init(key):
        keys = jax.random.split(key, 4)
        private = {"convolution": init_module(convolution, keys[0], *image_shape)}
        if num_features:
            private["projection"] = init_module(project, keys[1], hidden_size)
        return {
            "private": private,
            "public": init_module(public_module, keys[2], *hidden_shape),
            "discriminator": init_discriminator(keys[3], num_features or hidden_size),
        }

    def private_layers(params):
        kernel, bias = (params["private"]["convolution"][name] for name in ("kernel", "bias"))
        image, flat = Layer("reshape", shape=image_shape), Layer("reshape", shape=(hidden_size,))
        layers = image, Layer("convolve_pool_relu", (kernel, bias), image_shape), flat
        if not num_features:
            return layers
        return *layers, Layer("dense_relu", tuple(params["private"]["projection"][name] for name in "wb"))

    def private(params, x, *, key=None, dropout=0.0):
        if math.prod(x.shape[1:]) != math.prod(image_shape):
            raise ValueError(f"x must hold images of shape {image_shape}, got rows of shape {x.shape[1:]}.")
        return apply_jax(private_layers(params), x, key=key, rate=dropout)

    def public(params, z, *, key=None, dropout=0.0):
        if not num_features:
            image, basis = z.reshape(-1, *hidden_shape), None
        else:
            image, basis = z, params["private"]["projection"]["w"].T.reshape(-1, *hidden_shape)
            if len(z) <= num_features:  # fewer images W z than images in the basis
                image, basis = jnp.tensordot(z, basis, 1), None
        return apply_module(public_module, params["public"], image, key, dropout, basis)

    def projection(params):
        return params["private"]["projection"]["w"] if num_features else None

    return Networks(init, private, public, discriminator, projection, private_layers=private_layers)
