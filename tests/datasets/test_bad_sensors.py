"""Sensor files that are wrong in one place: the error names the file and the line."""

import io
import zipfile

import numpy as np
import pytest

from privjax.datasets import DataError
from privjax.datasets.archives import FolderTree
from privjax.datasets.prepared import prepared_arrays
from privjax.datasets.sensors import (
    hapt_records,
    har_feature_names,
    har_records,
    mhealth_records,
)
from privjax.datasets.sources import SOURCES
from privjax.datasets.text import read_integers, read_matrix


@pytest.fixture
def har(tmp_path):
    rng = np.random.default_rng(0)
    for part, rows in (("train", 6), ("test", 3)):
        folder = tmp_path / "UCI HAR Dataset" / part
        folder.mkdir(parents=True)
        np.savetxt(folder / f"X_{part}.txt", rng.uniform(-1, 1, (rows, 561)), fmt="%.7e")
        np.savetxt(folder / f"y_{part}.txt", np.arange(rows) % 6 + 1, fmt="%d")
        np.savetxt(folder / f"subject_{part}.txt", np.arange(rows) + 1, fmt="%d")
    return tmp_path / "UCI HAR Dataset"


def edit(path, line, change):
    lines = path.read_text().split("\n")
    lines[line - 1] = change(lines[line - 1])
    path.write_text("\n".join(lines))


def read_har(folder):
    return list(har_records([FolderTree(folder)]))


def test_a_sound_har_folder(har):
    records = read_har(har)
    assert len(records) == 9
    assert [r["is_test"] for r in records] == [0] * 6 + [1] * 3
    assert [r["user"] for r in records] == [0, 1, 2, 3, 4, 5, 0, 1, 2]


HAR_FAULTS = {
    "a word": ("train/X_train.txt", 4, lambda t: "abc" + t[3:], r"line 4, column 1: 'abc.*number"),
    "nan": (
        "train/X_train.txt",
        2,
        lambda t: "nan " + t.partition(" ")[2],
        "line 2, column 1: 'nan' is not a finite number",
    ),
    "beyond 32 bits": (
        "train/X_train.txt",
        3,
        lambda t: "1e39 " + t.partition(" ")[2],
        "line 3, column 1: '1e39' is not a finite number",
    ),
    "one column less": (
        "test/X_test.txt",
        3,
        lambda t: t.rpartition(" ")[0],
        "line 3: 560 columns where 561 are expected",
    ),
    "one column more": ("test/X_test.txt", 1, lambda t: t + " 1.0", "line 1: 562 columns"),
    "an activity 7": ("train/y_train.txt", 5, lambda t: "7", "line 5: the label 7 is not one of"),
    "half an activity": ("train/y_train.txt", 2, lambda t: "1.5", "line 2: the label 1.5"),
    "a user 31": ("test/subject_test.txt", 2, lambda t: "31", "line 2: the label 31"),
    "an empty label": ("test/y_test.txt", 2, lambda t: "", "line 3: 2 lines where .* has 3"),
}


@pytest.mark.parametrize("fault", HAR_FAULTS)
def test_har_faults_are_named(har, fault):
    name, line, change, message = HAR_FAULTS[fault]
    edit(har / name, line, change)
    with pytest.raises(DataError, match=message) as caught:
        read_har(har)
    assert name.rpartition("/")[2] in str(caught.value)


def test_har_in_the_wrapper_that_its_site_gives(har, tmp_path):
    (har / "features.txt").write_text("".join(f"{i} feature\n" for i in range(1, 562)))
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(har.rglob("*.txt")):
            file.write(path, path.relative_to(har.parent))
        file.writestr("__MACOSX/UCI HAR Dataset/train/X_train.txt", b"litter")
    name = "human+activity+recognition+using+smartphones.zip"
    (tmp_path / "manual").mkdir()
    with zipfile.ZipFile(tmp_path / "manual" / name, "w") as file:
        file.writestr("UCI HAR Dataset.names", b"")
        file.writestr("UCI HAR Dataset.zip", inner.getvalue())
    arrays, notes = prepared_arrays(
        SOURCES["har"], data_dir=tmp_path / "data", manual_dir=tmp_path / "manual"
    )
    assert arrays["x"].shape == (9, 561)
    assert notes["notes"]["feature_names"][:2] == ["feature#1", "feature#2"]
    for record, row in zip(read_har(har), arrays["x"], strict=True):
        np.testing.assert_array_equal(record["x"], row)


def test_har_missing_and_empty_files(har):
    (har / "features.txt").write_text("1 a\n2 b\n")
    with pytest.raises(DataError, match=r"features\.txt has 2 names where 561"):
        har_feature_names([FolderTree(har)])
    (har / "features.txt").write_bytes(b"1 \xff\n")
    with pytest.raises(DataError, match=r"features\.txt has 1 names where 561"):
        har_feature_names([FolderTree(har)])
    (har / "test" / "X_test.txt").write_text("")
    with pytest.raises(DataError, match=r"X_test\.txt is empty"):
        read_har(har)
    (har / "test" / "X_test.txt").unlink()
    with pytest.raises(DataError, match=r"has no file test/X_test\.txt"):
        read_har(har)


def log_line(label="1", columns=23):
    return " ".join(["0.5"] * columns) + f" {label}\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (log_line("13"), "line 3: the label 13 is not one of 0 to 12"),
        (log_line("-1"), "line 3: the label -1"),
        (log_line(columns=22), "line 3: 23 columns where 24 are expected"),
        (log_line().replace("0.5", "0,5", 1), "line 3, column 1: '0,5' is not a finite number"),
    ],
)
def test_mhealth_faults_are_named(tmp_path, line, message):
    log = tmp_path / "mHealth_subject3.log"
    log.write_text(log_line() * 2 + line + log_line() * 2)
    with pytest.raises(DataError, match=r"mHealth_subject3\.log, " + message):
        list(mhealth_records([FolderTree(tmp_path)]))
    log.write_text(log_line() * 2 + log_line("0") + log_line())
    stretches = list(mhealth_records([FolderTree(tmp_path)]))
    assert [(r["frame"], len(r["x"]), r["user"]) for r in stretches] == [(1, 2, 2), (4, 1, 2)]
    log.rename(tmp_path / "mHealth_subject11.log")
    with pytest.raises(DataError, match="subject 11 is not one of 1 to 10"):
        list(mhealth_records([FolderTree(tmp_path)]))
    (tmp_path / "mHealth_subject11.log").unlink()
    with pytest.raises(DataError, match=r"no file mHealth_subject1\.log"):
        list(mhealth_records([FolderTree(tmp_path)]))


def test_two_logs_of_one_user_are_refused(tmp_path):
    (tmp_path / "copy").mkdir()
    for name in ("mHealth_subject1.log", "copy/mHealth_subject1.log"):
        (tmp_path / name).write_text(log_line())
    with pytest.raises(DataError, match=r"subject1\.log is a second log of subject 1: keep one"):
        list(mhealth_records([FolderTree(tmp_path)]))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 1 2.5 1 3", "line 2: the label 2.5 is not one of 1 to 12"),
        ("1 1 5 1.5 3", "line 2: the label 1.5"),
        ("2 1 5 1 3", "line 2: there is no acc file of experiment 2"),
        ("1 2 5 1 3", "line 2: user 2, frames 1 to 3 do not fit"),
    ],
)
def test_hapt_label_faults_are_named(tmp_path, line, message):
    (tmp_path / "RawData").mkdir()
    for kind in ("acc", "gyro"):
        (tmp_path / "RawData" / f"{kind}_exp01_user01.txt").write_text("0 0 1\n" * 4)
    (tmp_path / "RawData" / "labels.txt").write_text(f"1 1 5 1 2\n{line}\n")
    with pytest.raises(DataError, match=r"labels\.txt, " + message):
        list(hapt_records([FolderTree(tmp_path)]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activity": np.full(5, 13)}, "activity must be 5 integers between 1 and 12"),
        ({"activity": np.full(5, 1.5)}, "activity must be 5 integers between 1 and 12"),
        ({"subject": np.zeros(5, int)}, "subject must be 5 integers between 1 and 30"),
        ({"subject": np.full(5, np.nan)}, "subject must be 5 integers"),
        ({"x": np.zeros((5, 7))}, "x must be finite floats"),
        ({"x": np.zeros((0, 6))}, "x must be finite floats"),
        ({"x": np.full((5, 6), np.nan)}, "x must be finite floats"),
        ({"x": np.full((5, 6), "1.0")}, "x must be finite floats"),
        ({"frame": np.arange(4)}, "frame must be 5 integers"),
        ({"frame": None}, "truncated or corrupt"),
        ({"activity": np.array([None] * 5)}, "truncated or corrupt"),  # would need pickle
    ],
)
def test_hapt_array_faults_are_named(tmp_path, change, message):
    good = {
        "x": np.zeros((5, 6), np.float32),
        "activity": np.full(5, 2),
        "subject": np.full(5, 1),
        "recording": np.zeros(5, int),
        "frame": np.arange(5) + 250,
    }
    np.savez(tmp_path / "hapt_frames.npz", **good)
    (tmp_path / "a note.txt").write_text("which is not the array file")
    (record,) = hapt_records([FolderTree(tmp_path)])
    assert (record["frame"], len(record["x"]), record["activity"]) == (250, 5, 1)
    np.savez(
        tmp_path / "hapt_frames.npz",
        **{k: v for k, v in {**good, **change}.items() if v is not None},
    )
    with pytest.raises(DataError, match=r"hapt_frames\.npz.*" + message):
        list(hapt_records([FolderTree(tmp_path)]))


def test_text_reader_against_numpy():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(50, 7))
    buffer = io.BytesIO()
    np.savetxt(buffer, matrix, fmt="%.17g")
    np.testing.assert_array_equal(read_matrix(buffer.getvalue(), "made", columns=7), matrix)
    assert read_integers(b"3\n1\n\n2\n", "made", low=1, high=3).tolist() == [3, 1, 2]
    # HAR writes three digits of exponent.
    assert read_matrix(b" 2.5e-001 1e+002\n", "made", columns=2).tolist() == [[0.25, 100.0]]
