"""Runs the methods of a config, split by split, and keeps every number it gave.

The results file is the state: the points it already holds for a method, a split and the same settings are not
run again, on this machine or another; new weights are added to them. Sweeps and audits in `workdir` are
resumable by themselves.
"""

import csv
import hashlib
import json
import os
import pathlib
import platform
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import ml_collections
import numpy as np
from bench.timing import peak_megabytes
from points import Row, load_data, make_points

import privjax
from privjax.auditing.pareto import mean_over_seeds
from privjax.files import exclusive, write_json

SCHEMA = 2


def run(
    config: Any,
    *,
    workdir: pathlib.Path,
    results: pathlib.Path,
    only: tuple[str, ...] = (),
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Runs what is missing of an experiment and writes its JSON and CSV after every step.

    Args:
      config: an `ml_collections.ConfigDict`, see `configs.common`.
      workdir: where sweeps go; may be deleted once the results are in.
      results: the folder of `<config.name>.json` and `<config.name>.csv`.
      only: names of methods; all when empty.
      say: takes a line for each step.
    """
    unknown = [name for name in only if name not in config.methods]
    if unknown:
        raise ValueError(f"only must name methods among {', '.join(config.methods)}, got {unknown[0]!r}.")
    for seed in range(config.first_seed, config.first_seed + config.seeds):
        for name, method in config.methods.items():
            if only and name not in only:
                continue
            spec = specification(config, method)
            done = _entry(_read(results, config), name, method, spec)["runs"].get(str(seed))
            had = {point["privacy_weight"] for point in done["points"]} if done else set()
            left = [weight for weight in method.weights if weight not in had]
            made = None
            if left:
                say(f"{config.name}: {method.label}, split {seed}")
                folder = workdir / config.name / f"{name}-{_digest([spec, left])[:8]}" / f"split-{seed}"
                made = _run_method(config, method, left, seed, folder)
            with exclusive(results / f".{config.name}.lock"):  # others may have added theirs meanwhile
                content = _read(results, config)
                entry = _entry(content, name, method, spec)
                if made is not None:
                    entry["runs"][str(seed)] = _joined(entry["runs"].get(str(seed)), made)
                if entry != content["methods"].get(name):  # its label or its panels may be new as well
                    content["methods"][name] = entry
                    _write(results, content)
            if made is not None:
                say("\n".join(f"    {_line(row)}" for row in made["points"]))
    return _read(results, config)


def _entry(content: dict[str, Any], name: str, method, spec: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a method; nothing of one that was run with other settings."""
    entry = content["methods"].get(name)
    runs = dict(entry["runs"]) if entry is not None and entry["spec"] == spec else {}
    return {"label": method.label, "panels": list(method.panels), "spec": spec, "runs": runs}


def _joined(done: dict[str, Any] | None, made: dict[str, Any]) -> dict[str, Any]:
    """Points of one split from two runs, with what both of them took."""
    if done is None:
        return made
    if done["data_hash"] != made["data_hash"]:
        raise ValueError(f"split {made['seed']} is of other rows than before: move the results file away.")
    points = {point["privacy_weight"]: point for point in (*done["points"], *made["points"])}
    return made | {
        "points": [points[weight] for weight in sorted(points)],
        "seconds": {k: round(done["seconds"][k] + made["seconds"][k], 1) for k in made["seconds"]},
        "peak_megabytes": max(done["peak_megabytes"] or 0, made["peak_megabytes"] or 0) or None,
    }


def _run_method(config, method, weights: list[float], seed: int, folder: pathlib.Path) -> dict[str, Any]:
    """One method on one split: its points, what they cost, and with what they were made."""
    start = time.perf_counter()
    data = load_data(config, method, seed)
    made: list[tuple[list[Row], float]] = []
    peak = peak_megabytes(lambda: made.append(make_points(config, method, weights, seed, data, folder)))
    ((points, trained),) = made
    return {
        "seed": seed,
        "data_hash": data.content_hash,
        "points": points,
        "seconds": {"training": round(trained, 1), "all": round(time.perf_counter() - start, 1)},
        "peak_megabytes": peak,
        "versions": {"privjax": privjax.__version__, "jax": jax.__version__},
        "machine": f"{_cores()} cores, {platform.machine()}, {jax.default_backend()}",
    }


def _cores() -> int:
    """Cores that this process may use, which a command such as taskset limits."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def specification(config, method) -> dict[str, Any]:
    """All that the numbers of a point depend on but its weight and its split, as JSON."""
    shared = {key: config[key] for key in config if key not in _NOT_NUMBERS}
    own = {key: method[key] for key in method if key not in ("label", "panels", "weights")}
    return json.loads(json.dumps({"shared": _plain(shared), "method": _plain(own)}))


_NOT_NUMBERS = ("name", "title", "seeds", "first_seed", "methods", "figure")


def _plain(value: Any) -> Any:
    if isinstance(value, ml_collections.ConfigDict):
        return _plain(value.to_dict())
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def _digest(spec: Any) -> str:
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()


def _read(folder: pathlib.Path, config) -> dict[str, Any]:
    path = folder / f"{config.name}.json"
    if not path.exists():
        return {"schema": SCHEMA, "name": config.name, "title": config.title, "methods": {}}
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {content.get('schema')}: move it away to run anew.")
    return content | {"title": config.title}


def _write(folder: pathlib.Path, content: dict[str, Any]) -> None:
    write_json(folder / f"{content['name']}.json", content)
    path = folder / f"{content['name']}.csv"
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, list(_COLUMNS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(summary(content))
    part.replace(path)


_COLUMNS: tuple[str, ...] = (
    "method",
    "privacy_weight",
    "splits",
    "utility",
    "utility_half",
    "adversary",
    "adversary_half",
    "strongest",
    "strongest_half",
    "label_alone",
    "majority",
)


def summary(content: dict[str, Any]) -> Iterator[Row]:
    """One row for each method and weight: means over splits, with half the width of a 95 % interval."""
    for entry in content["methods"].values():
        by_weight: dict[float, list[Row]] = {}
        for done in entry["runs"].values():
            for point in done["points"]:
                by_weight.setdefault(point["privacy_weight"], []).append(point)
        for weight, points in sorted(by_weight.items()):
            # Those that gave all numbers, where any did: an interval is of as many splits as it says.
            points = [p for p in points if p["utility"] is not None and p["strongest"] is not None] or points
            row: Row = {"method": entry["label"], "privacy_weight": weight, "splits": len(points)}
            for name in ("utility", "adversary", "strongest"):
                values = [point[name] for point in points if point[name] is not None]
                mean = mean_over_seeds(values) if values else None
                interval = None if mean is None else mean.interval
                row[name] = None if mean is None else round(mean.value, 4)
                row[f"{name}_half"] = None if interval is None else round((interval[1] - interval[0]) / 2, 4)
            for name in ("label_alone", "majority"):
                values = [point[name] for point in points if point[name] is not None]
                row[name] = round(float(np.mean(values)), 4) if values else None
            yield row


def _line(point: Row) -> str:
    found = {name: point[name] for name in ("utility", "adversary", "strongest")}
    numbers = ", ".join(f"{k} {'none' if v is None else format(v, '.4f')}" for k, v in found.items())
    return f"weight {point['privacy_weight']:g}: {numbers} ({point['strongest_attacker']})"
