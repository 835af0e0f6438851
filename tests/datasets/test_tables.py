"""The user's own tables: every format gives the same, and kinds are what they look like."""

import numpy as np
import pandas as pd
import pytest

from privjax.datasets import DataError, from_table, stream_table

ROWS = 240


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


def write(frame, path):
    if path.suffix in (".csv", ".gz"):
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        columns = {name: np.asarray(frame[name]) for name in frame}
        for name in ("town", "activity"):
            columns[name] = frame[name].to_numpy().astype(str)
        if path.suffix == ".npz":
            np.savez_compressed(path, **columns)
        else:
            path.mkdir()
            for name, values in columns.items():
                np.save(path / f"{name}.npy", values)
    return path


ASK = {"utility": "activity", "private": "user", "seed": 3}


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.npz", "folder"])
def test_every_format_gives_the_same_rows(frame, tmp_path, name):
    path = write(frame, tmp_path / name)
    features = ["height", "steps", "smoker", "town"]
    expected = from_table(frame, features=features, **ASK)
    data = from_table(path, features=features, **ASK)
    np.testing.assert_allclose(data.x, expected.x, rtol=1e-6)
    np.testing.assert_array_equal(data.y, expected.y)
    np.testing.assert_array_equal(data.s, expected.s)
    assert data.y_names == expected.y_names == ("run", "sit", "walk")
    assert data.s_names == expected.s_names == tuple("12345678")
    assert data.feature_names == expected.feature_names
    for one, other in zip(data.split, expected.split, strict=True):
        np.testing.assert_array_equal(one, other)
    assert data.origin.source == str(path)


def test_what_becomes_of_the_columns(frame):
    data = from_table(frame, **ASK)
    assert data.feature_names == (*("height", "steps", "smoker", "town=Aix", "town=Bonn", "town=Cork"),)
    np.testing.assert_allclose(data.x[:, 0], frame["height"], rtol=1e-6)
    np.testing.assert_array_equal(data.x[:, 2], frame["smoker"])
    towns = np.array(["Aix", "Bonn", "Cork"])[data.x[:, 3:].argmax(axis=1)]
    np.testing.assert_array_equal(towns, frame["town"])
    np.testing.assert_array_equal(data.x[:, 3:].sum(axis=1), 1.0)
    np.testing.assert_array_equal(np.array(data.y_names)[data.y], frame["activity"])
    np.testing.assert_array_equal(np.array(data.s_names, int)[data.s], frame["user"])


def test_the_split_keeps_every_private_class(frame):
    for seed in range(10):
        data = from_table(frame, utility="activity", private="user", seed=seed)
        assert len(data.split.test) == 48
        assert np.abs(np.bincount(data.test.s) - 0.2 * np.bincount(data.s)).max() < 1.0


def test_labels_of_every_kind(frame):
    continuous = from_table(frame, utility="steps", private="height", kinds={"steps": "continuous"})
    assert continuous.y_names == continuous.s_names == ()
    np.testing.assert_allclose(continuous.s, frame["height"], rtol=1e-6)
    boolean = from_table(frame, utility="activity", private="smoker")
    assert boolean.s_names == ("False", "True")
    np.testing.assert_array_equal(boolean.s, frame["smoker"])
    asked = from_table(frame, utility="activity", private="user", kinds={"user": "continuous"})
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
    names = np.array(data.s_names)[data.s]
    expected = [f"smoker={a}, town={b}" for a, b in zip(frame["smoker"], frame["town"])]  # noqa: B905
    np.testing.assert_array_equal(names, expected)
    both = from_table(frame, utility="activity", private=["height", "steps"], kinds={"steps": "continuous"})
    assert both.s.shape == (ROWS, 2)
    with pytest.raises(DataError, match="partly classes and partly continuous"):
        from_table(frame, utility="activity", private=["height", "town"])


def test_a_private_column_among_the_features_is_refused(frame, tmp_path):
    with pytest.raises(DataError, match="private column 'user' is among them"):
        from_table(frame, features=["height", "user"], **ASK)
    allowed = from_table(frame, features=["height", "user"], allow_private_features=True, **ASK)
    assert allowed.feature_names == ("height", *(f"user={i}" for i in range(1, 9)))
    copied = frame.assign(subject=frame["user"])
    with pytest.raises(DataError, match="'subject' is a copy of the private column 'user'"):
        from_table(copied, **ASK)
    path = write(frame.assign(home=frame["town"]), tmp_path / "t.csv")
    with pytest.raises(DataError, match="'home' is a copy of the private column 'town'"):
        from_table(path, utility="activity", private="town")
    with pytest.raises(DataError, match="'home' is a copy of the private column 'town'"):
        stream_table(path, utility="activity", private="town", block_rows=10)
    almost = copied.assign(subject=np.r_[[99], frame["user"].to_numpy()[1:]])
    assert "subject" in from_table(almost, **ASK).feature_names


def test_a_copy_inside_a_matrix_is_found(tmp_path):
    rng = np.random.default_rng(0)
    s = rng.integers(0, 4, 60)
    x = rng.normal(size=(60, 5))
    np.savez(tmp_path / "a.npz", x=x, y=s % 2, s=s)
    ask = {"utility": "y", "private": "s"}
    data = from_table(tmp_path / "a.npz", **ask)
    np.testing.assert_allclose(data.x, x.astype(np.float32))
    assert data.feature_names == ("x[0]", "x[1]", "x[2]", "x[3]", "x[4]")
    x[:, 3] = s
    np.savez(tmp_path / "a.npz", x=x, y=s % 2, s=s)
    with pytest.raises(DataError, match=r"'x\[3\]' is a copy of the private column 's'"):
        from_table(tmp_path / "a.npz", **ask)


def test_arrays_of_other_lengths_are_refused_unless_unused(tmp_path, shared_data):
    np.savez(tmp_path / "a.npz", x=np.zeros((9, 2)), y=np.arange(9) % 2, names=np.array(["u"]))
    with pytest.raises(DataError, match="the arrays differ in length"):
        from_table(tmp_path / "a.npz", utility="y", private="x[0]")
    stream = stream_table(
        shared_data / "hapt_frames.npz",
        utility="activity",
        private="subject",
        features=["x"],
        block_rows=100_000,
    )
    assert stream.schema.rows == 815_614
    assert (len(stream.schema.y_names), len(stream.schema.s_names)) == (12, 30)
    first = next(iter(stream))
    assert first.x.shape == (100_000, 6)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "frame"])
def test_missing_values_are_counted_and_named(frame, tmp_path, name):
    holes = frame.copy()
    holes.loc[[3, 5, 8], "height"] = np.nan
    holes.loc[[4], "town"] = None
    source = holes if name == "frame" else write(holes, tmp_path / name)
    where = {"t.csv": "line 5", "t.parquet": "row 3", "frame": "row 3"}[name]
    message = rf"'height': 3, first at .*{where}; 'town': 1, first .*'drop' or missing='impute'"
    with pytest.raises(DataError, match=message):
        from_table(source, **ASK)
    dropped = from_table(source, missing="drop", **ASK)
    assert len(dropped) == ROWS - 4
    assert dropped.origin.rows_dropped == 4
    kept = holes.dropna()
    np.testing.assert_allclose(dropped.x[:, 0], kept["height"], rtol=1e-6)
    filled = from_table(source, missing="impute", **ASK)
    assert len(filled) == ROWS
    # By the training rows alone.
    train = holes.iloc[filled.split.train]
    np.testing.assert_allclose(filled.x[3, 0], train["height"].mean(), rtol=1e-5)
    town = sorted(frame["town"].unique()).index(train["town"].mode()[0])
    np.testing.assert_array_equal(filled.x[4, 3:], np.arange(3) == town)


@pytest.mark.parametrize("column", ["user", "activity"])
def test_a_missing_label_is_never_made_up(frame, column):
    holes = frame.astype({"user": "Int64"})
    holes.loc[[7], column] = None
    for policy in ("refuse", "impute"):
        with pytest.raises(DataError, match=rf"'{column}': 1, first at the DataFrame, row 7"):
            from_table(holes, missing=policy, **ASK)
    data = from_table(holes, missing="drop", **ASK)
    assert len(data) == ROWS - 1
    assert data.s_names == tuple("12345678")


def test_missing_whole_numbers_that_became_floats_are_still_classes(frame):
    holes = frame.astype({"user": float})
    holes.loc[[7], "user"] = np.nan
    assert from_table(holes, missing="drop", **ASK).s_names == tuple("12345678")


def test_imputing_does_not_look_at_the_test_rows(frame):
    holes = frame.copy()
    holes.loc[0, "height"] = np.nan
    before = from_table(holes, missing="impute", **ASK)
    test_row = before.split.test[before.split.test != 0][0]
    holes.loc[test_row, "height"] = 1e6
    after = from_table(holes, missing="impute", **ASK)
    assert before.x[0, 0] == after.x[0, 0]


def test_pandas_types(frame):
    typed = frame.astype({"town": "category", "smoker": "boolean", "steps": "Int64"})
    plain, again = (from_table(f, **ASK) for f in (frame, typed))
    np.testing.assert_array_equal(plain.x, again.x)
    assert plain.content_hash == again.content_hash
    with pytest.raises(DataError, match="column 'when' is of type timestamp"):
        from_table(frame.assign(when=pd.Timestamp("2020-01-01")), **ASK)
    with pytest.raises(DataError, match="column 'odd' mixes types .*: make it one type"):
        from_table(frame.assign(odd=["a", 1] * (ROWS // 2)), **ASK)


def test_large_identifiers_stay_apart(tmp_path):
    base = 2**60
    users = [base + i % 3 for i in range(30)]
    table = pd.DataFrame({"a": np.arange(30.0), "y": np.arange(30) % 2, "user": users})
    for source in (table, write_csv(tmp_path, table)):
        data = from_table(source, utility="y", private="user")
        assert data.s_names == tuple(str(base + i) for i in range(3))


def write_csv(folder, table):
    table.to_csv(folder / "own.csv", index=False)
    return folder / "own.csv"


def test_a_larger_file_streams_in_blocks(frame, tmp_path):
    whole = from_table(frame, **ASK)
    for name in ("t.csv", "t.parquet"):
        stream = stream_table(
            write(frame, tmp_path / name), utility="activity", private="user", block_rows=50
        )
        assert [len(part.x) for part in stream] == [50, 50, 50, 50, 40]
        again = list(stream)  # a stream can be read more than once
        np.testing.assert_allclose(np.concatenate([p.x for p in again]), whole.x, rtol=1e-6)
        np.testing.assert_array_equal(np.concatenate([p.s for p in again]), whole.s)
        assert stream.schema.feature_names == whole.feature_names
        assert stream.schema.rows == ROWS


def test_a_stream_imputes_by_the_means_of_its_file(frame):
    holes = frame.copy()
    holes.loc[[3, 100], "height"] = np.nan
    stream = stream_table(holes, utility="activity", private="user", missing="impute", block_rows=64)
    x = np.concatenate([part.x for part in stream])
    np.testing.assert_allclose(x[[3, 100], 0], holes["height"].mean(), rtol=1e-6)
    dropped = stream_table(holes, utility="activity", private="user", missing="drop")
    assert sum(len(part.x) for part in dropped) == ROWS - 2


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_memory_stays_with_the_block(tmp_path, kind):
    import tracemalloc

    rows, width = 60_000, 40
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, width)).astype(np.float32)
    if kind == "npz":
        path = tmp_path / "large.npz"
        np.savez_compressed(path, x=x, y=np.arange(rows) % 2, s=np.arange(rows) % 5)
    else:
        path = tmp_path / "large.csv"
        line = ",".join(f"{v:.5f}" for v in x[0])
        with path.open("w") as handle:
            handle.write(",".join(f"c{i}" for i in range(width)) + ",y,s\n")
            handle.writelines(f"{line},{i % 2},{i % 5}\n" for i in range(10_000))
        rows = 10_000
    stream = stream_table(path, utility="y", private="s", block_rows=1000)
    tracemalloc.start()
    total = sum(len(part.x) for part in stream)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == rows
    # A block of 1000 rows of 42 short words takes some 4 MB; the table takes ten times as much.
    assert peak < 8_000_000
