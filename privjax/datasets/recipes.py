"""From prepared arrays to a data set: which label is used for what, under which protocol."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from privjax.datasets.dataset import Split
from privjax.datasets.errors import DataError
from privjax.datasets.prepared import Arrays
from privjax.datasets.sources import (
    HAPT_ACTIVITIES,
    HAPT_CHANNELS,
    HAR_ACTIVITIES,
    MHEALTH_ACTIVITIES,
    MHEALTH_CHANNELS,
)
from privjax.datasets.splits import (
    disjoint_users_split,
    per_label_split,
    random_groups,
    sampled_people_groups,
    separated_frames_split,
    time_block_split,
)


class Cooked(NamedTuple):
    """What ``assemble`` needs, before scaling."""

    x: np.ndarray
    y: np.ndarray
    s: np.ndarray
    split: Split
    y_names: tuple[str, ...]
    s_names: tuple[str, ...]
    feature_names: tuple[str, ...]


Recipe = Callable[..., Cooked]


def har(arrays: Arrays, notes: Mapping[str, Any], protocol: str, seed: int, share: float) -> Cooked:
    """HAR: utility = activity, private = user."""
    user, activity = arrays["user"], arrays["activity"]
    if protocol == "per_user":
        split = per_label_split(user, seed=seed, validation=share)
    elif protocol == "disjoint_users":
        split = disjoint_users_split(user, arrays["is_test"].astype(bool), seed=seed, validation=share)
    else:
        split = time_block_split(user, activity, seed=seed, validation=share)
    return Cooked(
        arrays["x"],
        activity,
        user,
        split,
        HAR_ACTIVITIES,
        _numbered("user", user),
        tuple(notes["notes"]["feature_names"]),
    )


def mhealth(arrays: Arrays, notes: Mapping[str, Any], protocol: str, seed: int, share: float):
    """MHEALTH: 100 training and 25 test frames per activity per user, 400 frames apart."""
    absent = np.setdiff1d(np.arange(10), arrays["user"])
    if len(absent):
        raise DataError(
            f"mHealth_subject{absent[0] + 1}.log was not there: the protocol takes all ten users."
        )
    return _frames(arrays, seed, share, MHEALTH_ACTIVITIES, MHEALTH_CHANNELS)


def hapt(arrays: Arrays, notes: Mapping[str, Any], protocol: str, seed: int, share: float):
    """HAPT: MHEALTH's protocol on the six main activities."""
    main = arrays["activity"] < 6
    arrays = {key: value[main] for key, value in arrays.items()}
    return _frames(arrays, seed, share, HAPT_ACTIVITIES[:6], HAPT_CHANNELS)


def yaleb(arrays: Arrays, notes: Mapping[str, Any], protocol: str, seed: int, share: float):
    """YaleB: utility = one of 4 random groups of people, private = person."""
    person = arrays["person"]
    return _faces(
        arrays["x"],
        random_groups(person, 4, seed=seed),
        person,
        per_label_split(person, seed=seed, validation=share),
        _numbered("group", range(4), one_based=False),
        _numbered("person", person),
    )


def meglass(arrays: Arrays, notes: Mapping[str, Any], protocol: str, seed: int, share: float):
    """MeGlass: 500 random people; utility = glasses, private = one of 100 groups of 5."""
    rows, group = sampled_people_groups(arrays["person"], seed=seed)
    return _faces(
        arrays["x"][rows],
        arrays["glasses"][rows],
        group,
        per_label_split(arrays["person"][rows], seed=seed, validation=share),
        ("no glasses", "glasses"),
        _numbered("group", group),
    )


def cmu_faces(arrays: Arrays, notes: Mapping[str, Any], protocol: str, seed: int, share: float):
    """CMU faces: utility = sunglasses, private = person."""
    person = arrays["person"]
    return _faces(
        arrays["x"],
        arrays["glasses"],
        person,
        per_label_split(person, seed=seed, validation=share),
        ("open", "sunglasses"),
        tuple(notes["notes"]["people"]),
    )


RECIPES: dict[str, tuple[Recipe, tuple[str, ...]]] = {
    "har": (har, ("per_user", "disjoint_users", "time_blocks")),
    "mhealth": (mhealth, ("separated_frames",)),
    "hapt": (hapt, ("separated_frames",)),
    "yaleb": (yaleb, ("per_person",)),
    "meglass": (meglass, ("sampled_people",)),
    "cmu_faces": (cmu_faces, ("per_person",)),
}


def choose_protocol(name: str, protocol: str | None) -> str:
    """The named protocol, or the paper's, which is the first of the set's list."""
    known = RECIPES[name][1]
    if protocol is None:
        return known[0]
    if protocol not in known:
        raise ValueError(f"protocol must be one of {', '.join(known)} for {name}, got {protocol!r}.")
    return protocol


def is_complete(name: str, arrays: Arrays, notes: Mapping[str, Any], published: Mapping) -> bool:
    """Whether the prepared rows and classes are as many as were published."""
    labels = {"y": arrays.get("activity", arrays.get("glasses"))}
    labels["s"] = arrays.get("user", arrays.get("person"))
    if name == "mhealth" and not notes["verified"]:
        return False  # its rows were never counted in print; its ten logs are known by hash
    counts = {key: len(np.unique(value)) for key, value in labels.items() if value is not None}
    counts["rows"] = len(arrays["x"])
    return all(counts.get(key) == value for key, value in published.items())


def _frames(arrays, seed, share, activities, channels) -> Cooked:
    user, activity = arrays["user"], arrays["activity"]
    if len(np.unique(activity)) != len(activities):
        raise DataError(f"only {len(np.unique(activity))} of {len(activities)} activities are there.")
    # Numbers from 1, as in the published files, for whoever reads an error.
    split = separated_frames_split(
        activity + 1,
        user + 1,
        arrays["recording"],
        arrays["frame"],
        seed=seed,
        validation=round(share * 100),
    )
    return Cooked(arrays["x"], activity, user, split, activities, _numbered("user", user), channels)


def _faces(x, y, s, split, y_names, s_names) -> Cooked:
    # To 0..1 first: the scaler then sees what a network would be given without it.
    return Cooked(x.astype(np.float32) / 255.0, y, s, split, y_names, s_names, ("grey",))


def _numbered(word: str, labels, *, one_based: bool = True) -> tuple[str, ...]:
    return tuple(f"{word} {i + int(one_based)}" for i in range(int(np.max(labels)) + 1))
