"""The private sphere of a fitted transformer alone, as a file for the device."""

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np

from privjax.estimator.model import Model
from privjax.exporting.layers import Layers, make_header
from privjax.exporting.write import npz_bytes
from privjax.files import replacing


def export(model: Model, path: str | os.PathLike, names: list[str] | None, about: dict[str, Any]) -> dict:
    """Writes the private sphere and its scaling, and nothing else, as `privjax.export` does.

    Args:
      model: of the transformer.
      path: the `.npz` file to write.
      names: of the columns, where they are known.
      about: what else the file's header is to say.

    Returns:
      The header.
    """
    path = Path(path).expanduser()
    if path.suffix.lower() != ".npz":
        raise ValueError(f"to must end in .npz, got {path.name!r}.")
    arrays = (model.mean, model.spread, *itertools.chain(*model.private))
    layers = Layers(
        names=("scale", *["dense_relu"] * len(model.private)),
        arrays=tuple(np.asarray(array, np.float32) for array in arrays),
        shape=model.mean.shape,
        image=(),
        width=model.private[-1][1].size,
    )
    header = make_header(layers, {"names": names, "columns": None}, about)
    with replacing(path) as part:
        part.write_bytes(npz_bytes(layers, header))
    return header
