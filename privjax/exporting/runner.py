"""Releases z instead of x with NumPy alone: this file and an exported encoder are all that a device needs.

    python privjax_runner.py encoder.npz rows.npy z.npy

Rows are as they were before any scaling: the encoder scales them itself.
"""

import hashlib
import io
import json
import math
import sys
import zipfile

import numpy as np

FORMAT, VERSION = "privjax-encoder", 1
_WORK = 1 << 24  # multiply-adds of the rows worked on at a time: memory stays the same however many there are


class Encoder:
    """x -> z for rows [n, ...] of the shape that `header["input"]` names.

    Attributes:
      header: what the file says of itself: input, output, layers, parameters, bytes, multiply_adds, sha256.
      apply: what turns some rows, of that shape and in float32, into z.
    """

    def __init__(self, header, apply):
        self.header, self.apply = header, apply

    def __call__(self, x):
        """Releases z [n, d] in float32."""
        x, shape = np.asarray(x), self.header["input"]["shape"]
        if x.ndim < 2 or math.prod(x.shape[1:]) != math.prod(shape):
            raise ValueError(f"rows must have the shape {tuple(shape)}, got {x.shape[1:]}.")
        z = np.empty((len(x), self.header["output"]["width"]), np.float32)
        step = max(1, _WORK // self.header["multiply_adds"])
        for i in range(0, len(x), step):
            rows = x[i : i + step]
            z[i : i + step] = self.apply(rows.reshape(len(rows), *shape).astype(np.float32))
        return z


def load(path):
    """Reads an exported encoder; a file that is cut short or was changed is refused."""
    with open(path, "rb") as file:
        try:
            content = _arrays(file)
            header = check_header(json.loads(content.pop("header").tobytes().decode()))
            arrays = [content.pop(f"{i:03d}") for i in range(len(content))]
        except Exception as error:  # of zipfile, NumPy and json, each with its own kinds
            raise ValueError(f"{path} is no whole encoder file ({error}): export it again.") from None
    if header["sha256"] != digest(header, arrays):
        raise ValueError(f"{path} was changed after it was exported: its digest differs.")
    try:
        if any(array.dtype != np.float32 for array in arrays):
            raise ValueError("not all are float32")
        # No rows at all show whether every layer fits the one before it.
        z = run_layers(header, arrays, np.zeros((0, *header["input"]["shape"]), np.float32))
        if z.shape != (0, header["output"]["width"]):
            raise ValueError(f"they give {z.shape[1:]} numbers a row")
    except Exception as error:
        raise ValueError(f"{path} has layers that do not fit ({error}): export it again.") from None
    return Encoder(header, lambda x: run_layers(header, arrays, x))


def _arrays(file):
    """The arrays of an uncompressed npz, none of which is larger than the file."""
    size = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        if sum(member.file_size for member in archive.infolist()) > size:
            raise ValueError("it unpacks to more than it holds")
        return {name.removesuffix(".npy"): _array(archive.read(name)) for name in archive.namelist()}


def _array(content):
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("it holds arrays of another version")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    flat = np.frombuffer(content, dtype, offset=file.tell())
    return flat.reshape(shape, order="F" if fortran else "C")


def check_header(header):
    """Gives back a header of this format and version that says all that `Encoder` needs."""
    if not isinstance(header, dict) or (header.get("format"), header.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"it is not of format {FORMAT} {VERSION}")
    sizes = [*header["input"]["shape"], header["output"]["width"], header["multiply_adds"]]
    if len(sizes) < 3 or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise ValueError("its sizes are not whole numbers")
    if not isinstance(header["sha256"], str):
        raise ValueError("it has no digest")
    return header


def digest(header, arrays):
    """SHA-256 of all that the header says but the digest itself, and of the arrays."""
    said = {key: value for key, value in header.items() if key != "sha256"}
    found = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def run_layers(header, arrays, x):
    """Takes rows through the layers that the header lists, each with its own of the arrays."""
    arrays = list(arrays)
    for name in header["layers"]:
        if name == "image":
            if math.prod(header["image"]) != math.prod(x.shape[1:]):
                raise ValueError(f"rows {x.shape[1:]} are no images {header['image']}")
            x = x.reshape(len(x), *header["image"])
        elif name == "flatten":
            x = x.reshape(len(x), math.prod(x.shape[1:]))
        elif name in _LAYERS and len(arrays) > 1:
            x = _LAYERS[name](x, arrays.pop(0), arrays.pop(0))
        else:
            raise ValueError(f"the layer {name!r} is not known, or has no parameters")
    if arrays:
        raise ValueError("there are parameters of no layer")
    return x


def _convolve_pool(x, kernel, bias):
    """ReLU(max-pool(3 x 3 convolution) + bias) of images [n, h, w, c]."""
    h, w = x.shape[1:3]
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    y = np.zeros((len(x), h, w, kernel.shape[-1]), np.float32)
    for i in range(3):
        for j in range(3):
            y += padded[:, i : i + h, j : j + w] @ kernel[i, j]
    h, w = h // 2 * 2, w // 2 * 2  # of odd sides the last row or column is not pooled
    y = y[:, :h, :w].reshape(len(y), h // 2, 2, w // 2, 2, y.shape[-1]).max((2, 4))
    return np.maximum(y + bias, 0)


_LAYERS = {
    "scale": lambda x, shift, spread: (x - shift) / spread,
    "dense_relu": lambda x, kernel, bias: np.maximum(x @ kernel + bias, 0),
    "convolve_pool_relu": _convolve_pool,
}


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    np.save(sys.argv[3], load(sys.argv[1])(np.load(sys.argv[2], mmap_mode="r")))
