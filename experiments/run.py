"""Run the methods of a config, split by split, and store every number.

The results file is the state. Points that it holds for a method, a split and the same settings are not run
again; new weights are added. Sweeps and audits in `workdir` resume by themselves.
"""

import contextlib
import csv
import fcntl
import hashlib
import io
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
from methods import Row, load_data, make_points, write_text

import privjax
from privjax.curves import mean_over_seeds

SCHEMA = 2


def run(
    config: Any,
    *,
    workdir: pathlib.Path,
    results: pathlib.Path,
    only: tuple[str, ...] = (),
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run the missing points of an experiment and write its JSON and CSV after every step.

    Args:
      config: An `ml_collections.ConfigDict`, see `configs.common`.
      workdir: Folder of the sweeps; it may be deleted once the results are written.
      results: Folder of `<config.name>.json` and `<config.name>.csv`.
      only: Names of methods; all when empty.
      say: Takes a line for each step.
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
            new = None
            if left:
                say(f"{config.name}: {method.label}, split {seed}")
                folder = workdir / config.name / f"{name}-{_digest([spec, left])[:8]}" / f"split-{seed}"
                new = _run_method(config, method, left, seed, folder)
            with _locked(results / f".{config.name}.lock"):  # another process may have added points
                content = _read(results, config)
                entry = _entry(content, name, method, spec)
                if new is not None:
                    entry["runs"][str(seed)] = _joined(entry["runs"].get(str(seed)), new)
                if entry != content["methods"].get(name):  # its label or its panels may be new, too
                    content["methods"][name] = entry
                    _write(results, content)
            if new is not None:
                say("\n".join(f"    {_line(row)}" for row in new["points"]))
    return _read(results, config)


def _entry(content: dict[str, Any], name: str, method, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the stored entry of a method, or an empty one if its settings differ."""
    entry = content["methods"].get(name)
    runs = dict(entry["runs"]) if entry is not None and entry["spec"] == spec else {}
    return {"label": method.label, "panels": list(method.panels), "spec": spec, "runs": runs}


def _joined(done: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """Join the points of one split from two runs, and add up their costs."""
    if done is None:
        return new
    if done["data_hash"] != new["data_hash"]:
        raise ValueError(f"split {new['seed']} has other rows than before: move the results file away.")
    points = {point["privacy_weight"]: point for point in (*done["points"], *new["points"])}
    return new | {
        "points": [points[weight] for weight in sorted(points)],
        "seconds": {k: round(done["seconds"][k] + new["seconds"][k], 1) for k in new["seconds"]},
        "peak_megabytes": max(done["peak_megabytes"] or 0, new["peak_megabytes"] or 0) or None,
    }


def _run_method(config, method, weights: list[float], seed: int, folder: pathlib.Path) -> dict[str, Any]:
    """Run one method on one split: its points, their cost, the versions."""
    start = time.perf_counter()
    data = load_data(config, method, seed)
    found: list[tuple[list[Row], float]] = []
    peak = peak_megabytes(lambda: found.append(make_points(config, method, weights, seed, data, folder)))
    ((points, trained),) = found
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
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def specification(config, method) -> dict[str, Any]:
    """Return, as JSON, all settings that determine a point, except its weight and its split."""
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
        raise ValueError(f"{path} has schema {content.get('schema')}: move it away to start over.")
    return content | {"title": config.title}


def _write(folder: pathlib.Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    write_text(folder / f"{content['name']}.json", text)
    table = io.StringIO()
    writer = csv.DictWriter(table, list(_COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(summary(content))
    write_text(folder / f"{content['name']}.csv", table.getvalue())


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    """Wait for a lock that the operating system releases when the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


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
    """Yield one row for each method and weight: means over splits and half widths of 95 % intervals."""
    for entry in content["methods"].values():
        by_weight: dict[float, list[Row]] = {}
        for done in entry["runs"].values():
            for point in done["points"]:
                by_weight.setdefault(point["privacy_weight"], []).append(point)
        for weight, points in sorted(by_weight.items()):
            # Use splits with all numbers, where there are any, so that `splits` counts the intervals' splits.
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
