"""Files that survive a crash: a lock that dies with its process, writes that happen whole or not at all."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Busy(RuntimeError):
    """Another process holds the lock."""


@contextlib.contextmanager
def exclusive(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Holds a lock that the operating system takes back when the process dies, however it dies.

    Args:
      path: A file to lock; it is made, and it stays.
      wait: Whether to wait for the lock; otherwise `Busy` is raised when it is taken.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as handle:
        while not _acquired(handle):
            if not wait:
                raise Busy(f"{path.parent} is in use by another process: wait for it to end, or stop it.")
            time.sleep(0.1)
        try:
            yield
        finally:
            _release(handle)


if os.name == "nt":  # pragma: no cover

    def _acquired(handle) -> bool:
        import msvcrt

        with contextlib.suppress(OSError):
            handle.seek(0)
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)  # pyright: ignore
            return True
        return False

    def _release(handle) -> None:
        import msvcrt

        handle.seek(0)
        msvcrt.locking(handle.fileno(), msvcrt.LK_UNLCK, 1)  # pyright: ignore
else:
    import fcntl

    def _acquired(handle) -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    def _release(handle) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives another name to write under: an old file stays until the new one is whole.

    Args:
      path: what the file is called once everything went well; otherwise nothing is left behind.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file in it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        with part.open("rb+") as handle:
            os.fsync(handle.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Writes strict JSON (NaN and infinity are refused): the old file stays until the new one is whole."""
    text = json.dumps(value, indent=1, allow_nan=False) + "\n"
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
