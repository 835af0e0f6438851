"""A fitted transformer as one file of arrays and JSON: no pickle, so reading it runs nothing."""

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from privjax.estimator.model import Model
from privjax.exporting.runner import digest
from privjax.files import replacing

FORMAT, VERSION = "privjax-transformer", 1
_ATTRIBUTES = ("n_features_in_", "n_iter_", "status_", "history_")


def save(transformer: Any, path: str | os.PathLike) -> None:
    """Writes a fitted transformer; an old file stays until the new one is whole."""
    model: Model = transformer._model
    arrays: dict[str, Any] = {"mean": model.mean, "spread": model.spread}
    if model.classes is not None:
        arrays["classes"] = model.classes
    for sphere, layers in (("private", model.private), ("public", model.public)):
        for i, (kernel, bias) in enumerate(layers):
            arrays |= {f"{sphere}-{i}-kernel": kernel, f"{sphere}-{i}-bias": bias}
    params = transformer.get_params(deep=False)
    if isinstance(params["random_state"], np.random.RandomState):
        params["random_state"] = None
    header = {
        "format": FORMAT,
        "version": VERSION,
        "params": params,
        "attributes": {name: getattr(transformer, name) for name in _ATTRIBUTES},
        "feature_names": list(getattr(transformer, "feature_names_in_", ())),
        "layers": [len(model.private), len(model.public)],
        "y": [model.y_mean, model.y_spread],
        "arrays": list(arrays),
    }
    header = json.loads(json.dumps(header, default=lambda value: value.tolist()))
    header["sha256"] = digest(header, arrays.values())
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    with replacing(Path(path)) as part:
        part.write_bytes(buffer.getvalue())


def load(kind: type, path: str | os.PathLike) -> Any:
    """Reads a fitted transformer of a class; a file that was cut short or changed is refused.

    Args:
      kind: the class.
      path: of the file.
    """
    with open(path, "rb") as file:
        try:
            header, arrays = _read(file)
        except Exception as error:  # whatever a damaged file makes the reader raise
            raise ValueError(f"{path} is no whole transformer file ({error}): save it again.") from None
    if not isinstance(header, dict) or (header.get("format"), header.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"{path} is not a transformer of format {FORMAT} {VERSION}: save it again.")
    if header.get("sha256") != digest(header, arrays.values()):
        raise ValueError(f"{path} was changed after it was saved: its digest differs.")
    try:
        return _restored(kind, header, arrays)
    except Exception as error:  # a file that somebody made up, digest and all
        raise ValueError(f"{path} holds no transformer that fits together ({error}).") from None


def _read(file) -> tuple[Any, dict[str, np.ndarray]]:
    with zipfile.ZipFile(file) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > file.seek(0, os.SEEK_END):
            raise ValueError("it unpacks to more than it holds")
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        header = json.loads(bytes(stored["header"]).decode())
        return header, {name: stored[name] for name in header["arrays"]}


def _restored(kind: type, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    private, public = (
        tuple((arrays[f"{sphere}-{i}-kernel"], arrays[f"{sphere}-{i}-bias"]) for i in range(number))
        for sphere, number in zip(("private", "public"), header["layers"], strict=True)
    )
    model = Model(
        arrays["mean"], arrays["spread"], private, public, arrays.get("classes"), *map(float, header["y"])
    )
    transformer = kind(**{name: _tuples(value) for name, value in header["params"].items()})
    for name in _ATTRIBUTES:
        setattr(transformer, name, header["attributes"][name])
    if header["feature_names"]:
        transformer.feature_names_in_ = np.asarray(header["feature_names"], dtype=object)
    transformer._model = model
    _check(model, transformer.n_features_in_, header["feature_names"])
    return transformer


def _check(model: Model, width: int, names: Any) -> None:
    """Refuses arrays that do not fit together, whose error would come at the first row otherwise."""
    if not model.mean.shape == model.spread.shape == (width,):
        raise ValueError("its scaling is not that of its columns")
    if names and (len(names) != width or not all(isinstance(name, str) for name in names)):
        raise ValueError("its names are not those of its columns")
    for kernel, bias in model.private + model.public:
        if kernel.shape != (width, *bias.shape) or kernel.ndim != 2 or kernel.dtype.kind != "f":
            raise ValueError("its layers do not follow from one another")
        width = bias.size
    if width != 1 if model.classes is None else model.classes.shape != (width,):
        raise ValueError("its classes are not those of its outputs")


def _tuples(value: Any) -> Any:
    """JSON has no tuples, which the widths were."""
    return tuple(value) if isinstance(value, list) else value
