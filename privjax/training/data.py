"""What training reads: arrays checked once on the host, and what is static about them."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from privjax.losses._inputs import MOST_CLASSES


class TrainData(NamedTuple):
    """One copy of the rows, shared by every member of a sweep; a split is a choice of row numbers.

    Attributes:
      x: inputs [n, ...].
      y: utility, integer labels [n] or reals [n, k].
      p: private variable, integer labels [n] or reals [n, k]; or a dict of those.
      weights: non-negative sample weights [n], or None for all equal.
      train_rows: numbers of the rows to train on, or None for all.
      validation_rows: numbers of the rows to validate on, or None for some of the training rows.
    """

    x: Array
    y: Array
    p: Array | dict[str, Array]
    weights: Array | None = None
    train_rows: Array | None = None
    validation_rows: Array | None = None


class Attribute(NamedTuple):
    """One private variable; `num_classes` is 0 for reals; `width` columns as a matrix."""

    name: str | None
    num_classes: int
    width: int

    def pick(self, p: Array | dict[str, Array]) -> Array:
        """This variable's part of the p of `TrainData`."""
        return p if self.name is None else p[self.name]  # pyright: ignore

    def matrix(self, p: Array) -> Array:
        """Labels as one-hot rows [n, width]; reals as they are."""
        return jax.nn.one_hot(p, self.width) if self.num_classes else p


class Task(NamedTuple):
    """What is static about the labels: `num_classes` of y, 0 for reals; the variables of p."""

    num_classes: int
    private: tuple[Attribute, ...]

    @property
    def num_private(self) -> int:
        """Outputs that a discriminator needs: those of all private variables, in order."""
        return sum(attribute.width for attribute in self.private)

    def collect(self, values: list):
        """One value a private variable, in the shape that p has: a dict, or the value itself."""
        if self.private[0].name is None:
            return values[0]
        return {a.name: value for a, value in zip(self.private, values, strict=True)}


def make_data(
    x: ArrayLike,
    y: ArrayLike,
    p: ArrayLike | Mapping[str, ArrayLike],
    *,
    weights: ArrayLike | None = None,
    train_rows: ArrayLike | None = None,
    validation_rows: ArrayLike | None = None,
) -> tuple[TrainData, Task]:
    """Checks the arrays, says in one sentence what is wrong, and puts them on the device.

    Integers [n] (or one-hot rows) are classes, numbered from 0; reals and other matrices are continuous
    variables.

    Args:
      x: inputs [n, ...].
      y: utility [n] or [n, k].
      p: private variable [n] or [n, k], or a dict of several.
      weights: non-negative sample weights [n].
      train_rows: numbers of the rows to train on; all but the validation rows when None.
      validation_rows: numbers of the rows to validate on.
    """
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
    y, num_classes = as_labels("y", y, len(x))
    if num_classes == 1:
        raise ValueError("y has a single class, so there is nothing to keep: give at least two.")
    single = not isinstance(p, Mapping)
    if not single and not all(isinstance(name, str) for name in p):
        raise TypeError("p must be a dict by names: its keys are not all text.")
    named = {None: p} if single else dict(sorted(p.items()))
    if not named:
        raise ValueError("p is an empty dict: name at least one private variable.")
    private, attributes = {}, []
    for name, value in named.items():
        where = "p" if single else f"p[{name!r}]"
        values, classes = as_labels(where, value, len(x))
        if classes == 1:
            raise ValueError(f"{where} has a single class, so there is nothing to hide.")
        attributes.append(Attribute(name, classes, classes or values.shape[1]))
        private[name] = jnp.asarray(values)
    if train_rows is None and validation_rows is not None:
        train_rows = np.setdiff1d(np.arange(len(x)), np.asarray(validation_rows))
        if not len(train_rows):
            raise ValueError("validation_rows are all rows of x: leave some to train on.")
    data = TrainData(
        x=jnp.asarray(x),
        y=jnp.asarray(y),
        p=private[None] if single else private,
        weights=None if weights is None else jnp.asarray(_weights(weights, len(x))),
        train_rows=_row_numbers("train_rows", train_rows, len(x)),
        validation_rows=_row_numbers("validation_rows", validation_rows, len(x)),
    )
    return data, Task(num_classes, tuple(attributes))


def as_labels(name: str, labels: ArrayLike, n: int) -> tuple[np.ndarray, int]:
    """Integer labels [n] with their number of classes, or reals [n, k] with 0."""
    labels = np.asarray(labels)
    if labels.ndim not in (1, 2) or len(labels) != n:
        raise ValueError(f"{name} must be [n] or [n, k] with the {n} rows of x, got shape {labels.shape}.")
    if labels.dtype == bool or np.issubdtype(labels.dtype, np.integer):
        if labels.ndim == 1:
            for label in (labels.min(), labels.max()):
                if not 0 <= label < MOST_CLASSES:
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
    """Integers and reals, those of half precision that are JAX's own included."""
    return jnp.issubdtype(values.dtype, jnp.integer) or jnp.issubdtype(values.dtype, jnp.floating)


def _as_float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # becomes infinity, which is refused
        return values.astype(np.float32)


def _weights(weights: ArrayLike, n: int) -> np.ndarray:
    weights = np.asarray(weights, np.float32)
    if weights.shape != (n,):
        raise ValueError(f"weights must be one number for each of the {n} rows of x.")
    if not np.isfinite(weights).all() or weights.min() < 0 or not weights.any():
        raise ValueError("weights must be finite, not negative, and not all zero.")
    return weights


def _row_numbers(name: str, rows: ArrayLike | None, n: int) -> Array | None:
    if rows is None:
        return None
    rows = np.asarray(rows)
    if rows.ndim != 1 or not len(rows) or not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(f"{name} must be a vector of row numbers, at least one.")
    if rows.min() < 0 or rows.max() >= n:
        raise ValueError(f"{name} must lie between 0 and {n - 1}, the rows of x.")
    return jnp.asarray(rows, jnp.int32)
