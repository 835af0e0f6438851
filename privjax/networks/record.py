"""The record of the three networks, and the cache of their constructors."""

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, Protocol

import jax
import numpy as np
from jax import Array

from privjax.networks.layers import Layer

Params = dict[str, Any]
Rate = Any  # a number or a traced scalar; Any, so that an unannotated `dropout=0.0` fits
Arguments = ParamSpec("Arguments")


class Network(Protocol):
    """A network as a function of the parameters of all networks and of rows."""

    def __call__(
        self, params: Params, rows: Array, /, *, key: Array | None = None, dropout: Rate = 0.0
    ) -> Array:
        """Return a row for each row."""
        ...


def no_public(params: Params, z: Array, *, key: Array | None = None, dropout: Rate = 0.0) -> Array:
    """Raise: these networks are an encoder alone."""
    raise ValueError("networks has no public network: train nn_networks, cnn_networks or scnn_networks.")


def no_discriminator(params: Params, z: Array) -> Array:
    """Raise: these networks have no discriminator."""
    raise ValueError(
        "networks has no discriminator: build it with num_private=, the number of private outputs."
    )


def no_projection(params: Params) -> None:
    """Return None: these networks have no subspace projection."""


class Networks(NamedTuple):
    """The private, public and discriminator networks, as pure functions of one dict of parameters.

    Training needs nothing else, so Flax NNX, Equinox or plain functions serve as well as the networks of
    this package. With `key=None` the networks are deterministic. With a key, units of hidden layers are
    dropped at the rate `dropout`, an array, so that another rate is not another compilation.

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
    private: Network
    public: Network
    discriminator: Callable[[Params, Array], Array] = no_discriminator
    projection: Callable[[Params], Array | None] = no_projection
    settings: tuple[tuple[str, Any], ...] | None = None
    private_layers: Callable[[Params], tuple[Layer, ...]] | None = None


def network_kind(
    kind: str,
) -> Callable[[Callable[Arguments, Networks]], Callable[Arguments, Networks]]:
    """Decorate a constructor of networks whose arguments are integers or tuples of integers.

    The constructor returns the same record for the same settings, so training compiles once, and the record
    carries its settings.
    """

    def decorate(build: Callable[Arguments, Networks]) -> Callable[Arguments, Networks]:
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

        return constructor

    return decorate


def _plain(name: str, value: Any) -> Any:
    """Return an argument as Python integers, which can be hashed and written as JSON."""
    if value is None:
        return None
    if np.ndim(value) == 0 and not name.endswith("shape"):
        return operator.index(value)
    return tuple(operator.index(size) for size in np.atleast_1d(value).tolist())


def check_sizes(name: str, sizes: int | tuple[int, ...], *, minimum: int = 1) -> None:
    """Raise ValueError for a number below the minimum, or for widths that are too few or not positive."""
    if isinstance(sizes, int):
        if sizes < minimum:
            raise ValueError(f"{name} must be at least {minimum}, got {sizes}.")
    elif len(sizes) < minimum or any(size < 1 for size in sizes):
        raise ValueError(f"{name} must hold at least {minimum} positive widths, got {sizes}.")
