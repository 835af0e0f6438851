"""Safe npz files: arrays and a JSON header under one digest, without pickle.

The runner for devices is assembled from the source of the reading functions, which therefore need the
standard library and NumPy alone, and have no annotations of privjax types.
"""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from privjax.files import replacing


def write_npz(path: str | os.PathLike, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write an npz file; an existing file is replaced after the new one is complete.

    Args:
      path: Path of the file.
      header: JSON values; the digest is added as `sha256`.
      arrays: Arrays of numbers, booleans or text, by name.

    Example:
      >>> import tempfile
      >>> path = Path(tempfile.mkdtemp()) / "example.npz"
      >>> write_npz(path, {"format": "example"}, {"a": np.arange(3)})
      >>> header, arrays = read_npz(path)
      >>> header["format"], arrays["a"]
      ('example', array([0, 1, 2]))
    """
    content = npz_bytes(header, arrays)
    with replacing(Path(path)) as part:
        part.write_bytes(content)


def npz_bytes(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """Make the content of such a file; equal arguments give equal bytes."""
    text = json.dumps({**header, "sha256": npz_digest(header, arrays)}, sort_keys=True, allow_nan=False)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in {"header": np.frombuffer(text.encode(), np.uint8), **arrays}.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array), (1, 0), allow_pickle=False)
    return buffer.getvalue()


def npz_digest(header, arrays):
    """Compute the SHA-256 of a header without its digest, and of arrays by name."""
    content = {key: value for key, value in header.items() if key != "sha256"}
    found = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def read_npz(file, remedy="write it again"):
    """Read the header and the arrays of an npz file that `npz_bytes` made.

    Args:
      file: The path, or an open binary file.
      remedy: Last words of the messages.

    Returns:
      The header as a dict, and the arrays by name, read-only.

    Raises:
      ValueError: The file is truncated, damaged, larger than it claims, or does not match its digest.
    """
    if not hasattr(file, "read"):
        with open(file, "rb") as opened:
            return read_npz(opened, remedy)
    name = getattr(file, "name", "the file")
    try:
        size = file.seek(0, 2)
        with zipfile.ZipFile(file) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > size:
                raise ValueError("it unpacks to more than it holds")
            arrays = {
                entry.removesuffix(".npy"): npz_array(archive.read(entry)) for entry in archive.namelist()
            }
        header = json.loads(arrays.pop("header").tobytes().decode())
        if not isinstance(header, dict):
            raise ValueError("its header is not a JSON object")
    except Exception as error:  # zipfile, NumPy and json raise many kinds
        raise ValueError(f"{name} is truncated or damaged ({error}): {remedy}.") from None
    if header.get("sha256") != npz_digest(header, arrays):
        raise ValueError(f"{name} was changed after it was written, its digest differs: {remedy}.")
    return header, arrays


def npz_array(content):
    """Read an array from the content of an npy file, without copying the numbers and without pickle."""
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("it holds arrays of another version")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    flat = np.frombuffer(content, dtype, offset=file.tell())
    return flat.reshape(shape, order="F" if fortran else "C")
