"""Trains groups of members, a few at a time, and keeps what each of them gave."""

import collections
import concurrent.futures
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from privjax.progress import Reporter, Standing
from privjax.sweeping import chunks as chunking
from privjax.sweeping.checkpoints import Checkpoints, remove_leftovers
from privjax.sweeping.members import Group, Member, stack_hyperparameters, stack_rows
from privjax.sweeping.results import (
    Encoder,
    final_tree,
    make_record,
    read_member,
    write_member,
    write_results,
)
from privjax.sweeping.workdir import SCHEMA
from privjax.training import FINISHED, RUNNING, TrainState, init_state


class _Chunk(NamedTuple):
    """Members on the way: who, their stacked state on the devices, their histories on the host."""

    members: list[Member]
    states: TrainState
    inputs: chunking.Inputs
    history: Any


class Settings(NamedTuple):
    """What a call of `sweep` asks for beside its groups."""

    until: int
    segment: int
    chunk_size: int | None
    devices: Sequence[Any] | None
    rates: dict[str, float]


class Trainer:
    """One call of `sweep`: what has ended so far, and how to train the next group."""

    def __init__(
        self, folder: Path | None, config, about_data, settings: Settings, report: Reporter, total: int
    ):
        self._folder, self._config, self._settings = folder, config, settings
        self._about_data = about_data
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
        utility = float(np.mean(losses.utility[:, last]))
        words = (
            f"members, epoch {epoch}, utility loss {utility:.3g}, privacy loss {float(np.mean(privacy)):.3g}"
        )
        self._report.show(Standing(self._total, len(self._records), words, sum(self._parts.values())))

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
            "data": {**self._config["data"], **self._about_data},
            "config": self._config,
            "complete": complete,
            "seconds": seconds,
            "members": [self._records[point] for point in sorted(self._records)],
        }

    def finish(self, members: Sequence[Member], seconds: float) -> tuple[dict[str, Any], dict[int, Encoder]]:
        """Brings the shares of all processes together, writes the results, and gives them with encoders."""
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
        return results, self._encoders
