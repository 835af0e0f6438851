"""Tables read in blocks of rows: CSV, Parquet, DataFrame; arrays have a file of their own."""

import csv
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privjax.datasets.array_files import array_table
from privjax.datasets.blocks import Block, Table, check_names, row_namer
from privjax.datasets.cells import guess_kind, read_words, typed_cells
from privjax.datasets.errors import DataError
from privjax.extras import need

_PADDED = re.compile(r"\s*[+-]?0\d+\s*")


def open_table(
    source: Any,
    *,
    block_rows: int,
    categories: Sequence[str] = (),
    labels: Sequence[str] = (),
    wanted: Sequence[str] | None = None,
    delimiter: str | None = None,
) -> Table:
    """Opens a user's table.

    Args:
      source: A path (``.csv``, ``.tsv``, ``.txt``, ``.parquet``, ``.npz``, a folder of ``.npy``)
        or a pandas DataFrame.
      block_rows: Rows held in memory at a time.
      categories: Columns to be read as text whatever they look like.
      labels: Columns whose whole numbers are names: in a CSV 007 and 7 are two of them.
      wanted: The arrays of an NPZ or a folder, or the columns of a Parquet file, that are used; by
        default all.
      delimiter: Of a CSV; by default the likeliest of comma, semicolon and tab.

    Returns:
      The table.
    """
    if block_rows < 1:
        raise ValueError(f"block_rows must be at least 1, got {block_rows}.")
    if hasattr(source, "columns") and hasattr(source, "iloc"):
        return _frame_table(source, block_rows)
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"source must be a path or a DataFrame, got {type(source).__name__}.")
    path = Path(source).expanduser()
    if not path.exists():
        raise DataError(f"{path} does not exist.")
    ending = path.suffix.lower()
    if path.is_dir() or ending == ".npz":
        return array_table(path, block_rows, wanted)
    if ending == ".parquet":
        return _parquet_table(path, block_rows, wanted)
    if ending in (".csv", ".tsv", ".txt"):
        return _csv_table(path, block_rows, frozenset(categories), frozenset(labels), delimiter)
    raise DataError(f"{path} is not a CSV, Parquet or NPZ file or a folder of npy files.")


def _csv_table(
    path: Path, block_rows: int, categories: frozenset, labels: frozenset, delimiter: str | None
) -> Table:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as handle:
        first = handle.readline()
        if not first.strip():
            raise DataError(f"{path}, line 1: the names of the columns are missing.")
        if "\ufffd" in first:
            raise DataError(f"{path}, line 1: not UTF-8 text.")
        mark = delimiter or max(",;\t", key=first.count)
        try:  # a name in quotes may go on in the next line
            header = next(csv.reader(itertools.chain([first], handle), delimiter=mark, strict=True))
        except csv.Error as error:
            raise DataError(f"{path}, line 1: {error}.") from error
    columns = tuple(name.strip() for name in header)
    check_names(str(path), columns)

    def blocks() -> Iterator[Block]:
        kinds: dict[str, str] = {name: "text" for name in columns if name in categories}
        for rows, lines in _csv_rows(path, mark, len(columns), block_rows):

            def where(place: int, lines=lines) -> str:
                return f"{path}, line {lines[place]}"

            cells = {}
            for name, words in zip(columns, zip(*rows, strict=True), strict=True):
                padded = (
                    _padded(words) if name in labels and kinds.get(name, "integer") == "integer" else None
                )
                if name not in kinds and (kind := guess_kind(list(words))):
                    kinds[name] = kind if padded is None else "text"
                elif padded is not None:
                    raise DataError(
                        f"{where(padded)}: {words[padded]!r} in column {name!r} begins with a zero, which "
                        f"a number does not keep: pass kinds={{{name!r}: 'category'}} if it holds names."
                    )
                cells[name] = read_words(list(words), kinds.get(name, "float"), name, where)
            yield Block(cells, where, len(rows))

    return Table(str(path), columns, blocks)


def _padded(words: Sequence[str]) -> int | None:
    """The place of the first whole number that begins with a zero, as names do."""
    return next((place for place, word in enumerate(words) if _PADDED.fullmatch(word)), None)


def _csv_rows(path: Path, mark: str, width: int, block_rows: int):
    rows: list[list[str]] = []
    lines: list[int] = []
    with path.open(encoding="utf-8-sig", newline="") as handle:
        reader = csv.reader(handle, delimiter=mark, strict=True)
        try:
            next(reader)
            for row in reader:
                if not row:
                    continue
                if len(row) != width:
                    raise DataError(
                        f"{path}, line {reader.line_num}: {len(row)} columns where {width} are expected."
                    )
                rows.append(row)
                lines.append(reader.line_num)
                if len(rows) == block_rows:
                    yield rows, lines
                    rows, lines = [], []
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: {error}.") from error
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, after line {reader.line_num}: not UTF-8 text.") from error
    if rows:
        yield rows, lines


def _parquet_table(path: Path, block_rows: int, wanted: Sequence[str] | None) -> Table:
    parquet = need("pyarrow.parquet")
    broken = (OSError, need("pyarrow").ArrowException)
    try:
        with parquet.ParquetFile(path) as file:
            columns = tuple(file.schema_arrow.names)
            coded = _coded_in(file.schema_arrow)
    except Exception as error:  # pyarrow has its own tree of errors
        raise DataError(f"{path} is truncated or corrupt ({error}): get it again.") from error
    check_names(str(path), columns)
    used = [name for name in columns if wanted is None or name in set(wanted)]

    def blocks() -> Iterator[Block]:
        start = 0
        try:
            with parquet.ParquetFile(path, page_checksum_verification=True) as file:
                for batch in file.iter_batches(batch_size=block_rows, columns=used):
                    arrays = [_arrow_values(column) for column in batch.columns]
                    cells = {
                        name: typed_cells(values, name) for name, values in zip(used, arrays, strict=True)
                    }
                    yield Block(cells, row_namer(str(path), start), batch.num_rows)
                    start += batch.num_rows
        except broken as error:
            raise DataError(f"{path} is truncated or corrupt ({error}): get it again.") from error

    return Table(str(path), columns, blocks, coded)


def _coded_in(schema: Any) -> tuple[str, ...]:
    """The columns of whole numbers that a file calls categories: as a dictionary, or by pandas' own note."""
    types = need("pyarrow.types")
    noted = (schema.pandas_metadata or {}).get("columns", [])
    named = {column.get("name") for column in noted if column.get("pandas_type") == "categorical"}
    return tuple(
        field.name
        for field in schema
        if types.is_integer(getattr(field.type, "value_type", field.type))
        and (types.is_dictionary(field.type) or field.name in named)
    )


def _arrow_values(column) -> np.ndarray:
    if hasattr(column, "dictionary_decode"):
        column = column.dictionary_decode()
    # With nulls, booleans and integers keep their type only as objects.
    if column.null_count and str(column.type) not in ("float", "double", "halffloat"):
        return np.array(column.to_pylist(), dtype=object)
    return column.to_numpy(zero_copy_only=False)


def _frame_table(frame: Any, block_rows: int) -> Table:
    columns = tuple(str(name) for name in frame.columns)
    check_names("the DataFrame", columns)

    def blocks() -> Iterator[Block]:
        for start in range(0, len(frame), block_rows):
            part = frame.iloc[start : start + block_rows]
            cells = {
                name: typed_cells(_series_values(part.iloc[:, place]), name)
                for place, name in enumerate(columns)
            }
            yield Block(cells, row_namer("the DataFrame", start), len(part))

    coded = tuple(n for n, dtype in zip(columns, frame.dtypes, strict=True) if _is_coded(dtype))
    return Table("the DataFrame", columns, blocks, coded)


def _is_coded(dtype: Any) -> bool:
    categories = getattr(dtype, "categories", None)
    return categories is not None and categories.dtype.kind in "iu"


def _series_values(series: Any) -> np.ndarray:
    # Extension types (nullable, categorical, string) are only safe as objects.
    return series.to_numpy() if isinstance(series.dtype, np.dtype) else series.to_numpy(object)
