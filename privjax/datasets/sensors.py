"""Readers of the sensor sets: trees of published files in, records out."""

import hashlib
import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from privjax.datasets.archives import Tree
from privjax.datasets.errors import DataError
from privjax.datasets.sources import HAPT_ACTIVITIES, HAPT_CHANNELS, MHEALTH_BLOBS
from privjax.datasets.text import check_integers, read_integers, read_matrix

Record = dict[str, Any]
_HAPT_RAW = re.compile(r"(?:^|/)acc_exp(\d{1,9})_user(\d{1,9})\.txt$")
_MHEALTH_LOG = re.compile(r"(?:^|/)mHealth_subject(\d{1,9})\.log$")


def har_records(trees: list[Tree]) -> Iterator[Record]:
    """UCI HAR: one record per window, its authors' training rows first."""
    (tree,) = trees
    for part in ("train", "test"):
        read = {}
        for kind in ("X", "y", "subject"):
            name = tree.find(f"{part}/{kind}_{part}.txt")
            data, label = tree.read(name), tree.label(name)
            if kind == "X":
                read[kind] = read_matrix(data, label, columns=561).astype(np.float32)
            else:
                read[kind] = read_integers(data, label, low=1, high=6 if kind == "y" else 30)
            if len(read[kind]) != len(read["X"]):
                raise DataError(
                    f"{label}, line {min(len(read[kind]), len(read['X'])) + 1}: "
                    f"{len(read[kind])} lines where X_{part}.txt has {len(read['X'])}."
                )
        for x, activity, user in zip(read["X"], read["y"], read["subject"], strict=True):
            yield {
                "x": x,
                "activity": activity - 1,
                "user": user - 1,
                "is_test": int(part == "test"),
            }


def har_feature_names(trees: list[Tree]) -> list[str]:
    """The 561 names; those that the list repeats get their number, so that names are unique."""
    (tree,) = trees
    name = tree.find("features.txt")
    lines = tree.read(name).decode("ascii", "replace").split("\n")
    names = [line.split()[1] for line in lines if len(line.split()) == 2]
    if len(names) != 561:
        raise DataError(f"{tree.label(name)} has {len(names)} names where 561 are expected.")
    repeated = {n for n in names if names.count(n) > 1}
    return [f"{n}#{i}" if n in repeated else n for i, n in enumerate(names, start=1)]


def mhealth_records(trees: list[Tree]) -> Iterator[Record]:
    """MHEALTH: one record per unbroken stretch of one activity; unlabelled frames left out."""
    (tree,) = trees
    logs = _numbered(tree, _MHEALTH_LOG)
    if not logs:
        raise DataError(f"{tree.path} has no file mHealth_subject1.log: get the set again.")
    for place, (user, name) in enumerate(logs):
        label = tree.label(name)
        if place and logs[place - 1][0] == user:
            raise DataError(f"{label} is a second log of subject {user}: keep one copy there.")
        if not 1 <= user <= 10:
            raise DataError(f"{label}: subject {user} is not one of 1 to 10.")
        matrix = read_matrix(tree.read(name), label, columns=24)
        activity = check_integers(matrix[:, 23], label, low=0, high=12)
        values = matrix[:, :23].astype(np.float32)
        yield from _stretches(values, activity, user=user - 1, recording=user - 1)


def mhealth_is_whole(trees: list[Tree]) -> bool:
    """Whether the ten logs are byte for byte the published ones."""
    (tree,) = trees
    logs = dict(_numbered(tree, _MHEALTH_LOG))
    if sorted(logs) != list(range(1, 11)):
        return False
    for user, blob in enumerate(MHEALTH_BLOBS, start=1):
        data = tree.read(logs[user])
        # Git's own name for the content, which is how the published hashes are known.
        digest = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False)
        if digest.hexdigest() != blob:
            return False
    return True


def hapt_records(trees: list[Tree]) -> Iterator[Record]:
    """HAPT: one record per labelled stretch, from the published RawData or from one array file."""
    (tree,) = trees
    if any(name.rpartition("/")[2] == "hapt_frames.npz" for name in tree.names()):
        yield from _hapt_from_arrays(tree, tree.find("hapt_frames.npz"))
        return
    labels = tree.find("RawData/labels.txt")
    cells = read_matrix(tree.read(labels), tree.label(labels), columns=5)
    highest = (1 << 30, 30, 12, 1 << 30, 1 << 30)
    columns = [
        check_integers(column, tree.label(labels), low=1, high=high)
        for column, high in zip(cells.T, highest, strict=True)
    ]
    rows = np.stack(columns, axis=1)
    raw = {e: (u, n) for e, u, n in _experiments(tree)}
    for experiment in np.unique(rows[:, 0]):
        if experiment not in raw:
            line = int(np.argmax(rows[:, 0] == experiment)) + 1
            raise DataError(
                f"{tree.label(labels)}, line {line}: there is no acc file of experiment {experiment}."
            )
        user, name = raw[experiment]
        gyro = tree.find(name.rpartition("/")[2].replace("acc_", "gyro_"))
        signals = [read_matrix(tree.read(n), tree.label(n), columns=3) for n in (name, gyro)]
        length = min(len(signal) for signal in signals)
        if any(len(signal) != length for signal in signals):
            raise DataError(f"{tree.label(gyro)} and {tree.label(name)} differ in length.")
        x = np.concatenate(signals, axis=1).astype(np.float32)
        for line in np.flatnonzero(rows[:, 0] == experiment):
            _, owner, activity, first, last = rows[line]
            if owner != user or not 1 <= first <= last <= length:
                raise DataError(
                    f"{tree.label(labels)}, line {line + 1}: user {owner}, frames {first} to "
                    f"{last} do not fit {tree.label(name)} of {length} frames."
                )
            yield {
                "x": x[first - 1 : last],
                "frame": int(first),
                "activity": int(activity) - 1,
                "user": int(user) - 1,
                "recording": int(experiment) - 1,
            }


def _hapt_from_arrays(tree: Tree, name: str) -> Iterator[Record]:
    label = tree.label(name)
    try:
        with np.load(io.BytesIO(tree.read(name)), allow_pickle=False) as file:
            arrays = {k: file[k] for k in ("x", "activity", "subject", "recording", "frame")}
    except Exception as error:  # zipfile, zlib, KeyError and ValueError all mean the same here
        raise DataError(f"{label} is truncated or corrupt ({error}): get it again.") from error
    x = arrays["x"]
    shaped = x.ndim == 2 and x.shape[1] == len(HAPT_CHANNELS) and len(x) > 0
    if not shaped or x.dtype.kind != "f" or not np.isfinite(x).all():
        raise DataError(f"{label}: x must be finite floats of shape [n, 6].")
    x, rows = x.astype(np.float32), len(x)
    for key in ("activity", "subject", "recording", "frame"):
        high = {"activity": len(HAPT_ACTIVITIES), "subject": 30}.get(key, 1 << 30)
        low = 1 if key in ("activity", "subject") else 0
        values = arrays[key]
        sound = values.shape == (rows,) and values.dtype.kind in "iu"
        if not sound or values.min() < low or values.max() > high:
            raise DataError(f"{label}: {key} must be {rows} integers between {low} and {high}.")
    keys = np.stack([arrays[k].astype(np.int64) for k in ("subject", "recording", "activity")])
    jump = np.diff(arrays["frame"].astype(np.int64)) != 1
    cuts = np.flatnonzero((np.diff(keys, axis=1) != 0).any(axis=0) | jump) + 1
    for first, last in zip(np.r_[0, cuts], np.r_[cuts, rows], strict=True):
        yield {
            "x": x[first:last],
            "frame": int(arrays["frame"][first]),
            "activity": int(arrays["activity"][first]) - 1,
            "user": int(arrays["subject"][first]) - 1,
            "recording": int(arrays["recording"][first]),
        }


def _stretches(x, activity, *, user, recording) -> Iterator[Record]:
    cuts = np.flatnonzero(np.diff(activity) != 0) + 1
    for first, last in zip(np.r_[0, cuts], np.r_[cuts, len(activity)], strict=True):
        if activity[first] > 0:
            yield {
                "x": x[first:last],
                "frame": int(first) + 1,
                "activity": int(activity[first]) - 1,
                "user": user,
                "recording": recording,
            }


def _numbered(tree: Tree, pattern: re.Pattern[str]) -> list[tuple[int, str]]:
    found = [(int(m.group(1)), n) for n in tree.names() if (m := pattern.search(n))]
    return sorted(found)


def _experiments(tree: Tree) -> Iterator[tuple[int, int, str]]:
    for name in tree.names():
        if match := _HAPT_RAW.search(name):
            yield int(match.group(1)), int(match.group(2)), name
