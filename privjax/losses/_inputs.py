"""What every objective asks of its arguments, checked while tracing: free at run time.

Values can only be looked at outside jit. Under jit a batch that breaks a promise about values (a label
out of range, a row that is not one-hot) gives NaN: never a number that means something else.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike

MOST_CLASSES = 10**6  # larger labels are identifiers that nobody numbered


class Rows(NamedTuple):
    """Rows that count: z [n, d] in at least float32, weights [n]; what has weight zero is zeroed."""

    z: Array
    weights: Array
    there: Array  # [n] bool: weight > 0


def rows(z: ArrayLike, weights: ArrayLike | None, *, name: str = "z") -> Rows:
    """Check z [n, d] and its weights [n]; rows of weight zero are blanked, whatever they held."""
    z = floating(name, z)
    if z.ndim != 2:
        raise ValueError(f"{name} must be a matrix [n, d], got shape {z.shape}")
    if z.shape[0] == 0 or z.shape[1] == 0:
        raise ValueError(f"{name} must have at least one row and one column, got shape {z.shape}")
    z = widen(z)
    n = z.shape[0]
    if weights is None:
        return Rows(z, jnp.ones(n, z.dtype), jnp.ones(n, bool))
    weights = jnp.asarray(_seen("weights", weights))
    if weights.shape != (n,):
        raise ValueError(f"weights must have shape ({n},), one per row of {name}, got {weights.shape}")
    if weights.dtype == bool:
        weights = weights.astype(z.dtype)
    if not jnp.issubdtype(weights.dtype, jnp.floating) and not is_integer(weights):
        raise TypeError(f"weights must be real numbers, got {weights.dtype}")
    if concrete(weights) and not bool(jnp.all(weights >= 0)):
        raise ValueError("weights must be non-negative numbers")
    weights = weights.astype(z.dtype)
    weights = jnp.where(weights < 0, jnp.nan, weights)
    there = ~(weights == 0)  # a NaN weight stays, and makes the result NaN
    return Rows(jnp.where(there[:, None], z, 0), jnp.where(there, weights, 0), there)


class Labels(NamedTuple):
    """Integer class labels; `broken` is NaN if a row that counts is not finite or has no class, else 0."""

    of_row: Array  # [n] int32, within range
    num_classes: int
    broken: Array


def labels(p: ArrayLike, batch: Rows, num_classes: int | None = None) -> Labels:
    """Class labels from integers [n] or a one-hot matrix [n, l]."""
    p = _attribute(p, batch)
    if p.ndim == 2:
        if num_classes is not None and num_classes != p.shape[1]:
            raise ValueError(f"num_classes is {num_classes} but p has {p.shape[1]} columns")
        index = jnp.argmax(p, axis=1).astype(jnp.int32)
        fits = _is_one_hot(p)
        if concrete(p, batch.there) and not bool(jnp.all(fits | ~batch.there)):
            row = int(jnp.argmax(~fits & batch.there))
            raise ValueError(
                f"p must be one-hot (a single 1 in each row, else 0), row {row} is not: pass integer "
                "labels, or use kdi_loss or lsdn losses for a continuous attribute"
            )
        num_classes = p.shape[1]
    else:
        num_classes = _class_count(p, batch.there, num_classes)
        fits = (p >= 0) & (p < num_classes)
        if concrete(p, batch.there) and not bool(jnp.all(fits | ~batch.there)):
            row = int(jnp.argmax(~fits & batch.there))
            raise ValueError(
                f"p must hold labels from 0 to {num_classes - 1}, row {row} is {int(p[row])}: "
                "renumber the classes or raise num_classes"
            )
        index = p.astype(jnp.int32)
    # Also rows that end up in no sum, as when there is one class only: NaN in, NaN out.
    sound = jnp.all(fits | ~batch.there) & jnp.isfinite(batch.z).all() & jnp.isfinite(batch.weights).all()
    broken = jnp.where(sound, 0.0, jnp.nan).astype(batch.z.dtype)
    return Labels(jnp.where(fits & batch.there, index, 0), num_classes, broken)


def matrix(p: ArrayLike, batch: Rows, num_classes: int | None = None) -> tuple[Array, Array]:
    """A real matrix [n, l] of p (labels become one-hot), and which columns are an absent class.

    Columns count as classes where p is labels or every row that counts is one-hot.
    """
    p = _attribute(p, batch)
    if p.ndim == 1:
        found = labels(p, batch, num_classes)
        full = jax.nn.one_hot(found.of_row, found.num_classes, dtype=batch.z.dtype)
        full = jnp.where(batch.there[:, None], full, 0) + found.broken
        return full, ~(jnp.where(batch.there[:, None], full, 0) != 0).any(0)
    if num_classes is not None and num_classes != p.shape[1]:
        raise ValueError(f"num_classes is {num_classes} but p has {p.shape[1]} columns")
    classes = jnp.all(_is_one_hot(p) | ~batch.there)
    full = jnp.where(batch.there[:, None], p.astype(batch.z.dtype), 0)
    return full, classes & ~(full != 0).any(0)


def positive(name: str, value: Any) -> None:
    """A number that must be above zero, where it can be seen."""
    if _is_seen(name, value) and not 0 < float(value) < np.inf:
        raise ValueError(f"{name} must be positive and finite, got {value}")


def not_negative(name: str, value: Any) -> None:
    """A number that must not be below zero, where it can be seen."""
    if _is_seen(name, value) and not 0 <= float(value) < np.inf:
        raise ValueError(f"{name} must not be negative or infinite, got {value}")


def _is_seen(name: str, value: Any) -> bool:
    """Whether this single number can be looked at now."""
    if not isinstance(value, (int, float, np.number, np.ndarray, Array, Tracer)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if jnp.ndim(value):
        raise ValueError(f"{name} must be a single number, got shape {jnp.shape(value)}")
    return concrete(value)


def concrete(*values: Any) -> bool:
    """Whether values can be looked at now."""
    return not any(isinstance(v, Tracer) for v in values)


def as_array(p: ArrayLike) -> Array:
    """An attribute in JAX, where integers of 64 bits would wrap around and look like other classes.

    So labels end at the largest number of 32 bits, which is no class, and a matrix becomes real.
    """
    p = _seen("p", p)
    if isinstance(p, np.ndarray) and p.dtype in (np.int64, np.uint64):
        limits = np.iinfo(np.int32)
        p = np.where((p >= limits.min) & (p <= limits.max), p, limits.max) if p.ndim < 2 else p.astype(float)
    return jnp.asarray(p)


def floating(name: str, value: ArrayLike) -> Array:
    """An array of real floating point numbers."""
    value = jnp.asarray(_seen(name, value))
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"{name} must be floating point, got {value.dtype}")
    return value


def _seen(name: str, value: Any) -> Any:
    """What NumPy makes of an array that is not JAX's, such as a column of a table; it must hold numbers."""
    if isinstance(value, (Array, Tracer)) or not hasattr(value, "__array__"):
        return value
    value = np.asarray(value)
    if value.dtype.kind in "OSUMm":
        raise TypeError(
            f"{name} must hold numbers, got {value.dtype}: make names numbers with "
            "np.unique(..., return_inverse=True)[1], or convert with astype"
        )
    return value


def widen(value: Array) -> Array:
    """Half precision is computed in float32: sums over a batch do not fit in it."""
    return value.astype(jnp.promote_types(value.dtype, jnp.float32))


def is_integer(value: Array) -> bool:
    """Integers of any width."""
    return jnp.issubdtype(value.dtype, jnp.integer)


def _attribute(p: ArrayLike, batch: Rows) -> Array:
    p = as_array(p)
    n = batch.z.shape[0]
    if p.dtype == bool or (is_integer(p) and p.dtype.itemsize < 4):
        p = p.astype(jnp.int32)  # else a number of classes would wrap around in the labels' own type
    if not is_integer(p) and not jnp.issubdtype(p.dtype, jnp.floating):
        raise TypeError(f"p must be integer labels [n] or a real matrix [n, l], got {p.dtype}")
    if p.ndim not in (1, 2):
        raise ValueError(f"p must be integer labels [n] or a matrix [n, l], got shape {p.shape}")
    if p.shape[0] != n:
        raise ValueError(f"p has {p.shape[0]} rows but z has {n}")
    if p.ndim == 1 and not is_integer(p):
        raise TypeError(
            f"p of shape [n] must be integer labels, got {p.dtype}: cast labels to int, or pass one "
            "continuous attribute as a matrix, p[:, None]"
        )
    if p.ndim == 2 and p.shape[1] == 0:
        raise ValueError("p must have at least one column")
    return p


def _is_one_hot(p: Array) -> Array:
    """Per row: a single one, else zeros."""
    return ((p == 0) | (p == 1)).all(1) & ((p == 1).sum(1) == 1)


def _class_count(p: Array, there: Array, num_classes: int | None) -> int:
    if num_classes is None:
        if not concrete(p, there):
            raise ValueError(
                "num_classes is needed with integer labels p under jit, vmap or grad of p: pass "
                "num_classes=..., the number of classes, as a Python integer"
            )
        largest = max(0, int(jnp.max(jnp.where(there, p, 0))))
        if largest >= MOST_CLASSES:
            raise ValueError(f"p holds the label {largest}: number the classes from 0, or pass num_classes")
        return largest + 1
    if not isinstance(num_classes, (int, np.integer)) or isinstance(num_classes, bool):
        raise TypeError(f"num_classes must be a Python integer, got {type(num_classes).__name__}")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    return int(num_classes)
