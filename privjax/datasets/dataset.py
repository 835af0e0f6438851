"""The Dataset record: raw rows, labels, names, a split and the origin of the data."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from privjax.datasets.columns import Column
from privjax.datasets.splits import DataError, Split, check_split, grouped_split, per_label_split

_STEPS = 100  # a column with fewer float32 values than this between its extremes has lost its digits
_FUNCTIONS = ("load", "from_table")


class Part(NamedTuple):
    """Rows of one part of a split: input, utility label, private label."""

    x: np.ndarray
    y: np.ndarray
    s: np.ndarray


class LoadSpec(NamedTuple):
    """The call that loads a data set, as JSON values.

    Attributes:
      function: `"load"` (a data set by name) or `"from_table"` (a file of rows).
      arguments: Keyword arguments of the call, without the seed.
      seed: Seed of the split.
    """

    function: str
    arguments: Mapping[str, Any]
    seed: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as JSON values."""
        return self._asdict()

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> "LoadSpec":
        """Read a spec back; a function other than the two loaders is refused."""
        function = found.get("function")
        if function not in _FUNCTIONS:
            raise ValueError(f"load_spec: function must be one of {', '.join(_FUNCTIONS)}, got {function!r}.")
        return cls(function, found["arguments"], found["seed"])


class SourceFile(NamedTuple):
    """A file that a data set was read from.

    Attributes:
      name: File name without its folder.
      sha256: Hash of its bytes; of a folder, the hash of its listing (names and sizes).
      bytes: Size; None for a folder.
    """

    name: str
    sha256: str
    bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Origin:
    """Provenance of a data set.

    Attributes:
      name: Name of the data set.
      protocol: Name of the split protocol.
      seed: Seed of the split.
      utility: Name of the utility column.
      private: Names of the private columns.
      source: Path, address or package that the rows came from.
      terms: Terms of use.
      citation: Publication to cite.
      complete: Whether all published rows are present.
      verified: Whether the bytes of the files match their published hashes.
      rows_dropped: Number of rows left out for their missing values.
      files: Files that the rows were read from.
      load_spec: Call that loads the data set; None for arrays in memory.
    """

    name: str
    protocol: str = "given"
    seed: int = 0
    utility: str = "y"
    private: tuple[str, ...] = ("s",)
    source: str = "memory"
    terms: str = "the user's own"
    citation: str = "none"
    complete: bool = True
    verified: bool = False
    rows_dropped: int = 0
    files: tuple[SourceFile, ...] = ()
    load_spec: LoadSpec | None = None


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Raw rows with labels, names and a seeded split; the arrays are read-only.

    `Dataset.from_arrays` makes one from arrays; `datasets.load` and `datasets.read_table` from files.

    Attributes:
      x: Rows `[n, d]`, images `[n, height, width, channels]` or windows `[n, time, channels]`;
        float32, in their own units. The encoder scales them.
      y: Utility label `[n]`: int32 classes, or float32 where `y_names` is empty.
      s: Private label `[n]`: int32 classes, or float32 `[n]` or `[n, k]` where `s_names` is empty.
      y_names: Names of the utility classes, by their number; empty for a continuous utility.
      s_names: Names of the private classes; empty for a continuous private variable.
      feature_names: Names along the last axis of x.
      split: Row numbers of the three parts.
      origin: Provenance.
      columns: Encoding of the table columns that x was made of; None for arrays.
    """

    x: np.ndarray
    y: np.ndarray
    s: np.ndarray
    y_names: tuple[str, ...]
    s_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    split: Split
    origin: Origin
    columns: tuple[Column, ...] | None = None

    def __post_init__(self):
        finite = np.isfinite(self.x).reshape(len(self.x), -1).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            raise DataError(f"x is not finite in 32-bit floats in row {row}: drop or impute the value first.")
        _check_labels("y", self.y, self.y_names, len(self.x))
        _check_labels("s", self.s, self.s_names, len(self.x))
        if len(self.feature_names) != self.x.shape[-1]:
            counts = f"{len(self.feature_names)} names where the last axis of x has {self.x.shape[-1]}"
            raise ValueError(f"feature_names has {counts}.")
        check_split(self.split, len(self.x))
        for array in (self.x, self.y, self.s, *self.split):
            array.setflags(write=False)

    @classmethod
    def from_arrays(
        cls,
        x: ArrayLike,
        y: ArrayLike,
        s: ArrayLike,
        *,
        seed: int = 0,
        test: float = 0.2,
        validation: float = 0.1,
        split: Sequence[ArrayLike] | None = None,
        groups: ArrayLike | None = None,
        y_names: Sequence[str] | None = None,
        s_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
        name: str = "arrays",
    ) -> "Dataset":
        """Make a data set from arrays: rows, images or windows, with labels of any type.

        Text, truth values and whole numbers are classes and are numbered in sorted order; other
        numbers are continuous.

        Args:
          x: Rows `[n, d]`, images `[n, height, width, channels]` or windows `[n, time, channels]`.
          y: Utility label `[n]`.
          s: Private label `[n]`; continuous ones may be `[n, k]`.
          seed: Seed of the split.
          test: Share of the rows (with `groups`, of the groups) in the test part.
          validation: Share of the remaining rows (or groups) in the validation part.
          split: Row numbers or masks of the training, validation and test part instead of a random
            split. Rows in no part are left out.
          groups: Label `[n]` whose rows stay together: no group is in two parts.
          y_names: Names of the utility classes. Whole numbers are then numbers of these classes.
            Empty where whole numbers are quantities.
          s_names: Names of the private classes, likewise.
          feature_names: Names along the last axis of x.
          name: Name of the data set.

        Returns:
          The data set. Without `split` and `groups`, every private class has the same share in every
          part.

        Example:
          >>> import numpy as np
          >>> rng = np.random.default_rng(0)
          >>> windows = rng.normal(size=(60, 32, 3))  # [n, time, channels]
          >>> data = Dataset.from_arrays(windows, ["rest", "walk"] * 30, np.arange(60) % 3)
          >>> data.y_names, data.s_names, len(data.test.x)
          (('rest', 'walk'), ('0', '1', '2'), 12)
        """
        names = feature_names or getattr(x, "columns", None)  # of a DataFrame
        x = _as_rows(x)
        y, y_names = _number_labels("y", y, y_names, len(x))
        s, s_names = _number_labels("s", s, s_names, len(x))
        if split is not None and groups is not None:
            raise ValueError("groups and split are both given: pass one of them.")
        if split is not None:
            parts, protocol = check_split(split, len(x)), "given"
        elif groups is not None:
            groups = _check_length("groups", np.asarray(groups), len(x))
            parts, protocol = grouped_split(groups, seed=seed, test=test, validation=validation), "grouped"
        else:
            strata = s if s_names else np.zeros(len(x))
            parts = per_label_split(strata, seed=seed, test=test, validation=validation)
            protocol = "per_private_class" if s_names else "random"
        used = np.sort(np.concatenate(parts))
        x, y, s = (array[used] for array in (x, y, s))  # a copy, so that the caller's arrays stay writable
        with np.errstate(over="ignore"):  # the constructor refuses infinity with its row
            x = x.astype(np.float32, copy=False)
        return cls(
            x=x,
            y=y,
            s=s,
            y_names=y_names,
            s_names=s_names,
            feature_names=tuple(f"x[{i}]" for i in range(x.shape[-1]))
            if names is None
            else tuple(map(str, names)),
            split=Split(*(np.searchsorted(used, part) for part in parts)),
            origin=Origin(name, protocol, seed),
        )

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        parts = ", ".join(f"{len(rows)} {name}" for name, rows in self.split._asdict().items())
        y, s = (f"{len(found)} classes" if found else "continuous" for found in (self.y_names, self.s_names))
        return f"Dataset({self.name!r}, x {self.x.shape}, y {y}, s {s}; rows: {parts})"

    @property
    def name(self) -> str:
        """Name of the data set."""
        return self.origin.name

    def part(self, name: str) -> Part:
        """Return the rows of `"train"`, `"validation"` or `"test"`."""
        rows = getattr(self.split, name)
        return Part(self.x[rows], self.y[rows], self.s[rows])

    train = property(lambda self: self.part("train"), doc="Training rows.")
    validation = property(lambda self: self.part("validation"), doc="Validation rows.")
    test = property(lambda self: self.part("test"), doc="Test rows.")

    @functools.cached_property
    def content_hash(self) -> str:
        """SHA-256 of all arrays, names and the split; equal hashes mean equal data."""
        digest = hashlib.sha256(json.dumps([self.y_names, self.s_names, self.feature_names]).encode())
        for array in (self.x, self.y, self.s, *self.split):
            little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            digest.update(f"{little.dtype.str}{little.shape}".encode())
            digest.update(little.reshape(-1).view(np.uint8).data if little.size else b"")
        return digest.hexdigest()


def check_resolution(label: str, names: Sequence[str], low: np.ndarray, high: np.ndarray) -> None:
    """Refuse columns whose values float32 would make almost equal, such as times in seconds.

    Args:
      label: Name of the table or array in the message.
      names: Names of the columns.
      low: Smallest value of each column, in double precision.
      high: Largest value of each column.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        largest = np.maximum(np.abs(low), np.abs(high)).astype(np.float32)
        coarse = (high > low) & (np.spacing(largest).astype(np.float64) * _STEPS > high - low)
    if coarse.any():
        column = int(np.argmax(coarse))
        raise DataError(
            f"{label}: column {names[column]!r} runs from {float(low[column])!r} to {float(high[column])!r}, "
            "which 32-bit floats cannot resolve: subtract its smallest value first, or leave it out."
        )


def _as_rows(x: ArrayLike) -> np.ndarray:
    """Check that x holds numbers, one row per example."""
    array = np.asarray(x)
    if array.dtype == object:  # for example a DataFrame of truth values and numbers
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError):
            raise TypeError("x must hold numbers only: number its text first, or use read_table.") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"x must hold real numbers, got {array.dtype}.")
    if array.ndim < 2 or 0 in array.shape:
        raise ValueError(f"x must have shape [n, ...] with at least two dimensions, got {array.shape}.")
    if array.dtype.itemsize > 4:
        axes = tuple(range(array.ndim - 1))
        low, high = (np.asarray(f(array, axes), np.float64) for f in (np.min, np.max))
        check_resolution("x", [f"x[{i}]" for i in range(len(low))], low, high)
    return array


def _number_labels(
    argument: str, values: ArrayLike, names: Sequence[str] | None, rows: int
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return int32 classes with their names, or float32 labels without names."""
    labels = _check_length(argument, _plain_labels(argument, values), rows)
    is_number = labels.dtype.kind in "biuf"
    if names is not None and len(names) == 0 or names is None and labels.dtype.kind == "f":
        if not is_number:
            raise ValueError(f"{argument}_names is empty, but {argument} holds text, which has classes.")
        return labels.astype(np.float32), ()
    if labels.ndim != 1:
        raise ValueError(f"{argument} must have one class per row, shape [n], got {labels.shape}.")
    if names is None:
        found, codes = np.unique(labels, return_inverse=True)
        if len(found) < 2:
            raise DataError(f"{argument} has one class only, {found[0]}.")
        if len(found) > max(rows // 2, 2):
            counts = f"{len(found)} classes in {rows} rows"
            raise DataError(f"{argument} has {counts}: pass {argument}_names=() if it is a quantity.")
        return codes.astype(np.int32), tuple(str(value) for value in found.tolist())
    order = {name: i for i, name in enumerate(names)}
    codes = labels if is_number else np.array([order.get(label, -1) for label in labels.tolist()])
    wrong = (codes != np.round(codes)) | (codes < 0) | (codes >= len(names))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"{argument} is {labels[row]} in row {row}, which is none of the {len(names)} classes."
        )
    return codes.astype(np.int32), tuple(names)


def _plain_labels(argument: str, values: ArrayLike) -> np.ndarray:
    """Return labels as an array of numbers or of text; objects must be of one type."""
    # NumPy would make text of a list that mixes text and numbers.
    labels = np.asarray(values, dtype=object if isinstance(values, (list, tuple)) else None)
    if labels.dtype.kind not in "biufUOT":
        raise TypeError(f"{argument} must hold text or numbers, got {labels.dtype}.")
    if labels.dtype.kind not in "OT":
        return labels
    kinds = [_kind(value) for value in labels.ravel().tolist()]
    wrong = [not kind or kind != kinds[0] for kind in kinds]
    if any(wrong):
        row = wrong.index(True) * len(labels) // len(kinds)
        raise DataError(
            f"{argument} holds {labels[row]!r} in row {row}: make all labels text, numbers or truth "
            "values, without missing ones."
        )
    return np.array(labels.tolist())


def _kind(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "boolean"
    if isinstance(value, (int, float, np.number)):
        return "number" if value == value else ""
    return "text" if isinstance(value, str) else ""


def _check_length(argument: str, array: np.ndarray, rows: int) -> np.ndarray:
    if array.shape[:1] != (rows,):
        raise DataError(f"{argument} has {len(array) if array.ndim else 1} rows where x has {rows}.")
    return array


def _check_labels(argument: str, labels: np.ndarray, names: Sequence[str], rows: int) -> None:
    """Refuse labels of the wrong length, out of range, or not finite."""
    _check_length(argument, labels, rows)
    valid = (labels >= 0) & (labels < len(names)) if names else np.isfinite(labels)
    if not valid.all():
        row = int(np.argmin(valid.reshape(rows, -1).all(axis=1)))
        outside = f"{labels[row]}, none of the {len(names)} classes," if names else "not finite"
        raise DataError(f"{argument} is {outside} in row {row}.")
