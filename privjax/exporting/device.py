r"""Export of encoders to files for a device, and the reader of these files.

ONNX and StableHLO files hold the header and end with a seal. To read them without privjax (x holds raw rows
in float32):

    z = onnxruntime.InferenceSession("encoder.onnx").run(["z"], {"x": x})[0]

    header, _, program = open("encoder.stablehlo", "rb").read()[:-64].partition(b"\n")
    z = jax.export.deserialize(bytearray(program)).call(x)
"""

import hashlib
import inspect
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, SupportsIndex

import jax
import numpy as np
from jax import export as jax_export

from privjax import files
from privjax.encoder import Encoder
from privjax.exporting import runner
from privjax.exporting.runner import FileEncoder, Header
from privjax.extras import import_optional
from privjax.networks import LAYER_KINDS, Layer, apply_jax
from privjax.sweeping import SweepResult, load_encoder, load_results

PLATFORMS = ("cpu", "cuda", "tpu")
PathLike = str | os.PathLike[str]
_SUFFIXES = (".npz", ".stablehlo", ".onnx")
_OPSET, _IR = 17, 8  # of 2022, because runtimes on devices are often old
_SEAL = 64  # length of the seal: the SHA-256, in hexadecimal, of all preceding bytes


def export(
    source: PathLike | SweepResult | Encoder, member: SupportsIndex | None = None, *, to: PathLike
) -> Header:
    """Write an encoder, such as that of one member of a sweep, to a file for the device.

    The file holds the scaling and the private network: no other network and no row of data. An npz file
    comes with the script `privjax_runner.py`, which applies it with NumPy alone.

    Args:
      source: The workdir of a sweep, its `SweepResult`, or an `Encoder`.
      member: Number of the member, or a `CurvePoint`; None with an `Encoder`.
      to: The npz, stablehlo or onnx file. An existing file is replaced after the new one is complete.

    Returns:
      The header of the file: shape of x, width of z, size, cost per row and origin.

    Example:
      >>> import pathlib, tempfile
      >>> import numpy as np, privjax
      >>> path = pathlib.Path(tempfile.mkdtemp()) / "encoder.npz"
      >>> privjax.export(privjax.baselines.pca(np.eye(5), num_features=2), to=path).width
      2
      >>> load_file(path)(np.eye(5)).shape
      (5, 2)
    """
    encoder, origin = _find(source, member)
    return write_encoder(encoder, to, **origin)


def describe(source: PathLike | SweepResult | Encoder, member: SupportsIndex | None = None) -> Header:
    """Return the header that `export` would write."""
    encoder, origin = _find(source, member)
    return _make_header(encoder, **origin)


def load_file(path: PathLike) -> FileEncoder:
    """Read an exported encoder; it runs on NumPy (npz), JAX (stablehlo) or onnxruntime (onnx).

    Args:
      path: A file that `export` wrote. A damaged or changed file raises ValueError.

    Returns:
      A function of raw rows x to z, with the `header` of the file.
    """
    path, suffix = _check_path("encoder", path)
    if suffix == ".npz":
        return runner.load(path)
    content = unseal(path)
    try:
        read = _read_onnx if suffix == ".onnx" else _read_stablehlo
        header, shape, apply = read(content)
        if tuple(shape[1:]) != header.input_shape:
            raise ValueError("its program takes rows of another shape than its header states")
    except ImportError:
        raise
    except Exception as error:  # json, jax and onnxruntime raise many kinds
        raise ValueError(f"{path} is not a valid encoder ({error}): export it again.") from None
    return FileEncoder(header, apply)


def write_encoder(encoder: Encoder, to: PathLike, **origin: Any) -> Header:
    """Write an encoder to a file; `origin` holds the fields of `Header` that an encoder does not know."""
    path, suffix = _check_path("to", to)
    header = _make_header(encoder, **origin)
    if suffix == ".npz":
        script = path.with_name("privjax_runner.py")
        _check_replaceable(path, script)
        arrays = enumerate(_arrays(encoder))
        files.write_arrays(path, header.to_dict(), {f"{i:03d}": array for i, array in arrays})
        path, content = script, _runner_script().encode()
    else:
        make = _onnx_bytes if suffix == ".onnx" else _stablehlo_bytes
        content = seal(make(encoder.layers, header))
    with files.replacing(path) as part:
        part.write_bytes(content)
    return header


def _check_path(argument: str, path: PathLike) -> tuple[Path, str]:
    path = Path(path).expanduser()
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ValueError(f"{argument} must end in {', '.join(_SUFFIXES)}, got {path.name!r}.")
    return path, suffix


def _find(
    source: PathLike | SweepResult | Encoder, member: SupportsIndex | None
) -> tuple[Encoder, dict[str, Any]]:
    """Return the encoder, and its origin as fields of the header."""
    if isinstance(source, Encoder):
        return source, {}
    if member is None:
        raise TypeError("member is missing: give the number of a member, or a point of the curve.")
    run = source.run if isinstance(source, SweepResult) else load_results(source)
    if run.config.networks.get("kind") == "own":
        raise ValueError("networks are your own, so their layers are unknown: use those of privjax.")
    record, data = run.find(member), run.data
    encoder = source.encoder(member) if isinstance(source, SweepResult) else load_encoder(source, member)
    origin = {key: getattr(record, key) for key in ("objective", "privacy_weight", "member", "seed")}
    return encoder, {"names": data.feature_names, "columns": data.columns, "data": data.name, **origin}


def _make_header(encoder: Encoder, **origin: Any) -> Header:
    """Make the header, equal to that read from the file."""
    arrays = _arrays(encoder)
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError("the encoder has parameters that are not finite: train it again.")
    header = Header(
        layers=tuple((layer.kind, len(layer.arrays), layer.shape) for layer in encoder.layers),
        input_shape=encoder.input_shape,
        width=encoder.width,
        parameters=sum(array.size for array in arrays),
        bytes=sum(array.nbytes for array in arrays),
        multiply_adds=encoder.multiply_adds,
        **origin,
    )
    return Header.from_dict(json.loads(_header_text(header)))


def _header_text(header: Header) -> str:
    return json.dumps(header.to_dict(), sort_keys=True, allow_nan=False)


def _arrays(encoder: Encoder) -> list[np.ndarray]:
    return [array for layer in encoder.layers for array in layer.arrays]


def _check_replaceable(npz: Path, script: Path) -> None:
    """Refuse to write over files that `export` did not write."""
    try:
        with np.load(npz) as file:
            ours = "header" in file and json.loads(file["header"].tobytes()).get("format") == runner.FORMAT
    except Exception:  # no file yet, or a damaged one, for instance of an interrupted export
        ours = True
    if not ours:
        raise ValueError(f"{npz} exists and is not an exported encoder: name another file.")
    title = str(runner.__doc__).splitlines()[0]
    if script.is_file() and title not in script.read_text(errors="replace"):
        raise ValueError(f"{script} exists and is not privjax's: name a file in another folder.")


def _runner_script() -> str:
    """Assemble the device script: `runner` with the source of the library's functions in it."""
    functions = [files.read_arrays, files._read_npz, files._digest]
    functions += [kind.numpy for kind in LAYER_KINDS.values()]
    imports = "".join(f"import {name}\n" for name in ("hashlib", "json", "os", "zipfile"))
    sources = "\n\n".join(inspect.getsource(function) for function in functions)
    table = "".join(f'    "{name}": {kind.numpy.__name__},\n' for name, kind in LAYER_KINDS.items())
    before, _, rest = inspect.getsource(runner).partition("# <library>")
    after = rest.partition("# </library>\n")[2]
    return f"{before}{imports}\n\n{sources}\n\nLAYERS = {{\n{table}}}\n{after}"


def _onnx_bytes(layers: Sequence[Layer], header: Header) -> bytes:
    """Make the content of an ONNX file, whose input is `x` and whose output is `z`."""
    import_optional("onnx", extra="export")
    from onnx import TensorProto, checker, helper, numpy_helper

    nodes, constants = [], []
    for layer in layers:
        for operation, parameters, attributes in LAYER_KINDS[layer.kind].onnx(layer):
            inputs = [nodes[-1].output[0] if nodes else "x"]
            for array in parameters:
                inputs.append(f"parameter{len(constants)}")
                constants.append(numpy_helper.from_array(np.asarray(array), inputs[-1]))
            nodes.append(helper.make_node(operation, inputs, [f"step{len(nodes)}"], **attributes))
    nodes[-1].output[0] = "z"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *header.input_shape])
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", header.width])
    graph = helper.make_graph(nodes, "encoder", [x], [z], constants)
    opset = helper.make_opsetid("", _OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=_IR, producer_name="privjax")
    blank = "0" * _SEAL
    helper.set_model_props(model, {"header": _header_text(header), "seal": blank})
    checker.check_model(model, full_check=True)
    content = model.SerializeToString(deterministic=True)
    # The seal covers every preceding byte, because metadata end the file and the seal ends the metadata.
    assert content.endswith(blank.encode())
    return content[:-_SEAL]


def _stablehlo_bytes(layers: Sequence[Layer], header: Header) -> bytes:
    """Make the content of a StableHLO file, for any number of rows on each of `PLATFORMS`."""
    import_optional("flatbuffers", extra="export")  # required by jax.export, not installed by jax
    rows = jax.ShapeDtypeStruct((*jax_export.symbolic_shape("n"), *header.input_shape), np.float32)
    limit = "jax_traceback_in_locations_limit"  # source paths are private: they stay out of the program
    before = getattr(jax.config, limit)
    jax.config.update(limit, 0)
    try:
        # By default accelerators multiply with fewer digits than float32 has.
        with jax.default_matmul_precision("highest"):
            program = jax_export.export(jax.jit(lambda x: apply_jax(layers, x)), platforms=PLATFORMS)(rows)
    finally:
        jax.config.update(limit, before)
    return _header_text(header).encode() + b"\n" + bytes(program.serialize())


def _read_onnx(content: bytes) -> tuple:
    """Return the header, the shape of x and the encoder, which runs on onnxruntime."""
    runtime = import_optional("onnxruntime", extra="export")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors are raised, so nothing is logged
    session = runtime.InferenceSession(seal(content), options, providers=["CPUExecutionProvider"])
    header = Header.from_dict(json.loads(session.get_modelmeta().custom_metadata_map["header"]))
    return header, session.get_inputs()[0].shape, lambda x: session.run(["z"], {"x": x})[0]


def _read_stablehlo(content: bytes) -> tuple:
    """Return the header, the shape of x and the encoder, which runs on JAX."""
    text, _, program = content.partition(b"\n")
    import_optional("flatbuffers", extra="export")
    exported = jax_export.deserialize(bytearray(program))
    call = jax.jit(exported.call)

    def apply(x: np.ndarray) -> np.ndarray:
        # Each number of rows compiles: padding to powers of two keeps them few.
        padding = (1 << (len(x) - 1).bit_length()) - len(x)
        return np.asarray(call(np.pad(x, [(0, padding)] + [(0, 0)] * (x.ndim - 1))))[: len(x)]

    return Header.from_dict(json.loads(text)), exported.in_avals[0].shape, apply


def seal(content: bytes) -> bytes:
    """Append the seal to content."""
    return content + hashlib.sha256(content).hexdigest().encode()


def unseal(path: str | os.PathLike[str]) -> bytes:
    """Read a sealed file without its seal. A truncated or changed file raises ValueError."""
    whole = Path(path).read_bytes()
    if seal(whole[:-_SEAL]) != whole:
        raise ValueError(f"{path} is truncated or was changed after its export: export it again.")
    return whole[:-_SEAL]
