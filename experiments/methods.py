"""Train one method of a config on one split, attack its releases, and return its points."""

import functools
import json
import math
import os
import pathlib
import time
from typing import Any

import numpy as np

import privjax
from privjax import Dataset, baselines, datasets

Row = dict[str, Any]  # one point, as the results file stores it


def load_data(config, method, seed: int) -> Dataset:
    """Load the split of a seed. It has no validation rows: the paper's protocols have two parts."""
    options = dict(config.data) | dict(method.get("data", {}))
    options.pop("scale", None)
    return datasets.load(options.pop("name"), seed=seed, validation=0.0, **options)


def scaling(config, method) -> str:
    """Return how the encoders of a method scale their input."""
    return (dict(config.data) | dict(method.get("data", {}))).get("scale", "standard")


def make_points(
    config, method, weights: list[float], seed: int, data: Dataset, folder: pathlib.Path
) -> tuple[list[Row], float]:
    """Return the points of one method at some weights, and the seconds of their training.

    Args:
      config: The experiment.
      method: One of its methods.
      weights: Privacy weights.
      seed: Seed of the split and of the training.
      data: The split.
      folder: Folder for unfinished work.
    """
    make = _swept_points if "objective" in method else _baseline_points
    return make(config, method, weights, seed, data, folder)


def _swept_points(config, method, weights, seed, data, folder) -> tuple[list[Row], float]:
    """Train a member for each privacy weight, then audit them."""
    settings = dict(config.get("sweep", {})) | dict(method.get("sweep", {}))
    networks = make_networks(config, method, data)
    start = time.perf_counter()
    result = privjax.sweep(
        data,
        objective=make_objective(method),
        privacy_weights=list(weights),
        seeds=[seed],
        networks=networks,
        scaling=scaling(config, method),
        workdir=folder,
        progress="log",
        **settings,
    )
    trained = time.perf_counter() - start
    if config.get("attack_unseen_users", False):
        reports = {m.member: _attack_unseen(result.encoder(m.member), data, config) for m in result.members}
    else:
        reports = privjax.audit_sweep(
            folder,
            data,
            networks=networks if networks.settings is None else None,
            attackers=config.adversaries,
            network_widths=attacker_widths(config),
            n_jobs=2,
            progress="log",
        )
    points = [
        {
            "privacy_weight": m.privacy_weight,
            "status": m.status,
            "epochs": m.epochs,
            "live_units": m.live_units,
            "effective_rank": m.effective_rank,
            "utility": m.utility.test,
            "orthonormality": m.losses.orthonormality,
            **_attacks(reports[m.member]),
        }
        for m in result.members
    ]
    return points, trained


def _baseline_points(config, method, weights, seed, data, folder) -> tuple[list[Row], float]:
    """Fit a baseline encoder for each weight. The paper's four attackers also predict y from its release."""
    train, test = data.train, data.test
    points, trained = [], 0.0
    for weight in weights:
        path = folder / f"weight-{weight!r}.json"
        if path.exists():
            points.append(json.loads(path.read_text(encoding="utf-8")))
            continue
        start = time.perf_counter()
        encoder = ENCODERS[method.encoder](train, weight, seed, method)
        z_train, z_test = encoder(train.x), encoder(test.x)
        trained += time.perf_counter() - start
        # The best of four predictors, because no public network was trained for this release.
        learnt = privjax.audit(
            z_train, train.y, z_test, test.y, attackers=config.utility_adversaries, n_jobs=2
        )
        (utility,) = learnt.attributes.values()
        best = utility.best()
        report = privjax.audit(
            z_train,
            train.s,
            z_test,
            test.s,
            y_train=train.y,
            y_test=test.y,
            attackers=config.adversaries,
            network_widths=attacker_widths(config),
            n_jobs=2,
        )
        row: Row = {"privacy_weight": weight} | _attacks(report)
        row["utility"] = None if best is None else best.value(utility.main_score)
        write_text(path, json.dumps(row))
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


def _attack_unseen(encoder: privjax.Encoder, data: Dataset, config) -> privjax.AuditReport:
    """Attack people the encoder never saw; the attacker has names for four fifths of their rows."""
    x, y, s = data.test
    labels = np.unique(s, return_inverse=True)[1]
    split = datasets.per_label_split(labels, seed=0, validation=0.0)
    z = encoder(x)
    train, test = split.train, split.test
    return privjax.audit(
        z[train],
        labels[train],
        z[test],
        labels[test],
        y_train=y[train],
        y_test=y[test],
        attackers=config.adversaries,
        n_jobs=2,
    )


def _attacks(report: privjax.AuditReport) -> Row:
    """Return the numbers of an audit that the results file stores."""
    (found,) = report.attributes.values()
    score, best = found.main_score, found.best()
    floor = (found.label_alone or {}).get(score)
    return {
        "adversary": found.leakage(),
        "strongest": None if best is None else best.value(score),
        "strongest_attacker": None if best is None else best.name,
        "attackers": {attack.name: attack.value(score) for attack in found.attacks},
        "failed": {attack.name: attack.failed for attack in found.attacks if attack.failed},
        "label_alone": None if floor is None else floor.value,
        "majority": found.majority,
        "chance": found.chance,
        "p_value": found.confidence.p_value,
        "audit_seconds": report.seconds,
    }


def attacker_widths(config) -> tuple[int, ...]:
    """Return the hidden widths of the network attacker: those of the discriminator, for every method."""
    return tuple(config.networks.get("discriminator_widths", (1024,)))


def make_networks(config, method, data: Dataset) -> privjax.Networks:
    """Return the networks of a method for the shapes of a data set."""
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
    """Return NN without the ReLU on z."""

    def private(params, x, *, key=None, dropout=0.0):
        (layer,) = params["private"].values()
        return x.reshape(len(x), -1) @ layer["kernel"] + layer["bias"]

    return networks._replace(private=private, private_layers=None, settings=None)


@functools.cache
def _free_projection(networks: privjax.Networks) -> privjax.Networks:
    """Return SCNN without the penalty that keeps W orthonormal."""
    return networks._replace(projection=lambda params: None, settings=None)


_VARIANTS = {"linear_funnel": _linear_funnel, "free_projection": _free_projection}


def make_objective(method) -> privjax.Objective:
    """Return the objective of a method, with its kernel and its schedule."""
    settings = dict(method.get("objective_settings", {}))
    if "kernel" in settings:
        kernel = dict(settings["kernel"])
        settings["kernel"] = getattr(privjax, kernel.pop("name"))(**kernel)
    if "schedule" in settings:
        settings["schedule"] = privjax.Schedule(**settings["schedule"])
    return privjax.make_objective(method.objective, **settings)


def write_text(path: pathlib.Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
