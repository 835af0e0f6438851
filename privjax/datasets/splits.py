"""Split protocols: seeded, and each with a guarantee about rows, people or time."""

import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

_ATTEMPTS = 200


class DataError(ValueError):
    """Data that is missing, damaged or unsuitable; the message names the file and the place."""


class Split(NamedTuple):
    """Sorted row numbers of the three parts; a row in none of them is not used."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def check_split(split: Sequence[ArrayLike], rows: int) -> Split:
    """Sort a split given as row numbers or masks; refuse rows out of range or in two parts."""
    if len(split) != 3:
        raise ValueError(f"split must have a training, validation and test part, got {len(split)} parts.")
    parts = []
    for name, given in zip(Split._fields, split, strict=True):
        part = np.asarray(given)
        if part.dtype == bool and part.shape == (rows,):
            part = np.flatnonzero(part)
        if part.ndim != 1 or part.size and part.dtype.kind not in "iu":
            raise ValueError(f"split: the {name} part must be row numbers or a mask of the {rows} rows.")
        if part.size and not 0 <= part.min() <= part.max() < rows:
            raise ValueError(f"split: the {name} part must hold rows 0 to {rows - 1}.")
        parts.append(np.sort(part.astype(np.int64)))
    used, counts = np.unique(np.concatenate(parts), return_counts=True)
    if len(twice := used[counts > 1]):
        raise ValueError(f"split puts row {twice[0]} into two parts: each row may be in one of them.")
    if parts[0].size == 0:
        raise DataError("the training part is empty: give it more rows or a larger share.")
    return Split(*parts)


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Return a generator for one purpose, so that one draw never shifts another."""
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}.")
    return np.random.default_rng([seed, zlib.crc32(purpose.encode())])


def stratified_pick(labels: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return a mask of `share` of the rows: of every label the same share, but never all its rows.

    Every label gives `share * count` rows rounded down or up; the total is rounded once, by
    largest remainder.
    """
    if not 0.0 <= share < 1.0:
        raise ValueError(f"share must lie in [0, 1), got {share}.")
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    quota = share * counts
    take = np.minimum(np.floor(quota + 1e-9).astype(np.int64), counts - 1)
    short = int(round(share * len(labels))) - int(take.sum())
    room = (quota - take > 1e-9) & (take < counts - 1)
    # The generator breaks ties between equal remainders, not the order of the labels.
    rank = np.lexsort((rng.random(len(counts)), -(quota - take)))
    take[rank[room[rank]][: max(short, 0)]] += 1
    # One shuffle, then the first take[c] rows of each label in that order.
    order = rng.permutation(len(labels))
    order = order[np.argsort(codes[order], kind="stable")]
    place = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    picked = np.zeros(len(labels), dtype=bool)
    picked[order[place < take[codes[order]]]] = True
    return picked


def _pick_groups(groups: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return a mask of the rows of `share` of the groups; of at least one group unless share is 0."""
    if not 0.0 <= share < 1.0:
        raise ValueError(f"test and validation must lie in [0, 1), got {share}.")
    names = np.unique(groups)
    count = 0 if share == 0 else max(1, round(share * len(names)))
    if count >= len(names):
        raise DataError(f"{len(names)} groups are too few to split: every part takes at least one.")
    return np.isin(groups, rng.choice(names, size=count, replace=False))


def fixed_test_split(
    labels: np.ndarray,
    is_test: np.ndarray,
    *,
    seed: int,
    validation: float = 0.1,
    pick: Callable = stratified_pick,
) -> Split:
    """Keep the given test rows; pick the validation rows from the others by their labels."""
    rest = np.flatnonzero(~is_test)
    picked = pick(labels[rest], validation, generator(seed, "validation"))
    return Split(rest[~picked], rest[picked], np.flatnonzero(is_test))


def disjoint_users_split(
    user: np.ndarray, is_test: np.ndarray, *, seed: int, validation: float = 0.1
) -> Split:
    """Keep a given test part, such as HAR's original one, and set whole users aside for validation."""
    both = np.intersect1d(user[is_test], user[~is_test])
    if len(both):
        raise DataError(f"user {both[0]} has rows on both sides of the original split.")
    return fixed_test_split(user, is_test, seed=seed, validation=validation, pick=_pick_groups)


def per_label_split(labels: np.ndarray, *, seed: int, test: float = 0.2, validation: float = 0.1) -> Split:
    """Split all rows at random, with the same proportion of every label in every part.

    Args:
      labels: Label whose proportions are kept.
      seed: Seed of the split.
      test: Share of all rows in the test part.
      validation: Share of the remaining rows in the validation part.

    Returns:
      The split; every row is in exactly one part.

    Example:
      >>> import numpy as np
      >>> [len(rows) for rows in per_label_split(np.arange(100) % 4, seed=0)]
      [72, 8, 20]
    """
    is_test = stratified_pick(labels, test, generator(seed, "test"))
    return fixed_test_split(labels, is_test, seed=seed, validation=validation)


def grouped_split(groups: np.ndarray, *, seed: int, test: float = 0.2, validation: float = 0.1) -> Split:
    """Split whole groups at random: the rows of one group are all in the same part.

    Args:
      groups: Group of every row, of any sortable type.
      seed: Seed of the split.
      test: Share of the groups in the test part; at least one group unless 0.
      validation: Share of the remaining groups in the validation part; at least one unless 0.

    Returns:
      The split; every row is in exactly one part.

    Example:
      >>> import numpy as np
      >>> home = np.arange(60) // 6
      >>> split = grouped_split(home, seed=0)
      >>> set(home[split.train]) & set(home[split.test])
      set()
    """
    is_test = _pick_groups(groups, test, generator(seed, "test"))
    return fixed_test_split(groups, is_test, seed=seed, validation=validation, pick=_pick_groups)


def time_block_split(
    user: np.ndarray,
    activity: np.ndarray,
    *,
    seed: int,
    test: float = 0.2,
    validation: float = 0.1,
    gap: int = 1,
) -> Split:
    """Test on one block in time of each user's windows of each activity.

    Windows overlap by half, so a random split tests on frames that it trained on. Here the `gap`
    windows on either side of a test or validation block are left out, and no two parts share a frame.

    Args:
      user: User of every window, windows in the order of recording.
      activity: Activity of every window.
      seed: Seed of the places of the blocks.
      test: Share of every user's windows of every activity in the test part.
      validation: Share of the remaining windows in the validation part.
      gap: Windows left out between two parts.

    Returns:
      The split; the windows in the gaps are in no part.

    Example:
      >>> import numpy as np
      >>> split = time_block_split(np.zeros(20, int), np.zeros(20, int), seed=0, validation=0)
      >>> len(split.test), split.test[-1] - split.test[0]
      (4, np.int64(3))
    """
    if not (0.0 <= test < 1.0 and 0.0 <= validation < 1.0):
        raise ValueError(f"test and validation must lie in [0, 1), got {test} and {validation}.")
    part = np.zeros(len(user), dtype=np.int8)  # 0 train, 1 validation, 2 test
    rng = generator(seed, "time blocks")
    codes = np.unique(np.stack([user, activity], axis=1), axis=0, return_inverse=True)[1]
    for code in range(codes.max() + 1):
        rows = np.flatnonzero(codes == code)
        tested, validated = round(test * len(rows)), round(validation * (1 - test) * len(rows))
        start = int(rng.integers(len(rows) - tested + 1))
        part[rows[start : start + tested]] = 2
        # The validation block lies at the far end of the longer side of the test block.
        before, after = rows[:start], rows[start + tested :][::-1]
        side = before if len(before) >= len(after) else after
        part[side[: min(validated, max(len(side) - gap, 0))]] = 1
    lost = np.zeros(len(user), dtype=bool)
    # A neighbour is the next window of the same user; rows of other users may lie in between.
    order = np.argsort(user, kind="stable")
    for step in range(1, gap + 1):
        one, other = order[:-step], order[step:]
        touching = user[one] == user[other]
        # The window of the lower part is dropped, so that the test block keeps its size.
        lost[other] |= touching & (part[other] < part[one])
        lost[one] |= touching & (part[one] < part[other])
    return Split(*(np.flatnonzero((part == p) & ~lost) for p in range(3)))


def random_groups(people: np.ndarray, groups: int, *, seed: int, attempt: int = 0) -> np.ndarray:
    """Deal people, numbered from 0, into groups whose sizes differ by at most one; return each row's."""
    count = int(people.max()) + 1
    if not 1 <= groups <= count:
        raise ValueError(f"groups must lie between 1 and the {count} people, got {groups}.")
    order = generator(seed, f"groups {attempt}").permutation(count)
    return (np.argsort(order) % groups)[people]


def sampled_people_groups(
    people: np.ndarray, *, seed: int, sample: int = 500, groups: int = 100, largest: float = 0.045
) -> tuple[np.ndarray, np.ndarray]:
    """Sample people and deal them into groups, none with more than a `largest` share of the rows.

    Returns the rows of the sampled people, and the group of each of those rows.
    """
    count = int(people.max()) + 1
    if sample > count:
        raise DataError(f"sample must be at most the number of people, {count}, got {sample}.")
    chosen = generator(seed, "people").choice(count, size=sample, replace=False)
    rows = np.flatnonzero(np.isin(people, chosen))
    number = np.unique(people[rows], return_inverse=True)[1]
    for attempt in range(100):
        group = random_groups(number, groups, seed=seed, attempt=attempt)
        if np.bincount(group).max() <= largest * len(rows):
            return rows, group
    raise DataError(f"no deal of {sample} people keeps every group under {largest:.1%} of the rows.")


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
    """Draw training and test frames of every user and activity that lie far apart (MHEALTH).

    At least `separation` frames lie between a training or validation frame and a test frame of the
    same recording. The test frames of an activity come from one stretch of it: a fifth of its frames,
    or fewer where the recording is short. The validation frames lie as far from the training frames,
    whose neighbours are near-copies; where they would take half of these, the distance is halved.
    """
    # One time axis for all recordings, between which more than `separation` frames lie.
    length = int(frame.max()) - int(frame.min()) + separation + 1
    time = frame + length * np.unique(recording, return_inverse=True)[1]
    parts = [[], [], []]
    for person in np.unique(user):
        rows = np.flatnonzero(user == person)
        rows = rows[np.argsort(time[rows], kind="stable")]
        runs = {name: rows[activity[rows] == name] for name in np.unique(activity)}
        for name, own in runs.items():
            if len(own) < train + validation + test:
                found = f"user {person} has {len(own)} frames of activity {name}"
                raise DataError(f"{found}: the protocol takes {train + validation + test}.")
        # One generator per part: another validation share leaves the test frames unchanged.
        rngs = [generator(seed, f"{part} frames of {person}") for part in ("training", "validation", "test")]
        tested, free = _choose_test(runs, time, rngs[2], test, train + validation, separation, person)
        parts[2].append(tested)
        if validation:
            tuned, free = _set_aside(free, time, rngs[1], validation, train, separation)
            parts[1].append(tuned)
        parts[0].extend(rngs[0].choice(own, size=train, replace=False) for own in free)
    empty = np.empty(0, dtype=np.int64)
    return Split(*(np.sort(np.concatenate([empty, *part])) for part in parts))


def _choose_test(runs, time, rng, test, wanted, separation, person):
    """Return test frames of one user, and the frames of each activity far enough from all of them."""
    worst = (0, "?")
    for attempt in range(_ATTEMPTS):
        # Wide stretches first; when they block too many frames, narrower ones nearer the ends.
        share, at_an_end = 0.2 * 0.5 ** (attempt // 20), attempt % 2 == 1
        tested = np.concatenate([_stretch(own, share, test, rng, at_an_end) for own in runs.values()])
        free = [_far(own, tested, time, separation) for own in runs.values()]
        worst = min((len(own), name) for own, name in zip(free, runs, strict=True))
        # At first ask for twice the frames needed, which leaves room for validation frames.
        if worst[0] >= wanted * (2 if attempt < _ATTEMPTS // 2 else 1):
            return tested, free
    raise DataError(
        f"user {person} has no frames of activity {worst[1]} left that are {separation} frames away "
        "from the test frames: lower train, test or separation."
    )


def _set_aside(free, time, rng, validation, train, separation):
    """Return validation frames of one user, and the frames of each activity far from all of them."""
    gaps = np.full(len(free), separation)
    needs = [max(train, min(len(own) // 2, len(own) - validation)) for own in free]
    attempt = 0
    while True:
        attempt += 1
        drawn = [_stretch(own, 0.1, validation, rng, attempt % 2 == 0) for own in free]
        left = free
        for gap in np.unique(gaps):
            near = np.concatenate([rows for rows, own in zip(drawn, gaps, strict=True) if own == gap])
            left = [_far(own, near, time, gap) for own in left]
        short = np.array([len(own) < need for own, need in zip(left, needs, strict=True)])
        if not short.any():
            return np.concatenate(drawn), left
        if attempt % 6 == 0:
            # After many attempts all activities halve; the loop ends, since a gap of 0 always fits.
            gaps = np.where(short | (attempt > 60), gaps // 2, gaps)


def _stretch(own, share, count, rng, at_an_end):
    """Draw `count` frames from one stretch of an activity."""
    length = max(count, round(share * len(own)))
    last = len(own) - length
    start = int(rng.choice([0, last])) if at_an_end else int(rng.integers(last + 1))
    return rng.choice(own[start : start + length], size=count, replace=False)


def _far(rows, others, time, separation):
    """Return the rows with at least `separation` frames between them and every other row."""
    times = np.concatenate([[-np.inf], np.sort(time[others]), [np.inf]])
    after = np.searchsorted(times, time[rows])
    return rows[np.minimum(times[after] - time[rows], time[rows] - times[after - 1]) > separation]
