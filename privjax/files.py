"""Crash-safe files: locks, complete or absent writes, arrays with a digest, and records as JSON."""

import contextlib
import dataclasses
import errno
import functools
import hashlib
import json
import os
import time
import types
import typing
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def exclusive(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a file lock, which ends with its process; without `wait`, a held lock raises RuntimeError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as handle:
        while not _acquire(handle):
            if not wait:
                raise RuntimeError(f"another process is at work on {path.parent}: wait for it, or stop it.")
            time.sleep(0.1)
        yield


def _acquire(handle) -> bool:
    """Lock a file without waiting. The lock ends when the file is closed."""
    with contextlib.suppress(BlockingIOError, PermissionError):  # the second on Windows
        if os.name == "nt":  # pragma: no cover
            import msvcrt

            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)  # pyright: ignore
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; on success, rename the complete file to `path`, otherwise delete it."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file in it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        with part.open("rb+") as handle:
            os.fsync(handle.fileno())
        os.replace(part, path)
    except OSError as error:
        if error.errno in _DISK_FULL and error.filename is None:  # a failed write does not name its file
            error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON (no NaN or infinity) and replace an existing file only by a complete one."""
    text = json.dumps(value, indent=1, allow_nan=False) + "\n"
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_arrays(path: Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays and a JSON header to an `.npz` with a SHA-256, read back before it takes its name."""
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    # NumPy has no name for bfloat16 and its like, and stores them as plain bytes.
    types = {name: array.dtype.name for name, array in arrays.items() if array.dtype.kind == "V"}
    arrays |= {name: arrays[name].view(f"V{arrays[name].itemsize}") for name in types}
    header = {**header, "types": types} if types else header
    text = json.dumps({**header, "sha256": _digest(header, arrays)}, allow_nan=False).encode()
    with replacing(path) as part:
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, header=np.frombuffer(text, np.uint8), **arrays)
        read_arrays(part)


def read_arrays(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read header and arrays of `write_arrays`; a damaged or changed file raises ValueError."""
    with path.open("rb") as file:
        try:
            arrays = _read_npz(file)
            header = json.loads(arrays.pop("header").tobytes())
            intact = header.pop("sha256") == _digest(header, arrays)
            arrays |= {name: arrays[name].view(kind) for name, kind in header.pop("types", {}).items()}
        except Exception as error:  # zipfile, NumPy and json each raise errors of their own
            raise ValueError(f"{path} is incomplete or damaged ({error}).") from None
    if not intact:
        raise ValueError(f"{path} is damaged or was changed: its digest does not match.")
    return header, arrays


def _read_npz(file) -> dict[str, np.ndarray]:
    """Read every array of an archive that unpacks to no more than its own size."""
    with zipfile.ZipFile(file) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > file.seek(0, os.SEEK_END):
            raise ValueError("it unpacks to more than its own size")
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def _digest(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of the header as JSON and of the name, type, shape and bytes of each array."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, array in arrays.items():
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def to_json(value: Any) -> Any:
    """Convert records, mappings, sequences and NumPy numbers to JSON values."""
    if fields := _fields(type(value)):
        return {name: to_json(getattr(value, name)) for name in fields}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value.item() if hasattr(value, "item") else value


def from_json(kind: Any, value: Any, where: str) -> Any:
    """Build a value of an annotated type from JSON values, or raise ValueError that names it by `where`.

    Types are dataclasses and NamedTuples, the types of JSON, tuple[X, ...], dict[str, X], X | Y and Any.
    Keys without a field are ignored.
    """
    origin, parameters = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or (value is None and type(None) in parameters):
        return value
    if origin in (types.UnionType, typing.Union):
        *options, last = (option for option in parameters if option is not type(None))
        for option in options:
            with contextlib.suppress(ValueError):
                return from_json(option, value, where)
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
