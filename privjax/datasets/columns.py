"""Columns of a table: kinds, missing cells, and their encoding as numbers.

Cells are pyarrow arrays of large_string, bool, int64 or float64, null where a cell is missing.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from privjax.datasets.splits import DataError
from privjax.extras import import_optional

_LARGEST = float(np.finfo(np.float32).max)
_MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity)$"
_DECIMAL_COMMA = r"^[+-]?\d+,\d+$"
_PADDED = r"^\s*[+-]?0\d+\s*$"
_HEAD = 64  # rows in which most pairs of columns differ

Cells = Any
Place = Callable[[int], str]  # names a row in errors: "people.csv, line 7"


@dataclasses.dataclass(frozen=True)
class Column:
    """Encoding of one table column as columns of x."""

    name: str  # in the table
    classes: tuple[str | int | bool, ...] | None = None  # one column of x each; None for numbers
    boolean: bool = False  # whether the cells are truth values, encoded as 1 and 0
    fill: str | int | float | bool | None = None  # of a missing cell; None refuses missing cells

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of x."""
        return (self.name,) if self.classes is None else tuple(f"{self.name}={c}" for c in self.classes)

    @property
    def kind(self) -> str:
        """Kind of the cells in a text file: `"text"`, `"boolean"` or `"number"`."""
        sample = self.classes[0] if self.classes else self.boolean or 0
        return "boolean" if isinstance(sample, bool) else "text" if isinstance(sample, str) else "number"

    def to_dict(self) -> dict[str, Any]:
        """Return the column as JSON values, without the fields at their default."""
        classes = None if self.classes is None else list(self.classes)
        found = {"name": self.name, "classes": classes, "boolean": self.boolean or None, "fill": self.fill}
        return {key: value for key, value in found.items() if value is not None}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> "Column":
        """Read a column back."""
        name, classes = found.get("name"), found.get("classes")
        if not isinstance(name, str) or not (classes is None or isinstance(classes, list) and classes):
            raise ValueError(f"columns: each needs a name and a list of classes or none, got {found!r}.")
        classes = None if classes is None else tuple(classes)
        return cls(name, classes, bool(found.get("boolean")), found.get("fill"))


def typed_cells(values: Any, name: str) -> Cells:
    """Return a column of a Parquet file, DataFrame or array as cells."""
    pa, pc = import_optional("pyarrow"), import_optional("pyarrow.compute")
    types = import_optional("pyarrow.types")
    try:
        values = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
        values = values.dictionary_decode() if types.is_dictionary(values.type) else values
        kind = values.type
        if types.is_boolean(kind):
            return values
        if types.is_integer(kind):
            return values.cast(pa.int64())
        if types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
            values = values.cast(pa.float64())
            return pc.if_else(pc.is_nan(values), None, values)
        if types.is_string(kind) or types.is_large_string(kind):
            values = values.cast(pa.large_string())
            return pc.if_else(pc.equal(pc.utf8_trim_whitespace(values), ""), None, values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, OverflowError) or "not in range" in str(error):
            raise DataError(f"column {name!r} holds numbers beyond 64-bit integers.") from None
        found = str(error).partition("\n")[0].rstrip(".")
        raise DataError(f"column {name!r} mixes types ({found}): make it one type first.") from None
    raise DataError(f"column {name!r} is of type {kind}: turn it into text or numbers first.")


def parse_cells(words: Cells, column: str, kind: str | None, place: Place, *, padded: bool) -> Cells:
    """Parse the cells of a text file as `"text"`, `"boolean"` or `"number"`; infer the kind for None.

    With `padded`, a column that has whole numbers with leading zeros is text.
    """
    pa, pc = import_optional("pyarrow"), import_optional("pyarrow.compute")
    hint = f"; pass kinds={{{column!r}: 'category'}} if the column holds names" if kind is None else ""

    def refuse(wrong: Any, reason: str) -> None:
        wrong = np.asarray(pc.fill_null(wrong, False))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(f"{place(row)}: {words[row].as_py()[:40]!r} in column {column!r} {reason}.")

    if padded and pc.any(pc.match_substring_regex(words, _PADDED)).as_py():
        kind = "text"
    cells = _numbers(words) if kind in (None, "number") else None
    if cells is None:  # a cell is missing, or is no number
        words = pc.utf8_trim_whitespace(words)
        missing = pc.is_in(pc.utf8_lower(words), value_set=pa.array(_MISSING, words.type))
        words = pc.if_else(missing, None, words)
        kind = kind or _guess_kind(words)
        if kind == "text":
            return words
        if kind == "boolean":
            codes = pc.index_in(pc.utf8_lower(words), value_set=pa.array(["false", "true"], words.type))
            refuse(pc.and_(pc.is_null(codes), pc.is_valid(words)), f"is not true or false{hint}")
            return pc.equal(codes, 1)
        refuse(pc.invert(pc.match_substring_regex(words, _NUMBER)), f"is not a number{hint}")
        cells = _numbers(words)
    refuse(pc.is_inf(cells), "is not finite")
    return cells


def _numbers(words: Cells) -> Cells | None:
    """Return the cells as int64 or float64, or None when one is no number or is written as nan."""
    pa, pc = import_optional("pyarrow"), import_optional("pyarrow.compute")
    with contextlib.suppress(pa.ArrowInvalid):
        cells = words.cast(pa.float64())
        if pc.any(pc.is_nan(cells)).as_py():
            return None
        if pc.all(pc.equal(cells, pc.floor(cells))).as_py():  # a cast that fails is slow
            with contextlib.suppress(pa.ArrowInvalid):
                return words.cast(pa.int64())
        return cells
    return None


def _guess_kind(words: Cells) -> str:
    """Infer the kind of text cells from the first one, unless it is a word and most others are numbers.

    Then the column holds numbers, and the word is refused. A decimal comma makes no classes either.
    """
    pc = import_optional("pyarrow.compute")
    known = words.drop_null()
    first = known[0].as_py() if len(known) else "0"
    if first.lower() in ("true", "false"):
        return "boolean"
    count = pc.sum(pc.match_substring_regex(known, _NUMBER), min_count=0).as_py()
    is_number = re.match(_NUMBER, first) or re.match(_DECIMAL_COMMA, first) or 2 * count > len(known)
    return "number" if is_number else "text"


def numbers(cells: Cells) -> np.ndarray:
    """Return numbers or truth values as float64, NaN where missing."""
    return cells.cast(import_optional("pyarrow").float64(), safe=False).to_numpy(zero_copy_only=False)


def is_text(cells: Cells) -> bool:
    """Return whether the cells are text."""
    return import_optional("pyarrow.types").is_large_string(cells.type)


def agreement(one: Cells, other: Cells) -> int | None:
    """Return the number of rows in which two columns agree, or None when they ever differ.

    Rows in which either is missing do not count. A number agrees with the text of that number.
    """
    pa, pc = import_optional("pyarrow"), import_optional("pyarrow.compute")
    if len(one) > _HEAD and agreement(one[:_HEAD], other[:_HEAD]) is None:
        return None
    if is_text(one) != is_text(other):
        one, other = _words(one, plain=True), _words(other, plain=True)
    elif one.type != other.type:
        one, other = (cells.cast(pa.float64(), safe=False) for cells in (one, other))
    same = pc.drop_null(pc.equal(one, other))
    return len(same) if pc.all(same, min_count=0).as_py() else None


def _words(cells: Cells, *, plain: bool = False) -> Cells:
    """Return the cells as text; with `plain`, the text of a number is that number's."""
    pa = import_optional("pyarrow")
    coded = cells.dictionary_encode()
    words = [_word(value, plain) for value in coded.dictionary.to_pylist()]
    return pa.array(words, pa.large_string()).take(coded.indices)


def _word(value: Any, plain: bool = False) -> str:
    if isinstance(value, str) and plain:
        return _word(float(value)) if re.match(_NUMBER, value) else value.lower()
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def class_codes(cells: Cells, column: Column, place: Place) -> np.ndarray:
    """Return the class number of every cell, -1 where it is missing; other values are refused."""
    pa, pc = import_optional("pyarrow"), import_optional("pyarrow.compute")
    found, classes = cells, pa.array(column.classes)
    if is_text(cells) or column.kind == "text":
        found, classes = _words(cells), _words(classes)
    elif cells.type != classes.type:
        found, classes = (values.cast(pa.float64(), safe=False) for values in (cells, classes))
    codes = np.array(pc.fill_null(pc.index_in(found, value_set=classes), -1))
    unknown = (codes < 0) & ~np.asarray(cells.is_null())
    refuse(unknown, cells, column.name, place, f"none of its {len(classes)} classes")
    return codes


def encode(cells: Cells, column: Column, place: Place) -> np.ndarray:
    """Return the cells as columns of x, float32 `[n, k]`; NaN where missing without a fill value."""
    missing = np.asarray(cells.is_null())
    if column.classes is not None:
        codes = class_codes(cells, column, place)
        codes[missing] = -1 if column.fill is None else column.classes.index(column.fill)
        x = (codes[:, None] == np.arange(len(column.classes))).astype(np.float32)
        x[codes < 0] = np.nan
        return x
    if is_text(cells):
        refuse(~missing, cells, column.name, place, "where a number is expected")
        cells = cells.cast(import_optional("pyarrow").float64())
    values = numbers(cells)
    with np.errstate(invalid="ignore"):
        if column.boolean:
            wrong = ~missing & (values != 0) & (values != 1)
            refuse(wrong, cells, column.name, place, "where true or false is expected")
        wrong = ~missing & ~(np.abs(values) <= _LARGEST)
        refuse(wrong, cells, column.name, place, "which is not finite in 32-bit floats")
    values = np.where(missing, np.nan if column.fill is None else column.fill, values)
    return values.astype(np.float32)[:, None]


def refuse(wrong: np.ndarray, cells: Cells, name: str, place: Place, reason: str) -> None:
    """Refuse the first wrong cell with its row, column and value."""
    if wrong.any():
        row = int(np.argmax(wrong))
        value = cells[row].as_py()
        shown = repr(value) if isinstance(value, str) else str(value)
        raise DataError(f"{place(row)}: column {name!r} holds {shown}, {reason}.")
