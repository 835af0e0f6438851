"""Prepared sets: TFDS records on disk, and beside them one verified array file that loads fast."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from privjax.datasets.errors import DataError
from privjax.datasets.fingerprints import file_sha256, is_same
from privjax.datasets.sources import VERSION, Source, present
from privjax.files import exclusive, write_json

Arrays = dict[str, np.ndarray]
_SCHEMA = 1
_OLD = "old"  # where the set before lies while the new one takes its place
_BATCH = 1024  # records read at a time


def default_data_dir() -> Path:
    """``$PRIVJAX_DATA``, or ``~/.cache/privjax``."""
    given = os.environ.get("PRIVJAX_DATA")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "privjax"


def prepared_folder(source: Source, data_dir: Path) -> Path:
    """Where the records and the arrays of a set lie."""
    return data_dir / source.name / VERSION


def is_prepared(source: Source, data_dir: Path) -> bool:
    """Whether the set loads without its source files."""
    return (prepared_folder(source, data_dir) / "dataset_info.json").exists()


def prepared_arrays(
    source: Source, *, data_dir: Path, manual_dir: Path | None = None, force: bool = False
) -> tuple[Arrays, dict[str, Any]]:
    """Loads the arrays of a set, preparing it first when that has not been done.

    Args:
      source: The set.
      data_dir: Where prepared sets are kept.
      manual_dir: Where the user put the source files.
      force: Prepare again, whatever is there.

    Returns:
      The arrays by name, and what was noted about their origin.
    """
    if manual_dir is not None and not manual_dir.is_dir():
        raise DataError(f"manual_dir {manual_dir} is not a folder.")
    folder = prepared_folder(source, data_dir)
    cached = None if force else _read_cache(folder)
    if cached is None:
        with exclusive(data_dir / f".{source.name}.lock"):
            _put_back(source, data_dir)
            # Another process may have finished while this one waited.
            cached = None if force else _read_cache(folder)
            if cached is None:
                if force or not is_prepared(source, data_dir):
                    _prepare(source, data_dir, manual_dir)
                    cached = _read_cache(folder)
                if cached is None:
                    cached = _gather(source, data_dir)
                    _write_cache(folder, *cached)
    _check_same_source(source, cached[1], folder, manual_dir)
    return cached


def _aside(source: Source, data_dir: Path) -> Path:
    return data_dir / f".incomplete.{source.name}"


def _put_back(source: Source, data_dir: Path) -> None:
    """What was prepared before, where a process died between taking it away and bringing the new one."""
    folder, old = prepared_folder(source, data_dir), _aside(source, data_dir) / _OLD
    if old.exists() and not folder.exists():
        old.rename(folder)


def _prepare(source: Source, data_dir: Path, manual_dir: Path | None) -> None:
    """Makes records and arrays aside and renames them into place, so that half a set never loads.

    Whatever was prepared before stays until the new one is whole.
    """
    from privjax.datasets import builders

    aside = _aside(source, data_dir)
    # The lock is ours, so whatever lies there was left by a process that died.
    shutil.rmtree(aside, ignore_errors=True)
    if aside.exists():
        raise DataError(f"{aside} was left by a process that died, and cannot be removed: remove it.")
    config = builders.tfds.download.DownloadConfig(
        manual_dir=None if manual_dir is None else str(manual_dir), try_download_gcs=False
    )
    try:
        with _quiet(builders.tfds):
            builder = builders.BUILDERS[source.name](data_dir=str(aside), file_format="array_record")
            builder.download_and_prepare(download_dir=str(data_dir / "downloads"), download_config=config)
        _write_cache(prepared_folder(source, aside), *_gather(source, aside))
        folder = prepared_folder(source, data_dir)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():
            folder.rename(aside / _OLD)
        prepared_folder(source, aside).rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _gather(source: Source, data_dir: Path) -> tuple[Arrays, dict[str, Any]]:
    """Reads every record back into arrays, in order."""
    from privjax.datasets import builders

    folder = prepared_folder(source, data_dir)
    again = f"{folder} cannot be read: call load({source.name!r}, force=True) to prepare it again."
    try:
        with _quiet(builders.tfds):
            builder = builders.BUILDERS[source.name](data_dir=str(data_dir), file_format="array_record")
            expected = builder.info.splits[builders.SPLIT].num_examples
            records = _read_all(builder.as_data_source(builders.SPLIT))
            notes = dict(builder.info.metadata)
    except Exception as error:  # a damaged shard, a missing one, a damaged description
        raise DataError(f"{again[:-1]} ({error}).") from error
    if not records or len(records) != expected:
        raise DataError(f"{again[:-1]} ({len(records)} records where {expected} were written).")
    fields = builder.FIELDS
    if None not in fields["x"][0]:
        arrays = {
            key: np.stack([record[key] for record in records]).astype(dtype)
            for key, (_, dtype) in fields.items()
        }
        return arrays, notes
    lengths = np.array([len(record["x"]) for record in records])
    arrays = {
        key: np.repeat(np.array([record[key] for record in records], np.int32), lengths)
        for key in fields
        if key != "x"
    }
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)
    arrays["frame"] = arrays["frame"] + (np.arange(len(first)) - first).astype(np.int32)
    arrays["x"] = np.concatenate([record["x"] for record in records])
    return arrays, notes


def _read_all(source: Any) -> list[dict[str, Any]]:
    """Every record, many at a time: one by one costs twice as much."""
    starts = range(0, len(source), _BATCH)
    return [
        record
        for start in starts
        for record in source.__getitems__(list(range(start, min(start + _BATCH, len(source)))))
    ]


def _write_cache(folder: Path, arrays: Arrays, notes: Mapping[str, Any]) -> None:
    """First the arrays, then the note that vouches for them; each is renamed into place."""
    part = folder / f".arrays.{os.getpid()}.tmp"
    try:
        with part.open("wb") as handle:
            np.savez(handle, allow_pickle=False, **arrays)
            handle.flush()
            os.fsync(handle.fileno())
        note = {"schema": _SCHEMA, "sha256": file_sha256(part), "notes": dict(notes)}
        os.replace(part, folder / "arrays.npz")
        write_json(folder / "arrays.json", note)
    finally:
        part.unlink(missing_ok=True)


def _read_cache(folder: Path) -> tuple[Arrays, dict[str, Any]] | None:
    """The arrays, when they are exactly those that were written; otherwise None."""
    try:
        note = json.loads((folder / "arrays.json").read_text(encoding="utf-8"))
        # One handle for both: another process may put a new file in its place in between.
        with (folder / "arrays.npz").open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
            if note["schema"] != _SCHEMA or digest != note["sha256"]:
                return None
            handle.seek(0)
            with np.load(handle, allow_pickle=False) as file:
                return {key: file[key] for key in file.files}, note["notes"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _check_same_source(
    source: Source, notes: Mapping[str, Any], folder: Path, manual_dir: Path | None
) -> None:
    """Refuses to give prepared arrays to a user who points at other source files."""
    if manual_dir is None or notes.get("origin") != "manual_dir":
        return
    for path, known in zip(present(source, manual_dir), notes["files"], strict=True):
        if path is not None and not is_same(path, known):
            raise DataError(
                f"{folder} was prepared from another {known['name']} than {path}: pass "
                "force=True to prepare it again, or another data_dir."
            )


@contextlib.contextmanager
def _quiet(tfds):
    """TFDS draws progress bars and prints; a library does not."""
    with open(os.devnull, "w") as sink, contextlib.redirect_stdout(sink):
        tfds.disable_progress_bar()
        try:
            yield
        finally:
            tfds.enable_progress_bar()
