"""Hostile tables: every refusal names the file, the line or row, and what to do."""

import numpy as np
import pandas as pd
import pytest

from privjax.datasets import DataError, from_table, stream_table

HEADER = "a,b,y,s\n"
GOOD = "".join(f"{i}.5,{i},{'uv'[i % 2]},{i % 3}\n" for i in range(12))


def own(tmp_path, text, *, block_rows=None, **options):
    path = tmp_path / "own.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    options = {"utility": "y", "private": "s", **options}
    return (
        from_table(path, **options)
        if block_rows is None
        else stream_table(path, block_rows=block_rows, **options)
    )


def test_a_sound_one(tmp_path):
    data = own(tmp_path, HEADER + GOOD)
    assert data.x.shape == (12, 2)
    assert data.y_names == ("u", "v")


@pytest.mark.parametrize("mark", [";", "\t"])
def test_other_delimiters_are_seen(tmp_path, mark):
    data = own(tmp_path, (HEADER + GOOD).replace(",", mark))
    assert data.feature_names == ("a", "b")
    asked = own(tmp_path, (HEADER + GOOD).replace(",", "|"), delimiter="|")
    np.testing.assert_array_equal(asked.x, data.x)


def test_quotes_byte_order_mark_blank_lines_and_windows_line_ends(tmp_path):
    text = '\ufeff"a","b",y,s\r\n\r\n' + GOOD.replace("u", '"u, or\nnot"').replace("\n", "\r\n")
    data = own(tmp_path, text)
    assert len(data) == 12
    assert len(data.y_names) == 2
    assert data.feature_names == ("a", "b")


BAD = {
    "a word": (GOOD + "oops,1,u,0\n", r"own\.csv, line 14: 'oops' in column 'a' is not a number"),
    "a late word": (GOOD * 30 + "1,oops,u,0\n", r"line 362: 'oops' in column 'b' .*kinds="),
    "infinity": (GOOD + "inf,1,u,0\n", r"line 14: 'inf' in column 'a' is not finite"),
    "too large": (GOOD + "1e39,1,u,0\n", r"line 14: column 'a' is not finite in 32-bit floats"),
    "too few": (GOOD + "1,2,u\n", r"own\.csv, line 14: 3 columns where 4 are expected"),
    "too many": (GOOD + "1,2,u,0,9\n", r"own\.csv, line 14: 5 columns where 4 are expected"),
    "missing": (GOOD + "NA,2,u,0\n,3,v,1\n", r"'a': 2, first at .*own\.csv, line 14"),
    "an open quote": (GOOD + '"1,2,u,0\n', r"own\.csv, line 14: 1 columns where 4 are expected"),
    "one class": (GOOD.replace("v", "u"), "column 'y' has one class only, 'u'"),
    "no rows": ("", "has no rows"),
    "an empty column": ("".join(f",{i},{'uv'[i % 2]},{i % 3}\n" for i in range(9)), "'a': 9"),
}


@pytest.mark.parametrize("fault", BAD)
@pytest.mark.parametrize("block_rows", [None, 5])
def test_faults_are_named(tmp_path, fault, block_rows):
    text, message = BAD[fault]
    with pytest.raises(DataError, match=message):
        own(tmp_path, HEADER + text, block_rows=block_rows)


def test_a_word_among_numbers_may_be_a_name_when_told(tmp_path):
    text = HEADER + GOOD + "oops,1,u,0\n"
    data = own(tmp_path, text, kinds={"a": "category"})
    assert "a=oops" in data.feature_names


def test_a_column_of_nothing_can_be_left_out(tmp_path):
    text = HEADER + "".join(f",{i},{'uv'[i % 2]},{i % 3}\n" for i in range(12))
    with pytest.raises(DataError, match="column 'a' is missing in every row: leave it out"):
        own(tmp_path, text, missing="impute")
    assert own(tmp_path, text, features=["b"]).feature_names == ("b",)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"", "line 1: the names of the columns are missing"),
        (b"a,a,y,s\n", "two columns are named 'a'"),
        (b"a,,y,s\n", "a column has no name"),
        (b"a,b,y,t\n", "private: .* has no column 's'"),
        (b"a,b,z,s\n", "utility: .* has no column 'y'"),
    ],
)
def test_headers(tmp_path, header, message):
    with pytest.raises(DataError, match=message):
        own(tmp_path, header + GOOD.encode() if header else b"")


def test_bytes_that_are_not_text(tmp_path):
    with pytest.raises(DataError, match=r"own\.csv, line 14: not UTF-8 text"):
        own(tmp_path, HEADER.encode() + GOOD.encode() + b"\xff\xfe\x00\x80,1,u,0\n")


def test_arguments(tmp_path):
    with pytest.raises(ValueError, match="utility and private are both 's'"):
        own(tmp_path, HEADER + GOOD, utility="s")
    with pytest.raises(ValueError, match="missing must be"):
        own(tmp_path, HEADER + GOOD, missing="guess")
    with pytest.raises(ValueError, match="kinds must map columns"):
        own(tmp_path, HEADER + GOOD, kinds={"a": "number"})
    with pytest.raises(ValueError, match="private must name at least one column"):
        own(tmp_path, HEADER + GOOD, private=[])
    with pytest.raises(ValueError, match="block_rows must be at least 1"):
        own(tmp_path, HEADER + GOOD, block_rows=0)
    with pytest.raises(DataError, match="utility column 'y' is among them"):
        own(tmp_path, HEADER + GOOD, features=["a", "y"])
    with pytest.raises(DataError, match="features: .* has no other column: name at least one"):
        own(tmp_path, HEADER + GOOD, features=[])
    with pytest.raises(DataError, match="holds text and cannot be continuous"):
        own(tmp_path, HEADER + GOOD, kinds={"y": "continuous"})
    with pytest.raises(TypeError, match="source must be a path or a DataFrame, got list"):
        from_table([1, 2], utility="y", private="s")
    with pytest.raises(DataError, match="does not exist"):
        from_table(tmp_path / "none.csv", utility="y", private="s")
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"a\.xlsx is not a CSV, Parquet or NPZ"):
        from_table(tmp_path / "a.xlsx", utility="y", private="s")


def test_too_few_rows_and_too_many_classes(tmp_path):
    with pytest.raises(DataError, match="leaves 2 rows: too few to split"):
        own(tmp_path, HEADER + "1,2,u,0\n2,2,v,1\n", utility="y", private="s")
    names = "".join(f"n{i},{i},{'uv'[i % 2]},{i % 3}\n" for i in range(1500))
    with pytest.raises(DataError, match="column 'a' has 1500 classes in 1500 rows: leave it out"):
        own(tmp_path, HEADER + names)


def arrays(rows=30):
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(rows, 4)), "y": np.arange(rows) % 2, "s": np.arange(rows) % 3}


def test_broken_npz(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, **arrays())
    good = path.read_bytes()
    ask = {"utility": "y", "private": "s"}
    assert len(from_table(path, **ask)) == 30
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises(DataError, match=r"a\.npz is truncated or corrupt"):
        from_table(path, **ask)
    flipped = bytearray(good)
    flipped[400] ^= 0xFF
    path.write_bytes(flipped)
    with pytest.raises(DataError, match="truncated or corrupt"):
        from_table(path, **ask)
    np.savez(path, **arrays(), names=np.array([object()] * 30, dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match=r"names holds Python objects, which are refused"):
        from_table(path, **ask)
    np.savez(path, **{**arrays(), "y": np.float64(3.0)})
    with pytest.raises(DataError, match="y is a single number"):
        from_table(path, **ask)
    np.savez(path, **{**arrays(), "x": np.asfortranarray(arrays()["x"])})
    with pytest.raises(DataError, match="x is stored column by column"):
        from_table(path, **ask)
    with pytest.raises(DataError, match=r"features: .*a\.npz has no column 'z'"):
        from_table(path, features=["z"], **ask)


def test_broken_npy_folder(tmp_path):
    for name, values in arrays().items():
        np.save(tmp_path / f"{name}.npy", values)
    ask = {"utility": "y", "private": "s"}
    assert len(from_table(tmp_path, **ask)) == 30
    data = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(data[:-40])
    with pytest.raises(DataError, match="x is truncated or corrupt: 920 bytes do not make"):
        from_table(tmp_path, **ask)
    (tmp_path / "x.npy").write_bytes(b"not an array")
    with pytest.raises(DataError, match="x is truncated or corrupt"):
        from_table(tmp_path, **ask)
    for file in tmp_path.glob("*.npy"):
        file.unlink()
    with pytest.raises(DataError, match="holds no arrays"):
        from_table(tmp_path, **ask)


def test_a_header_that_promises_too_much(tmp_path):
    for name, values in arrays().items():
        np.save(tmp_path / f"{name}.npy", values)
    data = (tmp_path / "x.npy").read_bytes()
    for shape in (b"(30, 900000000)", b"(-30, -4)"):
        changed = data.replace(b"(30, 4), }" + b" " * (len(shape) - 7), shape + b", }")
        assert len(changed) == len(data)
        assert shape in changed
        (tmp_path / "x.npy").write_bytes(changed)
        with pytest.raises(DataError, match="x is truncated or corrupt: 960 bytes do not make"):
            from_table(tmp_path, utility="y", private="s")


def test_arrays_without_columns_or_with_one_name(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, none=np.zeros((30, 0)), **arrays())
    with pytest.raises(DataError, match=r"none of shape \(30, 0\) has no columns"):
        from_table(path, utility="y", private="s")
    np.savez(path, **{"x[0]": np.zeros(30)}, **arrays())
    with pytest.raises(DataError, match=r"two columns are named 'x\[0\]'"):
        from_table(path, utility="y", private="s")


def test_infinity_in_typed_columns(tmp_path):
    values = arrays()
    values["x"][7, 2] = np.inf
    np.savez(tmp_path / "a.npz", **values)
    with pytest.raises(DataError, match=r"a\.npz, row 7: column 'x\[2\]' is not finite"):
        from_table(tmp_path / "a.npz", utility="y", private="s")


def test_broken_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    frame = pd.DataFrame({"a": np.arange(30.0), "y": np.arange(30) % 2, "s": np.arange(30) % 3})
    frame.to_parquet(path)
    good = path.read_bytes()
    path.write_bytes(good[:-20])
    with pytest.raises(DataError, match=r"a\.parquet is truncated or corrupt"):
        from_table(path, utility="y", private="s")
    flipped = bytearray(good)
    flipped[4:40] = bytes(36)
    path.write_bytes(flipped)
    with pytest.raises(DataError, match=r"a\.parquet is truncated or corrupt"):
        from_table(path, utility="y", private="s")


def test_the_extra_is_named_where_it_is_needed(tmp_path, monkeypatch):
    import sys

    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"^pyarrow is not installed: run pip install 'privjax\[data"):
        stream_table(path, utility="y", private="s")
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    with pytest.raises(ImportError, match="^pyarrow is not installed"):
        own(tmp_path, HEADER + GOOD)
