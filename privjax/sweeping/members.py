"""Members of a sweep (privacy weights x seeds), the data that they share, and their layout on devices."""

import contextlib
import functools
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from privjax import datasets
from privjax.datasets import Dataset, Split
from privjax.encoder import Scaling, fit_scaling
from privjax.sweeping.records import PrivacyWeight
from privjax.training import Hyperparameters, TrainConfig, TrainData, init_state, prepare, train_epochs

_LARGEST = float(np.finfo(np.float32).max)
_AXIS = "members"
_SHARDED, _REPLICATED = PartitionSpec(_AXIS), PartitionSpec()

Loader = Callable[[int], Dataset]
# Training rows, validation rows and numbers of one member, beside the shared data; stacked for a chunk.
Inputs = tuple[Any, Any, Hyperparameters]


class Member(NamedTuple):
    """One training run: a privacy weight and a seed."""

    number: int
    privacy_weight: PrivacyWeight
    seed: int


class SeedData(NamedTuple):
    """The data set of one seed; its split is of the rows of a group."""

    content_hash: str
    scaling: Scaling
    split: Split


class Group(NamedTuple):
    """Members that share one copy of the scaled rows of all their seeds."""

    members: list[Member]
    data: TrainData
    config: TrainConfig
    seeds: dict[int, SeedData]


def make_members(privacy_weights: Sequence[Any], seeds: Sequence[int]) -> list[Member]:
    """Number the members: every weight for the first seed, then for the next."""
    try:
        seeds = [operator.index(seed) for seed in seeds]
        weights = [jax.tree.map(float, w, is_leaf=lambda leaf: leaf is None) for w in privacy_weights]
    except TypeError:
        raise TypeError(
            "privacy_weights must be a list of numbers and seeds a list of whole numbers, got "
            f"{privacy_weights!r} and {seeds!r}."
        ) from None
    if not weights or not seeds:
        raise ValueError("privacy_weights and seeds must each hold at least one number.")
    if len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) >= 2**32:
        raise ValueError(f"seeds must differ, and lie between 0 and 2^32 - 1, got {seeds}.")
    if len({repr(weight) for weight in weights}) < len(weights):
        raise ValueError(f"privacy_weights must differ, or they would count as more seeds, got {weights}.")
    for number in jax.tree.leaves(weights):
        if not 0 <= number <= _LARGEST:
            raise ValueError(f"privacy_weights must be finite (as float32) and not negative, got {number}.")
    pairs = [(weight, seed) for seed in seeds for weight in weights]
    return [Member(number, weight, seed) for number, (weight, seed) in enumerate(pairs)]


def make_loader(data: Dataset | str | Loader) -> Loader:
    """Return a function from a seed to its data set, which remembers the last data set alone."""
    if isinstance(data, Dataset):
        return lambda seed: data
    if not (isinstance(data, str) or callable(data)):
        raise TypeError(
            "data must be a Dataset (see Dataset.from_arrays and datasets.from_table), the name of a data "
            f"set, or a function of the seed that returns a Dataset; got {type(data).__name__}."
        )
    kept: dict[int, Dataset] = {}

    def load(seed: int) -> Dataset:
        if seed not in kept:
            kept.clear()  # first, so that one data set is in memory at a time
            found = datasets.load(data, seed=seed) if isinstance(data, str) else data(seed)
            if not isinstance(found, Dataset):
                name = type(found).__name__
                raise TypeError(f"data must return a Dataset for every seed, got {name} for seed {seed}.")
            kept[seed] = found
        return kept[seed]

    return load


def make_groups(members: Sequence[Member], load: Loader, *, scaling: str, **options: Any) -> Iterator[Group]:
    """Load and scale the data set of each seed once, and group members whose data have equal shapes.

    `options` are keywords of `prepare`.
    """
    scaled: dict[str, tuple[np.ndarray, ...]] = {}  # x, y and s by content hash, until they are grouped
    seeds_by_shape: dict[Any, dict[int, SeedData]] = {}
    for seed in dict.fromkeys(member.seed for member in members):
        data = load(seed)
        train = data.split.train
        scale = fit_scaling(data.x[train], method=scaling)
        if data.content_hash not in scaled:
            labels = (_standardise(data.y, train), _standardise(data.s, train))
            scaled[data.content_hash] = (scale.apply(data.x), *labels)
        shapes = (data.x.shape, data.s.shape, *map(len, data.split))
        seeds_by_shape.setdefault(shapes, {})[seed] = SeedData(data.content_hash, scale, data.split)
    for (x_shape, *_), seeds in seeds_by_shape.items():
        hashes = list(dict.fromkeys(seed.content_hash for seed in seeds.values()))
        columns = zip(*[scaled.pop(content_hash) for content_hash in hashes], strict=True)
        x, y, s = (parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in columns)
        data, config = prepare(x, y, s, **options)
        for number, seed in seeds.items():
            start = hashes.index(seed.content_hash) * x_shape[0]
            seeds[number] = seed._replace(split=Split(*(start + rows for rows in seed.split)))
        yield Group([member for member in members if member.seed in seeds], data, config, seeds)


def _standardise(labels: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return classes unchanged, and continuous labels with mean 0 and spread 1 over the training rows.

    In other units a privacy weight would mean another, and a network would need thousands of steps more.
    """
    if not np.issubdtype(labels.dtype, np.floating):
        return labels
    matrix = labels.reshape(len(labels), -1)
    return fit_scaling(matrix[train]).apply(matrix)


class Plan(NamedTuple):
    """Layout of members: `width` at once on each device, and `max_in_flight` chunks at once.

    On an accelerator a chunk is a `vmap`, because many small members fill the device. On a CPU one member
    fills the cache of a core, so each device trains one member at a time, and a single device has two
    chunks in flight, each on its own thread.
    """

    mesh: Mesh
    width: int
    max_in_flight: int
    may_shrink: bool

    @property
    def size(self) -> int:
        """Members in a chunk."""
        return self.width * self.mesh.size


def shardings(mesh: Mesh) -> tuple[NamedSharding, NamedSharding]:
    """Return the shardings of arrays that each device copies, and of the stacked members of a chunk."""
    return NamedSharding(mesh, _REPLICATED), NamedSharding(mesh, _SHARDED)


def make_plan(num_members: int, *, chunk_size: int | None, devices: Sequence[Any] | None) -> Plan:
    """Plan the training of some members on the devices of this process; arguments as for `sweep`."""
    devices = list(jax.local_devices() if devices is None else devices)
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, got {chunk_size}.")
    cpu, may_shrink = devices[0].platform == "cpu", chunk_size is None
    if chunk_size is None:
        # A power of two, so that sweeps of similar size share a compilation.
        members_per_device = -(-num_members // len(devices))
        chunk_size = 1 if cpu else min(64, 1 << (members_per_device - 1).bit_length())
    max_in_flight = 2 if cpu and len(devices) == 1 and (os.cpu_count() or 1) > 1 else 1
    return Plan(Mesh(np.array(devices), (_AXIS,)), chunk_size, max_in_flight, may_shrink)


class Program(NamedTuple):
    """Compiled training of one chunk."""

    start: Callable[..., Any]  # from data and inputs to the states before the first epoch
    advance: Callable[..., Any]  # from states, inputs, data and `until` to states and histories
    num_bytes: int  # memory on each device, the data included; 0 if the backend does not say


def compile_to_fit(plan: Plan, group: Group, inputs: Inputs, num_epochs: int) -> tuple[Plan, Program]:
    """Compile the training of a chunk, of the first plan that fits the memory, or raise MemoryError.

    Equal shapes give the same program. `inputs` are those of one member; one call trains `num_epochs`.
    """
    replicated, sharded = shardings(plan.mesh)
    while True:
        shapes = _shapes(group.data, replicated), _shapes(inputs, sharded, plan.size)
        leaves, structure = jax.tree.flatten(shapes)
        program = _compile(plan.mesh, plan.width, group.config, num_epochs, tuple(leaves), structure)
        free = free_bytes(plan.mesh.devices.flat[0])
        shared = sum(array.nbytes for array in jax.tree.leaves(group.data))
        per_member = max(1, (program.num_bytes - shared) // plan.width)
        fitting = max(0, (free // plan.max_in_flight - shared) // per_member)
        if fitting >= plan.width:
            return plan, program
        if plan.max_in_flight > 1:
            plan = plan._replace(max_in_flight=1)
        elif plan.may_shrink and plan.width > 1:
            plan = plan._replace(width=plan.width // 2)
        else:
            advice = f"chunk_size={fitting} would fit" if fitting else "not even one member would fit"
            need = f"{program.num_bytes / 1e6:,.1f} MB on a device"
            raise MemoryError(f"chunk_size={plan.width} would need {need}: {advice}.")


def _shapes(tree: Any, sharding: NamedSharding, *stacked: int) -> Any:
    struct = functools.partial(jax.ShapeDtypeStruct, sharding=sharding)
    return jax.tree.map(lambda a: struct((*stacked, *a.shape), a.dtype), tree)


@functools.lru_cache(maxsize=32)
def _compile(
    mesh: Mesh, width: int, config: TrainConfig, num_epochs: int, shapes: tuple[Any, ...], structure: Any
) -> Program:
    over_members = jax.vmap if width > 1 else _for_only_member

    def start(data, inputs):
        return over_members(lambda *one: init_state(one[-1], data, config=config))(*inputs)

    def advance(states, inputs, data, until):
        def train(state, train_rows, validation_rows, numbers):
            split = data._replace(train_rows=train_rows, validation_rows=validation_rows)
            return train_epochs(state, split, numbers, config=config, num_epochs=num_epochs, until=until)

        return over_members(train)(states, *inputs)

    on_mesh = functools.partial(jax.shard_map, mesh=mesh, out_specs=_SHARDED, check_vma=False)
    starting = jax.jit(on_mesh(start, in_specs=(_REPLICATED, _SHARDED)))
    in_specs = (_SHARDED, _SHARDED, _REPLICATED, _REPLICATED)
    advancing = jax.jit(on_mesh(advance, in_specs=in_specs), donate_argnums=0)
    data, inputs = jax.tree.unflatten(structure, shapes)
    replicated, sharded = shardings(mesh)
    states = _shapes(jax.eval_shape(starting, data, inputs), sharded)
    until = jax.ShapeDtypeStruct((), jnp.int32, sharding=replicated)
    compiled = advancing.lower(states, inputs, data, until).compile()
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


def free_bytes(device: Any) -> int:
    """Return the free memory of a device; a number beyond any device if it does not say."""
    stats = device.memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    with contextlib.suppress(OSError, StopIteration), open("/proc/meminfo", encoding="ascii") as lines:
        if device.platform == "cpu":
            kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable"))
            return 1024 * int(kilobytes) // len(jax.local_devices())  # virtual devices share the memory
    return 1 << 62
