"""`sweep`: trains every member of a trade-off curve, many at once, and loses nothing on the way."""

import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from privjax.datasets import Dataset
from privjax.networks import Networks
from privjax.progress import reporter
from privjax.sweeping import chunks as chunking
from privjax.sweeping.members import (
    content_hash,
    make_groups,
    make_loader,
    make_members,
    member_hyperparameters,
)
from privjax.sweeping.results import Encoder, PathLike, load_encoder
from privjax.sweeping.trainer import Settings, Trainer
from privjax.sweeping.workdir import (
    SCHEMA,
    as_json,
    describe_data,
    describe_networks,
    describe_objective,
    opened,
    versions,
)
from privjax.training import Objective, make_objective, one_blas_thread
from privjax.training.fit import check_count, check_rates


class SweepResult(NamedTuple):
    """What a sweep gave.

    Attributes:
      results: as in `results.json`; `results["members"]` has a record for each point.
      workdir: where it lies, or None.
      encoders: by point, when there is no workdir to load them from.
      networks: those of every member.
    """

    results: dict[str, Any]
    workdir: Path | None
    encoders: dict[int, Encoder]
    networks: Networks

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
        return load_encoder(self.workdir, point, networks=self.networks)

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

    A continuous utility or private variable is learnt at mean 0 and spread 1 of the training rows.

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
    check_count("checkpoint_every", checkpoint_every)
    if num_epochs is not None:
        check_count("num_epochs", num_epochs)
    members = make_members(privacy_weights, seeds)
    seeds = list(dict.fromkeys(member.seed for member in members))
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
    networks = group.config.networks
    check_rates(rates)
    # Told before a folder belongs to settings that cannot be.
    for member in members:
        member_hyperparameters(member, group.config, rates)
    config = as_json(
        {
            "schema": SCHEMA,
            "versions": versions(),
            "objective": describe_objective(objective),
            "networks": describe_networks(networks),
            "privacy_weights": [member.privacy_weight for member in members if member.seed == seeds[0]],
            "seeds": seeds,
            "rates": rates,
            "batch_size": batch_size,
            "num_epochs": num_epochs,
            "data": {
                "name": first.name,
                "content_hash": content_hash(hashes),
                "splits": dict(zip(map(str, seeds), hashes, strict=True)),
                "features": first.x.shape[-1],
                # A folder of before they were is another sweep's.
                **({} if first.y_names and first.s_names else {"reals": "standard"}),
            },
        }
    )
    most = objective.schedule.max_epochs
    settings = Settings(
        until=most if num_epochs is None else min(num_epochs, most),
        segment=min(checkpoint_every, most),
        chunk_size=chunk_size,
        devices=devices,
        rates=rates,
    )
    folder = None if workdir is None else Path(workdir).expanduser()
    if jax.process_count() > 1 and folder is None:
        raise ValueError("several processes share their results through workdir: give one.")
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        if folder is not None:
            stack.enter_context(opened(folder, config))
        _wait_for_all("opened")
        report = stack.enter_context(reporter(progress, "sweep", "compiling"))
        stack.enter_context(one_blas_thread())
        trainer = Trainer(folder, config, describe_data(first), settings, report, len(members))
        try:
            while group is not None:
                trainer.train(group)
                group = next(groups, None)
        except KeyboardInterrupt:
            if folder is not None:
                report.say(f"stopped; the same call goes on from what is in {folder}.")
            raise
        _wait_for_all("trained")
        results, encoders = trainer.finish(members, time.monotonic() - began)
        return SweepResult(results, folder, encoders, networks)


_barriers = itertools.count()


def _wait_for_all(name: str) -> None:
    """A barrier of the processes, not of their devices: a collective would not wait for long."""
    if jax.process_count() > 1:
        import orbax.checkpoint as ocp

        wait = ocp.multihost.get_barrier_sync_fn()
        wait(key=f"privjax sweep {name} {next(_barriers)}", timeout_ms=30 * 24 * 3600 * 1000)
