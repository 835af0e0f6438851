"""NPZ files and folders of npy files as tables, streamed row by row."""

import contextlib
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from privjax.datasets.blocks import Block, Table, check_names, row_namer
from privjax.datasets.cells import typed_cells
from privjax.datasets.errors import DataError


def array_table(path: Path, block_rows: int, wanted: Sequence[str] | None) -> Table:
    """Arrays of equal length side by side; a matrix is one column per entry: ``x[0]``, ``x[1]``.

    Args:
      path: An NPZ file, or a folder of npy files.
      block_rows: Rows held in memory at a time.
      wanted: The arrays that are used; by default all.

    Returns:
      The table.
    """
    arrays = _array_headers(path, wanted)
    rows = {name: shape[0] for name, (shape, _) in arrays.items()}
    if not rows:
        raise DataError(f"{path} holds no arrays.")
    if len(set(rows.values())) > 1:
        raise DataError(f"{path}: the arrays differ in length: {rows}.")
    widths = {name: math.prod(shape[1:]) for name, (shape, _) in arrays.items()}
    columns = tuple(
        name if widths[name] == 1 else f"{name}[{i}]" for name in arrays for i in range(widths[name])
    )
    check_names(str(path), columns)

    def blocks() -> Iterator[Block]:
        streams = [_array_blocks(path, name, block_rows) for name in arrays]
        start = 0
        for parts in zip(*streams, strict=True):
            flat = [part.reshape(len(part), -1).T for part in parts]
            values = [column for part in flat for column in part]
            cells = {n: typed_cells(v, n) for n, v in zip(columns, values, strict=True)}
            yield Block(cells, row_namer(str(path), start), len(parts[0]))
            start += len(parts[0])

    return Table(str(path), columns, blocks)


def _array_headers(path: Path, wanted: Sequence[str] | None) -> dict[str, tuple[tuple[int, ...], Any]]:
    headers = {}
    names = _array_names(path)
    for name in wanted or ():
        if name.partition("[")[0] not in names:
            raise DataError(f"{path} has no array {name!r}.")
    for name in names:
        if wanted is not None and name not in {w.partition("[")[0] for w in wanted}:
            continue
        with _array_file(path, name) as handle:
            shape, _, dtype = _read_header(path, name, handle)
            there = _length(path, name) - handle.tell()
        if not shape:
            raise DataError(f"{path}: {name} is a single number, not one value per row.")
        # Before anything is made of a size that a damaged header may have invented.
        if min(shape) < 0 or math.prod(shape) * dtype.itemsize != there:
            raise DataError(f"{path}: {name} is truncated or corrupt: {there} bytes do not make {shape}.")
        if 0 in shape[1:]:
            raise DataError(f"{path}: {name} of shape {shape} has no columns.")
        headers[name] = (shape, dtype)
    return headers


def _array_names(path: Path) -> list[str]:
    if path.is_dir():
        return sorted(file.stem for file in path.glob("*.npy"))
    try:
        with zipfile.ZipFile(path) as file:
            return [n.removesuffix(".npy") for n in file.namelist() if n.endswith(".npy")]
    except Exception as error:  # zipfile has half a dozen kinds
        raise DataError(f"{path} is truncated or corrupt ({error}): get it again.") from error


@contextlib.contextmanager
def _array_file(path: Path, name: str) -> Iterator[IO[bytes]]:
    with contextlib.ExitStack() as stack:
        try:
            if path.is_dir():
                handle = stack.enter_context((path / f"{name}.npy").open("rb"))
            else:
                archive = stack.enter_context(zipfile.ZipFile(path))
                handle = stack.enter_context(archive.open(f"{name}.npy"))
        except Exception as error:  # a damaged, encrypted or oddly compressed zip: each its own kind
            raise DataError(f"{path}: {name} is truncated or corrupt ({error}).") from error
        yield handle


def _length(path: Path, name: str) -> int:
    if path.is_dir():
        return (path / f"{name}.npy").stat().st_size
    with zipfile.ZipFile(path) as file:
        return file.getinfo(f"{name}.npy").file_size


def _read_header(path: Path, name: str, handle: Any) -> tuple[Any, bool, Any]:
    try:
        version = np.lib.format.read_magic(handle)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(handle)
    except (ValueError, KeyError, EOFError) as error:
        raise DataError(f"{path}: {name} is not a sound npy array ({error}).") from error
    except (zipfile.BadZipFile, zlib.error, OSError) as error:
        raise DataError(f"{path}: {name} is truncated or corrupt ({error}).") from error
    if dtype.hasobject:
        raise DataError(f"{path}: {name} holds Python objects, which are refused.")
    return shape, fortran, dtype


def _array_blocks(path: Path, name: str, block_rows: int) -> Iterator[np.ndarray]:
    """Rows straight from the file, compressed or not, without ever holding the whole array."""
    with _array_file(path, name) as handle:
        shape, fortran, dtype = _read_header(path, name, handle)
        rows, inner = shape[0], shape[1:]
        if fortran and inner:
            raise DataError(f"{path}: {name} is stored column by column: save it in C order.")
        per_row = math.prod(inner) * dtype.itemsize
        for start in range(0, rows, block_rows):
            count = min(block_rows, rows - start)
            try:
                data = handle.read(count * per_row)
            except Exception as error:  # zlib, zipfile and the system, each with its own
                raise DataError(f"{path}: {name} is truncated or corrupt ({error}).") from error
            if len(data) != count * per_row:
                raise DataError(f"{path}: {name} is truncated in row {start}.")
            yield np.frombuffer(data, dtype=dtype).reshape(count, *inner)
