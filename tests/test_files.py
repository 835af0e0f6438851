"""Locks and writes that survive a crash, and files of arrays that show damage."""

import errno
import json
import zipfile

import ml_dtypes
import numpy as np
import pytest

from privjax.extras import import_optional
from privjax.files import exclusive, read_arrays, replacing, write_arrays, write_json

ARRAYS = {
    "a/b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "empty": np.zeros((0, 4)),
    "one": np.int32(7),
    "half": np.arange(3).astype(ml_dtypes.bfloat16),
}


def test_arrays_and_header_round_trip(tmp_path):
    write_arrays(tmp_path / "file.npz", {"kind": "test", "sizes": [1, 2]}, ARRAYS)
    header, arrays = read_arrays(tmp_path / "file.npz")
    assert header == {"kind": "test", "sizes": [1, 2]}
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)
    # The format is NumPy's own.
    with np.load(tmp_path / "file.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["a/b"], ARRAYS["a/b"])


def test_damaged_arrays_are_refused(tmp_path):
    path = tmp_path / "file.npz"
    write_arrays(path, {"kind": "test"}, ARRAYS)
    content = path.read_bytes()
    for length in range(0, len(content), 37):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="incomplete or damaged"):
            read_arrays(path)
    for array in ARRAYS.values():
        changed = bytearray(content)
        start = content.find(array.tobytes()) if array.size else content.find(b"kind")
        changed[start] ^= 1
        path.write_bytes(bytes(changed))
        with pytest.raises(ValueError, match="damaged"):
            read_arrays(path)


def test_a_changed_array_with_a_valid_checksum_is_refused(tmp_path):
    path = tmp_path / "file.npz"
    write_arrays(path, {}, {"a": np.zeros(3)})
    with np.load(path) as file:
        np.savez(path, **{**file, "a": np.ones(3)})
    with pytest.raises(ValueError, match="digest does not match"):
        read_arrays(path)


def test_a_compressed_file_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "file.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.npy", bytes(10**7))
    with pytest.raises(ValueError, match="unpacks to more"):
        read_arrays(path)


def test_object_arrays_are_refused(tmp_path):
    with pytest.raises(ValueError, match="[Oo]bject"):
        write_arrays(tmp_path / "file.npz", {}, {"a": np.array([{}])})
    assert not list(tmp_path.iterdir())


def fail_half_way(path):
    with replacing(path) as part:
        part.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    with pytest.raises(OSError, match="No space left") as caught:
        fail_half_way(path)
    assert caught.value.filename == str(path)
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["file.json"]
    with pytest.raises(ValueError, match="is a folder"), replacing(tmp_path):
        pass


def test_a_held_lock_is_busy_and_ends_with_its_block(tmp_path):
    with exclusive(tmp_path / "new" / ".lock"):
        with (
            pytest.raises(RuntimeError, match="another process is at work"),
            exclusive(tmp_path / "new" / ".lock", wait=False),
        ):
            pass
    with exclusive(tmp_path / "new" / ".lock", wait=False):
        pass


def test_a_missing_library_names_its_extra():
    assert import_optional("json.decoder").JSONDecodeError
    with pytest.raises(ImportError, match=r"no_such_library is not installed.*privjax\[cli\]"):
        import_optional("no_such_library.part", extra="cli")
