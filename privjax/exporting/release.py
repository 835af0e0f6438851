"""`release`: a file of rows through an exported encoder to a file of z, however many rows there are."""

import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from privjax.datasets import Column
from privjax.datasets.stream import open_rows
from privjax.exporting.outputs import OUTPUTS, open_output
from privjax.exporting.read import load_file
from privjax.files import replacing
from privjax.progress import Standing, reporter

PathLike = str | os.PathLike


def release(
    encoder: PathLike,
    source: PathLike,
    *,
    to: PathLike,
    progress: str | None = None,
    block_rows: int = 65536,
) -> dict[str, Any]:
    """Releases z instead of the rows of a file; memory holds one block of them.

    The columns that the encoder takes are picked by their names, its categories are encoded by the classes
    of training, and no other column is looked at or copied. A matrix, or a table where no names are
    known, holds x alone.

    Args:
      encoder: a file that `export` wrote.
      source: the rows, not scaled: a CSV, Parquet, NPZ or npy file, or a folder of npy files.
      to: the file to write: a CSV or Parquet of columns z0, z1, ..., an NPZ of the array z, or an npy. An
        old one is replaced once the new one is whole.
      progress: "bar", "log", "off", or None for a bar on a terminal and nothing elsewhere.
      block_rows: rows at a time, at most; fewer where they are long.

    Returns:
      `rows`, the `width` of z, and the `seconds` it took.
    """
    encoder, source, to = (Path(path).expanduser() for path in (encoder, source, to))
    suffix = to.suffix.lower()
    if suffix not in OUTPUTS:
        raise ValueError(f"to must end in {', '.join(OUTPUTS)}, got {to.name!r}.")
    for name, path in (("encoder", encoder), ("source", source)):
        if to.exists() and path.exists() and to.samefile(path):
            raise ValueError(f"to is the {name} itself, {path}: name another file.")
    if source.is_dir() and to.suffix.lower() == ".npy" and to.exists() and to.parent.samefile(source):
        raise ValueError(f"to is one of the arrays of the source, {to}: name a file elsewhere.")
    began = time.monotonic()
    private = load_file(encoder)
    schema, width = private.header["input"], private.header["output"]["width"]
    columns = schema.get("columns")
    rows = open_rows(
        source,
        math.prod(schema["shape"]),
        columns=columns and [Column.from_dict(column) for column in columns],
        names=schema.get("names"),
        block_rows=block_rows,
    )
    done = 0
    with reporter(progress, "release") as report, replacing(to) as part:
        with open_output(part, suffix, width) as write:
            for x in rows.blocks:
                with np.errstate(over="ignore", invalid="ignore"):  # told in the next lines
                    z = private(x)
                finite = np.isfinite(z).all(axis=1)
                if not finite.all():
                    row = done + int(np.argmin(finite))
                    raise ValueError(f"{source}, row {row}: its numbers are too large for the encoder.")
                write(z)
                done += len(x)
                report.show(Standing(max(rows.total, done), done, "rows"))
    return {"rows": done, "width": width, "seconds": time.monotonic() - began}
