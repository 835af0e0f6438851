"""What one method of a config gives on one split: released rows, their utility, what attackers learn."""

import functools
import json
import math
import pathlib
import time
from typing import Any

import numpy as np

import privjax
from privjax import baselines, datasets
from privjax.datasets import Dataset
from privjax.files import write_json
from privjax.training import Objective, Schedule

Row = dict[str, Any]


def load_data(config, method, seed: int) -> Dataset:
    """The split of that number. Validation rows are none: the paper's protocols have two parts."""
    options = dict(config.data)
    options.update(method.get("data", {}))
    return datasets.load(options.pop("name"), seed=seed, validation=0.0, **options)


def make_points(
    config, method, weights: list[float], seed: int, data: Dataset, folder: pathlib.Path
) -> tuple[list[Row], float]:
    """The points of one method at some weights, and the seconds that training them took.

    Args:
      config: of the experiment.
      method: one of its methods.
      weights: privacy weights.
      seed: of the split and of the training.
      data: that split.
      folder: where unfinished work lies.
    """
    make = _swept_points if "objective" in method else _encoded_points
    return make(config, method, weights, seed, data, folder)


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
            folder,
            data,
            networks=own,
            adversaries=config.adversaries,
            network_widths=attacker_widths(config),
            n_jobs=2,
            progress="log",
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
            network_widths=attacker_widths(config),
            n_jobs=2,
        )
        row |= _attacks(report.to_dict())
        write_json(path, row)
        points.append(row)
    return points, trained


ENCODERS = {
    "raw": lambda train, weight, seed, m: baselines.raw(train.x),
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


def attacker_widths(config) -> tuple[int, ...]:
    """Hidden widths of the network attacker: those of the experiment's discriminators, for every method."""
    return tuple(config.networks.get("discriminator_widths", (1024,)))


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
