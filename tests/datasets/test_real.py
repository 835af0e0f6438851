"""The real loaders on the real bytes: published counts, promises of the protocols, speed."""

import numpy as np
import pytest

from privjax.datasets import DataError, load, per_label_split
from privjax.datasets.prepared import prepared_arrays, prepared_folder
from privjax.datasets.sources import MHEALTH_CHANNELS, SOURCES

SEEDS = range(10)  # the paper's ten randomised experiments


@pytest.fixture
def get(shared_data, prepared):
    def load_here(name, **options):
        return load(name, data_dir=prepared, manual_dir=shared_data, **options)

    return load_here


@pytest.fixture
def arrays_of(shared_data, prepared):
    def arrays_here(name):
        return prepared_arrays(SOURCES[name], data_dir=prepared, manual_dir=shared_data)

    return arrays_here


def test_har_published_counts(get):
    data = get("har", scale="none")
    assert data.x.shape == (10299, 561)
    np.testing.assert_array_equal(np.bincount(data.y), [1722, 1544, 1406, 1777, 1906, 1944])
    assert (np.bincount(data.s) > 0).sum() == 30
    assert np.bincount(data.s).min() == 281
    assert np.bincount(data.s).max() == 409
    assert data.x.min() >= -1.0
    assert data.x.max() <= 1.0
    assert len(set(data.feature_names)) == 561
    assert data.feature_names[0] == "tBodyAcc-mean()-X"
    # The first cell of X_train.txt, as it is printed there.
    assert data.x[0, 0] == np.float32(2.8858451e-1)
    assert data.provenance["complete"] is True
    assert data.provenance["files"][0]["name"] == "UCI_HAR_Dataset.zip"
    assert data.provenance["verified"] is False  # a copy whose hash is not the published one


def test_har_keeps_every_users_proportion(get, arrays_of):
    user = arrays_of("har")[0]["user"]
    for seed in SEEDS:
        split = per_label_split(user, seed=seed)
        assert [len(split.test), sum(map(len, split))] == [2060, 10299]
        assert np.abs(np.bincount(user[split.test]) - 0.2 * np.bincount(user)).max() < 1.0
    data = get("har", seed=seed)  # which is that split, scaled
    np.testing.assert_array_equal(data.split.test, split.test)
    np.testing.assert_array_equal(data.s, user)
    np.testing.assert_allclose(data.train.x.mean(axis=0), 0.0, atol=1e-4)


def test_har_original_split_has_disjoint_users(get):
    data = get("har", protocol="disjoint_users")
    users = [set(part.s) for part in (data.train, data.validation, data.test)]
    assert len(users[0] | users[1]) == 21
    assert len(users[2]) == 9
    assert not (users[0] & users[2])
    assert not (users[0] & users[1])
    assert len(data.split.test) == 2947  # its authors' numbers
    assert len(data.split.train) + len(data.split.validation) == 7352


def test_har_time_blocks_share_no_frames_and_the_random_split_does(get, shared_data):
    from privjax.datasets.archives import open_tree
    from privjax.datasets.text import read_matrix

    tree = open_tree(shared_data / "UCI_HAR_Dataset.zip")
    windows = []
    for part in ("train", "test"):
        name = tree.find(f"Inertial Signals/body_gyro_x_{part}.txt")
        windows.append(read_matrix(tree.read(name), name, columns=128))
    windows = np.concatenate(windows)
    heads = [half.tobytes() for half in windows[:, :64]]
    tails = [half.tobytes() for half in windows[:, 64:]]
    # Neighbours do overlap by half: most tails are the next window's head.
    shared = sum(tails[i] == heads[i + 1] for i in range(len(windows) - 1))
    assert shared > 0.9 * len(windows)

    def frames_in_both(data, rows):
        halves = [
            {h for r in rows[part] for h in (heads[r], tails[r])}
            for part in (data.split.train, data.split.test)
        ]
        return len(halves[0] & halves[1])

    for seed in range(2):
        full = get("har", protocol="per_user", seed=seed, scale="none")
        blocks = get("har", protocol="time_blocks", seed=seed, scale="none")
        assert frames_in_both(full, np.arange(len(full))) > 1000
        rows = kept_rows(full, blocks)
        assert frames_in_both(blocks, rows) == 0
        tested = np.bincount(blocks.test.s) / np.bincount(full.s)
        np.testing.assert_allclose(tested, 0.2, atol=0.02)


def kept_rows(full, part):
    """Row numbers in the full set of the rows that a protocol kept, by their content."""
    place = {row.tobytes(): i for i, row in enumerate(full.x)}
    assert len(place) == len(full)
    return np.array([place[row.tobytes()] for row in part.x])


def test_yaleb_published_counts(get):
    data = get("yaleb", scale="none")
    assert data.x.shape == (2414, 32, 32, 1)
    expected = np.full(38, 64)
    expected[10:17] = [60, 59, 60, 63, 62, 63, 63]  # people with spoilt pictures
    np.testing.assert_array_equal(np.bincount(data.s), expected)
    assert data.provenance["complete"] is True
    assert data.provenance["verified"] is True  # the published file, in a zip
    # Upright: eyes and mouth make rows differ more from row to row than columns do from column
    # to column, and faces are close to their mirror image.
    mean = data.x.mean(axis=0)[..., 0]
    assert np.corrcoef(mean.ravel(), mean[:, ::-1].ravel())[0, 1] > 0.9
    assert np.corrcoef(mean.ravel(), mean[::-1].ravel())[0, 1] < 0.6


def test_yaleb_protocol(get):
    deals = set()
    for seed in SEEDS:
        data = get("yaleb", seed=seed)
        pairs = np.unique(np.stack([data.s, data.y], axis=1), axis=0)
        assert len(pairs) == 38  # a person is in one group
        assert sorted(np.bincount(pairs[:, 1])) == [9, 9, 10, 10]
        assert np.abs(np.bincount(data.test.s) - 0.2 * np.bincount(data.s)).max() < 1.0
        deals.add(pairs.tobytes())
    assert len(deals) == len(SEEDS)


def test_cmu_faces_published_counts(get):
    data = get("cmu_faces", scale="none")
    assert data.x.shape == (624, 32, 32, 1)
    np.testing.assert_array_equal(np.bincount(data.y), [313, 311])
    assert len(data.s_names) == 20
    assert data.s_names[0] == "an2i"
    assert np.bincount(data.s).min() == 28
    assert np.bincount(data.s).max() == 32
    assert data.provenance["complete"] is True
    assert data.provenance["verified"] is True  # the published tree, in another archive
    for seed in SEEDS:
        split = get("cmu_faces", seed=seed)
        assert np.abs(np.bincount(split.test.s) - 0.2 * np.bincount(data.s)).max() < 1.0


def test_hapt_published_counts(arrays_of):
    arrays, _ = arrays_of("hapt")
    counts = [122091, 116707, 107961, 126677, 138105, 136865]
    counts += [10316, 8029, 12428, 11150, 14418, 10867]
    np.testing.assert_array_equal(np.bincount(arrays["activity"]), counts)
    assert len(np.unique(arrays["user"])) == 30
    assert len(np.unique(arrays["recording"])) == 61


def test_hapt_records_are_the_frames(arrays_of, shared_data):
    arrays, _ = arrays_of("hapt")
    with np.load(shared_data / "hapt_frames.npz") as file:
        np.testing.assert_array_equal(arrays["x"], file["x"])
        np.testing.assert_array_equal(arrays["frame"], file["frame"])
        np.testing.assert_array_equal(arrays["activity"] + 1, file["activity"])
        np.testing.assert_array_equal(arrays["user"] + 1, file["subject"])


def test_hapt_protocol_counts_and_separation(get, arrays_of):
    from privjax.datasets.splits import separated_frames_split

    arrays, _ = arrays_of("hapt")
    main = {k: v[arrays["activity"] < 6] for k, v in arrays.items()}
    for seed in SEEDS:
        keys = ("activity", "user", "recording", "frame")
        split = separated_frames_split(*(main[k] for k in keys), seed=seed)
        for rows, count in ((split.train, 100), (split.test, 25)):
            table = np.zeros((30, 6), int)
            np.add.at(table, (main["user"][rows], main["activity"][rows]), 1)
            assert (table == count).all()
        for number in np.unique(main["recording"]):
            train = main["frame"][split.train[main["recording"][split.train] == number]]
            test = main["frame"][split.test[main["recording"][split.test] == number]]
            tuned = main["frame"][split.validation[main["recording"][split.validation] == number]]
            for one, other in ((train, test), (tuned, test), (tuned, train)):
                if len(one) and len(other):
                    assert np.abs(one[:, None] - other[None]).min() > 400
    data = get("hapt", seed=0)
    assert [len(rows) for rows in data.split] == [18000, 1800, 4500]
    assert data.y_names[0] == "WALKING"
    assert data.feature_names == ("acc_x", "acc_y", "acc_z", "gyro_x", "gyro_y", "gyro_z")


def test_mhealth_excerpt(arrays_of, get, shared_data):
    arrays, notes = arrays_of("mhealth")
    assert arrays["x"].shape == (72, len(MHEALTH_CHANNELS)) == (72, 23)
    np.testing.assert_array_equal(np.bincount(arrays["activity"]), np.full(12, 6))
    np.testing.assert_array_equal(np.bincount(arrays["user"]), [36, 36])
    # The first line of mHealth_subject1.log, as it is printed there.
    np.testing.assert_allclose(arrays["x"][0, :3], [-9.7788, 0.5569, 1.1975], rtol=1e-6)
    assert notes["verified"] is False
    with pytest.raises(DataError, match=r"mHealth_subject3\.log was not there: .* all ten users"):
        get("mhealth")


@pytest.mark.parametrize("name", ["har", "yaleb", "cmu_faces", "hapt"])
def test_the_second_load_takes_under_two_seconds(get, timed, name):
    first = get(name)
    again, seconds = timed(get, name)
    assert seconds < 2.0
    assert again.content_hash == first.content_hash


def test_records_are_in_array_record_format(get, prepared):
    get("har")
    folder = prepared_folder(SOURCES["har"], prepared)
    assert list(folder.glob("har-records.array_record-00000-of-*"))


def test_tensorflow_is_not_needed(get):
    import sys

    get("har")
    assert "tensorflow" not in sys.modules


def test_tfds_itself_prepares_and_reads_them(shared_data, tmp_path):
    from privjax.datasets.builders import SPLIT, tfds

    builder = tfds.builder("cmu_faces", data_dir=str(tmp_path), file_format="array_record")
    config = tfds.download.DownloadConfig(manual_dir=str(shared_data))
    builder.download_and_prepare(download_config=config)
    source = builder.as_data_source(SPLIT)
    assert len(source) == 624
    assert sum(int(record["glasses"]) for record in source) == 311
    # What TFDS prepared, load finds.
    assert len(load("cmu_faces", data_dir=tmp_path)) == 624
