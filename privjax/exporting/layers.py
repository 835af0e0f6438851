"""An encoder as a list of plain layers, and what a file says of it."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from privjax.encoder import Encoder
from privjax.exporting.runner import FORMAT, VERSION, digest


class Layers(NamedTuple):
    """The private sphere with its scaling, as `runner` applies it.

    Attributes:
      names: of the layers.
      arrays: their parameters, in order.
      shape: of one row of x.
      image: of a row as the convolution sees it; empty without one.
      width: of z.
    """

    names: tuple[str, ...]
    arrays: tuple[np.ndarray, ...]
    shape: tuple[int, ...]
    image: tuple[int, ...]
    width: int


def make_layers(encoder: Encoder, shape: Sequence[int] | None) -> Layers:
    """Takes an encoder of privjax's own networks apart.

    Args:
      encoder: whose `networks.settings` say what its layers are.
      shape: of one row of its data set; found from the encoder when None.
    """
    settings = dict(encoder.networks.settings or ())
    names: list[str] = ["scale"]
    arrays: list[Any] = [encoder.shift, encoder.spread]
    image: tuple[int, ...] = ()
    if settings["kind"] == "nn":
        expected = tuple(settings["input_shape"])
        names.append("flatten")
        for i in range(len(settings["private_widths"])):
            layer = encoder.params[f"Dense_{i}"]
            names.append("dense_relu")
            arrays += [layer["kernel"], layer["bias"]]
    else:
        expected = image = tuple(settings["image_shape"])
        layer = encoder.params["convolution"]
        names += ["image", "convolve_pool_relu", "flatten"]
        arrays += [layer["kernel"], layer["bias"]]
        if "projection" in encoder.params:
            names.append("dense_relu")
            arrays += [encoder.params["projection"]["w"], encoder.params["projection"]["b"]]
    arrays = [np.asarray(a, np.float32) for a in arrays]
    pooled = 1 if names[-1] == "dense_relu" else math.prod(side // 2 for side in image[:2])
    shape = _row_shape(expected, encoder.shift.size) if shape is None else tuple(shape)
    return Layers(tuple(names), tuple(arrays), shape, image, pooled * arrays[-1].shape[0])


def _row_shape(expected: tuple[int, ...], scaled: int) -> tuple[int, ...]:
    """Rows as they are scaled: along their last axis, be it columns or the channels of an image."""
    size = math.prod(expected)
    if expected[-1] == scaled:
        return expected
    return (size,) if size == scaled else (size // scaled, scaled)


def make_header(layers: Layers, schema: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    """What a file says of itself, its digest included.

    Args:
      layers: of the encoder.
      schema: what else is known of a row of x.
      about: what else to say.
    """
    header = {
        "format": FORMAT,
        "version": VERSION,
        "layers": list(layers.names),
        "input": {"shape": list(layers.shape), "dtype": "float32", "scaled": False, **schema},
        "image": list(layers.image),
        "output": {"width": layers.width, "dtype": "float32"},
        "parameters": sum(a.size for a in layers.arrays),
        "bytes": sum(a.nbytes for a in layers.arrays),
        "multiply_adds": multiply_adds(layers),
        **about,
    }
    return {**header, "sha256": digest(header, layers.arrays)}


def multiply_adds(layers: Layers) -> int:
    """Multiplications with additions that one row costs, scaling aside."""
    pixels = math.prod(layers.image[:2])
    return sum(a.size * (pixels if a.ndim == 4 else 1) for a in layers.arrays if a.ndim > 1)
