"""Tables read in blocks of rows: CSV, Parquet, NPZ and npy files, and DataFrames."""

import collections
import contextlib
import csv
import functools
import gzip
import io
import itertools
import math
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from privjax.datasets.columns import Cells, Column, Place, encode, parse_cells, typed_cells
from privjax.datasets.splits import DataError
from privjax.extras import import_optional

_ALL = 1 << 40  # rows in the block that holds a whole table
_MOST_CELLS = 1 << 19  # in a block of `open_rows`
_MOST_UNPACKED = 1 << 30  # bytes of a compressed array, unless it unpacks to less than 100 times its size

Read = Callable[[Sequence[str], int | None], Iterator[Sequence[Any]]]


class Source(NamedTuple):
    """A table that can be read more than once.

    Attributes:
      label: Name of the table in errors.
      groups: Names of the columns; of arrays, those of each array.
      read: Yields some columns in blocks of at most so many rows, or in the largest blocks for None.
      num_rows: Returns the number of rows of a column; of a CSV, the number of lines.
      place: Names a row in errors.
      kind: `"text"` (the kinds of the columns must be inferred), `"typed"` or `"arrays"`.
      coded: Columns of whole numbers that the table marks as categories.
    """

    label: str
    groups: tuple[tuple[str, ...], ...]
    read: Read
    num_rows: Callable[[str], int]
    place: Place
    kind: str = "typed"
    coded: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns."""
        return tuple(name for group in self.groups for name in group)

    def blocks(
        self,
        names: Sequence[str],
        block_rows: int | None = None,
        *,
        kinds: Mapping[str, str],
        padded_names: Sequence[str] = (),
    ) -> Iterator[tuple[Place, dict[str, Cells]]]:
        """Yield the cells of each block, and a function that names its rows in errors.

        Args:
          names: Columns to read.
          block_rows: Rows in a block, at most; None for the largest blocks.
          kinds: Known kinds of the columns of a text file; the others are inferred.
          padded_names: Columns of a text file in which whole numbers with leading zeros are names.
        """
        start = 0
        for arrays in self.read(names, block_rows):

            def place(row: int, start: int = start) -> str:
                return self.place(start + row)

            cells = {}
            for name, values in zip(names, arrays, strict=True):
                if self.kind == "text":
                    padded = name in padded_names
                    cells[name] = parse_cells(values, name, kinds.get(name), place, padded_names=padded)
                else:
                    cells[name] = typed_cells(values, name)
            yield place, cells
            start += len(arrays[0])


def open_source(source: Any, *, delimiter: str | None = None) -> Source:
    """Open a table without reading its rows.

    Args:
      source: A CSV (`.csv`, `.tsv`, `.txt`, also `.gz`), Parquet, NPZ or npy file, a folder of npy
        files, or a pandas DataFrame.
      delimiter: Delimiter of a CSV; by default the likeliest of comma, semicolon and tab.
    """
    if hasattr(source, "columns") and hasattr(source, "iloc"):
        return _frame_source(source)
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"source must be a path or a DataFrame, got {type(source).__name__}.")
    path = Path(source).expanduser()
    if not path.exists():
        raise DataError(f"{path} does not exist.")
    ending = path.suffix.lower()
    if path.is_dir() or ending in (".npz", ".npy"):
        return _array_source(path)
    if ending == ".parquet":
        return _parquet_source(path)
    if (Path(path.stem).suffix.lower() if ending == ".gz" else ending) in (".csv", ".tsv", ".txt"):
        return _csv_source(path, delimiter)
    raise DataError(f"{path} is not a CSV, Parquet or NPZ file or a folder of npy files.")


def _check_names(label: str, names: Sequence[str]) -> tuple[str, ...]:
    if not all(names):
        raise DataError(f"{label}: a column has no name.")
    for name, count in collections.Counter(names).items():
        if count > 1:
            raise DataError(f"{label}: two columns are named {name!r}.")
    return tuple(names)


def _rows_of(label: str) -> Place:
    return lambda row: f"{label}, row {row}"


def _corrupt(what: str, error: object) -> DataError:
    found = str(error).partition("\n")[0].rstrip(".")
    return DataError(f"{what} is truncated or corrupt ({found}): get it again.")


def _frame_source(frame: Any) -> Source:
    label = "the DataFrame"
    names = _check_names(label, [str(name) for name in frame.columns])

    def read(wanted: Sequence[str], block_rows: int | None) -> Iterator[Sequence[Any]]:
        places = [names.index(name) for name in wanted]
        step = block_rows or _ALL
        for start in range(0, len(frame), step):
            yield [frame.iloc[start : start + step, place] for place in places]

    categories = [getattr(dtype, "categories", None) for dtype in frame.dtypes]
    coded = [n for n, c in zip(names, categories, strict=True) if c is not None and c.dtype.kind in "iu"]
    return Source(label, (names,), read, lambda _: len(frame), _rows_of(label), coded=frozenset(coded))


def _parquet_source(path: Path) -> Source:
    pa, parquet = import_optional("pyarrow"), import_optional("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
    except Exception as error:  # pyarrow raises errors of its own, of the system and of decoding
        raise _corrupt(str(path), error) from error
    names = _check_names(str(path), schema.names)

    def read(wanted: Sequence[str], block_rows: int | None) -> Iterator[Sequence[Any]]:
        try:
            with parquet.ParquetFile(path, page_checksum_verification=True) as file:
                for batch in file.iter_batches(block_rows or 1 << 20, columns=list(wanted)):
                    yield [batch.column(name) for name in wanted]
        except (OSError, pa.ArrowException) as error:
            raise _corrupt(str(path), error) from error

    return Source(str(path), (names,), read, lambda _: rows, _rows_of(str(path)), coded=_coded_in(schema))


def _coded_in(schema: Any) -> frozenset[str]:
    """Return the columns of whole numbers marked as categories: dictionaries, or by a note of pandas."""
    types = import_optional("pyarrow.types")
    notes = (schema.pandas_metadata or {}).get("columns", [])
    noted = {note.get("name") for note in notes if note.get("pandas_type") == "categorical"}
    return frozenset(
        field.name
        for field in schema
        if types.is_integer(getattr(field.type, "value_type", field.type))
        and (types.is_dictionary(field.type) or field.name in noted)
    )


def _csv_source(path: Path, delimiter: str | None) -> Source:
    pa, arrow_csv = import_optional("pyarrow"), import_optional("pyarrow.csv")
    names, mark, length = _csv_header(path, delimiter)
    parsing = arrow_csv.ParseOptions(delimiter=mark, newlines_in_values=True)
    text = dict.fromkeys(names, pa.large_string())

    def read(wanted: Sequence[str], block_rows: int | None) -> Iterator[Sequence[Any]]:
        # pyarrow reads dozens of blocks ahead. With one thread, its errors name the row.
        size = max(1 << 17 if block_rows else 1 << 22, 16 * length)
        reading = arrow_csv.ReadOptions(
            column_names=names, skip_rows_after_names=1, block_size=size, use_threads=False
        )
        converting = arrow_csv.ConvertOptions(column_types=text, include_columns=list(wanted))
        try:
            with arrow_csv.open_csv(str(path), reading, parsing, converting) as reader:
                yield from _rechunk(reader, block_rows or _ALL)
        except (OSError, pa.ArrowException) as error:
            raise _csv_fault(path, mark, str(error)) from error

    def count(_: str) -> int:
        with _binary(path) as file:
            parts = iter(lambda: file.read(1 << 14), b"")
            return max(sum(part.count(b"\n") for part in parts) - 1, 0)

    def place(row: int) -> str:
        return f"{path}, line {_line_of(path, mark, row + 1)}"

    return Source(str(path), (names,), read, count, place, kind="text")


def _csv_header(path: Path, delimiter: str | None) -> tuple[tuple[str, ...], str, int]:
    """Return the names of the columns, the delimiter, and the length of the first line."""
    try:
        with _text(path) as file:
            first = file.readline()
            mark = delimiter or max(",;\t", key=first.count)
            # A quoted name may go on in the next line.
            header = next(csv.reader(itertools.chain([first], file), delimiter=mark, strict=True), [])
            is_empty = not file.read(1)
    except csv.Error as error:
        raise DataError(f"{path}, line 1: {error}.") from error
    except (OSError, EOFError, zlib.error) as error:  # of a .gz
        raise _corrupt(str(path), error) from error
    if "\ufffd" in first:
        raise DataError(f"{path}, line 1: not UTF-8 text.")
    if not any(header):
        raise DataError(f"{path}, line 1: the names of the columns are missing.")
    if is_empty and first[-1] not in "\r\n":  # which pyarrow takes for an incomplete row
        raise DataError(f"{path} has no rows.")
    return _check_names(str(path), [name.strip() for name in header]), mark, len(first)


def _rechunk(batches: Iterable[Any], rows: int) -> Iterator[Sequence[Any]]:
    """Yield the columns of record batches in blocks of so many rows."""
    pa, pending = import_optional("pyarrow"), []
    for batch in batches:
        pending.append(batch)
        while sum(part.num_rows for part in pending) >= rows:
            table = pa.Table.from_batches(pending)
            yield [column.combine_chunks() for column in table.slice(0, rows).columns]
            pending = table.slice(rows).to_batches()
    if pending:
        yield [column.combine_chunks() for column in pa.Table.from_batches(pending).columns]


def _binary(path: Path) -> Any:
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")


def _text(path: Path) -> io.TextIOWrapper:
    return io.TextIOWrapper(_binary(path), encoding="utf-8-sig", errors="replace", newline="")


def _line_of(path: Path, mark: str, row: int) -> int:
    """Return the line in which a row of a CSV ends; row 0 is the header, and blank lines are no rows."""
    with _text(path) as file, contextlib.suppress(csv.Error):
        reader = csv.reader(file, delimiter=mark)
        lines = (reader.line_num for cells in reader if cells)
        return next(itertools.islice(lines, row, None), row + 1)
    return row + 1


def _csv_fault(path: Path, mark: str, message: str) -> DataError:
    row = re.search(r"Row #(\d+): ", message)
    where = f"{path}, line {_line_of(path, mark, int(row[1]) - 1)}" if row else str(path)
    if shape := re.search(r"Expected (\d+) columns, got (\d+)", message):
        return DataError(f"{where}: {shape[2]} columns where {shape[1]} are expected.")
    return DataError(f"{where}: not UTF-8 text.") if "UTF8" in message else _corrupt(where, message)


class _Array(NamedTuple):
    """An npy file: shape and type of its array, the place of the first byte, and a function that opens it."""

    shape: tuple[int, ...]
    dtype: np.dtype
    start: int
    open: Callable[[], contextlib.AbstractContextManager[IO[bytes]]]

    @property
    def width(self) -> int:
        return math.prod(self.shape[1:])


def _array_source(path: Path) -> Source:
    """Open arrays of equal length side by side; a matrix is one column per entry: `x[0]`, `x[1]`."""
    arrays: dict[str, _Array] = {}
    errors: dict[str, DataError] = {}  # raised when the array is used
    for name, (size, opened) in _array_files(path).items():
        try:
            arrays[name] = _read_header(f"{path}: {name}", size, opened)
        except DataError as error:
            errors[name] = error
    if not arrays:
        raise next(iter(errors.values()), DataError(f"{path} holds no arrays."))
    groups: dict[str, tuple[str, ...]] = {name: (name,) for name in errors}
    for name, array in arrays.items():
        groups[name] = (name,) if array.width == 1 else tuple(f"{name}[{i}]" for i in range(array.width))
    columns = {column: (name, i) for name, group in groups.items() for i, column in enumerate(group)}
    _check_names(str(path), [column for group in groups.values() for column in group])

    def read(wanted: Sequence[str], block_rows: int | None) -> Iterator[Sequence[Any]]:
        used = dict.fromkeys(columns[column][0] for column in wanted)
        for name in used:
            if name in errors:
                raise errors[name]
        rows = {name: arrays[name].shape[0] for name in used}
        if len(set(rows.values())) > 1:
            raise DataError(f"{path}: the arrays differ in length: {rows}.")
        streams = [_array_blocks(f"{path}: {name}", arrays[name], block_rows or _ALL) for name in used]
        for parts in zip(*streams, strict=True):
            flat = {name: np.ascontiguousarray(part.T) for name, part in zip(used, parts, strict=True)}
            yield [flat[name][i] for name, i in map(columns.__getitem__, wanted)]

    def count(column: str) -> int:
        return arrays[columns[column][0]].shape[0]

    return Source(str(path), tuple(groups.values()), read, count, _rows_of(str(path)), kind="arrays")


def _array_files(path: Path) -> dict[str, tuple[int, Any]]:
    """Return the size of each npy file by its name, and a function that opens it."""
    if path.is_dir() or path.suffix.lower() == ".npy":
        files = sorted(path.glob("*.npy")) if path.is_dir() else [path]
        return {file.stem: (file.stat().st_size, functools.partial(file.open, "rb")) for file in files}
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    except Exception as error:  # zipfile raises errors of half a dozen kinds
        raise _corrupt(str(path), error) from error
    for info in entries:
        if info.file_size > max(_MOST_UNPACKED, 100 * info.compress_size):
            size = f"{info.file_size} bytes from {info.compress_size}"
            raise DataError(f"{path}: {info.filename} unpacks to {size}: save it without compression.")
    return {
        info.filename.removesuffix(".npy"): (
            info.file_size,
            functools.partial(_unpacked, path, info.filename),
        )
        for info in entries
    }


@contextlib.contextmanager
def _unpacked(path: Path, name: str) -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(path) as archive, archive.open(name) as file:
        yield file


def _read_header(label: str, size: int, opened: Any) -> _Array:
    try:
        with opened() as file:
            first = np.lib.format.read_magic(file) == (1, 0)
            read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
            start = file.tell()
    except Exception as error:  # of NumPy, zipfile, zlib or the system
        raise _corrupt(label, error) from error
    if dtype.hasobject:
        raise DataError(f"{label} holds Python objects, which are refused.")
    if not shape:
        raise DataError(f"{label} is a single number, not one value per row.")
    # A damaged header may claim any size, and nothing is allocated before this check.
    if min(shape) < 0 or math.prod(shape) * dtype.itemsize != size - start:
        raise DataError(f"{label} is truncated or corrupt: {size - start} bytes do not make {shape}.")
    if 0 in shape[1:]:
        raise DataError(f"{label} of shape {shape} has no columns.")
    if fortran and len(shape) > 1:
        raise DataError(f"{label} is stored column by column: save it in C order.")
    return _Array(shape, dtype, start, opened)


def _array_blocks(label: str, array: _Array, block_rows: int) -> Iterator[np.ndarray]:
    """Yield rows `[b, width]` straight from the file, compressed or not."""
    native = np.dtype(np.float64) if array.dtype.kind == "f" else array.dtype.newbyteorder("=")
    try:
        with array.open() as file:
            file.read(array.start)
            for start in range(0, array.shape[0], block_rows):
                count = min(block_rows, array.shape[0] - start) * array.width
                values = np.frombuffer(file.read(count * array.dtype.itemsize), array.dtype, count)
                yield values.astype(native, copy=False).reshape(-1, array.width)
    except Exception as error:  # of NumPy, zipfile, zlib or the system
        raise _corrupt(label, error) from error


class Rows(NamedTuple):
    """Rows of x from a file.

    Attributes:
      blocks: Yields float32 `[b, width]`; memory holds one block.
      total: Number of rows; of a CSV, the number of its lines.
    """

    blocks: Iterator[np.ndarray]
    total: int


def open_rows(
    path: Path,
    width: int,
    *,
    columns: Sequence[Column] | None = None,
    names: Sequence[str] | None = None,
    block_rows: int = 65536,
) -> Rows:
    """Open a file of rows to be released, with or without labels; other columns are not read.

    Args:
      path: A CSV, Parquet, NPZ or npy file, or a folder of npy files.
      width: Numbers in a row of x.
      columns: Encoding of the columns of x, which are found by name.
      names: Names of the columns of x where their encoding is not known, which are found by name if
        the file has any of them. Otherwise x is the one table or array of its width.
      block_rows: Rows in memory at a time, at most.

    Returns:
      The rows, in their own units.
    """
    if block_rows < 1:
        raise ValueError(f"block_rows must be at least 1, got {block_rows}.")
    if columns is not None and sum(len(column.feature_names) for column in columns) != width:
        raise DataError(f"the columns of the encoder do not make rows of {width} numbers.")
    source = open_source(path)
    plain = [Column(name) for name in names or ()]
    asked = columns or (plain if len(plain) == width else [])
    chosen = _choose(source, width, asked, by_name=columns is not None)
    block_rows = max(1, min(block_rows, _MOST_CELLS // len(source.names)))
    return Rows(_encoded(source, chosen, block_rows), source.num_rows(chosen[0].name))


def _choose(source: Source, width: int, asked: Sequence[Column], *, by_name: bool) -> Sequence[Column]:
    """Return the columns that make x: by their names, or the group of columns of its width."""
    known = set(source.names)
    absent = [column.name for column in asked if column.name not in known]
    if asked and not absent:
        return asked
    if source.kind != "arrays" and (by_name or 0 < len(absent) < len(asked)):
        raise DataError(f"{source.label} has no column {absent[0]!r}.")
    fitting = [group for group in source.groups if len(group) == width]
    if len(fitting) != 1:
        have = ", ".join(str(len(group)) for group in source.groups)
        raise DataError(
            f"{source.label} has {have} columns where x has {width}: keep those of x, in its order."
        )
    if source.kind == "text" and all(re.fullmatch(r"[-+.\d]+(e[-+]?\d+)?", name) for name in fitting[0]):
        raise DataError(f"{source.label}, line 1: the names of the columns are missing.")
    return [Column(name) for name in fitting[0]]


def _encoded(source: Source, columns: Sequence[Column], block_rows: int) -> Iterator[np.ndarray]:
    kinds = {column.name: column.kind for column in columns}
    for place, cells in source.blocks(list(kinds), block_rows, kinds=kinds):
        for column in columns:
            if column.fill is None and cells[column.name].null_count:
                row = place(int(np.argmax(np.asarray(cells[column.name].is_null()))))
                raise DataError(
                    f"{row}: column {column.name!r} is missing, as it never was in training: fill it in."
                )
        yield np.concatenate([encode(cells[c.name], c, place) for c in columns], axis=1)
