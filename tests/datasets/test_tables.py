"""Tables of the user: kinds and encodings of columns, missing cells, splits and streams."""

import gzip
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from privjax.datasets import DataError, from_table, read_table, reload

ROWS = 240
ASK = {"utility": "activity", "private": "user"}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "height": rng.normal(170.0, 9.0, ROWS).round(3),
            "steps": rng.integers(0, 20_000, ROWS),
            "smoker": rng.random(ROWS) < 0.3,
            "town": rng.choice(["Aix", "Bonn", "Cork"], ROWS),
            "activity": rng.choice(["walk", "run", "sit"], ROWS),
            "user": rng.integers(1, 9, ROWS),
        }
    )


def small(**columns):
    """A feature a, a utility y and a private variable s, with changed or further columns."""
    base = {"a": np.arange(30) * 1.0, "y": np.arange(30) % 2, "s": np.arange(30) % 3}
    return pd.DataFrame({**base, **columns})


SMALL = {"utility": "y", "private": "s"}


def write(frame, path):
    if path.suffix in (".csv", ".gz"):
        frame.to_csv(path, index=False)
        return path
    if path.suffix == ".parquet":
        frame.to_parquet(path)
        return path
    columns = {n: c.to_numpy(None if c.dtype.kind in "bif" else "U") for n, c in frame.items()}
    if path.suffix == ".npz":
        np.savez_compressed(path, **columns)
        return path
    path.mkdir()
    for name, values in columns.items():
        np.save(path / f"{name}.npy", values)
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.npz", "folder"])
def test_every_format_gives_the_same_data(frame, tmp_path, name):
    path = write(frame, tmp_path / name)
    features = ["height", "steps", "smoker", "town"]
    expected = from_table(frame, features=features, seed=3, **ASK)
    data = from_table(path, features=features, seed=3, **ASK)
    assert data.content_hash == expected.content_hash
    assert data.y_names == ("run", "sit", "walk")
    assert data.s_names == tuple("12345678")
    assert data.origin.source == str(path)
    assert (data.origin.utility, data.origin.private) == ("activity", ("user",))


def test_a_file_is_read_once_for_all_seeds(frame, tmp_path):
    path = write(frame, tmp_path / "t.csv")
    table = read_table(path, missing="impute", **ASK)
    path.unlink()
    splits = [table.split(seed) for seed in range(5)]
    assert len({data.content_hash for data in splits}) == 5
    write(frame, path)
    for seed, data in enumerate(splits):
        assert data.content_hash == from_table(path, missing="impute", seed=seed, **ASK).content_hash
        assert data.origin.seed == seed
        assert reload(data.origin.load_spec).content_hash == data.content_hash
    # Without missing cells to impute, all splits share one array.
    table = read_table(frame, **ASK)
    assert np.shares_memory(table.split(0).x, table.split(1).x)
    assert table.split(0).origin.load_spec is None  # rows in memory cannot be loaded again


def test_the_split_keeps_every_private_class(frame):
    table = read_table(frame, **ASK)
    for seed in range(10):
        data = table.split(seed)
        assert len(data.split.test) == 48
        assert np.abs(np.bincount(data.test.s) - 0.2 * np.bincount(data.s)).max() < 1.0
    assert len(table.split(test=0.5, validation=0.0).train.x) == 120


def test_features_become_columns_of_x(frame):
    data = from_table(frame, **ASK)
    assert data.feature_names == ("height", "steps", "smoker", "town=Aix", "town=Bonn", "town=Cork")
    np.testing.assert_allclose(data.x[:, 0], frame["height"], rtol=1e-6)
    np.testing.assert_array_equal(data.x[:, 2], frame["smoker"])
    towns = np.array(["Aix", "Bonn", "Cork"])[data.x[:, 3:].argmax(axis=1)]
    np.testing.assert_array_equal(towns, frame["town"])
    np.testing.assert_array_equal(data.x[:, 3:].sum(axis=1), 1.0)
    np.testing.assert_array_equal(np.array(data.y_names)[data.y], frame["activity"])
    np.testing.assert_array_equal(np.array(data.s_names, int)[data.s], frame["user"])
    described = [column.to_dict() for column in data.columns]
    assert described[2:] == [
        {"name": "smoker", "boolean": True},
        {"name": "town", "classes": ["Aix", "Bonn", "Cork"]},
    ]
    small_units = from_table(small(farad=np.arange(30) * 1e-12), **SMALL)
    np.testing.assert_allclose(small_units.x[:, 1], np.arange(30) * 1e-12, rtol=1e-6)


def test_labels_of_every_kind(frame):
    continuous = from_table(frame, utility="steps", private="height", kinds={"steps": "continuous"})
    assert continuous.y_names == continuous.s_names == ()
    np.testing.assert_allclose(continuous.s, frame["height"], rtol=1e-6)
    boolean = from_table(frame, utility="activity", private="smoker")
    assert boolean.s_names == ("False", "True")
    np.testing.assert_array_equal(boolean.s, frame["smoker"])
    asked = from_table(frame, kinds={"user": "continuous"}, **ASK)
    assert asked.s_names == ()
    np.testing.assert_array_equal(asked.s, frame["user"])
    category = from_table(frame, utility="activity", private="smoker", kinds={"user": "category"})
    assert [n for n in category.feature_names if n.startswith("user=")][0] == "user=1"
    with pytest.raises(DataError, match=r"'steps' has \d+ classes in 240 rows: pass kinds="):
        from_table(frame, utility="activity", private="steps")


def test_several_private_columns(frame):
    data = from_table(frame, utility="activity", private=["smoker", "town"])
    assert len(data.s_names) == 6
    assert data.s_names[0] == "smoker=False, town=Aix"
    expected = [f"smoker={a}, town={b}" for a, b in zip(frame["smoker"], frame["town"], strict=True)]
    np.testing.assert_array_equal(np.array(data.s_names)[data.s], expected)
    both = from_table(frame, utility="activity", private=["height", "steps"], kinds={"steps": "continuous"})
    assert both.s.shape == (ROWS, 2)
    with pytest.raises(DataError, match="partly classes and partly continuous"):
        from_table(frame, utility="activity", private=["height", "town"])


def test_pandas_types(frame):
    typed = frame.astype({"town": "category", "smoker": "boolean", "steps": "Int64"})
    assert from_table(frame, **ASK).content_hash == from_table(typed, **ASK).content_hash
    exact = small(a=[Decimal(i) / 4 for i in range(30)])
    np.testing.assert_allclose(from_table(exact, **SMALL).x[:, 0], np.arange(30) / 4)
    numbered = pd.DataFrame(np.stack([np.arange(12) ** 2, np.arange(12) % 2, np.arange(12) % 3], axis=1))
    data = from_table(numbered, utility=1, private=2)
    assert (data.feature_names, data.s_names) == (("0",), ("0", "1", "2"))
    assert from_table(small(b=0.5), features="a", **SMALL).feature_names == ("a",)


@pytest.mark.parametrize("suffix", ["", ".parquet"])
def test_whole_numbers_marked_as_categories_are_classes(tmp_path, suffix):
    frame = small(job=pd.Categorical((np.arange(30) % 3 + 1) * 10))
    source = write(frame, tmp_path / f"own{suffix}") if suffix else frame
    assert from_table(source, **SMALL).feature_names == ("a", "job=10", "job=20", "job=30")
    assert from_table(source, kinds={"job": "continuous"}, **SMALL).feature_names == ("a", "job")


def test_a_matrix_is_one_column_per_entry(tmp_path):
    rng = np.random.default_rng(0)
    s = rng.integers(0, 4, 60)
    x = rng.normal(size=(60, 5))
    np.savez(tmp_path / "a.npz", x=x, y=s % 2, s=s, other=np.zeros(7))
    data = from_table(tmp_path / "a.npz", features="x", **SMALL)
    np.testing.assert_allclose(data.x, x.astype(np.float32))
    assert data.feature_names == ("x[0]", "x[1]", "x[2]", "x[3]", "x[4]")
    with pytest.raises(DataError, match="the arrays differ in length: .*'other': 7"):
        from_table(tmp_path / "a.npz", **SMALL)
    x[:, 3] = s
    np.savez(tmp_path / "a.npz", x=x, y=s % 2, s=s)
    with pytest.raises(DataError, match=r"'x\[3\]' is a copy of the private column 's'"):
        from_table(tmp_path / "a.npz", **SMALL)


def test_ids_with_leading_zeros_are_names(tmp_path):
    ids = ["007", "7", "08"]
    path = write(small(s=[ids[i % 3] for i in range(30)]), tmp_path / "own.csv")
    assert from_table(path, **SMALL).s_names == ("007", "08", "7")
    late = write(small(s=["7", "8"] * 10 + ["007"] * 10), tmp_path / "late.csv")
    assert from_table(late, **SMALL).s_names == ("007", "7", "8")
    # A feature is a quantity, also with leading zeros.
    path = write(small(b=[f"0{i}" for i in range(30)]), tmp_path / "own.csv")
    assert from_table(path, **SMALL).feature_names == ("a", "b")


def test_large_identifiers_stay_distinct(tmp_path):
    base = 2**60
    table = small(s=[base + i % 3 for i in range(30)])
    for source in (table, write(table, tmp_path / "own.csv")):
        assert from_table(source, **SMALL).s_names == tuple(str(base + i) for i in range(3))
    users = [str(12345678901234567890 + 10_000 * (i % 2) + i % 3) for i in range(30)]
    path = write(small(s=users), tmp_path / "own.csv")
    with pytest.raises(DataError, match=r"line 2: column 's' holds .*, too long to be distinct: .*kinds="):
        from_table(path, **SMALL)
    assert from_table(path, kinds={"s": "category"}, **SMALL).s_names == tuple(sorted(set(users)))
    huge = pd.Series([2**70 + i % 3 for i in range(30)], dtype=object)
    for wide in (huge, pd.Series(np.arange(30, dtype=np.uint64) % 3 + np.uint64(2**63))):
        with pytest.raises(DataError, match="column 's' holds numbers beyond 64-bit integers"):
            from_table(small(s=wide), **SMALL)


def test_numbers_that_32_bit_floats_merge_are_refused():
    seconds = 1_700_000_000 + np.arange(30)
    private = {"utility": "y", "private": "t", "kinds": {"t": "continuous"}}
    for ask in (private, SMALL):
        with pytest.raises(DataError, match="column 't' runs from 1700000000.0 to .*: subtract"):
            from_table(small(t=seconds), **ask)
        data = from_table(small(t=2 * (seconds - seconds[0])), **ask)
        assert len(np.unique(data.s if ask is private else data.x[:, 1])) == 30
    # Years, the widest range, and constants of any size keep their digits.
    wide = np.where(np.arange(30) % 2, 3e38, -3e38)
    assert from_table(small(wide=wide, year=2000 + np.arange(30), k=2**60), **SMALL).x.shape == (30, 4)


def test_delimiters_quotes_and_line_ends(tmp_path):
    path = tmp_path / "own.csv"
    good = "".join(f"{i}.5,{i},{'uv'[i % 2]},{i % 3}\n" for i in range(12))
    for mark in ",;\t|":
        path.write_text(("a,b,y,s\n" + good).replace(",", mark))
        data = from_table(path, delimiter=mark if mark == "|" else None, **SMALL)
        assert (data.feature_names, data.x.shape, data.y_names) == (("a", "b"), (12, 2), ("u", "v"))
    text = '\ufeff"a","steps\na day",y,s\r\n\r\n' + good.replace("u", '"u, or\nnot"').replace("\n", "\r\n")
    path.write_bytes(gzip.compress(text.encode()))
    data = from_table(path.rename(tmp_path / "own.csv.gz"), **SMALL)
    assert (len(data), data.feature_names) == (12, ("a", "steps\na day"))
    assert data.y_names == ("u, or\r\nnot", "v")


def test_numbers_with_spaces_and_signs(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("a,b,y,s\n" + "".join(f" {i}, +{i}.5e0 , {'uv'[i % 2]} ,{i % 3}\n" for i in range(12)))
    data = from_table(path, **SMALL)
    np.testing.assert_array_equal(data.x, np.stack([np.arange(12), np.arange(12) + 0.5], axis=1))
    assert data.y_names == ("u", "v")


def test_a_name_with_an_underscore_is_text(tmp_path):
    months = "".join(f"2020_0{i % 3},{i},{'uv'[i % 2]},{i % 3}\n" for i in range(12))
    path = tmp_path / "t.csv"
    path.write_text("month,b,y,s\n" + months)
    assert from_table(path, **SMALL).feature_names == ("month=2020_00", "month=2020_01", "month=2020_02", "b")


def test_private_columns_and_their_copies_are_no_features(frame, tmp_path):
    with pytest.raises(DataError, match="private column 'user' is among them"):
        from_table(frame, features=["height", "user"], **ASK)
    allowed = from_table(frame, features=["height", "user"], allow_private_features=True, **ASK)
    assert allowed.feature_names == ("height", *(f"user={i}" for i in range(1, 9)))
    copied = frame.assign(subject=frame["user"])
    with pytest.raises(DataError, match="'subject' is a copy of the private column 'user'"):
        from_table(copied, **ASK)
    assert from_table(copied, allow_private_features=True, **ASK).x.shape == (ROWS, 7)
    path = write(frame.assign(home=frame["town"]), tmp_path / "t.csv")
    with pytest.raises(DataError, match="'home' is a copy of the private column 'town'"):
        from_table(path, utility="activity", private="town")
    almost = copied.assign(subject=np.r_[[99], frame["user"].to_numpy()[1:]])
    assert "subject" in from_table(almost, **ASK).feature_names


@pytest.mark.parametrize("spelt", [str, lambda i: f"00{i}", lambda i: f"{i}.0", float])
def test_a_copy_of_another_type_is_a_copy(tmp_path, spelt):
    users = np.arange(30) % 3
    copied = small(s=users, b=[spelt(i) for i in users])
    with pytest.raises(DataError, match="the feature 'b' is a copy of the private column 's'"):
        from_table(copied, **SMALL)
    if spelt is str:
        with pytest.raises(DataError, match="the feature 'b' is a copy of the private column 's'"):
            from_table(write(copied, tmp_path / "t.csv"), kinds={"s": "category"}, **SMALL)
    copied["b"] = [spelt(9 if i == 4 else user) for i, user in enumerate(users)]  # one row differs
    assert from_table(copied, **SMALL).s_names == ("0", "1", "2")


def test_a_copy_with_missing_cells_is_a_copy():
    copy = small()["s"].astype(float)
    copy[[0, 7]] = np.nan
    for missing in ("drop", "impute"):
        with pytest.raises(DataError, match="'c' is a copy of the private column 's'"):
            from_table(small(c=copy), missing=missing, **SMALL)
    few = np.where(np.arange(30) < 4, copy, np.nan)  # three cells that agree are chance
    assert "c" in from_table(small(c=few), missing="impute", **SMALL).feature_names


def test_copies_of_large_identifiers():
    users = 2**60 + 3 * (np.arange(30) % 3)
    rounded = users.astype(float)  # as pandas stores them beside a missing cell
    rounded[0] = np.nan
    with pytest.raises(DataError, match="'c' is a copy of the private column 's'"):
        from_table(small(s=users, c=rounded), missing="drop", **SMALL)
    # Texts that differ are no copies, even where 64-bit floats merge them.
    other = from_table(small(s=users.astype(str), c=(users + 1).astype(str)), **SMALL)
    assert len(other.feature_names) == 4


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "frame"])
def test_missing_cells_are_counted_dropped_or_imputed(frame, tmp_path, name):
    holes = frame.copy()
    holes.loc[[3, 5, 8], "height"] = np.nan
    holes.loc[[4], "town"] = None
    source = holes if name == "frame" else write(holes, tmp_path / name)
    where = {"t.csv": "line 5", "t.parquet": "row 3", "frame": "row 3"}[name]
    message = rf"'height': 3, first at .*{where}; 'town': 1, first .*'drop' or missing='impute'"
    with pytest.raises(DataError, match=message):
        from_table(source, **ASK)
    dropped = from_table(source, missing="drop", **ASK)
    assert (len(dropped), dropped.origin.rows_dropped) == (ROWS - 4, 4)
    np.testing.assert_allclose(dropped.x[:, 0], holes.dropna()["height"], rtol=1e-6)
    table = read_table(source, missing="impute", **ASK)
    for seed in (0, 1):
        filled = table.split(seed)
        assert len(filled) == ROWS
        train = holes.iloc[filled.split.train]  # the fills are those of the training rows
        np.testing.assert_allclose(filled.x[3, 0], train["height"].mean(), rtol=1e-5)
        town = train["town"].mode()[0]
        np.testing.assert_array_equal(filled.x[4, 3:], np.array(["Aix", "Bonn", "Cork"]) == town)
        assert filled.columns[0].fill == pytest.approx(train["height"].mean())
        assert filled.columns[3].fill == town


def test_imputation_ignores_the_test_rows(frame):
    holes = frame.copy()
    holes.loc[0, "height"] = np.nan
    before = from_table(holes, missing="impute", **ASK)
    row = before.split.test[before.split.test != 0][0]
    holes.loc[row, "height"] = 1e6
    assert from_table(holes, missing="impute", **ASK).x[0, 0] == before.x[0, 0]


@pytest.mark.parametrize("column", ["user", "activity"])
def test_a_missing_label_is_never_imputed(frame, column):
    holes = frame.astype({"user": "Int64"})
    holes.loc[[7], column] = None
    for policy in ("refuse", "impute"):
        with pytest.raises(DataError, match=rf"'{column}': 1, first at .*row 7\): pass missing='drop'\.$"):
            from_table(holes, missing=policy, **ASK)
    for found in (holes, holes.astype({"user": float})):  # whole numbers, also as floats, are classes
        data = from_table(found, missing="drop", **ASK)
        assert (len(data), data.s_names) == (ROWS - 1, tuple("12345678"))


def test_classes_of_dropped_rows_do_not_count():
    hole = np.where(np.arange(30) % 3 == 2, np.nan, 1.0 * np.arange(30))
    data = from_table(small(a=hole), missing="drop", **SMALL)
    assert data.s_names == ("0", "1")
    np.testing.assert_array_equal(np.bincount(data.s), [10, 10])
    frame = small(t=np.arange(30) // 2 % 2)
    frame.loc[(frame["s"] == 2) & (frame["t"] == 1), "a"] = np.nan
    data = from_table(frame, utility="y", private=["s", "t"], missing="drop")
    assert (np.bincount(data.s) > 0).sum() == len(data.s_names) == 5


def test_a_wide_table_is_opened_quickly():
    import time

    names = [f"c{i}" for i in range(3000)]
    frame = pd.DataFrame(np.zeros((4, 3000)), columns=names).assign(y=[0, 1, 0, 1], s=[0, 0, 1, 1])
    start = time.process_time()
    assert from_table(frame, features=names, **SMALL).x.shape == (4, 3000)
    assert time.process_time() - start < 3.0
