"""Algorithm 1's three losses as one sum, whose gradient gives each network that of its own loss."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from privjax.losses import orthonormality_penalty
from privjax.networks import Networks, Params
from privjax.training.data import Task
from privjax.training.objectives import Objective

ORTHONORMALITY_WEIGHT = 10.0
_MOST_UNROLLED = 10  # classes of y


class Losses(NamedTuple):
    """The parts of the sum, before any weight.

    Attributes:
      utility: L_U.
      privacy: L_P, a dict of them when p is a dict.
      orthonormality: L_O, 0 without a projection.
      discriminator: L_Disc, 0 without a discriminator.
      objective: L_U + privacy_weight L_P + 10 L_O, what the private network minimises.
    """

    utility: Array
    privacy: Any
    orthonormality: Array
    discriminator: Array
    objective: Array


class Batch(NamedTuple):
    """Rows of the training data."""

    x: Array
    y: Array
    p: Any
    weights: Array | None


def utility_loss(
    outputs: Array, y: Array, task: Task, weights: Array | None, axis: str | None = None
) -> Array:
    """Cross-entropy (eq. util_loss) of logits for labels y; squared error for a continuous y.

    With a mesh `axis` the rows are this device's share, and so is what is returned: the shares of all
    devices add up to the loss of the whole batch.
    """
    if task.num_classes:
        losses = optax.softmax_cross_entropy_with_integer_labels(outputs, y)
    else:
        losses = jnp.sum((outputs - y) ** 2, axis=-1)
    if weights is None:
        return losses.mean() if axis is None else losses.mean() / lax.axis_size(axis)
    total = weights.sum() if axis is None else lax.psum(weights.sum(), axis)
    # A row of weight 0 may hold anything, and a batch may hold no other rows.
    losses = jnp.where(weights > 0, losses, 0.0)
    return jnp.sum(weights * losses) / jnp.maximum(total, jnp.finfo(jnp.float32).tiny)


def total_loss(
    params: Params,
    batch: Batch,
    *,
    networks: Networks,
    objective: Objective,
    task: Task,
    privacy_weight: Any,
    private_dropout: Array | float = 0.0,
    public_dropout: Array | float = 0.0,
    key: Array | None = None,
    constants: Any = None,
    axis: str | None = None,
) -> tuple[Array, Losses]:
    """L_U + privacy_weight L_P + 10 L_O + L_Disc, each seen only by the networks that minimise it.

    Where the paper puts parameters before the semi-colon their gradient is stopped: the private
    network gets the gradient of L_U + privacy_weight L_P + 10 L_O, the public one that of L_U, the
    discriminator that of L_Disc.

    Args:
      params: `{"private", "public", "discriminator"}`.
      batch: rows of the data.
      networks: the three networks.
      objective: the privacy objective.
      task: what the labels are.
      privacy_weight: lambda_P, or a dict of one for each private variable.
      private_dropout: rate on the hidden layers of the private network.
      public_dropout: rate on those of the public network.
      key: of the dropout; None for none.
      constants: what `objective.draw` gave.
      axis: of a mesh over which the rows of one batch are spread. The sum is then this device's share:
        the gradients of all devices add up to the gradient of the whole batch.

    Returns:
      The sum, and its parts (of the whole batch).
    """
    keys = (None, None, None) if key is None else jax.random.split(key, 3)
    private_key, public_key, loss_key = keys
    z = networks.private(params, batch.x, key=private_key, dropout=private_dropout)
    outputs = networks.public(params, z, key=public_key, dropout=public_dropout)
    utility = utility_loss(outputs, batch.y, task, batch.weights, axis)
    share = 1.0
    if axis is not None:
        # A privacy loss compares rows with each other, so every device needs the z of all; each then
        # counts for its share, and the sum over devices is the loss of the whole batch, exactly.
        share = 1.0 / lax.axis_size(axis)
        z, y, p, weights = lax.all_gather((z, batch.y, batch.p, batch.weights), axis, tiled=True)
        batch = Batch(batch.x, y, p, weights)

    fixed = lax.stop_gradient(params)
    # For L_Disc, everything but the discriminator itself is a constant.
    learning = {**fixed, "discriminator": params["discriminator"]}
    privacy, discriminator, start = [], jnp.zeros(()), 0
    for attribute in task.private:
        columns = slice(start, start + attribute.width)
        start += attribute.width
        p = attribute.pick(batch.p)

        def critic(z, params=fixed, columns=columns):
            return networks.discriminator(params, z)[:, columns]

        def teacher(z, critic=critic):
            return critic(z, params=learning)

        def judged(loss, z, critic, p=p, attribute=attribute):
            settings = dict(attribute=attribute, constants=constants, key=loss_key, critic=critic)
            if objective.within_utility:
                return _mean_over_classes(functools.partial(loss, z, p, **settings), batch, task)
            return loss(z, p, weights=batch.weights, **settings)

        if objective.discriminator_loss is None:
            privacy.append(judged(objective.privacy_loss, z, None))
        else:
            privacy.append(judged(objective.privacy_loss, z, critic))
            discriminator += judged(objective.discriminator_loss, lax.stop_gradient(z), teacher)

    w = networks.projection(params)
    orthonormality = jnp.zeros(()) if w is None else orthonormality_penalty(w)
    weights = [a.pick(privacy_weight) for a in task.private]
    weighted = sum(weight * loss for weight, loss in zip(weights, privacy, strict=True))
    weighted += ORTHONORMALITY_WEIGHT * orthonormality
    whole = utility if axis is None else lax.psum(lax.stop_gradient(utility), axis)
    parts = Losses(whole, task.collect(privacy), orthonormality, discriminator, whole + weighted)
    return utility + share * (weighted + discriminator), parts


def _mean_over_classes(loss: Callable[..., Array], batch: Batch, task: Task) -> Array:
    """sum_c N_c/N loss(rows with y = c): the others get weight 0, as shapes must not depend on y."""
    weights = jnp.ones(batch.y.shape) if batch.weights is None else batch.weights
    within = weights * jax.nn.one_hot(batch.y, task.num_classes, axis=0)
    shares = within.sum(1) / jnp.maximum(within.sum(), jnp.finfo(jnp.float32).tiny)
    if len(within) <= _MOST_UNROLLED:  # a loop of the compiler's would run each at several times the cost
        return sum((share * loss(weights=w) for share, w in zip(shares, within, strict=True)), jnp.zeros(()))
    return shares @ jax.vmap(lambda weights: loss(weights=weights))(within)
