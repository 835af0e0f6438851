"""What the page, the picture and the table show, as plain JSON read from a sweep's folder."""

import json
import os
import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from privjax.exporting import describe
from privjax.reporting.curves import make_attribute
from privjax.reporting.facts import words
from privjax.sweeping import load_history, load_results

HISTORY_NUMBERS = 200_000  # of all members together, which is about 1.5 MB of the page
HISTORY_EPOCHS = 250  # of a member: more than its chart has pixels to show
SERIES = 8


def make_content(workdir: str | os.PathLike) -> dict[str, Any]:
    """Reads a sweep that may be unfinished, in part or not at all audited.

    Args:
      workdir: the sweep's folder.

    Returns:
      `results` without its members; `objective` and `utility`, by name; `weights` in order, each with its
      points; `members` by point; `attributes`, each of `make_attribute`; `audits`, their seeds and seconds;
      `start`, the point to show first; `folder`, as a shell takes it; `command`, what exports a point, before
      and after its number; `size`, the header of an encoder, None where it is not known.
    """
    results = load_results(workdir)
    if not results["members"]:
        raise ValueError(f"{workdir} has no finished point yet: report on it once it has one.")
    (objective, *others) = dict.fromkeys(member["objective"] for member in results["members"])
    if others:
        raise ValueError(f"{workdir} has points of several objectives: report on a sweep of one.")
    groups = _by_weight(results["members"])
    audits = [member.get("audit") or {} for member in results["members"]]
    names = dict.fromkeys(name for audit in audits for name in audit.get("attributes", {}))
    attributes = [make_attribute(name, results, groups) for name in names]
    keep = min(max(HISTORY_NUMBERS // (SERIES * len(audits)), 10), HISTORY_EPOCHS)
    members = {}
    for number, group in enumerate(groups):
        for member in group:
            history = _history(workdir, member, keep, validated=_validated(results))
            members[member["point"]] = _member(member, number, history)
    return {
        "command": _command(workdir, results),
        "folder": shlex.quote(os.fspath(workdir)),
        "objective": objective,
        "results": {
            **{k: v for k, v in results.items() if k != "members"},
            "config": results.get("config") or {},
        },
        "audits": {
            "seeds": sorted({audit["seed"] for audit in audits if "seed" in audit}),
            "seconds": round(sum(audit.get("seconds", 0.0) for audit in audits), 1),
        },
        "utility": {"name": _utility_name(results), "score": _utility_score(results)},
        "weights": [
            {"label": weight_label(g[0]["privacy_weight"]), "points": [m["point"] for m in g]} for g in groups
        ],
        "members": members,
        "attributes": attributes,
        "start": next((a["chosen"] for a in attributes if a["chosen"] is not None), min(members)),
        "size": _size(workdir, members),
    }


def _command(workdir: str | os.PathLike, results: Mapping[str, Any]) -> list[str]:
    """What exports a point, before and after the point's number."""
    if ((results.get("config") or {}).get("networks") or {}).get("kind") == "own":
        return [f"privjax.load_encoder({os.fspath(workdir)!r}, ", ", networks=networks)"]
    return [f"privjax export {shlex.quote(os.fspath(workdir))} --point ", " --to encoder.onnx"]


def weight_label(weight: Any) -> str:
    """A privacy weight, or several by name, in words."""
    if isinstance(weight, Mapping):
        return ", ".join(f"{name} {weight_label(value)}" for name, value in weight.items())
    return f"{weight:.4g}" if isinstance(weight, (int, float)) else str(weight)


def _by_weight(members: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Members of the same weight together, by weight as `pareto` has it, then by point."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for member in sorted(members, key=lambda member: member["point"]):
        groups.setdefault(json.dumps(member["privacy_weight"], sort_keys=True), []).append(member)

    def size(group: list[dict[str, Any]]) -> list[float]:
        weight = group[0]["privacy_weight"]
        return [weight[name] for name in sorted(weight)] if isinstance(weight, Mapping) else [weight]

    return sorted(groups.values(), key=size)


def _member(member: dict[str, Any], weight: int, history: dict[str, Any] | None) -> dict[str, Any]:
    kept = ("point", "seed", "status", "epochs", "effective_rank", "live_units")
    audit = member.get("audit")
    return {
        **{key: member.get(key) for key in kept},
        "utility": {"validation": None, "test": None, **(member.get("utility") or {})},
        "weight": weight,
        "audit": None if not audit else {n: _audit(found) for n, found in audit["attributes"].items()},
        "notes": list((audit or {}).get("notes", ())),
        "history": history,
    }


def _audit(found: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of one private variable, attackers by falling score."""
    discrete = found["kind"] == "discrete"
    scores = ("accuracy", "balanced_accuracy", "auc") if discrete else ("r2", "rank_correlation")

    def rows(of: Mapping[str, Any]) -> list[list[float] | None]:
        values = [(of.get(name), of.get(f"{name}_interval") or [None]) for name in scores]
        values = [(v,) if None in interval else (v, *interval) for v, interval in values]
        return [None if v[0] is None else [round(n, 4) for n in v] for v in values]

    attackers = [
        {
            "name": name,
            "paper": attacker["group"] == "paper",
            "scores": rows(attacker),
            "settings": words(attacker.get("settings") or {}),
            "notes": list(attacker.get("notes") or ()),
            "failed": attacker.get("failed"),
        }
        for name, attacker in found["attackers"].items()
    ]
    strongest = found["strongest"] or {}
    return {
        "attackers": sorted(attackers, key=lambda a: -(a["scores"][0] or [-np.inf])[0]),
        "leakage": found[f"adversary_{scores[0]}"],
        "strongest": {"attacker": strongest.get("attacker"), "value": strongest.get(scores[0])},
        "chance": found["chance"],
        "majority": found["majority"],
        "label_alone": None if found["label_alone"] is None else rows(found["label_alone"]),
        "confidence": found["privacy_confidence"],
        "notes": list(found.get("notes", ())),
    }


def _history(
    workdir: str | os.PathLike, member: dict[str, Any], keep: int, *, validated: bool
) -> dict[str, Any] | None:
    """The charts of a member's training, thinned to so many epochs, the first and the last among them."""
    try:
        history = load_history(workdir, member["point"])
    except ValueError:  # lost: the rest of the page stands without it
        return None
    losses, measures = history["losses"], history["measures"]
    epochs = len(losses["objective"])
    if not epochs:
        return None
    rows = np.unique(np.linspace(0, epochs - 1, min(keep, epochs)).round().astype(int)).tolist()

    def thin(name: str, values: Any) -> dict[str, list[float | None]]:
        if isinstance(values, Mapping):
            return {k: v for key in values for k, v in thin(f"{name} of {key}", values[key]).items()}
        return {name: [None if values[i] is None else float(f"{values[i]:.4g}") for i in rows]}

    used = [name for name in losses if name in ("objective", "utility", "privacy") or np.any(losses[name])]
    seen = "validation rows" if validated else "training rows"
    charts = [
        ("Losses", {name: losses[name] for name in used}),
        (f"On {seen}", {"utility": measures["utility"], "ridge probe": measures["probe"]}),
        ("Released z", {name.replace("_", " "): measures[name] for name in ("effective_rank", "live_units")}),
    ]
    return {
        "epochs": [row + 1 for row in rows],
        "charts": [
            {"title": title, "lines": {k: v for name in lines for k, v in thin(name, lines[name]).items()}}
            for title, lines in charts
        ],
    }


def _validated(results: Mapping[str, Any]) -> bool:
    return (results["data"].get("rows") or {}).get("validation") != 0


def _utility_name(results: Mapping[str, Any]) -> str:
    again = results["data"].get("again") or {}
    return str(again.get("arguments", {}).get("utility") or "y")


def _utility_score(results: Mapping[str, Any]) -> str:
    return "R²" if results["data"].get("y_names") == [] else "accuracy"


def _size(workdir: str | os.PathLike, members: Mapping[int, Mapping[str, Any]]) -> dict[str, Any] | None:
    """What an encoder costs, the same for every member, as their networks have the same shapes."""
    point = min(members, key=lambda point: (members[point]["status"] == "diverged", point))
    try:
        header = describe(workdir, point)
        return {**header.to_dict(), "output": {"width": header.width}}
    except (ValueError, OSError):  # networks of the user's own, or no checkpoint any more
        return None
