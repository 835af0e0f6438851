"""Runs the methods of a config, split by split, and keeps every number it gave.

The results file is the state: the points it already holds for a method, a split and the same settings are not
run again, on this machine or another; new weights are added to them. Sweeps and audits in `workdir` are
resumable by themselves.
"""

import csv
import functools
import hashlib
import json
import math
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

import privjax
from privjax import baselines, datasets
from privjax.audit.pareto import mean_over_seeds
from privjax.datasets import Dataset
from privjax.files import exclusive, write_json
from privjax.train import Objective, Schedule

SCHEMA = 2
Row = dict[str, Any]


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
            spec = _specification(config, method)
            done = _entry(_read(results, config), name, method, spec)["runs"].get(str(seed))
            had = {point["privacy_weight"] for point in done["points"]} if done else set()
            left = [weight for weight in method.weights if weight not in had]
            if not left:
                continue
            say(f"{config.name}: {method.label}, split {seed}")
            folder = workdir / config.name / f"{name}-{_digest([spec, left])[:8]}" / f"split-{seed}"
            made = _run_method(config, method, left, seed, folder)
            with exclusive(results / f".{config.name}.lock"):  # others may have added theirs meanwhile
                content = _read(results, config)
                entry = _entry(content, name, method, spec)
                entry["runs"][str(seed)] = _joined(entry["runs"].get(str(seed)), made)
                content["methods"][name] = entry
                _write(results, content)
            say("\n".join(f"    {_line(row)}" for row in made["points"]))
    return _read(results, config)


def _entry(content: dict[str, Any], name: str, method, spec: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a method; nothing of one that was run with other settings."""
    entry = content["methods"].get(name)
    runs = entry["runs"] if entry is not None and entry["spec"] == spec else {}
    return {"label": method.label, "panels": list(method.panels), "spec": spec, "runs": runs}


def _joined(done: dict[str, Any] | None, made: dict[str, Any]) -> dict[str, Any]:
    """Points of one split from two runs, with what both of them took."""
    if done is None:
        return made
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
    make = _swept_points if "objective" in method else _encoded_points
    made: list[tuple[list[Row], float]] = []
    peak = peak_megabytes(lambda: made.append(make(config, method, weights, seed, data, folder)))
    ((points, trained),) = made
    return {
        "seed": seed,
        "data_hash": data.content_hash,
        "points": points,
        "seconds": {"training": round(trained, 1), "all": round(time.perf_counter() - start, 1)},
        "peak_megabytes": peak,
        "versions": {"privjax": privjax.__version__, "jax": jax.__version__},
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {jax.default_backend()}",
    }


def load_data(config, method, seed: int) -> Dataset:
    """The split of that number. Validation rows are none: the paper's protocols have two parts."""
    options = dict(config.data)
    options.update(method.get("data", {}))
    return datasets.load(options.pop("name"), seed=seed, validation=0.0, **options)


def _swept_points(config, method, weights, seed, data, folder) -> tuple[list[Row], float]:
    """A member for each privacy weight, and its audit."""
    sweep_settings = dict(config.get("sweep", {})) | dict(method.get("sweep", {}))
    networks = make_networks(config, method, data)
    own = networks if networks.settings is None else None
    start = time.perf_counter()
    privjax.sweep(
        data,
        objective=make_objective(method),
        privacy_weights=list(weights),
        seeds=[seed],
        networks=networks,
        workdir=folder,
        progress="log",
        **sweep_settings,
    )
    trained = time.perf_counter() - start
    if config.get("attack_unseen_users", False):
        members = privjax.load_results(folder)["members"]
        encoders = {m["point"]: privjax.load_encoder(folder, m["point"], networks=own) for m in members}
        audits = {point: _attack_unseen(encoder, data, config) for point, encoder in encoders.items()}
    else:
        audited = privjax.audit_sweep(
            folder, data, networks=own, adversaries=config.adversaries, n_jobs=2, progress="log"
        )
        members = audited["members"]
        audits = {member["point"]: member["audit"] for member in members}
    points = []
    for member in members:
        keep = ("privacy_weight", "status", "epochs", "live_units", "effective_rank")
        points.append(
            {
                **{key: member[key] for key in keep},
                "utility": member["utility"]["test"],
                "orthonormality": member["losses"].get("orthonormality"),
                **_attacks(audits[member["point"]]),
            }
        )
    return points, trained


def _encoded_points(config, method, weights, seed, data, folder) -> tuple[list[Row], float]:
    """An encoder without a public sphere for each weight: the paper's four learn y from it."""
    train, test = data.part("train"), data.part("test")
    points, trained = [], 0.0
    for weight in weights:
        path = folder / f"weight-{weight!r}.json"
        if path.exists():
            points.append(json.loads(path.read_text(encoding="utf-8")))
            continue
        start = time.perf_counter()
        encoder = ENCODERS[method.encoder](train, weight, seed, method)
        released = encoder(train.x), encoder(test.x)
        trained += time.perf_counter() - start
        row: Row = {"privacy_weight": weight}
        # The best of four predictors: whatever flatters a release that was not made for one of them.
        learnt = privjax.audit(
            released[0], train.y, released[1], test.y, adversaries=config.utility_adversaries, n_jobs=2
        )
        row["utility"] = learnt.strongest[learnt.attributes["s"].main_score]  # pyright: ignore
        report = privjax.audit(
            released[0],
            train.s,
            released[1],
            test.s,
            y_train=train.y,
            y_test=test.y,
            adversaries=config.adversaries,
            n_jobs=2,
        )
        row |= _attacks(report.to_dict())
        write_json(path, row)
        points.append(row)
    return points, trained


ENCODERS = {
    "raw": lambda train, weight, seed, m: baselines.raw(),
    "pca": lambda train, weight, seed, m: baselines.pca(train.x, num_features=m.width),
    "random_projection": lambda train, weight, seed, m: baselines.random_projection(
        train.x, num_features=m.width, seed=seed
    ),
    "linear_erasure": lambda train, weight, seed, m: baselines.linear_erasure(train.x, train.s),
    "duca": lambda train, weight, seed, m: baselines.duca(
        train.x, train.y, train.s, num_features=m.width, privacy_weight=weight
    ),
    "duca_mmd": lambda train, weight, seed, m: baselines.duca_mmd(
        train.x, train.y, train.s, num_features=m.width, privacy_weight=weight, seed=seed
    ),
}


def _attack_unseen(encoder, data: Dataset, config) -> dict[str, Any]:
    """Identity among people the encoder never saw, by an attacker who has four fifths of their rows."""
    x, y, s = data.part("test")
    people, labels = np.unique(s, return_inverse=True)
    split = datasets.per_label_split(labels, seed=0, validation=0.0)
    z = encoder(x)
    parts = [(z[rows], labels[rows], y[rows]) for rows in (split.train, split.test)]
    (z_train, s_train, y_train), (z_test, s_test, y_test) = parts
    return privjax.audit(
        z_train,
        s_train,
        z_test,
        s_test,
        y_train=y_train,
        y_test=y_test,
        adversaries=config.adversaries,
        n_jobs=2,
    ).to_dict()


def _attacks(audit: dict[str, Any]) -> Row:
    """What is kept of an audit."""
    (found,) = audit["attributes"].values()
    score = "accuracy" if found["kind"] == "discrete" else "r2"
    return {
        "adversary": found[f"adversary_{score}"],
        "strongest": (found["strongest"] or {}).get(score),
        "strongest_attacker": (found["strongest"] or {}).get("attacker"),
        "attackers": {name: attack[score] for name, attack in found["attackers"].items()},
        "failed": {name: a["failed"] for name, a in found["attackers"].items() if a["failed"]},
        "label_alone": (found["label_alone"] or {}).get(score),
        "majority": found["majority"],
        "chance": found["chance"],
        "p_value": found["privacy_confidence"].get("p_value"),
        "audit_seconds": audit["seconds"],
    }


def make_networks(config, method, data: Dataset) -> privjax.Networks:
    """The networks of a method for the shapes of a data set."""
    settings = dict(config.networks) | dict(method.get("replace", {}))
    kind = settings.pop("kind")
    outputs = len(data.y_names) or 1
    private = (len(data.s_names) or 1) if method.objective in ("wdn", "lsdn") else 0
    shape = data.x.shape[1:]
    if kind == "nn":
        networks = privjax.nn_networks(shape, num_outputs=outputs, num_private=private, **settings)
    else:
        make = {"cnn": privjax.cnn_networks, "scnn": privjax.scnn_networks}[kind]
        image = shape if len(shape) == 3 else _square(shape)
        networks = make(image, num_outputs=outputs, num_private=private, **settings)
    return _VARIANTS[method.variant](networks) if "variant" in method else networks


def _square(shape: tuple[int, ...]) -> tuple[int, int, int]:
    side = math.isqrt(math.prod(shape))
    return side, side, 1


@functools.cache
def _linear_funnel(networks: privjax.Networks) -> privjax.Networks:
    """NN without the ReLU on z."""

    def private(params, x, *, key=None, dropout=0.0):
        (layer,) = params["private"].values()
        return x.reshape(len(x), -1) @ layer["kernel"] + layer["bias"]

    return networks._replace(private=private, settings=None)


@functools.cache
def _free_projection(networks: privjax.Networks) -> privjax.Networks:
    """SCNN without the penalty that keeps its W orthonormal."""
    return networks._replace(projection=lambda params: None, settings=None)


_VARIANTS = {"linear_funnel": _linear_funnel, "free_projection": _free_projection}


def make_objective(method) -> Objective:
    """The objective of a method, its kernel and its schedule made of their settings."""
    settings = dict(method.get("objective_settings", {}))
    if "kernel" in settings:
        kernel = dict(settings["kernel"])
        settings["kernel"] = getattr(privjax, kernel.pop("name"))(**kernel)
    if "schedule" in settings:
        settings["schedule"] = Schedule(**settings["schedule"])
    return privjax.make_objective(method.objective, **settings)


def _specification(config, method) -> dict[str, Any]:
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
