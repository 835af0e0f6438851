"""Folders of sweeps made by hand: numbers that a test can name, shapes that training seldom gives."""

import json
from pathlib import Path


def attribute(leakage, *, kind="discrete", strongest=None, confidence=0.25):
    """One private variable of an audit; `quadratic` is the strongest, `network` failed."""
    names = ("accuracy", "balanced_accuracy", "auc") if kind == "discrete" else ("r2", "rank_correlation")
    strongest = leakage if strongest is None else strongest

    def scores(value):
        return {
            key: entry
            for i, name in enumerate(names)
            for key, entry in (
                (name, value - 0.01 * i),
                (f"{name}_interval", [value - 0.01 * i - 0.02, value - 0.01 * i + 0.02]),
            )
        }

    def attacker(group, value, **more):
        return {
            "group": group,
            **scores(value),
            "validation": scores(value),
            "settings": {"C": 0.1},
            "seconds": 1.0,
            "notes": [],
            "failed": None,
            **more,
        }

    broken = {name: None for name in (*names, *(f"{name}_interval" for name in names))}
    main = names[0]
    return {
        "kind": kind,
        "num_classes": 10 if kind == "discrete" else 0,
        "chance": 0.1 if kind == "discrete" else 0.0,
        "majority": 0.12 if kind == "discrete" else None,
        "label_alone": scores(0.2),
        "privacy_confidence": {"p_value": confidence, "statistic": 0.1, "rows": 100, "note": None},
        "adversary_accuracy": leakage if kind == "discrete" else None,
        "adversary_r2": None if kind == "discrete" else leakage,
        "strongest": {"attacker": "quadratic", main: strongest},
        "validation": {"adversary": leakage, "strongest": {"attacker": "quadratic", main: strongest}},
        "attackers": {
            "linear_svm": attacker("paper", leakage - 0.05),
            "random_forest": attacker("paper", leakage),
            "quadratic": attacker("other", strongest),
            "network": attacker("paper", 0.0) | broken | {"failed": "ValueError: it <b>broke</b>"},
        },
        "notes": ["a note on the variable"],
    }


def member(point, weight, seed, *, utility=0.9, audit=None, validation=None, **more):
    return {
        "point": point,
        "objective": "mmd",
        "privacy_weight": weight,
        "seed": seed,
        "status": "converged",
        "epochs": 3,
        "losses": {},
        "utility": {"validation": utility if validation is None else validation, "test": utility},
        "effective_rank": 3.5,
        "live_units": 5,
        "probe": 0.4,
        "content_hash": f"hash-{seed}",
        **({} if audit is None else {"audit": audited(audit)}),
        **more,
    }


def audited(attributes):
    rows = {"train": 800, "validation": 100, "test": 100}
    return {"attributes": attributes, "rows": rows, "seed": 7, "seconds": 2.5, "notes": ["a note on z"]}


def history(epochs, *, probe=None):
    def fall(start):
        return [start / (1 + i) for i in range(epochs)]

    zeros = [0.0] * epochs
    return {
        "rate_scale": [1.0] * epochs,
        "losses": {
            "utility": fall(0.7),
            "privacy": fall(0.3),
            "orthonormality": zeros,
            "discriminator": zeros,
            "objective": fall(1.0),
        },
        "measures": {
            "utility_loss": fall(0.7),
            "utility": [0.5 + 0.4 * i / epochs for i in range(epochs)],
            "effective_rank": fall(10.0),
            "live_units": [5.0] * epochs,
            "probe": fall(0.9) if probe is None else probe,
        },
    }


def write(folder: Path, members, *, epochs=3, histories=None, data=None, **more):
    """Writes `results.json` and the members' own files; there are no checkpoints."""
    results = {
        "schema": 1,
        "versions": {"privjax": "0.1.0", "jax": "0.10.2"},
        "backend": "cpu",
        "devices": 2,
        "data": {
            "name": "people",
            "content_hash": "c0ffee",
            "splits": {"0": "hash-0"},
            "features": 64,
            "shape": [64],
            "rows": {"train": 800, "validation": 100, "test": 100},
            "again": {"function": "from_table", "arguments": {"utility": "activity", "private": "user"}},
            "private": ["user"],
            "y_names": ["walk", "sit"],
            "s_names": [str(i) for i in range(10)],
            "scale": "standard",
            **(data or {}),
        },
        "config": {
            "objective": {"name": "mmd", "schedule": {"kind": "plateau", "max_epochs": 250}},
            "networks": {"kind": "nn"},
            "privacy_weights": [0.0, 1.0],
            "seeds": [0],
            "batch_size": 500,
        },
        "complete": True,
        "seconds": 12.5,
        "members": members,
        **more,
    }
    (folder / "members").mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(results))
    for one in members:
        kept = (histories or {}).get(one["point"], history(epochs))
        path = folder / "members" / f"point-{one['point']:04d}.json"
        path.write_text(json.dumps({**one, "history": kept}))
    return folder
