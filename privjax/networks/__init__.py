"""Networks as records of pure functions, and the registry of the kinds that this package builds.

A kind of network is one file in this folder and one entry in `NETWORKS`. Its private network is a tuple of
layers (`LAYER_KINDS`), from which the JAX and NumPy passes and the exported files follow.
"""

from collections.abc import Callable, Mapping
from typing import Any

from privjax.networks.convolutional import cnn_networks, scnn_networks
from privjax.networks.dense import dense_layers, linear_networks, nn_networks
from privjax.networks.layers import LAYER_KINDS, Layer, apply_jax, apply_numpy, dropout, multiply_adds
from privjax.networks.record import Networks, Params

NETWORKS: dict[str, Callable[..., Networks]] = {
    "nn": nn_networks,
    "scnn": scnn_networks,
    "linear": linear_networks,
}


def make_networks(settings: Mapping[str, Any]) -> Networks:
    """Build networks from their settings, also after the settings went through JSON.

    Args:
      settings: The content of `Networks.settings`: the `kind`, a key of `NETWORKS`, and its arguments.

    Returns:
      The same record as the call that the settings come from.

    Example:
      >>> networks = nn_networks(4, num_outputs=2)
      >>> make_networks(dict(networks.settings)) is networks
      True
    """
    arguments = dict(settings)
    kind = arguments.pop("kind", None)
    if kind not in NETWORKS:
        raise ValueError(f"settings must name their kind, one of {', '.join(NETWORKS)}, got {kind!r}.")
    return NETWORKS[kind](**arguments)


def is_built_in(networks: Networks) -> bool:
    """Return whether `make_networks` builds these networks, with the same functions."""
    return networks.settings is not None and make_networks(dict(networks.settings)) == networks


__all__ = [
    "LAYER_KINDS",
    "NETWORKS",
    "Layer",
    "Networks",
    "Params",
    "apply_jax",
    "apply_numpy",
    "cnn_networks",
    "dense_layers",
    "dropout",
    "is_built_in",
    "linear_networks",
    "make_networks",
    "multiply_adds",
    "nn_networks",
    "scnn_networks",
]
