"""Some members on the devices at once: the compiled program, the memory it needs, one step of it."""

import functools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from privjax.sweeping.members import Rows
from privjax.training import (
    FINISHED,
    RUNNING,
    History,
    Hyperparameters,
    TrainConfig,
    TrainData,
    TrainState,
    init_state,
    no_history,
    train_epochs,
)

AXIS = "members"
_MEMBERS, _EVERYWHERE = PartitionSpec(AXIS), PartitionSpec()


class Plan(NamedTuple):
    """How members are laid out: `width` of them at once on each device, `flights` chunks under way.

    On an accelerator many small members fill the device, so a chunk is a `vmap`. A CPU is the other way
    round: one member fills a core's cache, so each device takes one member at a time, and a single device
    has two chunks under way, each on a thread of its own.
    """

    mesh: Mesh
    width: int
    flights: int

    @property
    def size(self) -> int:
        """Members in a chunk."""
        return self.width * self.mesh.size

    def smaller(self) -> "Plan | None":
        """A plan that needs less memory, if there is one."""
        if self.flights > 1:
            return self._replace(flights=1)
        return self._replace(width=self.width // 2) if self.width > 1 else None


def make_plan(num_members: int, chunk_size: int | None, devices: Sequence[Any] | None) -> Plan:
    """The plan for some members on this process's devices.

    Args:
      num_members: how many there are.
      chunk_size: members at once on each device; chosen from the backend when None.
      devices: which devices; all local ones when None.
    """
    devices = list(jax.local_devices() if devices is None else devices)
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}.")
    cpu = devices[0].platform == "cpu"
    if chunk_size is None:
        # A power of two, so that sweeps of about the same size share a compilation.
        each = -(-num_members // len(devices))
        chunk_size = 1 if cpu else min(64, 1 << (each - 1).bit_length())
    flights = 2 if cpu and len(devices) == 1 and (os.cpu_count() or 1) > 1 else 1
    return Plan(Mesh(np.array(devices), (AXIS,)), chunk_size, flights)


class Inputs(NamedTuple):
    """What the members of a chunk are trained with, stacked: their splits and their numbers."""

    rows: Rows
    numbers: Hyperparameters


def make_program(plan: Plan, data: TrainData, inputs: Inputs, *, config: TrainConfig, num_epochs: int):
    """The compiled training of one chunk for up to `num_epochs`; the same shapes give the same program.

    Args:
      plan: where members go.
      data: on the devices, see `put_data`.
      inputs: of one chunk.
      config: all that is static.
      num_epochs: epochs of one call.

    Returns:
      `(start, advance, memory)`: `start(data, inputs)` gives the first states, `advance(states, data,
      inputs, until)` the states after and the histories; `memory` in bytes on each device.
    """
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (data, inputs))
    leaves, structure = jax.tree.flatten(shapes)
    return _program(plan.mesh, plan.width, config, num_epochs, tuple(leaves), structure)


@functools.lru_cache(maxsize=32)
def _program(mesh: Mesh, width: int, config: TrainConfig, num_epochs: int, leaves, structure):
    data, inputs = jax.tree.unflatten(structure, leaves)

    def each_member(function):
        """Applies a function of one member to all those of a device."""
        if width > 1:
            return jax.vmap(function)
        return lambda *stacked: _stack(function(*jax.tree.map(lambda a: a[0], stacked)))

    def start(data, inputs):
        return each_member(lambda inputs: init_state(inputs.numbers, data, config=config))(inputs)

    def advance(states, data, inputs, until):
        def train(state, inputs):
            rows = inputs.rows
            own = data._replace(train_rows=rows.train, validation_rows=rows.validation)
            return train_epochs(state, own, inputs.numbers, config=config, num_epochs=num_epochs, until=until)

        return each_member(train)(states, inputs)

    def on_mesh(function, in_specs, **options):
        mapped = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=_MEMBERS, check_vma=False)
        return jax.jit(mapped, **options)

    def placed(tree, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), tree)

    data, inputs = placed(data, _EVERYWHERE), placed(inputs, _MEMBERS)
    until = placed(jax.ShapeDtypeStruct((), jnp.int32), _EVERYWHERE)
    starting = on_mesh(start, (_EVERYWHERE, _MEMBERS))
    states = placed(jax.eval_shape(starting, data, inputs), _MEMBERS)
    start_compiled = starting.lower(data, inputs).compile()
    compiled = (
        on_mesh(advance, (_MEMBERS, _EVERYWHERE, _MEMBERS, _EVERYWHERE), donate_argnums=0)
        .lower(states, data, inputs, until)
        .compile()
    )
    return start_compiled, compiled, _bytes_needed(compiled)


def _stack(tree):
    return jax.tree.map(lambda a: a[None], tree)


def _bytes_needed(compiled) -> int:
    """Arguments, results and working memory of one call, on each device."""
    analysis = compiled.memory_analysis()
    if analysis is None:  # a backend that does not tell
        return 0
    return (
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        + analysis.temp_size_in_bytes
        - analysis.alias_size_in_bytes
    )


def free_bytes(device: Any) -> int | None:
    """Memory that a device has left, or None when it does not tell."""
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    if device.platform != "cpu":
        return None
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None
    # Virtual devices share the machine's memory.
    return 1024 * int(kilobytes) // len(jax.local_devices())


def members_that_fit(plan: Plan, needed: int, data: TrainData) -> int | None:
    """How many members at a time a device has room for; None when it does not tell.

    Args:
      plan: where members go.
      needed: bytes of one chunk on each device, the data included.
      data: shared by all members, so it does not shrink with their number.
    """
    free = free_bytes(plan.mesh.devices.flat[0])
    if free is None:
        return None
    shared = sum(a.nbytes for a in jax.tree.leaves(data))
    per_member = max(1, (needed - shared) // plan.width)
    return max(0, (free // plan.flights - shared) // per_member)


def check_memory(plan: Plan, needed: int, data: TrainData) -> None:
    """Refuses a chunk that does not fit, and says how many members at a time would."""
    fitting = members_that_fit(plan, needed, data)
    if fitting is None or fitting >= plan.width:
        return
    advice = f"chunk_size={fitting} would fit" if fitting else "not even one at a time would fit"
    members = f"{plan.width} members at a time" if plan.width > 1 else "one member at a time"
    raise MemoryError(f"{members} would need {_megabytes(needed * plan.flights)} on a device: {advice}.")


def describe_memory(plan: Plan, needed: int, data: TrainData, num_members: int) -> str:
    """One sentence on what a sweep will need, said before it starts."""
    shared = sum(a.nbytes for a in jax.tree.leaves(data))
    return (
        f"{num_members} members, {plan.size} at a time on {plan.mesh.size} "
        f"{plan.mesh.devices.flat[0].platform} device{'s' if plan.mesh.size > 1 else ''}: data "
        f"{_megabytes(shared)}, in all {_megabytes(needed * plan.flights)} on each device."
    )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{count / 1e3:,.0f} kB"


def put_data(data: TrainData, plan: Plan) -> TrainData:
    """One copy of the rows on each device."""
    return jax.device_put(data, NamedSharding(plan.mesh, _EVERYWHERE))


def put_members(tree: Any, plan: Plan) -> Any:
    """Stacked members on their devices."""
    return jax.device_put(tree, NamedSharding(plan.mesh, _MEMBERS))


def ended(states: TrainState, until: int) -> np.ndarray:
    """Which members of a chunk have nothing left to do."""
    return (np.asarray(states.status) != RUNNING) | (np.asarray(states.epoch) >= until)


def close(states: TrainState, count: int) -> TrainState:
    """Marks the padding of a chunk as finished: it costs nothing where members run one at a time."""
    status = np.array(states.status)
    status[count:] = FINISHED
    return states._replace(status=status)


def add_history(history: History, before: np.ndarray, segment: History) -> History:
    """Writes the epochs that ran into the histories of the members, in place.

    Args:
      history: leaves [members, epochs in all].
      before: epochs each member had done.
      segment: leaves [members, epochs of one call].
    """
    ran = np.asarray(segment.ran)
    for i, first in enumerate(before):
        epochs = slice(first, first + int(ran[i].sum()))
        for whole, part in zip(jax.tree.leaves(history), jax.tree.leaves(segment), strict=True):
            whole[i, epochs] = np.asarray(part)[i, ran[i]]
    return history


def history_shapes(config: TrainConfig) -> History:
    """The entry of one epoch, as shapes."""
    return jax.eval_shape(lambda: no_history(config.task))


def empty_history(template: History, count: int, epochs: int) -> History:
    """A history in which nothing has run."""

    def blank(leaf):
        value = np.nan if np.issubdtype(leaf.dtype, np.floating) else 0
        return np.full((count, epochs), value, leaf.dtype)

    return jax.tree.map(blank, template)
