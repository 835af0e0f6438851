"""The user's own data: a table with a utility and a private column, whole or in blocks."""

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privjax.datasets.blocks import Table
from privjax.datasets.dataset import Dataset, Part, assemble
from privjax.datasets.encoding import column_means, describe_columns, encode, fill, stream_means
from privjax.datasets.errors import DataError
from privjax.datasets.schema import Schema, learn_schema
from privjax.datasets.splits import per_label_split
from privjax.datasets.table_files import open_table


class TableStream:
    """Blocks of a table as (x, y, s), read anew at every iteration; memory holds one block.

    Attributes:
      y_names: Utility classes, empty for a continuous utility.
      s_names: Private classes, empty for continuous ones.
      feature_names: Columns of x.
      rows: Rows of the table, those that are dropped included.
    """

    def __init__(self, table: Table, schema: Schema):
        self._table = table
        self._schema = schema
        self.y_names = schema.y_names
        self.s_names = schema.s_names
        self.feature_names = schema.feature_names
        self.rows = schema.rows

    @functools.cached_property
    def _means(self) -> np.ndarray:
        return stream_means(self._table, self._schema)

    def __iter__(self) -> Iterator[Part]:
        for block in self._table.blocks():
            part = encode(block, self._schema)
            if self._schema.missing == "impute":
                fill(part.x, self._means)
            yield part


def stream_table(
    source: Any,
    *,
    utility: str,
    private: str | Sequence[str],
    features: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    missing: str = "refuse",
    allow_private_features: bool = False,
    block_rows: int = 65536,
    delimiter: str | None = None,
) -> TableStream:
    """Opens a table of any size as a stream of blocks; it is read once now and once per iteration.

    Args:
      source: See ``from_table``.
      utility: See ``from_table``.
      private: See ``from_table``.
      features: See ``from_table``.
      kinds: See ``from_table``.
      missing: See ``from_table``; ``"impute"`` fills with the means of this file.
      allow_private_features: See ``from_table``.
      block_rows: Rows in memory at a time.
      delimiter: See ``from_table``.

    Returns:
      The stream; x is not scaled.
    """
    table, schema = _open(
        source,
        block_rows,
        delimiter,
        utility=utility,
        private=private,
        features=features,
        kinds=dict(kinds or {}),
        missing=missing,
        allow_private_features=allow_private_features,
    )
    return TableStream(table, schema)


def from_table(
    source: Any,
    *,
    utility: str,
    private: str | Sequence[str],
    features: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    missing: str = "refuse",
    allow_private_features: bool = False,
    seed: int = 0,
    test: float = 0.2,
    validation: float = 0.1,
    scale: str = "standard",
    block_rows: int = 65536,
    delimiter: str | None = None,
) -> Dataset:
    """Makes a data set of the user's own table.

    Text and booleans are classes; whole numbers are classes in a label, and quantities in a feature
    unless the table itself calls the column categorical; other numbers are quantities. A feature of
    classes becomes one column per class.

    Args:
      source: A CSV, Parquet or NPZ file, a folder of npy files, or a pandas DataFrame.
      utility: The column that a service needs.
      private: The column, or columns, to be hidden. Several classes become one per combination.
      features: The columns of x; by default all but the utility and the private ones.
      kinds: Columns that are not what they look like: ``"category"`` or ``"continuous"``.
      missing: ``"refuse"``, ``"drop"`` the rows, or ``"impute"`` features by training means (and
        most frequent classes); a missing label is never made up.
      allow_private_features: Whether a private column, or a copy of one, may be a feature.
      seed: Picks the split, which keeps the proportion of every private class.
      test: Share of the rows that is tested on.
      validation: Share of the remaining training rows set aside.
      scale: ``"standard"``, ``"minmax"`` or ``"none"``.
      block_rows: Rows read at a time.
      delimiter: Of a CSV; by default the likeliest of comma, semicolon and tab.

    Returns:
      The data set.
    """
    table, schema = _open(
        source,
        block_rows,
        delimiter,
        utility=utility,
        private=private,
        features=features,
        kinds=dict(kinds or {}),
        missing=missing,
        allow_private_features=allow_private_features,
    )
    parts = [encode(block, schema) for block in table.blocks()]
    x, y, s = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if len(x) < 3:
        raise DataError(f"{table.label} leaves {len(x)} rows: too few to split.")
    strata = s if schema.s_names else np.zeros(len(x))
    split = per_label_split(strata, seed=seed, test=test, validation=validation)
    means = None
    if missing == "impute":
        # The means of the training rows alone, or the test rows would have a say in training.
        means = column_means(x[split.train], schema)
        fill(x, means)
    return assemble(
        x,
        y,
        s,
        split,
        y_names=schema.y_names,
        s_names=schema.s_names,
        feature_names=schema.feature_names,
        scale=scale,
        in_place=True,
        provenance={
            "name": "own",
            "protocol": "per_private_class" if schema.s_names else "random",
            "seed": seed,
            "origin": table.label,
            "utility": utility,
            "private": list(schema.private),
            "missing": missing,
            "rows_dropped": schema.rows - len(x),
            "terms": "the user's own",
            "citation": "none",
            "complete": True,
            "columns": describe_columns(schema, means),
            "again": _again(
                source,
                seed,
                utility=utility,
                private=list(_names(private)),
                features=None if features is None else list(_names(features)),
                kinds=dict(kinds or {}),
                missing=missing,
                allow_private_features=allow_private_features,
                test=test,
                validation=validation,
                scale=scale,
                delimiter=delimiter,
            ),
        },
    )


def _again(source: Any, seed: int, **arguments: Any) -> dict[str, Any] | None:
    """The call as JSON; None for rows that lie in memory alone."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    path = str(Path(source).expanduser().resolve())
    return {"function": "from_table", "seed": seed, "arguments": {"source": path, **arguments}}


def _open(source: Any, block_rows: int, delimiter: str | None, **rules) -> tuple[Table, Schema]:
    """Opens a table and reads it once; ``rules`` are those of ``learn_schema``."""
    rules["utility"] = str(rules["utility"])
    rules["private"] = _names(rules["private"])
    rules["features"] = None if rules["features"] is None else _names(rules["features"])
    rules["kinds"] = {str(name): kind for name, kind in rules["kinds"].items()}
    labels = (rules["utility"], *rules["private"])
    table = open_table(
        source,
        block_rows=block_rows,
        categories=[name for name, kind in rules["kinds"].items() if kind == "category"],
        labels=[name for name in labels if name not in rules["kinds"]],
        wanted=None if rules["features"] is None else (*labels, *rules["features"]),
        delimiter=delimiter,
    )
    rules["kinds"] = {name: "category" for name in table.coded} | rules["kinds"]
    return table, learn_schema(table, **rules)


def _names(given: Any) -> tuple[str, ...]:
    """One column or several; a DataFrame may call them by numbers."""
    return (str(given),) if isinstance(given, (str, int)) else tuple(str(name) for name in given)
