"""Wasserstein discriminator network: an L-output critic that tells each class from the rest."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

from privjax.distances import safe_sqrt
from privjax.losses._inputs import Rows, as_array, labels, not_negative, rows, widen

Critic = Callable[[Array], Array]


def wdn_privacy_loss(
    z: ArrayLike, p: ArrayLike, critic: Critic, *, weights: ArrayLike | None = None
) -> Array:
    """What the private sphere minimises against a Wasserstein critic (eq. WDN_obj).

    -sum_l N_l/N ( mean_{i in l} critic_l(z_i) - mean_{i not in l} critic_l(z_i) )

    Args:
      z: released rows [n, d].
      p: class labels [n], or a one-hot matrix [n, l].
      critic: a function z [n, d] -> scores [n, l], each row from its own row alone. Its parameters are
        constants here: stop their gradient where both losses are minimised in one step.
      weights: sample weights [n]; a row of weight 0 changes nothing.
    """
    batch = rows(z, weights)
    scores = critic_scores(critic, batch)
    index, broken = _classes(p, batch, scores)
    return -_contrast(scores, index, batch) + broken


def wdn_discriminator_loss(
    z: ArrayLike,
    p: ArrayLike,
    critic: Critic,
    *,
    penalty: float | Array = 10.0,
    noise: float | Array = 0.0,
    key: Array | None = None,
    weights: ArrayLike | None = None,
) -> Array:
    """What the critic minimises (eq. wdn_disc_obj): its contrast and a Lipschitz penalty.

    sum_l N_l/N ( mean_l critic_l - mean_rest critic_l ) + penalty mean_i ( |d critic_{s_i}/dz_i| - 1 )^2

    One gradient per sample, at the output of its own class.

    Args:
      z: released rows [n, d]; a constant to the critic, so stop its gradient.
      p: class labels [n], or a one-hot matrix [n, l].
      critic: a function z [n, d] -> scores [n, l], each row from its own row alone.
      penalty: the paper's lambda_R.
      noise: standard deviation of Gaussian noise added to z in the penalty alone: it extends the
        Lipschitz constraint to the surroundings of the samples. Needs `key`.
      key: a `jax.random` key.
      weights: sample weights [n]; a row of weight 0 changes nothing.
    """
    not_negative("penalty", penalty)
    not_negative("noise", noise)
    batch = rows(z, weights)
    scores = critic_scores(critic, batch)
    index, broken = _classes(p, batch, scores)
    near = batch.z
    if key is not None:
        near = near + jnp.asarray(noise, near.dtype) * jax.random.normal(key, near.shape, near.dtype)
    elif isinstance(noise, Tracer) or noise != 0:
        raise ValueError("noise needs a jax.random key: pass key=...")

    def own_score(near):
        own = jnp.take_along_axis(widen(critic(near)), index[:, None], 1)[:, 0]
        return jnp.where(batch.there, own, 0).sum()

    slope = jnp.where(batch.there[:, None], jax.grad(own_score)(near), 0)
    norm = safe_sqrt((slope * slope).sum(1))
    total = jnp.where(batch.weights.sum() == 0, 1, batch.weights.sum())
    lipschitz = (batch.weights * (norm - 1) ** 2).sum() / total
    return _contrast(scores, index, batch) + penalty * lipschitz + broken


def critic_scores(critic: Critic, batch: Rows) -> Array:
    """Scores [n, l] of the rows that count, zero elsewhere."""
    if not callable(critic):
        raise TypeError(f"critic must be a function z -> scores, got {type(critic).__name__}")
    scores = jnp.asarray(critic(batch.z))
    if scores.ndim != 2 or scores.shape[0] != batch.z.shape[0]:
        raise ValueError(
            f"critic must return scores [n, l] for z [n, d], got {scores.shape} for {batch.z.shape}"
        )
    return jnp.where(batch.there[:, None], widen(scores), 0)


def _classes(p: ArrayLike, batch: Rows, scores: Array) -> tuple[Array, Array]:
    p = as_array(p)
    if p.ndim == 2 and p.shape[1] != scores.shape[1]:
        raise ValueError(f"critic has {scores.shape[1]} outputs but p has {p.shape[1]} columns")
    found = labels(p, batch, scores.shape[1])
    return found.of_row, found.broken


@jax.jit
def _contrast(scores: Array, index: Array, batch: Rows) -> Array:
    """sum_l N_l/N ( mean of class l less mean of the rest, of output l ): L_D of eq. wd_multi_linear."""
    w, there = batch.weights, batch.there
    num_classes = scores.shape[1]
    of_class = jax.nn.one_hot(index, num_classes, dtype=scores.dtype) * there[:, None]
    weight = of_class * w[:, None]
    other = (1 - of_class) * w[:, None]
    size, rest = weight.sum(0), other.sum(0)
    count = of_class.sum(0)
    present = (count > 0) & (count < count.sum())
    size, rest = jnp.where(present, size, 1), jnp.where(present, rest, 1)
    gap = (weight * scores).sum(0) / size - (other * scores).sum(0) / rest
    total = jnp.where(w.sum() == 0, 1, w.sum())
    return jnp.where(present, size / total * gap, 0).sum()
