"""Release a file of rows: raw rows in, z out, block by block."""

import contextlib
import math
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from privjax.datasets import Column
from privjax.datasets.stream import open_rows
from privjax.exporting.device import load_file
from privjax.exporting.runner import Header
from privjax.extras import import_optional
from privjax.files import replacing
from privjax.progress import Progress, reporter

PathLike = str | os.PathLike
_Write = Callable[[np.ndarray], None]


class ReleaseSummary(NamedTuple):
    """Size and duration of a release.

    Attributes:
      rows: Number of released rows.
      width: Width of z.
      seconds: Duration.
    """

    rows: int
    width: int
    seconds: float


def release_file(
    encoder: PathLike,
    source: PathLike,
    *,
    to: PathLike,
    progress: str | None = None,
    block_rows: int = 65536,
) -> ReleaseSummary:
    """Release z for each row of a file, with one block of rows in memory at a time.

    Columns are picked by name and categories are encoded by the classes of the training data; other columns
    are neither read nor copied. An array, or a table whose encoder has no column names, must hold x alone.

    Args:
      encoder: An exported encoder file.
      source: The raw rows: a CSV, Parquet, NPZ or npy file, or a folder of npy files.
      to: The file to write: a CSV or Parquet file with columns z0, z1, ..., an NPZ file with the array z, or
        an npy file. An existing file is replaced after the new one is complete.
      progress: "bar", "log", "off", or None for a bar on a terminal and no output elsewhere.
      block_rows: Maximum number of rows in a block; wide rows make smaller blocks.

    Returns:
      The number of rows, the width of z and the duration.

    Example:
      >>> import pathlib, tempfile
      >>> import numpy as np, privjax
      >>> folder = pathlib.Path(tempfile.mkdtemp())
      >>> x = np.random.default_rng(0).normal(size=(6, 3))
      >>> header = privjax.export(
      ...     privjax.baselines.pca(x, num_features=2), to=folder / "encoder.npz"
      ... )
      >>> np.save(folder / "rows.npy", x)
      >>> summary = privjax.release_file(folder / "encoder.npz", folder / "rows.npy", to=folder / "z.csv")
      >>> summary.rows, summary.width
      (6, 2)
    """
    encoder, source, to = (Path(path).expanduser() for path in (encoder, source, to))
    _check_target(to, encoder, source)
    began = time.monotonic()
    private = load_file(encoder)
    header = private.header
    rows = open_rows(
        source,
        math.prod(header.input_shape),
        columns=_read_columns(encoder, header),
        names=header.names,
        block_rows=block_rows,
    )
    done = 0
    with reporter(progress, "release") as report, replacing(to) as part:
        with _OUTPUTS[to.suffix.lower()](part, header.width) as write:
            for x in rows.blocks:
                with np.errstate(over="ignore", invalid="ignore"):  # the next lines report overflow
                    z = private(x)
                finite = np.isfinite(z).all(axis=1)
                if not finite.all():
                    row = done + int(np.argmin(finite))
                    raise ValueError(f"{source}, row {row}: its numbers are too large for the encoder.")
                write(z)
                done += len(x)
                report.show(Progress(max(rows.total, done), done, "rows"))
    return ReleaseSummary(done, header.width, time.monotonic() - began)


def _read_columns(path: Path, header: Header) -> list[Column] | None:
    try:
        return None if header.columns is None else [Column.from_dict(column) for column in header.columns]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} has columns that cannot be read ({error}): export it again.") from None


def _check_target(to: Path, encoder: Path, source: Path) -> None:
    if to.suffix.lower() not in _OUTPUTS:
        raise ValueError(f"to must end in {', '.join(_OUTPUTS)}, got {to.name!r}.")
    if not to.exists():
        return
    for name, path in (("encoder", encoder), ("source", source)):
        if path.exists() and to.samefile(path):
            raise ValueError(f"to is the {name} itself, {path}: name another file.")
    if source.is_dir() and to.suffix.lower() == ".npy" and to.parent.samefile(source):
        raise ValueError(f"to is one of the arrays of the source, {to}: name a file elsewhere.")


# Each writer opens a file and yields a function that appends blocks of z; the file is complete on exit.


@contextlib.contextmanager
def _csv(path: Path, width: int) -> Iterator[_Write]:
    csv, schema = import_optional("pyarrow.csv"), _schema(width)
    with path.open("wb") as handle:
        handle.write(",".join(schema.names).encode() + b"\n")  # pyarrow would put the names in quotes
        with csv.CSVWriter(handle, schema, write_options=csv.WriteOptions(include_header=False)) as writer:
            yield lambda z: writer.write_table(_table(z, schema))


@contextlib.contextmanager
def _parquet(path: Path, width: int) -> Iterator[_Write]:
    schema = _schema(width)
    with import_optional("pyarrow.parquet").ParquetWriter(path, schema) as writer:
        yield lambda z: writer.write_table(_table(z, schema))


def _schema(width: int) -> Any:
    pyarrow = import_optional("pyarrow")
    return pyarrow.schema([(f"z{i}", pyarrow.float32()) for i in range(width)])


def _table(z: np.ndarray, schema: Any) -> Any:
    return import_optional("pyarrow").table(list(np.ascontiguousarray(z.T)), schema=schema)


@contextlib.contextmanager
def _npy(path: Path, width: int) -> Iterator[_Write]:
    rows = 0

    def write_header() -> None:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
        np.lib.format.write_array_header_1_0(handle, header)

    def write(z: np.ndarray) -> None:
        nonlocal rows
        handle.write(np.ascontiguousarray(z, "<f4").data)
        rows += len(z)

    with path.open("wb") as handle:
        write_header()
        yield write
        handle.seek(0)  # NumPy pads the header, so the final number of rows fits
        write_header()


@contextlib.contextmanager
def _npz(path: Path, width: int) -> Iterator[_Write]:
    # The header needs the number of rows, and a zip entry cannot be rewritten: write an npy file first.
    array = path.with_name(f"{path.name}.npy")
    try:
        with _npy(array, width) as write:
            yield write
        with zipfile.ZipFile(path, "w") as archive, array.open("rb") as handle:
            with archive.open(zipfile.ZipInfo("z.npy"), "w", force_zip64=True) as entry:
                shutil.copyfileobj(handle, entry)
    finally:
        array.unlink(missing_ok=True)


_OUTPUTS = {".csv": _csv, ".parquet": _parquet, ".npz": _npz, ".npy": _npy}
