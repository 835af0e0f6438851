"""Members of a sweep (privacy weights x seeds), and the data that groups of them share."""

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from privjax import datasets
from privjax.datasets import Dataset, Split
from privjax.encoder import Scaling, fit_scaling
from privjax.sweeping.records import PrivacyWeight
from privjax.training import TrainConfig, TrainData, prepare

_LARGEST = float(np.finfo(np.float32).max)

Loader = Callable[[int], Dataset]


class Member(NamedTuple):
    """One training run: a privacy weight and a seed."""

    number: int
    privacy_weight: PrivacyWeight
    seed: int


class SeedData(NamedTuple):
    """The data set of one seed; its split is of the rows of a group."""

    content_hash: str
    input_shape: tuple[int, ...]
    scaling: Scaling
    split: Split


class Group(NamedTuple):
    """Members that share one copy of the scaled rows of all their seeds, on the device."""

    members: list[Member]
    data: TrainData
    config: TrainConfig
    seeds: dict[int, SeedData]


def make_members(privacy_weights: Sequence[Any], seeds: Sequence[int]) -> list[Member]:
    """Number the members: every weight for the first seed, then for the next."""
    try:
        seeds = [operator.index(seed) for seed in seeds]
        weights = [jax.tree.map(float, w, is_leaf=lambda leaf: leaf is None) for w in privacy_weights]
    except TypeError:
        raise TypeError(
            "privacy_weights must be a list of numbers and seeds a list of whole numbers, got "
            f"{privacy_weights!r} and {seeds!r}."
        ) from None
    if not weights or not seeds:
        raise ValueError("privacy_weights and seeds must each hold at least one number.")
    if len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) >= 2**32:
        raise ValueError(f"seeds must differ, and lie between 0 and 2^32 - 1, got {seeds}.")
    if len({repr(weight) for weight in weights}) < len(weights):
        raise ValueError(f"privacy_weights must differ, or they would count as more seeds, got {weights}.")
    for number in jax.tree.leaves(weights):
        if not 0 <= number <= _LARGEST:
            raise ValueError(f"privacy_weights must be finite (as float32) and not negative, got {number}.")
    pairs = [(weight, seed) for seed in seeds for weight in weights]
    return [Member(number, weight, seed) for number, (weight, seed) in enumerate(pairs)]


def make_loader(data: Dataset | str | Loader) -> Loader:
    """Return a function from a seed to its data set, which remembers the last data set alone."""
    if isinstance(data, Dataset):
        return lambda seed: data
    if not (isinstance(data, str) or callable(data)):
        raise TypeError(
            "data must be a Dataset (see Dataset.from_arrays and datasets.from_table), the name of a data "
            f"set, or a function of the seed that returns a Dataset; got {type(data).__name__}."
        )
    kept: dict[int, Dataset] = {}

    def load(seed: int) -> Dataset:
        if seed not in kept:
            kept.clear()  # first, so that one data set is in memory at a time
            found = datasets.load(data, seed=seed) if isinstance(data, str) else data(seed)
            if not isinstance(found, Dataset):
                name = type(found).__name__
                raise TypeError(f"data must return a Dataset for every seed, got {name} for seed {seed}.")
            kept[seed] = found
        return kept[seed]

    return load


def make_groups(members: Sequence[Member], load: Loader, *, scaling: str, **options: Any) -> Iterator[Group]:
    """Load and scale the data set of each seed once, and group members whose data have equal shapes.

    `options` are keywords of `prepare`.
    """
    scaled: dict[str, tuple[np.ndarray, ...]] = {}  # x, y and s by content hash, until they are grouped
    seeds_by_shape: dict[Any, dict[int, SeedData]] = {}
    for seed in dict.fromkeys(member.seed for member in members):
        data = load(seed)
        train = data.split.train
        scale = fit_scaling(data.x[train], method=scaling)
        if data.content_hash not in scaled:
            labels = (_standardise(data.y, train), _standardise(data.s, train))
            scaled[data.content_hash] = (scale.apply(data.x), *labels)
        shapes = (data.x.shape, data.s.shape, *map(len, data.split))
        found = SeedData(data.content_hash, data.x.shape[1:], scale, data.split)
        seeds_by_shape.setdefault(shapes, {})[seed] = found
    for (x_shape, *_), seeds in seeds_by_shape.items():
        hashes = list(dict.fromkeys(seed.content_hash for seed in seeds.values()))
        columns = zip(*[scaled.pop(content_hash) for content_hash in hashes], strict=True)
        x, y, s = (parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in columns)
        data, config = prepare(x, y, s, **options)
        for number, seed in seeds.items():
            start = hashes.index(seed.content_hash) * x_shape[0]
            seeds[number] = seed._replace(split=Split(*(start + rows for rows in seed.split)))
        yield Group([member for member in members if member.seed in seeds], data, config, seeds)


def _standardise(labels: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return classes unchanged, and continuous labels with mean 0 and spread 1 over the training rows.

    In other units every privacy weight would have another meaning, and a network would need thousands
    of steps to reach the mean.
    """
    if not np.issubdtype(labels.dtype, np.floating):
        return labels
    matrix = labels.reshape(len(labels), -1)
    return fit_scaling(matrix[train]).apply(matrix)
