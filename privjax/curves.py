"""Trade-off curves of audited sweeps: means over seeds, the Pareto front, the operating point."""

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from privjax.auditing import AuditReport, load_reports
from privjax.sweeping import MemberRecord, SweepResult, SweepRun, load_results

Weight = float | Mapping[str, float]
Run = str | os.PathLike[str] | SweepRun | SweepResult
Reports = Mapping[int, AuditReport]


@dataclass(frozen=True)
class Mean:
    """A mean over seeds with its 95 % interval by Student's t, which one seed alone does not have."""

    value: float
    interval: tuple[float, float] | None
    seeds: int


class _Scores(NamedTuple):
    """Numbers of one member that enter a curve."""

    privacy_weight: Weight
    seed: int
    member: int | None
    attackers: frozenset[str]
    utility: float
    leakage: float
    strongest: float
    validation_utility: float | None
    validation_leakage: float | None


@dataclass(frozen=True)
class CurvePoint:
    """One privacy weight, averaged over its seeds.

    A point can be passed wherever a member's number is expected, and stands for its best member:
    `load_encoder(workdir, curve.operating_point())`.

    Attributes:
      privacy_weight: lambda_P, or a dict with one value for each private variable.
      members: Numbers of the members in the means; empty in a curve of several sweeps.
      member: The one of them with the largest utility minus leakage on validation rows.
      utility: Utility on test rows.
      leakage: Score of the strongest of the paper's attackers on test rows.
      strongest: Score of the strongest of all attackers on test rows.
      validation_utility: Utility on validation rows, if every member has one.
      validation_leakage: Score of the paper's attackers on validation rows, if every member has one.
    """

    privacy_weight: Weight
    members: tuple[int, ...]
    member: int | None
    utility: Mean
    leakage: Mean
    strongest: Mean
    validation_utility: Mean | None
    validation_leakage: Mean | None

    def __index__(self) -> int:
        if self.member is None:
            raise TypeError("this point averages several sweeps: pass a member of one of them instead.")
        return self.member


@dataclass(frozen=True)
class Curve:
    """The trade-off of one objective between utility and leakage; it prints as a table.

    Attributes:
      method: Name of the objective.
      points: The points, by privacy weight.
      front: The points that no other equals or beats in both utility and leakage, by falling leakage.
      left_out: Number of members without an audit or a utility, or with other attackers than most members:
        scores of different attackers cannot be compared.
    """

    method: str
    points: tuple[CurvePoint, ...]
    front: tuple[CurvePoint, ...]
    left_out: int = 0

    def utility_at(self, leakage: float) -> float | None:
        """Return the largest utility among points with at most this leakage, or None without such points."""
        return max((p.utility.value for p in self.points if p.leakage.value <= leakage), default=None)

    def operating_point(self, *, leakage: float | None = None) -> CurvePoint | None:
        """Choose a point on validation rows alone.

        Args:
          leakage: Largest leakage allowed: the point of the largest utility within it is chosen. If None,
            the point with the largest utility minus leakage.

        Returns:
          The point; None if every point leaks more, or none has validation rows.
        """
        best, chosen = -math.inf, None
        for point in self.points:
            utility, leaks = point.validation_utility, point.validation_leakage
            if utility is None or leaks is None or (leakage is not None and leaks.value > leakage):
                continue
            gain = utility.value - (leaks.value if leakage is None else 0.0)
            if gain > best:
                best, chosen = gain, point
        return chosen

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        chosen = self.operating_point()
        rows: list[tuple[str, ...]] = [("weight", "utility", "leakage", "strongest", "seeds", "")]
        for point in self.points:
            means = (f"{mean.value:.3f}" for mean in (point.utility, point.leakage, point.strongest))
            remark = f"chosen on validation rows: member {point.member}" if point is chosen else ""
            rows.append((format_weight(point.privacy_weight), *means, str(point.utility.seeds), remark))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def pareto(
    run: Run | list[Run], reports: Reports | list[Reports] | None = None, *, attribute: str | None = None
) -> Curve:
    """Compute the trade-off curve of an audited sweep.

    Args:
      run: A sweep: its workdir, `SweepRun` or `SweepResult`. A list of sweeps of the same data and objective
        gives one curve of them all.
      reports: Audit reports by member number; a list of those for a list of sweeps. If None, the reports in
        the workdir.
      attribute: Name of the private variable; required if several were audited.

    Returns:
      The curve.

    Example:
      >>> import tempfile, privjax
      >>> with tempfile.TemporaryDirectory() as workdir:
      ...     _ = privjax.sweep("digits", privacy_weights=[4.0, 0.0], num_epochs=1, workdir=workdir)
      ...     _ = privjax.audit_sweep(workdir, attackers=["quadratic"])
      ...     curve = privjax.pareto(workdir)
      ...     encoder = privjax.load_encoder(workdir, curve.operating_point())
      >>> [(point.privacy_weight, point.member) for point in curve.points]
      [(0.0, 1), (4.0, 0)]
    """
    runs = run if isinstance(run, list) else [run]
    each = reports if isinstance(reports, list) else [reports] * len(runs)
    audited = [_read(one, found) for one, found in zip(runs, each, strict=True)]
    _one_of("data set", [one.data.name for one, _ in audited])
    method = _one_of("objective", [member.objective for one, _ in audited for member in one.members])
    scores = [_score(m, found.get(m.member), attribute) for one, found in audited for m in one.members]
    known = [score for score in scores if score is not None]
    if len(runs) > 1:  # the same number is another member in each
        known = [score._replace(member=None) for score in known]
    counts = Counter(score.attackers for score in known)
    usual = max(counts, key=lambda attackers: (counts[attackers], len(attackers)), default=None)
    groups: dict[tuple, dict[int, _Scores]] = {}
    for score in (score for score in known if score.attackers == usual):
        group = groups.setdefault(weight_key(score.privacy_weight), {})
        if score.seed in group:
            weight = format_weight(score.privacy_weight)
            raise ValueError(f"run has {method} at weight {weight} and seed {score.seed} twice: keep one.")
        group[score.seed] = score
    points = tuple(_make_point(list(groups[key].values())) for key in sorted(groups))
    return Curve(method, points, _front(points), len(scores) - sum(map(len, groups.values())))


def mean_over_seeds(values: Sequence[float]) -> Mean:
    """Compute a mean and its interval by Student's t, as seeds are few.

    Example:
      >>> mean_over_seeds([0.5])
      Mean(value=0.5, interval=None, seeds=1)
    """
    from scipy.stats import t

    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Mean(mean, None, count)
    half = float(t.ppf(0.975, count - 1) * np.std(values, ddof=1) / math.sqrt(count))
    return Mean(mean, (mean - half, mean + half), count)


def format_weight(weight: Weight) -> str:
    """Format a privacy weight, or several by name, with four digits.

    Example:
      >>> format_weight({"user": 0.5, "age": 2.0})
      'user 0.5, age 2'
    """
    if isinstance(weight, Mapping):
        return ", ".join(f"{name} {format_weight(value)}" for name, value in weight.items())
    return f"{weight:.4g}"


def weight_key(weight: Weight) -> tuple:
    """Return a key that sorts and groups privacy weights, dicts included."""
    return tuple(sorted(weight.items())) if isinstance(weight, Mapping) else (weight,)


def _read(run: Run, reports: Reports | None) -> tuple[SweepRun, Reports]:
    if isinstance(run, SweepResult):
        workdir, run = run.workdir, run.run
    elif isinstance(run, SweepRun):
        workdir = None
    else:
        workdir, run = run, load_results(run)
    if reports is None and workdir is None:
        raise ValueError("reports must be given, since this run has no workdir to read them from.")
    return run, load_reports(workdir) if reports is None else reports  # pyright: ignore[reportArgumentType]


def _one_of(kind: str, names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    if len(distinct) > 1:
        raise ValueError(f"run must be of one {kind}, got {' and '.join(distinct)}: make a curve of each.")
    if not distinct:
        raise ValueError("run has no finished member yet: wait for its first one.")
    return distinct[0]


def _score(member: MemberRecord, report: AuditReport | None, attribute: str | None) -> _Scores | None:
    """Collect the scores of a member; None if it has no audit or no utility on test rows."""
    if report is None or member.utility.test is None:
        return None
    names = list(report.attributes)
    if attribute is None and len(names) > 1:
        raise ValueError(f"attribute must be one of {', '.join(names)}: several were audited.")
    if attribute not in (None, *names):
        raise ValueError(f"attribute must be one of {', '.join(names)}, got {attribute!r}.")
    found = report.attributes[names[0] if attribute is None else attribute]
    leakage, best = found.leakage(), found.best()
    strongest = None if best is None else best.value()
    if leakage is None or strongest is None:
        return None
    attackers = frozenset(attack.name for attack in found.attacks)
    validation = member.utility.validation, found.leakage(part="validation")
    utility = member.utility.test
    about = member.privacy_weight, member.seed, member.member, attackers
    return _Scores(*about, utility, leakage, strongest, *validation)


def _make_point(scores: list[_Scores]) -> CurvePoint:
    def mean(name: str) -> Mean | None:
        values = [getattr(score, name) for score in scores]
        return None if None in values else mean_over_seeds(values)

    def gain(score: _Scores) -> float:
        utility, leakage = score.validation_utility, score.validation_leakage
        return -math.inf if utility is None or leakage is None else utility - leakage

    members = tuple(score.member for score in scores if score.member is not None)
    best = max(scores, key=gain).member
    means = map(mean, _Scores._fields[4:])  # the numbers
    return CurvePoint(scores[0].privacy_weight, members, best, *means)  # pyright: ignore


def _front(points: Sequence[CurvePoint]) -> tuple[CurvePoint, ...]:
    best, front = -math.inf, []
    for point in sorted(points, key=lambda point: (point.leakage.value, -point.utility.value)):
        if point.utility.value > best:
            best = point.utility.value
            front.append(point)
    return tuple(reversed(front))
