"""Published sets on real files, or on synthetic ones of full size: counts, protocols and speed."""

import io
import zipfile

import numpy as np
import pytest

from privjax.datasets import (
    DataError,
    load,
    per_label_split,
)
from privjax.datasets.published import fetch, open_files, read_matrix
from privjax.datasets.registry import PUBLISHED
from privjax.datasets.splits import sampled_people_groups, separated_frames_split

SEEDS = range(10)  # the paper's ten randomised experiments
FRAMES = ("activity", "user", "recording", "frame")


@pytest.fixture
def get(shared_data, prepared):
    def load_shared(name, **options):
        return load(name, data_dir=prepared, manual_dir=shared_data, **options)

    return load_shared


@pytest.fixture
def arrays_of(shared_data, prepared):
    def fetch_shared(name):
        return fetch(PUBLISHED[name], data_dir=prepared, manual_dir=shared_data).arrays

    return fetch_shared


@pytest.mark.slow
def test_har_has_the_published_counts(get):
    data = get("har")
    assert data.x.shape == (10299, 561)
    np.testing.assert_array_equal(np.bincount(data.y), [1722, 1544, 1406, 1777, 1906, 1944])
    assert np.bincount(data.s).min() == 281
    assert np.bincount(data.s).max() == 409
    assert len(data.s_names) == 30
    assert np.abs(data.x).max() <= 1.0
    assert len(set(data.feature_names)) == 561
    assert data.feature_names[0] == "tBodyAcc-mean()-X"
    assert data.x[0, 0] == np.float32(2.8858451e-1)  # the first number of X_train.txt
    assert data.origin.complete
    assert not data.origin.verified  # a copy whose hash is not the published one
    assert data.origin.files[0].name == "UCI_HAR_Dataset.zip"
    assert (data.origin.utility, data.origin.private) == ("activity", ("user",))


def test_har_keeps_the_proportion_of_every_user(get, arrays_of):
    user = arrays_of("har")["user"]
    for seed in SEEDS:
        split = per_label_split(user, seed=seed)
        assert [len(split.test), sum(map(len, split))] == [2060, 10299]
        assert np.abs(np.bincount(user[split.test]) - 0.2 * np.bincount(user)).max() < 1.0
    data = get("har", seed=seed)
    np.testing.assert_array_equal(data.split.test, split.test)
    np.testing.assert_array_equal(data.s, user)


def test_har_original_split_has_disjoint_users(get):
    data = get("har", protocol="disjoint_users")
    users = [set(part.s) for part in (data.train, data.validation, data.test)]
    assert len(users[0] | users[1]) == 21
    assert len(users[2]) == 9
    assert not users[0] & users[2]
    assert not users[0] & users[1]
    assert len(data.split.test) == 2947  # its authors' numbers
    assert len(data.split.train) + len(data.split.validation) == 7352


@pytest.mark.slow
def test_har_time_blocks_share_no_frames_and_a_random_split_does(get, shared_data, tmp_path):
    files = open_files(shared_data / "UCI_HAR_Dataset.zip", tmp_path / "scratch")
    names = [files.find(f"Inertial Signals/body_gyro_x_{part}.txt") for part in ("train", "test")]
    windows = np.concatenate([read_matrix(files, name, columns=128) for name in names])
    heads = [half.tobytes() for half in windows[:, :64]]
    tails = [half.tobytes() for half in windows[:, 64:]]
    # Neighbours overlap by half: most tails are the next window's head.
    assert sum(tail == head for tail, head in zip(tails, heads[1:], strict=False)) > 0.9 * len(windows)

    def frames_in_both(data, rows):
        halves = [
            {half for r in rows[part] for half in (heads[r], tails[r])}
            for part in (data.split.train, data.split.test)
        ]
        return len(halves[0] & halves[1])

    for seed in range(2):
        full = get("har", seed=seed)
        blocks = get("har", protocol="time_blocks", seed=seed)
        assert frames_in_both(full, np.arange(len(full))) > 1000
        place = {row.tobytes(): i for i, row in enumerate(full.x)}
        assert frames_in_both(blocks, np.array([place[row.tobytes()] for row in blocks.x])) == 0
        np.testing.assert_allclose(np.bincount(blocks.test.s) / np.bincount(full.s), 0.2, atol=0.02)


def test_yaleb_has_the_published_counts_and_is_upright(get):
    data = get("yaleb")
    assert data.x.shape == (2414, 32, 32, 1)
    assert 0.0 <= data.x.min() < data.x.max() <= 1.0
    expected = np.full(38, 64)
    expected[10:17] = [60, 59, 60, 63, 62, 63, 63]  # people with spoilt images
    np.testing.assert_array_equal(np.bincount(data.s), expected)
    assert data.origin.complete
    assert data.origin.verified  # the published file inside a zip
    mean = data.x.mean(axis=0)[..., 0]
    assert np.corrcoef(mean.ravel(), mean[:, ::-1].ravel())[0, 1] > 0.9  # a face is its mirror image
    assert np.corrcoef(mean.ravel(), mean[::-1].ravel())[0, 1] < 0.6


def test_yaleb_groups_are_dealt_by_the_seed(get):
    deals = set()
    for seed in SEEDS:
        data = get("yaleb", seed=seed)
        pairs = np.unique(np.stack([data.s, data.y], axis=1), axis=0)
        assert len(pairs) == 38  # a person is in one group
        assert sorted(np.bincount(pairs[:, 1])) == [9, 9, 10, 10]
        assert np.abs(np.bincount(data.test.s) - 0.2 * np.bincount(data.s)).max() < 1.0
        deals.add(pairs.tobytes())
    assert len(deals) == len(SEEDS)


@pytest.mark.slow
def test_cmu_faces_have_the_published_counts(get):
    data = get("cmu_faces")
    assert data.x.shape == (624, 32, 32, 1)
    np.testing.assert_array_equal(np.bincount(data.y), [313, 311])
    assert len(data.s_names) == 20
    assert data.s_names[0] == "an2i"
    assert np.bincount(data.s).min() == 28
    assert np.bincount(data.s).max() == 32
    assert data.origin.complete
    assert data.origin.verified  # the published images in another archive
    for seed in SEEDS:
        split = get("cmu_faces", seed=seed)
        assert np.abs(np.bincount(split.test.s) - 0.2 * np.bincount(data.s)).max() < 1.0


def test_hapt_has_the_published_counts(arrays_of, shared_data):
    arrays = arrays_of("hapt")
    counts = [122091, 116707, 107961, 126677, 138105, 136865]
    counts += [10316, 8029, 12428, 11150, 14418, 10867]
    np.testing.assert_array_equal(np.bincount(arrays["activity"]), counts)
    assert len(np.unique(arrays["user"])) == 30
    assert len(np.unique(arrays["recording"])) == 61
    with np.load(shared_data / "hapt_frames.npz") as file:
        np.testing.assert_array_equal(arrays["x"], file["x"])
        np.testing.assert_array_equal(arrays["frame"], file["frame"])


@pytest.mark.slow
def test_hapt_protocol_separates_the_parts(get, arrays_of):
    arrays = arrays_of("hapt")
    main = {key: values[arrays["activity"] < 6] for key, values in arrays.items()}
    for seed in SEEDS:
        split = separated_frames_split(*(main[key] for key in FRAMES), seed=seed)
        for rows, count in ((split.train, 100), (split.test, 25)):
            table = np.zeros((30, 6), int)
            np.add.at(table, (main["user"][rows], main["activity"][rows]), 1)
            assert (table == count).all()
        for number in np.unique(main["recording"]):
            frames = [main["frame"][rows[main["recording"][rows] == number]] for rows in split]
            for one, other in ((0, 1), (0, 2), (1, 2)):
                assert (np.abs(np.subtract.outer(frames[one], frames[other])) > 400).all()
    data = get("hapt", seed=0)
    assert [len(rows) for rows in data.split] == [18000, 1800, 4500]
    assert data.y_names[0] == "WALKING"
    assert data.feature_names == ("acc_x", "acc_y", "acc_z", "gyro_x", "gyro_y", "gyro_z")
    assert data.origin.complete


def test_hapt_in_its_published_layout(shared_data, tmp_path):
    with np.load(shared_data / "hapt_frames.npz") as file:
        keys = ("x", "activity", "subject", "recording", "frame")
        frames = {key: file[key][file["recording"] < 2] for key in keys}
    files, labels = {}, []
    for number in (0, 1):
        own = {key: values[frames["recording"] == number] for key, values in frames.items()}
        user = int(own["subject"][0])
        signal = np.zeros((own["frame"].max(), 6))
        signal[own["frame"] - 1] = own["x"]
        for kind, part in (("acc", signal[:, :3]), ("gyro", signal[:, 3:])):
            text = "\n".join(" ".join(repr(float(v)) for v in row) for row in part)
            files[f"RawData/{kind}_exp{number + 1:02d}_user{user:02d}.txt"] = text + "\n"
        cuts = np.flatnonzero(np.diff(own["activity"]) | (np.diff(own["frame"]) != 1)) + 1
        for a, b in zip(np.r_[0, cuts], np.r_[cuts, len(own["frame"])], strict=True):
            ends = f"{own['frame'][a]} {own['frame'][b - 1]}"
            labels.append(f"{number + 1} {user} {own['activity'][a]} {ends}")
    files["RawData/labels.txt"] = "\n".join(labels) + "\n"
    with zipfile.ZipFile(tmp_path / PUBLISHED["hapt"].wanted[0][0], "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in files.items():
            archive.writestr(member, text)
    arrays = fetch(PUBLISHED["hapt"], data_dir=tmp_path / "data", manual_dir=tmp_path).arrays
    np.testing.assert_array_equal(arrays["x"], frames["x"])
    np.testing.assert_array_equal(arrays["frame"], frames["frame"])
    np.testing.assert_array_equal(arrays["activity"] + 1, frames["activity"])
    assert len(np.unique(arrays["recording"])) == 2


def test_mhealth_excerpt(arrays_of, get):
    arrays = arrays_of("mhealth")
    assert arrays["x"].shape == (72, 23)
    np.testing.assert_array_equal(np.bincount(arrays["activity"]), np.full(12, 6))
    np.testing.assert_array_equal(np.bincount(arrays["user"]), [36, 36])
    np.testing.assert_allclose(arrays["x"][0, :3], [-9.7788, 0.5569, 1.1975], rtol=1e-6)  # the first line
    with pytest.raises(DataError, match=r"mHealth_subject3\.log is missing: .* all ten users"):
        get("mhealth")


# Frames of the twelve activities of one user: a minute at 50 Hz, or twenty repetitions.
LENGTHS = (3072, 3072, 3072, 3072, 3072, 2900, 2950, 2860, 3072, 3072, 3072, 1030)


@pytest.fixture(scope="module")
def synthetic_mhealth(tmp_path_factory):
    """Logs of the published columns and lengths, with random signals."""
    folder = tmp_path_factory.mktemp("mhealth")
    (folder / "MHEALTHDATASET").mkdir()
    for user in range(1, 11):
        rng = np.random.default_rng(user)
        pause = 10_580 if user == 1 else 300  # the published log of user 1 has 161280 lines
        lines = []
        for activity, length in enumerate(LENGTHS, start=1):
            for label, count in ((0, pause), (activity, length)):
                cells = rng.normal(label, 1.0, (16, 23)).round(4)
                texts = [" ".join(map(str, row)) + f" {label}" for row in cells]
                lines += (texts * (count // 16 + 1))[:count]
        (folder / "MHEALTHDATASET" / f"mHealth_subject{user}.log").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.slow
def test_mhealth_protocol_on_logs_of_full_length(synthetic_mhealth, timed, tmp_path_factory):
    options = {"data_dir": tmp_path_factory.mktemp("prepared"), "manual_dir": synthetic_mhealth}
    data = load("mhealth", seed=4, **options)
    assert [len(rows) for rows in data.split] == [12_000, 1_200, 3_000]  # the paper's numbers
    assert not data.origin.complete
    for rows, count in ((data.split.train, 100), (data.split.test, 25)):
        table = np.zeros((10, 12), int)
        np.add.at(table, (data.s[rows], data.y[rows]), 1)
        assert (table == count).all()
    reloaded, seconds = timed(load, "mhealth", seed=4, **options)
    assert seconds < 2.0
    assert reloaded.content_hash == data.content_hash
    arrays = fetch(PUBLISHED["mhealth"], **options).arrays
    np.testing.assert_array_equal(np.bincount(arrays["activity"]), 10 * np.array(LENGTHS))
    # Frames are numbered by the lines of the log, pauses included.
    assert arrays["frame"][(arrays["user"] == 0) & (arrays["activity"] == 0)][0] == 10_581
    for seed in range(5):
        split = separated_frames_split(*(arrays[key] for key in FRAMES), seed=seed)
        for user in range(10):
            train, test = (arrays["frame"][r[arrays["user"][r] == user]] for r in (split.train, split.test))
            assert np.abs(np.subtract.outer(train, test)).min() > 400


def read_list(folder):
    """Read name, person and glasses of the published list of MeGlass."""
    with zipfile.ZipFile(folder / "MeGlass_meta.zip") as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("meta.txt")]
        rows = [line.split() for line in archive.read(name).decode().splitlines()]
    numbers: dict[str, int] = {}
    people = [numbers.setdefault(name.partition("@")[0], len(numbers)) for name, _ in rows]
    return [name for name, _ in rows], np.array(people), np.array([int(label) for _, label in rows])


def test_meglass_protocol_on_the_published_list(shared_data):
    names, people, glasses = read_list(shared_data)
    assert len(names) == PUBLISHED["meglass"].num_rows
    np.testing.assert_array_equal(np.bincount(glasses), [33_085, 14_832])
    assert len(np.unique(people)) == 1565  # the paper's count
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


@pytest.mark.slow
def test_meglass_on_synthetic_images_of_published_names(shared_data, timed, tmp_path):
    from PIL import Image

    names, people, glasses = read_list(shared_data)
    rows = np.flatnonzero(people < 505)  # enough people to sample 500 of them
    images = []
    for worn in (0, 1):  # brighter above with glasses
        pixels = np.full((40, 40, 3), 90, np.uint8)
        pixels[:20] += 90 * worn
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG")
        images.append(buffer.getvalue())
    with zipfile.ZipFile(tmp_path / "MeGlass_120x120.zip", "w") as archive:
        for row in rows:
            archive.writestr(f"MeGlass_120x120/{names[row]}", images[glasses[row]])
    (tmp_path / "meta.txt").write_text("".join(f"{names[row]} {glasses[row]}\n" for row in rows))
    options = {"data_dir": tmp_path / "data", "manual_dir": tmp_path}
    data = load("meglass", seed=1, **options)
    arrays = fetch(PUBLISHED["meglass"], **options).arrays
    assert arrays["x"].shape == (len(rows), 32, 32, 1)
    np.testing.assert_array_equal(arrays["glasses"], glasses[rows])
    np.testing.assert_array_equal(arrays["person"], people[rows])
    assert not data.origin.complete
    assert 12_000 < len(data) < 19_000
    assert len(data.s_names) == 100
    assert data.y_names == ("no glasses", "glasses")
    above = data.x[:, :14].mean(axis=(1, 2, 3)) - data.x[:, 18:].mean(axis=(1, 2, 3))
    np.testing.assert_array_equal(above > 0.17, data.y == 1)  # every image has its own label
    reloaded, seconds = timed(load, "meglass", seed=1, **options)
    assert seconds < 2.0
    assert reloaded.content_hash == data.content_hash


def test_adult_has_the_published_counts_and_split(get):
    data = get("adult")
    assert data.x.shape == (48842, 106)
    np.testing.assert_array_equal(np.bincount(data.y), [37155, 11687])
    np.testing.assert_array_equal(np.bincount(data.s), [16192, 32650])
    assert [len(rows) for rows in data.split] == [29305, 3256, 16281]
    assert data.split.test[0] == 32561  # the rows of adult.test
    assert data.y_names == ("<=50K", ">50K")
    assert data.origin.complete
    assert not data.origin.verified  # a copy with a line of names
    race = get("adult", private="race")
    np.testing.assert_array_equal(np.bincount(race.s), [470, 1519, 4685, 406, 41762])
    assert race.origin.private == ("race",)


@pytest.mark.parametrize("name", ["har", "yaleb", "cmu_faces", "hapt", "adult"])
def test_the_second_load_takes_under_two_seconds(get, timed, name):
    first = get(name)
    second, seconds = timed(get, name)
    assert seconds < 2.0
    assert second.content_hash == first.content_hash
