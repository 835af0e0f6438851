"""Members of a sweep (privacy weights x seeds), and the data that groups of them share."""

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from privjax import datasets
from privjax.datasets import Dataset, Split
from privjax.encoder import Scaling, fit_scaling
from privjax.sweeping.plan import Inputs
from privjax.sweeping.records import PrivacyWeight
from privjax.training import Hyperparameters, Rates, TrainConfig, TrainData, hyperparameters, prepare

_LARGEST = float(np.finfo(np.float32).max)

Loader = Callable[[int], Dataset]


class Member(NamedTuple):
    """One training run: a privacy weight and a seed."""

    number: int
    privacy_weight: PrivacyWeight
    seed: int


class SeedData(NamedTuple):
    """The data set of one seed, whose rows begin at row `start` of the data of a group."""

    content_hash: str
    input_shape: tuple[int, ...]
    scaling: Scaling
    split: Split
    start: int = 0

    def rows(self, part: str) -> np.ndarray:
        """Return the row numbers of a part in the data of the group."""
        return (self.start + getattr(self.split, part)).astype(np.int32)


class Group(NamedTuple):
    """Members that share one copy of the data.

    Attributes:
      members: The members.
      data: Scaled rows of the data sets of all seeds, one after another, on the device; without a split.
      config: Everything static.
      seeds: Data of each seed.
    """

    members: list[Member]
    data: TrainData
    config: TrainConfig
    seeds: dict[int, SeedData]

    def inputs(self, member: Member, rates: Rates) -> Inputs:
        """Return the split and the hyperparameters of one member."""
        seed = self.seeds[member.seed]
        validation = seed.rows("validation")
        numbers = make_hyperparameters(member, self.config, rates)
        return Inputs(seed.rows("train"), validation if len(validation) else None, numbers)


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
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must differ, got {seeds}.")
    if len({repr(weight) for weight in weights}) < len(weights):
        raise ValueError(f"privacy_weights must differ, or they would count as more seeds, got {weights}.")
    for number in jax.tree.leaves(weights):
        if not 0 <= number <= _LARGEST:
            raise ValueError(f"privacy_weights must be finite (as float32) and not negative, got {number}.")
    if min(seeds) < 0 or max(seeds) >= 2**32:
        raise ValueError(f"seeds must lie between 0 and 2^32 - 1, got {seeds}.")
    pairs = [(weight, seed) for seed in seeds for weight in weights]
    return [Member(number, weight, seed) for number, (weight, seed) in enumerate(pairs)]


def make_hyperparameters(member: Member, config: TrainConfig, rates: Rates) -> Hyperparameters:
    """Return the checked hyperparameters of one member."""
    return hyperparameters(
        config.objective, config.task, privacy_weight=member.privacy_weight, seed=member.seed, **rates
    )


def make_loader(data: Dataset | str | Loader) -> Loader:
    """Return a function from a seed to its data set, which remembers the last data set alone."""
    if isinstance(data, Dataset):
        return lambda seed: data
    if isinstance(data, str):
        data = functools.partial(_load_by_name, data)
    if not callable(data):
        raise TypeError(
            "data must be a Dataset (see Dataset.from_arrays and datasets.from_table), the name of a data "
            f"set, or a function of the seed that returns a Dataset; got {type(data).__name__}."
        )
    kept: dict[int, Dataset] = {}

    def load(seed: int) -> Dataset:
        if seed not in kept:
            kept.clear()  # first, so that one data set is in memory at a time
            found = data(seed)
            if not isinstance(found, Dataset):
                name = type(found).__name__
                raise TypeError(f"data must return a Dataset for every seed, got {name} for seed {seed}.")
            kept[seed] = found
        return kept[seed]

    return load


def _load_by_name(name: str, seed: int) -> Dataset:
    return datasets.load(name, seed=seed)


def split_by_seed(members: Sequence[Member]) -> list[list[Member]]:
    """Return the members of each seed."""
    by_seed: dict[int, list[Member]] = {}
    for member in members:
        by_seed.setdefault(member.seed, []).append(member)
    return list(by_seed.values())


def make_groups(members: Sequence[Member], load: Loader, *, scaling: str, **options: Any) -> Iterator[Group]:
    """Load and scale the data sets of some members, and group members whose data have equal shapes.

    `load` is called once for each seed; `options` are keywords of `prepare`.
    """
    parts: dict[str, tuple[tuple[np.ndarray, ...], SeedData]] = {}  # by content hash
    grouped: dict[Any, dict[int, str]] = {}
    for seed in dict.fromkeys(member.seed for member in members):
        data = load(seed)
        if data.content_hash not in parts:
            parts[data.content_hash] = _scale(data, scaling)
        shapes = (data.x.shape, data.s.shape, *map(len, data.split))
        grouped.setdefault(shapes, {})[seed] = data.content_hash
    for hashes in grouped.values():
        arrays, placed, start = [], {}, 0
        for content_hash in dict.fromkeys(hashes.values()):
            part, seed_data = parts.pop(content_hash)
            arrays.append(part)
            placed[content_hash] = seed_data._replace(start=start)
            start += len(part[0])
        columns = [part[0] if len(part) == 1 else np.concatenate(part) for part in zip(*arrays, strict=True)]
        train_data, config = prepare(*columns, **options)
        seeds = {seed: placed[content_hash] for seed, content_hash in hashes.items()}
        yield Group([member for member in members if member.seed in seeds], train_data, config, seeds)


def _scale(data: Dataset, method: str) -> tuple[tuple[np.ndarray, ...], SeedData]:
    """Return x, y and s of a data set for training, and its scaling."""
    train = data.split.train
    scaling = fit_scaling(data.x[train], method=method)
    arrays = (scaling.apply(data.x), _standardise(data.y, train), _standardise(data.s, train))
    return arrays, SeedData(data.content_hash, data.x.shape[1:], scaling, data.split)


def _standardise(labels: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return classes unchanged, and continuous labels with mean 0 and spread 1 over the training rows.

    In other units every privacy weight would have another meaning, and a network would need thousands
    of steps to reach the mean.
    """
    if not np.issubdtype(labels.dtype, np.floating):
        return labels
    matrix = labels.reshape(len(labels), -1)
    return fit_scaling(matrix[train]).apply(matrix)
