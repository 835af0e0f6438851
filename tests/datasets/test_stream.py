"""Rows of x from a file without labels: found by name, encoded as in training, in blocks."""

import tracemalloc

import numpy as np
import pandas as pd
import pyarrow
import pytest

from privjax.datasets import Column, DataError
from privjax.datasets.stream import open_rows

COLUMNS = (
    Column("age", fill=40.5),
    Column("colour", ("blue", "green", "red"), fill="red"),
    Column("smoker", boolean=True),
    Column("level", (1, 3)),
)
WIDTH = 7


def people(rows=9):
    colours = [("red", "blue", "green")[i % 3] for i in range(rows)]
    frame = {"smoker": np.arange(rows) % 2 == 0, "level": np.arange(rows) % 2 * 2 + 1, "colour": colours}
    return pd.DataFrame({**frame, "note": "any", "age": np.arange(rows) * 1.5})


def encoded(frame):
    colours = [frame["colour"] == c for c in COLUMNS[1].classes]
    levels = [frame["level"] == c for c in COLUMNS[3].classes]
    return np.stack([frame["age"], *colours, frame["smoker"], *levels], axis=1).astype(np.float32)


def write(frame, path):
    if path.suffix in (".csv", ".gz"):
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        arrays = {n: c.to_numpy(None if c.dtype.kind in "bif" else "U") for n, c in frame.items()}
        if path.suffix == ".npz":
            np.savez(path, **arrays)
        else:
            path.mkdir()
            for name, array in arrays.items():
                np.save(path / f"{name}.npy", array)
    return path


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.parquet", "rows.npz", "folder"])
@pytest.mark.parametrize("block_rows", [4, 65536])
def test_columns_are_found_by_name_in_every_format(tmp_path, name, block_rows):
    opened = open_rows(write(people(), tmp_path / name), WIDTH, columns=COLUMNS, block_rows=block_rows)
    blocks = list(opened.blocks)
    assert opened.total == 9
    assert [len(block) for block in blocks] == ([4, 4, 1] if block_rows == 4 else [9])
    assert blocks[0].dtype == np.float32
    np.testing.assert_array_equal(np.concatenate(blocks), encoded(people()))


def test_missing_cells_are_filled_as_in_training(tmp_path):
    frame = people().astype({"colour": object})
    frame.loc[2, ["age", "colour"]] = None
    expected = encoded(frame)
    expected[2, :4] = [40.5, 0, 0, 1]
    for name in ("rows.csv", "rows.parquet"):
        (block,) = open_rows(write(frame, tmp_path / name), WIDTH, columns=COLUMNS).blocks
        np.testing.assert_array_equal(block, expected)


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("colour", "mauve", "column 'colour' holds 'mauve', none of its 3 classes"),
        ("level", 2, "column 'level' holds 2, none of its 2 classes"),
        ("age", 1e39, "column 'age' holds 1e[+]39, which is not finite in 32-bit floats"),
        ("level", None, "column 'level' is missing, as it never was in training: fill it in"),
        ("smoker", None, "column 'smoker' is missing"),
    ],
)
def test_a_bad_cell_is_named(tmp_path, name, column, value, message):
    frame = people()
    frame[column] = [value if i == 3 else cell for i, cell in enumerate(frame[column])]
    where = "line 5" if name == "rows.csv" else "row 3"
    with pytest.raises(DataError, match=f"{name}, {where}: {message}"):
        list(open_rows(write(frame, tmp_path / name), WIDTH, columns=COLUMNS, block_rows=2).blocks)


@pytest.mark.parametrize(
    ("changed", "name", "message"),
    [
        ({"age": "old"}, "rows.csv", "line 2: 'old' in column 'age' is not a number.$"),
        ({"age": "old"}, "rows.npz", "row 0: column 'age' holds 'old', where a number is expected"),
        ({"smoker": "perhaps"}, "rows.csv", "line 2: 'perhaps' in column 'smoker' is not true or false.$"),
        ({"smoker": 7}, "rows.parquet", "row 0: column 'smoker' holds 7, where true or false is expected"),
    ],
)
def test_a_bad_column_is_named(tmp_path, changed, name, message):
    path = write(people().assign(**changed), tmp_path / name)
    with pytest.raises(DataError, match=message):
        list(open_rows(path, WIDTH, columns=COLUMNS).blocks)


def test_classes_may_be_written_in_another_type(tmp_path):
    columns = (Column("zip", ("01", "2")), Column("level", (1, 3), fill=3), Column("on", (False, True)))
    expected = np.array([[1, 0, 0, 1, 0, 1], [0, 1, 0, 1, 1, 0], [0, 1, 1, 0, 0, 1]], np.float32)
    (tmp_path / "rows.csv").write_text("on,zip,level\ntrue,01,3\nFalse,2,\nTRUE,2,1\n")
    frame = pd.DataFrame({"on": [True, False, True], "zip": ["01", "2", "2"], "level": [3.0, None, 1.0]})
    as_text = frame.assign(on=["true", "false", "true"], level=["3", None, "1"])
    frame.to_parquet(tmp_path / "rows.parquet")
    as_text.to_parquet(tmp_path / "text.parquet")
    for name in ("rows.csv", "rows.parquet", "text.parquet"):
        (block,) = open_rows(tmp_path / name, 6, columns=columns).blocks
        np.testing.assert_array_equal(block, expected)
    (block,) = open_rows(write(frame.assign(zip=2), tmp_path / "whole.parquet"), 6, columns=columns).blocks
    np.testing.assert_array_equal(block[:, :2], [[0, 1]] * 3)


def test_x_is_the_one_matrix_of_its_width(tmp_path):
    x = encoded(people())
    path = tmp_path / "rows.npz"
    np.savez_compressed(path, y=np.arange(9), x=x, names=np.array(["a", "b"]), k=np.array(3))
    for columns in (None, COLUMNS):
        opened = open_rows(path, WIDTH, columns=columns, block_rows=4)
        np.testing.assert_array_equal(np.concatenate(list(opened.blocks)), x)
        assert opened.total == 9
    np.save(tmp_path / "rows.npy", x)
    (block,) = open_rows(tmp_path / "rows.npy", WIDTH).blocks
    np.testing.assert_array_equal(block, x)
    np.savez(path, a=x, b=x)
    with pytest.raises(DataError, match="has 7, 7 columns where x has 7: keep those of x"):
        open_rows(path, WIDTH)
    np.save(tmp_path / "rows.npy", np.where(np.arange(7) == 5, np.nan, x))
    with pytest.raises(DataError, match=r"row 0: column 'rows\[5\]' is missing"):
        list(open_rows(tmp_path / "rows.npy", WIDTH).blocks)
    np.save(tmp_path / "rows.npy", np.full((3, 7), None), allow_pickle=True)
    with pytest.raises(DataError, match="holds Python objects"):
        open_rows(tmp_path / "rows.npy", WIDTH)


def test_columns_are_found_by_the_names_of_x_or_taken_in_order(tmp_path):
    names = list("abcdefg")
    frame = pd.DataFrame(encoded(people()), columns=names)
    path = write(frame.iloc[:, ::-1].assign(label=1), tmp_path / "rows.csv")
    (block,) = open_rows(path, WIDTH, names=names).blocks
    np.testing.assert_array_equal(block, frame)
    (block,) = open_rows(write(frame, path), WIDTH, names=list("hijklmn")).blocks
    np.testing.assert_array_equal(block, frame)
    with pytest.raises(DataError, match="has no column 'c'"):
        open_rows(write(frame.drop(columns="c").assign(z=1), path), WIDTH, names=names)
    with pytest.raises(DataError, match="has 8 columns where x has 7"):
        open_rows(write(frame.assign(z=1), path), WIDTH)
    path.write_text("1,2,3,4,5,6,7\n1,2,3,4,5,6,7\n")
    with pytest.raises(DataError, match="line 1: the names of the columns are missing"):
        open_rows(path, WIDTH)


def test_arguments_and_files_are_checked(tmp_path):
    path = write(people(), tmp_path / "rows.csv")
    with pytest.raises(DataError, match="has no column 'colour'"):
        open_rows(write(people().drop(columns="colour"), path), WIDTH, columns=COLUMNS)
    with pytest.raises(DataError, match="the columns of the encoder do not make rows of 6 numbers"):
        open_rows(path, 6, columns=COLUMNS)
    with pytest.raises(ValueError, match="block_rows must be at least 1"):
        open_rows(path, WIDTH, columns=COLUMNS, block_rows=0)
    with pytest.raises(DataError, match="does not exist"):
        open_rows(tmp_path / "none.csv", WIDTH)
    assert list(open_rows(write(people(0), path), WIDTH, columns=COLUMNS).blocks) == []


def test_other_columns_of_a_parquet_file_may_be_anything(tmp_path):
    odd = people().assign(when=pd.Timestamp("2020-01-01"), path=[[1, 2]] * 9)
    (block,) = open_rows(write(odd, tmp_path / "rows.parquet"), WIDTH, columns=COLUMNS).blocks
    np.testing.assert_array_equal(block, encoded(people()))


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_memory_holds_one_block(tmp_path, kind):
    rows, width = 60_000, 40
    path = tmp_path / f"large.{kind}"
    if kind == "npz":
        np.savez_compressed(path, x=np.random.default_rng(0).normal(size=(rows, width)))
    else:
        line = ",".join("0.12345" for _ in range(width)) + "\n"
        path.write_text(",".join(f"c{i}" for i in range(width)) + "\n" + line * rows)
    opened = open_rows(path, width, block_rows=1000)
    tracemalloc.start()
    before, arrow, total = pyarrow.total_allocated_bytes(), 0, 0
    for block in opened.blocks:
        arrow = max(arrow, pyarrow.total_allocated_bytes() - before)
        total += len(block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == rows
    # All rows take 19 MB, as text or as float64. The CSV reader holds some 5 MB in advance.
    assert peak + arrow < 9_000_000
