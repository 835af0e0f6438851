"""Face files that are wrong in one place: the error names the file."""

import numpy as np
import pytest

from privjax.datasets import DataError
from privjax.datasets.archives import FolderTree
from privjax.datasets.faces import cmu_records, read_pgm, yaleb_records


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gnd": np.full((4, 1), 39)}, "row 0: the label 39 is not one of 1 to 38"),
        ({"gnd": np.full((4, 1), 1.5)}, "row 0: the label 1.5 is not one of 1 to 38"),
        ({"gnd": np.full((4, 1), np.nan)}, "row 0: the label nan"),
        ({"fea": np.zeros((0, 1024)), "gnd": np.zeros((0, 1))}, "fea must be"),
        ({"fea": np.full((4, 1024), 0.5)}, "fea must be .* whole grey values"),
        ({"fea": np.full((4, 1024), np.nan)}, "fea must be"),
        ({"gnd": np.full((3, 1), 1)}, r"fea must be \[n, 1024\]"),
        ({"fea": np.full((4, 1024), 300)}, "fea must be"),
        ({"fea": np.zeros((4, 1000))}, "fea must be"),
    ],
)
def test_yaleb_faults_are_named(tmp_path, change, message):
    from scipy.io import savemat

    path = tmp_path / "YaleB_32x32.mat"
    image = np.arange(1024).reshape(1, -1) % 256
    good = {"fea": np.repeat(image, 4, axis=0), "gnd": np.full((4, 1), 38)}
    savemat(path, good)
    first = next(iter(yaleb_records([FolderTree(tmp_path)])))
    np.testing.assert_array_equal(first["x"][:, 0, 0], np.arange(32))  # columns, turned upright
    savemat(path, {**good, **change})
    with pytest.raises(DataError, match=r"YaleB_32x32\.mat.*" + message):
        list(yaleb_records([FolderTree(tmp_path)]))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="truncated or corrupt"):
        list(yaleb_records([FolderTree(tmp_path)]))


def test_pgm_plain_and_raw():
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    raw = b"P5\n# made\n4 3\n255\n" + pixels.tobytes()
    plain = b"P2\n4 3\n255\n" + b" ".join(b"%d" % v for v in pixels.ravel())
    np.testing.assert_array_equal(read_pgm(raw, "raw"), pixels)
    np.testing.assert_array_equal(read_pgm(plain, "plain"), pixels)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"P6\n4 3\n255\n", "is not a PGM image"),
        (b"", "is not a PGM image"),
        (b"P5\n4 3\n255\n" + bytes(11), "truncated or corrupt"),
        (b"P5\n4 3\n255\n" + bytes(13), "truncated or corrupt"),
        (b"P5\n4 3\n100\n" + bytes([200] * 12), "truncated or corrupt"),
        (b"P2\n2 1\n255\n1 x", "a pixel that is not a number"),
        (b"P2\n2 1\n255\n1 -1", "truncated or corrupt"),
        (b"P2\n2 1\n255\n1 " + b"9" * 30, "a pixel that is not a number"),
        (b"P5\n" + b"9" * 5000 + b" 3\n255\n", "is not a PGM image"),
        (b"P5\n99999 99999\n255\n", "of 99999 x 99999, 255 levels: refused"),
    ],
)
def test_pgm_faults_are_named(data, message):
    with pytest.raises(DataError, match="picture.*" + message):
        read_pgm(data, "picture")


def test_cmu_faults_are_named(tmp_path):
    folder = tmp_path / "faces" / "ann"
    folder.mkdir(parents=True)
    (folder / "ann_left_sad_open_4.bad").write_bytes(b"")
    with pytest.raises(DataError, match="has no file <person>"):
        list(cmu_records([FolderTree(tmp_path)]))
    (folder / "ann_left_sad_open_4.pgm").write_bytes(b"P5\n4 3\n255\n" + bytes(12))
    with pytest.raises(DataError, match=r"ann_left_sad_open_4\.pgm is \(3, 4\), not 30 x 32"):
        list(cmu_records([FolderTree(tmp_path)]))
