"""Release a file of rows: raw rows in, z out, block by block."""

import contextlib
import functools
import math
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from privjax.datasets import Column
from privjax.datasets.stream import open_rows
from privjax.exporting.device import PathLike, load_file
from privjax.extras import import_optional
from privjax.files import replacing
from privjax.progress import Progress, reporter

_Append = Callable[[np.ndarray], object]


class ReleaseSummary(NamedTuple):
    """Number of rows, width of z and duration of a release."""

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
      >>> np.save(folder / "rows.npy", np.eye(5))
      >>> encoder = folder / "encoder.npz"
      >>> header = privjax.export(privjax.baselines.pca(np.eye(5), num_features=2), to=encoder)
      >>> summary = privjax.release_file(encoder, folder / "rows.npy", to=folder / "z.csv")
      >>> summary.rows, summary.width
      (5, 2)
    """
    encoder, source, to = (Path(path).expanduser() for path in (encoder, source, to))
    _check_target(to, encoder, source)
    began, done = time.monotonic(), 0
    private = load_file(encoder)
    header = private.header
    rows = open_rows(
        source,
        math.prod(header.input_shape),
        columns=header.columns and [Column.from_dict(column) for column in header.columns],
        names=header.names,
        block_rows=block_rows,
    )
    with (
        reporter(progress, "release") as report,
        replacing(to) as part,
        _WRITERS[to.suffix.lower()](part, header.width) as append,
    ):
        for x in rows.blocks:
            with np.errstate(over="ignore", invalid="ignore"):  # the next lines report overflow
                z = private(x)
            finite = np.isfinite(z).all(axis=1)
            if not finite.all():
                row = done + int(np.argmin(finite))
                raise ValueError(f"{source}, row {row}: its numbers are too large for the encoder.")
            append(z)
            done += len(x)
            report.show(Progress(max(rows.total, done), done, "rows"))
    return ReleaseSummary(done, header.width, time.monotonic() - began)


def _check_target(to: Path, encoder: Path, source: Path) -> None:
    if to.suffix.lower() not in _WRITERS:
        raise ValueError(f"to must end in {', '.join(_WRITERS)}, got {to.name!r}.")
    if not to.exists():
        return
    for name, path in (("encoder", encoder), ("source", source)):
        if path.exists() and to.samefile(path):
            raise ValueError(f"to is the {name} itself, {path}: name another file.")
    if source.is_dir() and to.suffix.lower() == ".npy" and to.parent.samefile(source):
        raise ValueError(f"to is one of the arrays of the source, {to}: name a file elsewhere.")


# Each writer opens a file and yields a function that appends blocks of z; the file is complete on exit.


@contextlib.contextmanager
def _write_table(module: str, writer: str, path: Path, width: int) -> Iterator[_Append]:
    pyarrow = import_optional("pyarrow")
    schema = pyarrow.schema([(f"z{i}", pyarrow.float32()) for i in range(width)])
    with getattr(import_optional(module), writer)(path, schema) as file:
        yield lambda z: file.write_table(pyarrow.table(list(np.ascontiguousarray(z.T)), schema=schema))


@contextlib.contextmanager
def _write_npy(path: Path, width: int) -> Iterator[_Append]:
    def write_header(rows: int) -> int:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
        np.lib.format.write_array_header_1_0(file, header)
        return file.tell()

    with path.open("wb") as file:
        start = write_header(0)
        yield lambda z: file.write(np.ascontiguousarray(z, "<f4").data)
        rows = (file.tell() - start) // (4 * width)
        file.seek(0)  # NumPy pads the header, so the final number of rows fits
        write_header(rows)


@contextlib.contextmanager
def _write_npz(path: Path, width: int) -> Iterator[_Append]:
    array = path.with_name(f"{path.name}.npy")  # an entry of an archive cannot get its number of rows last
    try:
        with _write_npy(array, width) as append:
            yield append
        with zipfile.ZipFile(path, "w") as archive, array.open("rb") as file:
            with archive.open(zipfile.ZipInfo("z.npy"), "w", force_zip64=True) as entry:
                shutil.copyfileobj(file, entry)
    finally:
        array.unlink(missing_ok=True)


_WRITERS = {
    ".csv": functools.partial(_write_table, "pyarrow.csv", "CSVWriter"),
    ".parquet": functools.partial(_write_table, "pyarrow.parquet", "ParquetWriter"),
    ".npz": _write_npz,
    ".npy": _write_npy,
}
