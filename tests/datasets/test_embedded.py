"""Data sets of scikit-learn."""

import numpy as np
import pytest

from privjax.datasets import load


def test_digits_counts_and_labels():
    data = load("digits", seed=3)
    # Published class counts of the set, digits 0 to 9.
    counts = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    np.testing.assert_array_equal(np.bincount(data.s), counts)
    np.testing.assert_array_equal(data.y, data.s % 2)
    assert data.x.shape == (1797, 64)
    assert len(data.feature_names) == 64
    assert data.y_names == ("even", "odd")
    assert [len(rows) for rows in data.split] == [1294, 144, 359]


def test_every_seed_keeps_the_proportion_of_every_digit():
    for seed in range(20):
        data = load("digits", seed=seed)
        tested = np.bincount(data.test.s)
        assert np.abs(tested - 0.2 * np.bincount(data.s)).max() < 1.0
    assert load("digits", seed=0).content_hash != load("digits", seed=1).content_hash
    assert load("digits", seed=0).content_hash == load("digits", seed=0).content_hash


def test_diabetes_with_a_continuous_private_variable():
    data = load("diabetes")
    assert data.origin.private == ("age",)
    assert data.x.shape == (442, 9)
    assert "age" not in data.feature_names
    assert "sex" in data.feature_names
    assert data.s_names == ()
    assert (data.s.min(), data.s.max()) == (19.0, 79.0)  # years
    assert data.y_names == ()
    assert (data.y.min(), data.y.max()) == (25.0, 346.0)


def test_diabetes_with_a_binary_private_variable():
    data = load("diabetes", private="sex")
    assert "sex" not in data.feature_names
    assert "age" in data.feature_names
    np.testing.assert_array_equal(np.bincount(data.s), [235, 207])
    tested = np.bincount(data.test.s) / len(data.test.s)
    np.testing.assert_allclose(tested, np.bincount(data.s) / 442, atol=0.01)
    with pytest.raises(ValueError, match="private must be one of age, sex for diabetes, got 'bmi'"):
        load("diabetes", private="bmi")
