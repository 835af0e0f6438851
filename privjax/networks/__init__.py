"""Networks as records of pure functions; each kind of network is one file in this folder.

The private network is a tuple of layers (`LAYER_KINDS`), from which the JAX and NumPy passes and the exported
files follow.
"""

from privjax.networks.convolutional import cnn_networks, scnn_networks
from privjax.networks.dense import dense_layers, linear_networks, nn_networks
from privjax.networks.layers import (
    LAYER_KINDS,
    NETWORKS,
    Layer,
    Networks,
    Params,
    apply_jax,
    apply_numpy,
    dropout,
    is_built_in,
    make_networks,
    multiply_adds,
)

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
