"""The trade-off of one private variable, ready to draw: points, intervals, lines, ranges, choices."""

import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from privjax.auditing.pareto import Mean, Point, best_on_validation, pareto

LOWEST_R2 = -0.25  # an R^2 far below 0 says no more than that, and would flatten the rest of a chart


def make_attribute(
    name: str, results: Mapping[str, Any], groups: Sequence[Sequence[Mapping[str, Any]]]
) -> dict[str, Any]:
    """One private variable that was audited.

    Args:
      name: as the audits call it.
      results: of the sweep.
      groups: its members by weight, in order.

    Returns:
      `points`: for each weight its means over seeds, None where nothing was audited. `left_out`: how many
      members and points are not drawn. `front`: the weights that no other beats, by falling leakage.
      `chosen`: the member to use, by validation rows alone. `picks`: the member to show of each weight, by
      validation rows as well. `guess`, `floor` and `ideal`: what a blind guess scores, what y alone tells,
      the corner to reach. `x` and `y`: ranges of the axes.
    """
    curve = next(iter(pareto(results, attribute=name).values()))
    keys = [_key(group[0]["privacy_weight"]) for group in groups]
    place = [keys.index(_key(point.privacy_weight)) for point in curve.points]
    picks = [best_on_validation(group, attribute=name)["point"] for group in groups]
    operating = curve.operating_point()
    audits = [m["audit"]["attributes"][name] for group in groups for m in group if m.get("audit")]
    score = "accuracy" if audits[0]["kind"] == "discrete" else "r2"
    least = {True: 0.0, False: -math.inf}  # an accuracy is never less, an R^2 may be
    floors = least[results["data"].get("y_names") != []], least[score == "accuracy"]
    points = {weight: _shown(point, *floors) for weight, point in zip(place, curve.points, strict=True)}
    guess = _mean(audit["majority" if score == "accuracy" else "chance"] for audit in audits)
    floor = _mean((audit["label_alone"] or {}).get(score) for audit in audits)
    known = [line for line in (guess, floor) if line is not None]
    ideal = None
    if points and known:
        # Nobody does worse than a blind guess, or than what y gives away.
        ideal = [max(known), max(point["utility"][0] for point in points.values())]
    outside = sum(
        point["utility"][0] < LOWEST_R2 or point["leakage"][0] < LOWEST_R2 for point in points.values()
    )
    leakages = [point[key] for point in points.values() for key in ("leakage", "strongest")]
    utilities = [point["utility"] for point in points.values()]
    return {
        "name": name,
        "label": _label(name, results["data"].get("private") or []),
        "score": "accuracy" if score == "accuracy" else "R²",
        "points": [points.get(weight) for weight in range(len(groups))],
        "left_out": curve.left_out + outside,
        "front": [place[i] for i in curve.front],
        "chosen": None if operating is None else picks[place[operating]],
        "picks": picks,
        "guess": guess,
        "floor": floor,
        "ideal": ideal,
        "x": _range(leakages, known),
        "y": _range(utilities, []),
    }


def _key(weight: Any) -> str:
    return json.dumps(weight, sort_keys=True)


def _label(name: str, private: Sequence[str]) -> str:
    """The user's own name of a column, where the audit knows it as s or s[k]."""
    number = re.fullmatch(r"s\[(\d+)\]", name)
    if number and int(number[1]) < len(private):
        return str(private[int(number[1])])
    return ", ".join(map(str, private)) if name == "s" and private else name


def _shown(point: Point, least_utility: float, least_leakage: float) -> dict[str, Any]:
    return {
        "seeds": point.utility.seeds,
        "utility": _with_interval(point.utility, least_utility),
        "leakage": _with_interval(point.leakage, least_leakage),
        "strongest": _with_interval(point.strongest, least_leakage),
    }


def _with_interval(mean: Mean, least: float) -> list[float]:
    """The mean and, of several seeds, the ends of its interval, cut where no score can be."""
    if mean.interval is None:
        return [mean.value]
    low, high = mean.interval
    return [mean.value, max(low, min(least, mean.value)), min(high, max(1.0, mean.value))]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _range(points: Sequence[Sequence[float]], lines: Sequence[float]) -> list[float]:
    """An axis that holds every mean and line, and of the intervals what does not flatten these."""
    means = [max(point[0], LOWEST_R2) for point in points] + [max(line, LOWEST_R2) for line in lines]
    low, high = min(means, default=0.0), max(means, default=1.0)
    room = max(high - low, 0.04)
    ends = [end for point in points for end in point[1:]]
    low, high = max(min([low, *ends]), low - 0.5 * room), min(max([high, *ends]), high + 0.5 * room)
    margin = max(0.06 * (high - low), 0.02)
    return [low - margin, high + margin]
