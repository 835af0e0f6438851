r"""An encoder as StableHLO: a line of JSON (the header), what `jax.export` serialised, and a seal.

To read one without privjax:

    header, _, program = open("encoder.stablehlo", "rb").read()[:-64].partition(b"\n")
    z = jax.export.deserialize(bytearray(program)).call(x)  # x in float32, not scaled
"""

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax import export

from privjax.encoder import Encoder
from privjax.exporting.layers import Layers
from privjax.exporting.runner import Encoder as FileEncoder
from privjax.exporting.runner import check_header
from privjax.exporting.sealed import seal, unsealed
from privjax.extras import need
from privjax.networks import make_networks

PLATFORMS = ("cpu", "cuda", "tpu")


def stablehlo_bytes(encoder: Encoder, layers: Layers, header: dict[str, Any]) -> bytes:
    """The file's content: the program takes any number of rows, on any of `PLATFORMS`."""
    need("flatbuffers", extra="export")  # jax.export needs it, and jax does not bring it
    settings = dict(encoder.networks.settings or ())
    if "implementation" in settings:
        settings["implementation"] = "native"  # blocks of images are made for a CPU and a known number
    private = make_networks(settings).private

    def release(x):
        return private({"private": encoder.params}, (x - encoder.shift) / encoder.spread)

    rows = jax.ShapeDtypeStruct((*export.symbolic_shape("n"), *layers.shape), np.float32)
    # Accelerators would otherwise multiply with fewer digits than float32 has.
    with _without_locations(), jax.default_matmul_precision("highest"):
        program = export.export(jax.jit(release), platforms=PLATFORMS)(rows).serialize()
    return seal(json.dumps(header, sort_keys=True).encode() + b"\n" + bytes(program))


@contextlib.contextmanager
def _without_locations() -> Iterator[None]:
    """Leaves out where the code lies: folders of the machine that exports are nobody's business."""
    name = "jax_traceback_in_locations_limit"
    before = getattr(jax.config, name)
    jax.config.update(name, 0)
    try:
        yield
    finally:
        jax.config.update(name, before)


def load_stablehlo(path: str | os.PathLike) -> FileEncoder:
    """Reads an encoder that `stablehlo_bytes` wrote."""
    said, _, program = unsealed(path).partition(b"\n")
    need("flatbuffers", extra="export")
    try:
        header = check_header(json.loads(said))
        exported = export.deserialize(bytearray(program))
        if exported.in_avals[0].shape[1:] != tuple(header["input"]["shape"]):
            raise ValueError("its program takes other rows than it says")
    except Exception as error:  # of json and jax, each with its own kinds
        raise ValueError(f"{path} is no whole encoder file ({error}): export it again.") from None
    call = jax.jit(exported.call)

    def apply(x: np.ndarray) -> np.ndarray:
        # Each number of rows is compiled: powers of two are few.
        padding = (1 << (len(x) - 1).bit_length()) - len(x)
        return np.asarray(call(np.pad(x, [(0, padding)] + [(0, 0)] * (x.ndim - 1))))[: len(x)]

    return FileEncoder(header, apply)
