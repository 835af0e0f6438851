"""Guarantees of the split protocols, as properties over many seeds and shapes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privjax.datasets import (
    DataError,
    grouped_split,
    per_label_split,
    time_block_split,
)
from privjax.datasets.splits import (
    disjoint_users_split,
    random_groups,
    sampled_people_groups,
    separated_frames_split,
    stratified_pick,
)

SEEDS = range(40)


def check_partition(split, rows):
    everything = np.sort(np.concatenate(split))
    np.testing.assert_array_equal(everything, np.arange(rows))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    share=st.floats(0.0, 0.9),
    seed=st.integers(0, 10**6),
)
def test_every_label_gives_its_rounded_share(counts, share, seed):
    labels = np.repeat(np.arange(len(counts)), counts)
    np.random.default_rng(seed).shuffle(labels)
    picked = stratified_pick(labels, share, np.random.default_rng(seed))
    taken = np.bincount(labels[picked], minlength=len(counts))
    quota = share * np.array(counts)
    assert (taken <= np.ceil(quota)).all()
    assert (taken >= np.minimum(np.floor(quota), np.array(counts) - 1)).all()
    assert (taken < counts).all()  # every label keeps a row
    assert taken.sum() <= round(share * sum(counts))


def test_per_label_split_keeps_proportions_over_many_seeds():
    labels = np.random.default_rng(0).integers(0, 30, 10299)
    counts = np.bincount(labels)
    drawn = set()
    for seed in SEEDS:
        split = per_label_split(labels, seed=seed, validation=0.1)
        check_partition(split, len(labels))
        assert len(split.test) == round(0.2 * len(labels))
        tested = np.bincount(labels[split.test], minlength=30)
        assert np.abs(tested - 0.2 * counts).max() < 1.0
        validated = np.bincount(labels[split.validation], minlength=30)
        assert np.abs(validated - 0.1 * (counts - tested)).max() < 1.0
        drawn.add(split.test.tobytes())
    assert len(drawn) == len(SEEDS)  # every seed gives another split
    one_draw, other_draw = (per_label_split(labels, seed=3, validation=0.1) for _ in range(2))
    for one, other in zip(one_draw, other_draw, strict=True):
        np.testing.assert_array_equal(one, other)


def test_every_row_is_in_the_test_part_of_some_seed():
    labels = np.repeat(np.arange(5), 20)
    seen = np.zeros(100, int)
    for seed in range(200):
        seen[per_label_split(labels, seed=seed).test] += 1
    # 200 draws at 0.2: mean 40, standard deviation 5.7, and five of these on both sides.
    assert seen.min() > 11
    assert seen.max() < 69


def test_the_test_part_does_not_depend_on_the_validation_share():
    labels = np.random.default_rng(1).integers(0, 7, 500)
    with_it, without = (per_label_split(labels, seed=5, validation=v) for v in (0.2, 0.0))
    np.testing.assert_array_equal(with_it.test, without.test)
    assert len(without.validation) == 0


def test_no_user_is_in_two_parts():
    user = np.repeat(np.arange(30), 20)
    is_test = np.isin(user, [1, 5, 9, 11, 12, 17, 19, 23, 28])
    chosen = set()
    for seed in SEEDS:
        split = disjoint_users_split(user, is_test, seed=seed)
        check_partition(split, len(user))
        groups = [set(user[rows]) for rows in split]
        assert not (groups[0] & groups[1])
        assert not (groups[0] & groups[2])
        assert not (groups[1] & groups[2])
        np.testing.assert_array_equal(split.test, np.flatnonzero(is_test))
        assert len(groups[1]) == 2
        chosen.add(frozenset(groups[1]))
    assert len(chosen) > 10
    with pytest.raises(DataError, match="user 1 has rows on both sides"):
        disjoint_users_split(user, np.arange(600) == 25, seed=0)


def test_groups_stay_whole():
    groups = np.random.default_rng(0).integers(0, 20, 500)
    drawn = set()
    for seed in SEEDS:
        split = grouped_split(groups, seed=seed)
        check_partition(split, 500)
        parts = [set(groups[rows]) for rows in split]
        assert [len(part) for part in parts] == [14, 2, 4]
        assert len(set.union(*parts)) == 20
        drawn.add(frozenset(parts[2]))
    assert len(drawn) > 30
    assert len(grouped_split(groups, seed=0, test=0.0, validation=0.0).train) == 500
    with pytest.raises(DataError, match="2 groups are too few to split"):
        grouped_split(np.arange(10) % 3, seed=0, validation=0.9)


def windows(seed):
    """Windows of users who do one activity after another."""
    rng = np.random.default_rng(seed)
    user, activity = [], []
    for person in range(5):
        for _ in range(4):
            for kind in rng.permutation(6):
                length = int(rng.integers(5, 25))
                user += [person] * length
                activity += [kind] * length
    return np.array(user), np.array(activity)


@pytest.mark.parametrize("gap", [1, 2, 3])
def test_time_blocks_never_touch(gap):
    for seed in SEEDS:
        user, activity = windows(seed)
        split = time_block_split(user, activity, seed=seed, gap=gap)
        part = np.full(len(user), -1)
        for number, rows in enumerate(split):
            part[rows] = number
        for step in range(1, gap + 1):
            same = user[step:] == user[:-step]
            one, other = part[step:][same], part[:-step][same]
            used = (one >= 0) & (other >= 0)
            assert (one == other)[used].all()
        for person in range(5):
            for kind in range(6):
                mine = (user == person) & (activity == kind)
                assert (part[mine] == 2).sum() == round(0.2 * mine.sum())
                # One block: consecutive windows of this user and activity.
                order = np.flatnonzero(part[mine] == 2)
                np.testing.assert_array_equal(order, np.arange(order[0], order[-1] + 1))


def test_time_blocks_find_neighbours_among_rows_of_other_users():
    user, activity = windows(1)
    shuffled = np.random.default_rng(0).permutation(len(user))
    turns = np.empty(len(user), int)  # the same windows in order for each user, users mixed
    turns[np.argsort(user[shuffled], kind="stable")] = np.argsort(user, kind="stable")
    split = time_block_split(user[turns], activity[turns], seed=0)
    for rows, apart in zip(split, time_block_split(user, activity, seed=0), strict=True):
        np.testing.assert_array_equal(np.sort(turns[rows]), apart)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
def test_small_sets_keep_a_training_row_of_every_label(rows):
    for seed in SEEDS:
        labels = np.repeat(np.arange(3), [rows, 1, 2])
        split = per_label_split(labels, seed=seed)
        check_partition(split, rows + 3)
        assert set(labels[split.train]) == {0, 1, 2}
        whole = per_label_split(np.zeros(rows), seed=seed)  # all rows of one class
        check_partition(whole, rows)
        assert len(whole.test) == min(round(0.2 * rows), rows - 1)
        blocks = time_block_split(np.zeros(rows, int), np.zeros(rows, int), seed=seed)
        assert len(np.unique(np.concatenate(blocks))) == sum(map(len, blocks))


def test_the_parts_of_a_random_split_touch():
    user, activity = windows(0)
    part = np.zeros(len(user))
    part[per_label_split(user, seed=0).test] = 1
    assert (part[1:] != part[:-1]).sum() > 100


def test_random_groups_are_even_and_keep_people_whole():
    people = np.repeat(np.arange(38), 64)
    deals = set()
    for seed in SEEDS:
        group = random_groups(people, 4, seed=seed)
        of_person = [set(group[people == p]) for p in range(38)]
        assert all(len(g) == 1 for g in of_person)
        sizes = np.bincount([g.pop() for g in of_person])
        assert sorted(sizes) == [9, 9, 10, 10]
        deals.add(group.tobytes())
    assert len(deals) == len(SEEDS)


def test_sampled_people_and_their_groups():
    rng = np.random.default_rng(0)
    people = np.repeat(np.arange(900), rng.integers(4, 90, 900))
    samples = set()
    for seed in SEEDS:
        rows, group = sampled_people_groups(people, seed=seed)
        chosen = np.unique(people[rows])
        assert len(chosen) == 500
        assert len(rows) == np.isin(people, chosen).sum()  # all rows of a person, or none
        pairs = np.unique(np.stack([people[rows], group], axis=1), axis=0)
        assert len(pairs) == 500
        np.testing.assert_array_equal(np.bincount(pairs[:, 1]), np.full(100, 5))
        assert np.bincount(group).max() <= 0.045 * len(rows)
        samples.add(chosen.tobytes())
    assert len(samples) == len(SEEDS)


def test_a_person_with_too_many_rows_is_refused():
    people = np.repeat(np.arange(500), np.r_[50_000, np.full(499, 5)])
    with pytest.raises(DataError, match="4.5% of the rows"):
        sampled_people_groups(people, seed=0)
    with pytest.raises(DataError, match="sample must be at most the number of people, 500, got 600"):
        sampled_people_groups(people, seed=0, sample=600)


def test_bad_arguments():
    with pytest.raises(ValueError, match="seed must not be negative"):
        per_label_split(np.zeros(5), seed=-1)
    with pytest.raises(ValueError, match="share must lie in"):
        per_label_split(np.zeros(5), seed=0, test=1.0)
    with pytest.raises(ValueError, match="test and validation must lie in"):
        grouped_split(np.arange(5), seed=0, validation=1.0)
    with pytest.raises(ValueError, match="test and validation must lie in"):
        time_block_split(np.zeros(5), np.zeros(5), seed=0, test=1.5)
    with pytest.raises(ValueError, match="groups must lie between 1 and the 5 people"):
        random_groups(np.arange(5), 6, seed=0)


def recordings(seed, users=3, activities=4, runs=4, length=(500, 900), recordings=2, pause=150):
    """Frames of users who do activities one after another, with pauses."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        for number in range(recordings):
            time = 1
            for _ in range(runs // recordings):
                for kind in rng.permutation(activities):
                    count = int(rng.integers(*length))
                    rows += [(kind, user, user * recordings + number, t + time) for t in range(count)]
                    time += count + pause
    return tuple(np.array(rows).T)


def distance(one, other, recording, frame):
    """Return the smallest distance between rows of the same recording, by definition."""
    smallest = np.inf
    for number in np.unique(recording[one]):
        times, others = (frame[rows[recording[rows] == number]] for rows in (one, other))
        if len(others):
            smallest = min(smallest, np.abs(times[:, None] - others[None]).min())
    return smallest


def smallest_distance(split, recording, frame):
    rest = np.concatenate([split.train, split.validation])
    return distance(split.test, rest, recording, frame)


def counts(rows, activity, user):
    table = np.zeros((user.max() + 1, activity.max() + 1), int)
    np.add.at(table, (user[rows], activity[rows]), 1)
    return table


@pytest.mark.parametrize("seed", range(12))
def test_frames_are_counted_and_separated(seed):
    activity, user, recording, frame = recordings(seed)
    split = separated_frames_split(activity, user, recording, frame, seed=seed)
    assert (counts(split.train, activity, user) == 100).all()
    assert (counts(split.validation, activity, user) == 10).all()
    assert (counts(split.test, activity, user) == 25).all()
    assert len(np.unique(np.concatenate(split))) == sum(map(len, split))
    # With 400 frames in between, the numbers differ by more than 400, also across activities.
    assert smallest_distance(split, recording, frame) > 400


@pytest.mark.parametrize("seed", range(12))
def test_validation_is_as_far_from_training_as_the_test_is(seed):
    activity, user, recording, frame = recordings(seed, length=(1500, 2500))
    split = separated_frames_split(activity, user, recording, frame, seed=seed)
    assert (counts(split.validation, activity, user) == 10).all()
    assert distance(split.validation, split.train, recording, frame) > 400


def test_validation_frames_move_closer_where_there_is_no_room():
    # A run of 700 frames holds no three parts 400 frames apart; training keeps its frames.
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


def test_the_frames_of_a_user_do_not_depend_on_other_users():
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


def test_the_seed_determines_the_frames():
    arrays = recordings(0)
    one, same, other = (separated_frames_split(*arrays, seed=s) for s in (0, 0, 1))
    np.testing.assert_array_equal(one.train, same.train)
    assert not np.array_equal(one.test, other.test)


def test_the_check_finds_frames_that_are_too_close():
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
