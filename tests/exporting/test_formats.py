"""The three formats of an exported encoder: what their plain readers give, and what damage does."""

import json
import subprocess
import sys

import jax
import numpy as np
import pytest

import privjax
from privjax.exporting import runner, sealed
from privjax.exporting.layers import make_header, make_layers
from privjax.exporting.onnx import onnx_bytes
from privjax.exporting.read import load_file
from privjax.exporting.stablehlo import PLATFORMS, stablehlo_bytes
from privjax.exporting.write import npz_bytes
from privjax.sweeping import Encoder

SUFFIXES = ("npz", "stablehlo", "onnx")
rng = np.random.default_rng(0)


def make_encoder(networks, scaled):
    shapes = jax.eval_shape(networks.init, jax.random.key(0))["private"]
    params = jax.tree.map(lambda a: rng.normal(0.1, 0.3, a.shape).astype(np.float32), shapes)
    shift, spread = rng.normal(size=scaled), rng.uniform(1, 3, size=scaled)
    return Encoder(params, networks, shift.astype(np.float32), spread.astype(np.float32))


def contents(encoder, shape=None):
    layers = make_layers(encoder, shape)
    header = make_header(layers, {}, {"point": 3})
    return {
        "npz": npz_bytes(layers, header),
        "stablehlo": stablehlo_bytes(encoder, layers, header),
        "onnx": onnx_bytes(layers, header),
    }


@pytest.fixture(scope="module")
def encoder():
    return make_encoder(privjax.cnn_networks((5, 4, 2), num_outputs=2, private_filters=3), 2)


@pytest.fixture(scope="module")
def files(encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("formats")
    for suffix, content in contents(encoder).items():
        (folder / f"encoder.{suffix}").write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def rows():
    return rng.normal(0, 3, (11, 5, 4, 2)).astype(np.float32)


def expected_z(encoder, x):
    return encoder((x - encoder.shift) / encoder.spread)


@pytest.mark.parametrize(
    ("networks", "shape", "scaled", "found"),
    [
        (privjax.nn_networks(6, num_outputs=2), (6,), 6, (6,)),
        (privjax.nn_networks((2, 3), num_outputs=2), (6,), 6, (6,)),
        (privjax.nn_networks((2, 3), num_outputs=2), (2, 3), 3, (2, 3)),
        (privjax.nn_networks(6, num_outputs=2), (2, 3), 3, (2, 3)),
        (privjax.nn_networks(6, num_outputs=2), (1, 2, 3), 3, (2, 3)),
        (privjax.scnn_networks((5, 4, 3), num_outputs=2), (5, 4, 3), 3, (5, 4, 3)),
        (privjax.scnn_networks((4, 7, 1), num_outputs=2), (28,), 28, (28,)),
    ],
)
def test_rows_of_any_shape_the_networks_take(networks, shape, scaled, found, tmp_path):
    encoder = make_encoder(networks, scaled)
    x = rng.normal(0, 3, (3, *shape)).astype(np.float32)
    z = expected_z(encoder, x)
    for known in (shape, None):  # results of older sweeps do not say the shape
        layers = make_layers(encoder, known)
        assert layers.shape == (known or found)
        header = make_header(layers, {}, {})
        path = tmp_path / "encoder.npz"
        path.write_bytes(npz_bytes(layers, header))
        np.testing.assert_allclose(load_file(path)(x), z, atol=1e-5 * np.abs(z).max())
        path = tmp_path / "encoder.onnx"
        path.write_bytes(onnx_bytes(layers, header))
        np.testing.assert_allclose(load_file(path)(x), z, atol=1e-5 * np.abs(z).max())


def test_many_rows_go_through_in_blocks(files, encoder, rows, monkeypatch):
    z = expected_z(encoder, rows)
    monkeypatch.setattr(runner, "_WORK", 3 * 9 * 2 * 3 * 20)  # three rows at a time
    for suffix in SUFFIXES:
        loaded = load_file(files / f"encoder.{suffix}")
        sizes, apply = [], loaded.apply
        loaded.apply = lambda x, sizes=sizes, apply=apply: (sizes.append(len(x)), apply(x))[1]
        np.testing.assert_allclose(loaded(rows.astype(np.float64)), z, atol=1e-5 * np.abs(z).max())
        assert sizes == [3, 3, 3, 2]


def test_plain_onnxruntime_reads_it(files, encoder, rows):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(files / "encoder.onnx"), providers=["CPUExecutionProvider"])
    (given,), (got,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.shape, given.type) == ("x", ["n", 5, 4, 2], "tensor(float)")
    assert (got.name, got.shape) == ("z", ["n", 12])
    z = expected_z(encoder, rows)
    for n in (1, 2, 11):
        np.testing.assert_allclose(session.run(["z"], {"x": rows[:n]})[0], z[:n], atol=1e-5 * np.abs(z).max())


# As the docstring of privjax.exporting.stablehlo says it.
PLAIN_JAX = """
import sys, jax, numpy
from jax import export
header, _, program = open("encoder.stablehlo", "rb").read()[:-64].partition(b"\\n")
x = numpy.load("rows.npy")
numpy.save("z.npy", jax.export.deserialize(bytearray(program)).call(x))
assert not any(name.startswith("privjax") for name in sys.modules)
"""


def test_plain_jax_reads_it_for_every_platform(files, encoder, rows):
    np.save(files / "rows.npy", rows)
    subprocess.run([sys.executable, "-c", PLAIN_JAX], cwd=files, check=True)
    z = expected_z(encoder, rows)
    np.testing.assert_allclose(np.load(files / "z.npy"), z, atol=1e-5 * np.abs(z).max())
    said, _, program = sealed.unsealed(files / "encoder.stablehlo").partition(b"\n")
    exported = jax.export.deserialize(bytearray(program))
    assert exported.platforms == PLATFORMS == ("cpu", "cuda", "tpu")
    text = exported.mlir_module()
    assert text.count("precision HIGHEST") == 2 * text.count("stablehlo.convolution(") > 0
    assert json.loads(said)["point"] == 3


def test_the_same_encoder_gives_the_same_file(files, encoder):
    for suffix, content in contents(encoder).items():
        assert content == (files / f"encoder.{suffix}").read_bytes(), suffix


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_byte_can_be_changed(files, rows, tmp_path, suffix):
    """Each is refused; in the zip of an npz some do not matter, such as dates."""
    whole = (files / f"encoder.{suffix}").read_bytes()
    z = load_file(files / f"encoder.{suffix}")(rows)
    path = tmp_path / f"encoder.{suffix}"
    refused = 0
    places = range(0, len(whole), 5)
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << (place % 8)
        path.write_bytes(changed)
        try:
            found = load_file(path)
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017
            refused += 1
        else:
            assert suffix == "npz"
            np.testing.assert_array_equal(found(rows), z)
    assert refused > (0.8 if suffix == "npz" else 0.999) * len(places)
    for cut in (0, 1, 63, 64, 65, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="export it again"):
            load_file(path)
    path.write_bytes(whole + b"0")
    if suffix != "npz":
        with pytest.raises(ValueError, match="export it again"):
            load_file(path)


def test_hostile_files_are_refused(files, tmp_path):
    said, _, program = sealed.unsealed(files / "encoder.stablehlo").partition(b"\n")
    other = json.loads(said)
    other["input"]["shape"] = [40]
    inside = {
        "stablehlo": [b"", b"\n", said, said + b"\nnonsense", b"{}\n" + program, said[:-1] + b"\n" + program]
        + [json.dumps(other).encode() + b"\n" + program, b"[" * 100_000],
        "onnx": [b"", b"nonsense", b"\x08\x08", (files / "encoder.npz").read_bytes()],
    }
    for suffix, hostile in inside.items():
        path = tmp_path / f"encoder.{suffix}"
        for content in hostile:
            path.write_bytes(sealed.seal(content))
            with pytest.raises(ValueError, match="export it again") as told:
                load_file(path)
            assert str(told.value).count("\n") == 0
        path.write_bytes((files / "encoder.npz").read_bytes())  # by another name
        with pytest.raises(ValueError, match="export it again"):
            load_file(path)


@pytest.mark.parametrize(("suffix", "module"), [("onnx", "onnxruntime"), ("stablehlo", "flatbuffers")])
def test_a_missing_library_is_named(files, monkeypatch, suffix, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{module} is not installed: pip install 'privjax\[export\]'"):
        load_file(files / f"encoder.{suffix}")
