"""Content of a report: the members of a sweep by privacy weight, and the curve of each private variable."""

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from privjax.auditing import AttributeReport, AuditReport
from privjax.curves import Curve, CurvePoint, pareto, weight_key
from privjax.exporting import Header
from privjax.sweeping import History, MemberRecord, SweepRun


class Attribute(NamedTuple):
    """One private variable.

    Attributes:
      name: Name in the audit reports.
      label: Name of the user's column.
      score: Main score of its attackers, in words.
      curve: Trade-off curve, with intervals clipped to possible scores.
      picks: Member to show for each weight, chosen on validation rows.
      limits: Scores of attackers without z, by name.
    """

    name: str
    label: str
    score: str
    curve: Curve
    picks: tuple[int, ...]
    limits: dict[str, float]

    @property
    def chosen(self) -> int | None:
        """Member of the operating point."""
        point = self.curve.operating_point()
        return None if point is None else point.member


class Summary(NamedTuple):
    """Content of a report.

    Attributes:
      workdir: Folder of the sweep.
      run: Its results.
      weights: Members of each privacy weight, in ascending order.
      reports: Audit reports by member.
      histories: Training histories by member; damaged ones are missing.
      header: Size of an encoder; None for a user's own networks or a damaged encoder.
      attributes: The audited private variables.
    """

    workdir: str
    run: SweepRun
    weights: tuple[tuple[MemberRecord, ...], ...]
    reports: Mapping[int, AuditReport]
    histories: Mapping[int, History]
    header: Header | None
    attributes: tuple[Attribute, ...]

    @property
    def members(self) -> dict[int, MemberRecord]:
        """Records by member, in ascending order of their weights."""
        return {record.member: record for weight in self.weights for record in weight}

    @property
    def start(self) -> int:
        """The member to show first."""
        return next((a.chosen for a in self.attributes if a.chosen is not None), min(self.members))

    @property
    def utility(self) -> str:
        """Name of the utility column."""
        spec = self.run.data.load_spec
        return "y" if spec is None else str(spec.arguments.get("utility") or "y")

    @property
    def utility_score(self) -> str:
        """Score of the utility, in words."""
        return "accuracy" if self.run.data.y_names else "R²"

    def find(self, member: int, attribute: Attribute | None) -> AttributeReport | None:
        """Return the audit of one private variable of a member, if there is one."""
        report = self.reports.get(member)
        return None if report is None or attribute is None else report.attributes.get(attribute.name)


def summarise(
    workdir: str,
    run: SweepRun,
    reports: Mapping[int, AuditReport],
    histories: Mapping[int, History],
    header: Header | None,
) -> Summary:
    """Summarise a sweep, which may be unfinished and may lack audits; arguments as in `Summary`."""
    groups: dict[tuple, list[MemberRecord]] = {}
    for record in sorted(run.members, key=lambda record: record.member):
        groups.setdefault(weight_key(record.privacy_weight), []).append(record)
    weights = tuple(tuple(groups[key]) for key in sorted(groups))
    names = dict.fromkeys(name for report in reports.values() for name in report.attributes)
    summary = Summary(workdir, run, weights, reports, histories, header, ())
    return summary._replace(attributes=tuple(_attribute(name, summary) for name in names))


def constant_guess(found: AttributeReport) -> float:
    """Return the score of a constant guess: the largest class, or the mean of a continuous variable."""
    return found.chance if found.majority is None else found.majority


def baseline_given_y(found: AttributeReport) -> float | None:
    """Return the main score of an attacker who is given y alone."""
    score = (found.label_alone or {}).get(found.main_score)
    return None if score is None else score.value


def _attribute(name: str, summary: Summary) -> Attribute:
    data = summary.run.data
    audited = {member: report for member, report in summary.reports.items() if name in report.attributes}
    found = [report.attributes[name] for report in audited.values()]
    discrete = found[0].discrete
    curve = pareto(summary.run, audited, attribute=name)
    best = {weight_key(point.privacy_weight): int(point) for point in curve.points}
    firsts = [records[0] for records in summary.weights]
    lowest = [0.0 if accuracy else -math.inf for accuracy in (data.y_names, discrete, discrete)]
    points, front = (tuple(_clip(point, lowest) for point in some) for some in (curve.points, curve.front))
    limits = {"constant guess": constant_guess, f"{summary.utility} alone": baseline_given_y}
    scores = {limit: [s for s in map(score, found) if s is not None] for limit, score in limits.items()}
    return Attribute(
        name,
        _label(name, data.private),
        "accuracy" if discrete else "R²",
        replace(curve, points=points, front=front),
        picks=tuple(best.get(weight_key(first.privacy_weight), first.member) for first in firsts),
        limits={limit: statistics.fmean(values) for limit, values in scores.items() if values},
    )


def _clip(point: CurvePoint, lowest: Sequence[float]) -> CurvePoint:
    for name, least in zip(("utility", "leakage", "strongest"), lowest, strict=True):
        mean = getattr(point, name)
        if mean.interval is not None:
            low, high = mean.interval
            point = replace(point, **{name: replace(mean, interval=(max(low, least), min(high, 1.0)))})
    return point


def _label(name: str, columns: Sequence[str]) -> str:
    """Name of the user's column; an audit calls it s, or s[k] if there are several."""
    number = re.fullmatch(r"s\[(\d+)\]", name)
    if number and int(number[1]) < len(columns):
        return columns[int(number[1])]
    return ", ".join(columns) if name == "s" and columns else name
