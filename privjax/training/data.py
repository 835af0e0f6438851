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
    """Rows on the device: one copy for all members of a sweep, in which a split is a choice of row numbers.

    Attributes:
      x: Scaled inputs [n, ...].
      y: Utility labels: integers [n], or continuous values [n, k].
      p: Private variable: integers [n], or continuous values [n, k]; or a dict of several.
      weights: Sample weights [n], or None for equal weights.
      train_rows: Numbers of the training rows, or None for all rows.
      validation_rows: Numbers of the validation rows, or None to validate on some training rows.
    """

    x: Array
    y: Array
    p: Array | dict[str, Array]
    weights: Array | None = None
    train_rows: Array | None = None
    validation_rows: Array | None = None


class Task(NamedTuple):
    """The static part of the labels.

    Attributes:
      num_classes: Number of classes of y; 0 for a continuous y.
      private: The private variables, sorted by name.
    """

    num_classes: int
    private: tuple[Attribute, ...]

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
    """The static arguments of training: another config is another compilation.

    Attributes:
      networks: The three networks.
      objective: The privacy objective.
      task: The static part of the labels.
      batch_size: Largest number of rows in a step.
      release: The release mechanism.
      axis: Axis of a mesh over which the rows of each batch are spread; None for one device.
    """

    networks: Networks
    objective: Objective
    task: Task
    batch_size: int = 500
    release: ReleaseMechanism = exact()
    axis: str | None = None


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
    """Check the numbers of one member and return them as arrays; traced values pass unchecked.

    Args:
      objective: The objective, whose learning rates are the defaults.
      task: The task, which names the private variables.
      privacy_weight: lambda_P, or a dict with one for each private variable.
      seed: Seed of the initial parameters, the order of rows, the dropout and the release mechanism.
      **rates: Learning rates; dropout rates, 0.2 in the private network and 0.5 in the public one by default.
    """
    check_rates(rates)
    names = [str(attribute.name) for attribute in task.private]
    if task.private[0].name is None:
        if isinstance(privacy_weight, Mapping):
            raise TypeError("privacy_weight must be a number, since p is not a dict.")
        weight = _number("privacy_weight", privacy_weight)
    else:
        each = privacy_weight if isinstance(privacy_weight, Mapping) else dict.fromkeys(names, privacy_weight)
        if set(each) != set(names):
            raise ValueError(f"privacy_weight must name the private variables {names}, got {sorted(each)}.")
        weight = {name: _number(f"privacy_weight[{name!r}]", value) for name, value in each.items()}
    if not isinstance(seed, Tracer) and not (hasattr(seed, "__index__") and 0 <= int(seed) < 2**32):
        raise ValueError(f"seed must be an integer between 0 and 2^32 - 1, got {seed!r}.")
    numbers = {}
    for name in Rates.__annotations__:
        default = _DROPOUT[name] if name in _DROPOUT else getattr(objective, name)
        value = default if rates.get(name) is None else rates[name]
        numbers[name] = _number(name, value, most=1 if name in _DROPOUT else math.inf)
    return Hyperparameters(privacy_weight=weight, seed=jnp.asarray(seed, jnp.uint32), **numbers)


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
    """Check the arrays and put them on the device.

    Integers [n], booleans and one-hot rows are classes, numbered from 0; other numbers are continuous.

    Args:
      x: Scaled inputs [n, ...].
      y: Utility labels [n] or [n, k].
      p: Private variable [n] or [n, k], or a dict of several.
      weights: Non-negative sample weights [n].
      train_rows: Numbers of the training rows; all but the validation rows when None.
      validation_rows: Numbers of the validation rows.
    """
    x = as_float_rows(x)
    y, num_classes = as_labels("y", y, len(x))
    if num_classes == 1:
        raise ValueError("y has a single class, so there is nothing to keep: give at least two.")
    named = _named_private(p)
    private, attributes = [], []
    for name, value in named.items():
        where = "p" if name is None else f"p[{name!r}]"
        values, classes = as_labels(where, value, len(x))
        if classes == 1:
            raise ValueError(f"{where} has a single class, so there is nothing to hide.")
        attributes.append(Attribute(name, classes, classes or values.shape[1]))
        private.append(jnp.asarray(values))
    task = Task(num_classes, tuple(attributes))
    if train_rows is None and validation_rows is not None:
        train_rows = np.setdiff1d(np.arange(len(x)), np.asarray(validation_rows))
        if not len(train_rows):
            raise ValueError("validation_rows are all rows of x: leave some to train on.")
    data = TrainData(
        x=jnp.asarray(x),
        y=jnp.asarray(y),
        p=task.collect(private),
        weights=None if weights is None else jnp.asarray(_checked_weights(weights, len(x))),
        train_rows=_row_numbers("train_rows", train_rows, len(x)),
        validation_rows=_row_numbers("validation_rows", validation_rows, len(x)),
    )
    return data, task


def _named_private(p: Labels | Mapping[str, Labels]) -> dict[str | None, Labels]:
    if not isinstance(p, Mapping):
        return {None: p}
    if not all(isinstance(name, str) for name in p):
        raise TypeError("p must be a dict by names: its keys are not all text.")
    if not p:
        raise ValueError("p is an empty dict: name at least one private variable.")
    return dict(sorted(p.items()))


def as_float_rows(x: Rows) -> np.ndarray:
    """Return x in float32, or raise if it is not finite numbers [n, ...]."""
    x = np.asarray(x)
    if x.ndim < 2 or not x.size:
        raise ValueError(f"x must hold rows [n, ...], got shape {x.shape}.")
    if not (_is_real(x) or x.dtype == bool):
        raise TypeError(f"x must be real numbers, got {x.dtype}.")
    x = _as_float32(x)
    bad = ~np.isfinite(x.reshape(len(x), -1)).all(1)
    if bad.any():
        raise ValueError(
            f"x must be finite, but {bad.sum()} rows hold NaN or infinity, the first is row "
            f"{int(bad.argmax())}: drop or fill them."
        )
    return x


def as_labels(name: str, labels: Labels, n: int) -> tuple[np.ndarray, int]:
    """Return integer labels [n] and their number of classes, or continuous values [n, k] and 0."""
    labels = np.asarray(labels)
    if labels.ndim not in (1, 2) or len(labels) != n:
        raise ValueError(f"{name} must be [n] or [n, k] with the {n} rows of x, got shape {labels.shape}.")
    if labels.dtype == bool or np.issubdtype(labels.dtype, np.integer):
        if labels.ndim == 1:
            for label in (labels.min(), labels.max()):
                if not 0 <= label < _MAX_CLASSES:
                    raise ValueError(f"{name} holds the label {label}: number the classes from 0.")
            return labels.astype(np.int32), int(labels.max()) + 1
    elif not _is_real(labels):
        raise TypeError(f"{name} must be integer labels or reals, got {labels.dtype}: number classes from 0.")
    matrix = _as_float32(labels).reshape(n, -1)
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be finite: drop or fill the rows with NaN or infinity.")
    if matrix.shape[1] > 1 and ((matrix == 0) | (matrix == 1)).all() and (matrix.sum(1) == 1).all():
        return matrix.argmax(1).astype(np.int32), matrix.shape[1]
    return matrix, 0


def _is_real(values: np.ndarray) -> bool:
    """Return whether values are integers or floats, including bfloat16 and its like."""
    return jnp.issubdtype(values.dtype, jnp.integer) or jnp.issubdtype(values.dtype, jnp.floating)


def _as_float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # too large a number becomes infinity, which is refused
        return values.astype(np.float32)


def _checked_weights(weights: SampleWeights, n: int) -> np.ndarray:
    weights = np.asarray(weights, np.float32)
    if weights.shape != (n,):
        raise ValueError(f"weights must be one number for each of the {n} rows of x.")
    if not np.isfinite(weights).all() or weights.min() < 0 or not weights.any():
        raise ValueError("weights must be finite, not negative, and not all zero.")
    return weights


def _row_numbers(name: str, rows: RowNumbers | None, n: int) -> Array | None:
    if rows is None:
        return None
    rows = np.asarray(rows)
    if rows.ndim != 1 or not len(rows) or not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(f"{name} must be a vector of row numbers, at least one.")
    if rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"{name} must lie between 0 and {n - 1}, the rows of x.")
    return jnp.asarray(rows, jnp.int32)
