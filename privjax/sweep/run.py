"""`sweep`: trains every member of a trade-off curve, many at once, and loses nothing on the way."""

import collections
import concurrent.futures
import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from privjax.datasets import Dataset
from privjax.networks import Networks
from privjax.sweep import chunks as chunking
from privjax.sweep.checkpoints import Checkpoints, remove_leftovers
from privjax.sweep.members import (
    Group,
    Member,
    content_hash,
    make_groups,
    make_loader,
    make_members,
    stack_hyperparameters,
    stack_rows,
)
from privjax.sweep.progress import Reporter, Standing, reporter
from privjax.sweep.results import (
    Encoder,
    PathLike,
    final_tree,
    load_encoder,
    make_record,
    read_member,
    write_member,
    write_results,
)
from privjax.sweep.workdir import SCHEMA, describe_networks, describe_objective, opened, versions
from privjax.train import (
    FINISHED,
    RUNNING,
    Objective,
    TrainState,
    init_state,
    make_objective,
    one_blas_thread,
)


class SweepResult(NamedTuple):
    """What a sweep gave.

    Attributes:
      results: as in `results.json`; `results["members"]` has a record for each point.
      workdir: where it lies, or None.
      encoders: by point, when there is no workdir to load them from.
    """

    results: dict[str, Any]
    workdir: Path | None
    encoders: dict[int, Encoder]

    @property
    def members(self) -> list[dict[str, Any]]:
        """The records of all points."""
        return self.results["members"]

    def encoder(self, point: int) -> Encoder:
        """The private sphere of one member, on NumPy rows."""
        if point in self.encoders:
            return self.encoders[point]
        if self.workdir is None:
            raise ValueError(f"point must be one of {sorted(self.encoders)}, got {point}.")
        return load_encoder(self.workdir, point)

    def __str__(self) -> str:
        lines = ["point  weight      seed  status     epochs  utility (test)  live units"]
        for m in self.members:
            weight = m["privacy_weight"]
            weight = f"{weight:g}" if isinstance(weight, float) else "several"
            utility = m["utility"]["test"]
            lines.append(
                f"{m['point']:5d}  {weight:10s} {m['seed']:5d}  {m['status']:10s} {m['epochs']:6d}  "
                f"{'none' if utility is None else format(utility, '.4f'):>14s}  {m['live_units'] or 0:10d}"
            )
        return "\n".join(lines)


class _Chunk(NamedTuple):
    """Members on the way: who, their stacked state on the devices, their histories on the host."""

    members: list[Member]
    states: TrainState
    inputs: chunking.Inputs
    history: Any


def sweep(
    data: Dataset | str | Callable[[int], Dataset],
    *,
    privacy_weights: Sequence[Any],
    objective: str | Objective = "mmd",
    seeds: Sequence[int] = (0,),
    networks: Networks | None = None,
    workdir: PathLike | None = None,
    batch_size: int = 500,
    num_epochs: int | None = None,
    chunk_size: int | None = None,
    devices: Sequence[Any] | None = None,
    checkpoint_every: int = 10,
    progress: str | None = None,
    **rates: float,
) -> SweepResult:
    """Trains a member for every privacy weight and seed.

    With a `workdir` the same call goes on where an earlier one ended, however it ended, and gives the
    same numbers. Where several processes run under `jax.distributed`, all call it alike with a workdir
    that all can reach, and each trains its share.

    Args:
      data: a data set, the name of one, or a function of the seed that gives one, so that the seed
        picks the split as well. A name is loaded by seed.
      privacy_weights: lambda_P of each point of the curve.
      objective: "mmd", "rff_mmd", "kdi", "wdn", "lsdn", or an `Objective`.
      seeds: of parameters, order of rows and dropout; and of the split, see `data`.
      networks: those of every member; `nn_networks` when None.
      workdir: where `config.json`, `results.json` and checkpoints go; nothing is written when None.
      batch_size: rows a step, at most.
      num_epochs: stop after so many epochs; the schedule's `max_epochs` when None.
      chunk_size: members at once on each device; chosen from the backend when None. On a CPU that
        is one, since more are slower.
      devices: where to train; all local devices when None.
      checkpoint_every: epochs between two checkpoints, and between two looks at who has ended.
      progress: "bar", "log", "off", or None for a bar on a terminal and nothing elsewhere.
      **rates: `private_rate`, `public_rate`, `discriminator_rate`, `private_dropout`,
        `public_dropout`.
    """
    objective = make_objective(objective) if isinstance(objective, str) else objective
    if checkpoint_every < 1:
        raise ValueError(f"checkpoint_every must be at least 1, got {checkpoint_every}.")
    if num_epochs is not None and num_epochs < 1:
        raise ValueError(f"num_epochs must be at least 1, got {num_epochs}.")
    members = make_members(privacy_weights, seeds)
    load = make_loader(data)
    hashes = [load(seed).content_hash for seed in seeds]
    first = load(seeds[0])
    groups = make_groups(
        members,
        load,
        objective=objective,
        networks=networks,
        batch_size=batch_size,
        together=chunking.make_plan(len(members), chunk_size, devices).width > 1,
    )
    group = next(groups)
    config = {
        "schema": SCHEMA,
        "versions": versions(),
        "objective": describe_objective(objective),
        "networks": describe_networks(group.config.networks),
        "privacy_weights": list(privacy_weights),
        "seeds": [int(seed) for seed in seeds],
        "rates": rates,
        "batch_size": batch_size,
        "num_epochs": num_epochs,
        "data": {
            "name": first.name,
            "content_hash": content_hash(hashes),
            "splits": dict(zip(map(str, seeds), hashes, strict=True)),
            "features": first.x.shape[-1],
        },
    }
    most = objective.schedule.max_epochs
    settings = _Settings(
        until=most if num_epochs is None else min(num_epochs, most),
        segment=min(checkpoint_every, most),
        chunk_size=chunk_size,
        devices=devices,
        rates=rates,
    )
    folder = None if workdir is None else Path(workdir)
    if jax.process_count() > 1 and folder is None:
        raise ValueError("several processes share their results through workdir: give one.")
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        if folder is not None:
            stack.enter_context(opened(folder, config))
        _wait_for_all("opened")
        report = stack.enter_context(reporter(progress))
        stack.enter_context(one_blas_thread())
        run = _Run(folder, config, settings, report, len(members))
        try:
            while group is not None:
                run.train(group)
                group = next(groups, None)
        except KeyboardInterrupt:
            if folder is not None:
                report.say(f"stopped; the same call goes on from what is in {folder}.")
            raise
        _wait_for_all("trained")
        return run.finish(members, time.monotonic() - began)


class _Settings(NamedTuple):
    until: int
    segment: int
    chunk_size: int | None
    devices: Sequence[Any] | None
    rates: dict[str, float]


class _Run:
    """One call of `sweep`: what has ended so far, and how to train the next group."""

    def __init__(self, folder: Path | None, config, settings: _Settings, report: Reporter, total: int):
        self._folder, self._config, self._settings = folder, config, settings
        self._report, self._total = report, total
        self._records: dict[int, dict[str, Any]] = {}
        self._encoders: dict[int, Encoder] = {}
        self._parts: dict[int, float] = {}
        self._checkpoints = None
        if folder is not None:
            path = folder / "checkpoints"
            path.mkdir(exist_ok=True)
            if jax.process_count() == 1:
                remove_leftovers(path)
            self._checkpoints = Checkpoints(path)

    def train(self, group: Group) -> None:
        """Trains this process's share of a group to the end."""
        settings, config = self._settings, group.config
        share = group.members[jax.process_index() :: jax.process_count()]
        if not share:
            return
        plan = chunking.make_plan(len(group.members), settings.chunk_size, settings.devices)
        data = chunking.put_data(group.data, plan)
        blank, templates = self._templates(group)
        saved = self._saved(share, templates)
        waiting = []
        for member in share:
            tree, final = saved.get(member.point, (None, False))
            if final:
                self._end(member, tree, group)
            else:
                waiting.append(member)
        if not waiting:
            return

        def inputs_of(members: list[Member]) -> chunking.Inputs:
            padded = members + members[-1:] * (plan.size - len(members))
            numbers = stack_hyperparameters(padded, config, settings.rates)
            inputs = chunking.Inputs(stack_rows(padded, group), numbers)
            return chunking.put_members(inputs, plan)

        while True:
            start, advance, needed = chunking.make_program(
                plan, data, inputs_of(waiting[: plan.size]), config=config, num_epochs=settings.segment
            )
            fitting = chunking.members_that_fit(plan, needed, group.data)
            smaller = plan.smaller() if settings.chunk_size is None else None
            if fitting is None or fitting >= plan.width or smaller is None:
                break
            plan = smaller
        self._report.say(chunking.describe_memory(plan, needed, group.data, len(waiting)))
        chunking.check_memory(plan, needed, group.data)
        until = jax.device_put(
            jnp.asarray(settings.until, jnp.int32),
            jax.sharding.NamedSharding(plan.mesh, jax.sharding.PartitionSpec()),
        )

        def begin(members: list[Member]) -> _Chunk:
            inputs = inputs_of(members)
            states = jax.tree.map(np.array, start(data, inputs))
            history = chunking.empty_history(blank, len(members), config.objective.schedule.max_epochs)
            for i, member in enumerate(members):
                if member.point in saved:
                    tree = saved[member.point][0]
                    for whole, part in zip(
                        jax.tree.leaves((states, history)),
                        jax.tree.leaves((tree["state"], tree["history"])),
                        strict=True,
                    ):
                        whole[i] = part
            states = chunking.close(states, len(members))
            return _Chunk(members, chunking.put_members(states, plan), inputs, history)

        def fly(chunk: _Chunk):
            before = np.array(chunk.states.epoch)
            states, segment = advance(chunk.states, data, chunk.inputs, until)
            jax.block_until_ready((states, segment))
            return chunk._replace(states=states), before, segment

        queue = collections.deque(waiting[i : i + plan.size] for i in range(0, len(waiting), plan.size))
        flying = collections.deque()
        # Threads, as one thread's calls run one after another: two members at once fill two cores better,
        # and one is on its way while the host saves the other.
        with concurrent.futures.ThreadPoolExecutor(plan.flights) as pool:
            while queue or flying:
                while queue and len(flying) < plan.flights:
                    flying.append(pool.submit(fly, begin(queue.popleft())))
                chunk, before, segment = flying.popleft().result()
                if not self._land(chunk, before, segment, group):
                    flying.append(pool.submit(fly, chunk))

    def _saved(self, members: Sequence[Member], templates) -> dict[int, tuple[Any, bool]]:
        if self._checkpoints is None:
            return {}
        return self._checkpoints.read([member.point for member in members], templates)

    def _templates(self, group: Group) -> tuple[Any, dict[bool, Any]]:
        """Shapes of the history of an epoch, and of what checkpoints of one member hold."""
        numbers = stack_hyperparameters(group.members[:1], group.config, self._settings.rates)
        one = jax.tree.map(lambda a: a[0], numbers)
        state = jax.eval_shape(lambda n: init_state(n, group.data, config=group.config), one)
        blank = chunking.history_shapes(group.config)
        epochs = group.config.objective.schedule.max_epochs
        history = jax.tree.map(lambda a: jax.ShapeDtypeStruct((epochs,), a.dtype), blank)
        return blank, {
            False: {"state": state, "history": history},
            True: final_tree(state, history, next(iter(group.datasets.values()))),
        }

    def _land(self, chunk: _Chunk, before, segment, group: Group) -> bool:
        """Takes in what a chunk did, saves it, and tells whether all of it has ended."""
        count = len(chunk.members)
        states = jax.tree.map(lambda a: np.array(a)[:count], chunk.states)
        chunking.add_history(chunk.history, before[:count], segment)
        over = chunking.ended(states, self._settings.until).all()
        if over:
            # Cut short by num_epochs is an end like any other.
            status = np.where(states.status == RUNNING, FINISHED, states.status)
            states = states._replace(status=status.astype(np.int32))
            trees = []
            for i, member in enumerate(chunk.members):
                state, history = jax.tree.map(lambda a, i=i: a[i], (states, chunk.history))
                trees.append(final_tree(state, history, group.datasets[member.seed]))
            if self._checkpoints is not None:
                stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
                self._checkpoints.save([m.point for m in chunk.members], stacked, final=True)
            for member, tree in zip(chunk.members, trees, strict=True):
                self._end(member, tree, group)
            if self._folder is not None and jax.process_count() == 1:
                write_results(self._folder, self._results(complete=False))
        elif self._checkpoints is not None:
            tree = {"state": states, "history": chunk.history}
            self._checkpoints.save([m.point for m in chunk.members], tree, final=False)
        self._show(chunk, states)
        return bool(over)

    def _show(self, chunk: _Chunk, states: TrainState) -> None:
        epoch = int(states.epoch.max())
        for member in chunk.members:
            if member.point not in self._records:
                self._parts[member.point] = epoch / self._settings.until
        last = max(0, epoch - 1)
        losses = chunk.history.losses
        privacy = np.sum([a[:, last] for a in jax.tree.leaves(losses.privacy)], axis=0)
        standing = Standing(
            self._total,
            len(self._records),
            sum(self._parts.values()),
            epoch,
            float(np.mean(losses.utility[:, last])),
            float(np.mean(privacy)),
        )
        self._report.show(standing)

    def _end(self, member: Member, tree: dict[str, Any], group: Group) -> None:
        """Notes a member that has ended, from its last state."""
        record = make_record(member, tree, group.datasets[member.seed], group.config)
        self._records[member.point] = record
        self._parts.pop(member.point, None)
        if self._folder is not None:
            write_member(self._folder, record, tree["history"])
        else:
            self._encoders[member.point] = Encoder(
                tree["params"]["private"], group.config.networks, tree["shift"], tree["spread"]
            )

    def _results(self, *, complete: bool, seconds: float | None = None) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "versions": self._config["versions"],
            "backend": jax.default_backend(),
            "devices": jax.device_count(),
            "data": self._config["data"],
            "config": self._config,
            "complete": complete,
            "seconds": seconds,
            "members": [self._records[point] for point in sorted(self._records)],
        }

    def finish(self, members: Sequence[Member], seconds: float) -> SweepResult:
        """Brings the shares of all processes together and writes the results."""
        if self._folder is not None:
            for member in members:
                if member.point not in self._records:
                    record = read_member(self._folder, member.point)
                    if record is None:
                        raise RuntimeError(f"the record of point {member.point} is missing: sweep again.")
                    record.pop("history", None)
                    self._records[member.point] = record
        results = self._results(complete=True, seconds=round(seconds, 1))
        if self._folder is not None and jax.process_index() == 0:
            write_results(self._folder, results)
        return SweepResult(results, self._folder, self._encoders)


_barriers = itertools.count()


def _wait_for_all(name: str) -> None:
    """A barrier of the processes, not of their devices: a collective would not wait for long."""
    if jax.process_count() > 1:
        import orbax.checkpoint as ocp

        wait = ocp.multihost.get_barrier_sync_fn()
        wait(key=f"privjax sweep {name} {next(_barriers)}", timeout_ms=30 * 24 * 3600 * 1000)
