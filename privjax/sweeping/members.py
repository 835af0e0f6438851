"""Who is trained on what: members are weights x seeds, and a seed may pick the split."""

import functools
import hashlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from privjax import datasets
from privjax.datasets import Dataset
from privjax.networks import Networks
from privjax.training import Hyperparameters, Objective, TrainConfig, TrainData, hyperparameters, prepare

_LARGEST = float(np.finfo(np.float32).max)


class Member(NamedTuple):
    """One point of the curve."""

    point: int
    privacy_weight: Any
    seed: int


class Rows(NamedTuple):
    """The split of one member, as row numbers of its group's data; stacked for several."""

    train: Any
    validation: Any


class Group(NamedTuple):
    """Members that one copy of the data serves.

    Attributes:
      members: who.
      datasets: what each seed is trained on.
      data: the rows of all those data sets one after another, on the device; no split.
      rows: the split of each seed.
      config: all that is static.
    """

    members: list[Member]
    datasets: dict[int, Dataset]
    data: TrainData
    rows: dict[int, Rows]
    config: TrainConfig


def make_members(privacy_weights: Sequence[Any], seeds: Sequence[int]) -> list[Member]:
    """Every weight for the first seed, then for the next: points 0, 1, ... of the sweep."""
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
    return [Member(point, weight, seed) for point, (weight, seed) in enumerate(pairs)]


def make_loader(data: Dataset | str | Callable[[int], Dataset]) -> Callable[[int], Dataset]:
    """What gives the data set for a seed: of a data set, of a name, or of a function seed -> data set."""
    if isinstance(data, Dataset):
        return lambda seed: data
    if isinstance(data, str):
        data = functools.partial(_load_by_name, data)
    if not callable(data):
        raise TypeError(
            "data must be a Dataset (privjax.datasets.from_table makes one of your own rows), the name "
            f"of a data set, or a function of the seed that gives a Dataset; got {type(data).__name__}."
        )
    # Groups are visited seed by seed, so one data set in memory is enough.
    return functools.lru_cache(maxsize=1)(data)


def _load_by_name(name: str, seed: int) -> Dataset:
    return datasets.load(name, seed=seed)


def content_hash(hashes: Sequence[str]) -> str:
    """One hash of the data sets of all seeds; the data set's own when they are all the same."""
    distinct = list(dict.fromkeys(hashes))
    return distinct[0] if len(distinct) == 1 else hashlib.sha256("".join(distinct).encode()).hexdigest()


def make_groups(
    members: Sequence[Member],
    load: Callable[[int], Dataset],
    *,
    objective: Objective,
    networks: Networks | None,
    batch_size: int,
    together: bool,
) -> Iterator[Group]:
    """Members in order, those that can share a copy of the data together.

    Args:
      members: all of them.
      load: gives the data set of a seed.
      objective: as in `prepare`.
      networks: as in `prepare`.
      batch_size: as in `prepare`.
      together: whether seeds with different splits may share a group, for devices that are filled only
        by many members; otherwise a group is a data set, and one of them is in memory at a time.
    """
    grouped: dict[Any, list[Member]] = {}
    for member in members:
        dataset = load(member.seed)
        shapes = (dataset.x.shape, dataset.s.shape, *(len(part) for part in dataset.split))
        grouped.setdefault(shapes if together else dataset.content_hash, []).append(member)
    for group in grouped.values():
        chosen = {member.seed: load(member.seed) for member in group}
        distinct = {dataset.content_hash: dataset for dataset in chosen.values()}
        data, config = prepare(
            *(_joined([column(d) for d in distinct.values()]) for column in COLUMNS),
            objective=objective,
            networks=networks,
            batch_size=batch_size,
        )
        sizes = [len(dataset) for dataset in distinct.values()]
        starts = dict(zip(distinct, np.cumsum([0, *sizes]), strict=False))
        rows = {}
        for seed, dataset in chosen.items():
            start, split = starts[dataset.content_hash], dataset.split
            validation = (start + split.validation).astype(np.int32) if len(split.validation) else None
            rows[seed] = Rows((start + split.train).astype(np.int32), validation)
        yield Group(group, chosen, data, rows, config)


def learnt(labels: np.ndarray, dataset: Dataset) -> np.ndarray:
    """Labels of a data set as training sees them: classes as they are, reals at mean 0 and spread 1.

    By the training rows. In other units every privacy weight would mean something else, and a network would
    take thousands of steps to reach the mean.
    """
    if not np.issubdtype(labels.dtype, np.floating):
        return labels
    train = labels[dataset.split.train].astype(np.float64)
    spread = train.std(0)
    # One that never changes says nothing, in any unit.
    return ((labels - train.mean(0)) / np.where(spread > 0, spread, 1.0)).astype(np.float32)


COLUMNS = (lambda d: d.x, lambda d: learnt(d.y, d), lambda d: learnt(d.s, d))


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def stack_rows(members: Sequence[Member], group: Group) -> Rows:
    """The splits of some members, stacked."""
    return jax.tree.map(lambda *rows: np.stack(rows), *(group.rows[member.seed] for member in members))


def stack_hyperparameters(
    members: Sequence[Member], config: TrainConfig, rates: dict[str, float]
) -> Hyperparameters:
    """The numbers of some members, stacked."""
    each = [member_hyperparameters(member, config, rates) for member in members]
    return jax.tree.map(lambda *numbers: jnp.stack(numbers), *each)


def member_hyperparameters(member: Member, config: TrainConfig, rates: dict[str, float]) -> Hyperparameters:
    """The numbers of one member, checked."""
    return hyperparameters(
        config.objective, config.task, privacy_weight=member.privacy_weight, seed=member.seed, **rates
    )
