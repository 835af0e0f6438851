"""Cells of a user's table as x, y and s, and what is put where a cell is missing."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from privjax.datasets.blocks import Block, Table
from privjax.datasets.cells import Cells
from privjax.datasets.dataset import Part
from privjax.datasets.errors import DataError
from privjax.datasets.schema import Schema


def encode(block: Block, schema: Schema) -> Part:
    """Turns the cells of a block into x (NaN where missing and to be imputed), y and s."""
    keep = np.ones(block.rows, dtype=bool)
    for name in schema.columns:
        if schema.missing == "drop" or name in (schema.utility, *schema.private):
            keep &= ~block.cells[name].missing
    x = np.empty((int(keep.sum()), len(schema.feature_names)), dtype=np.float32)
    place = 0
    for name in schema.features:
        cells = _take(block.cells[name], keep)
        width = len(schema.feature_columns(name))
        if name in schema.categorical:
            codes = _codes(cells, schema.classes[name], name)
            x[:, place : place + width] = codes[:, None] == np.arange(width)
        else:
            x[:, place] = cells.values
        x[cells.missing, place : place + width] = np.nan
        place += width
    y = _label(_take(block.cells[schema.utility], keep), schema, schema.utility)
    columns = [_label(_take(block.cells[p], keep), schema, p) for p in schema.private]
    if len(columns) == 1:
        return Part(x, y, columns[0])
    if not schema.joint:
        return Part(x, y, np.stack(columns, axis=1))
    number = {codes: i for i, codes in enumerate(schema.joint)}
    combined = list(zip(*(c.tolist() for c in columns), strict=True))
    s = [number.get(codes, -1) for codes in combined]
    if -1 in s:
        raise _changed(", ".join(schema.private), combined[s.index(-1)])
    return Part(x, y, np.array(s, dtype=np.int32))


def column_means(x: np.ndarray, schema: Schema) -> np.ndarray:
    """Mean of each quantity; of a category, 1 at its most frequent class and 0 elsewhere."""
    present = ~np.isnan(x)
    counts = np.maximum(present.sum(axis=0), 1)
    means = np.where(present, x, 0.0).sum(axis=0, dtype=np.float64) / counts
    return _peaked(means, schema)


def fill(x: np.ndarray, means: np.ndarray) -> None:
    """Puts the means where x is NaN."""
    rows, columns = np.nonzero(np.isnan(x))
    x[rows, columns] = means[columns]


def describe_columns(schema: Schema, means: np.ndarray | None) -> list[dict[str, Any]]:
    """The columns that x is made of, as JSON: enough to encode other rows in the same way.

    Args:
      schema: Of the table.
      means: What missing cells were filled with; None where they were not.

    Returns:
      ``name`` of each; ``classes`` of a category, which are one column of x each; ``boolean`` where true
      is 1 and false 0; ``fill`` for a missing cell.
    """
    described, place = [], 0
    for name in schema.features:
        width = len(schema.feature_columns(name))
        column: dict[str, Any] = {"name": name}
        if name in schema.categorical:
            column["classes"] = list(schema.classes[name])
        elif schema.columns[name].kind == "boolean":
            column["boolean"] = True
        if means is not None:
            own = means[place : place + width]
            column["fill"] = column["classes"][int(np.argmax(own))] if "classes" in column else float(own[0])
        described.append(column)
        place += width
    return described


def _peaked(means: np.ndarray, schema: Schema) -> np.ndarray:
    place = 0
    for name in schema.features:
        width = len(schema.feature_columns(name))
        if name in schema.categorical:
            best = int(np.argmax(means[place : place + width]))
            means[place : place + width] = np.arange(width) == best
        place += width
    return means


def stream_means(table: Table, schema: Schema) -> np.ndarray:
    """What ``column_means`` gives, over all blocks of a table."""
    total, count = 0.0, 0.0
    for block in table.blocks():
        x = encode(block, schema).x
        total = total + np.nansum(x, axis=0, dtype=np.float64)
        count = count + (~np.isnan(x)).sum(axis=0)
    return _peaked(np.asarray(total / np.maximum(count, 1)), schema)


def _take(cells: Cells, keep: np.ndarray) -> Cells:
    return Cells(cells.kind, cells.values[keep], cells.missing[keep])


def _codes(cells: Cells, classes: Sequence[Any], name: str) -> np.ndarray:
    number = {value: i for i, value in enumerate(classes)}
    codes = np.array([number.get(v, -1) for v in cells.values.tolist()], dtype=np.int32)
    unknown = (codes < 0) & ~cells.missing
    if unknown.any():
        raise _changed(name, cells.values[np.argmax(unknown)])
    return np.maximum(codes, 0)


def _changed(name: str, value: Any) -> DataError:
    return DataError(
        f"column {name!r} holds {value!r}, which it did not at the first reading: "
        "the file was changed, open it again."
    )


def _label(cells: Cells, schema: Schema, name: str) -> np.ndarray:
    if name in schema.categorical:
        return _codes(cells, schema.classes[name], name)
    return cells.values.astype(np.float32)
