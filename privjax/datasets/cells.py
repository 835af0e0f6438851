"""Columns of a user's table: their kinds, their missing cells, and how text becomes numbers."""

import re
from decimal import Decimal
from typing import NamedTuple

import numpy as np

from privjax.datasets.errors import DataError

MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_BOOLEANS = {"true": True, "false": False}
_UNDERSCORE = "_"  # 2020_01 is a number to Python, and a name to everybody else


class Cells(NamedTuple):
    """A stretch of one column.

    Attributes:
      kind: ``"text"``, ``"boolean"``, ``"integer"`` or ``"float"``.
      values: Objects (str) for text; int64 for integers and booleans; float64 for floats.
      missing: Where the cell is empty; its value means nothing.
    """

    kind: str
    values: np.ndarray
    missing: np.ndarray


def typed_cells(values: np.ndarray, column: str) -> Cells:
    """Cells of a column that carries its own type: Parquet, NPZ, npy, DataFrame.

    Args:
      values: One-dimensional; objects may hold None or NaN for missing.
      column: The name, for errors.

    Returns:
      The cells.
    """
    values = np.asarray(values)
    none = np.zeros(len(values), dtype=bool)
    if values.dtype.kind == "b":
        return Cells("boolean", values.astype(np.int64), none)
    if values.dtype.kind in "iu":
        if values.dtype == np.uint64 and len(values) and values.max() > np.iinfo(np.int64).max:
            raise DataError(f"column {column!r} holds numbers beyond 64-bit integers.")
        return Cells("integer", values.astype(np.int64), none)
    if values.dtype.kind == "f":
        return Cells("float", values.astype(np.float64), np.isnan(values))
    if values.dtype.kind == "U":
        return Cells("text", values.astype(object), np.char.strip(values) == "")
    if values.dtype.kind == "O":
        return _object_cells(values, column)
    raise DataError(f"column {column!r} is of type {values.dtype}: turn it into text or numbers first.")


def _object_cells(values: np.ndarray, column: str) -> Cells:
    # NaN and pandas' NA are the values that do not equal themselves, or cannot say so.
    missing = np.array([_is_missing(value) for value in values], dtype=bool)
    kept = values[~missing]
    if all(isinstance(value, (bool, np.bool_)) for value in kept):
        return _filled("boolean", values, missing, np.int64, column)
    if all(isinstance(value, (int, np.integer)) for value in kept):
        return _filled("integer", values, missing, np.int64, column)
    if all(isinstance(value, (int, float, np.integer, np.floating, Decimal)) for value in kept):
        return _filled("float", values, missing, np.float64, column)
    if all(isinstance(value, str) for value in kept):
        return Cells("text", np.where(missing, "", values), missing)
    odd = next(v for v in kept if not isinstance(v, str))
    if any(isinstance(value, str) for value in kept):
        raise DataError(f"column {column!r} mixes text with {type(odd).__name__}: make it one type first.")
    raise DataError(f"column {column!r} holds {type(odd).__name__}: turn it into text or numbers first.")


def _filled(kind: str, values: np.ndarray, missing: np.ndarray, dtype, column: str) -> Cells:
    try:
        return Cells(kind, np.where(missing, 0, values).astype(dtype), missing)
    except OverflowError:
        raise DataError(f"column {column!r} holds numbers beyond 64-bit integers.") from None


def _is_missing(value) -> bool:
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    try:
        return bool(value != value)
    except TypeError:  # pandas' NA refuses to be a truth value
        return True
    except ValueError:  # an array in a cell, which is refused by its type further on
        return False


def words(cells: Cells) -> list[str]:
    """The cells as they are written, whether a file has them as text, truth values or numbers."""
    values = cells.values.astype(bool) if cells.kind == "boolean" else cells.values
    return values.tolist() if cells.kind == "text" else [word(value) for value in values.tolist()]


def word(value: object) -> str:
    """One of them, or a class."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def guess_kind(words: list[str]) -> str | None:
    """The kind of a text-file column by its first block; None if every cell is missing.

    The first cell decides, unless it is a word and most others are numbers: then the column is
    numbers, and ``read_words`` names the word, as it does where the word comes later.
    """
    plain = [word.strip().lower() for word in words]
    told = [word for word in plain if word not in MISSING_WORDS]
    if not told:
        return None
    if told[0] in _BOOLEANS:
        return "boolean"
    if _is_number(told[0]):
        return "integer" if told[0].lstrip("+-").isdigit() else "float"
    numbers = sum(_is_number(word) for word in told)
    # A decimal comma makes no classes either.
    return "float" if 2 * numbers > len(told) or _DECIMAL_COMMA.fullmatch(told[0]) else "text"


def read_words(words: list[str], kind: str, column: str, where) -> Cells:
    """Cells of a text-file column whose kind is known.

    Args:
      words: The cells as they were written.
      kind: One of the four kinds.
      column: The name, for errors.
      where: A function from the place in ``words`` to a phrase that names file and line.

    Returns:
      The cells; a column of whole numbers that turns out to hold a fraction is ``"float"``.
    """
    if kind in ("integer", "float") and (quick := _all_numbers(words, kind)):
        return quick
    missing = np.array([word.strip().lower() in MISSING_WORDS for word in words], dtype=bool)
    if kind == "text":
        values = np.array([word.strip() for word in words], dtype=object)
        return Cells(kind, values, missing)
    if kind == "boolean":
        try:
            values = [
                False if empty else _BOOLEANS[word.strip().lower()]
                for word, empty in zip(words, missing, strict=True)
            ]
        except KeyError:
            fits = lambda word: word.lower() in _BOOLEANS  # noqa: E731
            raise _not_a(words, column, where, fits, "true or false") from None
        return Cells(kind, np.array(values, dtype=np.int64), missing)
    numbers = ["0" if empty else word for word, empty in zip(words, missing, strict=True)]
    if any(_UNDERSCORE in number for number in numbers):
        raise _not_a(words, column, where, _is_number, "a number")
    if kind == "integer":
        try:
            return Cells(kind, np.array([int(n) for n in numbers], dtype=np.int64), missing)
        except (ValueError, OverflowError):
            pass  # a fraction, or no number at all: the next line tells which
    try:
        values = np.array(numbers, dtype=np.float64)
    except ValueError:
        raise _not_a(words, column, where, _is_number, "a number") from None
    if not np.isfinite(values).all():
        place = int(np.argmax(~np.isfinite(values)))
        raise DataError(f"{where(place)}: {words[place]!r} in column {column!r} is not finite.")
    return Cells("float", values, missing)


def _all_numbers(words: list[str], kind: str) -> Cells | None:
    """The common case at one go: every cell is a finite number of the expected kind."""
    try:
        values = np.array(words, dtype=np.int64 if kind == "integer" else np.float64)
    except (ValueError, OverflowError):
        return None
    if not np.isfinite(values).all() or _UNDERSCORE in "".join(words):
        return None
    return Cells(kind, values, np.zeros(len(words), dtype=bool))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return _UNDERSCORE not in word


def _not_a(words, column, where, fits, what) -> DataError:
    for place, word in enumerate(words):
        if word.strip().lower() not in MISSING_WORDS and not fits(word.strip()):
            return DataError(
                f"{where(place)}: {word[:40]!r} in column {column!r} is not {what}; pass "
                f"kinds={{{column!r}: 'category'}} if the column holds names."
            )
    return DataError(f"{where(0)}: column {column!r} does not hold {what}.")
