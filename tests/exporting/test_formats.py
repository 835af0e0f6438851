"""The formats of an exported encoder: agreement, plain readers, and the refusal of damaged files."""

import json
import math
import subprocess
import sys

import jax
import numpy as np
import pytest

import privjax
from privjax.encoder import Encoder, Scaling
from privjax.exporting import export, load_file, runner
from privjax.exporting.device import PLATFORMS, seal, unseal
from privjax.networks import Networks
from privjax.release import ReleaseMechanism

SUFFIXES = ("npz", "stablehlo", "onnx")
SMALL = {"num_outputs": 2, "num_private": 10, "public_widths": (9,), "discriminator_widths": (8,)}
FILTERS = {"private_filters": 3, "public_filters": 4}
# Networks, multiply-adds by hand and width of z. A convolution costs 9 weights per channel, filter and pixel;
# pooling drops the last row or column of odd sides. An encoder may take flat rows of images.
NETWORKS = {
    "nn of two layers": (privjax.nn_networks((8, 8), private_widths=(7, 5), **SMALL), 64 * 7 + 7 * 5, 5),
    "nn of images": (privjax.nn_networks((9, 7, 2), private_widths=(5,), **SMALL), 126 * 5, 5),
    "scnn": (privjax.scnn_networks((8, 8, 1), num_features=6, **SMALL, **FILTERS), 27 * 64 + 48 * 6, 6),
    "scnn of images": (
        privjax.scnn_networks((9, 7, 2), num_features=6, **SMALL, **FILTERS),
        54 * 63 + 36 * 6,
        6,
    ),
    "cnn of images": (privjax.cnn_networks((9, 7, 2), **SMALL, **FILTERS), 54 * 63, 36),
    "linear": (privjax.networks.linear_networks((2, 3), num_features=4), 24, 4),
    "identity": (privjax.networks.linear_networks((2, 3), num_features=None), 0, 6),
}
SHAPES = {"nn of two layers": (64,), "scnn": (64,), "linear": (2, 3), "identity": (2, 3)}


def random_encoder(name: str) -> Encoder:
    rng = np.random.default_rng(0)
    networks = NETWORKS[name][0]
    shapes = jax.eval_shape(networks.init, jax.random.key(0))["private"]
    params = jax.tree.map(lambda a: rng.normal(0.1, 0.3, a.shape).astype(np.float32), shapes)
    shape = SHAPES.get(name, (9, 7, 2))
    shift, spread = rng.normal(size=shape[-1]), rng.uniform(1, 3, size=shape[-1])
    scaling = Scaling("standard", shift.astype(np.float32), spread.astype(np.float32))
    return Encoder(networks, params, scaling, shape)


def raw_rows(encoder: Encoder, n: int = 11) -> np.ndarray:
    return np.random.default_rng(1).normal(0, 3, (n, *encoder.input_shape)).astype(np.float32)


@pytest.fixture(scope="module", params=list(NETWORKS))
def exported(request, tmp_path_factory):
    """An encoder, and a folder with its file in each format."""
    folder = tmp_path_factory.mktemp("formats")
    encoder = random_encoder(request.param)
    headers = [export(encoder, to=folder / f"encoder.{suffix}") for suffix in SUFFIXES]
    assert headers[0] == headers[1] == headers[2]
    return request.param, encoder, folder


def test_every_format_agrees_with_the_encoder(exported):
    _, encoder, folder = exported
    x = raw_rows(encoder)
    z = encoder(x)
    scale = np.abs(z).max()
    assert scale > 0.1
    for suffix in SUFFIXES:
        loaded = load_file(folder / f"encoder.{suffix}")
        assert loaded(x).dtype == np.float32
        assert np.abs(loaded(x) - z).max() < 1e-5 * scale, suffix
        assert np.abs(loaded(x.reshape(len(x), -1)) - z).max() < 1e-5 * scale
        np.testing.assert_allclose(loaded(x[:1]), z[:1], atol=1e-5 * scale)
        assert loaded(x[:0]).shape == (0, z.shape[1])
        for wrong in (np.zeros((3, 5)), np.zeros(64), np.zeros((0, 5))):
            with pytest.raises(ValueError, match="x must hold rows of shape"):
                loaded(wrong)


def test_the_header_states_shapes_and_cost(exported):
    name, encoder, folder = exported
    arrays = [*jax.tree.leaves(encoder.params), encoder.scaling.shift, encoder.scaling.spread]
    for suffix in SUFFIXES:
        header = load_file(folder / f"encoder.{suffix}").header
        assert header.input_shape == encoder.input_shape
        assert (header.multiply_adds, header.width) == NETWORKS[name][1:]
        # The linear kind has a second scaling, whose spread is 1.
        constants = math.prod(encoder.input_shape) if name == "linear" else 0
        assert header.parameters == sum(a.size for a in arrays) + constants
        assert header.bytes == 4 * header.parameters
        assert header == runner.Header.from_dict(json.loads(json.dumps(header.to_dict())))


def test_a_device_needs_numpy_alone(exported):
    _, encoder, folder = exported
    x = raw_rows(encoder)
    np.save(folder / "rows.npy", x)
    lines = "import sys, runpy; sys.modules.update(jax=None, flax=None, privjax=None, sklearn=None); "
    lines += "runpy.run_path('privjax_runner.py', run_name='__main__')"
    command = [sys.executable, "-I", "-W", "error", "-c", lines, "encoder.npz", "rows.npy", "z.npy"]
    subprocess.run(command, cwd=folder, check=True)
    np.testing.assert_array_equal(np.load(folder / "z.npy"), load_file(folder / "encoder.npz")(x))
    usage = subprocess.run(command[:-1], cwd=folder, capture_output=True, text=True)
    assert usage.returncode == 1
    assert "python privjax_runner.py encoder.npz rows.npy z.npy" in usage.stderr


def test_hostile_layers_are_refused(exported, tmp_path):
    name, encoder, folder = exported
    path = tmp_path / "encoder.npz"
    header, arrays = privjax.files.read_arrays(folder / "encoder.npz")

    def refused(match, changed=(), **changes):
        arrays_now = dict(arrays, **dict(changed))
        privjax.files.write_arrays(path, {**header, **changes}, arrays_now)
        with pytest.raises(ValueError, match=match) as error:
            load_file(path)
        assert "\n" not in str(error.value)
        assert str(error.value).endswith("export it again.")

    last = f"{len(arrays) - 1:03d}"
    refused("belong to no layer", {"999": np.zeros(3, np.float32)})
    refused("not all float32", {last: arrays[last].astype(np.float64)})
    refused("'eval'", layers=[["scale", 2, []], ["eval", 0, []]])
    refused("missing 2", layers=[*header["layers"], ["dense", 2, []]])
    refused("not a valid encoder", layers=None)
    refused("not a valid encoder", layers=[["dense", 10**9]])
    refused("return rows of shape", width=header["width"] + 1)
    refused("not have format privjax-encoder 2", version=1)
    refused("not have format privjax-encoder 2", format="other")
    for shape in ([], [64.0], [-64], "64", {}, None, 64):
        refused("not a valid encoder", input_shape=shape)
    if name != "identity":
        refused("not a valid encoder", {last: arrays[last][:-1].repeat(3)})
    if "cnn" in name:
        refused("cannot be reshaped", layers=[["reshape", 0, [4, 4, 1]], *header["layers"]])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with one small encoder in each format."""
    folder = tmp_path_factory.mktemp("formats")
    for suffix in SUFFIXES:
        export(random_encoder("cnn of images"), to=folder / f"encoder.{suffix}")
    return folder


@pytest.fixture(scope="module")
def encoder():
    return random_encoder("cnn of images")


@pytest.fixture(scope="module")
def rows(encoder):
    return raw_rows(encoder)


def test_many_rows_are_processed_in_blocks(files, encoder, rows, monkeypatch):
    z = encoder(rows)
    monkeypatch.setattr(runner, "_WORK", 3 * encoder.multiply_adds)
    for suffix in SUFFIXES:
        loaded = load_file(files / f"encoder.{suffix}")
        sizes, apply = [], loaded.apply
        loaded.apply = lambda x, sizes=sizes, apply=apply: (sizes.append(len(x)), apply(x))[1]
        np.testing.assert_allclose(loaded(rows.astype(np.float64)), z, atol=1e-5 * np.abs(z).max())
        assert sizes == [3, 3, 3, 2]


def test_plain_onnxruntime_reads_the_onnx_file(files, encoder, rows):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(files / "encoder.onnx"), providers=["CPUExecutionProvider"])
    (given,), (got,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.shape, given.type) == ("x", ["n", 9, 7, 2], "tensor(float)")
    assert (got.name, got.shape) == ("z", ["n", 36])
    z = encoder(rows)
    for n in (1, 2, 11):
        np.testing.assert_allclose(session.run(["z"], {"x": rows[:n]})[0], z[:n], atol=1e-5 * np.abs(z).max())


# The recipe in the docstring of privjax.exporting.device.
PLAIN_JAX = """
import sys, jax, numpy
from jax import export
header, _, program = open("encoder.stablehlo", "rb").read()[:-64].partition(b"\\n")
x = numpy.load("rows.npy")
numpy.save("z.npy", jax.export.deserialize(bytearray(program)).call(x))
assert not any(name.startswith("privjax") for name in sys.modules)
"""


def test_plain_jax_reads_the_stablehlo_file_for_every_platform(files, encoder, rows):
    np.save(files / "rows.npy", rows)
    subprocess.run([sys.executable, "-c", PLAIN_JAX], cwd=files, check=True)
    z = encoder(rows)
    np.testing.assert_allclose(np.load(files / "z.npy"), z, atol=1e-5 * np.abs(z).max())
    header, _, program = unseal(files / "encoder.stablehlo").partition(b"\n")
    exported = jax.export.deserialize(bytearray(program))
    assert exported.platforms == PLATFORMS == ("cpu", "cuda", "tpu")
    text = exported.mlir_module()
    assert text.count("precision HIGHEST") == 2 * text.count("stablehlo.convolution(") > 0
    assert json.loads(header)["width"] == 36


def test_the_same_encoder_gives_the_same_file(files, tmp_path):
    for suffix in SUFFIXES:
        export(random_encoder("cnn of images"), to=tmp_path / f"encoder.{suffix}")
        assert (tmp_path / f"encoder.{suffix}").read_bytes() == (files / f"encoder.{suffix}").read_bytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_changed_byte_is_refused_or_has_no_effect(files, rows, tmp_path, suffix):
    """In the zip archive of an npz some bytes have no effect, such as dates."""
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
        with pytest.raises(ValueError, match="truncated|incomplete"):
            load_file(path)


def test_hostile_programs_are_refused(files, tmp_path):
    header, _, program = unseal(files / "encoder.stablehlo").partition(b"\n")
    other = {**json.loads(header), "input_shape": [40]}
    inside = {
        "stablehlo": [
            b"",
            b"\n",
            header,
            header + b"\nnonsense",
            b"{}\n" + program,
            header[:-1] + b"\n" + program,
            json.dumps(other).encode() + b"\n" + program,
            b"[" * 100_000,
        ],
        "onnx": [b"", b"nonsense", b"\x08\x08", (files / "encoder.npz").read_bytes()],
    }
    for suffix, hostile in inside.items():
        path = tmp_path / f"encoder.{suffix}"
        for content in hostile:
            path.write_bytes(seal(content))
            with pytest.raises(ValueError, match="export it again") as error:
                load_file(path)
            assert str(error.value).count("\n") == 0
        path.write_bytes((files / "encoder.npz").read_bytes())  # a file with the wrong suffix
        with pytest.raises(ValueError, match="export it again"):
            load_file(path)


@pytest.mark.parametrize(("suffix", "module"), [("onnx", "onnxruntime"), ("stablehlo", "flatbuffers")])
def test_a_missing_library_is_named(files, monkeypatch, suffix, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{module} is not installed: .*pip install 'privjax\[export\]'"):
        load_file(files / f"encoder.{suffix}")


def test_encoders_without_a_layer_form_are_refused(encoder, tmp_path):
    def release(z, key):
        return z + jax.random.normal(key, z.shape)

    noisy = ReleaseMechanism("noise", release, stochastic=True)
    own = Networks(encoder.networks.init, encoder.networks.private, encoder.networks.public)
    for suffix in SUFFIXES:
        path = tmp_path / f"encoder.{suffix}"
        with pytest.raises(ValueError, match="the release mechanism noise .*"):
            export(Encoder(encoder.networks, encoder.params, encoder.scaling, (9, 7, 2), noisy), to=path)
        with pytest.raises(ValueError, match="networks are your own, so their layers are unknown"):
            export(Encoder(own, encoder.params, encoder.scaling, (9, 7, 2)), to=path)
        broken = Scaling("standard", encoder.scaling.shift * np.inf, encoder.scaling.spread)
        with pytest.raises(ValueError, match="parameters that are not finite"):
            export(Encoder(encoder.networks, encoder.params, broken, (9, 7, 2)), to=path)
    assert not list(tmp_path.iterdir())
