"""Arbitrary bytes: a reader gives sound arrays or a DataError, never another error or a NaN."""

import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privjax.datasets import DataError, from_table

quick = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
cell = st.one_of(
    st.sampled_from(["", "1", "2", "-3.5", "1e400", "nan", "NA", "true", "x", '"', "'", "1_0", "é"]),
    st.text(max_size=4),
)


@quick
@given(rows=st.lists(st.lists(cell, min_size=2, max_size=4), max_size=12), good=st.integers(0, 9))
def test_any_csv(tmp_path, rows, good):
    path = tmp_path / "own.csv"
    lines = [f"{i},{'uv'[i % 2]},{i % 3}" for i in range(good)] + [",".join(row) for row in rows]
    path.write_text("a,y,s\n" + "\n".join(lines), encoding="utf-8", newline="")
    for missing in ("refuse", "drop", "impute"):
        try:
            data = from_table(path, utility="y", private="s", missing=missing)
        except DataError as error:
            text = str(error)
            assert "own.csv" in text or "column" in text or "part" in text  # noqa: PT017
        else:
            assert np.isfinite(data.x).all()
            assert len(data.x) == len(data.y) == len(data.s)


@pytest.mark.slow
@quick
@given(data=st.binary(max_size=300))
def test_any_bytes_as_a_csv(tmp_path, data):
    path = tmp_path / "own.csv"
    path.write_bytes(b"a,y,s\n" + data)
    with pytest.raises(DataError):
        # So few random bytes never make three sound rows of two classes.
        from_table(path, utility="y", private="s")


@quick
@given(place=st.integers(0, 2000), value=st.integers(1, 255), kind=st.sampled_from(["npz", "pq"]))
def test_a_changed_byte_in_a_users_file(tmp_path, place, value, kind):
    rng = np.random.default_rng(0)
    y, s = np.arange(40) % 2, np.arange(40) % 3
    buffer = io.BytesIO()
    if kind == "npz":
        path = tmp_path / "a.npz"
        np.savez_compressed(buffer, a=rng.normal(size=40), y=y, s=s)
    else:
        path = tmp_path / "a.parquet"
        frame = pd.DataFrame({"a": rng.normal(size=40), "y": y, "s": s})
        frame.to_parquet(buffer, write_page_checksum=True)
    data = bytearray(buffer.getvalue())
    data[place % len(data)] ^= value
    path.write_bytes(data)
    try:
        changed = from_table(path, utility="y", private="s")
    except (DataError, ValueError):
        return
    assert np.isfinite(changed.x).all()
    if kind == "npz":  # its checksums cover every value
        np.testing.assert_allclose(changed.x[:, 0], np.random.default_rng(0).normal(size=40), 1e-6)
