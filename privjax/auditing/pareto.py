"""Trade-off curves over audited points: mean and interval over seeds, the front, an operating point."""

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Mean(NamedTuple):
    """A mean over seeds with its 95 % interval (Student's t), which one seed alone does not give."""

    value: float
    interval: tuple[float, float] | None
    seeds: int


class Point(NamedTuple):
    """One weight of a method, over its seeds.

    Attributes:
      privacy_weight: lambda_P, or a dict of several.
      utility: on test rows.
      leakage: of the strongest of the paper's attackers, on test rows.
      strongest: of the strongest of all attackers, on test rows.
      validation_utility: on validation rows; None where there were none.
      validation_leakage: the paper's attackers on validation rows; None where there were none.
    """

    privacy_weight: Any
    utility: Mean
    leakage: Mean
    strongest: Mean
    validation_utility: Mean | None
    validation_leakage: Mean | None


class Curve(NamedTuple):
    """The trade-off of one method.

    Attributes:
      method: the objective.
      points: by weight.
      front: numbers of the points that no other point beats in both, by falling leakage.
      left_out: points of the sweep that have no audit or no utility, or whose attackers are not those of
        most others: what other attackers found cannot be compared.
    """

    method: str
    points: tuple[Point, ...]
    front: tuple[int, ...]
    left_out: int

    def utility_at(self, leakage: float) -> float | None:
        """The largest mean utility among points that leak at most so much; None where all leak more."""
        kept = [p.utility.value for p in self.points if p.leakage.value <= leakage]
        return max(kept, default=None)

    def operating_point(self, *, leakage: float | None = None) -> int | None:
        """The number of the point to use, chosen on validation rows alone.

        Args:
          leakage: the most that may leak: the point of the largest utility that keeps to it. When None,
            the point with the largest utility minus leakage.

        Returns:
          Its number in `points`; None where no point keeps to it, or nothing was validated.
        """
        best, chosen = -math.inf, None
        for i, point in enumerate(self.points):
            utility, leaks = point.validation_utility, point.validation_leakage
            if utility is None or leaks is None or (leakage is not None and leaks.value > leakage):
                continue
            worth = utility.value - (leaks.value if leakage is None else 0.0)
            if worth > best:
                best, chosen = worth, i
        return chosen

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "method": self.method,
            "points": [
                {key: v._asdict() if isinstance(v, Mean) else v for key, v in point._asdict().items()}
                for point in self.points
            ],
            "front": list(self.front),
            "operating_point": self.operating_point(),
            "left_out": self.left_out,
        }


def pareto(
    results: Mapping[str, Any] | str | os.PathLike | Sequence[Mapping[str, Any] | str | os.PathLike],
    *,
    attribute: str | None = None,
) -> dict[str, Curve]:
    """The trade-off curve of each method in audited results.

    Args:
      results: of `audit_sweep` or `load_results`, or a sweep's folder; or a list of those.
      attribute: which private variable leaks; needed where there are several.

    Returns:
      A `Curve` for each method, by the name of its objective.
    """
    if isinstance(results, (Mapping, str, os.PathLike)):
        results = [results]
    groups: dict[str, dict[str, list[dict[str, Any]]]] = {}
    left_out: dict[str, int] = {}
    of: dict[str, str | None] = {}  # the data set of each method
    seen: set[tuple] = set()
    for one in results:
        content = _content(one)
        data = (content.get("data") or {}).get("name")
        for member in content["members"]:
            method = str(member["objective"])
            groups.setdefault(method, {})
            left_out.setdefault(method, 0)
            key = json.dumps(member["privacy_weight"], sort_keys=True)
            if of.setdefault(method, data) != data:
                raise ValueError(f"results of {of[method]} and of {data} have no mean: one call for each.")
            seed = member.get("seed")
            if (method, key, seed) in seen:
                raise ValueError(f"results have {method} at weight {key} and seed {seed} twice: name one.")
            seen.add((method, key, seed))
            row = _row(member, attribute)
            if row is None:
                left_out[method] += 1
            else:
                groups[method].setdefault(key, []).append(row)
    curves = {}
    for method, by_weight in groups.items():
        usual = _usual_attackers([row for rows in by_weight.values() for row in rows])
        alike = [[row for row in rows if row["attackers"] == usual] for rows in by_weight.values()]
        left_out[method] += sum(map(len, by_weight.values())) - sum(map(len, alike))
        points = sorted((_point(rows) for rows in alike if rows), key=_size)
        curves[method] = Curve(method, tuple(points), front(points), left_out[method])
    return curves


def _usual_attackers(rows: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The attackers of most rows; of as many rows, the more attackers."""
    counts = Counter(row["attackers"] for row in rows)
    return max(counts, key=lambda attackers: (counts[attackers], len(attackers)), default=frozenset())


def front(points: Sequence[Point]) -> tuple[int, ...]:
    """Numbers of the points that no other equals or beats in utility and leakage, by falling leakage."""
    order = sorted(range(len(points)), key=lambda i: (points[i].leakage.value, -points[i].utility.value))
    best, kept = -math.inf, []
    for i in order:
        if points[i].utility.value > best:
            best = points[i].utility.value
            kept.append(i)
    return tuple(reversed(kept))


def _content(results: Mapping[str, Any] | str | os.PathLike) -> Mapping[str, Any]:
    if isinstance(results, Mapping):
        return results
    from privjax.sweeping import load_results

    return load_results(results)


def _row(member: Mapping[str, Any], attribute: str | None) -> dict[str, Any] | None:
    """The numbers of one member; None where it has no audit or no utility."""
    audit, utility = member.get("audit"), member.get("utility") or {}
    if not audit or utility.get("test") is None:
        return None
    attributes = audit["attributes"]
    if attribute is None:
        if len(attributes) > 1:
            raise ValueError(f"attribute must be one of {', '.join(attributes)}: several were audited.")
        attribute = next(iter(attributes))
    if attribute not in attributes:
        raise ValueError(f"attribute must be one of {', '.join(attributes)}, got {attribute!r}.")
    found = attributes[attribute]
    score = "accuracy" if found["kind"] == "discrete" else "r2"
    leakage = found[f"adversary_{score}"]
    strongest = (found["strongest"] or {}).get(score)
    if leakage is None:  # none of the paper's attackers was asked for
        leakage = strongest
    if leakage is None:
        return None
    validation = found["validation"]
    held_out = validation["adversary"]
    if held_out is None:
        held_out = (validation["strongest"] or {}).get(score)
    return {
        "weight": member["privacy_weight"],
        "attackers": frozenset(found["attackers"]),
        "utility": utility["test"],
        "leakage": leakage,
        "strongest": strongest,
        "validation_utility": utility.get("validation"),
        "validation_leakage": held_out,
    }


def _point(rows: list[dict[str, Any]]) -> Point:
    def mean(name: str) -> Mean | None:
        values = [row[name] for row in rows]
        return None if any(value is None for value in values) else mean_over_seeds(values)

    utility, leakage, strongest = mean("utility"), mean("leakage"), mean("strongest")
    assert utility is not None
    assert leakage is not None
    assert strongest is not None
    held_out = mean("validation_utility"), mean("validation_leakage")
    return Point(rows[0]["weight"], utility, leakage, strongest, *held_out)


def best_on_validation(members: Sequence[Mapping[str, Any]], *, attribute: str | None = None) -> Any:
    """Of members, such as the seeds of one weight, the one to use.

    Args:
      members: records of `results["members"]`.
      attribute: as for `pareto`.

    Returns:
      The record with the largest utility minus leakage on validation rows; before all that have none, one
      that was audited at least.
    """
    rows = [_row(member, attribute) for member in members]
    usual = _usual_attackers([row for row in rows if row is not None])

    def worth(i: int) -> tuple[bool, float]:
        row = rows[i]
        if row is None or row["attackers"] != usual:
            return False, -math.inf
        if row["validation_utility"] is None or row["validation_leakage"] is None:
            return True, -math.inf
        return True, row["validation_utility"] - row["validation_leakage"]

    return members[max(range(len(members)), key=worth)]


def mean_over_seeds(values: Sequence[float]) -> Mean:
    """The mean and its interval by Student's t, as seeds are few."""
    from scipy.stats import t

    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Mean(mean, None, count)
    half = float(t.ppf(0.975, count - 1) * np.std(values, ddof=1) / math.sqrt(count))
    return Mean(mean, (mean - half, mean + half), count)


def _size(point: Point) -> tuple:
    weight = point.privacy_weight
    return tuple(weight[key] for key in sorted(weight)) if isinstance(weight, Mapping) else (weight,)
