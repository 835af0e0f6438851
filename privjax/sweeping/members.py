"""Members of a sweep (privacy weights x seeds), and the data that groups of them share."""

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from privjax import datasets
from privjax.datasets import Dataset
from privjax.encoder import Scaling, fit_scaling
from privjax.networks import Networks
from privjax.sweeping.plan import Inputs, Rows
from privjax.sweeping.records import PrivacyWeight
from privjax.training import Hyperparameters, Objective, TrainConfig, TrainData, hyperparameters, prepare

_LARGEST = float(np.finfo(np.float32).max)

DataSource = Dataset | str | Callable[[int], Dataset]


class Member(NamedTuple):
    """One training run: a privacy weight and a seed."""

    number: int
    privacy_weight: PrivacyWeight
    seed: int


class SeedData(NamedTuple):
    """The data set of one seed.

    Attributes:
      content_hash: SHA-256 of the data set.
      input_shape: Shape of a raw row.
      scaling: Scaling fitted on the training rows.
      rows: Training and validation rows, as row numbers of the group.
      test: Test rows, as row numbers of the group.
    """

    content_hash: str
    input_shape: tuple[int, ...]
    scaling: Scaling
    rows: Rows
    test: np.ndarray


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

    def inputs(self, member: Member, rates: dict[str, float]) -> Inputs:
        """Return the split and the hyperparameters of one member."""
        return Inputs(self.seeds[member.seed].rows, member_hyperparameters(member, self.config, rates))


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


def member_hyperparameters(member: Member, config: TrainConfig, rates: dict[str, float]) -> Hyperparameters:
    """Return the checked hyperparameters of one member."""
    return hyperparameters(
        config.objective, config.task, privacy_weight=member.privacy_weight, seed=member.seed, **rates
    )


def make_loader(data: DataSource) -> Callable[[int], Dataset]:
    """Return a function from a seed to its data set, which keeps the last data set and no other."""
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
            kept.clear()  # before the next is loaded: one data set in memory at a time
            kept[seed] = data(seed)
            if not isinstance(kept[seed], Dataset):
                found = type(kept[seed]).__name__
                raise TypeError(f"data must return a Dataset for every seed, got {found} for seed {seed}.")
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


def make_groups(
    members: Sequence[Member],
    load: Callable[[int], Dataset],
    *,
    objective: Objective,
    networks: Networks | None,
    scaling: str,
    batch_size: int,
) -> Iterator[Group]:
    """Load the data sets of some members, and group members whose data have the same shapes.

    Args:
      members: The members.
      load: Function from a seed to its data set.
      objective: As in `prepare`.
      networks: As in `prepare`.
      scaling: As in `fit_scaling`.
      batch_size: As in `prepare`.
    """
    loaded = {batch[0].seed: load(batch[0].seed) for batch in split_by_seed(members)}
    grouped: dict[Any, list[Member]] = {}
    for member in members:
        data = loaded[member.seed]
        shapes = (data.x.shape, data.s.shape, *map(len, data.split))
        grouped.setdefault(shapes, []).append(member)
    for group in grouped.values():
        parts: dict[str, tuple[list[np.ndarray], SeedData]] = {}
        start = 0
        for data in (loaded[member.seed] for member in group):
            if data.content_hash not in parts:
                parts[data.content_hash] = _scale(data, scaling, start)
                start += len(data)
        columns = zip(*(arrays for arrays, _ in parts.values()), strict=True)
        joined = [column[0] if len(column) == 1 else np.concatenate(column) for column in columns]
        train_data, config = prepare(*joined, objective=objective, networks=networks, batch_size=batch_size)
        seeds = {member.seed: parts[loaded[member.seed].content_hash][1] for member in group}
        yield Group(group, train_data, config, seeds)


def _scale(data: Dataset, method: str, start: int) -> tuple[list[np.ndarray], SeedData]:
    """Return x, y and s of a data set for training, and its place in a group from row `start`."""
    fitted = data.split.train
    scaling = fit_scaling(data.x[fitted], method=method)
    train, validation, test = ((start + rows).astype(np.int32) for rows in data.split)
    rows = Rows(train, validation if len(validation) else None)
    arrays = [scaling.apply(data.x), _standardise(data.y, fitted), _standardise(data.s, fitted)]
    return arrays, SeedData(data.content_hash, data.x.shape[1:], scaling, rows, test)


def _standardise(labels: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return classes unchanged, and continuous labels with mean 0 and spread 1 over the training rows.

    In other units every privacy weight would have another meaning, and a network would need thousands
    of steps to reach the mean.
    """
    if not np.issubdtype(labels.dtype, np.floating):
        return labels
    matrix = labels.reshape(len(labels), -1)
    return fit_scaling(matrix[train]).apply(matrix)
