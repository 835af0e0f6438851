"""The inputs of training: checked arrays, the static config, and the numbers of one member."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, SupportsIndex, TypedDict, TypeVar, Unpack

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Shaped

from privjax.encoder import Rows, SampleWeights
from privjax.networks import Networks
from privjax.objectives import Attribute, Objective
from privjax.release import ReleaseMechanism, exact

_DROPOUT = {"private_dropout": 0.2, "public_dropout": 0.5}
_MAX_CLASSES = 10**6  # a larger label is an identifier, not a class number

Value = TypeVar("Value")
Labels = Shaped[ArrayLike, " n"] | Shaped[ArrayLike, "n _"]
RowNumbers = Shaped[ArrayLike, " _"] | Sequence[int]


class TrainData(NamedTuple):
    """Rows: one copy for all members of a sweep, in which a split is a choice of row numbers."""

    x: Array  # scaled inputs [n, ...]
    y: Array  # integers [n], or continuous values [n, k]
    p: Array | dict[str, Array]  # integers [n], or continuous values [n, k]; a dict of several
    weights: Array | None = None  # None for equal weights
    train_rows: Array | None = None  # None for all rows
    validation_rows: Array | None = None  # None to validate on some training rows


class Task(NamedTuple):
    """The static part of the labels."""

    num_classes: int  # of y; 0 for a continuous y
    private: tuple[Attribute, ...]  # sorted by name

    @property
    def num_private(self) -> int:
        """Number of discriminator outputs: the widths of all private variables together."""
        return sum(attribute.width for attribute in self.private)

    def collect(self, values: Sequence[Value]) -> Value | dict[str, Value]:
        """Arrange one value for each private variable like p: as a dict, or as the only value."""
        if self.private[0].name is None:
            return values[0]
        return {str(a.name): value for a, value in zip(self.private, values, strict=True)}


class TrainConfig(NamedTuple):
    """The static arguments of training: another config is another compilation."""

    networks: Networks
    objective: Objective
    task: Task
    batch_size: int = 500  # at most
    release: ReleaseMechanism = exact()
    axis: str | None = None  # of a mesh over which the rows of each batch are spread


class Hyperparameters(NamedTuple):
    """The numbers that may differ between members of a sweep, as arrays; see `hyperparameters`."""

    privacy_weight: Array | dict[str, Array]
    private_rate: Array
    public_rate: Array
    discriminator_rate: Array
    private_dropout: Array
    public_dropout: Array
    seed: Array


class Rates(TypedDict, total=False):
    """The hyperparameters with defaults: Adam's learning rates, and dropout rates of hidden layers."""

    private_rate: float
    public_rate: float
    discriminator_rate: float
    private_dropout: float
    public_dropout: float


def check_rates(rates: Mapping[str, Any]) -> None:
    """Raise TypeError for names that are not in `Rates`."""
    for name in rates:
        if name not in Rates.__annotations__:
            known = ", ".join(Rates.__annotations__)
            raise TypeError(f"{name} is not known: beside the named arguments there are {known}.")


def hyperparameters(
    objective: Objective,
    task: Task,
    *,
    privacy_weight: float | Array | Mapping[str, float | Array],
    seed: SupportsIndex | Array = 0,
    **rates: Unpack[Rates],
) -> Hyperparameters:
    """Check the numbers of one member and return them as arrays; traced values pass unchecked."""
    check_rates(rates)
    names = [attribute.name for attribute in task.private]
    if not isinstance(privacy_weight, Mapping):
        weights = [_number("privacy_weight", privacy_weight)] * len(names)
    elif names == [None]:
        raise TypeError("privacy_weight must be a number, since p is not a dict.")
    elif set(privacy_weight) != set(names):
        raise ValueError(
            f"privacy_weight must name the private variables {names}, got {sorted(privacy_weight)}."
        )
    else:
        weights = [_number(f"privacy_weight[{name!r}]", privacy_weight[str(name)]) for name in names]
    if not isinstance(seed, Tracer) and not (hasattr(seed, "__index__") and 0 <= int(seed) < 2**32):
        raise ValueError(f"seed must be an integer between 0 and 2^32 - 1, got {seed!r}.")
    numbers = {}
    for name in Rates.__annotations__:
        default = _DROPOUT[name] if name in _DROPOUT else getattr(objective, name)
        value = default if rates.get(name) is None else rates[name]
        numbers[name] = _number(name, value, most=1 if name in _DROPOUT else math.inf)
    return Hyperparameters(task.collect(weights), seed=jnp.asarray(seed, jnp.uint32), **numbers)


def _number(name: str, value: Any, *, most: float = math.inf) -> Array:
    """Return a finite number from 0 to `most` as an array; a traced value is not checked."""
    if not isinstance(value, Tracer):
        single = isinstance(value, (int, float, np.number, np.ndarray, Array)) and np.ndim(value) == 0
        if not (single and math.isfinite(value) and 0 <= float(value) <= most):
            limits = "not negative" if most == math.inf else f"between 0 and {most}"
            raise ValueError(f"{name} must be a finite number, {limits}, got {value!r}.")
    return jnp.asarray(value, jnp.float32)


def check_positive_integer(name: str, value: Any) -> None:
    """Raise ValueError unless the value is an integer of at least 1."""
    if not hasattr(value, "__index__") or value < 1:
        raise ValueError(f"{name} must be at least 1, a whole number, got {value!r}.")


def make_data(
    x: Rows,
    y: Labels,
    p: Labels | Mapping[str, Labels],
    *,
    weights: SampleWeights | None = None,
    train_rows: RowNumbers | None = None,
    validation_rows: RowNumbers | None = None,
) -> tuple[TrainData, Task]:
    """Check the arguments of `fit` that hold one entry for each row, and return them as NumPy arrays."""
    x = np.asarray(x)
    if x.ndim < 2 or not x.size:
        raise ValueError(f"x must hold rows [n, ...], got shape {x.shape}.")
    n = len(x)
    arrays: dict[str, Any] = {"x": _as_float32("x", x, "real numbers")}
    arrays["y"], num_classes = as_labels("y", y, n)
    if num_classes == 1:
        raise ValueError("y has a single class, so there is nothing to keep: give at least two.")
    if isinstance(p, Mapping) and not (p and all(isinstance(name, str) for name in p)):
        raise ValueError(f"p is an empty dict, or its keys are not text, got {list(p)}: name each variable.")
    private, attributes = [], []
    for name, labels in sorted(p.items()) if isinstance(p, Mapping) else [(None, p)]:
        where = "p" if name is None else f"p[{name!r}]"
        values, classes = as_labels(where, labels, n)
        if classes == 1:
            raise ValueError(f"{where} has a single class, so there is nothing to hide.")
        attributes.append(Attribute(name, classes, classes or values.shape[1]))
        private.append(values)
    task = Task(num_classes, tuple(attributes))
    arrays["weights"] = None if weights is None else _checked_weights(weights, n)
    arrays["validation_rows"] = held_out = _row_numbers("validation_rows", validation_rows, n)
    if train_rows is None and held_out is not None:
        train_rows = np.setdiff1d(np.arange(n), held_out)
        if not len(train_rows):
            raise ValueError("validation_rows are all rows of x: leave some to train on.")
    arrays["train_rows"] = _row_numbers("train_rows", train_rows, n)
    return TrainData(p=task.collect(private), **arrays), task


def as_labels(name: str, labels: Labels, n: int) -> tuple[np.ndarray, int]:
    """Return integer labels [n] and their number of classes, or continuous values [n, k] and 0.

    Integers [n], booleans and one-hot rows are classes, numbered from 0; other numbers are continuous.
    """
    labels = np.asarray(labels)
    if labels.ndim not in (1, 2) or len(labels) != n:
        raise ValueError(f"{name} must be [n] or [n, k] with the {n} rows of x, got shape {labels.shape}.")
    if labels.ndim == 1 and (labels.dtype == bool or np.issubdtype(labels.dtype, np.integer)):
        for label in (labels.min(), labels.max()):
            if not 0 <= label < _MAX_CLASSES:
                raise ValueError(f"{name} holds the label {label}: number the classes from 0.")
        return labels.astype(np.int32), int(labels.max()) + 1
    matrix = _as_float32(name, labels, "integer labels or reals, with classes numbered from 0").reshape(n, -1)
    if matrix.shape[1] > 1 and ((matrix == 0) | (matrix == 1)).all() and (matrix.sum(1) == 1).all():
        return matrix.argmax(1).astype(np.int32), matrix.shape[1]
    return matrix, 0


def _as_float32(name: str, values: np.ndarray, kind: str) -> np.ndarray:
    """Return finite real numbers [n, ...] in float32, or raise."""
    numbers = (jnp.bool_, jnp.integer, jnp.floating)  # JAX knows bfloat16 and its like
    if not any(jnp.issubdtype(values.dtype, number) for number in numbers):
        raise TypeError(f"{name} must be {kind}, got {values.dtype}.")
    with np.errstate(over="ignore"):  # too large a number becomes infinity, which is refused
        values = values.astype(np.float32, copy=False)
    bad = ~np.isfinite(values.reshape(len(values), -1)).all(1)
    if bad.any():
        raise ValueError(
            f"{name} must be finite, but {bad.sum()} rows hold NaN or infinity, the first is row "
            f"{int(bad.argmax())}: drop or fill them."
        )
    return values


def _checked_weights(weights: SampleWeights, n: int) -> np.ndarray:
    weights = np.asarray(weights, np.float32)
    if weights.shape != (n,):
        raise ValueError(f"weights must be one number for each of the {n} rows of x.")
    if not np.isfinite(weights).all() or weights.min() < 0 or not weights.any():
        raise ValueError("weights must be finite, not negative, and not all zero.")
    return weights


def _row_numbers(name: str, rows: RowNumbers | None, n: int) -> np.ndarray | None:
    if rows is None:
        return None
    rows = np.asarray(rows)
    if rows.ndim != 1 or not len(rows) or not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(f"{name} must be a vector of row numbers, at least one.")
    if rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"{name} must lie between 0 and {n - 1}, the rows of x.")
    return rows.astype(np.int32)
