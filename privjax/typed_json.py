"""Records as JSON: one reader for every annotated NamedTuple and dataclass."""

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any


def to_json(value: Any) -> Any:
    """Convert records, mappings, sequences and NumPy numbers to JSON values.

    Example:
      >>> class Split(typing.NamedTuple):
      ...     name: str
      ...     rows: tuple[int, ...]
      >>> to_json(Split("train", (0, 1)))
      {'name': 'train', 'rows': [0, 1]}
    """
    if fields := _fields(type(value)):
        return {name: to_json(getattr(value, name)) for name in fields}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value.item() if hasattr(value, "item") else value


def from_json(kind: Any, value: Any, where: str) -> Any:
    """Build a value of an annotated type from JSON values. Keys without a field are ignored.

    Args:
      kind: A NamedTuple or dataclass with annotations, or one of their annotations: the types of JSON,
        tuple[X, ...], dict[str, X], X | Y, Any.
      value: JSON values.
      where: Name of the value in messages.

    Raises:
      ValueError: A value is missing or has another type.

    Example:
      >>> from_json(tuple[float, ...] | None, [1, 2.5], "weights")
      (1.0, 2.5)
      >>> from_json(dict[str, int], {"a": "b"}, "counts")
      Traceback (most recent call last):
      ValueError: counts.a must be of type int, got 'b': the file is damaged.
    """
    origin, parameters = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or (value is None and (kind is type(None) or type(None) in parameters)):
        return value
    if origin in (types.UnionType, typing.Union):
        *options, last = (option for option in parameters if option is not type(None))
        for option in options:
            try:
                return from_json(option, value, where)
            except ValueError:
                continue
        return from_json(last, value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(from_json(parameters[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {key: from_json(parameters[1], item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, dict) and (fields := _fields(kind)):
        return kind(**{n: from_json(t, value.get(n), f"{where}.{n}") for n, t in fields.items()})
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is kind:
        return value
    name = getattr(origin or kind, "__name__", str(kind))
    raise ValueError(f"{where} must be of type {name}, got {value!r:.60}: the file is damaged.")


@functools.cache
def _fields(kind: Any) -> dict[str, Any]:
    """Return the annotated fields of a dataclass or NamedTuple; empty for another type."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return typing.get_type_hints(kind) if hasattr(kind, "_fields") else {}
