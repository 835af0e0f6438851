"""`sweep`: train every member of a trade-off curve, several at once, and keep each on disk."""

from __future__ import annotations  # signatures then show names instead of expanded unions

import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import importlib.metadata
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from privjax import training
from privjax.datasets import Dataset
from privjax.encoder import Encoder, apply_in_blocks, release_function
from privjax.files import from_json, to_json
from privjax.networks import Networks
from privjax.objectives import Objective, make_objective
from privjax.progress import Progress, Reporter, reporter
from privjax.release import ReleaseMechanism
from privjax.sweeping import members as grouping
from privjax.sweeping import records, store
from privjax.sweeping.members import Group, Member
from privjax.sweeping.records import MemberRecord, SweepConfig, SweepRun
from privjax.training import History, Hyperparameters, Rates, TrainConfig, TrainState


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """Result of a sweep; it prints as a table.

    Attributes:
      run: Content of `results.json`, with a record of each member.
      workdir: Folder of the sweep, or None.
      networks: Networks of every member.
      encoders: Encoders by member, if there is no workdir.
    """

    run: SweepRun
    workdir: Path | None
    networks: Networks = dataclasses.field(repr=False)
    encoders: dict[int, Encoder] = dataclasses.field(repr=False)

    @property
    def members(self) -> tuple[MemberRecord, ...]:
        """Records of all members."""
        return self.run.members

    def encoder(self, member: SupportsIndex) -> Encoder:
        """Return the encoder of a member, given by its number or a point of a curve; it takes raw rows."""
        number = self.run.find(member).member
        if self.workdir is None:
            return self.encoders[number]
        return store.load_encoder(self.workdir, number, networks=self.networks)

    def __str__(self) -> str:
        lines = ["member  weight      seed  status     epochs  utility (test)  live units"]
        for m in self.members:
            weight = f"{m.privacy_weight:g}" if isinstance(m.privacy_weight, float) else "several"
            utility = "none" if m.utility.test is None else f"{m.utility.test:.4f}"
            counts = f"{m.epochs:6d}  {utility:>14s}  {m.live_units:10d}"
            lines.append(f"{m.member:6d}  {weight:10s} {m.seed:5d}  {m.status:10s} {counts}")
        return "\n".join(lines)


def sweep(
    data: Dataset | str | Callable[[int], Dataset],
    *,
    privacy_weights: Sequence[float | dict[str, float]],
    objective: str | Objective = "mmd",
    seeds: Sequence[int] = (0,),
    networks: Networks | None = None,
    scaling: str = "standard",
    release: ReleaseMechanism | None = None,
    workdir: store.PathLike | None = None,
    batch_size: int = 500,
    num_epochs: int | None = None,
    chunk_size: int | None = None,
    devices: Sequence[Any] | None = None,
    checkpoint_every: int = 10,
    progress: str | None = None,
    **rates: Unpack[Rates],
) -> SweepResult:
    """Train a member for every privacy weight and seed.

    With a `workdir`, the same call resumes a sweep that stopped for any reason, and gives the same
    numbers. Several processes under `jax.distributed` make the same call with a workdir that all of them
    reach; each trains its share of the members.

    The data set of each seed is loaded once, when its first member is due, and one is in memory at a time.
    Where members train together (`chunk_size` above 1), those of all seeds are loaded together.

    Args:
      data: A data set, the name of one, or a function from a seed to a data set. With a name or a function,
        the seed selects the split as well.
      privacy_weights: lambda_P of the members; members are numbered in this order.
      objective: Name of an objective, or an `Objective`.
      seeds: Seeds of parameters, order of rows and dropout.
      networks: Networks of every member; `nn_networks` when None.
      scaling: How encoders scale raw rows, "standard", "minmax" or "none", learnt from the training rows.
        Continuous labels always have mean 0 and spread 1 in training.
      release: Release mechanism of every encoder; `exact()` when None.
      workdir: Folder for the sweep. Nothing is written when None.
      batch_size: Largest number of rows in a step.
      num_epochs: Largest number of epochs; that of the objective's schedule when None.
      chunk_size: Members at once on each device; when None, 1 on a CPU and more on other devices.
      devices: Devices to train on; all local devices when None.
      checkpoint_every: Epochs between two checkpoints.
      progress: "bar", "log", "off", or None for a bar on a terminal and nothing elsewhere.
      **rates: `private_rate`, `public_rate`, `discriminator_rate`, `private_dropout`, `public_dropout`.

    Returns:
      A record of each member, and their encoders.

    Example:
      >>> result = sweep("digits", privacy_weights=[0.0, 1.0], num_epochs=1)
      >>> [member.privacy_weight for member in result.members]
      [0.0, 1.0]
      >>> result.encoder(1).width
      50
    """
    folder = None if workdir is None else Path(workdir).expanduser()
    if jax.process_count() > 1 and folder is None:
        raise ValueError("workdir must be given to several processes: they share results through it.")
    objective = make_objective(objective) if isinstance(objective, str) else objective
    training.check_positive_integer("checkpoint_every", checkpoint_every)
    if num_epochs is not None:
        training.check_positive_integer("num_epochs", num_epochs)
    members, load = grouping.make_members(privacy_weights, seeds), grouping.make_loader(data)
    options: dict[str, Any] = {"scaling": scaling, "release": release, "batch_size": batch_size}
    options |= {"objective": objective, "networks": networks}
    # The first data set shows whether all arguments fit together, before the workdir belongs to them.
    first = load(members[0].seed)
    train_config = next(grouping.make_groups(members[:1], load, **options)).config
    options["networks"] = train_config.networks
    check = functools.partial(training.hyperparameters, objective, train_config.task, **rates)
    numbers = [check(privacy_weight=member.privacy_weight, seed=member.seed) for member in members]
    run = _start_run(train_config, members, first, scaling=scaling, num_epochs=num_epochs, rates=rates)
    del first  # its memory, once its members are trained
    share = members[jax.process_index() :: jax.process_count()]
    layout = functools.partial(grouping.make_plan, chunk_size=chunk_size, devices=devices)
    batches = [[m for m in share if m.seed == seed] for seed in dict.fromkeys(m.seed for m in share)]
    if layout(len(share)).width > 1 or isinstance(data, Dataset):
        batches = [share]
    max_epochs = objective.schedule.max_epochs
    until, per_call = min(num_epochs or max_epochs, max_epochs), min(checkpoint_every, max_epochs)
    lock = contextlib.nullcontext() if folder is None else store.open_workdir(folder, run.config)
    with lock, reporter(progress, "sweep", "compiling") as report, training.one_blas_thread():
        state = _Sweep(run, folder, report, numbers, share, layout, until, per_call)
        try:
            for batch in batches:
                state.train(batch, load, options)
        except KeyboardInterrupt:
            if folder is not None:
                report.say(f"stopped; the same call resumes from {folder}.")
            raise
        state.complete()
    return SweepResult(state.run, folder, train_config.networks, state.encoders)


def _start_run(config: TrainConfig, members: Sequence[Member], first: Dataset, **settings: Any) -> SweepRun:
    """Describe a sweep without finished members; NumPy numbers become Python numbers, as in a file."""
    found = SweepConfig(
        schema=records.SCHEMA,
        versions={name: importlib.metadata.version(name) for name in ("privjax", "jax", "flax", "optax")},
        objective=records.describe_objective(config.objective),
        networks=records.describe_networks(config.networks),
        privacy_weights=tuple(member.privacy_weight for member in members if member.seed == members[0].seed),
        seeds=tuple(dict.fromkeys(member.seed for member in members)),
        batch_size=config.batch_size,
        content_hash=first.content_hash,
        release=config.release.to_dict(),
        **settings,
    )
    config_read = from_json(SweepConfig, to_json(found), "config")
    about = records.DataRecord.of(first)
    return SweepRun(config_read, about, jax.default_backend(), jax.device_count(), False, None, ())


@dataclasses.dataclass
class _Sweep:
    """Finished members, the progress of the others, and the settings of the training loop."""

    run: SweepRun
    folder: Path | None
    report: Reporter
    numbers: Sequence[Hyperparameters]
    share: Sequence[Member]
    layout: Callable[[int], grouping.Plan]
    until: int  # epochs of a member
    per_call: int  # epochs of one call of the program
    encoders: dict[int, Encoder] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        self.began = time.monotonic()
        self.partial = {member.number: 0.0 for member in self.share}  # share of its epochs that are done
        self.records = {} if self.folder is None else store.read_records(self.folder, self.partial)

    def train(self, members: Sequence[Member], load: grouping.Loader, options: dict[str, Any]) -> None:
        """Train some members to the end. Their data sets are freed on return."""
        for group in grouping.make_groups(members, load, **options):
            for member in group.members:
                if member.number in self.records:
                    hashes = self.records[member.number].content_hash, group.seeds[member.seed].content_hash
                    store.refuse_differences(self.folder, f"content_hash of member {member.number}", *hashes)
            if waiting := [member for member in group.members if member.number not in self.records]:
                _Trainer(group, self).train(waiting)

    def add(self, record: MemberRecord, history: History, encoder: Encoder) -> None:
        """Keep a finished member."""
        self.records[record.member] = record
        if self.folder is None:
            self.encoders[record.member] = encoder
        else:
            store.save_member(self.folder, record, history, encoder)
            if jax.process_count() == 1:
                self._write()

    def complete(self) -> None:
        """Wait for the members of other processes, and write the results of all."""
        folder, several = self.folder, jax.process_count() > 1
        if folder is not None and several:
            reads = [functools.partial(store.read_member, folder, n) for n in range(len(self.numbers))]
            self.records = {number: store.wait_for(read)[0] for number, read in enumerate(reads)}
        self._write(complete=True, seconds=round(time.monotonic() - self.began, 1))
        if folder is not None and several:
            read = functools.partial(store.load_results, folder)
            store.wait_for(read, lambda run: run.members == self.run.members)

    def _write(self, *, complete: bool = False, seconds: float | None = None) -> None:
        members = tuple(self.records[number] for number in sorted(self.records))
        self.run = dataclasses.replace(self.run, complete=complete, seconds=seconds, members=members)
        if self.folder is not None and jax.process_index() == 0:
            store.write_results(self.folder, self.run)

    def show(self, chunk: _Chunk) -> None:
        """Report the progress of a chunk."""
        epoch = int(np.max(chunk.states.epoch))
        self.partial |= {member.number: epoch / self.until for member in chunk.members}
        partial = sum(part for number, part in self.partial.items() if number not in self.records)
        losses = jax.tree.map(lambda a: a[:, max(0, epoch - 1)].mean(), chunk.history.losses)
        privacy = sum(jax.tree.leaves(losses.privacy))
        description = f"members, epoch {epoch}, utility loss {losses.utility:.3g}, privacy loss {privacy:.3g}"
        self.report.show(Progress(len(self.partial), len(self.records), description, partial))


class _Chunk(NamedTuple):
    """Members that train together: stacked and padded on the devices, with their histories on the host."""

    members: Sequence[Member]
    inputs: grouping.Inputs
    states: TrainState
    history: History


class _Trainer:
    """Training of the members of one group, chunk by chunk."""

    def __init__(self, group: Group, sweep: _Sweep):
        self.group, self.sweep = group, sweep
        plan, inputs = sweep.layout(len(group.members)), self._inputs(group.members[0])
        self.plan, self.program = grouping.compile_to_fit(plan, group, inputs, sweep.per_call)
        replicated, self.sharded = grouping.shardings(self.plan.mesh)
        self.shared = jax.device_put((group.data, jnp.asarray(sweep.until, jnp.int32)), replicated)

    def _inputs(self, member: Member) -> grouping.Inputs:
        train, validation, _ = (rows.astype(np.int32) for rows in self.group.seeds[member.seed].split)
        numbers = self.sweep.numbers[member.number]
        return train, validation if len(validation) else None, numbers

    def train(self, members: Sequence[Member]) -> None:
        """Train members until all have ended, and keep them.

        Each chunk in flight has a thread. On a CPU two members fill two cores better than one, and one
        trains while this thread saves the other.
        """
        size, in_flight = self.plan.size, collections.deque()
        queue = collections.deque(members[i : i + size] for i in range(0, len(members), size))
        described = f"{len(members)} members, {size} at a time on {self.plan.mesh.size} device(s)"
        self.sweep.report.say(f"{described}, {self.program.num_bytes / 1e6:,.1f} MB each.")
        with concurrent.futures.ThreadPoolExecutor(self.plan.max_in_flight) as pool:
            while queue or in_flight:
                while queue and len(in_flight) < self.plan.max_in_flight:
                    in_flight.append(pool.submit(self._advance, self._begin(queue.popleft())))
                chunk = in_flight.popleft().result()
                if not self._collect(chunk):
                    in_flight.append(pool.submit(self._advance, chunk))

    def _begin(self, members: Sequence[Member]) -> _Chunk:
        """Initialise a chunk, and restore the checkpoints of its members."""
        padded = [*members, *[members[-1]] * (self.plan.size - len(members))]
        inputs = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(self._inputs, padded))
        inputs = jax.device_put(inputs, self.sharded)
        states = jax.tree.map(np.array, self.program.start(self.shared[0], inputs))
        shape = (len(members), self.group.config.objective.schedule.max_epochs)
        history = jax.tree.map(lambda a: np.full(shape, a), training.no_history(self.group.config.task))
        for i, member in enumerate(members):
            like = jax.tree.map(lambda a, i=i: a[i], (states, history))
            seed = self.group.seeds[member.seed]
            saved = store.read_checkpoint(self.sweep.folder, member.number, seed.content_hash, like)
            for array, part in zip(jax.tree.leaves((states, history)), saved, strict=bool(saved)):
                array[i] = part
        # Padding is finished: it costs nothing where members run one at a time.
        states.status[len(members) :] = training.FINISHED
        return _Chunk(members, inputs, jax.device_put(states, self.sharded), history)

    def _advance(self, chunk: _Chunk) -> _Chunk:
        """Train a chunk for some epochs, and append to its history."""
        before = np.array(chunk.states.epoch)  # a copy, because the call takes over the memory of states
        states, epochs = self.program.advance(chunk.states, chunk.inputs, *self.shared)
        epochs = jax.tree.map(np.asarray, epochs)
        for i, ran in enumerate(epochs.ran[: len(chunk.members)]):
            rows = slice(before[i], before[i] + ran.sum())
            for whole, part in zip(jax.tree.leaves(chunk.history), jax.tree.leaves(epochs), strict=True):
                whole[i, rows] = part[i, ran]
        return chunk._replace(states=states)

    def _collect(self, chunk: _Chunk) -> bool:
        """Keep the finished members of a chunk and checkpoint the others; return whether all finished."""
        states = jax.tree.map(np.array, chunk.states)
        ended = (states.status != training.RUNNING) | (states.epoch >= self.sweep.until)
        for i, member in enumerate(chunk.members):
            state, history = jax.tree.map(lambda a, i=i: a[i], (states, chunk.history))
            if not ended[i]:
                content_hash = self.group.seeds[member.seed].content_hash
                store.save_checkpoint(self.sweep.folder, member.number, content_hash, (state, history))
            elif member.number not in self.sweep.records:
                self._finish(member, state, history)
        self.sweep.show(chunk)
        return bool(ended[: len(chunk.members)].all())

    def _finish(self, member: Member, state: TrainState, history: History) -> None:
        """Keep the record, the history and the encoder of a member in its last state."""
        config, seed, epochs = self.group.config, self.group.seeds[member.seed], int(state.epoch)
        history = jax.tree.map(lambda a: a[:epochs], history)
        losses, measures, *_ = jax.tree.map(lambda a: _finite(a[-1]), history)
        # num_epochs ends a member as the last epoch of the schedule does.
        status = training.FINISHED if state.status == training.RUNNING else int(state.status)
        validation = measures.utility if len(seed.split.validation) else None
        record = MemberRecord(
            member=member.number,
            objective=config.objective.name,
            privacy_weight=member.privacy_weight,
            seed=member.seed,
            status=training.STATUS_NAMES[status],
            epochs=epochs,
            losses=records.LossRecord(*losses),
            utility=records.UtilityRecord(validation, _test_utility(member, state, self.group)),
            effective_rank=measures.effective_rank,
            live_units=int(history.measures.live_units[-1]),
            probe=measures.probe,
            content_hash=seed.content_hash,
        )
        private, shape = state.params["private"], self.group.data.x.shape[1:]
        encoder = Encoder(config.networks, private, seed.scaling, shape, config.release)
        self.sweep.add(record, history, encoder)


def _test_utility(member: Member, state: TrainState, group: Group) -> float | None:
    config, rows = group.config, group.seeds[member.seed].split.test
    if not len(rows):
        return None
    apply = release_function(config.networks, config.release)
    x = np.asarray(group.data.x[rows])
    z = apply_in_blocks(apply, state.params, x, key=jax.random.key(member.seed))
    outputs = apply_in_blocks(config.networks.public, state.params, z)
    return _finite(training.utility_score(jnp.asarray(outputs), group.data.y[rows], config.task))


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
