"""Orbax checkpoints of chunks, each vouched for by a digest: what is read back is what was written."""

import contextlib
import errno
import functools
import hashlib
import json
import logging
import os
import re
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

_NAME = re.compile(r"(\d{8})-(\d+)")
_LEFTOVER = re.compile(rf"{_NAME.pattern}\..+")  # half written by Orbax, or half deleted


class Entry(NamedTuple):
    """A checkpoint on disk: where, which members it holds, and whether they have ended."""

    path: Path
    points: tuple[int, ...]
    final: bool


class Checkpoints:
    """The checkpoints of one workdir, written by one process.

    A checkpoint holds some members, whichever ran together; a member's newest readable checkpoint
    counts. So a sweep may go on with other chunks, devices or processes than it began with.
    """

    def __init__(self, folder: Path):
        import orbax.checkpoint as ocp  # takes a second that most users of the package need not spend

        self._folder = folder
        self._process = own = jax.process_index()
        self._args = ocp.args
        # Each process writes its own share, so none waits for another.
        alone = ocp.options.MultiprocessingOptions(
            primary_host=own, active_processes={own}, barrier_sync_key_prefix=f"process{own}"
        )
        self._checkpointer = ocp.Checkpointer(
            ocp.CompositeCheckpointHandler(
                arrays=ocp.PyTreeCheckpointHandler(multiprocessing_options=alone),
                note=ocp.JsonCheckpointHandler(multiprocessing_options=alone),
                composite_options=ocp.CompositeOptions(
                    multiprocessing_options=alone,
                    # Else "the folders are there" is told through a key that all processes share.
                    async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
                ),
            ),
            multiprocessing_options=alone,
        )
        self._damaged: list[Path] = []
        self._serial = 1 + max((serial for serial, _ in _names(folder)), default=0)
        self._written = [entry for entry, _ in reversed(self._entries)]

    def save(self, points: Sequence[int], tree: Any, *, final: bool) -> None:
        """Writes some members, then drops the checkpoints that are no longer needed.

        Args:
          points: the members, along the first axis of every array.
          tree: arrays.
          final: whether they have ended.
        """
        arrays = {f"{i:04d}": np.asarray(a) for i, a in enumerate(jax.tree.leaves(tree)) if a.size}
        note = {
            "points": [int(point) for point in points],
            "final": final,
            "leaves": _paths(tree),
            "sha256": _digest(arrays.values()),
        }
        path = self._folder / f"{self._serial:08d}-{self._process}"
        self._serial += 1
        with _plain_errors(self._folder):
            self._checkpointer.save(
                path.absolute(),
                args=self._args.Composite(
                    arrays=self._args.PyTreeSave(arrays), note=self._args.JsonSave(note)
                ),
            )
        self._written.append(Entry(path, tuple(note["points"]), final))
        self._clean()

    def _clean(self) -> None:
        """Keeps a member's final checkpoint, or its two newest; nothing damaged."""
        copies: dict[int, int] = {}
        kept = []
        for entry in reversed(self._written):
            if all(copies.get(point, 0) >= 2 for point in entry.points):
                _remove(entry.path)
                continue
            kept.append(entry)
            for point in entry.points:
                copies[point] = copies.get(point, 0) + (2 if entry.final else 1)
        self._written = kept[::-1]
        while self._damaged:
            _remove(self._damaged.pop())

    def read(self, points: Iterable[int], templates: dict[bool, Any]) -> dict[int, tuple[Any, bool]]:
        """The newest readable state of some members.

        Args:
          points: the members.
          templates: by finality, a tree of one member's arrays: which of them to read, and their shapes
            and types; without one of the two, checkpoints of that sort are left out.

        Returns:
          By point: the tree, and whether the member has ended. A member never saved is left out.
        """
        wanted, found = set(points), {}
        for entry, note in self._entries:
            if entry.final not in templates or not (wanted - set(found)) & set(entry.points):
                continue
            try:
                tree = self._tree(entry.path, note, templates[entry.final])
            except Exception as error:  # whatever a damaged file makes the reader raise
                self._say_damaged(entry.path, str(error).splitlines()[0] if str(error) else repr(error))
                self._written = [other for other in self._written if other != entry]
                continue
            for i, point in enumerate(entry.points):
                if point in wanted and point not in found:
                    found[point] = (jax.tree.map(lambda a, i=i: a[i], tree), entry.final)
        return found

    @functools.cached_property
    def _entries(self) -> list[tuple[Entry, dict[str, Any]]]:
        """What was on disk at the beginning, the newest first."""
        entries = []
        for path in _newest_first(self._folder):
            try:  # the file itself: a hundred of these are read before anything is restored
                note = json.loads((path / "note" / "metadata").read_text(encoding="utf-8"))
                entry = Entry(path, tuple(note["points"]), note["final"])
                entries.append((entry, {"leaves": note["leaves"], "sha256": note["sha256"], **note}))
            except (OSError, ValueError, KeyError, TypeError):
                self._say_damaged(path, "it was cut short or damaged")
        return entries

    def _say_damaged(self, path: Path, why: str) -> None:
        self._damaged.append(path)
        warnings.warn(
            f"checkpoint {path} cannot be used ({why}): falling back to the one before.", stacklevel=4
        )

    def _tree(self, path: Path, note: dict[str, Any], template: Any) -> Any:
        restored = self._checkpointer.restore(
            path.absolute(),
            args=self._args.Composite(arrays=self._args.PyTreeRestore()),
        )["arrays"]
        if _digest(restored[name] for name in sorted(restored)) != note["sha256"]:
            raise ValueError("its digest does not match")
        by_path = {leaf: restored.get(f"{i:04d}") for i, leaf in enumerate(note["leaves"])}
        leaves, structure = jax.tree.flatten(template)
        arrays = []
        for leaf, name in zip(leaves, _paths(template), strict=True):
            # Orbax keeps no empty arrays; they are as good new.
            empty = np.empty((len(note["points"]), *leaf.shape), leaf.dtype)
            array = empty if name in by_path and by_path[name] is None else by_path.get(name)
            if array is None or array.shape != empty.shape or array.dtype != empty.dtype:
                raise ValueError("it holds other arrays than this sweep's")
            arrays.append(array)
        return jax.tree.unflatten(structure, arrays)


@contextlib.contextmanager
def _plain_errors(folder: Path) -> Iterator[None]:
    """A full disk is the OSError it is, without the traceback that each of Orbax's threads logs of it."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    except ValueError as error:
        if "No space left" not in str(error):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
    finally:
        logger.setLevel(level)


def _remove(path: Path) -> None:
    """Deletes a checkpoint; a kill in the middle does not leave half of one under its name."""
    trash = path.with_name(f"{path.name}.trash")
    with contextlib.suppress(FileNotFoundError):  # another process was faster
        path.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Deletes what a killed process left half written or half deleted; only while holding the lock."""
    for path in folder.glob("*"):
        if path.is_dir() and _LEFTOVER.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def _names(folder: Path) -> list[tuple[int, int]]:
    if not folder.is_dir():
        return []
    matches = [_NAME.fullmatch(path.name) for path in folder.iterdir()]
    return sorted((int(m[1]), int(m[2])) for m in matches if m)


def _newest_first(folder: Path) -> list[Path]:
    return [folder / f"{serial:08d}-{process}" for serial, process in reversed(_names(folder))]


def _paths(tree: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def _digest(arrays: Iterable[np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        array = np.ascontiguousarray(array)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()
