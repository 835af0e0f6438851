"""Hostile and damaged tables: every refusal names the file, the line or row, and a remedy."""

import sys

import numpy as np
import pandas as pd
import pytest

from privjax.datasets import DataError, from_table

HEADER = "a,b,y,s\n"
GOOD = "".join(f"{i}.5,{i},{'uv'[i % 2]},{i % 3}\n" for i in range(12))
ASK = {"utility": "y", "private": "s"}


def own(tmp_path, text, **options):
    path = tmp_path / "own.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return from_table(path, **{**ASK, **options})


BAD = {
    "a word": (GOOD + "oops,1,u,0\n", r"own\.csv, line 14: 'oops' in column 'a' is not a number"),
    "a late word": (GOOD * 30 + "1,oops,u,0\n", r"line 362: 'oops' in column 'b' .*kinds="),
    "an early word": ("oops,1,u,0\n" + GOOD, "line 2: 'oops' in column 'a' is not a number"),
    "an underscore": (GOOD + "1,1_0,u,0\n", "line 14: '1_0' in column 'b' is not a number"),
    "a hexadecimal number": (GOOD + "1,0x10,u,0\n", "line 14: '0x10' in column 'b' is not a number"),
    "infinity": (GOOD + "inf,1,u,0\n", r"line 14: 'inf' in column 'a' is not finite"),
    "too large": (
        GOOD + "1e39,1,u,0\n",
        r"line 14: column 'a' holds 1e\+39, which is not finite in 32-bit floats",
    ),
    "too few": (GOOD + "1,2,u\n", r"own\.csv, line 14: 3 columns where 4 are expected"),
    "too many": (GOOD + "1,2,u,0,9\n", r"own\.csv, line 14: 5 columns where 4 are expected"),
    "after blank lines": ("\n\n" + GOOD + "1,2,u\n", r"own\.csv, line 16: 3 columns"),
    "missing": (GOOD + "NA,2,u,0\n,3,v,1\n", r"'a': 2, first at .*own\.csv, line 14"),
    "a question mark": (GOOD + "?,2,u,0\n", r"'a': 1, first at .*own\.csv, line 14"),
    "an open quote": (GOOD + '"1,2,u,0\n', r"own\.csv, line 14: 1 columns where 4 are expected"),
    "not UTF-8": (HEADER.encode() + GOOD.encode() + b"\xff\xfe\x00\x80,1,u,0\n", "line 14: not UTF-8 text"),
    "one class": (GOOD.replace("v", "u"), "column 'y' has one class only, 'u'"),
    "no rows": ("", "has no rows"),
    "an empty column": ("".join(f",{i},{'uv'[i % 2]},{i % 3}\n" for i in range(9)), "'a': 9"),
    "text and truth": ("".join(f"{['true', 'x'][i > 5]},1,u,0\n" for i in range(9)), "'x' in .* not true or"),
}


@pytest.mark.parametrize("fault", BAD)
def test_faults_are_named(tmp_path, fault):
    text, message = BAD[fault]
    with pytest.raises(DataError, match=message) as refused:
        own(tmp_path, text if isinstance(text, bytes) else HEADER + text)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


def test_a_word_among_numbers_may_be_a_category(tmp_path):
    data = own(tmp_path, HEADER + GOOD + "oops,1,u,0\n", kinds={"a": "category"})
    assert "a=oops" in data.feature_names


def test_a_decimal_comma_is_refused(tmp_path):
    lines = "".join(f"{i},{i % 4};{i % 2};{i % 3}\n" for i in range(30))
    with pytest.raises(DataError, match="line 2: '0,0' in column 'a' is not a number"):
        own(tmp_path, "a;y;s\n" + lines)


def test_a_column_without_cells_can_be_left_out(tmp_path):
    text = HEADER + "".join(f",{i},{'uv'[i % 2]},{i % 3}\n" for i in range(12))
    with pytest.raises(DataError, match="column 'a' is missing in every row: leave it out"):
        own(tmp_path, text, missing="impute")
    with pytest.raises(DataError, match="every row has a missing value, most often 'a': leave it"):
        own(tmp_path, text, missing="drop")
    assert own(tmp_path, text, features=["b"]).feature_names == ("b",)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"", "line 1: the names of the columns are missing"),
        (b"a,a,y,s\n", "two columns are named 'a'"),
        (b"a,,y,s\n", "a column has no name"),
        (b"a,b,y,t\n", "private: .* has no column 's'"),
        (b"a,b,z,s\n", "utility: .* has no column 'y'"),
        (b'"a,b,y,s\n', "line 1: unexpected end of data"),
        ("a,b,y,s\n".encode("utf-16"), "line 1: not UTF-8 text"),
        (b"a,b,y,s", "has no rows"),
    ],
)
def test_headers(tmp_path, header, message):
    with pytest.raises(DataError, match=message):
        own(tmp_path, header + GOOD.encode() if header.endswith(b"\n") else header)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"utility": "s"}, ValueError, "utility and private are both 's'"),
        ({"missing": "guess"}, ValueError, "missing must be"),
        ({"kinds": {"a": "number"}}, ValueError, "kinds must map columns to .*, got 'a': 'number'"),
        ({"kinds": {"y": "continuous"}}, DataError, "holds text and cannot be continuous"),
        ({"kinds": {"a": "continuous", "b": "category"}, "private": "b"}, DataError, "'b' has 12 classes"),
        ({"private": []}, ValueError, "private must name at least one column"),
        ({"private": ["s", "s"]}, ValueError, "private must name at least one column, each of them once"),
        ({"features": ["a", "y"]}, DataError, "utility column 'y' is among them"),
        ({"features": ["z"]}, DataError, "features: .* has no column 'z'"),
        ({"features": []}, DataError, "features: .* has no other column: name at least one"),
    ],
)
def test_arguments(tmp_path, options, kind, message):
    with pytest.raises(kind, match=message):
        own(tmp_path, HEADER + GOOD, **options)


def test_sources(tmp_path):
    with pytest.raises(TypeError, match="source must be a path or a DataFrame, got list"):
        from_table([1, 2], **ASK)
    with pytest.raises(DataError, match="does not exist"):
        from_table(tmp_path / "none.csv", **ASK)
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"a\.xlsx is not a CSV, Parquet or NPZ"):
        from_table(tmp_path / "a.xlsx", **ASK)
    (tmp_path / "a.csv.gz").write_bytes(b"not packed")
    with pytest.raises(DataError, match=r"a\.csv\.gz is truncated or corrupt"):
        from_table(tmp_path / "a.csv.gz", **ASK)


def test_too_few_rows_and_too_many_classes(tmp_path):
    with pytest.raises(DataError, match="leaves 2 rows: too few to split"):
        own(tmp_path, HEADER + "1,2,u,0\n2,2,v,1\n")
    names = "".join(f"n{i},{i},{'uv'[i % 2]},{i % 3}\n" for i in range(1500))
    with pytest.raises(DataError, match="column 'a' has 1500 classes in 1500 rows: leave it out"):
        own(tmp_path, HEADER + names)
    for unit in ("%", "@example.org"):
        text = "".join(f"{i}{unit},{i},{'uv'[i % 2]},{i % 3}\n" for i in range(30))
        with pytest.raises(DataError, match="column 'a' has 30 classes in 30 rows: leave it out"):
            own(tmp_path, HEADER + text)


def frame(**columns):
    return pd.DataFrame({"a": np.arange(30.0), "y": np.arange(30) % 2, "s": np.arange(30) % 3, **columns})


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.Timestamp("2020-01-01"), "column 'b' is of type timestamp.*: turn it into text or numbers"),
        ([[1, 2]] * 30, r"column 'b' is of type list<"),
        ([np.arange(2)] * 30, r"column 'b' is of type list<"),
        (["a", 1] * 15, "column 'b' mixes types .*: make it one type first"),
        ([1 + 2j] * 30, "column 'b' mixes types"),
        (
            np.where(np.arange(30) == 7, np.inf, 0.5),
            "row 7: column 'b' holds inf, which is not",
        ),
    ],
)
def test_unsuitable_types_are_refused(column, message):
    with pytest.raises(DataError, match=message):
        from_table(frame(b=column), **ASK)


def arrays(rows=30):
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(rows, 4)), "y": np.arange(rows) % 2, "s": np.arange(rows) % 3}


def test_damaged_npz(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, **arrays())
    good = path.read_bytes()
    assert len(from_table(path, **ASK)) == 30
    flipped = bytearray(good)
    flipped[400] ^= 0xFF
    for damaged in (good[: len(good) // 2], flipped):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.npz.* is truncated or corrupt"):
            from_table(path, **ASK)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"names": np.array([object()] * 30, dtype=object)}, "names holds Python objects, which are refused"),
        ({"y": np.float64(3.0)}, "y is a single number"),
        ({"x": np.asfortranarray(arrays()["x"])}, "x is stored column by column"),
        ({"x[0]": np.zeros(30)}, r"two columns are named 'x\[0\]'"),
        ({"when": np.zeros(30, "datetime64[s]")}, "column 'when' is of type timestamp"),
        (
            {"x": np.where(np.arange(120) == 30, np.inf, 0.5).reshape(30, 4)},
            r"row 7: .* holds inf, which",
        ),
    ],
)
def test_unsuitable_arrays(tmp_path, changed, message):
    path = tmp_path / "a.npz"
    np.savez(path, **{**arrays(), **changed}, allow_pickle=True)
    with pytest.raises(DataError, match=message):
        from_table(path, **ASK)
    if not {"y", "x[0]"} & set(changed):  # arrays out of use may be anything
        features = ["s2"] if "x" in changed else ["x"]
        np.savez(path, **{**arrays(), **changed, "s2": np.arange(30)}, allow_pickle=True)
        assert len(from_table(path, features=features, **ASK)) == 30


def test_an_array_that_unpacks_to_a_multiple_of_its_size(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", **{**arrays(), "x": np.zeros((30, 10_000))})
    assert len(from_table(tmp_path / "a.npz", features=["x[0]"], **ASK)) == 30
    monkeypatch.setattr("privjax.datasets.stream._MOST_UNPACKED", 1 << 20)
    with pytest.raises(DataError, match=r"x\.npy unpacks to 2400128 bytes from \d+: save it without"):
        from_table(tmp_path / "a.npz", **ASK)


def test_damaged_npy_folder(tmp_path):
    for name, values in arrays().items():
        np.save(tmp_path / f"{name}.npy", values)
    assert len(from_table(tmp_path, **ASK)) == 30
    data = (tmp_path / "x.npy").read_bytes()
    for shape in (b"(30, 900000000)", b"(-30, -4)"):  # a header may claim any size
        changed = data.replace(b"(30, 4), }" + b" " * (len(shape) - 7), shape + b", }")
        assert len(changed) == len(data)
        assert shape in changed
        (tmp_path / "x.npy").write_bytes(changed)
        with pytest.raises(DataError, match="x is truncated or corrupt: 960 bytes do not make"):
            from_table(tmp_path, **ASK)
    (tmp_path / "x.npy").write_bytes(data[:-40])
    with pytest.raises(DataError, match="x is truncated or corrupt: 920 bytes do not make"):
        from_table(tmp_path, **ASK)
    (tmp_path / "x.npy").write_bytes(b"not an array")
    with pytest.raises(DataError, match="x is truncated or corrupt"):
        from_table(tmp_path, **ASK)
    for file in tmp_path.glob("*.npy"):
        file.unlink()
    with pytest.raises(DataError, match="holds no arrays"):
        from_table(tmp_path, **ASK)


def test_damaged_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    frame().to_parquet(path)
    good = path.read_bytes()
    for damaged in (good[:-20], good[:4] + bytes(36) + good[40:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.parquet is truncated or corrupt"):
            from_table(path, **ASK)


def test_the_missing_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow.csv", None)
    with pytest.raises(ImportError, match=r"^pyarrow is not installed: run pip install 'privjax\[data"):
        from_table(tmp_path / "a.parquet", **ASK)
    with pytest.raises(ImportError, match="^pyarrow is not installed"):
        own(tmp_path, HEADER + GOOD)
