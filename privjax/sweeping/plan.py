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

    @property
    def sharded(self) -> NamedSharding:
        """Sharding of the stacked members of a chunk."""
        return NamedSharding(self.mesh, _SHARDED)

    @property
    def replicated(self) -> NamedSharding:
        """Sharding of arrays of which each device has a copy."""
        return NamedSharding(self.mesh, _REPLICATED)


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
    """Compiled training of one chunk."""

    start: Callable[..., Any]  # from data and inputs to the states before the first epoch
    advance: Callable[..., Any]  # from states, data, inputs and `until` to states and histories
    num_bytes: int  # memory on each device, the data included; 0 if the backend does not say


def compile_to_fit(
    plan: Plan, data: TrainData, inputs: Inputs, *, config: TrainConfig, num_epochs: int, may_shrink: bool
) -> tuple[Plan, Program]:
    """Compile the training of a chunk, of the first plan that fits the memory, or raise MemoryError.

    Equal shapes give the same program. `inputs` are those of one member; one call trains `num_epochs`.
    """
    while True:
        shapes = _shapes(data, plan.replicated), _shapes(inputs, plan.sharded, plan.size)
        leaves, structure = jax.tree.flatten(shapes)
        program = _compile(plan.mesh, plan.width, config, num_epochs, tuple(leaves), structure)
        fitting = members_that_fit(plan, program.num_bytes, data)
        if fitting is None or fitting >= plan.width:
            return plan, program
        if plan.max_in_flight > 1:
            plan = plan._replace(max_in_flight=1)
        elif may_shrink and plan.width > 1:
            plan = plan._replace(width=plan.width // 2)
        else:
            members = f"{plan.width} members" if plan.width > 1 else "one member"
            advice = f"chunk_size={fitting} would fit" if fitting else "not even one at a time would fit"
            need = f"{program.num_bytes / 1e6:,.1f} MB on a device"
            raise MemoryError(f"{members} at a time would need {need}: {advice}.")


def _shapes(tree: Any, sharding: NamedSharding, *stacked: int) -> Any:
    return jax.tree.map(
        lambda a: jax.ShapeDtypeStruct((*stacked, *a.shape), a.dtype, sharding=sharding), tree
    )


@functools.lru_cache(maxsize=32)
def _compile(
    mesh: Mesh, width: int, config: TrainConfig, num_epochs: int, shapes: tuple[Any, ...], structure: Any
) -> Program:
    over_members = jax.vmap if width > 1 else _for_only_member

    def start(data, inputs):
        return over_members(lambda one: init_state(one.hyperparameters, data, config=config))(inputs)

    def advance(states, data, inputs, until):
        def train(state, one):
            split = data._replace(train_rows=one.train_rows, validation_rows=one.validation_rows)
            numbers = one.hyperparameters
            return train_epochs(state, split, numbers, config=config, num_epochs=num_epochs, until=until)

        return over_members(train)(states, inputs)

    on_mesh = functools.partial(jax.shard_map, mesh=mesh, out_specs=_SHARDED, check_vma=False)
    starting = jax.jit(on_mesh(start, in_specs=(_REPLICATED, _SHARDED)))
    in_specs = (_SHARDED, _REPLICATED, _SHARDED, _REPLICATED)
    advancing = jax.jit(on_mesh(advance, in_specs=in_specs), donate_argnums=0)
    data, inputs = jax.tree.unflatten(structure, shapes)
    states = _shapes(jax.eval_shape(starting, data, inputs), NamedSharding(mesh, _SHARDED))
    until = jax.ShapeDtypeStruct((), jnp.int32, sharding=NamedSharding(mesh, _REPLICATED))
    compiled = advancing.lower(states, data, inputs, until).compile()
    num_bytes, used = 0, compiled.memory_analysis()
    if used is not None:
        num_bytes = used.argument_size_in_bytes + used.output_size_in_bytes + used.temp_size_in_bytes
        num_bytes -= used.alias_size_in_bytes
    return Program(starting.lower(data, inputs).compile(), compiled, num_bytes)


def _for_only_member(function: Callable[..., Any]) -> Callable[..., Any]:
    """Apply a function of one member to the only member of a device."""

    def apply(*stacked):
        result = function(*jax.tree.map(lambda a: a[0], stacked))
        return jax.tree.map(lambda a: a[None], result)

    return apply


def members_that_fit(plan: Plan, num_bytes: int, data: TrainData) -> int | None:
    """Return how many members at a time a device has memory for; None if the device does not say."""
    free = free_bytes(plan.mesh.devices.flat[0])
    if free is None:
        return None
    shared = sum(array.nbytes for array in jax.tree.leaves(data))
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
