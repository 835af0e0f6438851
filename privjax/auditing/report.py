"""The report of an audit: a table when printed, strict JSON when kept."""

import dataclasses
import math
from typing import Any

from privjax.auditing.attack import Attack
from privjax.auditing.scores import Score


@dataclasses.dataclass(frozen=True)
class AttributeReport:
    """What attackers learnt of one private variable.

    Attributes:
      name: of the variable.
      discrete: whether it has classes.
      num_classes: how many; 0 for a continuous variable.
      chance: accuracy of guessing at random; for a continuous variable R^2 of the mean, 0.
      majority: accuracy of naming the largest training class; None for a continuous variable.
      label_alone: scores of an attacker who sees y alone; None when y was not given.
      confidence: the permutation test of "z is independent of s": p_value, statistic, rows, note.
      attacks: one for each attacker.
      notes: what there is to say about the variable.
    """

    name: str
    discrete: bool
    num_classes: int
    chance: float
    majority: float | None
    label_alone: dict[str, Score | None] | None
    confidence: dict[str, Any]
    attacks: tuple[Attack, ...]
    notes: tuple[str, ...] = ()

    @property
    def main_score(self) -> str:
        """The score that attackers are ranked by."""
        return "accuracy" if self.discrete else "r2"

    def best(self, *, paper_only: bool = False, part: str = "test") -> Attack | None:
        """The attack with the largest main score; None where none has one."""
        able = [a for a in self.attacks if a.value(self.main_score, part=part) is not None]
        able = [a for a in able if not paper_only or a.group == "paper"]
        return max(able, key=lambda a: self._rank(a, part), default=None)

    def _rank(self, attack: Attack, part: str = "test") -> float:
        value = attack.value(self.main_score, part=part)
        return -math.inf if value is None else value

    def adversary(self, *, part: str = "test") -> float | None:
        """The largest main score of the paper's attackers."""
        best = self.best(paper_only=True, part=part)
        return None if best is None else best.value(self.main_score, part=part)

    def strongest(self, *, part: str = "test") -> dict[str, Any] | None:
        """The strongest of all attackers: its name and its main score."""
        best = self.best(part=part)
        if best is None:
            return None
        return {"attacker": best.name, self.main_score: best.value(self.main_score, part=part)}

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "kind": "discrete" if self.discrete else "continuous",
            "num_classes": self.num_classes,
            "chance": self.chance,
            "majority": self.majority,
            "label_alone": None if self.label_alone is None else _flat(self.label_alone),
            "privacy_confidence": self.confidence,
            "adversary_accuracy": self.adversary() if self.discrete else None,
            "adversary_r2": None if self.discrete else self.adversary(),
            "strongest": self.strongest(),
            "validation": {"adversary": self.adversary(part="validation")}
            | {"strongest": self.strongest(part="validation")},
            "attackers": {
                a.name: {
                    "group": a.group,
                    **_flat(a.scores),
                    "validation": _flat(a.validation),
                    "settings": a.settings,
                    "seconds": round(a.seconds, 3),
                    "notes": list(a.notes),
                    "failed": a.failed,
                }
                for a in self.attacks
            },
            "notes": list(self.notes),
        }

    def table(self) -> str:
        """Lines of text."""
        names = ("accuracy", "balanced_accuracy", "auc") if self.discrete else ("r2", "rank_correlation")
        rows = [("attacker", *(name.replace("_", " ") for name in names), "seconds", "")]
        main = self.main_score
        ranked = sorted(self.attacks, key=self._rank, reverse=True)
        for a in ranked:
            remark = "; ".join([*([f"failed: {a.failed}"] if a.failed else []), *a.notes])
            mark = "*" if a.group == "paper" else ""
            shown = [_shown(a.scores.get(name)) for name in names]
            rows.append((a.name + mark, *shown, f"{a.seconds:.1f}", remark))
        if self.label_alone is not None:
            rows.append(("y alone", *(_shown(self.label_alone.get(n)) for n in names), "", ""))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        kind = f"{self.num_classes} classes" if self.discrete else "continuous"
        head = f"{self.name} ({kind}): adversary {_number(self.adversary())}, strongest "
        best = self.strongest()
        head += "-" if best is None else f"{_number(best[main])} ({best['attacker']})"
        head += f", chance {_number(self.chance)}"
        head += "" if self.majority is None else f", majority {_number(self.majority)}"
        head += f", privacy confidence {_number(self.confidence.get('p_value'))}"
        notes = [f"  note: {note}" for note in self.notes]
        return "\n".join([head, *("  " + line for line in lines), *notes])


@dataclasses.dataclass(frozen=True)
class AuditReport:
    """What was learnt from a release; it prints as a table.

    An audit is a lower bound on leakage: an attacker that is not in it may learn more.

    Attributes:
      attributes: an `AttributeReport` for each private variable, by name ("s" when there was one
        without a name).
      rows: numbers of training, validation and test rows.
      seed: of the audit.
      seconds: spent on all of it.
      notes: what was done to z.
    """

    attributes: dict[str, AttributeReport]
    rows: dict[str, int]
    seed: int
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def adversary_accuracy(self) -> float | dict[str, float | None] | None:
        """Largest accuracy of the paper's four; None for a continuous variable; a dict of several."""
        return self._each(lambda a: a.adversary() if a.discrete else None)

    @property
    def adversary_r2(self) -> float | dict[str, float | None] | None:
        """Largest R^2 for a continuous variable; None for classes; a dict of several."""
        return self._each(lambda a: None if a.discrete else a.adversary())

    @property
    def strongest(self) -> dict[str, Any] | None:
        """The strongest attacker and its score; a dict of those for several variables."""
        return self._each(lambda a: a.strongest())

    def _each(self, of) -> Any:
        values = {name: of(attribute) for name, attribute in self.attributes.items()}
        return values["s"] if list(values) == ["s"] else values

    def to_dict(self) -> dict[str, Any]:
        """Plain values that strict JSON can hold: a number that is not finite is None."""
        content = {
            "adversary_accuracy": self.adversary_accuracy,
            "adversary_r2": self.adversary_r2,
            "strongest": self.strongest,
            "validation": self._each(
                lambda a: {
                    "adversary": a.adversary(part="validation"),
                    "strongest": a.strongest(part="validation"),
                }
            ),
            "attributes": {name: attribute.to_dict() for name, attribute in self.attributes.items()},
            "rows": self.rows,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
        }
        return strict(content)

    def __str__(self) -> str:
        rows = ", ".join(f"{count} {part}" for part, count in self.rows.items() if count)
        foot = "* the paper's; intervals 95 % over test rows; a lower bound on what leaks"
        notes = [f"note: {note}" for note in self.notes]
        tables = [attribute.table() for attribute in self.attributes.values()]
        return "\n".join([f"audit of {rows} rows, {self.seconds:.1f} s", *notes, *tables, foot])


def strict(value: Any) -> Any:
    """The same with plain Python types, and None for NaN and infinity."""
    if isinstance(value, dict):
        return {str(key): strict(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(entry) for entry in value]
    if hasattr(value, "item"):
        return strict(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def _flat(scores: dict[str, Score | None]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, score in scores.items():
        flat[name] = None if score is None else score.value
        flat[f"{name}_interval"] = None if score is None or score.interval is None else list(score.interval)
    return flat


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _shown(score: Score | None) -> str:
    if score is None:
        return "-"
    return f"{score.value:.3f}" + (
        "" if score.interval is None else " [{:.3f}, {:.3f}]".format(*score.interval)
    )
