"""Data sets as numpy arrays: x, the utility label y, the private label s, and a seeded split."""

from privjax.datasets.dataset import Dataset, Part, Scaler, Split
from privjax.datasets.errors import DataError
from privjax.datasets.frames import separated_frames_split
from privjax.datasets.protocols import (
    disjoint_users_split,
    per_label_split,
    random_groups,
    sampled_people_groups,
    time_block_split,
)
from privjax.datasets.registry import Description, describe, load, load_again, names
from privjax.datasets.simulated import simulated_blocks, simulated_truth
from privjax.datasets.tables import TableStream, from_table, stream_table

__all__ = [
    "DataError",
    "Dataset",
    "Description",
    "Part",
    "Scaler",
    "Split",
    "TableStream",
    "describe",
    "disjoint_users_split",
    "from_table",
    "load",
    "load_again",
    "names",
    "per_label_split",
    "random_groups",
    "sampled_people_groups",
    "separated_frames_split",
    "simulated_blocks",
    "simulated_truth",
    "stream_table",
    "time_block_split",
]
