"""Argument checks of the objectives. They run while tracing and cost nothing afterwards.

Values can be checked only outside of jit. Under jit, a value that breaks a promise (a label out of range, a
row that is not one-hot) makes the objective NaN; it never gives a number with another meaning.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int32, Shaped

Weights = Shaped[ArrayLike, " n"] | None
MOST_CLASSES = 10**6  # larger labels are identifiers that were never numbered


class Batch(NamedTuple):
    """Rows and their weights; both are zero where not valid."""

    z: Float[Array, "n d"]  # of at least float32
    weights: Float[Array, " n"]
    valid: Bool[Array, " n"]  # rows with a weight other than 0


class Labels(NamedTuple):
    """Class labels."""

    classes: Int32[Array, " n"]  # within range; 0 where a row is not valid
    num_classes: int
    nan_flag: Float[Array, ""]  # NaN if a valid row has no class or is not finite, else 0


class ClassSizes(NamedTuple):
    """Weights of each class and of all other classes; both are 1, for use as divisors, where not present."""

    size: Float[Array, " l"]  # N_l
    rest: Float[Array, " l"]  # M_l
    present: Bool[Array, " l"]  # classes that have rows and can be compared with rows of other classes
    total: Float[Array, ""]  # N; 1 if there are no rows


def check_batch(z: Float[ArrayLike, "n d"], weights: Weights, *, name: str = "z") -> Batch:
    """Check rows and weights; rows of weight zero become zero, whatever they hold."""
    z = check_floating(name, z)
    if z.ndim != 2:
        raise ValueError(f"{name} must be a matrix [n, d], got shape {z.shape}.")
    if z.shape[0] == 0 or z.shape[1] == 0:
        raise ValueError(f"{name} must have at least one row and one column, got shape {z.shape}.")
    n = z.shape[0]
    if weights is None:
        return Batch(z, jnp.ones(n, z.dtype), jnp.ones(n, bool))
    weights = jnp.asarray(_numbers("weights", weights))
    if weights.shape != (n,):
        raise ValueError(f"weights must have shape ({n},), one per row of {name}, got {weights.shape}.")
    if weights.dtype != bool and not _is_real(weights):
        raise TypeError(f"weights must be real numbers, got {weights.dtype}.")
    weights = weights.astype(z.dtype)
    if _is_concrete(weights) and not bool(jnp.all(weights >= 0)):
        raise ValueError("weights must be non-negative numbers.")
    weights = jnp.where(weights < 0, jnp.nan, weights)
    valid = ~(weights == 0)  # a NaN weight stays valid, and makes the result NaN
    return Batch(jnp.where(valid[:, None], z, 0), jnp.where(valid, weights, 0), valid)


def check_labels(p: Shaped[ArrayLike, "n ..."], batch: Batch, num_classes: int | None = None) -> Labels:
    """Check class labels: integers [n] or a one-hot matrix [n, l]."""
    p = _check_private(p, batch)
    if p.ndim == 2:
        num_classes = _check_columns(p, num_classes)
        index, fits = jnp.argmax(p, axis=1), is_one_hot(p)
    else:
        num_classes = _count_classes(p, batch.valid, num_classes)
        index, fits = p, (p >= 0) & (p < num_classes)
    wrong = ~fits & batch.valid
    if _is_concrete(p, batch.valid) and bool(wrong.any()):
        row = int(jnp.argmax(wrong))
        if p.ndim == 2:
            raise ValueError(
                f"p must be one-hot (a single 1 in each row, else 0), row {row} is not: pass integer "
                "labels, or use kdi_loss or lsdn losses for a continuous private variable."
            )
        raise ValueError(
            f"p must hold labels from 0 to {num_classes - 1}, row {row} is {int(p[row])}: "
            "renumber the classes or raise num_classes."
        )
    # Rows that enter no sum count too, as in a batch of one class: NaN in, NaN out.
    finite = jnp.isfinite(batch.z).all() & jnp.isfinite(batch.weights).all()
    nan_flag = jnp.where(finite & ~wrong.any(), 0.0, jnp.nan).astype(batch.z.dtype)
    return Labels(jnp.where(fits & batch.valid, index, 0).astype(jnp.int32), num_classes, nan_flag)


def check_matrix(
    p: Shaped[ArrayLike, "n ..."], batch: Batch, num_classes: int | None = None
) -> tuple[Float[Array, "n l"], Bool[Array, " l"]]:
    """Check a real matrix [n, l], or labels [n] that become one-hot.

    Returns:
      The matrix, and a mask of the columns that are absent classes. Columns count as classes if p holds
      labels or if every valid row is one-hot.
    """
    p = _check_private(p, batch)
    if p.ndim == 1:
        found = check_labels(p, batch, num_classes)
        full = jax.nn.one_hot(found.classes, found.num_classes, dtype=batch.z.dtype)
        full = jnp.where(batch.valid[:, None], full, 0)
        return full + found.nan_flag, ~(full != 0).any(0)
    _check_columns(p, num_classes)
    classes = jnp.all(is_one_hot(p) | ~batch.valid)
    full = jnp.where(batch.valid[:, None], p.astype(batch.z.dtype), 0)
    return full, classes & ~(full != 0).any(0)


def class_sizes(batch: Batch, index: Int32[Array, " n"], num_classes: int) -> ClassSizes:
    """Add up the weights of each class and of its complement."""
    size = jax.ops.segment_sum(batch.weights, index, num_classes)
    count = jax.ops.segment_sum(batch.valid.astype(jnp.int32), index, num_classes)
    present = (count > 0) & (count < count.sum())
    total = batch.weights.sum()
    rest = jnp.where(present, sum_of_others(size), 1)
    return ClassSizes(jnp.where(present, size, 1), rest, present, jnp.where(total == 0, 1, total))


def sum_of_others(sums: Float[Array, "l ..."]) -> Float[Array, "l ..."]:
    """Add up, for each class, the sums of all other classes: a difference from the total would round."""
    before, after = jnp.cumsum(sums, 0), jnp.cumsum(sums[::-1], 0)[::-1]
    none = jnp.zeros_like(sums[:1])
    return jnp.concatenate([none, before[:-1]]) + jnp.concatenate([after[1:], none])


def check_floating(name: str, value: Shaped[ArrayLike, "..."]) -> Float[Array, "..."]:
    """Check that an array holds real floating-point numbers, and convert it to at least float32."""
    value = jnp.asarray(_numbers(name, value))
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"{name} must be floating point, got {value.dtype}.")
    return at_least_float32(value)


def at_least_float32(value: Shaped[Array, "..."]) -> Float[Array, "..."]:
    """Convert half precision, which does not hold sums over a batch, and integers to float32."""
    return value.astype(jnp.promote_types(value.dtype, jnp.float32))


def to_array(p: Shaped[ArrayLike, "..."]) -> Shaped[Array, "..."]:
    """Convert a private variable to a JAX array without wrapping 64-bit integers around.

    Labels are clamped at the largest 32-bit integer, which is no class; a matrix becomes real.
    """
    p = _numbers("p", p)
    if isinstance(p, np.ndarray) and p.dtype in (np.int64, np.uint64):
        limits = np.iinfo(np.int32)
        p = np.where((p >= limits.min) & (p <= limits.max), p, limits.max) if p.ndim < 2 else p.astype(float)
    return jnp.asarray(p)


def _numbers(name: str, value: ArrayLike) -> ArrayLike:
    """Convert an array of another library, such as a column of a table; it must hold numbers."""
    if isinstance(value, (Array, Tracer)) or not hasattr(value, "__array__"):
        return value
    value = np.asarray(value)
    if value.dtype.kind in "OSUMm":
        raise TypeError(
            f"{name} must hold numbers, got {value.dtype}: make names numbers with "
            "np.unique(..., return_inverse=True)[1], or convert with astype."
        )
    return value


def _check_private(p: ArrayLike, batch: Batch) -> Array:
    p, n = to_array(p), len(batch.z)
    if p.dtype == bool or (_is_integer(p) and p.dtype.itemsize < 4):
        p = p.astype(jnp.int32)  # a number of classes could wrap around in a smaller dtype
    if not _is_real(p):
        raise TypeError(f"p must be integer labels [n] or a real matrix [n, l], got {p.dtype}.")
    if p.ndim not in (1, 2):
        raise ValueError(f"p must be integer labels [n] or a matrix [n, l], got shape {p.shape}.")
    if p.shape[0] != n:
        raise ValueError(f"p has {p.shape[0]} rows but z has {n}.")
    if p.ndim == 1 and not _is_integer(p):
        raise TypeError(
            f"p of shape [n] must be integer labels, got {p.dtype}: cast labels to int, or pass one "
            "continuous variable as a matrix, p[:, None]."
        )
    if p.ndim == 2 and p.shape[1] == 0:
        raise ValueError("p must have at least one column.")
    return p


def _check_columns(p: Array, num_classes: int | None) -> int:
    if num_classes is not None and num_classes != p.shape[1]:
        raise ValueError(f"num_classes is {num_classes} but p has {p.shape[1]} columns.")
    return p.shape[1]


def _count_classes(p: Array, valid: Array, num_classes: int | None) -> int:
    if num_classes is None:
        if not _is_concrete(p, valid):
            raise ValueError(
                "num_classes is needed with integer labels p under jit, vmap or grad of p: pass "
                "num_classes=..., the number of classes, as a Python integer."
            )
        largest = max(0, int(jnp.max(jnp.where(valid, p, 0))))
        if largest >= MOST_CLASSES:
            raise ValueError(f"p holds the label {largest}: number the classes from 0, or pass num_classes.")
        return largest + 1
    if not isinstance(num_classes, (int, np.integer)) or isinstance(num_classes, bool):
        raise TypeError(f"num_classes must be a Python integer, got {type(num_classes).__name__}.")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}.")
    return int(num_classes)


def is_one_hot(p: Shaped[Array, "n l"]) -> Bool[Array, " n"]:
    """Mark the rows with a single 1 among zeros."""
    return ((p == 0) | (p == 1)).all(1) & ((p == 1).sum(1) == 1)


def _is_integer(value: Array) -> bool:
    return jnp.issubdtype(value.dtype, jnp.integer)


def _is_real(value: Array) -> bool:
    return _is_integer(value) or jnp.issubdtype(value.dtype, jnp.floating)


def _is_concrete(*values: Array) -> bool:
    return not any(isinstance(v, Tracer) for v in values)
