"""What a member of a sweep is between two epochs, and how it begins."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.core import Tracer

from privjax.networks import Networks, Params
from privjax.training.data import Task, TrainData
from privjax.training.objectives import Objective

RUNNING, CONVERGED, FINISHED, DIVERGED = range(4)
STATUS_NAMES = ("running", "converged", "finished", "diverged")


class TrainConfig(NamedTuple):
    """All that is static: another config is another compilation.

    Attributes:
      networks: the three networks.
      objective: the privacy objective.
      task: what the labels are.
      batch_size: rows a step, at most.
      axis: of a mesh over which the rows of each batch are spread; None for one device.
    """

    networks: Networks
    objective: Objective
    task: Task
    batch_size: int = 500
    axis: str | None = None


class Hyperparameters(NamedTuple):
    """All numbers that may differ between members of a sweep, as arrays; see `hyperparameters`."""

    privacy_weight: Any
    private_rate: Array
    public_rate: Array
    discriminator_rate: Array
    private_dropout: Array
    public_dropout: Array
    seed: Array


def hyperparameters(
    objective: Objective,
    task: Task,
    *,
    privacy_weight: Any,
    private_rate: float | None = None,
    public_rate: float | None = None,
    discriminator_rate: float | None = None,
    private_dropout: float = 0.2,
    public_dropout: float = 0.5,
    seed: int = 0,
) -> Hyperparameters:
    """Hyperparameters with the objective's own rates where none are given.

    Args:
      objective: whose rates are the defaults.
      task: names the private variables.
      privacy_weight: lambda_P, or a dict of one for each private variable.
      private_rate: Adam's learning rate for the private network.
      public_rate: for the public network.
      discriminator_rate: for the discriminator.
      private_dropout: dropout rate on the hidden layers of the private network.
      public_dropout: on those of the public network.
      seed: of the first parameters, the order of rows and the dropout.
    """
    names = [attribute.name for attribute in task.private]
    if names != [None]:
        if not isinstance(privacy_weight, dict):
            privacy_weight = {name: privacy_weight for name in names}
        if sorted(privacy_weight) != names:
            raise ValueError(
                f"privacy_weight must name the private variables {names}, got {sorted(privacy_weight)}."
            )
        privacy_weight = {
            name: _number(f"privacy_weight[{name!r}]", value) for name, value in privacy_weight.items()
        }
    elif isinstance(privacy_weight, dict):
        raise TypeError("privacy_weight must be a number, since p is not a dict.")
    else:
        privacy_weight = _number("privacy_weight", privacy_weight)

    def rate(name, value):
        return _number(name, getattr(objective, name) if value is None else value)

    return Hyperparameters(
        privacy_weight=privacy_weight,
        private_rate=rate("private_rate", private_rate),
        public_rate=rate("public_rate", public_rate),
        discriminator_rate=rate("discriminator_rate", discriminator_rate),
        private_dropout=_number("private_dropout", private_dropout, most=1),
        public_dropout=_number("public_dropout", public_dropout, most=1),
        seed=_seed(seed),
    )


def _number(name: str, value: Any, *, most: float = math.inf) -> Array:
    """A finite number from 0 to `most` as an array; one that is traced is taken as it is."""
    if not isinstance(value, Tracer):
        single = isinstance(value, (int, float, np.number, np.ndarray, Array)) and np.ndim(value) == 0
        if not (single and math.isfinite(value) and 0 <= float(value) <= most):
            limits = "not negative" if most == math.inf else f"between 0 and {most}"
            raise ValueError(f"{name} must be a finite number, {limits}, got {value!r}.")
    return jnp.asarray(value, jnp.float32)


def _seed(seed: Any) -> Array:
    if not isinstance(seed, Tracer) and not (hasattr(seed, "__index__") and 0 <= int(seed) < 2**32):
        raise ValueError(f"seed must be an integer between 0 and 2^32 - 1, got {seed!r}.")
    return jnp.asarray(seed, jnp.uint32)


class TrainState(NamedTuple):
    """One member between two epochs; arrays only, so it can be stacked, sharded and saved.

    Attributes:
      params: `{"private", "public", "discriminator"}`.
      optimizer: Adam's state.
      last_finite: the parameters at which the loss was last seen finite.
      key: key data of the member's random numbers; those of an epoch follow from its number.
      constants: what the objective drew once.
      epoch: epochs done.
      rate_scale: what the learning rates have fallen to, from 1.
      best: lowest epoch objective that counted as a decline.
      stale: epochs since then.
      falls: how often the rates fell.
      status: RUNNING, CONVERGED, FINISHED or DIVERGED.
    """

    params: Params
    optimizer: Any
    last_finite: Params
    key: Array
    constants: Any
    epoch: Array
    rate_scale: Array
    best: Array
    stale: Array
    falls: Array
    status: Array


def make_optimizer(hyperparameters: Hyperparameters, scale: Array | float):
    """Adam for each network at its own rate.

    Rates are arrays given at each step, not state, so a change of value compiles nothing.
    """
    return optax.multi_transform(
        {
            "private": optax.adam(hyperparameters.private_rate * scale),
            "public": optax.adam(hyperparameters.public_rate * scale),
            "discriminator": optax.adam(hyperparameters.discriminator_rate * scale),
        },
        {name: name for name in ("private", "public", "discriminator")},
    )


@functools.partial(jax.jit, static_argnames="config")
def init_state(hyperparameters: Hyperparameters, data: TrainData, *, config: TrainConfig) -> TrainState:
    """The state before the first epoch; it depends on the seed and on the shape of x alone."""
    key = jax.random.key(hyperparameters.seed)
    init_key, draw_key, train_key = jax.random.split(key, 3)
    params = config.networks.init(init_key)
    if config.objective.discriminator_loss is None:
        params = {**params, "discriminator": {}}
    constants = None
    if config.objective.draw is not None:
        z = jax.eval_shape(config.networks.private, params, data.x[:1])
        constants = config.objective.draw(draw_key, z.shape[-1])
    return TrainState(
        params=params,
        optimizer=make_optimizer(hyperparameters, 1.0).init(params),
        last_finite=params,
        key=jax.random.key_data(train_key),
        constants=constants,
        epoch=jnp.zeros((), jnp.int32),
        rate_scale=jnp.ones((), jnp.float32),
        best=jnp.full((), jnp.inf, jnp.float32),
        stale=jnp.zeros((), jnp.int32),
        falls=jnp.zeros((), jnp.int32),
        status=jnp.full((), RUNNING, jnp.int32),
    )
