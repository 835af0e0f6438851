"""Published files as users have them: every container reads alike; hostile and damaged files are refused."""

import contextlib
import io
import os
import stat
import tarfile
import zipfile

import numpy as np
import published_copies
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privjax.datasets import DataError, published
from privjax.datasets.published import open_files, read_matrix
from privjax.datasets.registry import PUBLISHED

FILES = {"set/a.txt": b"one\n" * 50, "set/b/c.txt": bytes(range(256)) * 20}


def write_zip(path, files=FILES):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def write_tar(path, files=FILES):
    with tarfile.open(path, f"w:{path.suffix[1:]}") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


WRITERS = {
    "a.zip": write_zip,
    "a.tar.xz": write_tar,
    "a.tar.gz": write_tar,
    "folder": published_copies.write_folder,
}
ARCHIVES = ["a.zip", "a.tar.xz", "a.tar.gz"]


def contents(path, scratch, **options):
    files = open_files(path, scratch, **options)
    return {name: files.read(name) for name in files.names}


@pytest.mark.parametrize("name", WRITERS)
def test_every_container_reads_alike(tmp_path, name):
    path = WRITERS[name](tmp_path / name, {**FILES, "__MACOSX/set/a.txt": b"metadata"})
    files = open_files(path, tmp_path / "scratch")
    assert files.names == list(FILES)
    assert {name: files.read(name) for name in files.names} == FILES
    assert files.find("b/c.txt") == "set/b/c.txt"
    assert files.label("set/a.txt") == f"{path}:set/a.txt"


def test_an_archive_in_an_archive_is_opened(tmp_path):
    inner = write_tar(tmp_path / "inner.tar.gz").read_bytes()
    outer = write_zip(tmp_path / "outer.zip", {"readme": b"", "sub/inner.tar.gz": inner})
    assert contents(outer, tmp_path / "scratch", nested=("inner.tar.gz",)) == FILES


def test_missing_and_duplicate_files_are_named(tmp_path):
    files = open_files(
        published_copies.write_folder(tmp_path / "set", {"x/a.txt": b"", "y/a.txt": b""}), tmp_path
    )
    with pytest.raises(DataError, match=r"set has no file train/X_train\.txt"):
        files.find("train/X_train.txt")
    with pytest.raises(DataError, match=r"set has 2 files a\.txt"):
        files.find("a.txt")


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
def test_truncated_archives_are_refused(tmp_path, name, keep):
    path = WRITERS[name](tmp_path / name)
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    with pytest.raises(DataError, match=rf"{path.name} is truncated or corrupt \(.*get the file again"):
        open_files(path, tmp_path / "scratch")


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_flipped_byte_never_changes_content(tmp_path, name):
    path = WRITERS[name](tmp_path / name)
    good = path.read_bytes()
    refused = 0
    for place in range(0, len(good), 3):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        try:
            found = contents(path, tmp_path / str(place))
        except DataError:
            refused += 1
        else:
            # The list of a zip may lose or rename a file, whose bytes stay as they were.
            assert all(content in FILES.values() for content in found.values())
    assert refused > len(good) // 9


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("member", ["../evil", "set/../../evil", "/tmp/privjax_evil", "..\\evil", "C:\\evil"])
def test_no_member_leaves_the_folder(tmp_path, name, member):
    path = WRITERS[name](tmp_path / name, {member: b"x"})
    with contextlib.suppress(DataError):  # a tar is refused; a zip stays inside the folder
        open_files(path, tmp_path / "scratch" / "here")
    outside = [p for p in tmp_path.rglob("*evil") if tmp_path / "scratch" / "here" not in p.parents]
    assert not outside
    assert not os.path.exists("/tmp/privjax_evil")


def test_links_are_left_out(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("set/link")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(info)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        info = zipfile.ZipInfo("set/link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    published_copies.write_folder(tmp_path / "folder", FILES)
    (tmp_path / "folder" / "set" / "link").symlink_to("/etc/passwd")
    assert contents(tmp_path / "a.tar.gz", tmp_path / "1") == {}
    assert contents(tmp_path / "a.zip", tmp_path / "2") == {"set/link": b"/etc/passwd"}  # text, not a link
    assert contents(tmp_path / "folder", tmp_path / "3") == FILES


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(published, "_LARGEST_RATIO", 5)
    bomb = WRITERS[name](tmp_path / name, {"zeros": bytes(6 << 20)})
    with pytest.raises(DataError, match="unpacks to over 5 times its size"):
        open_files(bomb, tmp_path / "scratch")
    outer = write_zip(tmp_path / "outer.zip", {name: bomb.read_bytes()})
    with pytest.raises(DataError, match=rf"outer\.zip:{name} unpacks to over 5 times"):
        open_files(outer, tmp_path / "twice", nested=(name,))
    assert sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file()) < 1 << 20


def test_a_member_larger_than_its_header_says_is_refused(tmp_path):
    path = write_zip(tmp_path / "a.zip", {"zeros": bytes(64 << 20)})
    data = bytearray(path.read_bytes())
    for place in (data.index(b"PK\1\2") + 24, 22):  # in the directory, and in the header of the member
        data[place : place + 4] = (1000).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"a\.zip is truncated or corrupt"):
        open_files(path, tmp_path / "scratch")


any_bytes = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


@any_bytes
@given(data=st.binary(max_size=200), ending=st.sampled_from([".zip", ".tar.xz", ".tgz"]))
def test_any_bytes_as_an_archive_are_refused(tmp_path_factory, data, ending):
    folder = tmp_path_factory.mktemp("any")
    (folder / f"a{ending}").write_bytes(data)
    with pytest.raises(DataError):
        open_files(folder / f"a{ending}", folder / "scratch")


@any_bytes
@given(data=st.binary(max_size=80), columns=st.integers(1, 4))
def test_any_bytes_as_numbers_are_finite_or_refused(tmp_path, data, columns):
    (tmp_path / "a.txt").write_bytes(data)
    try:
        matrix = read_matrix(open_files(tmp_path, tmp_path), "a.txt", columns=columns)
    except DataError:
        return
    assert matrix.shape[1] == columns
    assert np.isfinite(matrix).all()


# Small copies of the published layouts, and one fault in each.


def read(name, files, folder):
    published_copies.write_folder(folder / "files", files)
    return PUBLISHED[name].read(open_files(folder / "files", folder / "scratch"))


def test_small_copies_are_read(tmp_path):
    rows = read("har", published_copies.har(), tmp_path / "har")
    assert rows.arrays["x"].shape == (9, 561)
    assert rows.arrays["is_test"].tolist() == [False] * 6 + [True] * 3
    assert rows.arrays["user"].tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    assert rows.names["features"][:4] == ["f0", "f1#2", "f1#3", "f2#4"]
    rows = read("mhealth", published_copies.mhealth(), tmp_path / "mhealth")
    assert rows.arrays["x"].shape == (6, 23)
    assert rows.arrays["activity"].tolist() == [0, 0, 11] * 2
    assert rows.arrays["user"].tolist() == [2] * 3 + [9] * 3
    assert rows.arrays["frame"].tolist() == [1, 2, 4] * 2
    rows = read("hapt", published_copies.hapt(), tmp_path / "hapt")
    assert rows.arrays["activity"].tolist() == [4, 4, 11]
    assert rows.arrays["frame"].tolist() == [1, 2, 4]
    assert set(rows.arrays["user"]) == {1}
    assert read("hapt", published_copies.hapt_arrays(), tmp_path / "arrays").arrays["frame"].tolist() == [
        *range(250, 255)
    ]
    rows = read("yaleb", published_copies.yaleb(), tmp_path / "yaleb")
    np.testing.assert_array_equal(rows.arrays["x"][0, :, 0, 0], np.arange(32))  # stored by columns
    rows = read("cmu_faces", published_copies.cmu_faces(), tmp_path / "cmu")
    np.testing.assert_array_equal(rows.arrays["x"][0, :3, 0, 0], [0, 0, 32])  # the first line is doubled
    assert rows.arrays["x"].shape == (16, 32, 32, 1)
    assert rows.arrays["sunglasses"].sum() == 8
    assert rows.names["person"] == ["ann", "bob"]


def test_adult_has_a_column_for_every_class_and_none_of_the_private_variable(tmp_path):
    rows = read("adult", published_copies.adult(), tmp_path)
    assert rows.arrays["income"].tolist() == [0, 0, 1, 0, 1]
    assert rows.arrays["is_test"].tolist() == [False] * 3 + [True] * 2
    assert rows.names["sex"] == ["Female", "Male"]
    column = dict(zip(rows.names["features"], rows.arrays["x"].T, strict=True))
    assert column["age"].tolist() == [39, 18, 39, 18, 39]
    assert column["workclass=?"].tolist() == [0, 1, 0, 1, 0]
    assert column["native-country=Peru"].tolist() == [0, 0, 0, 0, 1]
    for private, other in (("sex", "race"), ("race", "sex")):
        how = {"protocol": "official", "seed": 0, "validation": 0.5}
        data = PUBLISHED["adult"].make_dataset(rows, private=private, **how)
        assert not [name for name in data.feature_names if name.startswith(private)]
        assert [name for name in data.feature_names if name.startswith(other)]
        assert data.split.test.tolist() == [3, 4]
    headed = {k: "age, workclass, fnlwgt\n" + v for k, v in published_copies.adult().items()}
    other = read("adult", headed, tmp_path / "headed")
    np.testing.assert_array_equal(other.arrays["x"], rows.arrays["x"])


FAULTS = {
    "adult: a cell less": (
        published_copies.adult,
        "adult.data",
        lambda t: t[4:],
        r"adult\.data.*'State-gov'",
    ),
    "adult: cut": (published_copies.adult, "adult.test", lambda t: t[:-12], r"adult\.test.*15 cells"),
    "adult: a cell more": (published_copies.adult, "adult.test", lambda t: t[:-3] + ", 1\n", r"adult\.test"),
    "adult: an age": (published_copies.adult, "adult.data", lambda t: "old" + t[2:], r"adult\.data.*'old'"),
    "adult: an income": (published_copies.adult, "adult.data", lambda t: t[:-4] + "k\n", "<=50K or >50K"),
    "adult: empty": (published_copies.adult, "adult.test", "", r"adult\.test"),
    "har: a word": (published_copies.har, "train/X_train.txt", lambda t: "abc" + t[3:], r"X_train.*'abc"),
    "har: nan": (
        published_copies.har,
        "train/X_train.txt",
        lambda t: "nan " + t[15:],
        "561 finite numbers per line",
    ),
    "har: too large": (
        published_copies.har,
        "train/X_train.txt",
        lambda t: "1e39 " + t[15:],
        "561 finite numbers",
    ),
    "har: a column less": (
        published_copies.har,
        "test/X_test.txt",
        lambda t: t.rpartition(" ")[0],
        r"X_test\.txt.*columns",
    ),
    "har: an empty file": (
        published_copies.har,
        "test/X_test.txt",
        lambda t: "",
        r"X_test\.txt is truncated",
    ),
    "har: no file": (published_copies.har, "test/X_test.txt", None, r"no file test/X_test\.txt"),
    "har: an activity": (
        published_copies.har,
        "train/y_train.txt",
        lambda t: "7" + t[1:],
        r"y_train.*1 to 6, got 7",
    ),
    "har: half a user": (
        published_copies.har,
        "test/subject_test.txt",
        lambda t: "1.5" + t[1:],
        "1 to 30, got 1.5",
    ),
    "har: a label less": (
        published_copies.har,
        "test/y_test.txt",
        lambda t: t[2:],
        "y_test.*2 lines where X_test.txt has 3",
    ),
    "har: names": (
        published_copies.har,
        "features.txt",
        lambda t: "1 \udcff\n",
        r"features\.txt has 1 names where 561",
    ),
    "mhealth: a label": (
        published_copies.mhealth,
        "mHealth_subject3.log",
        lambda t: t[:-3] + "13\n",
        "subject3.*got 13",
    ),
    "mhealth: a comma": (
        published_copies.mhealth,
        "mHealth_subject3.log",
        lambda t: "0,5" + t[3:],
        r"subject3\.log.*'0,5'",
    ),
    "mhealth: subject 11": (
        published_copies.mhealth,
        "mHealth_subject11.log",
        "",
        "subject 11 is not one of 1 to 10",
    ),
    "mhealth: twice": (
        published_copies.mhealth,
        "copy/mHealth_subject3.log",
        "",
        r"2 files mHealth_subject3\.log",
    ),
    "hapt: half": (
        published_copies.hapt,
        "RawData/labels.txt",
        lambda t: "1 2 2.5 1 3",
        r"labels\.txt.*got 2.5",
    ),
    "hapt: activity 13": (
        published_copies.hapt,
        "RawData/labels.txt",
        lambda t: "1 2 13 1 3",
        r"labels\.txt.*got 13",
    ),
    "hapt: no signal": (
        published_copies.hapt,
        "RawData/labels.txt",
        lambda t: "2 1 5 1 3",
        r"no file acc_exp02_user01\.txt",
    ),
    "hapt: frames": (
        published_copies.hapt,
        "RawData/labels.txt",
        lambda t: "1 2 5 3 5",
        "recording 1 has no frames 3 to 5",
    ),
    "hapt: lengths": (
        published_copies.hapt,
        "RawData/gyro_exp01_user02.txt",
        lambda t: t[6:],
        "differ in length",
    ),
    "cmu: size": (
        published_copies.cmu_faces,
        "faces/ann/ann_left_sad_open_4.pgm",
        b"P5\n4 3\n255\n123456789012",
        "30 x 32",
    ),
    "cmu: cut": (
        published_copies.cmu_faces,
        "faces/ann/ann_left_sad_open_4.pgm",
        lambda t: t[:-1],
        r"_4\.pgm is not a PGM",
    ),
    "cmu: text": (
        published_copies.cmu_faces,
        "faces/ann/ann_left_sad_open_4.pgm",
        b"P2\n32 30\n255\n1 2",
        "not a PGM",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_published_file_is_refused_with_its_name(tmp_path, fault):
    make, name, change, message = FAULTS[fault]
    files = make()
    files[name] = change(files[name]) if callable(change) else change
    with pytest.raises(DataError, match=message):
        read(make.__name__, {k: v for k, v in files.items() if v is not None}, tmp_path)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("hapt", {"activity": np.full(5, 13)}, "activity: labels must be integers from 1 to 12, got 13"),
        ("hapt", {"activity": np.full(5, 1.5)}, "activity: .* got 1.5"),
        ("hapt", {"subject": np.full(5, np.nan)}, "subject: .* got nan"),
        ("hapt", {"x": np.zeros((5, 7))}, "x must be finite floats"),
        ("hapt", {"x": np.zeros((0, 6))}, "x must be finite floats"),
        ("hapt", {"x": np.full((5, 6), np.nan)}, "x must be finite floats"),
        ("hapt", {"frame": np.arange(4)}, "frame must be 5 integers"),
        ("hapt", {"frame": None}, "truncated or corrupt"),
        ("hapt", {"activity": np.array([None] * 5)}, "truncated or corrupt"),  # would need pickle
        ("yaleb", {"gnd": np.full((4, 1), 39)}, "gnd: labels must be integers from 1 to 38, got 39"),
        ("yaleb", {"gnd": np.full((4, 1), np.nan)}, "gnd: .* got nan"),
        ("yaleb", {"gnd": np.full((3, 1), 1)}, r"fea must be grey values \[n, 1024\]"),
        ("yaleb", {"fea": np.zeros((0, 1024)), "gnd": np.zeros((0, 1))}, "fea must be"),
        ("yaleb", {"fea": np.full((4, 1024), 0.5)}, "fea: .* from 0 to 255, got 0.5"),
        ("yaleb", {"fea": np.zeros((4, 1000))}, "fea must be"),
    ],
)
def test_wrong_arrays_are_refused_by_name(tmp_path, name, changes, message):
    make = {"hapt": published_copies.hapt_arrays, "yaleb": published_copies.yaleb}[name]
    with pytest.raises(DataError, match=message):
        read(name, make(**changes), tmp_path)


def meglass(folder, lines, *, places=("images/{}",)):
    """Write a list and an image for each of its lines."""
    from PIL import Image

    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "meta.txt").write_text("\n".join(lines))
    for line in lines:
        for place in places:
            path = folder / place.format(line.split()[0])
            path.parent.mkdir(exist_ok=True)
            Image.new("RGB", (120, 120), (255, 0, 0)).save(path)
    return [open_files(folder / name, folder / "scratch") for name in ("meta", "images")]


def test_meglass_images_are_grey_and_small(tmp_path):
    rows = PUBLISHED["meglass"].read(*meglass(tmp_path, ["b@1.jpg 1", "a@2@3.jpg 0", "b@4.jpg 0"]))
    assert rows.arrays["x"].shape == (3, 32, 32, 1)
    np.testing.assert_allclose(rows.arrays["x"], 76, atol=1)  # the brightness of red
    assert rows.arrays["person"].tolist() == [0, 1, 0]
    assert rows.arrays["glasses"].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("lines", "places", "message"),
    [
        (["a@1.jpg 2"], ["images/{}"], "meta.txt: every line must be .* got 'a@1.jpg 2'"),
        (["a1.jpg 1"], ["images/{}"], "every line must be <person>@<image> and 0 or 1, got 'a1.jpg 1'"),
        (["a@1.jpg 1", "a@1.jpg 0"], ["images/{}"], "each image once"),
        (["a@1.jpg 1"], ["images/{}", "images/copy-{}"], None),
        (["a@1.jpg 1"], ["images/copy-{}"], r"images has no file a@1\.jpg"),
    ],
)
def test_meglass_faults_are_refused(tmp_path, lines, places, message):
    sources = meglass(tmp_path, lines, places=places)
    if message is None:
        assert len(PUBLISHED["meglass"].read(*sources).arrays["x"]) == 1
    else:
        with pytest.raises(DataError, match=message):
            PUBLISHED["meglass"].read(*sources)
    for path in (tmp_path / "images").iterdir():
        path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError):
        PUBLISHED["meglass"].read(*sources)
