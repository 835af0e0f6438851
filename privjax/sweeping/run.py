"""`sweep`: train every member of a trade-off curve, several at once, and keep each on disk."""

from __future__ import annotations  # signatures then show names instead of expanded unions

import collections
import concurrent.futures
import contextlib
import dataclasses
import importlib.metadata
import math
import operator
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
from privjax.networks import Networks
from privjax.objectives import Objective, make_objective
from privjax.progress import Progress, Reporter, reporter
from privjax.release import ReleaseMechanism, exact
from privjax.sweeping import members as grouping
from privjax.sweeping import plan as planning
from privjax.sweeping import records, store
from privjax.sweeping.members import Group, Member
from privjax.sweeping.records import MemberRecord, SweepConfig, SweepRun
from privjax.training import History, Rates, TrainConfig, TrainState
from privjax.typed_json import to_json


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """Result of a sweep.

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
        """Return the encoder of one member, which maps raw rows to z.

        Args:
          member: Number of the member, or a point of a curve.
        """
        number = self.run.find(member).member
        if self.workdir is None:
            return self.encoders[number]
        return store.load_encoder(self.workdir, number, networks=self.networks)

    def __str__(self) -> str:
        lines = ["member  weight      seed  status     epochs  utility (test)  live units"]
        for m in self.members:
            weight = f"{m.privacy_weight:g}" if isinstance(m.privacy_weight, float) else "several"
            utility = "none" if m.utility.test is None else f"{m.utility.test:.4f}"
            lines.append(
                f"{m.member:6d}  {weight:10s} {m.seed:5d}  {m.status:10s} {m.epochs:6d}  "
                f"{utility:>14s}  {m.live_units or 0:10d}"
            )
        return "\n".join(lines)


class _Settings(NamedTuple):
    """Settings of the training loop that no number of a member depends on, and the rates."""

    until: int
    epochs_per_call: int
    chunk_size: int | None
    devices: Sequence[Any] | None
    rates: Rates


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

    The data set of each seed is loaded once, when its first member is due, and one data set is in memory
    at a time. Where members train together (`chunk_size` above 1, the default on accelerators), the data
    sets of all seeds are on the devices together, and are therefore loaded together.

    Args:
      data: A data set, the name of one, or a function from a seed to a data set. With a name or a function,
        the seed selects the split as well.
      privacy_weights: lambda_P of the members; members are numbered in this order.
      objective: Name of an objective, or an `Objective`.
      seeds: Seeds of parameters, order of rows and dropout, and of the split, see `data`.
      networks: Networks of every member; `nn_networks` when None.
      scaling: How encoders scale raw rows, "standard", "minmax" or "none"; fitted on the training rows of
        each seed. Continuous labels always have mean 0 and spread 1 in training.
      release: Release mechanism of every encoder; `exact()` when None.
      workdir: Folder for the sweep. Nothing is written when None.
      batch_size: Largest number of rows in a step.
      num_epochs: Largest number of epochs; that of the objective's schedule when None.
      chunk_size: Members at once on each device; chosen from the backend when None: 1 on a CPU, where more
        are slower.
      devices: Devices to train on; all local devices when None.
      checkpoint_every: Epochs between two checkpoints.
      progress: "bar", "log", "off", or None for a bar on a terminal and nothing elsewhere.
      **rates: `private_rate`, `public_rate`, `discriminator_rate`, `private_dropout`,
        `public_dropout`.

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
    objective = make_objective(objective) if isinstance(objective, str) else objective
    release = exact() if release is None else release
    training.check_rates(rates)
    training.check_positive_integer("checkpoint_every", checkpoint_every)
    if num_epochs is not None:
        training.check_positive_integer("num_epochs", num_epochs)
    folder = None if workdir is None else Path(workdir).expanduser()
    process, num_processes = jax.process_index(), jax.process_count()
    if num_processes > 1 and folder is None:
        raise ValueError("workdir must be given to several processes: they share results through it.")
    members = grouping.make_members(privacy_weights, seeds)
    share = members[process::num_processes]
    together = isinstance(data, Dataset) or planning.make_plan(len(share), chunk_size, devices).width > 1
    load = grouping.make_loader(data)
    options: dict[str, Any] = {"scaling": scaling, "release": release, "batch_size": batch_size}
    options |= {"objective": objective, "networks": networks}
    # The first data set shows whether all arguments fit together, before the workdir belongs to them.
    first = load(members[0].seed)
    train_config = next(grouping.make_groups(members[:1], load, **options)).config
    options["networks"] = train_config.networks
    for member in members:
        grouping.make_hyperparameters(member, train_config, rates)
    max_epochs = objective.schedule.max_epochs
    settings = _Settings(
        until=max_epochs if num_epochs is None else min(num_epochs, max_epochs),
        epochs_per_call=min(checkpoint_every, max_epochs),
        chunk_size=chunk_size,
        devices=devices,
        rates=rates,
    )
    config = _make_config(train_config, members, first, scaling=scaling, num_epochs=num_epochs, rates=rates)
    about_data = records.DataRecord.of(first)
    run = SweepRun(config, about_data, jax.default_backend(), jax.device_count(), False, None, ())
    del first  # its memory, once its members are trained
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        if folder is not None:
            stack.enter_context(store.open_workdir(folder, config, process=process))
        report = stack.enter_context(reporter(progress, "sweep", "compiling"))
        stack.enter_context(training.one_blas_thread())
        ledger = _Ledger(folder, run, report, [member.number for member in share])
        try:
            for batch in [share] if together else grouping.split_by_seed(share):
                _train(batch, load, options, settings, ledger)
        except KeyboardInterrupt:
            if folder is not None:
                report.say(f"stopped; the same call resumes from {folder}.")
            raise
        ledger.complete(len(members), time.monotonic() - began)
    return SweepResult(ledger.run, folder, train_config.networks, ledger.encoders)


def _make_config(
    config: TrainConfig,
    members: Sequence[Member],
    first: Dataset,
    *,
    scaling: str,
    num_epochs: int | None,
    rates: Rates,
) -> SweepConfig:
    seeds = dict.fromkeys(member.seed for member in members)
    return SweepConfig(
        schema=records.SCHEMA,
        versions={name: importlib.metadata.version(name) for name in ("privjax", "jax", "flax", "optax")},
        objective=records.ObjectiveRecord.of(config.objective),
        networks=records.describe_networks(config.networks),
        privacy_weights=tuple(member.privacy_weight for member in members[: len(members) // len(seeds)]),
        seeds=tuple(seeds),
        rates=to_json(rates),
        scaling=scaling,
        batch_size=operator.index(config.batch_size),
        num_epochs=None if num_epochs is None else operator.index(num_epochs),
        data=records.DataIdentity(first.name, first.content_hash),
        release=config.release.to_dict(),
    ).normalised()


class _Ledger:
    """Finished members, in memory and in the workdir, and the progress of the others."""

    def __init__(self, folder: Path | None, run: SweepRun, report: Reporter, share: Sequence[int]):
        self.folder, self.run, self.report = folder, run, report
        self.records: dict[int, MemberRecord] = {}
        self.encoders: dict[int, Encoder] = {}
        self._total, self._partial = len(share), dict.fromkeys(share, 0.0)
        if folder is not None:
            store.remove_partial_files(folder, share)
            self.records = store.read_records(folder, share)

    def unfinished(self, group: Group) -> list[Member]:
        """Return the members of a group to train; finished ones must have had the same data."""
        for member in group.members:
            if self.folder is not None and member.number in self.records:
                before = self.records[member.number].content_hash
                now = group.seeds[member.seed].content_hash
                store.check_content_hash(self.folder, member.number, before, now)
        return [member for member in group.members if member.number not in self.records]

    def add(self, member: store.FinishedMember) -> None:
        """Keep a finished member."""
        self.records[member.record.member] = member.record
        if self.folder is None:
            self.encoders[member.record.member] = member.encoder
            return
        store.save_member(self.folder, member)
        if jax.process_count() == 1:
            self._write(complete=False)

    def _write(self, *, complete: bool, seconds: float | None = None) -> None:
        members = tuple(self.records[number] for number in sorted(self.records))
        self.run = dataclasses.replace(self.run, complete=complete, seconds=seconds, members=members)
        if self.folder is not None and jax.process_index() == 0:
            store.write_results(self.folder, self.run)

    def complete(self, total: int, seconds: float) -> None:
        """Wait for the members of other processes, and write the results of all."""
        if self.folder is not None and jax.process_count() > 1:
            self.records = store.wait_for_records(self.folder, range(total))
        self._write(complete=True, seconds=round(seconds, 1))
        if self.folder is not None and jax.process_index() > 0:
            store.wait_for_results(self.folder)

    def show(self, chunk: _Chunk, settings: _Settings) -> None:
        """Report the progress of a chunk."""
        epoch = int(np.max(chunk.states.epoch))
        self._partial |= {member.number: epoch / settings.until for member in chunk.members}
        partial = sum(part for number, part in self._partial.items() if number not in self.records)
        losses = jax.tree.map(lambda a: a[:, max(0, epoch - 1)].mean(), chunk.history.losses)
        privacy = sum(jax.tree.leaves(losses.privacy))
        description = f"members, epoch {epoch}, utility loss {losses.utility:.3g}, privacy loss {privacy:.3g}"
        self.report.show(Progress(self._total, len(self.records), description, partial))


def _train(
    members: Sequence[Member],
    load: grouping.Loader,
    options: dict[str, Any],
    settings: _Settings,
    ledger: _Ledger,
) -> None:
    """Train some members to the end. Their data sets are freed on return."""
    for group in grouping.make_groups(members, load, **options):
        waiting = ledger.unfinished(group)
        if waiting:
            _GroupTrainer(group, settings, ledger).train(waiting)


class _Chunk(NamedTuple):
    """Members that train together.

    Attributes:
      members: The members.
      inputs: Their inputs, stacked and padded, on the devices.
      states: Their states, likewise.
      history: Their histories, stacked, on the host.
    """

    members: Sequence[Member]
    inputs: planning.Inputs
    states: TrainState
    history: History


class _GroupTrainer:
    """Training of the members of one group, chunk by chunk."""

    def __init__(self, group: Group, settings: _Settings, ledger: _Ledger):
        self.group, self.settings, self.ledger = group, settings, ledger
        self.plan, self.program = planning.compile_to_fit(
            planning.make_plan(len(group.members), settings.chunk_size, settings.devices),
            group.data,
            group.inputs(group.members[0], settings.rates),
            config=group.config,
            num_epochs=settings.epochs_per_call,
            may_shrink=settings.chunk_size is None,
        )
        self.data = self.plan.replicate(group.data)
        self.until = self.plan.replicate(jnp.asarray(settings.until, jnp.int32))

    def train(self, members: Sequence[Member]) -> None:
        """Train members until all have ended, and keep them.

        Each chunk in flight has a thread. On a CPU two members fill two cores better than one, and one
        trains while this thread saves the other.
        """
        size, in_flight = self.plan.size, collections.deque()
        queue = collections.deque(members[i : i + size] for i in range(0, len(members), size))
        self.ledger.report.say(planning.describe_memory(self.plan, self.program, self.data, len(members)))
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
        inputs = [self.group.inputs(member, self.settings.rates) for member in padded]
        inputs = self.plan.shard(jax.tree.map(lambda *leaves: jnp.stack(leaves), *inputs))
        states = jax.tree.map(np.array, self.program.start(self.data, inputs))
        history = _empty_history(self.group.config, len(members))
        for i, member in enumerate(members):
            like = jax.tree.map(lambda a, i=i: a[i], (states, history))
            seed = self.group.seeds[member.seed]
            saved = store.read_checkpoint(self.ledger.folder, member.number, seed.content_hash, like)
            for array, part in zip(jax.tree.leaves((states, history)), saved, strict=bool(saved)):
                array[i] = part
        # Padding is finished: it costs nothing where members run one at a time.
        states.status[len(members) :] = training.FINISHED
        return _Chunk(members, inputs, self.plan.shard(states), history)

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
        ended = (states.status != training.RUNNING) | (states.epoch >= self.settings.until)
        for i, member in enumerate(chunk.members):
            state, history = jax.tree.map(lambda a, i=i: a[i], (states, chunk.history))
            if not ended[i]:
                seed = self.group.seeds[member.seed]
                store.save_checkpoint(self.ledger.folder, member.number, seed.content_hash, (state, history))
            elif member.number not in self.ledger.records:
                self.ledger.add(_finish(member, state, history, self.group))
        self.ledger.show(chunk, self.settings)
        return bool(ended[: len(chunk.members)].all())


def _empty_history(config: TrainConfig, count: int) -> History:
    """Return the stacked histories of members of which no epoch has run."""
    shape = (count, config.objective.schedule.max_epochs)

    def empty(leaf):
        missing = np.nan if np.issubdtype(leaf.dtype, np.floating) else 0
        return np.full(shape, missing, leaf.dtype)

    return jax.tree.map(empty, jax.eval_shape(lambda: training.no_history(config.task)))


def _finish(member: Member, state: TrainState, history: History, group: Group) -> store.FinishedMember:
    """Make the record and the encoder of a member from its last state."""
    config, seed, epochs = group.config, group.seeds[member.seed], int(state.epoch)
    history = jax.tree.map(lambda a: a[:epochs], history)
    last = jax.tree.map(lambda a: _finite(a[-1]) if epochs else None, history)
    measures = last.measures
    # num_epochs ends a member as the last epoch of the schedule does.
    status = training.FINISHED if state.status == training.RUNNING else int(state.status)
    record = MemberRecord(
        member=member.number,
        objective=config.objective.name,
        privacy_weight=member.privacy_weight,
        seed=member.seed,
        status=training.STATUS_NAMES[status],
        epochs=epochs,
        losses=records.LossRecord(**last.losses._asdict()),
        utility=records.UtilityRecord(
            validation=measures.utility if len(seed.split.validation) else None,
            test=_test_utility(member, state, group),
        ),
        effective_rank=measures.effective_rank,
        live_units=None if measures.live_units is None else int(measures.live_units),
        probe=measures.probe,
        content_hash=seed.content_hash,
    )
    params = state.params["private"]
    encoder = Encoder(config.networks, params, seed.scaling, seed.input_shape, config.release)
    return store.FinishedMember(record, history, encoder)


def _test_utility(member: Member, state: TrainState, group: Group) -> float | None:
    config, rows = group.config, group.seeds[member.seed].rows("test")
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
