"""The training loop: a pure function of arrays, `scan` throughout, for one member or many."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from privjax.encoder import release_function
from privjax.networks import Params
from privjax.objectives import Schedule
from privjax.training.data import Hyperparameters, Task, TrainConfig, TrainData
from privjax.training.loss import Losses, release_key, total_loss
from privjax.training.monitor import Measures, measure

RUNNING, CONVERGED, FINISHED, DIVERGED = range(4)
STATUS_NAMES = ("running", "converged", "finished", "diverged")


class TrainState(NamedTuple):
    """One member between two epochs; arrays only, so it can be stacked, sharded and saved."""

    params: Params
    optimizer: optax.OptState
    last_finite: Params  # the parameters at which the loss was last finite
    key: Array  # key data of the member; the key of an epoch follows from its number
    constants: Any  # the result of `objective.draw`
    epoch: Array  # number of epochs done
    rate_scale: Array  # factor of the learning rates, from 1 downwards
    best: Array  # lowest objective of an epoch that counted as a decline
    stale: Array  # epochs since then
    falls: Array  # how often the rates fell
    status: Array  # RUNNING, CONVERGED, FINISHED or DIVERGED


class History(NamedTuple):
    """Mean losses of each epoch's batches and the measures after it; NaN for epochs that did not run."""

    losses: Losses
    measures: Measures
    rate_scale: Array
    ran: Array


def _make_optimizer(numbers: Hyperparameters, scale: Array | float) -> optax.GradientTransformation:
    """Return Adam for each network at its own rate; rates are arguments of a step, so none compiles again."""
    names = ("private", "public", "discriminator")
    adams: dict[Any, Any] = {name: optax.adam(getattr(numbers, f"{name}_rate") * scale) for name in names}
    return optax.multi_transform(adams, {name: name for name in names})


@functools.partial(jax.jit, static_argnames="config")
def init_state(hyperparameters: Hyperparameters, data: TrainData, *, config: TrainConfig) -> TrainState:
    """Return the state before the first epoch, which depends on the seed and the shape of x alone."""
    init_key, draw_key, train_key = jax.random.split(jax.random.key(hyperparameters.seed), 3)
    params = config.networks.init(init_key)
    if config.objective.discriminator_loss is None:
        params = {**params, "discriminator": {}}
    constants = None
    if config.objective.draw is not None:
        release = release_function(config.networks, config.release)
        z = jax.eval_shape(release, params, data.x[:1], key=init_key)
        constants = config.objective.draw(draw_key, z.shape[-1])
    return TrainState(
        params=params,
        optimizer=_make_optimizer(hyperparameters, 1.0).init(params),
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
    """Train for more epochs; a member that has ended passes through unchanged.

    Several calls give bitwise the same result as one call with all epochs. Under `vmap` over members, share
    the rows with `in_axes=None`. Training also ends after `until` epochs in total; unlike `num_epochs`, which
    is the length of the history, another `until` is not another compilation.
    """

    def epoch(state: TrainState, _) -> tuple[TrainState, History]:
        running = state.status == RUNNING
        if until is not None:
            running &= state.epoch < until
        # Without vmap the work is skipped; under vmap both sides run and one is selected.
        return lax.cond(
            running,
            lambda state: _epoch(state, data, hyperparameters, config),
            lambda state: (state, no_history(config.task)),
            state,
        )

    return lax.scan(epoch, state, length=num_epochs)


def no_history(task: Task) -> History:
    """Return the history entry of an epoch that did not run."""
    nan = jnp.full((), jnp.nan, jnp.float32)
    each = task.collect([nan] * len(task.private))
    measures = Measures(nan, nan, nan, jnp.zeros((), jnp.int32), each)
    return History(Losses(nan, each, nan, nan, nan), measures, nan, jnp.array(False))


def _epoch(
    state: TrainState, data: TrainData, numbers: Hyperparameters, config: TrainConfig
) -> tuple[TrainState, History]:
    key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.epoch)
    shuffle_key, step_key = jax.random.split(key)
    rows = _shuffled_batches(shuffle_key, data, config)
    schedule = config.objective.schedule
    if schedule.warmup:
        share = jnp.minimum((state.epoch + 1) / schedule.warmup, 1.0) ** 2
        grown = jax.tree.map(lambda weight: share * weight, numbers.privacy_weight)
        numbers = numbers._replace(privacy_weight=grown)
    step = functools.partial(_step, state, data, numbers, config)
    carry = (state.params, state.optimizer, state.last_finite, jnp.array(True))
    inputs = (rows, jax.random.split(step_key, len(rows)))
    (params, optimizer, last_finite, finite), losses = lax.scan(step, carry, inputs)
    # The update of the last step has not been through a loss yet.
    finite &= jnp.stack([jnp.isfinite(a).all() for a in jax.tree.leaves(params)]).all()
    params = _choose(finite, params, last_finite)
    losses = jax.tree.map(lambda a: a.mean(0), losses)
    rate_scale = state.rate_scale
    state = state._replace(params=params, optimizer=optimizer, last_finite=last_finite, epoch=state.epoch + 1)
    state = _apply_schedule(state, losses.objective, schedule)
    state = state._replace(status=jnp.where(finite, state.status, DIVERGED))
    measures = measure(params, data, config=config, key=release_key(key, config))
    history = History(losses, measures, rate_scale, jnp.array(True))
    return state, jax.tree.map(lambda a, like: a.astype(like.dtype), history, no_history(config.task))


def _shuffled_batches(key: Array, data: TrainData, config: TrainConfig) -> Array:
    """Return the row numbers of an epoch [batches, rows]; rows beyond the last whole batch are left out."""
    n = len(data.x) if data.train_rows is None else len(data.train_rows)
    batch_size = min(config.batch_size, n)
    if config.axis is not None:  # the same number of rows on each device
        batch_size -= batch_size % lax.axis_size(config.axis)
    num_batches = n // batch_size
    # One sort. `random.permutation` sorts several times against ties, which hardly matter in an order.
    rows = jnp.argsort(jax.random.bits(key, (n,)))[: num_batches * batch_size]
    if data.train_rows is not None:
        rows = data.train_rows[rows]
    return rows.reshape(num_batches, -1)


def _step(state: TrainState, data: TrainData, numbers: Hyperparameters, config: TrainConfig, carry, inputs):
    """Take one step of all networks on one batch: one gradient of the sum of their losses."""
    params, optimizer_state, last_finite, finite = carry
    rows, key = inputs
    if config.axis is not None:
        device = lax.axis_index(config.axis)
        rows = rows.reshape(lax.axis_size(config.axis), -1)[device]
        key = jax.random.fold_in(key, device)
    # The default mode of take masks every element for rows out of bounds.
    batch = jax.tree.map(
        lambda a: jnp.take(a, rows, axis=0, mode="clip"),
        data._replace(train_rows=None, validation_rows=None),
    )
    (total, losses), gradients = jax.value_and_grad(total_loss, has_aux=True)(
        params, batch, numbers, config=config, key=key, constants=state.constants
    )
    if config.axis is not None:
        total, gradients = lax.psum((total, gradients), config.axis)
    optimizer = _make_optimizer(numbers, state.rate_scale)
    updates, optimizer_state = optimizer.update(gradients, optimizer_state, params)
    finite = finite & jnp.isfinite(total)
    # After a loss that is not finite only the parameters before it are kept. Selecting between the states
    # of the optimizer as well would copy them in every step.
    last_finite = _choose(finite, params, last_finite)
    return (optax.apply_updates(params, updates), optimizer_state, last_finite, finite), losses


def _choose(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _apply_schedule(state: TrainState, objective: Array, schedule: Schedule) -> TrainState:
    """Lower the rates and set the status after an epoch."""
    if schedule.kind == "fixed":
        past_half = 2 * state.epoch - schedule.max_epochs
        falls = jnp.where(past_half >= 0, past_half * schedule.falls // schedule.max_epochs + 1, 0)
        falls = jnp.minimum(falls, schedule.falls)
        status = state.status
    else:
        declined = objective < state.best - schedule.threshold * jnp.abs(state.best)
        # The first epoch is a decline (inf - inf is NaN), and so is every epoch of the warmup.
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
