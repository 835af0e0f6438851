"""HAPT: raw smartphone frames, in place of MHEALTH; utility = activity, private = user."""

import functools
import io

import numpy as np

from privjax.datasets.har import ACTIVITIES
from privjax.datasets.mhealth import separated_frames
from privjax.datasets.published import Files, PublishedSet, Rows, check_labels, read_matrix, refuse_damaged
from privjax.datasets.splits import DataError

_TRANSITIONS = "STAND_TO_SIT SIT_TO_STAND SIT_TO_LIE LIE_TO_SIT STAND_TO_LIE LIE_TO_STAND".split()
_NAMES = {
    "features": ("acc_x", "acc_y", "acc_z", "gyro_x", "gyro_y", "gyro_z"),
    "activity": (*ACTIVITIES, *_TRANSITIONS),
}
_MOST = 1 << 30  # recordings, and frames of a recording


def _read(files: Files) -> Rows:
    """Read the labelled frames, from the published `RawData` or from one array file."""
    if "hapt_frames.npz" in files.places:
        return Rows(_read_arrays(files, files.find("hapt_frames.npz")), _NAMES)
    return Rows(_read_raw(files), _NAMES)


def _read_raw(files: Files) -> dict[str, np.ndarray]:
    name = files.find("RawData/labels.txt")
    label, cells = files.label(name), read_matrix(files, name, columns=5)
    check_labels(cells[:, 2], label, low=1, high=12)
    signals = functools.cache(functools.partial(_read_signals, files))
    x, variables = [], []
    for recording, user, activity, first, last in check_labels(cells, label, low=1, high=_MOST):
        found = signals(f"exp{recording:02d}_user{user:02d}.txt")
        if not first <= last <= len(found):
            raise DataError(f"{label}: recording {recording} has no frames {first} to {last}.")
        frame = np.arange(first, last + 1, dtype=np.int32)
        x.append(found[first - 1 : last])
        variables.append([*(np.full_like(frame, v) for v in (activity - 1, user - 1, recording)), frame])
    arrays = (np.concatenate(x), *np.concatenate(variables, axis=1))
    return dict(zip(("x", "activity", "user", "recording", "frame"), arrays, strict=True))


def _read_signals(files: Files, ending: str) -> np.ndarray:
    acc, gyro = (files.find(f"{kind}_{ending}") for kind in ("acc", "gyro"))
    signals = [read_matrix(files, name, columns=3) for name in (acc, gyro)]
    if len(signals[0]) != len(signals[1]):
        raise DataError(f"{files.label(acc)} and {gyro} differ in length: get the data set again.")
    return np.concatenate(signals, axis=1).astype(np.float32)


def _read_arrays(files: Files, name: str) -> dict[str, np.ndarray]:
    label, data = files.label(name), files.read(name)
    ranges = {"activity": (1, 12), "subject": (1, 30), "recording": (0, _MOST), "frame": (0, _MOST)}
    with refuse_damaged(label), np.load(io.BytesIO(data), allow_pickle=False) as file:
        x, arrays = file["x"], {key: file[key] for key in ranges}
    if x.ndim != 2 or x.shape[1] != 6 or not len(x) or x.dtype.kind != "f" or not np.isfinite(x).all():
        raise DataError(f"{label}: x must be finite floats of shape [n, 6].")
    for key, (low, high) in ranges.items():
        if arrays[key].shape != (len(x),) or arrays[key].dtype.kind not in "iuf":
            raise DataError(f"{label}: {key} must be {len(x)} integers.")
        arrays[key] = check_labels(arrays[key], f"{label}, {key}", low=low, high=high) - low
    return {"x": x.astype(np.float32), "user": arrays.pop("subject"), **arrays}


def _select(rows: Rows, *, seed: int) -> Rows:
    """Keep the six main activities."""
    main = rows.arrays["activity"] < 6
    arrays = {key: values[main] for key, values in rows.arrays.items()}
    return Rows(arrays, {**rows.names, "activity": ACTIVITIES})


SET = PublishedSet(
    name="hapt",
    title="HAPT: raw smartphone frames; stands in for MHEALTH",
    size="815614 x 6 frames at 50 Hz, 6 main activities (utility), 30 users (private)",
    terms="CC BY 4.0 at UCI",
    citation="Reyes-Ortiz, Oneto, Sama, Parra, Anguita, Neurocomputing 2016",
    homepage="https://archive.ics.uci.edu/dataset/341",
    url="https://archive.ics.uci.edu/static/public/341/"
    "smartphone+based+recognition+of+human+activities+and+postural+transitions.zip",
    bytes=79596192,
    sha256="4ac4ae064227c07045a99551876b54d204837e995e298b6488559e209b3deb09",
    needs=(("HAPT Data Set.zip", "HAPT Data Set", "hapt_frames.npz"),),
    nested=("HAPT Data Set.zip",),
    read=_read,
    utility="activity",
    private=("user",),
    protocols={"separated_frames": separated_frames},
    select=_select,
    num_rows=815614,
)
