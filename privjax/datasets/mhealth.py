"""MHEALTH: raw frames of body-worn sensors; utility = activity, private = user."""

import re
from collections.abc import Mapping

import numpy as np

from privjax.datasets.published import Files, PublishedSet, Rows, check_labels, read_matrix
from privjax.datasets.splits import DataError, Split, separated_frames_split

_ACTIVITIES = (
    "standing still, sitting and relaxing, lying down, walking, climbing stairs, waist bends forward, "
    "frontal elevation of arms, knees bending, cycling, jogging, running, jump front and back"
).split(", ")
_MOTION = [f"{kind}_{axis}" for kind in ("acc", "gyro", "mag") for axis in "xyz"]
_CHANNELS = [
    *("chest_acc_x", "chest_acc_y", "chest_acc_z", "ecg_1", "ecg_2"),
    *(f"{place}_{channel}" for place in ("ankle", "arm") for channel in _MOTION),
]
_LOG = re.compile(r"(?:^|/)mHealth_subject(\d{1,9})\.log$")


def _read(files: Files) -> Rows:
    """Read the labelled frames of every log."""
    logs = sorted((int(match.group(1)), name) for name in files.names if (match := _LOG.search(name)))
    if not logs:
        raise DataError(f"{files.path} has no file mHealth_subject1.log: get the data set again.")
    parts = []
    for user, name in logs:
        files.find(f"mHealth_subject{user}.log")  # refuses a second log of the user
        if not 1 <= user <= 10:
            raise DataError(f"{files.label(name)}: subject {user} is not one of 1 to 10.")
        matrix = read_matrix(files, name, columns=24)
        activity = check_labels(matrix[:, 23], files.label(name), low=0, high=12)
        frame = np.flatnonzero(activity)  # 0 marks frames without a label
        users = np.full(len(frame), user - 1)
        parts.append((matrix[frame, :23].astype(np.float32), activity[frame] - 1, users, frame + 1))
    x, activity, user, frame = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    arrays = {"x": x, "activity": activity, "user": user, "recording": user, "frame": frame}
    return Rows(arrays, {"features": _CHANNELS, "activity": _ACTIVITIES})


def _select(rows: Rows, *, seed: int) -> Rows:
    """Refuse an incomplete copy."""
    missing = np.setdiff1d(np.arange(10), rows.arrays["user"])
    if len(missing):
        raise DataError(f"mHealth_subject{missing[0] + 1}.log is missing: the protocol takes all ten users.")
    return rows


def separated_frames(arrays: Mapping[str, np.ndarray], *, seed: int, validation: float) -> Split:
    """Draw 100 training and 25 test frames per activity and user, 400 frames apart."""
    # Users and activities count from 1 in messages, as in the published files.
    activity, user = arrays["activity"] + 1, arrays["user"] + 1
    times = arrays["recording"], arrays["frame"]
    return separated_frames_split(activity, user, *times, seed=seed, validation=round(validation * 100))


SET = PublishedSet(
    name="mhealth",
    title="MHEALTH: raw frames of body-worn sensors",
    size="343195 x 23 frames at 50 Hz, 12 activities (utility), 10 users (private)",
    terms="CC BY 4.0 at UCI",
    citation="Banos, Garcia, Holgado-Terriza, Damas et al., IWAAL 2014",
    homepage="https://archive.ics.uci.edu/dataset/319",
    url="https://archive.ics.uci.edu/static/public/319/mhealth+dataset.zip",
    bytes=75567983,
    sha256="16ad0ce709f3f00df18f348610d15bce0884b79e2143f57f446493673f02b8e0",
    needs=(("MHEALTHDATASET.zip", "MHEALTHDATASET", "MHEALTH_sample_72frames.zip"),),
    read=_read,
    utility="activity",
    private=("user",),
    protocols={"separated_frames": separated_frames},
    select=_select,
    num_rows=343195,
)
