"""The Dataset record: what it refuses, what its hash sees, whose rows fit the scaler."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from privjax import datasets
from privjax.datasets import DataError, Split, load
from privjax.datasets.dataset import assemble, fit_scaler

SPLIT = Split(np.arange(6), np.arange(6, 8), np.arange(8, 10))


def make(x=None, y=None, s=None, split=SPLIT, scale="standard", **names):
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 2.0, (10, 3)) if x is None else x
    y = np.arange(10) % 2 if y is None else y
    s = np.arange(10) % 3 if s is None else s
    given = {"y_names": "ab", "s_names": "abc", "feature_names": "uvw", **names}
    return assemble(x, y, s, split, scale=scale, provenance={"name": "made"}, **given)


def test_training_rows_alone_fit_the_scaler():
    x = np.random.default_rng(1).normal(5.0, 4.0, (10, 3))
    data = make(x)
    np.testing.assert_allclose(data.train.x.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(data.train.x.std(axis=0), 1.0, atol=1e-6)
    # Two-sided: other test rows change nothing in training, other training rows do.
    shifted = x.copy()
    shifted[8:] += 100.0
    np.testing.assert_array_equal(make(shifted).train.x, data.train.x)
    assert abs(make(shifted).test.x.mean()) > 10.0
    shifted = x.copy()
    shifted[0] += 100.0
    assert not np.allclose(make(shifted).test.x, data.test.x)


def test_minmax_and_none_and_back():
    x = np.random.default_rng(2).uniform(-3.0, 9.0, (10, 3)).astype(np.float32)
    data = make(x, scale="minmax")
    np.testing.assert_allclose(data.train.x.min(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(data.train.x.max(axis=0), 1.0, atol=1e-6)
    np.testing.assert_allclose(data.scaler.invert(data.x), x, atol=1e-5)
    np.testing.assert_array_equal(make(x, scale="none").x, x)
    with pytest.raises(ValueError, match="scale must be"):
        make(x, scale="robust")


def test_images_are_scaled_by_channel():
    images = np.random.default_rng(3).uniform(0.0, 1.0, (10, 4, 4, 2))
    data = make(images, feature_names="gb")
    np.testing.assert_allclose(data.train.x.mean(axis=(0, 1, 2)), 0.0, atol=1e-6)
    assert data.scaler.shift.shape == (2,)


def test_a_constant_column_becomes_zero():
    x = np.random.default_rng(4).normal(size=(10, 3))
    x[:, 1] = 1e6 + 0.1
    data = make(x)
    np.testing.assert_allclose(data.x[:, 1], 0.0, atol=0.1)
    assert np.isfinite(data.x).all()


def test_the_scaler_sums_in_double():
    x = np.full((200_000, 1), 1000.1, np.float32)
    x[::2] += 0.5
    scaler = fit_scaler(x, method="standard")
    assert scaler.shift[0] == pytest.approx(x.mean(dtype=np.float64), rel=1e-7)
    assert scaler.spread[0] == pytest.approx(x.std(dtype=np.float64), rel=1e-5)


def test_unused_rows_are_left_out_and_the_split_renumbered():
    split = Split(np.array([1, 4, 9]), np.array([2]), np.array([6, 7]))
    x = np.arange(30.0).reshape(10, 3)
    data = make(x, split=split, scale="none")
    assert len(data) == 6
    np.testing.assert_array_equal(data.train.x, x[[1, 4, 9]])
    np.testing.assert_array_equal(data.test.x, x[[6, 7]])
    np.testing.assert_array_equal(data.validation.y, [0])


def test_arrays_cannot_be_written_and_the_input_is_not():
    x = np.ones((10, 3), np.float32) * np.arange(10)[:, None].astype(np.float32)
    before = x.copy()
    data = make(x)
    np.testing.assert_array_equal(x, before)
    x[0] = 5.0  # the caller's array is still its own
    y = np.zeros(10, np.int32)
    labelled = make(y=y)
    y[:] = 1
    assert not labelled.y.any()
    with pytest.raises(ValueError, match="read-only"):
        data.x[0] = 0.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.x = x


def test_the_hash_sees_every_array_name_and_split():
    data = make()
    assert data.content_hash == make().content_hash
    assert len(data.content_hash) == 64
    other = make().x.copy()
    other[3, 1] = np.nextafter(other[3, 1], np.float32(9.0))
    changed = [
        dataclasses.replace(make(), x=other),
        dataclasses.replace(make(), y=1 - data.y),
        dataclasses.replace(make(), s=(data.s + 1) % 3),
        dataclasses.replace(make(), y_names=("a", "c")),
        dataclasses.replace(make(), split=Split(SPLIT.train, SPLIT.test, SPLIT.validation)),
    ]
    assert len({data.content_hash, *(c.content_hash for c in changed)}) == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.full(10, 2)}, "y is 2 in row 0, outside the 2 classes"),
        ({"s": np.full(10, -1)}, "s is -1 in row 0"),
        ({"s": np.arange(9)}, "s has 9 rows where x has 10"),
        ({"y": np.full(10, np.nan), "y_names": ()}, "y is not finite in row 0"),
        ({"x": np.full((10, 3), np.inf)}, "not finite"),
        ({"split": Split(np.arange(0), np.arange(2), np.arange(3, 5))}, "training part is empty"),
    ],
)
def test_bad_labels_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        make(**change)


def test_a_row_in_two_parts_is_refused():
    with pytest.raises(ValueError, match="one row into two parts"):
        make(split=Split(np.arange(6), np.arange(5, 8), np.arange(8, 10)))


def test_continuous_labels_have_no_names():
    data = make(s=np.linspace(0, 1, 10), s_names=())
    assert data.s.dtype == np.float32
    assert data.y.dtype == np.int32
    assert load("digits").name == "digits"


def test_made_again_from_what_it_says_of_itself(tmp_path):
    options = {"name": "simulated_sensors", "rows": np.int64(60), "users": 3, "scale": "none"}
    path = tmp_path / "rows.csv"
    rows = [f"{i % 7},{'uv'[i % 2]},{i % 2},{'abc'[i % 3]}" for i in range(60)]
    path.write_text("\n".join(["length,colour,act,who", *rows]) + "\n")
    own = datasets.from_table(path, utility="act", private="who", seed=4, validation=0.0, scale="minmax")
    for data in (datasets.load(**options, seed=3), own):
        again = json.loads(json.dumps(data.provenance["again"], default=lambda number: number.item()))
        assert datasets.load_again(again).content_hash == data.content_hash
        assert datasets.load_again(again, seed=9).content_hash != data.content_hash
    with pytest.raises(ValueError, match="again must name one of load, from_table, got 'eval'"):
        datasets.load_again({"function": "eval", "seed": 0, "arguments": {}})


def test_columns_say_how_other_rows_are_encoded():
    frame = pd.DataFrame(
        {
            "length": [1.0, None, 3.0, 5.0] * 10,
            "colour": ["red", "blue", None, "red"] * 10,
            "fast": [True, False, True, True] * 10,
            "y": [0, 1] * 20,
            "s": list("abcd") * 10,
        }
    )
    data = datasets.from_table(frame, utility="y", private="s", missing="impute", validation=0.0)
    assert data.provenance["again"] is None  # rows in memory cannot be read again
    length, colour, fast = data.provenance["columns"]
    assert length == {"name": "length", "fill": pytest.approx(3.0)}
    assert colour == {"name": "colour", "classes": ["blue", "red"], "fill": "red"}
    assert fast["boolean"] is True
