"""The Dataset record: what it accepts, what it refuses, and what its hash covers."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

import privjax
from privjax import datasets
from privjax.datasets import Column, DataError, Dataset, LoadSpec, Split, load, reload

SPLIT = Split(np.arange(6), np.arange(6, 8), np.arange(8, 10))


def make(x=None, y=None, s=None, split=SPLIT, **options):
    x = np.random.default_rng(0).normal(3.0, 2.0, (10, 3)) if x is None else x
    y = np.arange(10) % 2 if y is None else y
    s = np.arange(10) % 3 if s is None else s
    given = {"y_names": "ab", "s_names": "abc", "feature_names": "uvw", **options}
    return Dataset.from_arrays(x, y, s, split=split, **given)


def test_rows_stay_in_their_units():
    x = np.random.default_rng(1).normal(5.0, 4.0, (10, 3)).astype(np.float32)
    data = make(x)
    assert privjax.Dataset is Dataset
    assert data.x.dtype == np.float32
    np.testing.assert_array_equal(data.x, x)
    assert "10, 3" in repr(data)
    assert "6 train" in repr(data)


def test_unused_rows_are_left_out_and_the_split_renumbered():
    split = ([1, 4, 9], [2], [7, 6])
    x = np.arange(30.0).reshape(10, 3)
    data = make(x, split=split)
    assert len(data) == 6
    np.testing.assert_array_equal(data.train.x, x[[1, 4, 9]])
    np.testing.assert_array_equal(data.test.x, x[[6, 7]])
    np.testing.assert_array_equal(data.validation.y, [0])
    masks = [np.isin(np.arange(10), rows) for rows in split]
    assert make(x, split=masks).content_hash == data.content_hash


def test_the_arrays_are_read_only_and_those_of_the_caller_are_not():
    x = np.ones((10, 3), np.float32) * np.arange(10)[:, None].astype(np.float32)
    y, test = np.zeros(10, np.int32), np.arange(8, 10)
    data = make(x, y, split=(np.arange(6), np.arange(6, 8), test))
    before = data.content_hash
    x[0], y[:], test[:] = 5.0, 1, 0
    assert dataclasses.replace(data).content_hash == before
    with pytest.raises(ValueError, match="read-only"):
        data.x[0] = 0.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.x = x


def test_the_hash_covers_every_array_name_and_part():
    data = make()
    assert data.content_hash == make().content_hash
    assert len(data.content_hash) == 64
    other = data.x.copy()
    other[3, 1] = np.nextafter(other[3, 1], np.float32(9.0))
    changed = [
        dataclasses.replace(data, x=other),
        dataclasses.replace(data, y=1 - data.y),
        dataclasses.replace(data, s=(data.s + 1) % 3),
        dataclasses.replace(data, y_names=("a", "c")),
        dataclasses.replace(data, split=Split(SPLIT.train, SPLIT.test, SPLIT.validation)),
    ]
    assert len({data.content_hash, *(c.content_hash for c in changed)}) == 6


ROWS = 60
X = np.random.default_rng(0).normal(size=(ROWS, 5))
Y = np.arange(ROWS) % 2
S = np.arange(ROWS) // 2 % 3


@pytest.mark.parametrize(
    ("s", "names"),
    [
        (np.array(["b", "c", "a"])[S], ("a", "b", "c")),
        (np.array(["b", "c", "a"])[S].tolist(), ("a", "b", "c")),
        (pd.Series(np.array(["b", "c", "a"])[S]), ("a", "b", "c")),
        (pd.Categorical(np.array(["b", "c", "a"])[S]), ("a", "b", "c")),
        (S == 1, ("False", "True")),
        (S * 10 + 5, ("5", "15", "25")),
        (S.astype(np.uint8), ("0", "1", "2")),
        (np.array(["007", "7", "08"])[S], ("007", "08", "7")),
    ],
)
def test_labels_of_any_type_are_numbered(s, names):
    data = Dataset.from_arrays(X, Y, s)
    assert data.s_names == names
    assert data.s.dtype == np.int32
    np.testing.assert_array_equal(np.array(names)[data.s], np.asarray(s).astype(str))


def test_named_and_continuous_labels():
    data = Dataset.from_arrays(X, np.array(["no", "yes"])[Y], S, y_names=("yes", "no"), s_names="abc")
    np.testing.assert_array_equal(data.y, 1 - Y)
    np.testing.assert_array_equal(data.s, S)
    real = Dataset.from_arrays(X, Y.astype(float), np.stack([S, S**2], axis=1) * 0.5)
    assert (real.y_names, real.s_names, real.s.dtype, real.s.shape) == ((), (), np.float32, (ROWS, 2))
    assert real.origin.protocol == "random"
    age = Dataset.from_arrays(X, Y, np.arange(ROWS), s_names=())
    np.testing.assert_array_equal(age.s, np.arange(ROWS))
    assert age.s.dtype == np.float32


def test_images_and_windows_keep_their_shape():
    images = np.random.default_rng(0).integers(0, 255, (ROWS, 4, 4, 2)).astype(np.uint8)
    data = Dataset.from_arrays(images, Y, S, name="faces")
    assert data.name == "faces"
    assert data.x.shape == (ROWS, 4, 4, 2)
    assert data.feature_names == ("x[0]", "x[1]")
    np.testing.assert_array_equal(data.x, images)
    windows = Dataset.from_arrays(np.zeros((ROWS, 32, 3)), Y, S, feature_names=("ax", "ay", "az"))
    assert windows.train.x.shape[1:] == (32, 3)


def test_the_split_keeps_every_private_class_and_the_seed_changes_it():
    sizes = [np.bincount(Dataset.from_arrays(X, Y, S, seed=seed).test.s) for seed in range(5)]
    np.testing.assert_array_equal(sizes, np.full((5, 3), 4))
    one, same, other = (Dataset.from_arrays(X, Y, S, seed=seed) for seed in (0, 0, 1))
    assert one.content_hash == same.content_hash != other.content_hash
    assert [len(part) for part in one.split] == [43, 5, 12]


def test_no_group_is_in_two_parts():
    home = np.random.default_rng(0).choice(["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"], ROWS)
    drawn = set()
    for seed in range(20):
        data = Dataset.from_arrays(X, Y, S, groups=home, seed=seed)
        parts = [set(home[rows]) for rows in data.split]
        assert sum(len(part) for part in parts) == 10
        assert set.union(*parts) == set(home)
        assert (len(parts[1]), len(parts[2])) == (1, 2)
        drawn.add(frozenset(parts[2]))
    assert len(drawn) > 5
    assert data.origin.protocol == "grouped"
    with pytest.raises(DataError, match="1 groups are too few to split"):
        Dataset.from_arrays(X, Y, S, groups=np.zeros(ROWS))
    with pytest.raises(DataError, match="groups has 3 rows where x has 60"):
        Dataset.from_arrays(X, Y, S, groups=[1, 2, 3])
    with pytest.raises(ValueError, match="groups and split are both given"):
        Dataset.from_arrays(X, Y, S, groups=home, split=SPLIT)


def test_a_frame_brings_its_names():
    frame = pd.DataFrame({"speed": X[:, 0], "on": Y == 1, "steps": np.arange(ROWS)})
    data = Dataset.from_arrays(frame, Y, S)
    assert data.feature_names == ("speed", "on", "steps")
    np.testing.assert_array_equal(data.x[:, 1], Y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.full(10, 2)}, "y is 2 in row 0, which is none of the 2 classes"),
        ({"s": np.full(10, -1)}, "s is -1 in row 0"),
        ({"s": np.arange(9)}, "s has 9 rows where x has 10"),
        ({"y": np.full(10, np.nan), "y_names": ()}, "y is not finite in row 0"),
        ({"y": list("aaaaaaaabc")}, "y is c in row 9, which is none of the 2"),
        (
            {"y": np.zeros(10), "y_names": None, "s": np.zeros(10, int), "s_names": None},
            "s has one class only",
        ),
        ({"s": np.arange(10), "s_names": None}, r"s has 10 classes in 10 rows: pass s_names=\(\)"),
        ({"s": ["a", None] * 5, "s_names": None}, "s holds None in row 1: make all labels"),
        ({"s": ["a", 1] * 5, "s_names": None}, "s holds 1 in row 1: make all labels text"),
        ({"x": np.full((10, 3), np.inf)}, "x is not finite in 32-bit floats in row 0: drop or impute"),
        ({"x": np.arange(30.0).reshape(10, 3) * 1e38}, "x is not finite in 32-bit floats in row 1"),
        ({"x": np.arange(30).reshape(10, 3) + 1_700_000_000}, r"x: column 'x\[0\]' runs from 17"),
        ({"split": Split(np.arange(0), np.arange(2), np.arange(3, 5))}, "training part is empty"),
    ],
)
def test_bad_rows_and_labels_are_refused(change, message):
    with pytest.raises(DataError, match=message):
        make(**change)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"split": (np.arange(6), np.arange(5, 8), [8, 9])}, ValueError, "split puts row 5 into two parts"),
        ({"split": (np.arange(6), [7], [8, 10])}, ValueError, "the test part must hold rows 0 to 9"),
        (
            {"split": (np.arange(6), [0.5], [8])},
            ValueError,
            "the validation part must be row numbers or a mask",
        ),
        ({"split": (np.arange(6), [7])}, ValueError, "must have a training, validation and test part, got 2"),
        ({"feature_names": "ab"}, ValueError, "feature_names has 2 names where the last axis of x has 3"),
        ({"x": np.arange(10.0)}, ValueError, r"x must have shape \[n, ...\] .*got \(10,\)"),
        ({"x": np.empty((0, 3))}, ValueError, r"x must have shape \[n, ...\]"),
        ({"x": [["a"] * 3] * 10}, TypeError, "x must hold real numbers, got <U1"),
        ({"x": [["a", 1, None]] * 10}, TypeError, "x must hold numbers only"),
        ({"y": np.zeros((10, 2), int)}, ValueError, r"y must have one class per row, shape \[n\]"),
        ({"y": np.arange(10) / 2}, ValueError, "y is 0.5 in row 1, which is none of the 2"),
        ({"y": list("ab" * 5), "y_names": ()}, ValueError, "y_names is empty, but y holds text"),
        ({"y": np.zeros(10, "datetime64[D]"), "y_names": None}, TypeError, "y must hold text or numbers"),
    ],
)
def test_bad_arguments_are_refused(change, kind, message):
    with pytest.raises(kind, match=message) as refused:
        make(**change)
    assert str(refused.value).endswith(".")


def test_columns_survive_json():
    columns = [
        Column("length", fill=3.0),
        Column("colour", ("blue", "red"), fill="red"),
        Column("on", boolean=True),
    ]
    for column in columns:
        assert Column.from_dict(json.loads(json.dumps(column.to_dict()))) == column
    assert columns[1].to_dict() == {"name": "colour", "classes": ["blue", "red"], "fill": "red"}
    assert columns[1].feature_names == ("colour=blue", "colour=red")
    with pytest.raises(ValueError, match="columns: each needs a name"):
        Column.from_dict({"name": 1})


def test_a_load_spec_loads_the_same_rows(tmp_path):
    path = tmp_path / "rows.csv"
    rows = [f"{i % 7},{'uv'[i % 2]},{i % 2},{'abc'[i % 3]}" for i in range(60)]
    path.write_text("\n".join(["length,colour,act,who", *rows]) + "\n")
    own = datasets.from_table(path, utility="act", private="who", seed=4, validation=0.0)
    for data in (load("simulated_sensors", rows=60, users=3, seed=3), own):
        assert data.origin.load_spec is not None
        spec = LoadSpec(*json.loads(json.dumps(data.origin.load_spec)))
        assert reload(spec).content_hash == data.content_hash
        assert reload(spec, seed=9).content_hash != data.content_hash
    with pytest.raises(ValueError, match="function must be one of load, from_table, got 'eval'"):
        reload(LoadSpec("eval", {}))
