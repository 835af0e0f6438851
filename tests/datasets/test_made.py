"""MHEALTH on logs of full length, HAPT in its published layout, MeGlass on made photographs."""

import io
import zipfile

import numpy as np
import pytest

from privjax.datasets import DataError, load
from privjax.datasets.archives import open_tree
from privjax.datasets.faces import meglass_rows
from privjax.datasets.prepared import prepared_arrays
from privjax.datasets.recipes import is_complete
from privjax.datasets.sources import SOURCES
from privjax.datasets.splits import per_label_split, sampled_people_groups

# Frames of the twelve activities of one user: a minute at 50 Hz, or twenty repetitions.
LENGTHS = (3072, 3072, 3072, 3072, 3072, 2900, 2950, 2860, 3072, 3072, 3072, 1030)


def write_log(path, user, pause):
    """A log with the published columns and lengths, made of lines that say who and what."""
    rng = np.random.default_rng(user)
    lines = []
    for activity, length in enumerate(LENGTHS, start=1):
        for label, count in ((0, pause), (activity, length)):
            cells = rng.normal(label, 1.0, (16, 23)).round(4)
            texts = [" ".join(map(str, row)) + f" {label}" for row in cells]
            lines += (texts * (count // 16 + 1))[:count]
    path.write_text("\n".join(lines) + "\n")
    return len(lines)


@pytest.fixture(scope="module")
def mhealth(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mhealth")
    logs = folder / "MHEALTHDATASET"
    logs.mkdir()
    # The first user's log is as long as the published one, 161280 lines; pauses are most of it.
    lengths = [
        write_log(logs / f"mHealth_subject{user}.log", user, 10_580 if user == 1 else 300)
        for user in range(1, 11)
    ]
    assert abs(lengths[0] - 161_280) < 100
    return folder


def test_mhealth_on_logs_of_full_length(mhealth, timed, tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("mhealth_prepared")
    data = load("mhealth", data_dir=data_dir, manual_dir=mhealth, seed=4)
    assert [len(rows) for rows in data.split] == [12_000, 1_200, 3_000]  # the paper's numbers
    assert data.x.shape == (16_200, 23)
    for rows, count in ((data.split.train, 100), (data.split.test, 25)):
        table = np.zeros((10, 12), int)
        np.add.at(table, (data.s[rows], data.y[rows]), 1)
        assert (table == count).all()
    assert data.provenance["complete"] is False  # made logs are not the published ones
    again, seconds = timed(load, "mhealth", data_dir=data_dir, manual_dir=mhealth, seed=4)
    assert seconds < 2.0
    assert again.content_hash == data.content_hash
    arrays, _ = prepared_arrays(SOURCES["mhealth"], data_dir=data_dir)
    np.testing.assert_array_equal(np.bincount(arrays["activity"]), 10 * np.array(LENGTHS))
    # Frames are numbered by the lines of the log, pauses included.
    first = arrays["frame"][(arrays["user"] == 0) & (arrays["activity"] == 0)]
    assert first[0] == 10_581
    from privjax.datasets.splits import separated_frames_split

    keys = ("activity", "user", "recording", "frame")
    for seed in range(5):
        split = separated_frames_split(*(arrays[k] for k in keys), seed=seed)
        for user in range(10):
            train = arrays["frame"][split.train[arrays["user"][split.train] == user]]
            test = arrays["frame"][split.test[arrays["user"][split.test] == user]]
            assert np.abs(train[:, None] - test[None]).min() > 400


def test_hapt_in_its_published_layout(shared_data, tmp_path):
    with np.load(shared_data / "hapt_frames.npz") as file:
        keys = ("x", "activity", "subject", "recording", "frame")
        frames = {k: file[k][file["recording"] < 2] for k in keys}
    files, labels = {}, []
    for number in (0, 1):
        mine = {k: v[frames["recording"] == number] for k, v in frames.items()}
        user = int(mine["subject"][0])
        signal = np.zeros((mine["frame"].max(), 6))
        signal[mine["frame"] - 1] = mine["x"]
        for kind, part in (("acc", signal[:, :3]), ("gyro", signal[:, 3:])):
            text = "\n".join(" ".join(repr(float(v)) for v in row) for row in part)
            files[f"RawData/{kind}_exp{number + 1:02d}_user{user:02d}.txt"] = text + "\n"
        cuts = np.flatnonzero(np.diff(mine["activity"]) | (np.diff(mine["frame"]) != 1)) + 1
        for a, b in zip(np.r_[0, cuts], np.r_[cuts, len(mine["frame"])], strict=True):
            where = (mine["frame"][a], mine["frame"][b - 1])
            labels.append(f"{number + 1} {user} {mine['activity'][a]} {where[0]} {where[1]}")
    files["RawData/labels.txt"] = "\n".join(labels) + "\n"
    name = SOURCES["hapt"].needs[0][0]

    def pack(files):
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as file:
            for member, text in files.items():
                file.writestr(member, text)

    pack(files)
    options = {"data_dir": tmp_path / "data", "manual_dir": tmp_path}
    arrays, _ = prepared_arrays(SOURCES["hapt"], **options)
    np.testing.assert_array_equal(arrays["x"], frames["x"])
    np.testing.assert_array_equal(arrays["frame"], frames["frame"])
    np.testing.assert_array_equal(arrays["activity"] + 1, frames["activity"])
    np.testing.assert_array_equal(arrays["recording"], frames["recording"])
    far = files["RawData/labels.txt"].replace(labels[3], labels[3].rpartition(" ")[0] + " 999999")
    pack({**files, "RawData/labels.txt": far})
    with pytest.raises(DataError, match=r"labels\.txt, line 4: user 1, frames \d+ to 999999"):
        prepared_arrays(SOURCES["hapt"], force=True, **options)
    one_less = {k: v for k, v in files.items() if "gyro_exp02" not in k}
    pack(one_less)
    with pytest.raises(DataError, match=r"no file gyro_exp02_user01\.txt"):
        prepared_arrays(SOURCES["hapt"], force=True, **options)
    # What failed left the sound set in place.
    arrays, _ = prepared_arrays(SOURCES["hapt"], data_dir=tmp_path / "data")
    assert len(arrays["x"]) == len(frames["x"])


def photographs(count):
    """Small made JPEGs: bright above for glasses, and a shade per picture."""
    from PIL import Image

    made = []
    for number in range(count):
        pixels = np.full((40, 40, 3), 40 + 2 * (number // 2), np.uint8)
        pixels[:20] += 90 * (number % 2)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG")
        made.append(buffer.getvalue())
    return made


PEOPLE = 505  # of the 1565: enough to sample 500 from, and a third of the work


@pytest.fixture(scope="module")
def meglass(shared_data, tmp_path_factory):
    """The published names of some people, each with a made photograph."""
    folder = tmp_path_factory.mktemp("meglass")
    meta = open_tree(shared_data / "MeGlass_meta.zip")
    rows = [row for row in meglass_rows(meta) if row[2] < PEOPLE]
    made = photographs(100)
    with zipfile.ZipFile(folder / "MeGlass_120x120.zip", "w") as file:
        for _, name, person, glasses in rows:
            file.writestr(f"MeGlass_120x120/{name}", made[2 * (person % 50) + glasses])
    (folder / "meta.txt").write_text("".join(f"{name} {g}\n" for _, name, _, g in rows))
    return folder, np.array([g for *_, g in rows])


def test_meglass_on_made_photographs(meglass, timed, tmp_path_factory):
    folder, glasses = meglass
    data_dir = tmp_path_factory.mktemp("meglass_prepared")
    data = load("meglass", data_dir=data_dir, manual_dir=folder, seed=1, scale="none")
    arrays, _ = prepared_arrays(SOURCES["meglass"], data_dir=data_dir)
    assert arrays["x"].shape == (len(glasses), 32, 32, 1)
    np.testing.assert_array_equal(arrays["glasses"], glasses)
    assert len(np.unique(arrays["person"])) == PEOPLE
    assert data.provenance["complete"] is False
    assert data.x.shape[1:] == (32, 32, 1)
    assert 12_000 < len(data) < 19_000  # the paper: roughly 15600
    assert len(data.s_names) == 100
    assert data.y_names == ("no glasses", "glasses")
    # The picture belongs to its label: bright above only with glasses.
    above = data.x[:, :14].mean(axis=(1, 2, 3)) - data.x[:, 18:].mean(axis=(1, 2, 3))
    np.testing.assert_array_equal(above > 0.17, data.y == 1)
    again, seconds = timed(load, "meglass", data_dir=data_dir, seed=1, scale="none")
    assert seconds < 2.0
    assert again.content_hash == data.content_hash


def test_meglass_published_counts(shared_data):
    rows = meglass_rows(open_tree(shared_data / "MeGlass_meta.zip"))
    person = np.array([person for _, _, person, _ in rows])
    glasses = np.array([worn for *_, worn in rows])
    assert len(rows) == 47_917
    np.testing.assert_array_equal(np.bincount(glasses), [33_085, 14_832])
    assert len(np.unique(person)) == 1565  # the paper's count
    for each in (np.bincount(person[glasses == g]) for g in (0, 1)):
        assert each.min() >= 2  # the paper: two photographs of each kind at least
    arrays = {"x": person, "person": person, "glasses": glasses}
    published = SOURCES["meglass"].published
    assert is_complete("meglass", arrays, {}, published)
    assert not is_complete("meglass", {k: v[1:] for k, v in arrays.items()}, {}, published)


def test_meglass_protocol_on_the_published_list(shared_data):
    rows = meglass_rows(open_tree(shared_data / "MeGlass_meta.zip"))
    people = np.array([person for _, _, person, _ in rows])
    sizes = []
    for seed in range(30):
        kept, group = sampled_people_groups(people, seed=seed)
        sizes.append(len(kept))
        pairs = np.unique(np.stack([people[kept], group], axis=1), axis=0)
        np.testing.assert_array_equal(np.bincount(pairs[:, 1]), np.full(100, 5))
        assert np.bincount(group).max() <= 0.045 * len(kept)
        split = per_label_split(people[kept], seed=seed)
        number = np.unique(people[kept], return_inverse=True)[1]
        tested = np.bincount(number[split.test], minlength=500)
        assert np.abs(tested - 0.2 * np.bincount(number)).max() < 1.0
    assert 14_500 < np.mean(sizes) < 16_500  # the paper: roughly 15600


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("one@N00_identity_1@5_0.jpg 2", r"meta\.txt, line 3: the label 2 is not one of 0 to 1"),
        ("one@N00_identity_1@5_0.jpg", r"meta\.txt, line 3: 1 columns where 2 are expected"),
        ("../one@N00.jpg 1", r"meta\.txt, line 3: .* is not the name of an image"),
        ("one@N00_identity_1@1_0.jpg 1", r"meta\.txt, line 3: one@.* is listed twice"),
        ("one@N00_identity_1@9_0.jpg 1", r"meta\.txt, line 3: .* has no image one@"),
        ("one@N00_identity_1@3_0.jpg 1", r"3_0\.jpg is not a sound image"),
        ("one@N00_identity_1@4_0.jpg 1", r"meta\.txt, line 3: .* has two images one@.*: keep one"),
    ],
)
def test_bad_lines_and_photographs_are_named(tmp_path, line, message):
    folder = tmp_path / "MeGlass_120x120"
    folder.mkdir()
    (made,) = photographs(1)
    for number in (1, 2):
        (folder / f"one@N00_identity_1@{number}_0.jpg").write_bytes(made)
    (folder / "one@N00_identity_1@3_0.jpg").write_bytes(made[: len(made) // 3])
    (folder / "more").mkdir()
    for place in (folder, folder / "more"):
        (place / "one@N00_identity_1@4_0.jpg").write_bytes(made)
    names = "one@N00_identity_1@1_0.jpg 0\none@N00_identity_1@2_0.jpg 1\n"
    (tmp_path / "meta.txt").write_text(names + line + "\n")
    with pytest.raises(DataError, match=message):
        load("meglass", data_dir=tmp_path / "data", manual_dir=tmp_path)
    assert not (tmp_path / "data" / "meglass").exists()


def test_what_is_missing_is_named_with_the_way_to_get_it(tmp_path):
    (tmp_path / "meta.txt").write_text("one@N00_identity_1@1_0.jpg 0\n")
    with pytest.raises(DataError, match="has no MeGlass_120x120.zip or .*github.com/cleardusk"):
        load("meglass", data_dir=tmp_path / "data", manual_dir=tmp_path)
    with pytest.raises(DataError, match="meglass cannot be downloaded: Accept the terms"):
        load("meglass", data_dir=tmp_path / "data")
    with pytest.raises(DataError, match="manual_dir .* is not a folder"):
        load("meglass", data_dir=tmp_path / "data", manual_dir=tmp_path / "nowhere")
