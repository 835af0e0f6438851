"""The paper's protocol on raw frames: the parts lie far apart in time."""

import numpy as np

from privjax.datasets.dataset import Split
from privjax.datasets.errors import DataError
from privjax.datasets.protocols import generator

_ATTEMPTS = 200


def separated_frames_split(
    activity: np.ndarray,
    user: np.ndarray,
    recording: np.ndarray,
    frame: np.ndarray,
    *,
    seed: int,
    train: int = 100,
    test: int = 25,
    validation: int = 10,
    separation: int = 400,
) -> Split:
    """MHEALTH's protocol: per user and activity, frames to train and to test on, far apart.

    At least ``separation`` frames lie between any training (or validation) frame and any test
    frame of the same recording, whatever their activities. The test frames of an activity come
    from one stretch of it, about a fifth long where the recording leaves room for that, shorter
    where it does not.

    Validation frames come from a stretch of their own, ``separation`` frames from training, too:
    next to training frames they would be near-copies of them, and tuning would see users
    recognised who are not. Where that would take half of an activity's training frames, the
    distance of its validation frames is halved until it does not.

    Args:
      activity: Activity of every frame.
      user: User of every frame.
      recording: Recording of every frame: time is counted within one.
      frame: Number of every frame in its recording, in order of time.
      seed: Picks the stretches and the frames.
      train: Training frames per activity per user.
      test: Test frames per activity per user.
      validation: Further frames per activity per user, to tune on.
      separation: Frames that lie between two parts.

    Returns:
      The split; most frames are in no part.
    """
    activities = np.unique(activity)
    parts: list[list[np.ndarray]] = [[], [], []]
    wanted = train + validation
    for person in np.unique(user):
        rows = np.flatnonzero(user == person)
        rows = rows[np.lexsort((frame[rows], recording[rows]))]
        by_activity = {a: rows[activity[rows] == a] for a in activities}
        for name, own in by_activity.items():
            if len(own) < wanted + test:
                raise DataError(
                    f"user {person} has {len(own)} frames of activity {name}: "
                    f"the protocol takes {wanted + test}."
                )
        # One generator for each part: another validation share leaves the test frames alone.
        rng = generator(seed, f"test frames of {person}")
        tested, free = _choose(by_activity, recording, frame, rng, test, wanted, separation, person)
        parts[2].append(tested)
        if validation:
            rng = generator(seed, f"validation frames of {person}")
            tuned, free = _set_aside(free, recording, frame, rng, validation, train, separation)
            parts[1].append(tuned)
        rng = generator(seed, f"training frames of {person}")
        parts[0].extend(rng.choice(own, size=train, replace=False) for own in free)
    empty = np.empty(0, dtype=np.int64)
    return Split(*(np.sort(np.concatenate([empty, *part])) for part in parts))


def _choose(by_activity, recording, frame, rng, test, wanted, separation, person):
    """Test frames of one user, and what each activity has left far enough from all of them."""
    worst = None
    for attempt in range(_ATTEMPTS):
        # Wide stretches first; when they block too much, narrower and nearer the ends.
        share = 0.2 * 0.5 ** (attempt // 20)
        tested = np.concatenate(
            [_stretch(own, share, test, rng, attempt % 2 == 1) for own in by_activity.values()]
        )
        free = [own[_far(own, tested, recording, frame, separation)] for own in by_activity.values()]
        short = [(len(f), name) for f, name in zip(free, by_activity, strict=True)]
        # At first twice what is needed, or validation would have to sit next to training.
        if min(short)[0] >= wanted * (2 if attempt < _ATTEMPTS // 2 else 1):
            return tested, free
        worst = min(short)
    raise DataError(
        f"user {person} has no frames of activity {worst[1] if worst else '?'} left that are "
        f"{separation} frames away from the test frames: lower train, test or separation."
    )


def _set_aside(free, recording, frame, rng, validation, train, separation):
    """Validation frames of one user, and what each activity has left far from all of them."""
    gaps = np.full(len(free), separation)
    needs = [max(train, min(len(own) // 2, len(own) - validation)) for own in free]
    attempt = 0
    while True:
        drawn = [_stretch(own, 0.1, validation, rng, attempt % 2 == 1) for own in free]
        left = free
        for gap in np.unique(gaps):
            near = np.concatenate([rows for rows, own in zip(drawn, gaps, strict=True) if own == gap])
            left = [own[_far(own, near, recording, frame, gap)] for own in left]
        short = np.array([len(own) < need for own, need in zip(left, needs, strict=True)])
        if not short.any():
            return np.concatenate(drawn), left
        attempt += 1
        if attempt % 6 == 0:
            # After long enough everybody gives way, and with no gap at all there is always room.
            gaps = np.where(short | (attempt > 60), gaps // 2, gaps)


def _stretch(own, share, count, rng, at_an_end):
    """``count`` frames out of one stretch of an activity."""
    length = max(count, round(share * len(own)))
    last = len(own) - length
    start = int(rng.choice([0, last])) if at_an_end else int(rng.integers(last + 1))
    return rng.choice(own[start : start + length], size=count, replace=False)


def _far(rows, others, recording, frame, separation):
    """Which rows have at least ``separation`` frames between them and every other one."""
    far = np.ones(len(rows), dtype=bool)
    for number in np.unique(recording[others]):
        here = recording[rows] == number
        times = np.sort(frame[others[recording[others] == number]].astype(np.int64))
        own = frame[rows[here]].astype(np.int64)
        after = np.searchsorted(times, own)
        left = np.where(after > 0, own - times[np.maximum(after - 1, 0)], np.iinfo(np.int64).max)
        right = np.where(
            after < len(times),
            times[np.minimum(after, len(times) - 1)] - own,
            np.iinfo(np.int64).max,
        )
        far[here] = np.minimum(left, right) > separation
    return far
