"""The export of a sweep's member: content of the file, files that stay, and errors."""

import resource

import numpy as np
import pytest
import small

import privjax
from privjax import baselines
from privjax.exporting import describe, export, load_file
from privjax.files import read_arrays, write_json

SUFFIXES = ("npz", "stablehlo", "onnx")


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A small sweep of four members with a workdir."""
    return small.small_sweep(workdir=tmp_path_factory.mktemp("sweep") / "run")


@pytest.fixture(scope="module")
def exported(swept, tmp_path_factory):
    """A folder with member 1 in each format."""
    folder = tmp_path_factory.mktemp("device")
    for suffix in SUFFIXES:
        export(swept.workdir, 1, to=folder / f"encoder.{suffix}")
    return folder


def test_a_member_is_exported_for_raw_rows(swept, exported):
    x = small.make_small().x[:37]
    z = privjax.load_encoder(swept.workdir, 1)(x)
    for suffix in SUFFIXES:
        np.testing.assert_allclose(load_file(exported / f"encoder.{suffix}")(x), z, atol=1e-5)


def test_the_header_states_the_origin(swept, exported):
    record = swept.run.find(1)
    for suffix in SUFFIXES:
        header = load_file(exported / f"encoder.{suffix}").header
        assert header == describe(swept.workdir, 1) == describe(swept, 1)
        assert (header.member, header.seed, header.privacy_weight) == (1, record.seed, record.privacy_weight)
        assert (header.objective, header.data) == ("mmd", "small")
        assert header.names == tuple("abcdef")
        assert header.columns is None


def test_a_point_of_a_curve_is_a_member(swept, exported, tmp_path):
    class Point:
        def __index__(self):
            return 1

    export(swept, Point(), to=tmp_path / "encoder.onnx")
    assert (tmp_path / "encoder.onnx").read_bytes() == (exported / "encoder.onnx").read_bytes()


def holds(content: bytes, array: np.ndarray) -> bool:
    """Whether a file holds an array in row or column order."""
    flat = [order.ravel().astype(kind) for order in (array, array.T) for kind in ("<f4", ">f4", "<f8")]
    return any(values.tobytes() in content for values in flat)


def test_the_file_holds_the_encoder_alone(swept, exported):
    encoder = privjax.load_encoder(swept.workdir, 1)
    arrays = read_arrays(exported / "encoder.npz")[1].values()
    own = [array for layer in encoder.layers for array in layer.arrays]
    assert len(arrays) == len(own)
    assert all((a == b).all() for a, b in zip(arrays, own, strict=True))
    x = small.make_small().x
    for suffix in SUFFIXES:
        content = (exported / f"encoder.{suffix}").read_bytes()
        assert holds(content, encoder.layers[-1].arrays[0])
        assert not any(holds(content, row) for row in (*x, *encoder.scaling.apply(x)))
        for path in (swept.workdir, exported, privjax.__file__.rpartition("/")[0]):
            assert str(path).encode() not in content
        assert len(content) < describe(encoder).bytes + 10_000


def test_a_full_disk_keeps_the_old_file(swept, tmp_path):
    for suffix in SUFFIXES:
        path = tmp_path / f"encoder.{suffix}"
        path.write_bytes(b"old")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
        try:
            with pytest.raises(OSError, match="File too large"):
                export(swept, 0, to=path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == b"old"
    assert {p.name for p in tmp_path.iterdir()} == {f"encoder.{suffix}" for suffix in SUFFIXES}


def test_other_files_are_not_replaced(swept, exported, tmp_path):
    own, script = tmp_path / "own.npz", tmp_path / "privjax_runner.py"
    np.savez(own, x=np.arange(3))
    saved = tmp_path / "saved.npz"
    baselines.raw(np.eye(2)).save(saved)
    for path in (own, saved):
        before = path.read_bytes()
        with pytest.raises(
            ValueError, match=r"\.npz exists and is not an exported encoder: name another file"
        ):
            export(swept, 0, to=path)
        assert path.read_bytes() == before
    script.write_text("print('mine')")
    with pytest.raises(ValueError, match="exists and is not privjax's: name a file in another folder"):
        export(swept, 0, to=tmp_path / "encoder.npz")
    assert {path.name for path in tmp_path.iterdir()} == {"own.npz", "saved.npz", "privjax_runner.py"}
    script.unlink()
    for _ in range(2):  # files of an earlier export are replaced
        export(swept, 1, to=tmp_path / "encoder.npz")
    assert (tmp_path / "encoder.npz").read_bytes() == (exported / "encoder.npz").read_bytes()


def test_errors_name_the_argument_and_the_remedy(swept, exported, tmp_path):
    with pytest.raises(ValueError, match=r"to must end in .npz, .stablehlo, .onnx, got 'encoder.txt'"):
        export(swept, 0, to=tmp_path / "encoder.txt")
    with pytest.raises(ValueError, match=r"encoder must end in .npz, .stablehlo, .onnx, got 'encoder'"):
        load_file(tmp_path / "encoder")
    with pytest.raises(FileNotFoundError):
        load_file(tmp_path / "absent.npz")
    with pytest.raises(TypeError, match="member is missing"):
        export(swept, to=tmp_path / "encoder.npz")
    with pytest.raises(ValueError, match="one of 0, 1, 2, 3"):
        export(swept, 7, to=tmp_path / "encoder.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        export(swept, 0, to=tmp_path / "folder.npz")
    results = swept.run.to_dict()
    results["config"]["networks"]["kind"] = "own"
    write_json(tmp_path / "run" / "results.json", results)
    with pytest.raises(ValueError, match="networks are your own, so their layers are unknown"):
        export(tmp_path / "run", 0, to=tmp_path / "encoder.npz")
    assert not (tmp_path / "encoder.npz").exists()
