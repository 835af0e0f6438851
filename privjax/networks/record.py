"""The record of the three networks, and the protocols of its functions."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from jax import Array

from privjax.networks.layers import Layer

Params = dict[str, Any]
Rate = Any  # a float or a traced scalar; Any, so that a function with an unannotated `dropout=0.0` fits


class PrivateNetwork(Protocol):
    """Map rows x [n, ...] to z [n, d], with parameters from `params["private"]`."""

    def __call__(
        self, params: Params, x: Array, /, *, key: Array | None = None, dropout: Rate = 0.0
    ) -> Array:
        """Return z."""
        ...


class PublicNetwork(Protocol):
    """Map z [n, d] to logits [n, k], or to predictions when y is continuous."""

    def __call__(
        self, params: Params, z: Array, /, *, key: Array | None = None, dropout: Rate = 0.0
    ) -> Array:
        """Return logits or predictions."""
        ...


def no_public(params: Params, z: Array, *, key: Array | None = None, dropout: Rate = 0.0) -> Array:
    """Raise: these networks are an encoder without a public network."""
    raise ValueError("networks has no public network: train nn_networks, cnn_networks or scnn_networks.")


def no_discriminator(params: Params, z: Array) -> Array:
    """Raise: these networks have no discriminator."""
    raise ValueError(
        "networks has no discriminator: build it with num_private=, the number of private outputs."
    )


def no_projection(params: Params) -> None:
    """Return None: these networks have no subspace projection."""
    return None


class Networks(NamedTuple):
    """The private, public and discriminator networks, as pure functions of one dict of parameters.

    Training needs nothing else, so Flax NNX, Equinox or plain functions serve as well as the
    networks of this package. With `key=None` the networks are deterministic. With a key, units of
    hidden layers are dropped at the rate `dropout`. The rate is an array, so another rate is not
    another compilation.

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
    private: PrivateNetwork
    public: PublicNetwork
    discriminator: Callable[[Params, Array], Array] = no_discriminator
    projection: Callable[[Params], Array | None] = no_projection
    settings: tuple[tuple[str, Any], ...] | None = None
    private_layers: Callable[[Params], tuple[Layer, ...]] | None = None
