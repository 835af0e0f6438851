"""The report of an audit: typed records that print as a table and are kept as strict JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from privjax.auditing.scores import Score, Scores
from privjax.files import from_json, to_json


@dataclass(frozen=True)
class Attack:
    """The result of one attacker on one private variable.

    Attributes:
      name: Name of the attacker.
      group: "paper", "other" or "user".
      scores: Scores on test rows by name, the main score first; None for a score that is not defined.
      validation: The same on validation rows; empty without them.
      settings: Settings, chosen on training rows.
      seconds: Time to fit and to score.
      notes: Remarks, for instance on a sample of the rows.
      failed: The error that left the attack without scores, or None.
    """

    name: str
    group: str
    scores: Scores
    validation: Scores
    settings: dict[str, Any]
    seconds: float
    notes: tuple[str, ...] = ()
    failed: str | None = None

    def value(self, score: str | None = None, *, part: str = "test") -> float | None:
        """Return a score as a number, the main score by default; None if it is not defined."""
        scores = self.scores if part == "test" else self.validation
        found = scores.get(next(iter(scores), "") if score is None else score)
        return None if found is None else found.value


class IndependenceTest(NamedTuple):
    """The permutation test of "z is independent of s" on test rows.

    Attributes:
      p_value: Confidence that z is independent of s; None if it could not be tested.
      statistic: The statistic of the rows.
      rows: Number of test rows used.
      note: Why there is no p-value, or how it came about.
    """

    p_value: float | None
    statistic: float | None
    rows: int
    note: str | None = None


@dataclass(frozen=True)
class AttributeReport:
    """The attacks on one private variable.

    Attributes:
      name: Name of the variable.
      discrete: Whether it has classes.
      num_classes: Number of classes; 0 for a continuous variable.
      chance: Accuracy of a random guess; for a continuous variable 0, the R^2 of the mean.
      majority: Accuracy of guessing the largest training class; None for a continuous variable.
      label_alone: Scores of an attacker that is given y alone, which any release that keeps y allows; None
        without y.
      confidence: The permutation test of independence.
      attacks: One for each attacker.
      notes: Remarks on the variable.
    """

    name: str
    discrete: bool
    num_classes: int
    chance: float
    majority: float | None
    label_alone: Scores | None
    confidence: IndependenceTest
    attacks: tuple[Attack, ...]
    notes: tuple[str, ...] = ()

    @property
    def main_score(self) -> str:
        """The score that ranks attackers: "accuracy", or "r2" of a continuous variable."""
        return "accuracy" if self.discrete else "r2"

    def ranked(self, *, part: str = "test") -> list[Attack]:
        """Return the attacks by falling main score, those without one last."""
        values = {attack.name: attack.value(part=part) for attack in self.attacks}
        return sorted(self.attacks, key=lambda a: (values[a.name] is None, -(values[a.name] or 0.0)))

    def best(self, *, paper_only: bool = False, part: str = "test") -> Attack | None:
        """Return the attack with the largest main score; None if no attack has one."""
        attacks = (a for a in self.ranked(part=part) if a.value(part=part) is not None)
        return next((a for a in attacks if not paper_only or a.group == "paper"), None)

    def leakage(self, *, part: str = "test") -> float | None:
        """Return the largest main score of the paper's attackers; of all if none of the paper's has one."""
        best = self.best(paper_only=True, part=part) or self.best(part=part)
        return None if best is None else best.value(part=part)

    def __str__(self) -> str:
        kind = f"{self.num_classes} classes" if self.discrete else "continuous"
        majority = "" if self.majority is None else f", majority {_number(self.majority)}"
        best = self.best()
        head = (
            f"{self.name} ({kind}): leakage {_number(self.leakage())}, "
            f"strongest {'-' if best is None else f'{_number(best.value())} ({best.name})'}, "
            f"chance {_number(self.chance)}{majority}, "
            f"privacy confidence {_number(self.confidence.p_value)}"
        )
        names = ("accuracy", "balanced_accuracy", "auc") if self.discrete else ("r2", "rank_correlation")
        rows = [("attacker", *(name.replace("_", " ") for name in names), "seconds", "")]
        for attack in self.ranked():
            mark = "*" if attack.group == "paper" else ""
            remarks = [f"failed: {attack.failed}"] if attack.failed else []
            cells = (_cell(attack.scores.get(name)) for name in names)
            rows.append(
                (attack.name + mark, *cells, f"{attack.seconds:.1f}", "; ".join((*remarks, *attack.notes)))
            )
        if self.label_alone is not None:
            rows.append(("given y alone", *(_cell(self.label_alone.get(name)) for name in names), "", ""))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([head, *lines, *(f"  note: {note}" for note in self.notes)])


@dataclass(frozen=True)
class AuditReport:
    """The report of an audit; it prints as a table.

    An audit is a lower bound on leakage: other attackers may learn more.

    Attributes:
      attributes: An `AttributeReport` for each private variable, by name ("s" for one without a name).
      rows: Numbers of training, validation and test rows.
      seed: Seed of the audit.
      seconds: Duration of the audit.
      notes: Remarks on z.
    """

    attributes: dict[str, AttributeReport]
    rows: dict[str, int]
    seed: int
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def leakage(self) -> float | None:
        """Leakage of the only private variable: an accuracy, or an R^2; see `AttributeReport.leakage`."""
        return self._only.leakage()

    @property
    def strongest(self) -> Attack | None:
        """The strongest attack on the only private variable."""
        return self._only.best()

    @property
    def _only(self) -> AttributeReport:
        if len(self.attributes) > 1:
            names = ", ".join(self.attributes)
            raise ValueError(f"the report has several private variables: pick attributes[...] among {names}.")
        return next(iter(self.attributes.values()))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, with the leakage and the strongest attacker of each variable."""
        content = to_json(self)
        for name, attribute in self.attributes.items():
            best = attribute.best()
            content["attributes"][name]["leakage"] = attribute.leakage()
            content["attributes"][name]["strongest"] = None if best is None else best.name
        return content

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "AuditReport":
        """Build a report from the values of `to_dict`. Raises ValueError for a missing or mistyped value."""
        return from_json(cls, value, "report")

    def __str__(self) -> str:
        rows = ", ".join(f"{count} {part}" for part, count in self.rows.items() if count)
        head = f"audit of {rows} rows, {self.seconds:.1f} s"
        notes = (f"note: {note}" for note in self.notes)
        foot = "* attackers of the paper; intervals are 95 % over test rows; a lower bound on leakage"
        return "\n".join([head, *notes, *map(str, self.attributes.values()), foot])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _cell(score: Score | None) -> str:
    if score is None or score.interval is None:
        return _number(None if score is None else score.value)
    return "{:.3f} [{:.3f}, {:.3f}]".format(score.value, *score.interval)
