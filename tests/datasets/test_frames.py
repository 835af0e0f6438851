"""The protocol on raw frames: counts, and the distance between training and test frames."""

import numpy as np
import pytest

from privjax.datasets import DataError
from privjax.datasets.splits import separated_frames_split


def recordings(seed, users=3, activities=4, runs=4, length=(500, 900), recordings=2, pause=150):
    """Frames of users who do activities one after another, with pauses between them."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        for number in range(recordings):
            time = 1
            for _ in range(runs // recordings):
                for what in rng.permutation(activities):
                    count = int(rng.integers(*length))
                    rows += [(what, user, user * recordings + number, t + time) for t in range(count)]
                    time += count + pause
    return tuple(np.array(rows).T)


def distance(one, other, recording, frame):
    """The smallest between rows of the same recording, straight from its definition."""
    smallest = np.inf
    for number in np.unique(recording[one]):
        here, there = (frame[rows[recording[rows] == number]] for rows in (one, other))
        if len(there):
            smallest = min(smallest, np.abs(here[:, None] - there[None]).min())
    return smallest


def smallest_distance(split, recording, frame):
    rest = np.concatenate([split.train, split.validation])
    return distance(split.test, rest, recording, frame)


def counts(rows, activity, user):
    table = np.zeros((user.max() + 1, activity.max() + 1), int)
    np.add.at(table, (user[rows], activity[rows]), 1)
    return table


@pytest.mark.parametrize("seed", range(12))
def test_counts_and_separation(seed):
    activity, user, recording, frame = recordings(seed)
    split = separated_frames_split(activity, user, recording, frame, seed=seed)
    assert (counts(split.train, activity, user) == 100).all()
    assert (counts(split.validation, activity, user) == 10).all()
    assert (counts(split.test, activity, user) == 25).all()
    assert len(np.unique(np.concatenate(split))) == sum(map(len, split))
    # 400 frames between: the numbers differ by more than 400, across activities too.
    assert smallest_distance(split, recording, frame) > 400


@pytest.mark.parametrize("seed", range(12))
def test_validation_is_as_far_from_training_as_the_test_is(seed):
    activity, user, recording, frame = recordings(seed, length=(1500, 2500))
    split = separated_frames_split(activity, user, recording, frame, seed=seed)
    assert (counts(split.validation, activity, user) == 10).all()
    assert distance(split.validation, split.train, recording, frame) > 400


def test_validation_gives_way_where_there_is_no_room():
    # A run of 700 frames holds no three parts 400 frames apart; training must not pay for it.
    activity, user, recording, frame = recordings(
        0, activities=3, runs=1, recordings=1, length=(700, 720), pause=1000
    )
    for seed in range(6):
        split = separated_frames_split(activity, user, recording, frame, seed=seed)
        assert (counts(split.train, activity, user) == 100).all()
        assert smallest_distance(split, recording, frame) > 400
        assert distance(split.validation, split.train, recording, frame) > 20
    least = separated_frames_split(activity, user, recording, frame, seed=0, train=100, validation=150)
    assert (counts(least.validation, activity, user) == 150).all()


def test_the_test_frames_do_not_depend_on_the_validation_share():
    arrays = recordings(0)
    with_it, without = (separated_frames_split(*arrays, seed=5, validation=v) for v in (30, 0))
    np.testing.assert_array_equal(with_it.test, without.test)
    assert len(without.validation) == 0


def test_a_further_user_changes_nothing_for_the_others():
    activity, user, recording, frame = recordings(0)
    whole = separated_frames_split(activity, user, recording, frame, seed=5)
    kept = np.flatnonzero(user > 0)
    two = [a[kept] for a in (activity, user, recording, frame)]
    for one, other in zip(whole, separated_frames_split(*two, seed=5), strict=True):
        np.testing.assert_array_equal(one[user[one] > 0], kept[other])


@pytest.mark.parametrize("seed", range(6))
def test_one_short_run_per_activity(seed):
    # About what MHEALTH's shortest activity leaves: one run of some 700 frames.
    activity, user, recording, frame = recordings(seed, runs=1, recordings=1, length=(700, 720), pause=1000)
    split = separated_frames_split(activity, user, recording, frame, seed=seed)
    assert (counts(split.train, activity, user) == 100).all()
    assert smallest_distance(split, recording, frame) > 400


def test_rows_need_not_be_in_order():
    activity, user, recording, frame = recordings(0)
    shuffled = np.random.default_rng(0).permutation(len(frame))
    arrays = [a[shuffled] for a in (activity, user, recording, frame)]
    split = separated_frames_split(*arrays, seed=1)
    assert smallest_distance(split, arrays[2], arrays[3]) > 400


def test_another_seed_is_another_split_and_the_same_is_the_same():
    arrays = recordings(0)
    one, same, other = (separated_frames_split(*arrays, seed=s) for s in (0, 0, 1))
    np.testing.assert_array_equal(one.train, same.train)
    assert not np.array_equal(one.test, other.test)


def test_the_check_itself_sees_frames_that_are_too_near():
    arrays = recordings(0)
    split = separated_frames_split(*arrays, seed=0, separation=20)
    assert smallest_distance(split, arrays[2], arrays[3]) <= 400


def test_too_few_frames_are_named():
    arrays = recordings(0, length=(20, 25), runs=4)
    with pytest.raises(DataError, match=r"user 0 has \d+ frames of activity 0: .* takes 135"):
        separated_frames_split(*arrays, seed=0)


def test_no_room_for_the_distance_is_named():
    arrays = recordings(0, runs=1, recordings=1, length=(200, 210), pause=10)
    with pytest.raises(DataError, match="400 frames away from the test frames"):
        separated_frames_split(*arrays, seed=0)
