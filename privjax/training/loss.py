"""Algorithm 1 as one sum whose gradient gives each network the gradient of its own loss."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jaxtyping import Float

from privjax.losses import orthonormality_penalty
from privjax.networks import Params
from privjax.objectives import Attribute
from privjax.training.data import Hyperparameters, Task, TrainConfig, TrainData

ORTHONORMALITY_WEIGHT = 10.0
_MAX_UNROLLED = 10  # classes of y
_TINY = float(jnp.finfo(jnp.float32).tiny)


class Losses(NamedTuple):
    """The parts of the sum, without weights."""

    utility: Array  # L_U
    privacy: Array | dict[str, Array]  # L_P; a dict when p is a dict
    orthonormality: Array  # L_O; 0 without a projection
    discriminator: Array  # L_D; 0 without a discriminator
    objective: Array  # L_U + privacy_weight L_P + 10 L_O, the loss of the private network


def total_loss(
    params: Params,
    batch: TrainData,
    numbers: Hyperparameters,
    *,
    config: TrainConfig,
    key: Array | None = None,
    constants: Any = None,
) -> tuple[Float[Array, ""], Losses]:
    """Compute L_U + privacy_weight L_P + 10 L_O + L_D, each seen by the networks that minimise it.

    Where the paper writes parameters before the semicolon, their gradient is stopped. So the private
    network gets the gradient of L_U + privacy_weight L_P + 10 L_O, the public network that of L_U, and the
    discriminator that of L_D. With a mesh axis, `batch` and the sum are the device's share, so the gradients
    of all devices add up; the parts are those of the whole batch. Without a key the pass is deterministic.
    """
    networks, axis = config.networks, config.axis
    private_key, public_key, loss_key = (None,) * 3 if key is None else jax.random.split(key, 3)
    h = networks.private(params, batch.x, key=private_key, dropout=numbers.private_dropout)
    z = config.release.apply(h, release_key(key, config))
    outputs = networks.public(params, z, key=public_key, dropout=numbers.public_dropout)

    L_U = utility_loss(outputs, batch.y, config.task, batch.weights, axis)
    share = 1.0
    if axis is not None:
        # Privacy losses compare rows with each other, so every device needs the z of the whole batch. Each
        # device counts for its share, and the sum over devices is exactly the loss of the batch.
        share = 1.0 / lax.axis_size(axis)
        z, y, p, weights = lax.all_gather((z, batch.y, batch.p, batch.weights), axis, tiled=True)
        batch = batch._replace(y=y, p=p, weights=weights)
    L_P, L_D = _private_losses(params, z, batch, config, loss_key, constants)
    w = networks.projection(params)
    L_O = jnp.zeros(()) if w is None else orthonormality_penalty(w)

    lambda_P = [attribute.pick(numbers.privacy_weight) for attribute in config.task.private]
    private = sum((weight * loss for weight, loss in zip(lambda_P, L_P, strict=True)), jnp.zeros(()))
    private += ORTHONORMALITY_WEIGHT * L_O
    utility = L_U if axis is None else lax.psum(lax.stop_gradient(L_U), axis)
    parts = Losses(utility, config.task.collect(L_P), L_O, L_D, objective=utility + private)
    return L_U + share * (private + L_D), parts


def release_key(key: Array | None, config: TrainConfig) -> Array | None:
    """Derive the key of the release mechanism; None when it needs none."""
    return None if key is None or not config.release.stochastic else jax.random.fold_in(key, 3)


def utility_loss(
    outputs: Float[Array, "n k"], y: Array, task: Task, weights: Array | None, axis: str | None = None
) -> Float[Array, ""]:
    """Compute the cross-entropy of logits (eq. util_loss), or the squared error for a continuous y.

    With a mesh axis the result is the share of this device's rows in the loss of the whole batch.
    """
    if task.num_classes:
        losses = optax.softmax_cross_entropy_with_integer_labels(outputs, y)
    else:
        losses = jnp.sum((outputs - y) ** 2, axis=-1)
    if weights is None:
        return losses.mean() if axis is None else losses.mean() / lax.axis_size(axis)
    total = weights.sum() if axis is None else lax.psum(weights.sum(), axis)
    # A row of weight 0 may hold any value, and a batch may hold no other rows.
    losses = jnp.where(weights > 0, losses, 0.0)
    return jnp.sum(weights * losses) / jnp.maximum(total, _TINY)


def _private_losses(
    params: Params, z: Array, batch: TrainData, config: TrainConfig, key: Array | None, constants: Any
) -> tuple[list[Array], Array]:
    """Compute L_P of each private variable, and L_D, the sum over all of them."""
    objective, constant = config.objective, lax.stop_gradient(params)
    trainable = {**constant, "discriminator": params["discriminator"]}  # L_D trains the discriminator alone
    compare = functools.partial(_compare, batch=batch, config=config, constants=constants, key=key)
    L_P, L_D, first = [], jnp.zeros(()), 0
    for attribute in config.task.private:
        columns = slice(first, first + attribute.width)
        first += attribute.width
        L_P.append(compare(objective.privacy_loss, z, constant, attribute, columns))
        if objective.discriminator_loss is not None:
            z_fixed = lax.stop_gradient(z)
            L_D += compare(objective.discriminator_loss, z_fixed, trainable, attribute, columns)
    return L_P, L_D


def _compare(
    loss: Callable[..., Array],
    z: Array,
    params: Params,
    attribute: Attribute,
    columns: slice,
    *,
    batch: TrainData,
    config: TrainConfig,
    **arguments: Any,
) -> Array:
    """Compute a loss over all rows of the batch, or the mean over the classes of y."""

    def critic(z: Array) -> Array:
        return config.networks.discriminator(params, z)[:, columns]

    def weighted(weights: Array | None) -> Array:
        p = attribute.pick(batch.p)
        scores = None if config.objective.discriminator_loss is None else critic
        return loss(z, p, attribute=attribute, critic=scores, weights=weights, **arguments)

    if not config.objective.within_utility:
        return weighted(batch.weights)
    return mean_over_classes(weighted, batch, config.task)


def mean_over_classes(loss: Callable[[Array], Array], batch: TrainData, task: Task) -> Array:
    """Compute sum_c N_c/N loss(weights of the rows with y = c): shapes must not depend on y."""
    weights = jnp.ones(batch.y.shape) if batch.weights is None else batch.weights
    within = weights * jax.nn.one_hot(batch.y, task.num_classes, axis=0)
    shares = within.sum(1) / jnp.maximum(within.sum(), _TINY)
    if len(within) <= _MAX_UNROLLED:  # a compiled loop takes several times as long
        return sum((share * loss(w) for share, w in zip(shares, within, strict=True)), jnp.zeros(()))
    return shares @ jax.vmap(loss)(within)
