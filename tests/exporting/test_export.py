"""The exported private half: the same z on the device, nothing else in the file, damage refused."""

import io
import json
import resource
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

import privjax
from privjax.datasets import Split
from privjax.datasets.dataset import assemble
from privjax.exporting import describe, export, runner, write
from privjax.exporting.read import load_file
from privjax.files import write_json
from privjax.sweeping.checkpoints import Checkpoints
from privjax.sweeping.workdir import SCHEMA, describe_data, describe_networks

SMALL = {"num_outputs": 2, "num_private": 10, "public_widths": (9,), "discriminator_widths": (8,)}
FILTERS = {"private_filters": 3, "public_filters": 4}
# Digits are flat rows scaled by their columns; the images have odd sides and are scaled by their channels.
NETWORKS = {
    "nn of two layers": privjax.nn_networks((8, 8), private_widths=(7, 5), **SMALL),
    "nn of images": privjax.nn_networks(9 * 7 * 2, private_widths=(5,), **SMALL),
    "scnn": privjax.scnn_networks((8, 8, 1), num_features=6, **SMALL, **FILTERS),
    "scnn of images": privjax.scnn_networks((9, 7, 2), num_features=6, **SMALL, **FILTERS),
    "cnn of images": privjax.cnn_networks((9, 7, 2), **SMALL, **FILTERS),
}
# By hand: products of widths; 9 weights a channel and filter at each pixel, then 4 x 4 or 4 x 3 pooled.
MULTIPLY_ADDS = {
    "nn of two layers": 64 * 7 + 7 * 5,
    "nn of images": 126 * 5,
    "scnn": 9 * 3 * 64 + 4 * 4 * 3 * 6,
    "scnn of images": 9 * 2 * 3 * 63 + 4 * 3 * 3 * 6,
    "cnn of images": 9 * 2 * 3 * 63,
}
WIDTH = {"scnn": 6, "scnn of images": 6, "cnn of images": 4 * 3 * 3}
SUFFIXES = ("npz", "stablehlo", "onnx")


def make_images():
    rng = np.random.default_rng(0)
    x, split = rng.normal(3.0, 2.0, (60, 9, 7, 2)), Split(*np.split(np.arange(60), [40, 40]))
    y, s = np.arange(60) % 2, np.arange(60) % 10
    names = {"y_names": ("no", "yes"), "s_names": tuple("0123456789"), "feature_names": ("red", "blue")}
    return assemble(x, y, s, split, **names, provenance={"name": "images"})


def make_run(folder, networks, data, *, spread=0.3):
    """A sweep's folder of one member that was never trained: its parameters are random."""
    rng = np.random.default_rng(1)
    shapes = jax.eval_shape(networks.init, jax.random.key(0))
    params = jax.tree.map(lambda a: rng.normal(0.1, spread, a.shape).astype(np.float32), shapes)
    tree = {"params": params, "shift": data.scaler.shift, "spread": data.scaler.spread}
    Checkpoints(folder / "checkpoints").save(
        [0], jax.tree.map(lambda a: np.asarray(a)[None], tree), final=True
    )
    about = {"name": data.name, "features": data.x.shape[-1]}
    config = {"networks": describe_networks(networks), "data": about}
    member = {"point": 0, "objective": "lsdn", "privacy_weight": 1.0, "seed": 0, "status": "converged"}
    results = {"schema": SCHEMA, "config": config, "members": [member]}
    write_json(folder / "config.json", config)
    write_json(folder / "results.json", {**results, "data": {**about, **describe_data(data)}})
    return params


class Exported(NamedTuple):
    kind: str
    folder: Path  # of `run` and `encoder.*`
    header: dict
    data: privjax.datasets.Dataset
    params: dict  # of all three networks


@pytest.fixture(scope="module", params=list(NETWORKS))
def exported(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("device")
    is_images = request.param.endswith("images")
    data = make_images() if is_images else privjax.datasets.load("digits", validation=0.0)
    params = make_run(folder / "run", NETWORKS[request.param], data)
    headers = [export(folder / "run", 0, to=folder / f"encoder.{suffix}") for suffix in SUFFIXES]
    assert headers[0] == headers[1] == headers[2] == describe(folder / "run", 0)
    return Exported(request.param, folder, headers[0], data, params)


def test_the_same_release_from_raw_rows(exported):
    folder, data = exported.folder, exported.data
    x = data.part("train").x[:37]
    raw = data.scaler.invert(x)
    expected = privjax.load_encoder(folder / "run", 0)(x)
    scale = np.abs(expected).max()
    assert scale > 1e-2
    for suffix in SUFFIXES:
        encoder = load_file(folder / f"encoder.{suffix}")
        z = encoder(raw)
        assert z.dtype == np.float32
        assert np.abs(z - expected).max() < 1e-5 * scale, suffix
        assert np.abs(encoder(x) - expected).max() > 1e-2 * scale  # scaled rows would be scaled twice
        np.testing.assert_allclose(encoder(raw[:1]), z[:1], atol=1e-5 * scale)
        assert encoder(raw[:0]).shape == (0, z.shape[1])


def test_a_device_without_jax(exported):
    folder, data = exported.folder, exported.data
    raw = data.scaler.invert(data.part("test").x[:20])
    np.save(folder / "rows.npy", raw)
    lines = "import sys, runpy; sys.modules.update(jax=None, flax=None, privjax=None, sklearn=None); "
    lines += "runpy.run_path('privjax_runner.py', run_name='__main__')"
    command = [sys.executable, "-I", "-c", lines, "encoder.npz", "rows.npy", "z.npy"]
    subprocess.run(command, cwd=folder, check=True)
    np.testing.assert_array_equal(np.load(folder / "z.npy"), runner.load(folder / "encoder.npz")(raw))
    told = subprocess.run(command[:-1], cwd=folder, capture_output=True, text=True)
    assert told.returncode == 1
    assert "python privjax_runner.py encoder.npz rows.npy z.npy" in told.stderr


def holds(content: bytes, array: np.ndarray) -> bool:
    """Whether sixteen numbers of an array, or all of a short one, lie one after another in a file."""
    orders = [array, array.T] + ([array.transpose(3, 2, 0, 1)] if array.ndim == 4 else [])
    for order in orders:
        flat = order.ravel()
        for i in range(max(len(flat) - 15, 1)):
            window = flat[i : i + 16]
            if len(np.unique(window)) > 3:  # zeros are everywhere
                if any(window.astype(kind).tobytes() in content for kind in ("<f4", ">f4", "<f8")):
                    return True
    return False


def test_it_holds_the_private_half_alone(exported, tmp_path, monkeypatch):
    folder, data, params = exported.folder, exported.data, exported.params
    own = jax.tree.leaves((params["private"], data.scaler.shift, data.scaler.spread))
    assert exported.header["parameters"] == sum(a.size for a in own)
    public = jax.tree.leaves((params["public"], params["discriminator"]))
    train = data.part("train").x[:40]
    raw = data.scaler.invert(train)
    for suffix in SUFFIXES:
        content = (folder / f"encoder.{suffix}").read_bytes()
        largest = max(jax.tree.leaves(params["private"]), key=np.size)
        assert holds(content, largest), "the search finds nothing at all"
        assert not any(holds(content, a) for a in public), suffix
        assert not any(holds(content, row) for row in (*train, *raw)), suffix
        assert b"/" + folder.name.encode() not in content  # nor where it was made
        assert privjax.__file__.rpartition("/")[0].encode() not in content
    # An exporter that lets something slip is seen.
    for slipped in (public[-1], train[0], raw[3]):
        make = write.make_layers
        with monkeypatch.context() as patch:
            patch.setattr(
                write,
                "make_layers",
                lambda *args, make=make, a=slipped: (
                    lambda made: made._replace(arrays=(*made.arrays, np.asarray(a)))
                )(make(*args)),
            )
            export(folder / "run", 0, to=tmp_path / "leaky.npz")
        content = (tmp_path / "leaky.npz").read_bytes()
        assert any(holds(content, a) for a in (*public, *train, *raw))


def test_the_header_says_what_it_takes_gives_and_costs(exported):
    kind, folder, header, data, _ = exported
    assert header["multiply_adds"] == MULTIPLY_ADDS[kind]
    assert header["bytes"] == 4 * header["parameters"]
    assert header["output"] == {"width": WIDTH.get(kind, 5), "dtype": "float32"}
    assert header["input"] == {
        "shape": list(data.x.shape[1:]),
        "dtype": "float32",
        "scaled": False,
        "names": list(data.feature_names),
        "columns": None,
    }
    about = {key: header[key] for key in ("point", "objective", "privacy_weight", "seed", "data")}
    expected = {"point": 0, "objective": "lsdn", "privacy_weight": 1.0, "seed": 0, "data": data.name}
    assert about == expected
    for suffix in SUFFIXES:
        assert load_file(folder / f"encoder.{suffix}").header == header


def test_a_changed_file_is_refused(exported, tmp_path):
    folder = exported.folder
    whole = (folder / "encoder.npz").read_bytes()
    path = tmp_path / "encoder.npz"
    with np.load(io.BytesIO(whole)) as file:
        content = {name: file[name] for name in file.files}
    for name in ("001", "header"):
        changed = dict(content)
        if name == "header":
            header = json.loads(bytes(content[name]).decode())
            header["privacy_weight"] = 99.0
            changed[name] = np.frombuffer(json.dumps(header).encode(), np.uint8)
        else:
            changed[name] = content[name] * np.float32(1.0001)
        np.savez(path, **changed)
        with pytest.raises(ValueError, match="changed after it was exported"):
            runner.load(path)
    np.savez(path, **content)
    runner.load(path)  # written again, but not changed


def forged(path, header, arrays, **changes):
    """Writes an npz whose digest is right, whatever it holds."""
    header = {**header, **changes}
    header["sha256"] = runner.digest(header, arrays)
    named = {f"{i:03d}": a for i, a in enumerate(arrays)}
    np.savez(path, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **named)


def test_hostile_files_are_refused(exported, tmp_path):
    kind, folder, header, data, _ = exported
    path = tmp_path / "encoder.npz"

    def refused(match):
        with pytest.raises(ValueError, match=match) as told:
            runner.load(path)
        assert "\n" not in str(told.value)
        assert str(told.value).endswith(".")

    np.savez(path, header=np.array([{"a": 1}], dtype=object))
    refused("export it again")
    for text in (b"[1, 2]", b"nonsense", b"\xff\xfe", b"{}", b"[" * 100_000, b'{"format": "other"}'):
        np.savez(path, header=np.frombuffer(text, np.uint8))
        refused("export it again")
    np.savez(path, other=np.zeros(3))
    refused("export it again")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", b"nonsense")
    refused("export it again")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:  # unpacks to a thousand times its size
        archive.writestr("000.npy", bytes(10_000_000))
    refused("unpacks to more than it holds")
    claim = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        claim, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 1 << 20)}
    )
    with zipfile.ZipFile(path, "w") as archive:  # claims more than any memory holds
        archive.writestr("000.npy", claim.getvalue())
    refused("export it again")

    with np.load(folder / "encoder.npz") as file:
        arrays = [file[name] for name in sorted(file.files)[:-1]]
    forged(path, header, arrays)
    runner.load(path)
    forged(path, header, arrays[:-1])
    refused("layers that do not fit")
    forged(path, header, [*arrays, arrays[0]])
    refused("parameters of no layer")
    forged(path, header, [*arrays[:-2], arrays[-2][..., :-1], arrays[-1]])
    refused("layers that do not fit")
    forged(path, header, [a.astype(np.float64) for a in arrays])
    refused("not all are float32")
    forged(path, header, arrays, layers=["scale", "eval"])
    refused("'eval' is not known")
    forged(path, header, arrays, layers=None)
    refused("layers that do not fit")
    forged(path, header, arrays, output={"width": WIDTH.get(kind, 5) + 1})
    refused("numbers a row")
    if not kind.startswith("nn"):
        forged(path, header, arrays, image=[4, 4, 1])
        refused("are no images")
    for bad in ({"shape": []}, {"shape": [64.0]}, {"shape": [-64]}, {"shape": "64"}, {}, 64):
        forged(path, header, arrays, input=bad)
        refused("export it again")


def test_wrong_rows_and_names_are_told(exported):
    folder = exported.folder
    for suffix in SUFFIXES:
        for wrong in (np.zeros((3, 5)), np.zeros(64), np.zeros((0, 5))):
            with pytest.raises(ValueError, match="rows must have the shape"):
                load_file(folder / f"encoder.{suffix}")(wrong)
    with pytest.raises(ValueError, match=r"must end in .npz, .stablehlo, .onnx, got 'encoder.txt'"):
        export(folder / "run", 0, to=folder / "encoder.txt")
    with pytest.raises(ValueError, match=r"must end in .npz, .stablehlo, .onnx, got 'encoder'"):
        load_file(folder / "encoder")
    with pytest.raises(ValueError, match="no finished point 7"):
        export(folder / "run", 7, to=folder / "encoder.npz")
    with pytest.raises(FileNotFoundError):
        load_file(folder / "nowhere.npz")


def test_a_full_disk_leaves_the_old_file(exported, tmp_path):
    folder = exported.folder
    for suffix in SUFFIXES:
        path = tmp_path / f"encoder.{suffix}"
        path.write_bytes(b"old")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, hard))
        try:
            with pytest.raises(OSError, match="File too large"):
                export(folder / "run", 0, to=path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == b"old"
    assert {p.name for p in tmp_path.iterdir()} == {f"encoder.{suffix}" for suffix in SUFFIXES}
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        export(folder / "run", 0, to=tmp_path / "folder.npz")


def test_what_cannot_be_exported_is_told(tmp_path):
    networks, data = NETWORKS["nn of two layers"], privjax.datasets.load("digits")
    make_run(tmp_path / "run", networks, data, spread=np.inf)
    with pytest.raises(ValueError, match="point 0 ended as converged, with parameters that are not finite"):
        export(tmp_path / "run", 0, to=tmp_path / "encoder.npz")
    results = privjax.load_results(tmp_path / "run")
    write_json(tmp_path / "run" / "results.json", {**results, "members": []})
    with pytest.raises(ValueError, match="has no point 0 yet: let the sweep go on"):
        export(tmp_path / "run", 0, to=tmp_path / "encoder.npz")
    results["config"]["networks"]["kind"] = "own"
    write_json(tmp_path / "run" / "results.json", results)
    with pytest.raises(ValueError, match="networks of your own, whose layers are not known"):
        export(tmp_path / "run", 0, to=tmp_path / "encoder.npz")
    assert not (tmp_path / "encoder.npz").exists()


def test_what_is_not_an_encoder_is_not_replaced(exported, tmp_path):
    own, script = tmp_path / "own.npz", tmp_path / "privjax_runner.py"
    np.savez(own, x=np.arange(3))
    before = own.read_bytes()
    with pytest.raises(ValueError, match=r"own\.npz is there and is no encoder: name another file"):
        export(exported.folder / "run", 0, to=own)
    assert own.read_bytes() == before
    script.write_text("print('mine')")
    with pytest.raises(ValueError, match="is there and is not privjax's: name a file in another folder"):
        export(exported.folder / "run", 0, to=tmp_path / "encoder.npz")
    assert {path.name for path in tmp_path.iterdir()} == {"own.npz", "privjax_runner.py"}
    script.unlink()
    for _ in range(2):  # its own files it may replace
        export(exported.folder / "run", 0, to=tmp_path / "encoder.npz")
    assert load_file(tmp_path / "encoder.npz").header == exported.header
