"""What one pass learns of a column: its kind, its classes, and whether it can be used."""

import dataclasses
from typing import Any

import numpy as np

from privjax.datasets.blocks import Block
from privjax.datasets.cells import Cells, word, words
from privjax.datasets.errors import DataError

_LARGEST = float(np.finfo(np.float32).max)
_EXACT = 1 << 53  # beyond this, neighbouring whole numbers are one float
_STEPS = 100  # a column that float32 shows in fewer steps than this has lost what it said
_MOST_CATEGORIES = 1000  # of one feature: each becomes a column


@dataclasses.dataclass
class Column:
    """What one pass learned of a column."""

    name: str
    kind: str | None = None
    values: set[Any] | None = dataclasses.field(default_factory=set)
    missing: int = 0
    first_missing: str = ""
    low: float = np.inf
    high: float = -np.inf
    whole: bool = True

    def add(self, cells: Cells, block: Block, stays: np.ndarray, *, keep_values: bool) -> None:
        """Takes in a block; text keeps its classes, numbers keep them when they may be labels.

        Args:
          cells: The cells of this column.
          block: The block they belong to.
          stays: Which rows will not be dropped: a class that only others have is none.
          keep_values: Whether a number may be a class.
        """
        if self.missing == 0 and cells.missing.any():
            self.first_missing = block.where(int(np.argmax(cells.missing)))
        self.missing += int(cells.missing.sum())
        kept = cells.values[stays & ~cells.missing]
        if not len(kept):
            return
        self.kind = _wider(self.kind, cells.kind, self.name)
        if cells.kind != "text":
            known = np.where(cells.missing, 0, cells.values)
            outside = ~(np.abs(known) <= _LARGEST)  # so written that NaN is outside, too
            if outside.any():
                where = block.where(int(np.argmax(outside)))
                raise DataError(f"{where}: column {self.name!r} is not finite in 32-bit floats.")
            self.low, self.high = min(self.low, float(kept.min())), max(self.high, float(kept.max()))
            self.whole = self.whole and bool((kept == np.round(kept)).all())
            if keep_values and cells.kind == "float" and self.whole and np.abs(kept).max() > _EXACT:
                where = block.where(int(np.argmax(np.abs(known) > _EXACT)))
                raise DataError(
                    f"{where}: column {self.name!r} holds whole numbers too long to be told apart: "
                    f"make it text, or pass kinds={{{self.name!r}: 'category'}} with a CSV."
                )
        if self.values is not None and (cells.kind == "text" or keep_values):
            self.values.update(np.unique(kept).tolist() if cells.kind != "text" else set(kept))
            if cells.kind == "float" and not self.whole:
                self.values = None  # a continuous label has no classes to remember

    def check_resolution(self, label: str) -> None:
        """Refuses numbers that 32-bit floats would make almost equal, as they do with times."""
        largest = np.float32(max(abs(self.low), abs(self.high)))
        if self.high > self.low and float(np.spacing(largest)) * _STEPS > self.high - self.low:
            raise DataError(
                f"{label}: column {self.name!r} runs from {self.low!r} to {self.high!r}, which "
                "32-bit floats cannot tell apart: subtract its smallest value first, or leave it out."
            )


def _wider(old: str | None, new: str, name: str) -> str:
    if old is None or old == new:
        return new
    if {old, new} == {"integer", "float"}:
        return "float"
    raise DataError(f"column {name!r} is {old} in one place and {new} in another.")


def is_category(column: Column, asked: str | None, is_label: bool) -> bool:
    """Whether a column is classes: because it was asked for, or by its kind and its use."""
    if column.kind is None:
        raise DataError(f"column {column.name!r} is missing in every row: leave it out.")
    if asked == "continuous" and column.kind == "text":
        raise DataError(f"kinds: column {column.name!r} holds text and cannot be continuous.")
    if asked:
        return asked == "category"
    if column.kind in ("text", "boolean"):
        return column.kind == "text" or is_label
    # A whole number is a class where a label is wanted, even if missing cells made it a float.
    return is_label and column.whole


def classes_of(label: str, column: Column, rows: int, is_label: bool) -> tuple[Any, ...]:
    """The classes of a categorical column in order, unless they are too few or too many."""
    if column.values is None:
        raise DataError(f"kinds: column {column.name!r} holds fractions and cannot be a category.")
    values = sorted(column.values)
    if column.kind == "boolean":
        values = [bool(v) for v in values]
    elif column.kind in ("integer", "float"):
        values = [int(v) for v in values]
    if is_label and len(values) < 2:
        raise DataError(f"{label}: column {column.name!r} has one class only, {values[0]!r}.")
    if is_label and len(values) > max(rows // 2, 2):
        raise DataError(
            f"{label}: column {column.name!r} has {len(values)} classes in {rows} rows: pass "
            f"kinds={{{column.name!r}: 'continuous'}} if it is a quantity."
        )
    # Names, addresses and numbers with a unit tell rows apart, not kinds of rows.
    if not is_label and len(values) > min(max(rows // 2, 20), _MOST_CATEGORIES):
        raise DataError(
            f"{label}: column {column.name!r} has {len(values)} classes in {rows} rows: leave it out."
        )
    return tuple(values)


def agreement(one: Cells, other: Cells) -> int | None:
    """How often both columns say the same; None when they ever say something different."""
    both = ~(one.missing | other.missing)
    if (one.kind == "text") == (other.kind == "text"):
        same = one.values == other.values
    else:  # one as text and one as numbers may still be the same
        same = np.array(_plain(one), object) == np.array(_plain(other), object)
    return int(both.sum()) if same[both].all() else None


def _plain(cells: Cells) -> list[str]:
    """The cells as they are written; numbers that are text as any other numbers."""
    return [_number_word(found) for found in words(cells)] if cells.kind == "text" else words(cells)


def _number_word(found: str) -> str:
    for number in (int, float):
        try:
            return word(number(found))
        except (ValueError, OverflowError):
            continue
    return found.lower()
