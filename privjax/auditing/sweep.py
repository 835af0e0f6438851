"""The audit of every point of a sweep: resumable, through joblib, the same on any number of workers."""

import hashlib
import json
import operator
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privjax.auditing.adversaries import Adversaries, Adversary, choose
from privjax.auditing.attack import Attack, attack, attack_many
from privjax.auditing.inputs import Problem, make_problem
from privjax.auditing.network import WIDTHS, sweep_lanes
from privjax.auditing.report import strict
from privjax.auditing.run import assemble, plan, quiet
from privjax.progress import Standing, reporter

if TYPE_CHECKING:
    from privjax.datasets import Dataset

VERSION = 4  # of what an audit computes: a point audited by another version is audited again


def audit_sweep(
    workdir: str | os.PathLike,
    data: "Dataset | str | Callable[[int], Dataset] | None" = None,
    *,
    points: Sequence[int] | None = None,
    adversaries: Adversaries = "all",
    network_widths: Sequence[int] | None = None,
    networks: Any = None,
    seed: int = 0,
    n_jobs: int | None = -1,
    progress: str | None = None,
) -> dict[str, Any]:
    """Audits the points of a sweep and adds an `audit` to each member in its `results.json`.

    Every report is written to `audit/point-<k>.json` as soon as it is done. The same call, made again
    after an interruption, goes on with the points that are left. A report by other attackers stays beside it,
    and is found again when they are asked for again. Network attackers are trained here,
    several points in a call; the others run point by point through joblib, so that
    `joblib.parallel_config(backend=...)` puts them on a cluster.

    Args:
      workdir: the sweep's folder.
      data: what the sweep was trained on: a data set, a name, or a function of the seed; loaded again as
        `results.json` says when None. It is checked against the hash that the sweep has kept.
      points: which ones; all when None.
      adversaries: as for `audit`.
      network_widths: hidden widths of the network attacker; those of the sweep's discriminator when None.
      networks: the sweep's networks, when they are your own.
      seed: of the audit.
      n_jobs: points at a time, as in joblib. An RBF SVM on n rows takes about 16 n^2 bytes.
      progress: "bar", "log", "off", or None for a bar on a terminal and nothing elsewhere.

    Returns:
      The results with the audits, as in `results.json`.
    """
    from joblib import Parallel, delayed

    from privjax.files import exclusive, write_json
    from privjax.sweeping import load_results

    folder, seed = Path(workdir).expanduser(), operator.index(seed)
    results = load_results(folder)
    members = _members(results, points)
    if network_widths is None:
        network_widths = _discriminator_widths(results)
    told = [
        _told(adversary)
        for kind in (True, False)
        for adversary in choose(adversaries, discrete=kind, network_widths=network_widths)
    ]
    settings = {"version": VERSION, "seed": seed, "adversaries": told}
    prints = {member["point"]: _fingerprint(settings, member) for member in members}
    with exclusive(folder / "audit" / ".lock", wait=False):
        left = [m for m in members if _read(folder, m["point"], prints[m["point"]]) is None]
        done = len(members) - len(left)
        released = _releases(folder, left, _loader(data, results), networks)
        waiting: dict[int, tuple[Problem, list, dict[int, Attack], float]] = {}

        def jobs() -> Iterator[Any]:
            for point, problem, todo, found, start in _with_networks(
                released, adversaries, network_widths, seed=seed, lanes=sweep_lanes(len(results["members"]))
            ):
                waiting[point] = (problem, todo, found, start)
                away = [(i, *todo[i]) for i in range(len(todo)) if i not in found]
                yield delayed(_attack_point)(point, problem, away, seed)

        with quiet(), reporter(progress, "audit") as teller:
            teller.show(Standing(len(members), done, "points"))
            # Ahead of the workers: while they are at it, the networks of the next points are trained.
            finished = Parallel(
                n_jobs=n_jobs,
                return_as="generator_unordered",
                pre_dispatch="2*n_jobs",
                batch_size=1,  # pyright: ignore[reportArgumentType]
            )(jobs())
            for point, attacks in finished:  # pyright: ignore
                problem, todo, found, start = waiting.pop(point)
                found.update(attacks)
                report = assemble(
                    problem, [(todo[i][0], found[i]) for i in range(len(todo))], seed=seed, start=start
                )
                content = {"point": point, "fingerprint": prints[point], "audit": report.to_dict()}
                _keep_other(folder, point, prints[point])
                write_json(_path(folder, point), strict(content))
                done += 1
                teller.show(Standing(len(members), done, f"points, the last was {point}"))
        return _merge(folder, prints)


def _members(results: dict[str, Any], points: Sequence[int] | None) -> list[dict[str, Any]]:
    members = results["members"]
    known = [member["point"] for member in members]
    unknown = [] if points is None else [point for point in points if point not in known]
    if unknown:
        raise ValueError(f"points must be among those of the sweep ({len(known)} of them), got {unknown[0]}.")
    return [member for member in members if points is None or member["point"] in points]


def _discriminator_widths(results: dict[str, Any]) -> tuple[int, ...]:
    networks = (results.get("config") or {}).get("networks") or {}
    return tuple(networks.get("discriminator_widths") or WIDTHS)


def _loader(data: Any, results: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
    """What gives a member its data set, which must be the one it was trained on."""
    from privjax import datasets

    name = data if isinstance(data, str) else results["data"]["name"]
    again = {"function": "load", "seed": 0, "arguments": {"name": name}}
    if not isinstance(data, str):
        # The folder of an older sweep does not tell: then by its name, if that is a name of ours.
        again = results["data"].get("again", again if name in datasets.names() else None)
    if data is None and again is None:
        raise ValueError(f"data must be given: it is not known how {name!r} was loaded.")

    def candidates(seed: int) -> Iterator[Any]:
        if data is None or isinstance(data, str):
            # By the member's seed, or one split for every seed: the one that was loaded.
            for s in dict.fromkeys((seed, again["seed"])):
                yield datasets.load_again(again, seed=s)
        else:
            yield data(seed) if callable(data) else data

    kept: dict[str, Any] = {}

    def load(member: dict[str, Any]) -> Any:
        wanted = member.get("content_hash") or results["data"]["content_hash"]
        if wanted not in kept:
            kept.clear()  # members come seed by seed: one data set in memory is enough
            for found in candidates(member["seed"]):
                if found.content_hash == wanted:
                    kept[wanted] = found
                    break
            else:
                raise ValueError(
                    f"data is not what point {member['point']} was trained on (its hash differs): "
                    "pass the same data set, or the function of the seed that the sweep was given."
                )
        return kept[wanted]

    return load


def _releases(
    folder: Path, members: list[dict[str, Any]], load: Callable[[dict[str, Any]], Any], networks: Any
) -> Iterator[tuple[int, Problem, float]]:
    """Each point's released rows, ready to be attacked."""
    from privjax.sweeping import load_encoder

    own = {} if networks is None else {"networks": networks}
    for member in members:
        start = time.perf_counter()
        dataset = load(member)
        encoder = load_encoder(folder, member["point"], **own)
        parts = {
            part: dataset.part(part)
            for part in ("train", "validation", "test")
            if len(getattr(dataset.split, part))
        }
        problem = make_problem(
            {name: encoder(part.x) for name, part in parts.items()},
            {name: part.s for name, part in parts.items()},
            {name: part.y for name, part in parts.items()},
        )
        yield member["point"], problem, start


def _with_networks(
    released: Iterator[tuple[int, Problem, float]],
    adversaries: Adversaries,
    widths: Sequence[int],
    *,
    seed: int,
    lanes: int,
) -> Iterator[tuple[int, Problem, list, dict[int, Attack], float]]:
    """Trains the network attackers of some points at a time, all in one call."""
    while group := [entry for _, entry in zip(range(lanes), released, strict=False)]:
        plans = [plan(problem, adversaries, widths) for _, problem, _ in group]
        found: list[dict[int, Attack]] = [{} for _ in group]
        for i, (_, adversary) in enumerate(plans[0]):
            if adversary.fit is None:
                problems = [problem for _, problem, _ in group]
                targets = [todo[i][0] for todo in plans]
                attacks = attack_many(problems, targets, adversary, seed=seed, lanes=lanes)
                for of_point, result in zip(found, attacks, strict=True):
                    of_point[i] = result
        for (point, problem, start), todo, attacks in zip(group, plans, found, strict=True):
            yield point, problem, todo, attacks, start


def _attack_point(point: int, problem: Problem, away: list, seed: int) -> tuple[int, dict[int, Attack]]:
    """All attackers of one point but the networks, one after another: what a worker does."""
    with quiet():
        return point, {i: attack(problem, target, adversary, seed=seed) for i, target, adversary in away}


def _told(adversary: Adversary) -> str:
    """An attacker down to the code of its functions: another one must not be given the reports of this.

    What a user's estimator prints as may leave parameters out. One that cannot be written down is new at
    every call, so that its reports are made again.
    """
    import cloudpickle

    told = repr(adversary._replace(fit=None))
    if adversary.group != "user":
        return told
    try:
        return f"{told} {hashlib.sha256(cloudpickle.dumps(adversary.fit)).hexdigest()}"
    except Exception:  # whatever the estimator's own pickling may raise
        return f"{told} {uuid.uuid4()}"


def _fingerprint(settings: dict[str, Any], member: dict[str, Any]) -> str:
    """What a report depends on: another training of the point, or other attackers, give another one."""
    trained = {key: value for key, value in member.items() if key != "audit"}
    return hashlib.sha256(json.dumps([settings, trained], sort_keys=True).encode()).hexdigest()


def _path(folder: Path, point: int, fingerprint: str = "") -> Path:
    """The newest report of a point; with a fingerprint, where one lies that is no longer the newest."""
    return folder / "audit" / f"point-{point}{fingerprint and '.'}{fingerprint[:12]}.json"


def _read(folder: Path, point: int, fingerprint: str) -> dict[str, Any] | None:
    """The report of a point that is done; None where it is not there, damaged, or of another audit."""
    for path in (_path(folder, point), _path(folder, point, fingerprint)):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["fingerprint"] == fingerprint:
                return content["audit"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def _keep_other(folder: Path, point: int, fingerprint: str) -> None:
    """Moves a report of other attackers out of the way of the new one: it may have taken hours."""
    newest = _path(folder, point)
    try:
        other = json.loads(newest.read_text(encoding="utf-8"))["fingerprint"]
        if other != fingerprint and re.fullmatch("[0-9a-f]{64}", other):
            newest.replace(_path(folder, point, other))
    except (OSError, ValueError, KeyError, TypeError):  # none, or a damaged one
        pass


def _merge(folder: Path, prints: dict[int, str]) -> dict[str, Any]:
    """Adds the reports to `results.json`, read again: the sweep may have gone on meanwhile."""
    from privjax.files import write_json
    from privjax.sweeping import load_results

    results = load_results(folder)
    for member in results["members"]:
        found = _read(folder, member["point"], prints.get(member["point"], ""))
        if found is not None:
            member["audit"] = found
    write_json(folder / "results.json", results)
    return results
