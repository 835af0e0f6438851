"""Networks as records of pure functions; each kind of network is one file in this folder.

The private network is a tuple of layers (`LAYER_KINDS`), from which the JAX and NumPy passes and the exported
files follow.
"""

from privjax.networks.convolutional import cnn_networks as cnn_networks
from privjax.networks.convolutional import scnn_networks as scnn_networks
from privjax.networks.dense import dense_layers as dense_layers
from privjax.networks.dense import linear_networks as linear_networks
from privjax.networks.dense import nn_networks as nn_networks
from privjax.networks.layers import LAYER_KINDS as LAYER_KINDS
from privjax.networks.layers import NETWORKS as NETWORKS
from privjax.networks.layers import Layer as Layer
from privjax.networks.layers import Networks as Networks
from privjax.networks.layers import Params as Params
from privjax.networks.layers import apply_jax as apply_jax
from privjax.networks.layers import apply_numpy as apply_numpy
from privjax.networks.layers import dropout as dropout
from privjax.networks.layers import is_built_in as is_built_in
from privjax.networks.layers import make_networks as make_networks
