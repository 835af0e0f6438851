"""Networks that a user would write."""

import jax
from flax import nnx

from privjax import Networks


def nnx_networks(features: int, num_outputs: int) -> Networks:
    """A user's own NNX modules behind the record: split into graph and state, merge to call."""

    def build(rngs):
        return nnx.Linear(features, 8, rngs=rngs), nnx.Linear(8, num_outputs, rngs=rngs)

    private_graph, public_graph = (nnx.graphdef(module) for module in build(nnx.Rngs(0)))

    def init(key):
        private, public = (nnx.state(module) for module in build(nnx.Rngs(key)))
        return {"private": private, "public": public, "discriminator": {}}

    def private(params, x, *, key=None, dropout=0.0):
        return jax.nn.relu(nnx.merge(private_graph, params["private"])(x))

    def public(params, z, *, key=None, dropout=0.0):
        return nnx.merge(public_graph, params["public"])(z)

    return Networks(init, private, public)
