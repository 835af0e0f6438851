"""Data sets as numpy arrays: x, the utility label y, the private label s, and a seeded split."""

from privjax.datasets.columns import Column
from privjax.datasets.dataset import Dataset, LoadSpec, Origin, Part, Split
from privjax.datasets.registry import describe, load, names, reload
from privjax.datasets.simulated import simulated_blocks, simulated_truth
from privjax.datasets.splits import (
    DataError,
    grouped_split,
    per_label_split,
    time_block_split,
)
from privjax.datasets.tables import Table, from_table, read_table

__all__ = [
    "Column",
    "DataError",
    "Dataset",
    "LoadSpec",
    "Origin",
    "Part",
    "Split",
    "Table",
    "describe",
    "from_table",
    "grouped_split",
    "load",
    "names",
    "per_label_split",
    "read_table",
    "reload",
    "simulated_blocks",
    "simulated_truth",
    "time_block_split",
]
