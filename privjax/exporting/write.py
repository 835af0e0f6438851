"""`export`: writes the private half of a member to a file for the device."""

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from privjax.encoder import Encoder
from privjax.exporting import runner
from privjax.exporting.layers import Layers, make_header, make_layers
from privjax.exporting.onnx import onnx_bytes
from privjax.exporting.stablehlo import stablehlo_bytes
from privjax.files import replacing
from privjax.sweeping import load_encoder, load_results

PathLike = str | os.PathLike
SUFFIXES = (".npz", ".stablehlo", ".onnx")
_RUNNER = "privjax_runner.py"


def export(workdir: PathLike, point: int, *, to: PathLike) -> dict[str, Any]:
    """Writes the private half of one member of a sweep, with its scaling: what goes on the device.

    The file holds nothing of the public sphere or the discriminator, and no row of data. An `.npz` gets
    `privjax_runner.py` beside it, which reads and applies it with NumPy alone.

    Args:
      workdir: the sweep's folder.
      point: the member's number.
      to: the file to write, an `.npz`, `.stablehlo` or `.onnx`; an old one is replaced once the new one
        is whole.

    Returns:
      The file's header: `input` (shape, dtype, names and columns where they are known; rows are not
      scaled), `output`, `parameters`, the `bytes` they take, `multiply_adds` of a row, `sha256`.
    """
    to = Path(to).expanduser()
    suffix = to.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"to must end in {', '.join(SUFFIXES)}, got {to.name!r}.")
    encoder, layers, header = _load(workdir, point)
    if suffix == ".npz":
        _refuse_others(to, to.with_name(_RUNNER))
    if suffix == ".npz":
        _write(to, npz_bytes(layers, header))
        _write(to.with_name(_RUNNER), Path(runner.__file__).read_bytes())
    elif suffix == ".onnx":
        _write(to, onnx_bytes(layers, header))
    else:
        _write(to, stablehlo_bytes(encoder, layers, header))
    return header


def describe(workdir: PathLike, point: int) -> dict[str, Any]:
    """The header that `export` would write for a member of a sweep: what its encoder takes, gives and costs.

    Args:
      workdir: the sweep's folder.
      point: the member's number.
    """
    return _load(workdir, point)[2]


def npz_bytes(layers: Layers, header: dict[str, Any]) -> bytes:
    """The content of an `.npz`: the arrays in the order of the layers, and the header as JSON."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {f"{i:03d}": a for i, a in enumerate(layers.arrays)}
    arrays["header"] = np.frombuffer(json.dumps(header, sort_keys=True).encode(), np.uint8)
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _load(workdir: PathLike, point: int) -> tuple[Encoder, Layers, dict[str, Any]]:
    results = load_results(workdir)
    if results["config"]["networks"]["kind"] == "own":
        raise ValueError(
            f"{workdir} was trained with networks of your own, whose layers are not known: "
            "only those of privjax are exported."
        )
    encoder = load_encoder(workdir, point)
    member = next((member for member in results["members"] if member["point"] == point), None)
    if member is None:
        raise ValueError(f"results.json in {workdir} has no point {point} yet: let the sweep go on first.")
    data = results["data"]
    layers = make_layers(encoder, data.get("shape"))
    if not all(np.isfinite(array).all() for array in layers.arrays):
        raise ValueError(f"point {point} ended as {member['status']}, with parameters that are not finite.")
    schema = {"names": data.get("feature_names"), "columns": data.get("columns")}
    about = {key: member[key] for key in ("point", "objective", "privacy_weight", "seed")}
    return encoder, layers, make_header(layers, schema, {**about, "data": data["name"]})


def _refuse_others(npz: Path, script: Path) -> None:
    """Raises ValueError before anything is written over what `export` has not written."""
    if npz.is_file():
        try:
            with np.load(npz, allow_pickle=False) as file:
                ours = "header" in file.files
        except Exception:  # whatever a damaged file makes the reader raise: an export cut short is no loss
            ours = True
        if not ours:
            raise ValueError(f"{npz} is there and is no encoder: name another file.")
    first = Path(runner.__file__).read_bytes().partition(b"\n")[0]
    if script.is_file() and not script.read_bytes().startswith(first):
        raise ValueError(f"{script} is there and is not privjax's: name a file in another folder.")


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as part:
        part.write_bytes(content)
