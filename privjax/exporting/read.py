"""Encoders from the files that `export` wrote, whatever their format."""

import os
from pathlib import Path

from privjax.exporting import runner
from privjax.exporting.onnx import load_onnx
from privjax.exporting.stablehlo import load_stablehlo

_READERS = {".npz": runner.load, ".stablehlo": load_stablehlo, ".onnx": load_onnx}


def load_file(path: str | os.PathLike) -> runner.Encoder:
    """Reads an exported encoder: a function of rows, not scaled, to z, with what it says of itself.

    Args:
      path: an `.npz` (runs on NumPy), `.stablehlo` (on JAX) or `.onnx` (on onnxruntime); one that is cut
        short or was changed is refused.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _READERS:
        raise ValueError(f"encoder must end in {', '.join(_READERS)}, got {Path(path).name!r}.")
    return _READERS[suffix](path)
