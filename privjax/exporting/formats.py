r"""Encoders as ONNX and StableHLO files, with the header inside and a seal at the end.

To read them without privjax (x holds raw rows in float32):

    z = onnxruntime.InferenceSession("encoder.onnx").run(["z"], {"x": x})[0]

    header, _, program = open("encoder.stablehlo", "rb").read()[:-64].partition(b"\n")
    z = jax.export.deserialize(bytearray(program)).call(x)
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import numpy as np
from jax import export

from privjax.exporting.runner import FileEncoder, Header
from privjax.extras import import_optional
from privjax.networks import LAYER_KINDS, Layer, apply_jax

PLATFORMS = ("cpu", "cuda", "tpu")
_OPSET, _IR = 17, 8  # of 2022, because runtimes on devices are often old
_SEAL = 64  # length of the seal: the SHA-256, in hexadecimal, of all preceding bytes


def onnx_bytes(layers: Sequence[Layer], header: Header) -> bytes:
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
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *header.input_shape])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", header.width])],
        constants,
    )
    opset = helper.make_opsetid("", _OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=_IR, producer_name="privjax")
    blank = "0" * _SEAL
    helper.set_model_props(model, {"header": _header_text(header), "seal": blank})
    checker.check_model(model, full_check=True)
    content = model.SerializeToString(deterministic=True)
    # The seal covers every preceding byte, because metadata end the file and the seal ends the metadata.
    assert content.endswith(blank.encode())
    return seal(content[:-_SEAL])


def load_onnx(path: str | os.PathLike) -> FileEncoder:
    """Read an ONNX file of `onnx_bytes`; the encoder runs on onnxruntime."""
    content = seal(unseal(path))
    runtime = import_optional("onnxruntime", extra="export")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors are raised, so nothing is logged
    with _valid(path):
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        header = Header.from_dict(json.loads(session.get_modelmeta().custom_metadata_map["header"]))
        _check_input(session.get_inputs()[0].shape, header)
    return FileEncoder(header, lambda x: session.run(["z"], {"x": x})[0])


def stablehlo_bytes(layers: Sequence[Layer], header: Header) -> bytes:
    """Make the content of a StableHLO file, for any number of rows on each of `PLATFORMS`."""
    import_optional("flatbuffers", extra="export")  # required by jax.export, not installed by jax
    rows = jax.ShapeDtypeStruct((*export.symbolic_shape("n"), *header.input_shape), np.float32)
    # By default accelerators multiply with fewer digits than float32 has.
    with _without_locations(), jax.default_matmul_precision("highest"):
        program = export.export(jax.jit(lambda x: apply_jax(layers, x)), platforms=PLATFORMS)(rows)
        return seal(_header_text(header).encode() + b"\n" + bytes(program.serialize()))


@contextlib.contextmanager
def _without_locations() -> Iterator[None]:
    """Leave source paths, which are private, out of the program."""
    name = "jax_traceback_in_locations_limit"
    before = getattr(jax.config, name)
    jax.config.update(name, 0)
    try:
        yield
    finally:
        jax.config.update(name, before)


def load_stablehlo(path: str | os.PathLike) -> FileEncoder:
    """Read a StableHLO file of `stablehlo_bytes`; the encoder runs on JAX."""
    text, _, program = unseal(path).partition(b"\n")
    import_optional("flatbuffers", extra="export")
    with _valid(path):
        header = Header.from_dict(json.loads(text))
        exported = export.deserialize(bytearray(program))
        _check_input(exported.in_avals[0].shape, header)
    call = jax.jit(exported.call)

    def apply(x: np.ndarray) -> np.ndarray:
        # Each number of rows compiles: padding to powers of two keeps them few.
        padding = (1 << (len(x) - 1).bit_length()) - len(x)
        return np.asarray(call(np.pad(x, [(0, padding)] + [(0, 0)] * (x.ndim - 1))))[: len(x)]

    return FileEncoder(header, apply)


def seal(content: bytes) -> bytes:
    """Append the seal to content."""
    return content + hashlib.sha256(content).hexdigest().encode()


def unseal(path: str | os.PathLike) -> bytes:
    """Read a sealed file without its seal. A truncated or changed file raises ValueError."""
    whole = Path(path).read_bytes()
    content = whole[:-_SEAL]
    if seal(content) != whole:
        raise ValueError(f"{path} is truncated or was changed after its export: export it again.")
    return content


@contextlib.contextmanager
def _valid(path: str | os.PathLike) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # json, jax and onnxruntime raise many kinds
        raise ValueError(f"{path} is not a valid encoder ({error}): export it again.") from None


def _check_input(shape: Sequence, header: Header) -> None:
    if tuple(shape[1:]) != header.input_shape:
        raise ValueError("its program takes rows of another shape than its header states")


def _header_text(header: Header) -> str:
    return json.dumps(header.to_dict(), sort_keys=True, allow_nan=False)
