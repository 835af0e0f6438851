"""The record every loader gives: arrays, names, split, scaling and where it all came from."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from privjax.datasets.errors import DataError

_ROWS = 1 << 16  # rows worked on at a time, so that a large set needs no second copy
# A constant column is centred and left at zero. The floor is relative: units may be small.
_SPREAD_FLOOR = 1e-8


class Part(NamedTuple):
    """The rows of one part of a split: input, utility label, private label."""

    x: np.ndarray
    y: np.ndarray
    s: np.ndarray


class Split(NamedTuple):
    """Sorted row numbers of the three parts; a row in none of them is not used."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


class Scaler(NamedTuple):
    """``x -> (x - shift) / spread`` on the last axis, both fitted on training rows alone."""

    method: str
    shift: np.ndarray
    spread: np.ndarray

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Scales rows with the fitted numbers; statistics of ``x`` itself play no part."""
        return ((x - self.shift) / self.spread).astype(np.float32)

    def invert(self, x: np.ndarray) -> np.ndarray:
        """Gives back the units that ``apply`` took away."""
        return (x * self.spread + self.shift).astype(np.float32)


def fit_scaler(x: np.ndarray, *, method: str) -> Scaler:
    """Fits a scaler over every axis of the training rows but the last.

    Args:
      x: Training rows ``[n, ..., d]``: columns of a table, or the channels of images.
      method: ``"standard"`` (mean 0, spread 1), ``"minmax"`` (0 to 1) or ``"none"``.

    Returns:
      The scaler; a column that never changes has spread 1.
    """
    width = x.shape[-1]
    if method == "none":
        return Scaler(method, np.zeros(width, np.float32), np.ones(width, np.float32))
    if method == "standard":
        # Sums in double: a million float32 rows would lose the last digits of the mean.
        count = x.size // width
        shift = sum(_flat(part).sum(axis=0, dtype=np.float64) for part in _parts(x)) / count
        squares = sum(np.square(_flat(part) - shift).sum(axis=0) for part in _parts(x))
        spread = np.sqrt(squares / count)
    elif method == "minmax":
        shift = _flat(x).min(axis=0).astype(np.float64)
        spread = _flat(x).max(axis=0) - shift
    else:
        raise ValueError(f"scale must be 'standard', 'minmax' or 'none', got {method!r}.")
    floor = np.maximum(_SPREAD_FLOOR * np.abs(shift), np.finfo(np.float32).tiny)
    spread = np.where(spread > floor, spread, 1.0)
    return Scaler(method, shift.astype(np.float32), spread.astype(np.float32))


def _parts(x: np.ndarray) -> Iterator[np.ndarray]:
    return (x[start : start + _ROWS] for start in range(0, len(x), _ROWS))


def _flat(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, x.shape[-1])


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Numpy arrays with a seeded split; the arrays are read-only.

    Attributes:
      x: Input ``[n, d]``, or images ``[n, height, width, channels]``; float32, scaled.
      y: Utility label ``[n]``: int32 classes, or float32 when ``y_names`` is empty.
      s: Private label ``[n]`` (int32 classes), or float32 ``[n]`` or ``[n, k]``, ``s_names`` empty.
      y_names: Names of the utility classes, in the order of their numbers.
      s_names: Names of the private classes.
      feature_names: Names along the last axis of ``x``.
      split: Row numbers of the three parts.
      scaler: What was done to ``x``; fitted on the training rows.
      provenance: Name, protocol, seed, source files with their hashes, terms, citation.
    """

    x: np.ndarray
    y: np.ndarray
    s: np.ndarray
    y_names: tuple[str, ...]
    s_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    split: Split
    scaler: Scaler
    provenance: Mapping[str, Any]

    def __post_init__(self):
        check_labels("y", self.y, self.y_names, len(self.x))
        check_labels("s", self.s, self.s_names, len(self.x))
        for array in (self.x, self.y, self.s, *self.split, self.scaler.shift, self.scaler.spread):
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def name(self) -> str:
        """The name it was loaded under."""
        return str(self.provenance.get("name", "unnamed"))

    def part(self, name: str) -> Part:
        """The rows of ``"train"``, ``"validation"`` or ``"test"``."""
        rows = getattr(self.split, name)
        return Part(self.x[rows], self.y[rows], self.s[rows])

    train = property(lambda self: self.part("train"), doc="Training rows.")
    validation = property(lambda self: self.part("validation"), doc="Validation rows.")
    test = property(lambda self: self.part("test"), doc="Test rows.")

    @functools.cached_property
    def content_hash(self) -> str:
        """SHA-256 of every array, name and split; equal hashes mean equal data."""
        names = [self.y_names, self.s_names, self.feature_names]
        arrays = (self.x, self.y, self.s, *self.split)
        return hash_arrays(arrays, extra=json.dumps(names).encode())


def check_labels(argument: str, labels: np.ndarray, names: Sequence[str], rows: int) -> None:
    """Refuses labels of the wrong length, out of range, or not finite."""
    if len(labels) != rows:
        raise DataError(f"{argument} has {len(labels)} rows where x has {rows}.")
    if not len(labels):
        return
    if not names:
        if not np.isfinite(labels).all():
            bad = int(np.argmax(~np.isfinite(labels.reshape(rows, -1)).all(axis=1)))
            raise DataError(f"{argument} is not finite in row {bad}.")
        return
    outside = (labels < 0) | (labels >= len(names))
    if outside.any():
        bad = int(np.argmax(outside))
        raise DataError(f"{argument} is {labels[bad]} in row {bad}, outside the {len(names)} classes.")


def hash_arrays(arrays: Sequence[np.ndarray], *, extra: bytes = b"") -> str:
    """SHA-256 over type, shape and bytes of each array, little-endian, and ``extra``."""
    digest = hashlib.sha256(extra)
    for array in arrays:
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest.update(f"{little.dtype.str}{little.shape}".encode())
        digest.update(little.reshape(-1).view(np.uint8).data if little.size else b"")
    return digest.hexdigest()


def as_labels(values: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """The one type of labels: int32 classes when there are names, float32 otherwise."""
    return np.array(values, dtype=np.int32 if names else np.float32)


def assemble(
    x: np.ndarray,
    y: np.ndarray,
    s: np.ndarray,
    split: Split,
    *,
    y_names: Sequence[str],
    s_names: Sequence[str],
    feature_names: Sequence[str],
    provenance: Mapping[str, Any],
    scale: str = "standard",
    in_place: bool = False,
) -> Dataset:
    """Keeps the rows a split uses, scales them by the training rows, and makes the record.

    Args:
      x: All rows; any real or integer type.
      y: Utility labels of all rows.
      s: Private labels of all rows.
      split: Row numbers into ``x``; rows in no part are left out.
      y_names: Utility classes, empty for a continuous utility.
      s_names: Private classes, empty for a continuous private variable.
      feature_names: Names along the last axis of ``x``.
      provenance: Where the data came from.
      scale: ``"standard"``, ``"minmax"`` or ``"none"``.
      in_place: Whether ``x`` may be overwritten, which spares a copy of it.

    Returns:
      The data set; its split counts the rows that were kept.
    """
    used = np.sort(np.concatenate(split))
    if len(used) > 1 and (np.diff(used) == 0).any():
        raise ValueError("split puts one row into two parts.")
    if len(split.train) == 0:
        raise DataError("the training part is empty: give it more rows or a larger share.")
    keep = slice(None) if len(used) == len(x) else used
    renumbered = Split(*(np.searchsorted(used, rows) for rows in split))
    x = np.array(x[keep], dtype=np.float32, copy=None if in_place else True)
    if not all(np.isfinite(part).all() for part in _parts(x)):
        raise DataError("x holds a value that is not finite: drop or impute it first.")
    scaler = fit_scaler(x[renumbered.train], method=scale)
    if scale != "none":
        for part in _parts(x):
            part[...] = scaler.apply(part)
    return Dataset(
        x=x,
        y=as_labels(y[keep], y_names),
        s=as_labels(s[keep], s_names),
        y_names=tuple(y_names),
        s_names=tuple(s_names),
        feature_names=tuple(feature_names),
        split=renumbered,
        scaler=scaler,
        provenance=dict(provenance),
    )
