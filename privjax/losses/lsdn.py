"""Least squares discriminator network: predicts p from z; the private sphere makes it predict the mean."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from privjax.losses._inputs import Rows, as_array, matrix, rows
from privjax.losses.wdn import Critic, critic_scores


def lsdn_privacy_loss(
    z: ArrayLike, p: ArrayLike, critic: Critic, *, weights: ArrayLike | None = None
) -> Array:
    """What the private sphere minimises against a least squares critic (eq. LSDN_obj).

    1/N sum_i | critic(z_i) - mu |^2,  mu = 1/N sum_i p_i: zero once the critic can do no better than
    predict the mean. The mean is that of the batch. A class without rows contributes nothing.

    Args:
      z: released rows [n, d].
      p: class labels [n], or any real matrix [n, l] (one-hot, or continuous attributes).
      critic: a function z [n, d] -> predictions [n, l]. Its parameters are constants here: stop their
        gradient where both losses are minimised in one step.
      weights: sample weights [n]; a row of weight 0 changes nothing.
    """
    batch = rows(z, weights)
    scores, p, absent = _paired(p, critic, batch)
    total = jnp.where(batch.weights.sum() == 0, 1, batch.weights.sum())
    return _mean_square(
        scores, jnp.broadcast_to((batch.weights @ p / total)[None, :], p.shape), absent, batch
    )


def lsdn_discriminator_loss(
    z: ArrayLike, p: ArrayLike, critic: Critic, *, weights: ArrayLike | None = None
) -> Array:
    """What the critic minimises (eq. lsdn_disc_obj): 1/N sum_i | critic(z_i) - p_i |^2.

    A class without rows in the batch contributes nothing.

    Args:
      z: released rows [n, d]; a constant to the critic, so stop its gradient.
      p: class labels [n], or any real matrix [n, l].
      critic: a function z [n, d] -> predictions [n, l].
      weights: sample weights [n]; a row of weight 0 changes nothing.
    """
    batch = rows(z, weights)
    scores, p, absent = _paired(p, critic, batch)
    return _mean_square(scores, p, absent, batch)


def _paired(p: ArrayLike, critic: Critic, batch: Rows) -> tuple[Array, Array, Array]:
    scores = critic_scores(critic, batch)
    p = as_array(p)
    if p.ndim == 2 and p.shape[1] != scores.shape[1]:
        raise ValueError(f"critic has {scores.shape[1]} outputs but p has {p.shape[1]} columns")
    return scores, *matrix(p, batch, scores.shape[1])


@jax.jit
def _mean_square(scores: Array, target: Array, absent: Array, batch: Rows) -> Array:
    total = jnp.where(batch.weights.sum() == 0, 1, batch.weights.sum())
    error = jnp.where(absent[None, :] | ~batch.there[:, None], 0, scores - target)
    return (batch.weights[:, None] * error * error).sum() / total
