"""Losses of discriminator networks (critics): Wasserstein (WDN) and least squares (LSDN).

Each comes in two parts: the privacy loss that the private network minimises and the loss that the critic
minimises.
"""

from __future__ import annotations

from typing import Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Float, Shaped

from privjax.kernels import Scalar, positive
from privjax.losses.checks import (
    Batch,
    Weights,
    at_least_float32,
    check_batch,
    check_labels,
    check_matrix,
    class_sizes,
    to_array,
)
from privjax.numerics import nonzero, safe_sqrt


class Critic(Protocol):
    """A discriminator network as a function of z, with its parameters bound."""

    def __call__(self, z: Float[Array, "n d"], /) -> Float[Array, "n l"]:
        """Compute the scores of the rows z, each row from itself alone."""
        ...


def wdn_privacy_loss(
    z: Float[ArrayLike, "n d"], p: Shaped[ArrayLike, "n ..."], critic: Critic, *, weights: Weights = None
) -> Float[Array, ""]:
    """Compute the loss of the private network against a Wasserstein critic (eq. WDN_obj).

        -sum_l N_l/N ( mean_{i in l} critic_l(z_i) - mean_{i not in l} critic_l(z_i) )

    The critic has one output per class and separates that class from the rest. The parameters of the critic
    are constants here: stop their gradient if one step minimises both losses. A class without rows
    contributes nothing.

    Args:
      z: Released rows.
      p: Class labels [n], or a one-hot matrix [n, l].
      critic: A function of z that returns scores [n, l].
      weights: Non-negative weights of the rows; a row of weight 0 changes nothing.

    Returns:
      The loss, at least float32.

    Example:
      >>> import jax.numpy as jnp, privjax
      >>> z = jnp.array([[0.0, 0.0], [1.0, 4.0]])
      >>> float(privjax.wdn_privacy_loss(z, jnp.array([0, 1]), lambda z: z))
      -1.5
    """
    batch = check_batch(z, weights)
    scores = _scores(p, critic, batch)
    labels = check_labels(p, batch, scores.shape[1])
    return -_contrast(scores, labels.classes, batch) + labels.nan_flag


def wdn_discriminator_loss(
    z: Float[ArrayLike, "n d"],
    p: Shaped[ArrayLike, "n ..."],
    critic: Critic,
    *,
    penalty: Scalar = 10.0,
    noise: Scalar = 0.0,
    key: Array | None = None,
    weights: Weights = None,
) -> Float[Array, ""]:
    """Compute the loss of a Wasserstein critic: its contrast and a Lipschitz penalty (eq. wdn_disc_obj).

        sum_l N_l/N ( mean_l critic_l - mean_rest critic_l ) + penalty mean_i ( |d critic_{s_i}/dz_i| - 1 )^2

    The penalty takes one gradient per row, at the output of its own class. It keeps the critic close to a
    1-Lipschitz function, for which the contrast is a Wasserstein distance.

    Args:
      z: Released rows; a constant to the critic, so stop their gradient.
      p: Class labels [n], or a one-hot matrix [n, l].
      critic: A function of z that returns scores [n, l].
      penalty: Factor lambda_R of the penalty. Default: that of the paper.
      noise: Standard deviation of Gaussian noise on z in the penalty only, which extends the constraint to
        the neighbourhood of the rows. Needs `key`.
      key: A `jax.random` key.
      weights: Non-negative weights of the rows; a row of weight 0 changes nothing.

    Returns:
      The loss, at least float32.

    Example:
      >>> import jax.numpy as jnp, privjax
      >>> z = jnp.array([[0.0, 0.0], [1.0, 4.0]])
      >>> float(privjax.wdn_discriminator_loss(z, jnp.array([0, 1]), lambda z: 2 * z))  # slope 2: penalty 10
      13.0
    """
    penalty, noise = positive("penalty", penalty, zero=True), positive("noise", noise, zero=True)
    batch = check_batch(z, weights)
    scores = _scores(p, critic, batch)
    labels = check_labels(p, batch, scores.shape[1])
    near = batch.z
    if key is not None:
        near = near + jnp.asarray(noise, near.dtype) * jax.random.normal(key, near.shape, near.dtype)
    elif isinstance(noise, Tracer) or noise != 0:
        raise ValueError("noise needs a jax.random key: pass key=...")

    def own_score(near):
        scores = at_least_float32(critic(near))
        own = jnp.take_along_axis(scores, labels.classes[:, None], 1)[:, 0]
        return jnp.where(batch.valid, own, 0).sum()

    slope = jnp.where(batch.valid[:, None], jax.grad(own_score)(near), 0)
    gap = safe_sqrt((slope * slope).sum(1)) - 1
    lipschitz = (batch.weights * gap * gap).sum() / nonzero(batch.weights.sum())
    return _contrast(scores, labels.classes, batch) + penalty * lipschitz + labels.nan_flag


def lsdn_privacy_loss(
    z: Float[ArrayLike, "n d"], p: Shaped[ArrayLike, "n ..."], critic: Critic, *, weights: Weights = None
) -> Float[Array, ""]:
    """Compute the loss of the private network against a least squares critic (eq. LSDN_obj).

        1/N sum_i | critic(z_i) - mu |^2,   mu = 1/N sum_i p_i

    It is zero if the critic can only predict the mean of the batch. The parameters of the critic are
    constants here: stop their gradient if one step minimises both losses. A class without rows contributes
    nothing.

    Args:
      z: Released rows.
      p: Class labels [n], or a real matrix [n, l]: one-hot, or continuous variables.
      critic: A function of z that returns predictions [n, l].
      weights: Non-negative weights of the rows; a row of weight 0 changes nothing.

    Returns:
      The loss, at least float32.

    Example:
      >>> import jax.numpy as jnp, privjax
      >>> z = jnp.full((2, 2), 0.5)
      >>> float(privjax.lsdn_privacy_loss(z, jnp.array([0, 1]), lambda z: z))
      0.0
    """
    batch = check_batch(z, weights)
    scores = _scores(p, critic, batch)
    p, absent = check_matrix(p, batch, scores.shape[1])
    mean = batch.weights @ p / nonzero(batch.weights.sum())
    return _mean_square(scores, jnp.broadcast_to(mean[None, :], p.shape), absent, batch)


def lsdn_discriminator_loss(
    z: Float[ArrayLike, "n d"], p: Shaped[ArrayLike, "n ..."], critic: Critic, *, weights: Weights = None
) -> Float[Array, ""]:
    """Compute the squared error of a least squares critic (eq. lsdn_disc_obj).

        1/N sum_i | critic(z_i) - p_i |^2

    A critic that predicts p from z as well as possible leaves the variance of p that z does not explain. A
    class without rows in the batch contributes nothing.

    Args:
      z: Released rows; a constant to the critic, so stop their gradient.
      p: Class labels [n], or a real matrix [n, l]: one-hot, or continuous variables.
      critic: A function of z that returns predictions [n, l].
      weights: Non-negative weights of the rows; a row of weight 0 changes nothing.

    Returns:
      The loss, at least float32.

    Example:
      >>> import jax.numpy as jnp, privjax
      >>> z = jnp.full((2, 2), 0.5)
      >>> float(privjax.lsdn_discriminator_loss(z, jnp.array([0, 1]), lambda z: z))
      0.5
    """
    batch = check_batch(z, weights)
    scores = _scores(p, critic, batch)
    return _mean_square(scores, *check_matrix(p, batch, scores.shape[1]), batch)


def _scores(p: ArrayLike, critic: Critic, batch: Batch) -> Array:
    """Compute the scores [n, l] of valid rows, zero elsewhere; check them against the columns of p."""
    if not callable(critic):
        raise TypeError(f"critic must be a function z -> scores, got {type(critic).__name__}.")
    scores = jnp.asarray(critic(batch.z))
    if scores.ndim != 2 or scores.shape[0] != batch.z.shape[0]:
        raise ValueError(
            f"critic must return scores [n, l] for z [n, d], got {scores.shape} for {batch.z.shape}."
        )
    p = to_array(p)
    if p.ndim == 2 and p.shape[1] != scores.shape[1]:
        raise ValueError(f"critic has {scores.shape[1]} outputs but p has {p.shape[1]} columns.")
    return jnp.where(batch.valid[:, None], at_least_float32(scores), 0)


@jax.jit
def _contrast(scores: Array, index: Array, batch: Batch) -> Array:
    """Compute sum_l N_l/N (mean of class l - mean of the rest) of output l: L_D of eq. wd_multi_linear."""
    num_classes = scores.shape[1]
    size, rest, present, total = class_sizes(batch, index, num_classes)
    of_class = jax.nn.one_hot(index, num_classes, dtype=bool)
    weighted = batch.weights[:, None] * scores
    own = jnp.where(of_class, weighted, 0).sum(0) / size
    gap = own - jnp.where(of_class, 0, weighted).sum(0) / rest
    return jnp.where(present, size / total * gap, 0).sum()


@jax.jit
def _mean_square(scores: Array, target: Array, absent: Array, batch: Batch) -> Array:
    error = jnp.where(absent[None, :] | ~batch.valid[:, None], 0, scores - target)
    return (batch.weights[:, None] * error * error).sum() / nonzero(batch.weights.sum())
