"""Inputs of an audit: released rows on a common scale, private variables as class numbers or reals."""

import contextlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Shaped
from numpy.typing import ArrayLike

PARTS = ("train", "validation", "test")
Labels = ArrayLike | Mapping[str, ArrayLike]

_OUTLIER_SPREAD_RATIO = 10.0  # outliers dominate a column if they multiply its spread by more
_OUTLIER_REACH = 3.0  # ranges of the inner 99 % of training values; values beyond are clipped
_FEWEST_TO_CLIP = 10  # training rows: the range of fewer means nothing
_LARGEST_DIFFERENCE = 1e300  # stands for differences that overflow
_LARGEST_SCALED = 1e6  # test rows are clipped here, so that no kernel overflows


class AttackTask(NamedTuple):
    """The training rows of one private variable: all that an attacker learns from.

    Attributes:
      z: Standardised rows.
      target: Class numbers, or reals.
      num_classes: Number of classes; 0 for reals.
    """

    z: Float64[np.ndarray, "n d"]
    target: Shaped[np.ndarray, " n"]
    num_classes: int

    def take(self, rows: np.ndarray) -> "AttackTask":
        """Return the task of some of the rows."""
        return self._replace(z=self.z[rows], target=self.target[rows])


class FittedAttack(NamedTuple):
    """A fitted attacker.

    Attributes:
      predict: Maps rows [m, d] to reals [m], or to scores [m, num_classes], the largest being the guess.
      settings: The settings it was fitted with, as JSON values.
      notes: Remarks for the report.
    """

    predict: Callable[[np.ndarray], np.ndarray]
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()


class PrivateVariable(NamedTuple):
    """One private variable in every part.

    Attributes:
      name: Name in the report.
      values: By part, class numbers (-1 for a class without training rows), or reals; a real that is not
        finite is a missing value.
      num_train_classes: Number of classes in training rows; 0 for a continuous variable.
      num_classes: Number of classes in training and test rows.
      notes: Remarks for the report.
    """

    name: str
    values: dict[str, np.ndarray]
    num_train_classes: int = 0
    num_classes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def discrete(self) -> bool:
        """Whether the variable has classes."""
        return self.num_classes > 0


@dataclass(frozen=True)
class Release:
    """Everything that one audit attacks.

    Attributes:
      z: By part, the released rows [n, d] in float64, standardised by the training rows.
      variables: The private variables.
      y: Ranks [n, k] of the utility label in training and test rows; empty without a label.
      notes: Remarks on z for the report.
    """

    z: dict[str, np.ndarray]
    variables: tuple[PrivateVariable, ...]
    y: dict[str, np.ndarray]
    notes: tuple[str, ...]

    def rows(self, variable: PrivateVariable, part: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of z, and of the variable, where the variable is known."""
        known = np.isfinite(variable.values[part])
        z, values = self.z[part], variable.values[part]
        return (z, values) if known.all() else (z[known], values[known])


def make_release(
    z: Mapping[str, ArrayLike | None], s: Mapping[str, Labels | None], y: Mapping[str, ArrayLike | None]
) -> Release:
    """Check the arrays of every part, and standardise z by its training rows alone."""
    for part in ("train", "test"):
        if z.get(part) is None:
            raise ValueError(f"z_{part} must be given: attackers learn from z_train, and z_test is scored.")
    released = {part: np.asarray(z[part]) for part in PARTS if z.get(part) is not None}
    rows = {part: _as_matrix(f"z_{part}", values) for part, values in released.items()}
    named = {}
    for part in rows:
        if rows[part].shape[1] != rows["train"].shape[1]:
            raise ValueError(f"z_{part} must have the width of z_train, got {rows[part].shape[1]} columns.")
        if s.get(part) is None:
            raise ValueError(f"s_{part} must be given with z_{part}.")
        named[part] = _by_name(part, s[part], len(rows[part]))
    variables = []
    for name in named["train"]:
        for part in rows:
            if name not in named[part]:
                raise ValueError(f"s_{part} lacks the variable {name!r} that s_train has.")
        variables += _parse_variable(name, {part: named[part][name] for part in rows})
    names = [variable.name for variable in variables]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"s has two variables called {name!r}: rename one.")
    ranks = {} if y.get("train") is None or y.get("test") is None else _rank_labels(y, rows)
    standardised, notes = standardise(rows, max(map(_resolution, released.values())))
    return Release(standardised, tuple(variables), ranks, notes)


def standardise(
    rows: Mapping[str, np.ndarray], resolution: float
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Shift and scale columns to mean 0 and standard deviation 1 in training rows, and drop constant ones.

    A missing value is information to an attacker: NaN and the two infinities are replaced by the median of
    the column, and each of the three that occurs in some training rows, but not in all, gets an indicator
    column. Outliers are clipped, because a single one can set the scale, and so hide all other rows from
    attackers that measure distances.

    Args:
      rows: Rows of each part, float64.
      resolution: Relative spacing of the type of the release.

    Returns:
      The standardised rows of each part, and remarks for the report.
    """
    missing = {part: ~np.isfinite(z) for part, z in rows.items()}
    known = np.where(missing["train"], np.where(missing["train"].all(0), 0.0, np.nan), rows["train"])
    centre = np.nanquantile(known, 0.5, axis=0, method="lower")
    with np.errstate(over="ignore", invalid="ignore"):
        # Differences to a value of the column are exact where its values are large and close together.
        scaled = {part: np.where(missing[part], 0.0, z - centre) for part, z in rows.items()}
    scaled = {part: np.clip(z, -_LARGEST_DIFFERENCE, _LARGEST_DIFFERENCE) for part, z in scaled.items()}
    low, high = _outlier_bounds(scaled["train"])
    clipped = int(((scaled["train"] < low) | (scaled["train"] > high)).any(0).sum())
    scaled = {part: np.clip(z, low, high) for part, z in scaled.items()}
    # Dividing by the largest value first keeps squares from overflowing.
    size = np.maximum(np.abs(scaled["train"]).max(0, initial=0.0), np.finfo(float).tiny)
    mean, spread = (scaled["train"] / size).mean(0), (scaled["train"] / size).std(0)
    # A spread of a few units in the last place is rounding.
    live = (spread > 0) & (spread * size > 8 * resolution * np.abs(centre))
    kinds = {part: np.hstack([np.isnan(z), z == np.inf, z == -np.inf]) for part, z in rows.items()}
    varying = kinds["train"].any(0) & ~kinds["train"].all(0)

    def finish(part: str) -> np.ndarray:
        with np.errstate(over="ignore"):
            z = (scaled[part][:, live] / size[live] - mean[live]) / spread[live]
        return np.hstack([np.clip(z, -_LARGEST_SCALED, _LARGEST_SCALED), kinds[part][:, varying]])

    notes = [
        f"{int(m.any(1).sum())} {part} rows of z are not finite: replaced by the median"
        for part, m in missing.items()
        if m.any()
    ]
    if clipped:
        notes.append(f"{clipped} of {len(live)} columns of z have outliers in training rows: clipped")
    if not live.all():
        notes.append(f"{int((~live).sum())} of {len(live)} columns of z are constant in training rows")
    return {part: finish(part) for part in rows}, tuple(notes)


def derived_seed(seed: int, *purpose: object) -> int:
    """Return a seed for one purpose, which does not depend on the other attackers or on the workers."""
    text = "/".join(str(word) for word in purpose)
    return int(np.random.SeedSequence([seed, zlib.crc32(text.encode())]).generate_state(1)[0] >> 1)


def stratified_order(target: np.ndarray, *, seed: int) -> np.ndarray:
    """Return the rows in random order within each class, or within groups of five neighbouring reals.

    Rows at equal distances in this order have the distribution of the target.
    """
    if np.issubdtype(target.dtype, np.floating):
        target = np.argsort(np.argsort(target, kind="stable"), kind="stable") // 5
    order = np.random.default_rng([seed, 1]).permutation(len(target))
    return order[np.argsort(target[order], kind="stable")]


def sample_rows(target: np.ndarray, size: int, *, seed: int) -> np.ndarray:
    """Return the sorted numbers of a stratified sample of rows; all rows if there are no more than `size`."""
    if size >= len(target):
        return np.arange(len(target))
    steps = (np.arange(size) * len(target)) // size
    return np.sort(stratified_order(target, seed=seed)[steps])


def _outlier_bounds(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of each column; infinite unless outliers dominate its spread.

    Other columns stay exact. Clipping bends them, and linear attackers would see nonlinear information.
    """
    first = np.quantile(z, 0.005, axis=0, method="higher")
    last = np.quantile(z, 0.995, axis=0, method="lower")
    reach = _OUTLIER_REACH * (last - first)
    reach = np.where((reach > 0) & (len(z) >= _FEWEST_TO_CLIP), reach, np.inf)
    low, high = first - reach, last + reach
    unit = np.maximum(np.abs(z).max(0), np.finfo(float).tiny)  # so that no square overflows
    dominated = (z / unit).std(0) > _OUTLIER_SPREAD_RATIO * (np.clip(z, low, high) / unit).std(0)
    return np.where(dominated, low, -np.inf), np.where(dominated, high, np.inf)


def _resolution(z: np.ndarray) -> float:
    """Return the relative spacing of the numbers that z holds; whole numbers are exact."""
    return float(np.finfo(z.dtype if np.issubdtype(z.dtype, np.floating) else float).eps)


def _as_matrix(name: str, z: np.ndarray) -> np.ndarray:
    if z.dtype == object or str(z.dtype) == "bfloat16":  # a table of several types, or JAX's half precision
        with contextlib.suppress(TypeError, ValueError):
            z = z.astype(np.float64)
    if z.ndim < 2 or not len(z):
        raise ValueError(f"{name} must hold rows [n, d], at least one, got shape {z.shape}.")
    if z.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got {z.dtype}.")
    return z.reshape(len(z), -1).astype(np.float64)


def _by_name(part: str, s: Any, size: int) -> dict[str, np.ndarray]:
    """Return the private variables of one part by name; a single one is called s."""
    if hasattr(s, "columns"):  # a DataFrame, each of whose columns has its own type
        s = {name: s[name] for name in s.columns}
    s = s if isinstance(s, Mapping) else {"s": s}
    if not s:
        raise ValueError(f"s_{part} is an empty dict: name at least one private variable.")
    named = {str(name): np.asarray(values) for name, values in s.items()}
    if len(named) < len(s):
        raise ValueError(f"s_{part} has two variables of the same name: names are compared as text.")
    if any(values.shape[:1] != (size,) for values in named.values()):
        raise ValueError(f"s_{part} must have one row for each of the {size} rows of z_{part}.")
    return named


def _parse_variable(name: str, values: dict[str, np.ndarray]) -> list[PrivateVariable]:
    """Parse a vector as one variable, one-hot rows as classes, and each column of a matrix as a variable."""
    train = values["train"]
    if any(v.shape[1:] != train.shape[1:] for v in values.values()):
        raise ValueError(f"{name} must have the same columns in every part.")
    if train.ndim == 1:
        return [_parse_reals(name, values) if train.dtype.kind == "f" else _parse_classes(name, values)]
    if train.ndim != 2:
        raise ValueError(f"{name} must be labels [n] or a matrix [n, k], got shape {train.shape}.")
    if train.shape[1] == 1:
        return _parse_variable(name, {part: v[:, 0] for part, v in values.items()})
    if all(((v == 0) | (v == 1)).all() and (v.sum(1) == 1).all() for v in values.values()):
        return _parse_variable(name, {part: v.argmax(1) for part, v in values.items()})
    columns = [{part: v[:, k] for part, v in values.items()} for k in range(train.shape[1])]
    return [v for k, column in enumerate(columns) for v in _parse_variable(f"{name}[{k}]", column)]


def _parse_classes(name: str, values: dict[str, np.ndarray]) -> PrivateVariable:
    try:
        classes = np.unique(values["train"])
        place = {part: np.searchsorted(classes, v).clip(max=len(classes) - 1) for part, v in values.items()}
        numbers = {part: np.where(classes[i] == values[part], i, -1) for part, i in place.items()}
        unseen = numbers["test"] < 0
        num_unseen = len(np.unique(values["test"][unseen]))
    except TypeError:
        raise _mixed_types(name) from None
    if (numbers["train"] < 0).any():
        raise ValueError(f"{name} has missing labels (NaN): drop those rows, or give them a name.")
    if unseen.all():
        raise ValueError(f"{name} has no test row of a training class: use one type of label in both.")
    note = f"{num_unseen} classes are in no training row: their {int(unseen.sum())} test rows count as errors"
    notes = (note,) if num_unseen else ()
    return PrivateVariable(name, numbers, len(classes), len(classes) + num_unseen, notes)


def _parse_reals(name: str, values: dict[str, np.ndarray]) -> PrivateVariable:
    reals = {part: v.astype(np.float64) for part, v in values.items()}
    finite = {part: v[np.isfinite(v)] for part, v in reals.items()}
    for part, v in finite.items():
        if not len(v):
            raise ValueError(f"{name} has no finite value among the {part} rows: leave it out.")
    missing = sum(len(reals[part]) - len(finite[part]) for part in reals)
    notes = [f"{missing} rows without a finite value are left out"] if missing else []
    train, distinct = finite["train"], len(np.unique(finite["train"]))
    if (train == np.floor(train)).all() and 2 <= distinct <= max(len(train) // 2, 2):
        notes.append("its whole numbers are treated as reals: convert them to integers to attack classes")
    if np.ptp(finite["test"]) == 0:
        notes.append("it is constant in the test rows, so there is no score")
    # Scores do not depend on the unit, and in this one no square overflows. Powers of two are exact.
    exponent = int(np.frexp(np.abs(train).max())[1])
    with np.errstate(over="ignore"):
        return PrivateVariable(
            name, {part: np.ldexp(v, -exponent) for part, v in reals.items()}, notes=tuple(notes)
        )


def _rank_labels(y: Mapping[str, Any], rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return ranks of the utility label; a missing label has a rank, because its absence can reveal s."""
    labels = {part: np.asarray(y[part]) for part in ("train", "test")}
    for part, values in labels.items():
        n = len(rows[part])
        if values.shape[:1] != (n,) or values.ndim > 2:
            raise ValueError(f"y_{part} must be labels [{n}] or a matrix [{n}, k], got shape {values.shape}.")
        labels[part] = values.reshape(n, -1)
    if labels["train"].shape[1] != labels["test"].shape[1]:
        raise ValueError("y must have the same columns in every part.")
    ranks = {}
    for part, values in labels.items():
        try:
            columns = zip(labels["train"].T, values.T, strict=True)
            ranks[part] = np.stack([np.searchsorted(np.unique(a), b) for a, b in columns], axis=1)
        except TypeError:
            raise _mixed_types(f"y_{part}") from None
    return ranks


def _mixed_types(name: str) -> TypeError:
    return TypeError(f"{name} has labels that cannot be compared, such as text and None: use one type.")
