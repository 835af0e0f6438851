"""Files of z, written block by block: CSV, Parquet, NPZ and npy."""

import contextlib
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from privjax.extras import need

Write = Callable[[np.ndarray], None]


@contextlib.contextmanager
def open_output(path: Path, suffix: str, width: int) -> Iterator[Write]:
    """Opens a file to which blocks of z are written one after another; it is whole when this ends.

    Args:
      path: the file.
      suffix: one of `OUTPUTS`, whatever the path ends in.
      width: of z; columns are called z0, z1, ..., the array of an NPZ is z.
    """
    with OUTPUTS[suffix](path, width) as write:
        yield write


@contextlib.contextmanager
def _csv(path: Path, width: int) -> Iterator[Write]:
    with path.open("w", encoding="ascii", newline="") as handle:
        handle.write(",".join(_names(width)) + "\n")
        # Nine digits are what it takes to have the same float32 again.
        yield lambda z: np.savetxt(handle, z, fmt="%.9g", delimiter=",")


@contextlib.contextmanager
def _parquet(path: Path, width: int) -> Iterator[Write]:
    pyarrow, parquet = need("pyarrow"), need("pyarrow.parquet")
    schema = pyarrow.schema([(name, pyarrow.float32()) for name in _names(width)])
    with parquet.ParquetWriter(path, schema) as writer:
        yield lambda z: writer.write_table(pyarrow.table(list(np.ascontiguousarray(z.T)), schema=schema))


@contextlib.contextmanager
def _npy(path: Path, width: int) -> Iterator[Write]:
    rows = 0

    def header() -> None:
        said = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
        np.lib.format.write_array_header_1_0(handle, said)

    def write(z: np.ndarray) -> None:
        nonlocal rows
        handle.write(np.ascontiguousarray(z, "<f4").data)
        rows += len(z)

    with path.open("wb") as handle:
        header()
        yield write
        handle.seek(0)  # NumPy leaves room in a header for the number of rows to grow
        header()


@contextlib.contextmanager
def _npz(path: Path, width: int) -> Iterator[Write]:
    # A member of a zip cannot be gone back to: the array is written beside it first.
    beside = path.with_name(f"{path.name}.npy")
    try:
        with _npy(beside, width) as write:
            yield write
        with zipfile.ZipFile(path, "w") as archive, beside.open("rb") as handle:
            with archive.open(zipfile.ZipInfo("z.npy"), "w", force_zip64=True) as member:
                shutil.copyfileobj(handle, member)
    finally:
        beside.unlink(missing_ok=True)


def _names(width: int) -> list[str]:
    return [f"z{i}" for i in range(width)]


OUTPUTS = {".csv": _csv, ".parquet": _parquet, ".npz": _npz, ".npy": _npy}
