"""Simulated motion windows: the bounds hold, are reached, and do not depend on the number of rows."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import linprog

from privjax.datasets import load, simulated_blocks, simulated_truth
from privjax.datasets.simulated import BLOCK, orthogonal_accuracy


@pytest.mark.parametrize(("count", "amplitude"), [(2, 1.0), (6, 3.0), (30, 4.0)])
def test_the_accuracy_of_orthogonal_waveforms(count, amplitude):
    # The accuracy has a closed form for two waveforms; otherwise it is estimated from draws.
    if count == 2:
        expected = stats.norm.cdf(amplitude / np.sqrt(2.0))
        assert orthogonal_accuracy(count, amplitude) == pytest.approx(expected, abs=1e-10)
    draws = np.random.default_rng(0).normal(size=(100_000, count))
    draws[:, 0] += amplitude
    seen = (draws.argmax(axis=1) == 0).mean()
    assert orthogonal_accuracy(count, amplitude) == pytest.approx(seen, abs=0.006)


def test_the_ceilings_are_reached_and_the_best_release_hides_the_user():
    truth = simulated_truth(seed=1)
    (block,) = simulated_blocks(40_000, seed=1)
    activity = (block.x @ truth.activity_waves.T).argmax(axis=1)
    user = (block.x @ truth.user_waves.T).argmax(axis=1)
    # Four standard errors of a proportion over 40000 rows are at most 0.01.
    assert (activity == block.y).mean() == pytest.approx(truth.utility_ceiling, abs=0.01)
    assert (user == block.s).mean() == pytest.approx(truth.identity_ceiling, abs=0.01)
    z = truth.best_release(block.x)
    assert (z.argmax(axis=1) == block.y).mean() == pytest.approx(truth.utility_ceiling, abs=0.01)
    # The means of the users differ in x; in z they differ by noise alone (chi-square).
    means = np.stack([z[block.s == u].mean(axis=0) for u in range(30)])
    sizes = np.bincount(block.s)
    spread = z.var(axis=0)
    statistic = (sizes[:, None] * (means - z.mean(axis=0)) ** 2 / spread).sum()
    assert stats.chi2.sf(statistic, 29 * 6) > 1e-4
    raw = np.stack([block.x[block.s == u].mean(axis=0) for u in range(30)])
    assert np.linalg.norm(raw[0] - raw[1]) > 4.0


def test_waveforms_are_orthonormal():
    truth = simulated_truth(users=40, activities=14, window=32)
    both = np.concatenate([truth.activity_waves, truth.user_waves])
    np.testing.assert_allclose(both @ both.T, np.eye(54), atol=1e-12)
    # The mean over the window is zero in every channel.
    np.testing.assert_allclose(both.reshape(54, 32, 6).sum(axis=1), 0.0, atol=1e-12)


def test_habits_make_a_trade_off_with_a_known_frontier():
    settings = {"users": 12, "activities": 4, "habit": 0.6, "activity_signal": 12.0}
    truth = simulated_truth(**settings)
    rate = 0.6 + 0.4 / 4
    assert truth.habit_rate == pytest.approx(rate)
    (block,) = simulated_blocks(60_000, **settings)
    assert (block.y == block.s % 4).mean() == pytest.approx(rate, abs=0.01)
    # A release of y has utility 1, and the attacker guesses a user with that habit.
    leak = sum(np.bincount(block.s[block.y == y], minlength=12).max() for y in range(4)) / len(block.y)
    assert leak == pytest.approx(truth.leak, abs=0.01)
    assert truth.best_utility(truth.leak) == pytest.approx(1.0)
    # Perfect privacy: a habitual y is replaced at random until all users release alike.
    assert truth.best_utility(truth.chance) == pytest.approx(1.0 - 0.6 * (1 - 1 / 4))
    rng = np.random.default_rng(0)
    habitual = block.y == block.s % 4
    swap = habitual & (rng.random(len(block.y)) > (1 / 4) / rate)
    released = np.where(swap, (block.s + rng.integers(1, 4, len(block.y))) % 4, block.y)
    assert (released == block.y).mean() == pytest.approx(0.55, abs=0.01)
    table = np.zeros((12, 4))
    np.add.at(table, (block.s, released), 1)
    table /= table.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(table, 0.25, atol=0.03)
    with pytest.raises(ValueError, match="attacker must be at least chance"):
        truth.best_utility(0.01)


def test_the_frontier_is_the_optimum_of_a_linear_programme():
    # The best q(z | s, y) that keeps attackers under a level, solved exactly for a small case.
    users, activities, habit = 4, 2, 0.5
    truth = simulated_truth(users=users, activities=activities, habit=habit)
    joint = np.full((users, activities), (1 - habit) / activities / users)
    joint[np.arange(users), np.arange(users) % activities] += habit / users
    for level in (0.25, 0.3, 0.35, truth.leak):
        # Variables: q[s, y, z], then t[z] >= P(s, z) for all s; the sum of t is the attacker.
        size = users * activities * activities
        gain = np.zeros(size + activities)
        equal, rows = [], []
        for s in range(users):
            for y in range(activities):
                gain[(s * activities + y) * activities + y] = -joint[s, y]
                row = np.zeros(size + activities)
                row[(s * activities + y) * activities :][:activities] = 1
                equal.append(row)
            for z in range(activities):
                row = np.zeros(size + activities)
                for y in range(activities):
                    row[(s * activities + y) * activities + z] = joint[s, y]
                row[size + z] = -1
                rows.append(row)
        total = np.r_[np.zeros(size), np.ones(activities)]
        found = linprog(
            gain,
            A_ub=np.array([*rows, total]),
            b_ub=np.r_[np.zeros(len(rows)), level],
            A_eq=np.array(equal),
            b_eq=np.ones(len(equal)),
        )
        assert -found.fun == pytest.approx(truth.best_utility(level), abs=1e-6)


def test_a_shorter_set_is_the_start_of_a_longer_one():
    small = {"window": 12, "users": 6, "activities": 3}
    longer = load("simulated_sensors", rows=BLOCK + 500, **small)
    shorter = load("simulated_sensors", rows=300, **small)
    np.testing.assert_array_equal(longer.x[:300], shorter.x)
    blocks = list(simulated_blocks(BLOCK + 500, **small))
    assert [len(b.x) for b in blocks] == [BLOCK, 500]
    np.testing.assert_array_equal(np.concatenate([b.x for b in blocks]), longer.x)
    np.testing.assert_array_equal(np.concatenate([b.s for b in blocks]), longer.s)
    assert not np.array_equal(blocks[1].x[:300], shorter.x)


@pytest.mark.slow
def test_more_than_a_million_rows():
    data = load("simulated_sensors", rows=1_200_000, users=6, activities=3, window=6)
    assert data.x.shape == (1_200_000, 36)
    assert len(data.split.test) == 240_000
    assert np.abs(np.bincount(data.s) / 1.2e6 - 1 / 6).max() < 0.002


def test_bad_arguments():
    with pytest.raises(ValueError, match="window must be even and at least 10 for 30 users"):
        simulated_truth(window=4)
    with pytest.raises(ValueError, match="users must be a multiple of activities"):
        simulated_truth(users=10, activities=4, habit=0.1)
    with pytest.raises(ValueError, match="habit must lie between 0 and 1"):
        simulated_truth(habit=1.5)
    with pytest.raises(ValueError, match="rows must be at least 1"):
        next(simulated_blocks(0))
    with pytest.raises(ValueError, match="rows must be at least 1"):
        load("simulated_sensors", rows=-1)
    simulated_truth(window=10)  # the size that the first message advises
