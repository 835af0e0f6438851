"""The training loop: a pure function of arrays, `scan` all through, for one member or many."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from privjax.training.data import Task, TrainData
from privjax.training.loss import Batch, Losses, total_loss
from privjax.training.monitor import Measures, measure
from privjax.training.objectives import Schedule
from privjax.training.state import (
    CONVERGED,
    DIVERGED,
    FINISHED,
    RUNNING,
    Hyperparameters,
    TrainConfig,
    TrainState,
    make_optimizer,
)


class History(NamedTuple):
    """Per epoch: mean losses of its batches, measures after it. NaN for epochs that did not run."""

    losses: Losses
    measures: Measures
    rate_scale: Array
    ran: Array


@functools.partial(jax.jit, static_argnames=("config", "num_epochs"))
def train_epochs(
    state: TrainState,
    data: TrainData,
    hyperparameters: Hyperparameters,
    *,
    config: TrainConfig,
    num_epochs: int,
    until: Array | int | None = None,
) -> tuple[TrainState, History]:
    """Trains on for some epochs; a member that has ended passes through unchanged.

    Splitting the epochs over several calls changes nothing. Under `vmap` over members, share the
    rows with `in_axes=None`.

    Args:
      state: where to go on from.
      data: the rows.
      hyperparameters: the member's numbers.
      config: all that is static.
      num_epochs: epochs to go on for, at most; another number is another compilation.
      until: pass through once so many epochs are done in all; another number compiles nothing.

    Returns:
      The state after, and `num_epochs` entries of history.
    """

    def epoch(state, _):
        running = state.status == RUNNING
        if until is not None:
            running &= state.epoch < until
        # Outside of vmap the work is skipped; under vmap both sides run and one is chosen.
        return lax.cond(
            running,
            lambda state: _epoch(state, data, hyperparameters, config),
            lambda state: (state, no_history(config.task)),
            state,
        )

    return lax.scan(epoch, state, length=num_epochs)


def no_history(task: Task) -> History:
    """The history entry of an epoch that did not run."""
    nan = jnp.full((), jnp.nan, jnp.float32)
    each = task.collect([nan for _ in task.private])
    return History(
        Losses(nan, each, nan, nan, nan),
        Measures(nan, nan, nan, jnp.zeros((), jnp.int32), each),
        nan,
        jnp.array(False),
    )


def _epoch(state, data, hyperparameters, config: TrainConfig) -> tuple[TrainState, History]:
    key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.epoch)
    shuffle_key, dropout_key = jax.random.split(key)
    n = len(data.x) if data.train_rows is None else len(data.train_rows)
    batch_size = min(config.batch_size, n)
    if config.axis is not None:  # as many rows on each device
        batch_size -= batch_size % lax.axis_size(config.axis)
    num_batches = n // batch_size
    # One sort; `random.permutation` takes several against ties that hardly matter in an order.
    rows = jnp.argsort(jax.random.bits(shuffle_key, (n,)))[: num_batches * batch_size]
    if data.train_rows is not None:
        rows = data.train_rows[rows]
    optimizer = make_optimizer(hyperparameters, state.rate_scale)
    privacy_weight, warmup = hyperparameters.privacy_weight, config.objective.schedule.warmup
    if warmup:
        share = jnp.minimum((state.epoch + 1) / warmup, 1.0) ** 2
        privacy_weight = jax.tree.map(lambda weight: share * weight, privacy_weight)

    def step(carry, inputs):
        params, optimizer_state, last_finite, finite = carry
        rows, key = inputs
        if config.axis is not None:
            own = lax.axis_index(config.axis)
            rows = rows.reshape(lax.axis_size(config.axis), -1)[own]
            key = jax.random.fold_in(key, own)
        # Clipped, as the default would mask every element for rows that are out of bounds.
        batch = jax.tree.map(
            lambda a: jnp.take(a, rows, axis=0, mode="clip"),
            Batch(data.x, data.y, data.p, data.weights),
        )
        (total, losses), gradients = jax.value_and_grad(total_loss, has_aux=True)(
            params,
            batch,
            networks=config.networks,
            objective=config.objective,
            task=config.task,
            privacy_weight=privacy_weight,
            private_dropout=hyperparameters.private_dropout,
            public_dropout=hyperparameters.public_dropout,
            key=key,
            constants=state.constants,
            axis=config.axis,
        )
        if config.axis is not None:
            total, gradients = lax.psum((total, gradients), config.axis)
        updates, updated = optimizer.update(gradients, optimizer_state, params)
        finite = finite & jnp.isfinite(total)
        # A loss that is not finite spoils all that follows: kept is what was last seen finite. To choose
        # between the optimizer's states as well would copy them at every step.
        last_finite = _choose(finite, params, last_finite)
        return (optax.apply_updates(params, updates), updated, last_finite, finite), losses

    carry = (state.params, state.optimizer, state.last_finite, jnp.array(True))
    inputs = (rows.reshape(num_batches, -1), jax.random.split(dropout_key, num_batches))
    (params, optimizer_state, last_finite, finite), losses = lax.scan(step, carry, inputs)
    # The last step of an epoch may have spoilt the parameters unseen.
    finite &= jnp.stack([jnp.isfinite(a).all() for a in jax.tree.leaves(params)]).all()
    params = _choose(finite, params, last_finite)
    losses = jax.tree.map(lambda a: a.mean(0), losses)
    state = state._replace(
        params=params, optimizer=optimizer_state, last_finite=last_finite, epoch=state.epoch + 1
    )
    rate_scale = state.rate_scale
    state = _schedule(state, losses.objective, config.objective.schedule)
    state = state._replace(status=jnp.where(finite, state.status, DIVERGED))
    measures = measure(params, data, networks=config.networks, task=config.task)
    history = History(losses, measures, rate_scale, jnp.array(True))
    return state, jax.tree.map(lambda a, like: a.astype(like.dtype), history, no_history(config.task))


def _choose(condition, yes, no):
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _schedule(state: TrainState, objective: Array, schedule: Schedule) -> TrainState:
    """Lets the rates fall and tells when training has ended."""
    if schedule.kind == "fixed":
        past_half = 2 * state.epoch - schedule.max_epochs
        falls = jnp.where(past_half >= 0, past_half * schedule.falls // schedule.max_epochs + 1, 0)
        falls = jnp.minimum(falls, schedule.falls)
        status = state.status
    else:
        declined = objective < state.best - schedule.threshold * jnp.abs(state.best)
        # inf - inf is NaN: the first epoch always counts as a decline. So does one whose weight still grew.
        declined |= jnp.isinf(state.best) | (state.epoch <= schedule.warmup)
        stale = jnp.where(declined, 0, state.stale + 1)
        out_of_patience = stale >= schedule.patience
        converged = out_of_patience & (state.falls >= schedule.falls)
        falls = state.falls + (out_of_patience & ~converged)
        status = jnp.where(converged, CONVERGED, state.status)
        state = state._replace(
            best=jnp.where(declined, objective.astype(jnp.float32), state.best),
            stale=jnp.where(out_of_patience, 0, stale),
        )
    status = jnp.where((state.epoch >= schedule.max_epochs) & (status == RUNNING), FINISHED, status)
    return state._replace(
        falls=falls.astype(jnp.int32),
        rate_scale=jnp.power(schedule.factor, falls).astype(jnp.float32),
        status=status.astype(jnp.int32),
    )
