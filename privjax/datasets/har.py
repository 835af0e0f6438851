"""UCI HAR: 561 features of smartphone motion windows; utility = activity, private = user."""

import numpy as np

from privjax.datasets.published import Files, PublishedSet, Rows, check_labels, read_matrix
from privjax.datasets.splits import DataError, disjoint_users_split, time_block_split

ACTIVITIES = ("WALKING", "WALKING_UPSTAIRS", "WALKING_DOWNSTAIRS", "SITTING", "STANDING", "LAYING")


def _read(files: Files) -> Rows:
    """Read all windows, those of the authors' training part first."""
    parts = [_read_part(files, part) for part in ("train", "test")]
    arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return Rows(arrays, {"features": _read_feature_names(files), "activity": ACTIVITIES})


def _read_part(files: Files, part: str) -> dict[str, np.ndarray]:
    x = read_matrix(files, files.find(f"{part}/X_{part}.txt"), columns=561).astype(np.float32)
    arrays = {"x": x, "is_test": np.full(len(x), part == "test")}
    for variable, kind, high in (("activity", "y", 6), ("user", "subject", 30)):
        name = files.find(f"{part}/{kind}_{part}.txt")
        labels = read_matrix(files, name, columns=1)[:, 0]
        if len(labels) != len(x):
            counts = f"{len(labels)} lines where X_{part}.txt has {len(x)}"
            raise DataError(f"{files.label(name)} has {counts}: get the data set again.")
        arrays[variable] = check_labels(labels, files.label(name), low=1, high=high) - 1
    return arrays


def _read_feature_names(files: Files) -> list[str]:
    """Read the 561 names; a repeated name is followed by its number to be unique."""
    name = files.find("features.txt")
    lines = [line.split() for line in files.read(name).decode("ascii", "replace").split("\n")]
    names = [cells[1] for cells in lines if len(cells) == 2]
    if len(names) != 561:
        raise DataError(f"{files.label(name)} has {len(names)} names where 561 are expected.")
    repeated = {n for n in names if names.count(n) > 1}
    return [f"{n}#{i}" if n in repeated else n for i, n in enumerate(names, start=1)]


SET = PublishedSet(
    name="har",
    title="UCI HAR: 561 features of smartphone motion windows",
    size="10299 x 561, 6 activities (utility), 30 users (private)",
    terms="CC BY 4.0 at UCI; its README asks for citation and forbids commercial use",
    citation="Anguita, Ghio, Oneto, Parra, Reyes-Ortiz, ESANN 2013",
    homepage="https://archive.ics.uci.edu/dataset/240",
    url="https://archive.ics.uci.edu/static/public/240/human+activity+recognition+using+smartphones.zip",
    bytes=61005872,
    sha256="c00b803081a5c797cd5e4b83700a9810b38d53d9d84e01917e090e1fdbc81031",
    needs=(("UCI HAR Dataset.zip", "UCI_HAR_Dataset.zip", "UCI HAR Dataset"),),
    nested=("UCI HAR Dataset.zip",),
    read=_read,
    utility="activity",
    private=("user",),
    protocols={
        "per_user": None,
        "disjoint_users": lambda data, **how: disjoint_users_split(data["user"], data["is_test"], **how),
        "time_blocks": lambda data, **how: time_block_split(data["user"], data["activity"], **how),
    },
    num_rows=10299,
)
