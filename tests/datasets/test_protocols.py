"""The promises of the split protocols, as properties over many seeds and shapes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privjax.datasets import DataError
from privjax.datasets.splits import (
    disjoint_users_split,
    per_label_split,
    random_groups,
    sampled_people_groups,
    stratified_pick,
    time_block_split,
)

SEEDS = range(40)


def check_partition(split, rows):
    everything = np.sort(np.concatenate(split))
    np.testing.assert_array_equal(everything, np.arange(rows))


@settings(max_examples=200, deadline=None)
@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    share=st.floats(0.0, 0.9),
    seed=st.integers(0, 10**6),
)
def test_every_label_gives_its_share_rounded(counts, share, seed):
    labels = np.repeat(np.arange(len(counts)), counts)
    np.random.default_rng(seed).shuffle(labels)
    picked = stratified_pick(labels, share, np.random.default_rng(seed))
    taken = np.bincount(labels[picked], minlength=len(counts))
    quota = share * np.array(counts)
    assert (taken <= np.ceil(quota)).all()
    assert (taken >= np.minimum(np.floor(quota), np.array(counts) - 1)).all()
    assert (taken < counts).all()  # no label is emptied
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
    assert len(drawn) == len(SEEDS)  # each seed is another split
    again = per_label_split(labels, seed=3, validation=0.1)
    for one, other in zip(again, per_label_split(labels, seed=3, validation=0.1), strict=True):
        np.testing.assert_array_equal(one, other)


def test_every_row_is_tested_on_under_some_seed():
    labels = np.repeat(np.arange(5), 20)
    seen = np.zeros(100, int)
    for seed in range(200):
        seen[per_label_split(labels, seed=seed).test] += 1
    # 200 draws at 0.2: mean 40, deviation 5.7; five deviations either way.
    assert seen.min() > 11
    assert seen.max() < 69


def test_the_test_part_does_not_depend_on_the_validation_share():
    labels = np.random.default_rng(1).integers(0, 7, 500)
    with_it, without = (per_label_split(labels, seed=5, validation=v) for v in (0.2, 0.0))
    np.testing.assert_array_equal(with_it.test, without.test)
    assert len(without.validation) == 0


def test_disjoint_users_share_nobody():
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


def windows(seed):
    """Runs of windows, as they come from users who do one activity after another."""
    rng = np.random.default_rng(seed)
    user, activity = [], []
    for person in range(5):
        for _ in range(4):
            for what in rng.permutation(6):
                length = int(rng.integers(5, 25))
                user += [person] * length
                activity += [what] * length
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
            for what in range(6):
                mine = (user == person) & (activity == what)
                assert (part[mine] == 2).sum() == round(0.2 * mine.sum())
                # One block: in the order of this user's windows of this activity, no holes.
                order = np.flatnonzero(part[mine] == 2)
                np.testing.assert_array_equal(order, np.arange(order[0], order[-1] + 1))


def test_time_blocks_see_neighbours_between_rows_of_other_users():
    user, activity = windows(1)
    shuffled = np.random.default_rng(0).permutation(len(user))
    turns = np.empty(len(user), int)  # the same windows, each user's in order, users mixed
    turns[np.argsort(user[shuffled], kind="stable")] = np.argsort(user, kind="stable")
    split = time_block_split(user[turns], activity[turns], seed=0)
    for rows, apart in zip(split, time_block_split(user, activity, seed=0), strict=True):
        np.testing.assert_array_equal(np.sort(turns[rows]), apart)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
def test_very_small_sets_keep_a_training_row_of_everyone(rows):
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


def test_a_random_split_does_touch():
    user, activity = windows(0)
    part = np.zeros(len(user))
    part[per_label_split(user, seed=0).test] = 1
    assert (part[1:] != part[:-1]).sum() > 100


def test_random_groups_are_even_and_of_people():
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
        assert len(rows) == np.isin(people, chosen).sum()  # a person comes whole or not at all
        pairs = np.unique(np.stack([people[rows], group], axis=1), axis=0)
        assert len(pairs) == 500
        np.testing.assert_array_equal(np.bincount(pairs[:, 1]), np.full(100, 5))
        assert np.bincount(group).max() <= 0.045 * len(rows)
        samples.add(chosen.tobytes())
    assert len(samples) == len(SEEDS)


def test_a_person_too_large_for_the_promise_is_refused():
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
        time_block_split(np.zeros(5), np.zeros(5), seed=0, test=1.5)
    with pytest.raises(ValueError, match="groups must lie between 1 and the 5 people"):
        random_groups(np.arange(5), 6, seed=0)
