"""Export of encoders to files for a device, and the reader of these files."""

import inspect
import json
import os
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from privjax import files
from privjax.encoder import Encoder
from privjax.exporting import runner
from privjax.exporting.formats import load_onnx, load_stablehlo, onnx_bytes, stablehlo_bytes
from privjax.exporting.runner import FileEncoder, Header
from privjax.networks import LAYER_KINDS
from privjax.sweeping import SweepResult, load_encoder, load_results

PathLike = str | os.PathLike
_READERS = {".npz": runner.load, ".stablehlo": load_stablehlo, ".onnx": load_onnx}
_SCRIPT = "privjax_runner.py"
_FIRST_LINE = str(runner.__doc__).splitlines()[0]


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
    """Return the header that `export` would write.

    Args:
      source: The workdir of a sweep, its `SweepResult`, or an `Encoder`.
      member: Number of the member, or a `CurvePoint`; None with an `Encoder`.

    Returns:
      The header.

    Example:
      >>> from privjax import baselines
      >>> describe(baselines.pca(np.eye(5), num_features=2)).multiply_adds
      10
    """
    encoder, origin = _find(source, member)
    return _make_header(encoder, **origin)


def load_file(path: PathLike) -> FileEncoder:
    """Read an exported encoder; it runs on NumPy (npz), JAX (stablehlo) or onnxruntime (onnx).

    Args:
      path: A file that `export` wrote. A damaged or changed file raises ValueError.

    Returns:
      A function of raw rows x to z, with the `header` of the file.

    Example:
      See `export`.
    """
    path = _check_path("encoder", path)
    return _READERS[path.suffix.lower()](path)


def _check_path(argument: str, path: PathLike) -> Path:
    path = Path(path).expanduser()
    if path.suffix.lower() not in _READERS:
        raise ValueError(f"{argument} must end in {', '.join(_READERS)}, got {path.name!r}.")
    return path


def _find(
    source: PathLike | SweepResult | Encoder, member: SupportsIndex | None
) -> tuple[Encoder, dict[str, Any]]:
    """Return the encoder, and its origin as fields of the header."""
    if isinstance(source, Encoder):
        return source, {}
    if member is None:
        raise TypeError("member is missing: give the number of a member, or a point of the curve.")
    results = source.run if isinstance(source, SweepResult) else load_results(source)
    if results.config.networks.get("kind") == "own":
        raise ValueError(
            "the sweep trained networks of your own, whose layers are unknown: only networks of privjax "
            "can be exported."
        )
    record, data = results.find(member), results.data
    encoder = source.encoder(member) if isinstance(source, SweepResult) else load_encoder(source, member)
    origin = {key: getattr(record, key) for key in ("objective", "privacy_weight", "member", "seed")}
    return encoder, {"names": data.feature_names, "columns": data.columns, "data": data.name, **origin}


def write_encoder(encoder: Encoder, to: PathLike, **origin: Any) -> Header:
    """Write an encoder in the format that the suffix of the path names.

    Args:
      encoder: The encoder.
      to: The file.
      **origin: Fields of `Header` that the encoder does not know, such as `names`.

    Returns:
      The header of the file.
    """
    path = _check_path("to", to)
    header = _make_header(encoder, **origin)
    if path.suffix.lower() == ".onnx":
        content = onnx_bytes(encoder.layers, header)
    elif path.suffix.lower() == ".stablehlo":
        content = stablehlo_bytes(encoder.layers, header)
    else:
        script = path.with_name(_SCRIPT)
        _check_replaceable(path, script)
        arrays = {f"{i:03d}": array for i, array in enumerate(_arrays(encoder))}
        files.write_arrays(path, header.to_dict(), arrays)
        path, content = script, _runner_script().encode()
    with files.replacing(path) as part:
        part.write_bytes(content)
    return header


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
    return Header.from_dict(json.loads(json.dumps(header.to_dict(), allow_nan=False)))


def _arrays(encoder: Encoder) -> list[np.ndarray]:
    return [array for layer in encoder.layers for array in layer.arrays]


def _check_replaceable(npz: Path, script: Path) -> None:
    """Refuse to write over files that `export` did not write."""
    if npz.is_file():
        try:
            with np.load(npz, allow_pickle=False) as file:
                ours = json.loads(file["header"].tobytes()).get("format") == runner.FORMAT
        except KeyError:
            ours = False
        except Exception:  # a damaged file, for instance of an interrupted export, may raise any error
            ours = True
        if not ours:
            raise ValueError(f"{npz} exists and is not an exported encoder: name another file.")
    if script.is_file() and _FIRST_LINE not in script.read_text(errors="replace"):
        raise ValueError(f"{script} exists and is not privjax's: name a file in another folder.")


def _runner_script() -> str:
    """Assemble the device script: `runner` with the source of the library's functions in it."""
    functions = [files.read_arrays, files._read_npz, files._parse_npy, files._digest]
    functions += [kind.numpy for kind in LAYER_KINDS.values()]
    imports = "".join(f"import {name}\n" for name in ("hashlib", "io", "json", "os", "zipfile"))
    sources = "\n\n".join(inspect.getsource(function) for function in functions)
    table = "".join(f'    "{name}": {kind.numpy.__name__},\n' for name, kind in LAYER_KINDS.items())
    before, _, rest = inspect.getsource(runner).partition("# <library>")
    after = rest.partition("# </library>\n")[2]
    return f"{before}{imports}\n\n{sources}\n\nLAYERS = {{\n{table}}}\n{after}"
