"""An encoder as ONNX: `x` [n, ...] to `z` [n, d], for any runtime; the header and a seal are its metadata.

To read one without privjax:

    z = onnxruntime.InferenceSession("encoder.onnx").run(["z"], {"x": x})[0]  # x in float32, not scaled
"""

import json
import os
from typing import Any

import numpy as np

from privjax.exporting.layers import Layers
from privjax.exporting.runner import Encoder, check_header
from privjax.exporting.sealed import seal, unsealed
from privjax.extras import need

_OPSET, _IR = 17, 8  # of 2022: runtimes on devices are seldom new


def onnx_bytes(layers: Layers, header: dict[str, Any]) -> bytes:
    """The file's content."""
    need("onnx", extra="export")
    from onnx import TensorProto, checker, helper, numpy_helper

    arrays, nodes, constants = list(layers.arrays), [], []

    def add(operation: str, *parameters: np.ndarray, **attributes: Any) -> None:
        names = [f"parameter{len(constants) + i}" for i in range(len(parameters))]
        constants.extend(numpy_helper.from_array(a, name) for name, a in zip(names, parameters, strict=True))
        source = nodes[-1].output[0] if nodes else "x"
        nodes.append(helper.make_node(operation, [source, *names], [f"step{len(nodes)}"], **attributes))

    for name in layers.names:
        if name == "scale":
            add("Sub", arrays.pop(0))
            add("Div", arrays.pop(0))
        elif name == "image":
            add("Reshape", np.array([0, *layers.image], np.int64))  # 0 keeps the number of rows
        elif name == "flatten":
            add("Flatten")
        elif name == "dense_relu":
            add("Gemm", arrays.pop(0), arrays.pop(0))
            add("Relu")
        else:  # convolve_pool_relu; ONNX has channels first
            kernel = np.ascontiguousarray(arrays.pop(0).transpose(3, 2, 0, 1))
            add("Transpose", perm=[0, 3, 1, 2])
            add("Conv", kernel, arrays.pop(0), pads=[1, 1, 1, 1])
            add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
            add("Relu")
            add("Transpose", perm=[0, 2, 3, 1])
    nodes[-1].output[0] = "z"
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *layers.shape])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", layers.width])],
        constants,
    )
    opset = helper.make_opsetid("", _OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=_IR, producer_name="privjax")
    blank = "0" * 64
    helper.set_model_props(model, {"header": json.dumps(header, sort_keys=True), "seal": blank})
    checker.check_model(model, full_check=True)
    content = model.SerializeToString(deterministic=True)
    # Metadata come last in the file, and of them the seal: it covers every byte before it.
    assert content.endswith(blank.encode())
    return seal(content[: -len(blank)])


def load_onnx(path: str | os.PathLike) -> Encoder:
    """Reads an encoder that `onnx_bytes` wrote; it runs on onnxruntime."""
    content = seal(unsealed(path))
    runtime = need("onnxruntime", extra="export")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors are raised: nothing is left to be logged
    try:
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        header = check_header(json.loads(session.get_modelmeta().custom_metadata_map["header"]))
        if session.get_inputs()[0].shape[1:] != header["input"]["shape"]:
            raise ValueError("its graph takes other rows than it says")
    except Exception as error:  # of onnxruntime and json, each with its own kinds
        raise ValueError(f"{path} is no whole encoder file ({error}): export it again.") from None
    return Encoder(header, lambda x: session.run(["z"], {"x": x})[0])
