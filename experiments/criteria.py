"""Criteria that decide whether a claim about trade-off curves holds.

Two numbers compare curves: the least leakage to the paper's four attackers with the utility above a level
(`least`), and the largest utility with the leakage below a level (`kept`).
"""

from collections.abc import Callable
from typing import Any

from run import summary

Rows = list[dict[str, Any]]
LEAST = "least leakage with utility of at least"
ALIKE = 0.02  # the largest difference between accuracies that count as alike


class Curves:
    """The rows of one experiment by method, and the two numbers that compare curves."""

    def __init__(self, content: dict[str, Any]):
        self._content = content
        self._rows: dict[str, Rows] = {}
        for row in summary(content):
            self._rows.setdefault(row["method"], []).append(row)

    def on_shared_splits(self, *methods: str) -> "Curves":
        """Restrict some methods to the splits that all of them have.

        Points that lack one of these splits are left out, because a single split may be lucky.

        Raises:
          KeyError: One of the methods was not run.
        """
        entries = {entry["label"]: entry for entry in self._content["methods"].values()}
        chosen = {method: entries[method] for method in methods}
        shared = set.intersection(*(set(entry["runs"]) for entry in chosen.values()))
        curves = Curves(
            {
                "methods": {
                    method: entry | {"runs": {split: entry["runs"][split] for split in shared}}
                    for method, entry in chosen.items()
                }
            }
        )
        for method, rows in curves._rows.items():
            curves._rows[method] = [row for row in rows if row["splits"] == len(shared)]
        return curves

    def rows(self, method: str) -> Rows:
        """Return the points of a method that have scores."""
        return [
            r for r in self._rows.get(method, []) if r["utility"] is not None and r["adversary"] is not None
        ]

    def least(self, method: str, utility: float) -> float | None:
        """Return the least leakage of points with at least that utility, or None."""
        return min((r["adversary"] for r in self.rows(method) if r["utility"] >= utility), default=None)

    def kept(self, method: str, leakage: float) -> float | None:
        """Return the largest utility of points with at most that leakage, or None."""
        return max((r["utility"] for r in self.rows(method) if r["adversary"] <= leakage), default=None)

    @property
    def splits(self) -> str:
        """The number of splits, as text."""
        number = max(len(entry["runs"]) for entry in self._content["methods"].values())
        return "one split" if number == 1 else f"{number} splits"

    @property
    def majority(self) -> float:
        """The accuracy of always guessing the largest class."""
        return max(row["majority"] for rows in self._rows.values() for row in rows)


Judge = Callable[[Curves], tuple[str, bool | None]]


def least(*methods: str, utility: float, agrees: Callable[..., bool | None]) -> Judge:
    """Compare the least leakage of each method at some utility; `agrees` takes one number per method."""
    return _compared(LEAST, Curves.least, methods, (utility,), _everywhere(agrees))


def improves(first: str, second: str, *, utility: tuple[float, ...]) -> Judge:
    """Decide whether the second method leaks less at one of some utilities, and at none of them more."""

    def verdict(found):
        gains = [a - b for a, b in found]
        if all(abs(gain) <= ALIKE for gain in gains):
            return None
        return min(gains) >= -ALIKE

    return _compared(LEAST, Curves.least, (first, second), utility, verdict)


def kept(*methods: str, leakage: tuple[float, ...], agrees: Callable[..., bool | None]) -> Judge:
    """Compare the utility that each method keeps, at each of some leakages."""
    words = "utility kept with leakage of at most"
    return _compared(words, Curves.kept, methods, leakage, _everywhere(agrees))


def _everywhere(agrees: Callable[..., bool | None]) -> Callable[[list[list[float]]], bool | None]:
    def verdict(found):
        verdicts = [agrees(*numbers) for numbers in found]
        return None if None in verdicts else all(verdicts)

    return verdict


def _compared(words: str, number: Callable[..., float | None], methods, levels, verdict) -> Judge:
    """Apply a verdict to the numbers at the levels where all methods have a point."""

    def judge(curves: Curves) -> tuple[str, bool | None]:
        curves = curves.on_shared_splits(*methods)
        texts, compared = [], []
        for level in levels:
            found = [number(curves, method, level) for method in methods]
            numbers = ("none" if value is None else format(value, ".3f") for value in found)
            own = ", ".join(f"{method} {value}" for method, value in zip(methods, numbers, strict=True))
            texts.append(f"{words} {level:g}: {own}")
            if None not in found:
                compared.append(found)
        return f"{'; '.join(texts)} ({curves.splits})", verdict(compared) if compared else None

    return judge


def no_gain(networks: str, utility: float) -> Judge:
    """Decide whether the better closed form hides at least as much as the better discriminator."""
    methods = [f"{networks}-{name}" for name in ("MMD", "KDI", "WDN", "LSDN")]
    return least(*methods, utility=utility, agrees=lambda a, b, c, d: min(a, b) <= min(c, d) + ALIKE)


def near_guessing(method: str, utility: float) -> Judge:
    """Decide whether the leakage is close to the largest class at some utility."""

    def judge(curves: Curves) -> tuple[str, bool | None]:
        curves = curves.on_shared_splits(method)
        found, floor = curves.least(method, utility), curves.majority
        if found is None:
            return f"{method} has no point with utility of at least {utility:g}", None
        text = f"{method} {found:.3f} with utility of at least {utility:g}; the largest class is {floor:.3f}"
        return f"{text} ({curves.splits})", found <= floor + 0.03

    return judge


def falls_to_guessing(method: str, utility: float) -> Judge:
    """Decide whether the largest weight leaks little more than the largest class, with a low utility."""

    def judge(curves: Curves) -> tuple[str, bool | None]:
        curves = curves.on_shared_splits(method)
        last = max(curves.rows(method), key=lambda row: row["privacy_weight"])
        text = f"{method} at {last['privacy_weight']:g}: utility {last['utility']:.3f}, leakage "
        text += f"{last['adversary']:.3f}; the largest class is {curves.majority:.3f} ({curves.splits})"
        return text, last["utility"] <= utility and last["adversary"] <= curves.majority + ALIKE

    return judge


def insensitive(method: str) -> Judge:
    """Decide whether the two largest weights leak alike."""

    def judge(curves: Curves) -> tuple[str, bool | None]:
        curves = curves.on_shared_splits(method)
        rows = sorted(curves.rows(method), key=lambda row: row["privacy_weight"])
        leaks = [row["adversary"] for row in rows]
        text = f"{method} leaks {', '.join(f'{leak:.3f}' for leak in leaks)} as its weight grows"
        return f"{text} ({curves.splits})", None if len(leaks) < 2 else alike(*leaks[-2:])

    return judge


def alike(*values: float, by: float = ALIKE) -> bool:
    """Decide whether all values lie within a distance."""
    return max(values) - min(values) <= by


def slightly_more(a: float, b: float) -> bool | None:
    """Decide whether b is slightly above a; None where one more split could reverse it."""
    return None if abs(b - a) < ALIKE / 2 else a < b < a + 0.05
