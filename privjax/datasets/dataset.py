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

_SAME_KIND = str.maketrans("iu", "ff")  # whole and other numbers may be mixed
_STEPS = 100  # a column with fewer float32 values than this between its extremes has lost its digits


class Part(NamedTuple):
    """Rows of one part of a split: input, utility label, private label."""

    x: np.ndarray
    y: np.ndarray
    s: np.ndarray


class LoadSpec(NamedTuple):
    """The call that loads a data set, as JSON values."""

    function: str  # "load" (a data set by name) or "from_table" (a file of rows)
    arguments: Mapping[str, Any]  # without the seed
    seed: int = 0  # of the split


class SourceFile(NamedTuple):
    """A file, or folder, that a data set was read from."""

    name: str
    sha256: str  # of its bytes; of a folder, of the names and sizes of its files
    bytes: int | None = None  # None for a folder


@dataclasses.dataclass(frozen=True)
class Origin:
    """Provenance of a data set."""

    name: str
    protocol: str = "given"  # name of the split protocol
    seed: int = 0  # of the split
    utility: str = "y"  # name of the utility column
    private: tuple[str, ...] = ("s",)  # names of the private columns
    source: str = "memory"  # path, address or package that the rows came from
    terms: str = "the user's own"
    citation: str = "none"
    complete: bool = True  # whether all published rows are present
    verified: bool = False  # whether the bytes of the files match their published hashes
    rows_dropped: int = 0  # for their missing values
    files: tuple[SourceFile, ...] = ()
    load_spec: LoadSpec | None = None  # None for arrays in memory


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

    def __post_init__(self) -> None:
        finite = np.isfinite(self.x).reshape(len(self.x), -1).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            raise DataError(f"x is not finite in 32-bit floats in row {row}: drop or impute the value first.")
        for argument, labels, names in (("y", self.y, self.y_names), ("s", self.s, self.s_names)):
            _check_labels(argument, _check_length(argument, labels, len(self.x)), names, labels)
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
        shares = {"seed": seed, "test": test, "validation": validation}
        if split is not None:
            parts, protocol = check_split(split, len(x)), "given"
        elif groups is not None:
            parts = grouped_split(_check_length("groups", np.asarray(groups), len(x)), **shares)
            protocol = "grouped"
        else:
            parts, protocol = split_by_class(s, s_names, **shares)
        used = np.sort(np.concatenate(parts))
        with np.errstate(over="ignore"):  # the constructor refuses infinity with its row
            x = x[used].astype(np.float32, copy=False)  # a copy, so that the caller's arrays stay writable
        return cls(
            x=x,
            y=y[used],
            s=s[used],
            y_names=y_names,
            s_names=s_names,
            feature_names=tuple(map(str, _column_names(x) if names is None else names)),
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

    @property
    def train(self) -> Part:
        """The training rows."""
        return self.part("train")

    @property
    def validation(self) -> Part:
        """The validation rows."""
        return self.part("validation")

    @property
    def test(self) -> Part:
        """The test rows."""
        return self.part("test")

    @functools.cached_property
    def content_hash(self) -> str:
        """SHA-256 of all arrays, names and the split; equal hashes mean equal data."""
        digest = hashlib.sha256(json.dumps([self.y_names, self.s_names, self.feature_names]).encode())
        for array in (self.x, self.y, self.s, *self.split):
            little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            digest.update(f"{little.dtype.str}{little.shape}".encode())
            digest.update(little.reshape(-1).view(np.uint8).data if little.size else b"")
        return digest.hexdigest()


def split_by_class(s: np.ndarray, s_names: Sequence[str], **shares: Any) -> tuple[Split, str]:
    """Split rows with the same share of every private class, if it has classes; name the protocol."""
    if s_names:
        return per_label_split(s, **shares), "per_private_class"
    return per_label_split(np.zeros(len(s)), **shares), "random"


def check_resolution(label: str, names: Sequence[str], low: np.ndarray, high: np.ndarray) -> None:
    """Refuse columns whose values float32 would make almost equal, such as times in seconds."""
    with np.errstate(over="ignore", invalid="ignore"):
        largest = np.maximum(np.abs(low), np.abs(high)).astype(np.float32)
        coarse = (high > low) & (np.spacing(largest).astype(np.float64) * _STEPS > high - low)
    if coarse.any():
        column = int(np.argmax(coarse))
        raise DataError(
            f"{label}: column {names[column]!r} runs from {float(low[column])!r} to {float(high[column])!r}, "
            "which 32-bit floats cannot resolve: subtract its smallest value first, or leave it out."
        )


def _column_names(x: np.ndarray) -> list[str]:
    return [f"x[{i}]" for i in range(x.shape[-1])]


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
        check_resolution("x", _column_names(array), low, high)
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
    _check_labels(argument, codes, names, labels)
    return codes.astype(np.int32), tuple(names)


def _plain_labels(argument: str, values: ArrayLike) -> np.ndarray:
    """Return labels as an array of numbers or of text; objects must be of one type."""
    # NumPy would make text of a list that mixes text and numbers.
    labels = np.asarray(values, dtype=object if isinstance(values, (list, tuple)) else None)
    if labels.dtype.kind not in "biufUOT":
        raise TypeError(f"{argument} must hold text or numbers, got {labels.dtype}.")
    if labels.dtype.kind not in "OT":
        return labels
    cells = labels.ravel().tolist()
    kinds = [np.asarray(cell).dtype.kind.translate(_SAME_KIND) for cell in cells]
    for i, (cell, kind) in enumerate(zip(cells, kinds, strict=True)):
        if kind not in "bfU" or kind != kinds[0] or cell != cell:
            row = i * len(labels) // len(cells)
            raise DataError(
                f"{argument} holds {labels[row]!r} in row {row}: make all labels text, numbers or truth "
                "values, without missing ones."
            )
    return np.array(labels.tolist())


def _check_length(argument: str, array: np.ndarray, rows: int) -> np.ndarray:
    if array.shape[:1] != (rows,):
        raise DataError(f"{argument} has {len(array) if array.ndim else 1} rows where x has {rows}.")
    return array


def _check_labels(argument: str, codes: np.ndarray, names: Sequence[str], labels: np.ndarray) -> None:
    """Refuse labels that are no class number, or not finite where there are no classes."""
    valid = (codes >= 0) & (codes < len(names)) & (codes == np.round(codes)) if names else np.isfinite(codes)
    if not valid.all():
        row = int(np.argmin(valid.reshape(len(codes), -1).all(axis=1)))
        found = f"{labels[row]} in row {row}, which is none of the {len(names)} classes"
        raise DataError(f"{argument} is {found if names else f'not finite in row {row}'}.")
