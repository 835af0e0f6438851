"""What the attackers read: released rows made comparable, private variables as codes or reals."""

import contextlib
import dataclasses
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LARGEST = 1e30  # times the largest training value: what lies beyond is cut, so that squares stay finite
FAR_OUT = 3.0  # times the range of the inner 99 % of training values, beyond that range
RULED = 10.0  # a spread so many times larger with values far out than without is theirs
HUGE = 1e300  # stands for differences beyond the largest number
PARTS = ("train", "validation", "test")

Labels = ArrayLike | Mapping[str, ArrayLike]


class Target(NamedTuple):
    """One private variable in the three parts.

    Attributes:
      name: what the report calls it.
      classes: the classes of the training rows, sorted; None for a continuous variable.
      codes: for each part its rows: numbers of `classes` (-1: in no training row), or reals.
      num_classes: classes in training and test rows together; 0 for a continuous variable.
      notes: what the report has to say about it.
    """

    name: str
    classes: np.ndarray | None
    codes: dict[str, np.ndarray]
    num_classes: int
    notes: tuple[str, ...]

    @property
    def discrete(self) -> bool:
        """Whether the variable has classes."""
        return self.classes is not None


@dataclasses.dataclass(frozen=True)
class Problem:
    """Everything one audit attacks: z standardised by its training rows, and the targets.

    Attributes:
      z: for each part that was given its rows [n, d], float64.
      rows: for each target and part, the rows whose private value is known.
      targets: the private variables.
      y: the utility label of the parts where it was given.
      notes: what was done to z.
    """

    z: dict[str, np.ndarray]
    targets: tuple[Target, ...]
    rows: dict[str, dict[str, np.ndarray]]
    y: dict[str, np.ndarray]
    notes: tuple[str, ...]

    def part(self, target: Target, part: str) -> tuple[np.ndarray, np.ndarray]:
        """The rows of z and of the target in one part, where the target is known."""
        z, codes, rows = self.z[part], target.codes[part], self.rows[target.name][part]
        return (z, codes) if rows.all() else (z[rows], codes[rows])


def make_problem(
    z: Mapping[str, ArrayLike | None],
    s: Mapping[str, Labels | None],
    y: Mapping[str, ArrayLike | None],
) -> Problem:
    """Checks the arrays of the three parts and standardises z by its training rows alone."""
    raw = {part: _matrix(f"z_{part}", rows) for part, rows in z.items() if rows is not None}
    for part in ("train", "test"):
        if part not in raw:
            raise ValueError(f"z_{part} must be given: attackers learn from some rows, are judged on others.")
    for part, rows in raw.items():
        if rows.shape[1] != raw["train"].shape[1]:
            raise ValueError(f"z_{part} must have the width of z_train, got {rows.shape[1]} columns.")
        if s.get(part) is None:
            raise ValueError(f"s_{part} must be given with z_{part}.")
    named = {part: _named(part, s[part]) for part in raw}
    targets = []
    for name in named["train"]:
        values = {}
        for part, rows in raw.items():
            if name not in named[part]:
                raise ValueError(f"s_{part} lacks the variable {name!r} that s_train has.")
            values[part] = named[part][name]
            if values[part].shape[:1] != (len(rows),):
                raise ValueError(f"s_{part} must have one row for each of the {len(rows)} rows of z_{part}.")
        targets += _targets(name, values)
    twice = [t.name for i, t in enumerate(targets) if t.name in {other.name for other in targets[:i]}]
    if twice:
        raise ValueError(f"s has two variables that are called {twice[0]!r}: rename one.")
    known = {
        t.name: {
            p: np.isfinite(c) if t.classes is None else np.ones(len(c), bool) for p, c in t.codes.items()
        }
        for t in targets
    }
    labels = {part: _utility(part, y[part], len(raw[part])) for part in raw if y.get(part) is not None}
    if len({v.shape[1:] for v in labels.values()}) > 1:
        raise ValueError("y must have the same columns in every part.")
    released, notes = standardise(raw, max(_precision(rows) for rows in z.values() if rows is not None))
    return Problem(released, tuple(targets), known, labels, notes)


def standardise(
    raw: Mapping[str, np.ndarray], precision: float = float(np.finfo(np.float32).eps)
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Mean 0 and spread 1 by the training rows, without columns that are constant there.

    A value that is not finite becomes its column's mean, and whether it was NaN, or which infinity, becomes
    a column of its own where training rows differ in that: to an attacker a hole is as good as a number.
    Values far out are drawn in: one of them would make the spread its own, and hide all others from attackers
    who measure.

    Args:
      raw: rows of each part, float64.
      precision: of the type that they had before.
    """
    holes = {part: ~np.isfinite(z) for part, z in raw.items()}
    # From here on differences to one training value: they are exact where numbers are large and alike.
    base = _first_finite(raw["train"], holes["train"])
    with np.errstate(over="ignore", invalid="ignore"):
        filled = {part: np.where(holes[part], 0.0, z - base) for part, z in raw.items()}
    filled = {part: np.nan_to_num(z, posinf=HUGE, neginf=-HUGE) for part, z in filled.items()}
    low, high = _bounds(filled["train"], holes["train"])
    outside = (filled["train"] < low) | (filled["train"] > high)
    far = int((outside & ~holes["train"]).any(0).sum())
    filled = {part: np.where(holes[part], 0.0, np.clip(z, low, high)) for part, z in filled.items()}
    size = np.maximum(np.abs(filled["train"]).max(0, initial=0.0), np.finfo(float).tiny)
    with np.errstate(over="ignore"):
        filled = {part: np.clip(z / size, -LARGEST, LARGEST) for part, z in filled.items()}
    z, hole = filled["train"], holes["train"]
    count = np.maximum((~hole).sum(0), 1)
    mean = z.sum(0) / count
    spread = np.sqrt((np.where(hole, 0.0, z - mean) ** 2).sum(0) / count)
    # A spread of a few units in the last place of the numbers themselves is nothing but rounding.
    live = spread * size > 8 * precision * np.abs(base)
    live &= spread > 0
    # NaN and each infinity, one after another.
    kinds = {part: np.concatenate([np.isnan(z), z == np.inf, z == -np.inf], 1) for part, z in raw.items()}
    telling = kinds["train"].any(0) & ~kinds["train"].all(0)
    notes = []
    if hole.any():
        notes.append(f"{int(hole.any(1).sum())} training rows of z are not finite: holes filled and flagged")
    for part in raw:
        bad = kinds[part][:, ~telling].any(1)
        if part != "train" and bad.any():
            notes.append(f"{int(bad.sum())} {part} rows of z are not finite: read as the training mean")
    if far:
        notes.append(f"{far} of {len(live)} columns of z have training values far out: drawn in")
    if not live.all():
        notes.append(f"{int((~live).sum())} of {len(live)} columns of z are constant in training rows")

    def scaled(part: str) -> np.ndarray:
        unit = (filled[part][:, live] - mean[live]) / spread[live]
        unit = np.where(holes[part][:, live], 0.0, unit)
        # Nothing useful lies beyond; a test row far out must not overflow in a kernel.
        return np.concatenate([np.clip(unit, -1e6, 1e6), kinds[part][:, telling]], axis=1)

    return {part: scaled(part) for part in raw}, tuple(notes)


def _first_finite(z: np.ndarray, hole: np.ndarray) -> np.ndarray:
    """The first finite value of each column, 0 where there is none."""
    found = z[np.argmin(hole, axis=0), np.arange(z.shape[1])]
    return np.where(np.isfinite(found), found, 0.0)


def _bounds(z: np.ndarray, hole: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far out a value of each column may lie; anywhere where no few values rule its spread."""
    count = (~hole).sum(0)
    cut = np.maximum(1, np.ceil(0.005 * count).astype(int))
    column = np.arange(z.shape[1])
    order = np.sort(np.where(hole, np.inf, z), axis=0)
    first = order[np.minimum(cut, len(z) - 1), column]
    last = order[np.maximum(count - 1 - cut, 0), column]
    with np.errstate(over="ignore", invalid="ignore"):
        reach = FAR_OUT * (last - first)
        # So few values that the cut takes most of them say nothing of a range.
        reach = np.where((count >= 10) & (reach > 0), reach, np.inf)
        low, high = first - reach, last + reach
        # Only where they make the spread their own: to draw in more would bend columns that nobody flattens.
        unit = np.maximum(np.abs(z).max(0), np.finfo(float).tiny)
        inner = np.clip(z, low, high)
        ruled = (z / unit).std(0) > RULED * (inner / unit).std(0)
        return np.where(ruled, low, -np.inf), np.where(ruled, high, np.inf)


def derived_seed(seed: int, *words: object) -> int:
    """A seed for one purpose: another attacker in the list, or another worker, never shifts it."""
    text = "/".join(str(word) for word in words)
    return int(np.random.SeedSequence([seed, zlib.crc32(text.encode())]).generate_state(1)[0] >> 1)


def _precision(z: Any) -> float:
    """The unit in the last place of the numbers that z holds; whole numbers are exact."""
    dtype = np.asarray(z).dtype
    return float(np.finfo(dtype).eps) if np.issubdtype(dtype, np.floating) else float(np.finfo(float).eps)


def _matrix(name: str, z: Any) -> np.ndarray:
    z = np.asarray(z)
    if z.dtype.kind == "V" or str(z.dtype) == "bfloat16":  # JAX's own half precision
        with contextlib.suppress(TypeError, ValueError):
            z = z.astype(np.float32)
    if z.dtype == object:  # as of a table whose columns are of several types
        with contextlib.suppress(TypeError, ValueError):
            z = z.astype(np.float64)
    if z.ndim < 2 or not len(z):
        raise ValueError(f"{name} must hold rows [n, d], at least one, got shape {z.shape}.")
    if not (np.issubdtype(z.dtype, np.number) or z.dtype == bool) or np.iscomplexobj(z):
        raise TypeError(f"{name} must be real numbers, got {z.dtype}.")
    return z.reshape(len(z), -1).astype(np.float64)


def _named(part: str, s: Any) -> dict[str, np.ndarray]:
    if hasattr(s, "columns"):  # a DataFrame: each column is of its own type
        s = {name: s[name] for name in s.columns}
    if not isinstance(s, Mapping):
        return {"s": np.asarray(s)}
    if not s:
        raise ValueError(f"s_{part} is an empty dict: name at least one private variable.")
    named = {str(name): np.asarray(values) for name, values in s.items()}
    if len(named) < len(s):
        raise ValueError(f"s_{part} has two variables of the same name: names are compared as text.")
    return named


def _targets(name: str, values: dict[str, np.ndarray]) -> list[Target]:
    """A vector is one target; one-hot rows are classes; each column of a real matrix is a target."""
    train = values["train"]
    if any(v.ndim != train.ndim or v.shape[1:] != train.shape[1:] for v in values.values()):
        raise ValueError(f"{name} must have the same columns in every part.")
    if train.ndim == 2:
        if train.shape[1] == 1:
            return _targets(name, {part: v[:, 0] for part, v in values.items()})
        if all(((v == 0) | (v == 1)).all() and (v.sum(1) == 1).all() for v in values.values()):
            return _targets(name, {part: v.argmax(1) for part, v in values.items()})
        columns = range(train.shape[1])
        return [t for k in columns for t in _targets(f"{name}[{k}]", {p: v[:, k] for p, v in values.items()})]
    if train.ndim != 1:
        raise ValueError(f"{name} must be labels [n] or a matrix [n, k], got shape {train.shape}.")
    if np.issubdtype(train.dtype, np.floating):
        return [_continuous(name, values)]
    try:
        classes = np.unique(train)
        codes = {part: _codes(v, classes) for part, v in values.items()}
        if (codes["train"] < 0).any():
            raise ValueError(f"{name} has missing labels (NaN): drop those rows, or name them.")
        if (codes["test"] < 0).all():
            raise ValueError(f"{name} has no test row of a class that is in training: are they of one type?")
        unseen = codes["test"] < 0
        more = len(np.unique(values["test"][unseen]))
    except TypeError:
        raise TypeError(
            f"{name} has labels that cannot be compared, such as text beside None: make them one type."
        ) from None
    if not more:
        return [Target(name, classes, codes, len(classes), ())]
    note = f"{more} classes are in no training row: their {int(unseen.sum())} test rows count as errors"
    return [Target(name, classes, codes, len(classes) + more, (note,))]


def _continuous(name: str, values: dict[str, np.ndarray]) -> Target:
    reals = {part: v.astype(np.float64) for part, v in values.items()}
    for part, v in reals.items():
        if not np.isfinite(v).any():
            raise ValueError(f"{name} has no finite value among the {part} rows: leave it out.")
    lost = sum(int((~np.isfinite(v)).sum()) for v in reals.values())
    notes = [f"{lost} rows without a finite value are left out"] if lost else []
    train = reals["train"][np.isfinite(reals["train"])]
    if (train == np.floor(train)).all() and 2 <= len(np.unique(train)) <= max(len(train) // 2, 2):
        notes.append("it is judged as a quantity, though all values are whole: make classes integers")
    # Scores know no unit: in one near the largest value no square overflows. Powers of two are exact.
    largest = np.abs(reals["train"][np.isfinite(reals["train"])]).max()
    exponent = int(np.frexp(largest)[1])
    with np.errstate(over="ignore"):
        reals = {part: np.ldexp(v, -exponent) for part, v in reals.items()}
    test = reals["test"][np.isfinite(reals["test"])]
    if test.min() == test.max():
        notes.append("it does not change among the test rows: there is nothing to score")
    return Target(name, None, reals, 0, tuple(notes))


def _codes(values: np.ndarray, classes: np.ndarray) -> np.ndarray:
    place = np.minimum(np.searchsorted(classes, values), len(classes) - 1)
    return np.where(classes[place] == values, place, -1)


def _utility(part: str, y: Any, size: int) -> np.ndarray:
    y = np.asarray(y)
    if y.shape[:1] != (size,):
        raise ValueError(f"y_{part} must have one row for each of the {size} rows of z_{part}.")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim > 2:
        raise ValueError(f"y_{part} must be labels [n] or a matrix [n, k], got shape {y.shape}.")
    for column in y.reshape(size, -1).T if y.dtype == object else ():  # told now and not after the attacks
        try:
            np.unique(column)
        except TypeError:
            raise TypeError(
                f"y_{part} has labels that cannot be compared, such as text beside None: make them one type."
            ) from None
    return y
