"""The paper's split protocols: named, seeded, and each with a promise that the tests check."""

import zlib

import numpy as np

from privjax.datasets.dataset import Split
from privjax.datasets.errors import DataError


def generator(seed: int, purpose: str) -> np.random.Generator:
    """A generator for one purpose, so that one draw never shifts another."""
    if seed < 0:
        raise ValueError(f"seed must not be negative, got {seed}.")
    return np.random.default_rng([seed, zlib.crc32(purpose.encode())])


def stratified_pick(labels: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Marks ``share`` of the rows, the same share of every label.

    Every label gives ``share * count`` rows rounded down or up; the total is rounded once, by
    largest remainder. A label is never emptied: at least one of its rows stays unmarked.

    Args:
      labels: One label per row, of any sortable type.
      share: Between 0 and 1.
      rng: The source of randomness.

    Returns:
      A boolean array, True where the row was picked.
    """
    if not 0.0 <= share < 1.0:
        raise ValueError(f"share must lie in [0, 1), got {share}.")
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    quota = share * counts
    take = np.minimum(np.floor(quota + 1e-9).astype(np.int64), counts - 1)
    short = int(round(share * len(labels))) - int(take.sum())
    room = (quota - take > 1e-9) & (take < counts - 1)
    # Ties between equal remainders are broken by the generator, not by the order of the labels.
    rank = np.lexsort((rng.random(len(counts)), -(quota - take)))
    take[[c for c in rank if room[c]][: max(short, 0)]] += 1
    # One shuffle, then the first take[c] rows of each label in that order.
    order = rng.permutation(len(labels))
    order = order[np.argsort(codes[order], kind="stable")]
    first = np.repeat(np.cumsum(counts) - counts, counts)
    picked = np.zeros(len(labels), dtype=bool)
    picked[order[np.arange(len(labels)) - first < take[codes[order]]]] = True
    return picked


def per_label_split(labels: np.ndarray, *, seed: int, test: float = 0.2, validation: float = 0.1) -> Split:
    """80:20 with the same proportion of every label (user, person) on both sides.

    Args:
      labels: The label whose proportions are kept.
      seed: Picks the split.
      test: Share of all rows that is tested on.
      validation: Share of the remaining training rows that is set aside, in the same proportions.

    Returns:
      The split; every row is in exactly one part.
    """
    is_test = stratified_pick(labels, test, generator(seed, "test"))
    rest = np.flatnonzero(~is_test)
    is_validation = stratified_pick(labels[rest], validation, generator(seed, "validation"))
    return Split(rest[~is_validation], rest[is_validation], np.flatnonzero(is_test))


def disjoint_users_split(
    user: np.ndarray, is_test: np.ndarray, *, seed: int, validation: float = 0.1
) -> Split:
    """HAR's original split: no user is on both sides, nor in both training and validation.

    Args:
      user: User of every row.
      is_test: The rows its authors tested on.
      seed: Picks the validation users.
      validation: Share of the training users (at least one when it is not 0) for validation.

    Returns:
      The split; every row is in exactly one part.
    """
    both = np.intersect1d(user[is_test], user[~is_test])
    if len(both):
        raise DataError(f"user {both[0]} has rows on both sides of the original split.")
    users = np.unique(user[~is_test])
    count = 0 if validation == 0 else max(1, round(validation * len(users)))
    chosen = generator(seed, "validation").choice(users, size=count, replace=False)
    is_validation = np.isin(user, chosen) & ~is_test
    return Split(
        np.flatnonzero(~is_test & ~is_validation),
        np.flatnonzero(is_validation),
        np.flatnonzero(is_test),
    )


def time_block_split(
    user: np.ndarray,
    activity: np.ndarray,
    *,
    seed: int,
    test: float = 0.2,
    validation: float = 0.1,
    gap: int = 1,
) -> Split:
    """HAR by time: one block of each user's windows of each activity is tested on.

    Neighbouring windows share half their frames, so a random split tests on frames it trained on.
    Here the ``gap`` windows on either side of a test or validation block are left out, and no two
    parts share a frame.

    Args:
      user: User of every window, windows in the order they were recorded.
      activity: Activity of every window.
      seed: Picks where the blocks lie.
      test: Share of every user's windows of every activity that is tested on.
      validation: Share of what is not tested on.
      gap: Windows left out between two parts.

    Returns:
      The split; the windows in the gaps are in no part.
    """
    if not (0.0 <= test < 1.0 and 0.0 <= validation < 1.0):
        raise ValueError(f"test and validation must lie in [0, 1), got {test} and {validation}.")
    part = np.zeros(len(user), dtype=np.int8)  # 0 train, 1 validation, 2 test
    rng = generator(seed, "time blocks")
    codes = np.unique(np.stack([user, activity], axis=1), axis=0, return_inverse=True)[1]
    for code in range(codes.max() + 1):
        rows = np.flatnonzero(codes == code)
        sizes = (round(test * len(rows)), round(validation * (1 - test) * len(rows)))
        tested, validated = sizes
        start = int(rng.integers(len(rows) - tested + 1))
        part[rows[start : start + tested]] = 2
        # The validation block goes to the longer side, away from the test block's neighbours.
        before, after = start, len(rows) - start - tested
        side = rows[:start] if before >= after else rows[start + tested :][::-1]
        part[side[: min(validated, max(len(side) - gap, 0))]] = 1
    lost = np.zeros(len(user), dtype=bool)
    # A neighbour is the next window of the same user, wherever the rows of other users lie.
    order = np.argsort(user, kind="stable")
    for step in range(1, gap + 1):
        one, other = order[:-step], order[step:]
        touching = user[one] == user[other]
        # The lesser part gives way, so that the test block keeps its size.
        lost[other] |= touching & (part[other] < part[one])
        lost[one] |= touching & (part[one] < part[other])
    return Split(*(np.flatnonzero((part == p) & ~lost) for p in range(3)))


def random_groups(people: np.ndarray, groups: int, *, seed: int, attempt: int = 0) -> np.ndarray:
    """Deals people into groups whose sizes differ by at most one.

    Args:
      people: Person of every row, numbered from 0 without holes.
      groups: How many groups.
      seed: Picks the groups.
      attempt: A further draw under the same seed.

    Returns:
      The group of every row.
    """
    count = int(people.max()) + 1
    if not 1 <= groups <= count:
        raise ValueError(f"groups must lie between 1 and the {count} people, got {groups}.")
    order = generator(seed, f"groups {attempt}").permutation(count)
    group_of = np.empty(count, dtype=np.int64)
    group_of[order] = np.arange(count) % groups
    return group_of[people]


def sampled_people_groups(
    people: np.ndarray,
    *,
    seed: int,
    sample: int = 500,
    groups: int = 100,
    largest: float = 0.045,
) -> tuple[np.ndarray, np.ndarray]:
    """MeGlass: random people, dealt into groups none of which is a large part of the data.

    Args:
      people: Person of every row, numbered from 0 without holes.
      seed: Picks the people and their groups.
      sample: How many people.
      groups: How many groups.
      largest: No group holds more than this share of the rows.

    Returns:
      The rows of the sampled people, and the group of each of those rows.
    """
    count = int(people.max()) + 1
    if sample > count:
        raise DataError(f"{sample} people are to be sampled where there are {count}.")
    chosen = generator(seed, "people").choice(count, size=sample, replace=False)
    rows = np.flatnonzero(np.isin(people, chosen))
    number = np.unique(people[rows], return_inverse=True)[1]
    for attempt in range(100):
        group = random_groups(number, groups, seed=seed, attempt=attempt)
        if np.bincount(group).max() <= largest * len(rows):
            return rows, group
    raise DataError(f"no deal of {sample} people keeps every group under {largest:.1%} of the rows.")
