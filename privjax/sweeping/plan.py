"""Layout of members on devices: the compiled program and its memory."""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from privjax.training import Hyperparameters, TrainConfig, TrainData, init_state, train_epochs

_AXIS = "members"
_SHARDED, _REPLICATED = PartitionSpec(_AXIS), PartitionSpec()


class Plan(NamedTuple):
    """Layout of members: `width` at once on each device, and `max_in_flight` chunks at once.

    On an accelerator a chunk is a `vmap`, because many small members fill the device. On a CPU one member
    fills the cache of a core, so each device trains one member at a time, and a single device has two
    chunks in flight, each on its own thread.
    """

    mesh: Mesh
    width: int
    max_in_flight: int

    @property
    def size(self) -> int:
        """Members in a chunk."""
        return self.width * self.mesh.size

    def smaller(self) -> "Plan | None":
        """Return a plan that needs less memory, or None."""
        if self.max_in_flight > 1:
            return self._replace(max_in_flight=1)
        return self._replace(width=self.width // 2) if self.width > 1 else None

    def replicate(self, tree: Any) -> Any:
        """Place one copy of some arrays on each device."""
        return jax.device_put(tree, NamedSharding(self.mesh, _REPLICATED))

    def shard(self, tree: Any) -> Any:
        """Place the stacked members of a chunk on their devices."""
        return jax.device_put(tree, NamedSharding(self.mesh, _SHARDED))


def make_plan(num_members: int, chunk_size: int | None, devices: Sequence[Any] | None) -> Plan:
    """Plan the training of some members on the devices of this process; arguments as for `sweep`."""
    devices = list(jax.local_devices() if devices is None else devices)
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}.")
    cpu = devices[0].platform == "cpu"
    if chunk_size is None:
        # A power of two, so that sweeps of similar size share a compilation.
        members_per_device = -(-num_members // len(devices))
        chunk_size = 1 if cpu else min(64, 1 << (members_per_device - 1).bit_length())
    max_in_flight = 2 if cpu and len(devices) == 1 and (os.cpu_count() or 1) > 1 else 1
    return Plan(Mesh(np.array(devices), (_AXIS,)), chunk_size, max_in_flight)


class Inputs(NamedTuple):
    """Inputs of one member beside the shared data; stacked for a chunk."""

    train_rows: Any
    validation_rows: Any
    hyperparameters: Hyperparameters


class Program(NamedTuple):
    """Compiled training of one chunk.

    Attributes:
      start: `start(data, inputs)` returns the states before the first epoch.
      advance: `advance(states, data, inputs, until)` returns the states and histories after some epochs.
      num_bytes: Memory of one chunk on each device, the data included; 0 if the backend does not say.
    """

    start: Callable[..., Any]
    advance: Callable[..., Any]
    num_bytes: int


def compile_to_fit(
    plan: Plan, data: TrainData, inputs: Inputs, *, config: TrainConfig, num_epochs: int, may_shrink: bool
) -> tuple[Plan, Program]:
    """Compile the training of a chunk; with `may_shrink`, for the largest smaller plan that fits the memory.

    Equal shapes give the same program. `data` are shared by all members, `inputs` are those of one member,
    and one call trains `num_epochs` at most.

    Raises:
      MemoryError: No plan fits.
    """
    while True:
        leaves, structure = jax.tree.flatten((_shapes(data), _shapes(inputs, plan.size)))
        program = _compile(plan.mesh, plan.width, config, num_epochs, tuple(leaves), structure)
        fitting = members_that_fit(plan, program.num_bytes, data)
        if fitting is None or fitting >= plan.width:
            return plan, program
        smaller = plan.smaller() if may_shrink else None
        if smaller is None:
            raise MemoryError(_describe_shortage(plan, program, fitting))
        plan = smaller


def _shapes(tree: Any, *stacked: int) -> Any:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((*stacked, *a.shape), a.dtype), tree)


@functools.lru_cache(maxsize=32)
def _compile(mesh: Mesh, width: int, config: TrainConfig, num_epochs: int, leaves, structure) -> Program:
    def each_member(function):
        """Apply a function of one member to the members of a device."""
        if width > 1:
            return jax.vmap(function)

        def only_member(*stacked):
            result = function(*jax.tree.map(lambda a: a[0], stacked))
            return jax.tree.map(lambda a: a[None], result)

        return only_member

    def start(data, inputs):
        return each_member(lambda one: init_state(one.hyperparameters, data, config=config))(inputs)

    def advance(states, data, inputs, until):
        def train(state, one):
            split = data._replace(train_rows=one.train_rows, validation_rows=one.validation_rows)
            numbers = one.hyperparameters
            return train_epochs(state, split, numbers, config=config, num_epochs=num_epochs, until=until)

        return each_member(train)(states, inputs)

    def on_mesh(function, in_specs, **options):
        mapped = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=_SHARDED, check_vma=False)
        return jax.jit(mapped, **options)

    def placed(tree, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), tree)

    data, inputs = jax.tree.unflatten(structure, leaves)
    data, inputs = placed(data, _REPLICATED), placed(inputs, _SHARDED)
    until = placed(jax.ShapeDtypeStruct((), jnp.int32), _REPLICATED)
    starting = on_mesh(start, (_REPLICATED, _SHARDED))
    states = placed(jax.eval_shape(starting, data, inputs), _SHARDED)
    advancing = on_mesh(advance, (_SHARDED, _REPLICATED, _SHARDED, _REPLICATED), donate_argnums=0)
    compiled = advancing.lower(states, data, inputs, until).compile()
    used = compiled.memory_analysis()
    num_bytes = 0
    if used is not None:
        num_bytes = used.argument_size_in_bytes + used.output_size_in_bytes + used.temp_size_in_bytes
        num_bytes -= used.alias_size_in_bytes
    return Program(starting.lower(data, inputs).compile(), compiled, num_bytes)


def members_that_fit(plan: Plan, num_bytes: int, data: TrainData) -> int | None:
    """Return how many members at a time a device has memory for; None if the device does not say."""
    free = free_bytes(plan.mesh.devices.flat[0])
    if free is None:
        return None
    shared = _data_bytes(data)
    per_member = max(1, (num_bytes - shared) // plan.width)
    return max(0, (free // plan.max_in_flight - shared) // per_member)


def free_bytes(device: Any) -> int | None:
    """Return the free memory of a device; None if the device does not say."""
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
    # Virtual devices share the memory of the machine.
    return 1024 * int(kilobytes) // len(jax.local_devices())


def describe_memory(plan: Plan, program: Program, data: TrainData, num_members: int) -> str:
    """Return a sentence about the layout and the memory of a sweep."""
    devices = f"{plan.mesh.devices.flat[0].platform} device{'s' if plan.mesh.size > 1 else ''}"
    total = _format_bytes(program.num_bytes * plan.max_in_flight)
    return (
        f"{num_members} members, {plan.size} at a time on {plan.mesh.size} {devices}: data "
        f"{_format_bytes(_data_bytes(data))}, total {total} on each device."
    )


def _describe_shortage(plan: Plan, program: Program, fitting: int) -> str:
    advice = f"chunk_size={fitting} would fit" if fitting else "not even one at a time would fit"
    members = f"{plan.width} members at a time" if plan.width > 1 else "one member at a time"
    total = _format_bytes(program.num_bytes * plan.max_in_flight)
    return f"{members} would need {total} on a device: {advice}."


def _data_bytes(data: TrainData) -> int:
    return sum(array.nbytes for array in jax.tree.leaves(data))


def _format_bytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{count / 1e3:,.0f} kB"
