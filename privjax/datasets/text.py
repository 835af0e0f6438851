"""Numbers out of text files, with errors that name the file and the line."""

import contextlib
import io
import warnings

import numpy as np

from privjax.datasets.errors import DataError

_LARGEST = float(np.finfo(np.float32).max)


def read_matrix(data: bytes, label: str, *, columns: int) -> np.ndarray:
    """Reads whitespace-separated numbers, the same count on every line.

    Args:
      data: The bytes of the file.
      label: How errors name the file.
      columns: Numbers per line.

    Returns:
      A float64 array ``[lines, columns]``, every number of a size that float32 can hold.
    """
    if not data.strip():
        raise DataError(f"{label} is empty.")
    matrix = None
    # Outside ASCII, numpy takes some bytes for blanks that nobody meant as such.
    if data.isascii():
        with contextlib.suppress(ValueError, UserWarning), warnings.catch_warnings():
            warnings.simplefilter("error")
            matrix = np.loadtxt(io.BytesIO(data), dtype=np.float64, comments=None, ndmin=2)
    if matrix is None or matrix.shape[1] != columns or not (np.abs(matrix) <= _LARGEST).all():
        raise _first_fault(data, label, columns)
    return matrix


def read_integers(data: bytes, label: str, *, low: int, high: int) -> np.ndarray:
    """Reads one whole number per line, each between ``low`` and ``high``."""
    values = read_matrix(data, label, columns=1)[:, 0]
    return check_integers(values, label, low=low, high=high)


def check_integers(values: np.ndarray, label: str, *, low: int, high: int) -> np.ndarray:
    """Turns a column of labels into int64, refusing fractions and labels out of range."""
    bad = (values != np.round(values)) | (values < low) | (values > high)
    if bad.any():
        line = int(np.argmax(bad))
        raise DataError(
            f"{label}, line {line + 1}: the label {values[line]:g} is not one of {low} to {high}."
        )
    return values.astype(np.int64)


def _first_fault(data: bytes, label: str, columns: int) -> DataError:
    """Walks the lines slowly, now that something is known to be wrong."""
    for number, line in enumerate(data.split(b"\n"), start=1):
        cells = line.split()
        if not cells:
            continue
        if len(cells) != columns:
            return DataError(f"{label}, line {number}: {len(cells)} columns where {columns} are expected.")
        for place, cell in enumerate(cells, start=1):
            try:
                finite = abs(float(cell)) <= _LARGEST
            except ValueError:
                finite = False
            if not finite:
                text = cell[:40].decode("ascii", "replace")
                return DataError(f"{label}, line {number}, column {place}: {text!r} is not a finite number.")
    return DataError(f"{label} cannot be read as numbers.")
