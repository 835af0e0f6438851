"""Rows of x from a user's file, encoded as the rows of training were: what an encoder is applied to."""

import contextlib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from privjax.datasets.blocks import Table
from privjax.datasets.cells import Cells, word, words
from privjax.datasets.errors import DataError
from privjax.datasets.table_files import open_table
from privjax.extras import need

_LARGEST = float(np.finfo(np.float32).max)
_CELLS = 1 << 19  # of a block: as words of a CSV they take about 100 MB

Column = Mapping[str, Any]
Group = tuple[str, ...]


class Rows(NamedTuple):
    """A file of rows.

    Attributes:
      blocks: float32 [b, width], one after another; memory holds one of them.
      total: how many rows there are; of a CSV about as many, as only its lines are counted.
    """

    blocks: Iterator[np.ndarray]
    total: int


def open_rows(
    path: Path, width: int, *, columns: Any = None, names: Any = None, block_rows: int = 65536
) -> Rows:
    """Opens a file of rows without labels, or whose labels are not looked at.

    Args:
      path: A CSV, Parquet, NPZ or npy file, or a folder of npy files.
      width: Numbers in a row of x.
      columns: What x is made of, as ``describe_columns`` gives it: picked by name.
      names: Of the columns of x, where nothing more is known: picked by name, if the file has any of
        them. Otherwise, and in arrays without such names, x is one matrix of its width.
      block_rows: Rows in memory at a time, at most.

    Returns:
      The rows, before any scaling.
    """
    if block_rows < 1:
        raise ValueError(f"block_rows must be at least 1, got {block_rows}.")
    if not path.exists():
        raise DataError(f"{path} does not exist.")
    groups = _groups(path)
    chosen = _choose(path, width, groups, _asked(columns, names, width), by_name=columns is not None)
    there = [name for group in groups for name in group]
    # What is not asked for, or is a class by its name, is read as text, which any cell is.
    numbers = {c["name"] for c in chosen if not isinstance(c.get("classes", [0])[0], str)}
    table = _open(
        path,
        max(1, min(block_rows, _CELLS // len(there))),
        wanted=[column["name"] for column in chosen],
        categories=[name for name in there if name not in numbers],
    )
    return Rows(_blocks(table, chosen, width), _count(path, chosen[0]["name"]))


def _asked(columns: Any, names: Any, width: int) -> Sequence[Column]:
    """The columns to look for; none where they are not known, as in images."""
    if columns is None:
        return [{"name": name} for name in names] if names and len(names) == width else []
    try:  # a file may claim anything
        classes = [column.get("classes", [0]) for column in columns if isinstance(column["name"], str)]
        sound = all(isinstance(c, list) and c for c in classes) and sum(map(len, classes)) == width
    except (TypeError, KeyError, AttributeError):
        sound = False
    if not sound:
        raise DataError(f"the columns of the encoder do not make rows of {width} numbers.")
    return columns


def _groups(path: Path) -> list[Group]:
    """The columns of a table, or those of each array that can be read."""
    if not _is_array(path):
        return [_open(path, 1).columns]
    groups, problems = [], []
    for name in _array_names(path):
        try:  # arrays that are not asked for may be anything
            groups.append(_open(path, 1, wanted=[name]).columns)
        except DataError as error:
            problems.append(error)
    if not groups:
        raise problems[0] if problems else DataError(f"{path} holds no arrays.")
    return groups


def _choose(
    path: Path, width: int, groups: list[Group], asked: Sequence[Column], *, by_name: bool
) -> Sequence[Column]:
    """The columns that make x: by name, or as many as x has side by side."""
    there = {name for group in groups for name in group}
    absent = [column["name"] for column in asked if column["name"] not in there]
    if asked and not absent:
        return asked
    if not _is_array(path) and (by_name or 0 < len(absent) < len(asked)):
        raise DataError(f"{path} has no column {absent[0]!r}.")
    fitting = [group for group in groups if len(group) == width]
    if len(fitting) != 1:
        have = ", ".join(str(len(group)) for group in groups)
        raise DataError(f"{path} has {have} columns where x has {width}: keep those of x, in its order.")
    if not _is_array(path) and all(_is_number(name) for name in fitting[0]):
        raise DataError(f"{path}, line 1: the names of the columns are missing.")
    return [{"name": name} for name in fitting[0]]


def _blocks(table: Table, columns: Sequence[Column], width: int) -> Iterator[np.ndarray]:
    try:
        for block in table.blocks():
            parts = [_encode(block.cells[column["name"]], column, block.where) for column in columns]
            x = np.empty((block.rows, width), np.float32)
            np.concatenate(parts, axis=1, out=x, casting="unsafe")
            yield x
    except DataError as error:
        # The kinds are those of training: there are none to be passed here.
        raise DataError(str(error).partition("; pass kinds=")[0].removesuffix(".") + ".") from None


def _encode(cells: Cells, column: Column, where: Callable[[int], str]) -> np.ndarray:
    """One column as numbers [rows, k]: itself, or one for each of its classes."""
    name, classes, fill = column["name"], column.get("classes"), column.get("fill")

    def refuse(wrong: np.ndarray, why: str) -> None:
        if wrong.any():
            place = int(np.argmax(wrong))
            value = cells.values[place]
            shown = repr(value) if isinstance(value, str) else str(value)
            raise DataError(f"{where(place)}: column {name!r} holds {shown}, {why}.")

    if fill is None and cells.missing.any():
        place = where(int(np.argmax(cells.missing)))
        raise DataError(f"{place}: column {name!r} is missing, as it never was in training: fill it in.")
    known = ~cells.missing
    if classes is not None:
        number = {word(value): i for i, value in enumerate(classes)}
        codes = np.array([number.get(found, -1) for found in words(cells)], np.int64)
        refuse(known & (codes < 0), f"none of its {len(classes)} classes in training")
        codes[cells.missing] = number.get(word(fill), -1)
        return codes[:, None] == np.arange(len(classes))
    if cells.kind == "text":
        refuse(known, "where a number is expected")
        return np.full((len(known), 1), fill, np.float64)
    if column.get("boolean"):
        refuse(known & (cells.values != 0) & (cells.values != 1), "where true or false is expected")
    refuse(known & ~(np.abs(cells.values) <= _LARGEST), "which is not finite in 32-bit floats")
    return np.where(known, cells.values, 0 if fill is None else fill)[:, None]


def _is_array(path: Path) -> bool:
    return path.is_dir() or path.suffix.lower() in (".npz", ".npy")


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def _array_names(path: Path) -> list[str]:
    if path.suffix.lower() != ".npz":
        return sorted(file.stem for file in ([path] if path.is_file() else path.glob("*.npy")))
    try:
        with zipfile.ZipFile(path) as file:
            return [name.removesuffix(".npy") for name in file.namelist() if name.endswith(".npy")]
    except Exception as error:  # zipfile has half a dozen kinds
        raise DataError(f"{path} is truncated or corrupt ({error}): get it again.") from error


def _open(path: Path, block_rows: int, *, wanted: Any = None, categories: Sequence[str] = ()) -> Table:
    if path.is_file() and path.suffix.lower() == ".npy":  # one of a folder of them
        return open_table(path.parent, block_rows=block_rows, wanted=[path.stem])
    return open_table(path, block_rows=block_rows, wanted=wanted, categories=categories)


def _count(path: Path, column: str) -> int:
    if path.suffix.lower() == ".parquet":
        return need("pyarrow.parquet").read_metadata(path).num_rows
    if not _is_array(path):
        with path.open("rb") as file:
            return max(sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 16), b"")) - 1, 0)
    member = f"{column.partition('[')[0]}.npy"
    is_zip = path.suffix.lower() == ".npz"
    plain = path / member if path.is_dir() else path
    with contextlib.ExitStack() as stack:
        archive = stack.enter_context(zipfile.ZipFile(path)) if is_zip else None
        file = stack.enter_context(plain.open("rb") if archive is None else archive.open(member))
        first = np.lib.format.read_magic(file) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        return read(file)[0][0]
