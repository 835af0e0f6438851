"""Tables that look sound and would give wrong labels or empty columns without a word."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from privjax.datasets import DataError, from_table, stream_table

ROWS = 30
ASK = {"utility": "y", "private": "s"}


def made(**columns):
    base = {"a": np.arange(ROWS) * 1.0, "y": np.arange(ROWS) % 2, "s": np.arange(ROWS) % 3}
    return pd.DataFrame({**base, **columns})


def as_csv(frame, folder):
    frame.to_csv(folder / "own.csv", index=False)
    return folder / "own.csv"


def test_whole_numbers_too_long_for_any_type_are_not_merged(tmp_path):
    users = [str(12345678901234567890 + 10_000 * (i % 2) + i % 3) for i in range(ROWS)]
    path = as_csv(made(s=users), tmp_path)
    with pytest.raises(DataError, match=r"line 2: column 's' holds whole numbers too long .*kinds="):
        from_table(path, **ASK)
    data = from_table(path, kinds={"s": "category"}, **ASK)
    assert data.s_names == tuple(sorted(set(users)))
    huge = pd.Series([2**70 + i % 3 for i in range(ROWS)], dtype=object)
    with pytest.raises(DataError, match="column 's' holds numbers beyond 64-bit integers"):
        from_table(made(s=huge), **ASK)


def test_a_class_of_dropped_rows_alone_is_none():
    hole = np.where(np.arange(ROWS) % 3 == 2, np.nan, 1.0 * np.arange(ROWS))
    data = from_table(made(a=hole), missing="drop", **ASK)
    assert data.s_names == ("0", "1")
    np.testing.assert_array_equal(np.bincount(data.s), [10, 10])
    rest = np.where(np.arange(ROWS) % 3 == 0, 1.0 * np.arange(ROWS), np.nan)
    with pytest.raises(DataError, match="column 's' has one class only, 0"):
        from_table(made(a=rest), missing="drop", **ASK)


def test_nothing_left_is_said_with_the_column_to_leave_out():
    frame = made(b=np.nan)
    frame.loc[0, "a"] = np.nan
    with pytest.raises(DataError, match="every row has a missing value, most often 'b': leave it"):
        from_table(frame, missing="drop", **ASK)


def test_several_private_columns_forget_what_is_dropped():
    frame = made(t=np.arange(ROWS) // 2 % 2)
    frame.loc[(frame["s"] == 2) & (frame["t"] == 1), "a"] = np.nan
    data = from_table(frame, utility="y", private=["s", "t"], missing="drop")
    assert len(data.s_names) == 5
    assert (np.bincount(data.s, minlength=5) > 0).all()


def test_a_copy_with_holes_is_still_a_copy():
    copy = made()["s"].astype(float)
    copy[[0, 7]] = np.nan
    for missing in ("drop", "impute"):
        with pytest.raises(DataError, match="'c' is a copy of the private column 's'"):
            from_table(made(c=copy), missing=missing, **ASK)
    few = np.where(np.arange(ROWS) < 4, copy, np.nan)  # three cells that agree are chance
    assert "c" in from_table(made(c=few), missing="impute", **ASK).feature_names


@pytest.mark.parametrize("private", [False, True])
def test_numbers_that_32_bit_floats_make_equal_are_refused(private):
    seconds = 1_700_000_000 + np.arange(ROWS)
    frame = made(t=seconds)
    ask = {"utility": "y", "private": "t", "kinds": {"t": "continuous"}} if private else ASK
    with pytest.raises(DataError, match="column 't' runs from 1700000000.0 to .*: subtract"):
        from_table(frame, **ask)
    data = from_table(frame.assign(t=2 * (seconds - seconds[0])), **ask)
    assert len(np.unique(data.s if private else data.x[:, 1])) == ROWS
    # Years, the widest range there is, and a constant of any size, are no such thing.
    wide = np.where(np.arange(ROWS) % 2, 3e38, -3e38)
    assert len(from_table(made(wide=wide), **ASK)) == ROWS
    assert len(from_table(made(year=2000 + np.arange(ROWS), k=2**60), **ASK)) == ROWS


def test_a_column_in_small_units_keeps_its_digits():
    data = from_table(made(farad=np.arange(ROWS) * 1e-12), **ASK)
    np.testing.assert_allclose(data.x[:, 1], np.arange(ROWS) * 1e-12, rtol=1e-6)


def test_a_file_that_changes_between_two_readings_is_noticed(tmp_path):
    path = as_csv(made(s=list("abc" * 10)), tmp_path)
    stream = stream_table(path, **ASK)
    assert sum(len(part.s) for part in stream) == ROWS
    as_csv(made(s=list("abd" * 10)), tmp_path)
    with pytest.raises(DataError, match="column 's' holds 'd', none of its 3 classes"):
        list(stream)
    pairs = made(s=list("ab" * 15), t=list("uv" * 15))
    both = {"utility": "y", "private": ["s", "t"]}
    stream = stream_table(as_csv(pairs, tmp_path), **both)
    as_csv(pairs.assign(t=list("vu" * 15)), tmp_path)
    with pytest.raises(DataError, match="line 2: columns s, t hold none of the known"):
        list(stream)


@pytest.mark.parametrize("place", [0, 1, ROWS - 1])
def test_a_word_among_numbers_is_named_wherever_it_stands(tmp_path, place):
    words = [f"{i}.5" for i in range(ROWS)]
    words[place] = "oops"
    path = as_csv(made(a=words), tmp_path)
    with pytest.raises(DataError, match=rf"line {place + 2}: 'oops' in column 'a' is not a number"):
        from_table(path, **ASK)
    words[place] = "?"  # how many published tables write a missing cell
    path = as_csv(made(a=words), tmp_path)
    with pytest.raises(DataError, match=rf"'a': 1, first at .*line {place + 2}"):
        from_table(path, **ASK)
    assert from_table(path, missing="drop", **ASK).feature_names == ("a",)


def test_a_decimal_comma_makes_no_classes(tmp_path):
    path = tmp_path / "own.csv"
    lines = [f"{i},{i % 4};{i % 2};{i % 3}" for i in range(ROWS)]
    path.write_text("a;y;s\n" + "\n".join(lines))
    with pytest.raises(DataError, match="line 2: '0,0' in column 'a' is not a number"):
        from_table(path, **ASK)


def test_a_text_that_tells_rows_apart_is_no_feature(tmp_path):
    for unit in ("%", "@example.org"):
        path = as_csv(made(a=[f"{i}{unit}" for i in range(ROWS)]), tmp_path)
        with pytest.raises(DataError, match="column 'a' has 30 classes in 30 rows: leave it out"):
            from_table(path, **ASK)


def test_cells_that_hold_arrays_are_refused():
    with pytest.raises(DataError, match="column 'b' is of type list"):
        from_table(made(b=[np.arange(2)] * ROWS), **ASK)


def test_a_missing_label_is_not_said_to_be_imputable():
    with pytest.raises(DataError, match=r"'s': 1, first at .*: pass missing='drop'\.$"):
        from_table(made(s=pd.Categorical([None, *"pq" * 14, "p"])), **ASK)


def test_a_wide_table_is_opened_at_once():
    import time

    names = [f"c{i}" for i in range(3000)]
    frame = pd.DataFrame(np.zeros((4, 3000)), columns=names).assign(y=[0, 1, 0, 1], s=[0, 0, 1, 1])
    start = time.process_time()
    assert from_table(frame, features=names, **ASK).x.shape == (4, 3000)
    assert time.process_time() - start < 2.0


def test_a_name_with_an_underscore_is_no_number(tmp_path):
    months = "".join(f"2020_0{i % 3},{i},{'uv'[i % 2]},{i % 3}\n" for i in range(12))
    path = tmp_path / "t.csv"
    path.write_text("month,b,y,s\n" + months)
    data = from_table(path, **ASK)
    assert data.feature_names == ("month=2020_00", "month=2020_01", "month=2020_02", "b")
    path.write_text("month,b,y,s\n" + months.replace("2020_02,5,", "2020_02,1_5,"))
    with pytest.raises(DataError, match=r"t\.csv, line 7: '1_5' in column 'b' is not a number"):
        from_table(path, **ASK)


def test_a_heading_may_run_over_lines_and_must_be_text(tmp_path):
    rows = "".join(f"{i},{i * i},{'uv'[i % 2]},{i % 3}\n" for i in range(12))
    path = tmp_path / "t.csv"
    path.write_text('"steps\na day",b,y,s\n' + rows)
    assert from_table(path, **ASK).feature_names == ("steps\na day", "b")
    path.write_text('"steps,b,y,s\n' + rows)
    with pytest.raises(DataError, match=r"t\.csv, line 1: unexpected end of data"):
        from_table(path, **ASK)
    path.write_text("a,b,y,s\n" + rows, encoding="utf-16")
    with pytest.raises(DataError, match=r"t\.csv, line 1: not UTF-8 text"):
        from_table(path, **ASK)


def test_whole_numbers_that_pandas_calls_categories_are_classes():
    codes = np.arange(12) % 4
    frame = pd.DataFrame({"job": codes, "y": codes % 2, "s": np.arange(12) % 3})
    assert from_table(frame, **ASK).feature_names == ("job",)
    coded = frame.astype({"job": "category"})
    assert from_table(coded, **ASK).feature_names == ("job=0", "job=1", "job=2", "job=3")
    assert from_table(coded, kinds={"job": "continuous"}, **ASK).feature_names == ("job",)


def test_columns_may_be_numbered_and_one_feature_named_alone():
    frame = pd.DataFrame(np.stack([np.arange(12) ** 2, np.arange(12) % 2, np.arange(12) % 3], axis=1))
    data = from_table(frame, utility=1, private=2)
    assert (data.feature_names, data.s_names) == (("0",), ("0", "1", "2"))
    named = frame.rename(columns={0: "age", 1: "y", 2: "s"})
    assert from_table(named, features="age", **ASK).feature_names == ("age",)


def test_decimals_are_numbers_and_other_objects_are_not():
    frame = pd.DataFrame({"a": np.arange(12), "y": np.arange(12) % 2, "s": np.arange(12) % 3})
    exact = frame.assign(a=[Decimal(i) / 4 for i in range(12)])
    np.testing.assert_allclose(from_table(exact, **ASK).x[:, 0], np.arange(12) / 4)
    with pytest.raises(
        DataError, match="column 'a' is of type list<item: int64>: turn it into text or numbers"
    ):
        from_table(frame.assign(a=[[1]] * 12), **ASK)


def test_ids_with_leading_zeros_are_names(tmp_path):
    ids = ["007", "7", "08"]
    path = as_csv(made(s=[ids[i % 3] for i in range(ROWS)]), tmp_path)
    assert from_table(path, **ASK).s_names == ("007", "08", "7")
    # A stream has encoded the earlier blocks as numbers: it refuses the id rather than merging it.
    late = made(s=[("7", "8", "007")[0 if i < 20 and i % 2 else 1 if i < 20 else 2] for i in range(ROWS)])
    path = as_csv(late, tmp_path)
    with pytest.raises(DataError, match=r"line 22: '007' in column 's' begins with a zero.*kinds="):
        stream_table(path, block_rows=10, **ASK)
    assert from_table(path, **ASK).s_names == ("007", "7", "8")
    assert stream_table(path, block_rows=10, kinds={"s": "category"}, **ASK).schema.s_names == (
        "007",
        "7",
        "8",
    )
    assert stream_table(path, block_rows=10, kinds={"s": "continuous"}, **ASK).schema.s_names == ()
    # A feature is a quantity, whatever it begins with.
    path = as_csv(made(b=[f"0{i}" for i in range(ROWS)]), tmp_path)
    assert from_table(path, **ASK).feature_names == ("a", "b")


@pytest.mark.parametrize("spelt", [str, lambda i: f"00{i}", lambda i: f"{i}.0"])
def test_a_private_copy_of_another_type_is_a_copy(tmp_path, spelt):
    users = np.arange(ROWS) % 3
    copied = made(s=users, b=[spelt(i) for i in users])
    with pytest.raises(DataError, match="the feature 'b' is a copy of the private column 's'"):
        from_table(copied, **ASK)
    if spelt is str:
        with pytest.raises(DataError, match="the feature 'b' is a copy of the private column 's'"):
            from_table(as_csv(copied, tmp_path), kinds={"s": "category"}, **ASK)
    copied.loc[4, "b"] = "9"  # one row says something else: no copy
    assert from_table(copied, **ASK).s_names == ("0", "1", "2")


def test_categories_of_whole_numbers_stay_so_in_a_file(tmp_path):
    frame = made(job=pd.Categorical((np.arange(ROWS) % 3 + 1) * 10))
    names = from_table(frame, **ASK).feature_names
    assert names == ("a", "job=10", "job=20", "job=30")
    frame.to_parquet(tmp_path / "own.parquet")
    assert from_table(tmp_path / "own.parquet", **ASK).feature_names == names
