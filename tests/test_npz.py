"""Npz files with a header: exact round trips, and the refusal of damaged or forged files."""

import io
import json
import pickle
import zipfile

import numpy as np
import pytest

from privjax.npz import npz_bytes, npz_digest, read_npz, write_npz

ARRAYS = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "transposed": np.arange(6).reshape(2, 3).T,
    "empty": np.zeros((0, 3)),
    "scalar": np.array(2.5),
    "text": np.array(["a", "bcd"]),
    "boolean": np.array([True, False]),
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "folder" / "file.npz"
    write_npz(path, {"format": "test", "numbers": [1, 2.5, None]}, ARRAYS)
    return path


def test_a_file_is_read_back_exactly(path):
    header, arrays = read_npz(path)
    assert {**header, "sha256": ""} == {"format": "test", "numbers": [1, 2.5, None], "sha256": ""}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(arrays[name], array)
    with np.load(path, allow_pickle=False) as file:  # an ordinary npz file
        np.testing.assert_array_equal(file["transposed"], ARRAYS["transposed"])
    assert path.read_bytes() == npz_bytes(header, ARRAYS)
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        npz_bytes({}, {"objects": np.array([{}])})


def test_changed_bytes_are_refused_or_change_nothing(path, tmp_path):
    whole, broken = path.read_bytes(), tmp_path / "broken.npz"
    expected = read_npz(path)[1]
    refused = 0
    for place in range(0, len(whole), 3):
        changed = bytes([whole[place] ^ 1 << place % 8])
        for content in (whole[:place], whole[:place] + changed + whole[place + 1 :]):
            broken.write_bytes(content)
            try:
                arrays = read_npz(broken)[1]
            except ValueError as error:
                refused += 1
                assert str(broken) in str(error)  # noqa: PT017
            else:  # a date of the archive, for instance
                assert all((arrays[name] == expected[name]).all() for name in expected)
    assert refused > 1.6 * len(whole) / 3


class _Bomb:
    def __reduce__(self):
        return (pytest.fail, ("the file ran code",))


def test_hostile_files_are_refused(path, tmp_path):
    def archive(name, content, compression=zipfile.ZIP_STORED):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", compression) as opened:
            opened.writestr(name, content)
        return file.getvalue()

    def npz(**arrays):
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()

    def header(text):
        return npz(header=np.frombuffer(text, np.uint8))

    huge = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        huge, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 1 << 20)}
    )
    forged = json.dumps({"a": 1, "sha256": npz_digest({"a": 2}, {})}).encode()
    hostile = {
        b"": "damaged",
        pickle.dumps(_Bomb()): "damaged",
        npz(header=np.array([_Bomb()], dtype=object)): "Python objects",
        npz(other=np.zeros(3)): "damaged",
        archive("header.npy", b"nonsense"): "damaged",
        archive("header.npy", bytes(10**7), zipfile.ZIP_DEFLATED): "unpacks to more than it holds",
        archive("a.npy", huge.getvalue()): "damaged",
        header(b"nonsense"): "damaged",
        header(b"\xff\xfe"): "damaged",
        header(b"[" * 100_000): "damaged",
        header(b"[1, 2]"): "not a JSON object",
        header(b"{}"): "was changed after it was written",
        header(forged): "was changed after it was written",
    }
    bad = tmp_path / "bad.npz"
    for content, message in hostile.items():
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=rf"bad\.npz .*{message}.*: save it again\.$") as error:
            read_npz(bad, "save it again")
        assert "\n" not in str(error.value)
    with pytest.raises(FileNotFoundError):
        read_npz(tmp_path / "absent.npz")
