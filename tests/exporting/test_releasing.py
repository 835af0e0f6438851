"""The release of files of rows: every format, block by block, completely or not at all."""

import dataclasses
import resource
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from privjax import baselines, datasets
from privjax.datasets import Column
from privjax.datasets.stream import open_rows
from privjax.encoder import Encoder
from privjax.exporting import FileEncoder, load_file, release_file, releasing
from privjax.exporting.device import write_encoder

pandas = pytest.importorskip("pandas")
COLOURS = ("blue", "green", "red")


def make_people(rows, seed=0):
    rng = np.random.default_rng(seed)
    return pandas.DataFrame(
        {
            "who": [f"user{i % 3}" for i in range(rows)],
            "age": rng.integers(18, 90, rows),
            "colour": rng.choice(COLOURS, rows),
            "doing": rng.choice(["rest", "walk"], rows),
            "smoker": rng.choice([True, False], rows),
            "speed": rng.normal(3.0, 2.0, rows),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of encoders for people, some of whom lack their age or colour."""
    folder = tmp_path_factory.mktemp("people")
    people = make_people(120)
    people["age"] = people["age"].astype(object).mask(np.arange(120) % 40 == 7)
    people["colour"] = people["colour"].mask(np.arange(120) % 40 == 9)
    people.to_csv(folder / "people.csv", index=False)
    data = training_data(folder)
    encoder = baselines.random_projection(data.x, num_features=4)
    encoder.save(folder / "trained.npz")
    columns = [column.to_dict() for column in data.columns]
    for suffix in ("npz", "onnx", "stablehlo"):
        write_encoder(encoder, folder / f"encoder.{suffix}", names=data.feature_names, columns=columns)
    return folder


def training_data(folder):
    return datasets.from_table(folder / "people.csv", utility="doing", private="who", missing="impute")


@pytest.fixture(scope="module")
def encoder(folder):
    return load_file(folder / "encoder.npz")


def encoded(people):
    """Encode x by hand, in the order of training: age, one column per colour, smoker, speed."""
    colours = [people["colour"] == colour for colour in COLOURS]
    columns = [people["age"], *colours, people["smoker"], people["speed"]]
    return np.stack([np.asarray(column, np.float32) for column in columns], axis=1)


def read(path):
    if path.suffix == ".npz":
        with np.load(path) as file:
            assert file.files == ["z"]
            return file["z"]
    if path.suffix == ".npy":
        return np.load(path)
    frame = pandas.read_csv(path) if path.suffix == ".csv" else pandas.read_parquet(path)
    assert list(frame.columns) == [f"z{i}" for i in range(frame.shape[1])]
    return frame.to_numpy(np.float32)


def write(people, path):
    if path.suffix == ".csv":
        people.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        people.to_parquet(path)
    elif path.suffix == ".npy":
        np.save(path, encoded(people))
    else:
        arrays = {n: c.to_numpy(None if c.dtype.kind in "bif" else "U") for n, c in people.items()}
        if path.suffix == ".npz":
            return np.savez(path, **arrays)
        path.mkdir()
        for name, array in arrays.items():
            np.save(path / f"{name}.npy", array)


def test_the_header_describes_the_columns(encoder):
    header = encoder.header
    assert header.input_shape == (6,)
    assert [column["name"] for column in header.columns] == ["age", "colour", "smoker", "speed"]
    assert header.columns[1]["classes"] == list(COLOURS)
    assert header.columns[1]["fill"] in COLOURS
    assert header.names[1] == "colour=blue"
    assert not {"who", "doing", "user0"} & set(str(header).replace("'", " ").split())


@pytest.mark.parametrize("given", [".csv", ".parquet", ".npz", ".npy", ""])
def test_every_format_gives_the_same_release_file(folder, encoder, tmp_path, given):
    people = make_people(50, seed=1)
    expected = encoder(encoded(people))
    assert np.abs(expected).max() > 0.1
    # Extra columns, another order and absent labels have no effect.
    changed = people[["speed", "doing", "smoker", "colour", "age"]].assign(note=["12", "many"] * 25)
    write(changed, tmp_path / f"rows{given}")
    for wanted in (".csv", ".parquet", ".npz", ".npy"):
        for rows in (7, 50, 65536):
            summary = release_file(
                folder / "encoder.npz",
                tmp_path / f"rows{given}",
                to=tmp_path / "new" / f"z{wanted}",
                block_rows=rows,
            )
            assert (summary.rows, summary.width) == (50, 4)
            assert summary.seconds > 0
            np.testing.assert_allclose(read(tmp_path / "new" / f"z{wanted}"), expected, rtol=1e-5)
    assert {p.name for p in (tmp_path / "new").iterdir()} == {"z.csv", "z.parquet", "z.npz", "z.npy"}


@pytest.mark.parametrize("kind", ["onnx", "stablehlo"])
def test_every_encoder_gives_the_same_release_file(folder, encoder, tmp_path, kind):
    people = make_people(20, seed=2)
    write(people, tmp_path / "rows.csv")
    release_file(folder / f"encoder.{kind}", tmp_path / "rows.csv", to=tmp_path / "z.npy", block_rows=8)
    expected = encoder(encoded(people))
    np.testing.assert_allclose(np.load(tmp_path / "z.npy"), expected, atol=1e-5 * np.abs(expected).max())


def test_training_rows_are_encoded_as_in_training(folder, tmp_path):
    """Missing cells are filled as in training."""
    release_file(folder / "encoder.npz", folder / "people.csv", to=tmp_path / "z.npz")
    expected = Encoder.load(folder / "trained.npz")(training_data(folder).x)
    np.testing.assert_allclose(read(tmp_path / "z.npz"), expected, atol=1e-5 * np.abs(expected).max())


def test_float32_survives_a_csv(folder, encoder, tmp_path):
    people = make_people(30, seed=3)
    write(people, tmp_path / "rows.parquet")
    release_file(folder / "encoder.npz", tmp_path / "rows.parquet", to=tmp_path / "z.csv")
    release_file(folder / "encoder.npz", tmp_path / "rows.parquet", to=tmp_path / "z.npy")
    np.testing.assert_array_equal(read(tmp_path / "z.csv"), np.load(tmp_path / "z.npy"))


def refused(folder, tmp_path, match, people=None, source="rows.csv", to="z.csv"):
    if people is not None:
        write(people, tmp_path / source)
    old = tmp_path / to
    old.parent.mkdir(exist_ok=True)
    old.write_text("old")
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=match) as error:
        release_file(folder / "encoder.npz", tmp_path / source, to=old, block_rows=2)
    assert str(error.value).count("\n") == 0
    assert str(error.value).endswith(".")
    assert "kinds=" not in str(error.value)
    assert old.read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("column", "value", "match"),
    [
        ("colour", "mauve", "line 5: column 'colour' holds 'mauve', none of its 3 classes"),
        ("age", "old", "line 5: 'old' in column 'age' is not a number"),
        ("speed", "inf", "line 5: 'inf' in column 'speed' is not finite"),
        ("speed", "1e39", "line 5: column 'speed' holds 1e[+]39, which is not finite in 32-bit"),
        ("speed", "", "line 5: column 'speed' is missing, as it never was in training"),
        ("speed", "nan", "line 5: column 'speed' is missing"),
        ("smoker", "perhaps", "line 5: 'perhaps' in column 'smoker' is not true or false"),
    ],
)
def test_an_invalid_cell_is_named(folder, tmp_path, monkeypatch, column, value, match):
    people = make_people(6, seed=4).astype(object)
    people.loc[3, column] = value
    if "never was" in match or value == "nan":  # as after training without missing cells
        monkeypatch.setattr(releasing, "load_file", without_fill)
    refused(folder, tmp_path, match, people)


def without_fill(path):
    """Load an encoder whose training data had no missing cells."""
    encoder = load_file(path)
    columns = tuple({k: v for k, v in column.items() if k != "fill"} for column in encoder.header.columns)
    encoder.header = dataclasses.replace(encoder.header, columns=columns)
    return encoder


def test_an_invalid_table_is_named(folder, tmp_path):
    people = make_people(4)
    refused(folder, tmp_path, "rows.csv has no column 'age'", people.drop(columns="age"))
    refused(folder, tmp_path, "has no column 'age'", people.drop(columns="age"), "rows.parquet")
    refused(folder, tmp_path, "is not finite", people.assign(speed=np.inf), "rows.parquet")
    refused(
        folder, tmp_path, "row 0: column 'age' holds 'x', where a number", people.assign(age="x"), "rows.npz"
    )
    refused(
        folder, tmp_path, "'smoker' holds 7, where true or false", people.assign(smoker=7), "rows.parquet"
    )
    refused(folder, tmp_path, "nowhere.csv does not exist", source="nowhere.csv")
    refused(folder, tmp_path, "must end in .csv, .parquet, .npz, .npy", people, to="z.txt")
    (tmp_path / "rows.csv").write_text("")
    refused(folder, tmp_path, "names of the columns are missing")
    (tmp_path / "rows.csv").write_text("age,colour,smoker,speed\n1,red\n")
    refused(folder, tmp_path, "line 2: 2 columns where 4 are expected")
    (tmp_path / "rows.npz").write_bytes(b"PK nonsense")
    refused(folder, tmp_path, "truncated or corrupt", source="rows.npz")
    np.save(tmp_path / "rows.npy", np.zeros((3, 5)))
    refused(folder, tmp_path, "has 5 columns where x has 6", source="rows.npy")
    np.save(tmp_path / "rows.npy", np.array([[1, 2, 3, 4, 5, np.nan]]))
    refused(folder, tmp_path, r"row 0: column 'rows\[5\]' is missing", source="rows.npy")
    np.save(tmp_path / "rows.npy", np.full((3, 6), 3e38))  # finite, but products overflow
    refused(folder, tmp_path, "too large for the encoder", source="rows.npy")
    np.save(tmp_path / "rows.npy", np.full((3, 6), None), allow_pickle=True)
    refused(folder, tmp_path, "Python objects", source="rows.npy")
    np.savez(tmp_path / "rows.npz", a=np.zeros((3, 6)), b=np.zeros((3, 6)))
    refused(folder, tmp_path, "has 6, 6 columns where x has 6", source="rows.npz")


def test_the_matrix_is_found_among_other_arrays(folder, encoder, tmp_path):
    x = encoded(make_people(9, seed=5))
    np.savez_compressed(tmp_path / "rows.npz", y=np.arange(9), x=x, names=np.array(["a", "b"]), k=np.array(3))
    release_file(folder / "encoder.npz", tmp_path / "rows.npz", to=tmp_path / "z.npz", block_rows=4)
    # Products of other blocks round differently.
    np.testing.assert_allclose(read(tmp_path / "z.npz"), encoder(x), rtol=1e-6, atol=1e-7)


def test_rows_of_an_encoder_without_columns(folder, encoder, tmp_path, monkeypatch):
    """Features are picked by name if the file has their names; otherwise x is read in its order."""
    x = encoded(make_people(9, seed=6))
    names = list(encoder.header.names)
    unknown = FileEncoder(dataclasses.replace(encoder.header, columns=None), encoder.apply)
    monkeypatch.setattr(releasing, "load_file", lambda path: unknown)
    by_name = pandas.DataFrame(x, columns=names)
    write(by_name.iloc[:, ::-1].assign(label=1), tmp_path / "named.csv")
    release_file(folder / "encoder.npz", tmp_path / "named.csv", to=tmp_path / "z.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), encoder(x))
    in_order = pandas.DataFrame(x, columns=list("abcdef"))
    write(in_order, tmp_path / "plain.csv")
    release_file(folder / "encoder.npz", tmp_path / "plain.csv", to=tmp_path / "z.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), encoder(x))
    refused(folder, tmp_path, "has no column 'age'", by_name.drop(columns="age").assign(other=1.0))
    refused(folder, tmp_path, "has 7 columns where x has 6", in_order.assign(other=1.0))
    (tmp_path / "rows.csv").write_text("1,2,3,4,5,6\n6,5,4,3,2,1\n")
    refused(folder, tmp_path, "line 1: the names of the columns are missing")


def test_classes_of_any_type_are_matched_to_the_text_of_a_file(tmp_path):
    """Classes may be numbers or truth values."""
    columns = [Column("zip", ("01", "2")), Column("level", (1, 3), fill=3), Column("on", (False, True))]
    path = tmp_path / "rows.csv"
    path.write_text("on,zip,level\ntrue,01,3\nFalse,2,\nTRUE,2,1\n")
    expected = np.array([[1, 0, 0, 1, 0, 1], [0, 1, 0, 1, 1, 0], [0, 1, 1, 0, 0, 1]], np.float32)
    np.testing.assert_array_equal(np.concatenate(list(open_rows(path, 6, columns=columns).blocks)), expected)
    frame = pandas.DataFrame({"on": [True, False, True], "zip": ["01", "2", "2"], "level": [3.0, None, 1.0]})
    frame.to_parquet(tmp_path / "rows.parquet")
    opened = open_rows(tmp_path / "rows.parquet", 6, columns=columns)
    np.testing.assert_array_equal(np.concatenate(list(opened.blocks)), expected)
    assert opened.total == 3
    with pytest.raises(ValueError, match="do not make rows of 6 numbers"):
        open_rows(path, 6, columns=[Column("zip")])


def test_zero_rows_give_a_complete_file(folder, tmp_path):
    write(make_people(0), tmp_path / "rows.csv")
    for suffix in (".csv", ".parquet", ".npz", ".npy"):
        summary = release_file(folder / "encoder.npz", tmp_path / "rows.csv", to=tmp_path / f"z{suffix}")
        assert summary.rows == 0
        assert read(tmp_path / f"z{suffix}").shape == (0, 4)


def test_neither_the_source_nor_the_encoder_is_overwritten(folder, tmp_path):
    people = make_people(3)
    write(people, tmp_path / "rows.csv")
    (tmp_path / "link.csv").symlink_to(tmp_path / "rows.csv")
    before = (tmp_path / "rows.csv").read_bytes(), (folder / "encoder.npz").read_bytes()
    for to, name in (("rows.csv", "source"), ("link.csv", "source"), (folder / "encoder.npz", "encoder")):
        with pytest.raises(ValueError, match=f"to is the {name} itself"):
            release_file(folder / "encoder.npz", tmp_path / "rows.csv", to=tmp_path / to)
    assert before == ((tmp_path / "rows.csv").read_bytes(), (folder / "encoder.npz").read_bytes())
    (tmp_path / "rows").mkdir()
    for name in people:
        np.save(tmp_path / "rows" / f"{name}.npy", people[name].to_numpy())
    array = tmp_path / "rows" / f"{people.columns[0]}.npy"
    before = array.read_bytes()
    with pytest.raises(ValueError, match="to is one of the arrays of the source"):
        release_file(folder / "encoder.npz", tmp_path / "rows", to=array)
    assert array.read_bytes() == before


def test_progress_is_reported(folder, tmp_path, capsys):
    write(make_people(25), tmp_path / "rows.csv")
    release_file(
        folder / "encoder.npz", tmp_path / "rows.csv", to=tmp_path / "z.npy", block_rows=10, progress="log"
    )
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in lines] == [f"release: {done}/25 rows" for done in (10, 20, 25)]


KILLED = """
import os, signal, sys
from privjax.exporting import releasing as room
opened = room.open_rows
def open_rows(*args, **options):
    rows = opened(*args, **options)
    def blocks():
        yield next(rows.blocks)
        os.kill(os.getpid(), signal.SIGKILL)
    return rows._replace(blocks=blocks())
room.open_rows = open_rows
room.release_file(sys.argv[1], sys.argv[2], to=sys.argv[3], block_rows=5)
"""


def test_a_kill_leaves_the_old_file(folder, tmp_path):
    write(make_people(20), tmp_path / "rows.csv")
    (tmp_path / "z.csv").write_text("old")
    arguments = [str(folder / "encoder.npz"), str(tmp_path / "rows.csv"), str(tmp_path / "z.csv")]
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (tmp_path / "z.csv").read_text() == "old"
    release_file(*arguments[:2], to=arguments[2])
    assert len(read(tmp_path / "z.csv")) == 20


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz", ".npy"])
def test_a_full_disk_leaves_the_old_file(folder, tmp_path, suffix):
    write(make_people(200), tmp_path / "rows.csv")
    (tmp_path / f"z{suffix}").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            release_file(folder / "encoder.npz", tmp_path / "rows.csv", to=tmp_path / f"z{suffix}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / f"z{suffix}").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_memory_does_not_grow_with_the_rows(folder, tmp_path, suffix):
    def peak(rows):
        write(make_people(rows), tmp_path / f"rows{suffix}")
        tracemalloc.start()
        try:
            release_file(
                folder / "encoder.npz", tmp_path / f"rows{suffix}", to=tmp_path / f"z{suffix}", block_rows=500
            )
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(500)  # allocations that happen once
    few, many = peak(1000), peak(20_000)
    assert many < 1.2 * few + 100_000
    assert many < 20_000 * 6 * 8  # less than the size of the rows


def test_other_columns_of_a_parquet_file_may_be_anything(folder, encoder, tmp_path):
    people = make_people(9, seed=7)
    odd = people.assign(when=pandas.Timestamp("2020-01-01"), path=[[1, 2]] * 9)
    write(odd, tmp_path / "rows.parquet")
    release_file(folder / "encoder.npz", tmp_path / "rows.parquet", to=tmp_path / "z.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), encoder(encoded(people)))
