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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from privjax.datasets.columns import Cells, Column, Place, encode, parse_cells, typed_cells
from privjax.datasets.published import refuse_damaged
from privjax.datasets.splits import DataError
from privjax.extras import import_optional

ALL = 1 << 40  # rows in the block that holds a whole table
_MOST_CELLS = 1 << 19  # in a block of `open_rows`
_MOST_UNPACKED = 1 << 30  # bytes of a compressed array, unless it unpacks to less than 100 times its size

_Blocks = Iterator[Sequence[Any]]  # columns, block by block


class Source(NamedTuple):
    """A table that can be read more than once."""

    label: str  # in errors
    groups: tuple[tuple[str, ...], ...]  # names of the columns; of arrays, those of each array
    read: Callable[[Sequence[str], int], _Blocks]  # some columns, in blocks of at most so many rows
    num_rows: Callable[[str], int]  # of a column; of a CSV, the number of lines
    place: Place  # names a row in errors
    kind: str = "typed"  # or "arrays", or "text", in which the kinds of the columns must be inferred
    coded: frozenset[str] = frozenset()  # columns of whole numbers that the table marks as categories

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns."""
        return tuple(name for group in self.groups for name in group)

    def blocks(
        self, names: Sequence[str], block_rows: int, *, kinds: Mapping[str, str], padded: Sequence[str] = ()
    ) -> Iterator[tuple[Place, dict[str, Cells]]]:
        """Yield the cells of each block, and a function that names its rows in errors.

        In a text file, `kinds` are the known kinds of columns; in the columns `padded`, whole numbers
        with leading zeros are names.
        """
        start = 0
        for arrays in self.read(names, block_rows):

            def place(row: int, start: int = start) -> str:
                return self.place(start + row)

            cells = dict(zip(names, arrays, strict=True))
            for name, values in cells.items():
                if self.kind == "text":
                    cells[name] = parse_cells(values, name, kinds.get(name), place, padded=name in padded)
                else:
                    cells[name] = typed_cells(values, name)
            yield place, cells
            start += len(arrays[0])


def open_source(source: Any, *, delimiter: str | None = None) -> Source:
    """Open a table without reading its rows; the delimiter of a CSV is guessed for None."""
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


def _frame_source(frame: Any) -> Source:
    label = "the DataFrame"
    names = _check_names(label, [str(name) for name in frame.columns])

    def read(wanted: Sequence[str], block_rows: int) -> _Blocks:
        yield [frame.iloc[:, names.index(name)] for name in wanted]

    categories = [getattr(dtype, "categories", None) for dtype in frame.dtypes]
    coded = [n for n, c in zip(names, categories, strict=True) if c is not None and c.dtype.kind in "iu"]
    return Source(label, (names,), read, lambda _: len(frame), _rows_of(label), coded=frozenset(coded))


def _parquet_source(path: Path) -> Source:
    label, parquet = str(path), import_optional("pyarrow.parquet")
    with refuse_damaged(label), parquet.ParquetFile(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows

    def read(wanted: Sequence[str], block_rows: int) -> _Blocks:
        with refuse_damaged(label), parquet.ParquetFile(path, page_checksum_verification=True) as file:
            batches = file.iter_batches(min(block_rows, 1 << 20), columns=list(wanted))
            yield from _rechunk(batches, wanted, block_rows)

    names = _check_names(label, schema.names)
    return Source(label, (names,), read, lambda _: rows, _rows_of(label), coded=_coded_in(schema))


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

    def read(wanted: Sequence[str], block_rows: int) -> _Blocks:
        # pyarrow reads dozens of blocks ahead. With one thread, its errors name the row.
        size = max(1 << 22 if block_rows == ALL else 1 << 17, 16 * length)
        reading = arrow_csv.ReadOptions(
            column_names=names, skip_rows_after_names=1, block_size=size, use_threads=False
        )
        converting = arrow_csv.ConvertOptions(column_types=text, include_columns=list(wanted))
        with refuse_damaged(str(path)):
            try:
                with arrow_csv.open_csv(str(path), reading, parsing, converting) as reader:
                    yield from _rechunk(reader, wanted, block_rows)
            except pa.ArrowException as error:
                _refuse_csv_fault(path, mark, str(error))
                raise

    def count(_: str) -> int:
        with _binary(path) as file:
            parts = iter(lambda: file.read(1 << 14), b"")
            return max(sum(part.count(b"\n") for part in parts) - 1, 0)

    def place(row: int) -> str:
        return f"{path}, line {_line_of(path, mark, row + 1)}"

    return Source(str(path), (names,), read, count, place, kind="text")


def _csv_header(path: Path, delimiter: str | None) -> tuple[tuple[str, ...], str, int]:
    """Return the names of the columns, the delimiter, and the length of the first line."""
    line = f"{path}, line 1"
    with refuse_damaged(str(path)), _text(path) as file:  # a .gz may be damaged
        first = file.readline()
        mark = delimiter or max(",;\t", key=first.count)
        try:
            # A quoted name may go on in the next line.
            header = next(csv.reader(itertools.chain([first], file), delimiter=mark, strict=True), [])
        except (csv.Error, TypeError) as error:
            raise DataError(f"{line}: {error}.") from error
        is_empty = not file.read(1)
    if "\ufffd" in first:
        raise DataError(f"{line}: not UTF-8 text.")
    if not any(header):
        raise DataError(f"{line}: the names of the columns are missing.")
    if is_empty and first[-1] not in "\r\n":  # which pyarrow takes for an incomplete row
        raise DataError(f"{path} has no rows.")
    return _check_names(str(path), [name.strip() for name in header]), mark, len(first)


def _rechunk(batches: Iterable[Any], names: Sequence[str], rows: int) -> _Blocks:
    """Yield the columns of record batches in blocks of so many rows."""
    pa, pending = import_optional("pyarrow"), []
    for batch in itertools.chain(batches, [None]):
        pending += [batch] if batch is not None else []
        while pending and (batch is None or sum(part.num_rows for part in pending) >= rows):
            table = pa.Table.from_batches(pending)
            yield [table.column(name).slice(0, rows).combine_chunks() for name in names]
            pending = table.slice(rows).to_batches()


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


def _refuse_csv_fault(path: Path, mark: str, message: str) -> None:
    """Refuse the faults that pyarrow finds, with their line."""
    row = re.search(r"Row #(\d+): ", message)
    where = f"{path}, line {_line_of(path, mark, int(row[1]) - 1)}" if row else str(path)
    if shape := re.search(r"Expected (\d+) columns, got (\d+)", message):
        raise DataError(f"{where}: {shape[2]} columns where {shape[1]} are expected.")
    if "UTF8" in message:
        raise DataError(f"{where}: not UTF-8 text.")


class _Array(NamedTuple):
    """An npy file, which may be the member of a zip."""

    label: str
    open: Callable[[], IO[bytes]]
    shape: tuple[int, ...]
    dtype: np.dtype
    start: int  # of the numbers

    @property
    def columns(self) -> int:
        return math.prod(self.shape[1:])


def _array_source(path: Path) -> Source:
    """Open arrays of equal length side by side; a matrix is one column per entry: `x[0]`, `x[1]`."""
    arrays: dict[str, _Array] = {}
    errors: dict[str, DataError] = {}  # raised when the array is used
    for name, size, opened in _array_files(path):
        try:
            arrays[name] = _open_array(f"{path}: {name}", size, opened)
        except DataError as error:
            errors[name] = error
    if not arrays:
        raise next(iter(errors.values()), DataError(f"{path} holds no arrays."))
    groups: dict[str, tuple[str, ...]] = {name: (name,) for name in errors}
    for name, array in arrays.items():
        groups[name] = (name,) if array.columns == 1 else tuple(f"{name}[{i}]" for i in range(array.columns))
    columns = {column: (name, i) for name, group in groups.items() for i, column in enumerate(group)}
    _check_names(str(path), [column for group in groups.values() for column in group])

    def read(wanted: Sequence[str], block_rows: int) -> _Blocks:
        used = dict.fromkeys(columns[column][0] for column in wanted)
        for name in used:
            if name in errors:
                raise errors[name]
        rows = {name: arrays[name].shape[0] for name in used}
        if len(set(rows.values())) > 1:
            raise DataError(f"{path}: the arrays differ in length: {rows}.")
        for parts in zip(*(_array_blocks(arrays[name], block_rows) for name in used), strict=True):
            flat = {name: np.ascontiguousarray(part.T) for name, part in zip(used, parts, strict=True)}
            yield [flat[name][i] for name, i in map(columns.__getitem__, wanted)]

    def count(column: str) -> int:
        return arrays[columns[column][0]].shape[0]

    return Source(str(path), tuple(groups.values()), read, count, _rows_of(str(path)), kind="arrays")


def _array_files(path: Path) -> Iterator[tuple[str, int, Callable[[], IO[bytes]]]]:
    """Yield the name and size of each npy file, and a function that opens it."""
    if path.suffix.lower() != ".npz":
        for file in sorted(path.glob("*.npy")) if path.is_dir() else [path]:
            yield file.stem, file.stat().st_size, functools.partial(file.open, "rb")
        return
    with refuse_damaged(str(path)), zipfile.ZipFile(path) as archive:
        entries = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    for info in entries:
        if info.file_size > max(_MOST_UNPACKED, 100 * info.compress_size):
            size = f"{info.file_size} bytes from {info.compress_size}"
            raise DataError(f"{path}: {info.filename} unpacks to {size}: save it without compression.")
        yield info.filename.removesuffix(".npy"), info.file_size, functools.partial(_open_entry, path, info)


def _open_entry(path: Path, info: zipfile.ZipInfo) -> IO[bytes]:
    with zipfile.ZipFile(path) as archive:  # the file is closed together with the entry
        return archive.open(info)


def _open_array(label: str, size: int, opened: Callable[[], IO[bytes]]) -> _Array:
    with refuse_damaged(label), opened() as file:
        first = np.lib.format.read_magic(file) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        start = file.tell()
    if dtype.hasobject:
        raise DataError(f"{label} holds Python objects, which are refused.")
    if not shape:
        raise DataError(f"{label} is a single number, not one value per row.")
    # A damaged header may claim any size, and nothing is allocated before this check.
    if min(shape) < 0 or math.prod(shape) * dtype.itemsize != size - start:
        raise DataError(f"{label} is truncated or corrupt: {size - start} bytes do not make {shape}.")
    if fortran and len(shape) > 1:
        raise DataError(f"{label} is stored column by column: save it in C order.")
    return _Array(label, opened, shape, dtype, start)


def _array_blocks(array: _Array, block_rows: int) -> Iterator[np.ndarray]:
    """Yield rows `[b, columns]` straight from the file, compressed or not."""
    native = np.dtype(np.float64) if array.dtype.kind == "f" else array.dtype.newbyteorder("=")
    with refuse_damaged(array.label), array.open() as file:
        file.read(array.start)
        for start in range(0, array.shape[0], block_rows):
            count = min(block_rows, array.shape[0] - start) * array.columns
            values = np.frombuffer(file.read(count * array.dtype.itemsize), array.dtype, count)
            yield values.astype(native, copy=False).reshape(-1, array.columns)


class Rows(NamedTuple):
    """Rows of x from a file: float32 blocks `[b, width]`, of which memory holds one, and their number."""

    blocks: Iterator[np.ndarray]
    total: int  # of a CSV, the number of its lines


def open_rows(
    path: Path,
    width: int,
    *,
    columns: Sequence[Column] | None = None,
    names: Sequence[str] | None = None,
    block_rows: int = 65536,
) -> Rows:
    """Open a file of rows of x to be released, in their own units; other columns are not read.

    The `columns` of x are found by name, and so are the `names` of columns whose encoding is not known,
    if the file has any of them. Otherwise x is the one table or array of its width.
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
