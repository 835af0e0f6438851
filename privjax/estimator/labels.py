"""What a user calls classes or quantities, as training wants them: numbers from 0, or standardised reals."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

VECTOR = "sensitive_features"  # what a private variable is called that has no name of its own


class Label(NamedTuple):
    """A column of labels.

    Attributes:
      values: class numbers [n], or reals [n, 1] with mean 0 and variance 1.
      classes: in the order of their numbers; None for reals.
      mean: what was taken from reals,
      spread: and what they were then divided by.
    """

    values: np.ndarray
    classes: np.ndarray | None
    mean: float = 0.0
    spread: float = 1.0


def encode(name: str, values: Any, kind: str | None, weights: np.ndarray | None) -> Label:
    """Encodes a column; numbers with a fraction are continuous, all else is classes, unless `kind` says.

    Args:
      name: for messages.
      values: one-dimensional, of any type.
      kind: "category", "continuous", or None to go by the values.
      weights: of the rows, or None for all equal.
    """
    values = _plain(name, values)
    if (values == values[0]).all():
        raise ValueError(f"{name} has one class only, {values[0]!s}: at least two are needed.")
    fractions = values.dtype.kind == "f" and bool((values != np.floor(values)).any())
    if kind == "category" and fractions:
        raise ValueError(f"{name} holds fractions, so it is continuous and not a category.")
    if kind == "continuous" and values.dtype.kind not in "biuf":
        raise ValueError(f"{name} does not hold numbers, so it is a category and not continuous.")
    if kind == "continuous" or fractions:
        return _standardised(name, values.astype(np.float64), weights)
    classes, numbers = np.unique(values, return_inverse=True)
    if kind is None and len(classes) > max(len(values) // 2, 2):
        raise ValueError(
            f"{name} has {len(classes)} classes in {len(values)} rows: say in kinds whether it is "
            "'continuous' or a 'category' indeed."
        )
    return Label(numbers.astype(np.int32), classes)


def _standardised(name: str, values: np.ndarray, weights: np.ndarray | None) -> Label:
    """So a privacy weight means the same whatever the unit of a quantity."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.average(values, weights=weights)
        spread = np.sqrt(np.average((values - mean) ** 2, weights=weights))
    if not 0 < spread < np.inf:
        raise ValueError(f"{name} has a standard deviation of {spread:g}: give it in another unit.")
    return Label(((values - mean) / spread)[:, None], None, float(mean), float(spread))


def _plain(name: str, values: Any) -> np.ndarray:
    """One dimension of text, numbers, booleans or dates: nothing missing, nothing mixed."""
    values = np.asarray(values)
    if values.dtype == object:
        cells = values.tolist()
        if any(map(_missing, cells)):
            raise ValueError(f"{name} has missing values: drop or fill those rows.")
        if len({isinstance(cell, str) for cell in cells}) > 1:
            raise TypeError(f"{name} mixes text and other values: make them all text.")
        values = np.asarray(cells)
    if values.ndim != 1 or values.dtype.kind not in "biufSUM":
        raise TypeError(f"{name} must hold text, numbers, booleans or dates, one in a row.")
    # NaN and not-a-time differ from themselves; an infinity is no quantity, and no class either.
    if (values != values).any() or (values.dtype.kind == "f" and np.isinf(values).any()):
        raise ValueError(f"{name} has missing or infinite values: drop or fill those rows.")
    return values


def _missing(cell: Any) -> bool:
    try:
        return cell is None or bool(cell != cell)
    except TypeError:  # pandas' NA will not say whether it equals itself
        return True


def private_columns(sensitive_features: Any, num_rows: int) -> dict[str, np.ndarray]:
    """The private variables by name: the columns of a table, or a vector."""
    if isinstance(sensitive_features, Mapping):
        columns = list(sensitive_features.items())
    elif hasattr(sensitive_features, "columns"):
        columns = [(name, sensitive_features[name]) for name in sensitive_features.columns]
    else:
        values = np.asarray(sensitive_features)
        columns = list(enumerate(values.T)) if values.ndim == 2 else [(VECTOR, values)]
    named = {str(name): np.asarray(values) for name, values in columns}
    if not 0 < len(named) == len(columns):
        raise ValueError("sensitive_features must have columns, each with a name of its own.")
    for name, values in named.items():
        if values.shape != (num_rows,):
            raise ValueError(
                f"{describe(name)} must be one value for each of the {num_rows} rows of X, "
                f"got shape {values.shape}."
            )
    return named


def describe(name: str) -> str:
    """How messages call a private variable."""
    return VECTOR if name == VECTOR else f"sensitive_features[{name!r}]"


def check_kinds(kinds: Mapping[str, str] | None, private: Collection[str]) -> dict[str, str]:
    """Checks that `kinds` says "category" or "continuous" of "y" or private variables only."""
    kinds = {str(name): kind for name, kind in (kinds or {}).items()}
    for name, kind in kinds.items():
        if name not in ("y", *private) or kind not in ("category", "continuous"):
            raise ValueError(
                f"kinds must map {', '.join(['y', *private])} to 'category' or 'continuous', "
                f"got {name!r}: {kind!r}."
            )
    return kinds
