"""Release z instead of x with NumPy alone: a device needs this script and an exported encoder.

    python privjax_runner.py encoder.npz rows.npy z.npy

The rows are raw: the encoder scales them.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

# <library> The device script has the source of the library's functions in the place of this block.
from privjax.files import read_arrays
from privjax.networks.layers import LAYER_KINDS

LAYERS = {name: kind.numpy for name, kind in LAYER_KINDS.items()}
# </library>

FORMAT, VERSION = "privjax-encoder", 2
_WORK = 1 << 24  # multiply-adds of one block of rows: memory is independent of the number of rows


@dataclasses.dataclass(frozen=True)
class Header:
    """Description of an exported encoder. Facts about the sweep are None if the encoder is not from one."""

    layers: tuple[tuple[str, int, tuple[int, ...]], ...]  # kind, number of arrays and shape of each layer
    input_shape: tuple[int, ...]  # of one raw row, in float32
    width: int  # of z, in float32
    parameters: int  # scaling included
    bytes: int  # of the parameters
    multiply_adds: int  # per row, scaling excluded
    names: tuple[str, ...] | None = None  # of the features
    columns: tuple[dict[str, Any], ...] | None = None  # JSON form of the table columns that make x
    data: str | None = None  # name of the data set
    objective: str | None = None
    privacy_weight: float | dict[str, float] | None = None
    member: int | None = None
    seed: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the header as JSON values."""
        return {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, value: Any) -> Header:
        """Build a header from JSON values. Values that `FileEncoder` cannot use raise an error."""
        if not isinstance(value, dict) or (value.get("format"), value.get("version")) != (FORMAT, VERSION):
            raise ValueError(f"it does not have format {FORMAT} {VERSION}")
        header = cls(**{field.name: _as_tuple(value[field.name]) for field in dataclasses.fields(cls)})
        sizes = [*header.input_shape, header.width, header.multiply_adds + 1]
        if len(sizes) < 3 or not all(isinstance(size, int) and size > 0 for size in sizes):
            raise ValueError("its sizes are not whole numbers")
        return header


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, (list, tuple)) else value


class FileEncoder:
    """The encoder of an exported file with its `header`: z = encoder(x) for raw rows x [n, ...].

    `apply` maps one block of float32 rows, of the header's shape, to z.
    """

    def __init__(self, header, apply):
        self.header, self.apply = header, apply

    def __call__(self, x):
        """Release z [n, d] in float32."""
        x, shape = np.asarray(x), self.header.input_shape
        if x.ndim < 2 or math.prod(x.shape[1:]) != math.prod(shape):
            raise ValueError(f"x must hold rows of shape {shape}, got {x.shape[1:]}.")
        z = np.empty((len(x), self.header.width), np.float32)
        step = max(1, _WORK // max(self.header.multiply_adds, math.prod(shape)))
        for i in range(0, len(x), step):
            rows = x[i : i + step]
            z[i : i + step] = self.apply(rows.reshape(len(rows), *shape).astype(np.float32))
        return z


def load(path):
    """Read an exported npz file. A damaged or changed file raises ValueError."""
    header, arrays = read_arrays(Path(path))
    try:
        header = Header.from_dict(header)
        parameters = [arrays[name] for name in sorted(arrays)]
        if any(array.dtype != np.float32 for array in parameters):
            raise ValueError("its parameters are not all float32")
        # Zero rows show whether each layer fits the previous one.
        z = _run_layers(header.layers, parameters, np.zeros((0, *header.input_shape), np.float32))
        if z.shape != (0, header.width):
            raise ValueError(f"its layers return rows of shape {z.shape[1:]}")
    except Exception as error:  # a forged file may raise any error
        raise ValueError(f"{path} is not a valid encoder ({error}): export it again.") from None
    return FileEncoder(header, lambda x: _run_layers(header.layers, parameters, x))


def _run_layers(layers, parameters, x):
    for kind, number, shape in layers:
        if kind == "reshape" and math.prod(shape) != math.prod(x.shape[1:]):
            raise ValueError(f"rows of shape {x.shape[1:]} cannot be reshaped to {shape}")
        own, parameters = parameters[:number], parameters[number:]
        x = LAYERS[kind](x, *own, shape=shape)
    if parameters:
        raise ValueError("some parameters belong to no layer")
    return x


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    np.save(sys.argv[3], load(sys.argv[1])(np.load(sys.argv[2], mmap_mode="r")))
