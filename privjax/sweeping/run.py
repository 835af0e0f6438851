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
from privjax.sweeping import plan as planning
from privjax.sweeping import records, store
from privjax.sweeping.members import Group, Loader, Member, make_groups, make_loader, make_members
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
      >>> import privjax
      >>> result = privjax.sweep("digits", privacy_weights=[0.0, 1.0], num_epochs=1)
      >>> [member.privacy_weight for member in result.members]
      [0.0, 1.0]
      >>> raw_rows = privjax.datasets.load("digits").test.x
      >>> result.encoder(1)(raw_rows[:3]).shape
      (3, 50)
    """
    folder = None if workdir is None else Path(workdir).expanduser()
    if jax.process_count() > 1 and folder is None:
        raise ValueError("workdir must be given to several processes: they share results through it.")
    objective = make_objective(objective) if isinstance(objective, str) else objective
    training.check_rates(rates)
    training.check_positive_integer("checkpoint_every", checkpoint_every)
    if num_epochs is not None:
        training.check_positive_integer("num_epochs", num_epochs)
    members = make_members(privacy_weights, seeds)
    load = make_loader(data)
    options: dict[str, Any] = {"scaling": scaling, "release": release, "batch_size": batch_size}
    options |= {"objective": objective, "networks": networks}
    # The first data set shows whether all arguments fit together, before the workdir belongs to them.
    first = load(members[0].seed)
    train_config = next(make_groups(members[:1], load, **options)).config
    options["networks"] = train_config.networks
    each = {m.number: {"privacy_weight": m.privacy_weight, "seed": m.seed} for m in members}
    task, schedule = train_config.task, objective.schedule
    numbers = {n: training.hyperparameters(objective, task, **one, **rates) for n, one in each.items()}
    config = _make_config(train_config, members, first, scaling=scaling, num_epochs=num_epochs, rates=rates)
    place = {"backend": jax.default_backend(), "devices": jax.device_count()}
    about = records.DataRecord.of(first)
    run = SweepRun(config, about, **place, complete=False, seconds=None, members=())
    del first  # its memory, once its members are trained
    share = members[jax.process_index() :: jax.process_count()]
    batches = [[m for m in share if m.seed == seed] for seed in dict.fromkeys(m.seed for m in share)]
    if isinstance(data, Dataset) or planning.make_plan(len(share), chunk_size, devices).width > 1:
        batches = [share]
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        if folder is not None:
            stack.enter_context(store.open_workdir(folder, config, process=jax.process_index()))
        report = stack.enter_context(reporter(progress, "sweep", "compiling"))
        stack.enter_context(training.one_blas_thread())
        state = _Sweep(
            run=run,
            folder=folder,
            report=report,
            numbers=numbers,
            until=min(num_epochs or schedule.max_epochs, schedule.max_epochs),
            epochs_per_call=min(checkpoint_every, schedule.max_epochs),
            chunk_size=chunk_size,
            devices=devices,
            partial=dict.fromkeys((member.number for member in share), 0.0),
            records={} if folder is None else store.read_records(folder, [m.number for m in share]),
        )
        try:
            for batch in batches:
                _train(batch, load, options, state)
        except KeyboardInterrupt:
            if folder is not None:
                report.say(f"stopped; the same call resumes from {folder}.")
            raise
        state.complete(len(members), round(time.monotonic() - began, 1))
    return SweepResult(state.run, folder, train_config.networks, state.encoders)


def _make_config(
    config: TrainConfig, members: Sequence[Member], first: Dataset, rates: Rates, **settings: Any
) -> SweepConfig:
    """Make the config as it is read from a file, so that NumPy numbers are no other sweep."""
    found = SweepConfig(
        schema=records.SCHEMA,
        versions={name: importlib.metadata.version(name) for name in ("privjax", "jax", "flax", "optax")},
        objective=records.ObjectiveRecord.of(config.objective),
        networks=records.describe_networks(config.networks),
        privacy_weights=tuple(member.privacy_weight for member in members if member.seed == members[0].seed),
        seeds=tuple(dict.fromkeys(member.seed for member in members)),
        rates=to_json(rates),
        batch_size=config.batch_size,
        content_hash=first.content_hash,
        release=config.release.to_dict(),
        **settings,
    )
    return from_json(SweepConfig, to_json(found), "config")


@dataclasses.dataclass
class _Sweep:
    """Finished members, the progress of the others, and the settings of the training loop."""

    run: SweepRun
    folder: Path | None
    report: Reporter
    numbers: dict[int, Hyperparameters]
    until: int
    epochs_per_call: int
    chunk_size: int | None
    devices: Sequence[Any] | None
    partial: dict[int, float]  # share of the epochs that each member has done
    records: dict[int, MemberRecord]
    encoders: dict[int, Encoder] = dataclasses.field(default_factory=dict)

    def unfinished(self, group: Group) -> list[Member]:
        """Return the members of a group to train; finished ones must have had the same data."""
        for member in group.members:
            if self.folder is not None and member.number in self.records:
                hashes = self.records[member.number].content_hash, group.seeds[member.seed].content_hash
                store.refuse_differences(self.folder, f"content_hash of member {member.number}", *hashes)
        return [member for member in group.members if member.number not in self.records]

    def add(self, record: MemberRecord, history: History, encoder: Encoder) -> None:
        """Keep a finished member."""
        self.records[record.member] = record
        if self.folder is None:
            self.encoders[record.member] = encoder
        else:
            store.save_member(self.folder, record, history, encoder)
            if jax.process_count() == 1:
                self._write(complete=False)

    def complete(self, total: int, seconds: float) -> None:
        """Wait for the members of other processes, and write the results of all."""
        folder = self.folder
        if folder is not None and jax.process_count() > 1:
            reads = [functools.partial(store.read_member, folder, number) for number in range(total)]
            self.records = {number: store.wait_for(read)[0] for number, read in enumerate(reads)}
        self._write(complete=True, seconds=seconds)
        if folder is not None:
            store.wait_for(lambda: store.load_complete_results(folder))

    def _write(self, *, complete: bool, seconds: float | None = None) -> None:
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


def _train(members: Sequence[Member], load: Loader, options: dict[str, Any], sweep: _Sweep) -> None:
    """Train some members to the end. Their data sets are freed on return."""
    for group in make_groups(members, load, **options):
        if waiting := sweep.unfinished(group):
            _Trainer(group, sweep).train(waiting)


class _Chunk(NamedTuple):
    """Members that train together: stacked and padded on the devices, with their histories on the host."""

    members: Sequence[Member]
    inputs: planning.Inputs
    states: TrainState
    history: History


class _Trainer:
    """Training of the members of one group, chunk by chunk."""

    def __init__(self, group: Group, sweep: _Sweep):
        self.group, self.sweep = group, sweep
        self.plan, self.program = planning.compile_to_fit(
            planning.make_plan(len(group.members), sweep.chunk_size, sweep.devices),
            group.data,
            self._inputs(group.members[0]),
            config=group.config,
            num_epochs=sweep.epochs_per_call,
            may_shrink=sweep.chunk_size is None,
        )
        shared = group.data, jnp.asarray(sweep.until, jnp.int32)
        self.data, self.until = jax.device_put(shared, self.plan.replicated)

    def _inputs(self, member: Member) -> planning.Inputs:
        train, validation, _ = (rows.astype(np.int32) for rows in self.group.seeds[member.seed].split)
        numbers = self.sweep.numbers[member.number]
        return planning.Inputs(train, validation if len(validation) else None, numbers)

    def train(self, members: Sequence[Member]) -> None:
        """Train members until all have ended, and keep them.

        Each chunk in flight has a thread. On a CPU two members fill two cores better than one, and one
        trains while this thread saves the other.
        """
        size, in_flight = self.plan.size, collections.deque()
        queue = collections.deque(members[i : i + size] for i in range(0, len(members), size))
        megabytes = self.program.num_bytes * self.plan.max_in_flight / 1e6
        self.sweep.report.say(
            f"{len(members)} members, {size} at a time on {self.plan.mesh.size} "
            f"{jax.default_backend()} devices, {megabytes:,.1f} MB on each."
        )
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
        inputs = jax.device_put(inputs, self.plan.sharded)
        states = jax.tree.map(np.array, self.program.start(self.data, inputs))
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
        return _Chunk(members, inputs, jax.device_put(states, self.plan.sharded), history)

    def _advance(self, chunk: _Chunk) -> _Chunk:
        """Train a chunk for some epochs, and append to its history."""
        before = np.array(chunk.states.epoch)  # a copy, because the call takes over the memory of states
        states, epochs = self.program.advance(chunk.states, self.data, chunk.inputs, self.until)
        epochs = jax.tree.map(np.asarray, epochs)
        for i in range(len(chunk.members)):
            ran = epochs.ran[i]
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
                self.sweep.add(*_finish(member, state, history, self.group))
        self.sweep.show(chunk)
        return bool(ended[: len(chunk.members)].all())


def _finish(
    member: Member, state: TrainState, history: History, group: Group
) -> tuple[MemberRecord, History, Encoder]:
    """Make the record, the history and the encoder of a member from its last state."""
    config, seed, epochs = group.config, group.seeds[member.seed], int(state.epoch)
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
        utility=records.UtilityRecord(validation, _test_utility(member, state, group)),
        effective_rank=measures.effective_rank,
        live_units=int(history.measures.live_units[-1]),
        probe=measures.probe,
        content_hash=seed.content_hash,
    )
    params = state.params["private"]
    return record, history, Encoder(config.networks, params, seed.scaling, seed.input_shape, config.release)


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
