"""What the attackers read: released rows made comparable, private variables as codes or reals."""

import contextlib
import dataclasses
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LARGEST = 1e30  # times the largest training value: what lies beyond is cut, so that squares stay finite
CONSTANT = 1e-7  # a column whose spread is below this share of its size says nothing but rounding
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
    known = {
        t.name: {
            p: np.isfinite(c) if t.classes is None else np.ones(len(c), bool) for p, c in t.codes.items()
        }
        for t in targets
    }
    labels = {part: _utility(part, y[part], len(raw[part])) for part in raw if y.get(part) is not None}
    released, notes = standardise(raw)
    return Problem(released, tuple(targets), known, labels, notes)


def standardise(raw: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Mean 0 and spread 1 by the training rows, without columns that are constant there.

    A value that is not finite becomes its column's mean, and whether it was finite becomes a column of
    its own where training rows differ in that: to an attacker a hole is as good as a number.
    """
    holes = {part: ~np.isfinite(z) for part, z in raw.items()}
    filled = {part: np.where(holes[part], 0.0, z) for part, z in raw.items()}
    size = np.maximum(np.abs(filled["train"]).max(0, initial=0.0), np.finfo(float).tiny)
    with np.errstate(over="ignore"):
        filled = {part: np.clip(z / size, -LARGEST, LARGEST) for part, z in filled.items()}
    z, hole = filled["train"], holes["train"]
    count = np.maximum((~hole).sum(0), 1)
    mean = z.sum(0) / count
    spread = np.sqrt((np.where(hole, 0.0, z - mean) ** 2).sum(0) / count)
    live = spread > CONSTANT
    telling = hole.any(0) & ~hole.all(0)
    notes = []
    if hole.any():
        notes.append(f"{int(hole.any(1).sum())} training rows of z are not finite: holes filled and flagged")
    for part in raw:
        bad = holes[part][:, ~telling].any(1)
        if part != "train" and bad.any():
            notes.append(f"{int(bad.sum())} {part} rows of z are not finite: read as the training mean")
    if not live.all():
        notes.append(f"{int((~live).sum())} of {len(live)} columns of z are constant in training rows")

    def scaled(part: str) -> np.ndarray:
        unit = (filled[part][:, live] - mean[live]) / spread[live]
        unit = np.where(holes[part][:, live], 0.0, unit)
        # Nothing useful lies beyond; a test row far out must not overflow in a kernel.
        return np.concatenate([np.clip(unit, -1e6, 1e6), holes[part][:, telling]], axis=1)

    return {part: scaled(part) for part in raw}, tuple(notes)


def derived_seed(seed: int, *words: object) -> int:
    """A seed for one purpose: another attacker in the list, or another worker, never shifts it."""
    text = "/".join(str(word) for word in words)
    return int(np.random.SeedSequence([seed, zlib.crc32(text.encode())]).generate_state(1)[0] >> 1)


def _matrix(name: str, z: Any) -> np.ndarray:
    z = np.asarray(z)
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
    return {str(name): np.asarray(values) for name, values in s.items()}


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
    return y
