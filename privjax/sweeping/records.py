"""Typed records of a sweep: the content of its JSON files."""

import dataclasses
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple, SupportsIndex

import jax

from privjax.datasets import Column, Dataset, LoadSpec
from privjax.files import from_json, to_json
from privjax.networks import Networks, is_built_in
from privjax.objectives import Objective

SCHEMA = 2  # of the files in a workdir

PrivacyWeight = float | dict[str, float]
_PerVariable = float | dict[str, float | None] | None


class UtilityRecord(NamedTuple):
    """Utility on two parts of the data: accuracy, or R^2 of a continuous y; None for an empty part."""

    validation: float | None
    test: float | None


class LossRecord(NamedTuple):
    """Mean losses of the last epoch; None where a loss is not finite."""

    utility: float | None
    privacy: _PerVariable
    orthonormality: float | None
    discriminator: float | None
    objective: float | None


@dataclasses.dataclass(frozen=True)
class MemberRecord:
    """The result of one finished member."""

    member: int
    objective: str
    privacy_weight: PrivacyWeight
    seed: int
    status: str  # "converged", "finished" (at its last epoch) or "diverged"
    epochs: int
    losses: LossRecord
    utility: UtilityRecord
    effective_rank: float | None  # of the directions of z
    live_units: int  # units of z that are not constant
    probe: _PerVariable  # score of a ridge probe of the private variable
    content_hash: str  # of the data set of the member's seed

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return to_json(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "MemberRecord":
        """Build a record from JSON values. Raises ValueError for a missing or mistyped value."""
        return from_json(cls, value, "member")


@dataclasses.dataclass(frozen=True)
class DataRecord:
    """The data set of the first seed, without its arrays."""

    name: str
    content_hash: str  # SHA-256 of arrays, names and split
    shape: tuple[int, ...]  # of a row of x
    rows: dict[str, int]  # of each part
    feature_names: tuple[str, ...]
    y_names: tuple[str, ...]
    s_names: tuple[str, ...]
    columns: tuple[Column, ...] | None = None  # how the cells of a table become x
    private: tuple[str, ...] = ()
    load_spec: LoadSpec | None = None  # None for arrays

    @classmethod
    def of(cls, data: Dataset) -> "DataRecord":
        """Describe a data set."""
        rows = {part: len(numbers) for part, numbers in data.split._asdict().items()}
        names = data.feature_names, data.y_names, data.s_names
        origin = data.origin.private, data.origin.load_spec
        return cls(data.name, data.content_hash, data.x.shape[1:], rows, *names, data.columns, *origin)


def describe_objective(objective: Objective) -> dict[str, Any]:
    """Return the fields of an objective as JSON: functions by module and name, settings as text."""
    settings = {key: repr(value) for key, value in objective.settings}
    fields = {**objective._asdict(), "settings": settings}
    return {name: _name(value) if callable(value) else to_json(value) for name, value in fields.items()}


def _name(function: Any) -> str:
    function = getattr(function, "func", function)  # of a partial
    return f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def describe_networks(networks: Networks) -> dict[str, Any]:
    """Return the settings for `make_networks`; for a user's networks, the shapes of their parameters."""
    if is_built_in(networks):
        return dict(networks.settings or ())
    params = jax.eval_shape(networks.init, jax.random.key(0))
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {"kind": "own", "parameters": {jax.tree_util.keystr(p): list(leaf.shape) for p, leaf in leaves}}


@dataclasses.dataclass(frozen=True)
class SweepConfig:
    """Everything that the numbers of a sweep depend on; a workdir belongs to one config."""

    schema: int
    versions: dict[str, str]  # of privjax, jax, flax and optax
    objective: dict[str, Any]  # see describe_objective
    networks: dict[str, Any]  # see describe_networks
    privacy_weights: tuple[PrivacyWeight, ...]
    seeds: tuple[int, ...]
    rates: dict[str, float]  # those that replace defaults
    scaling: str
    batch_size: int
    num_epochs: int | None
    content_hash: str  # of the data set of the first seed
    release: dict[str, Any]  # name and settings of the release mechanism


@dataclasses.dataclass(frozen=True)
class SweepRun:
    """The content of `results.json`."""

    config: SweepConfig
    data: DataRecord
    backend: str  # of the last call of sweep
    devices: int
    complete: bool  # whether every member has finished
    seconds: float | None  # duration of the last call, or None before its end
    members: tuple[MemberRecord, ...]  # finished members, by number

    def find(self, member: SupportsIndex) -> MemberRecord:
        """Return the record of a member by its number."""
        found = {record.member: record for record in self.members}
        number = operator.index(member)
        if number not in found:
            raise ValueError(f"member must be one of {', '.join(map(str, found)) or 'none'}, got {number}.")
        return found[number]

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `results.json`."""
        return {"schema": self.config.schema, **to_json(self)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "SweepRun":
        """Build the record from the content of `results.json`; damage or another schema is a ValueError."""
        return from_json(cls, check_schema(value), "results")


def check_schema(value: Any) -> Any:
    """Return the content of a file, or refuse it if another version of privjax wrote it."""
    schema = value.get("schema") if isinstance(value, Mapping) else None
    if schema != SCHEMA:
        raise ValueError(
            f"it has schema {schema}, and this version of privjax reads schema {SCHEMA}: "
            "use the version that wrote it, or sweep again in another workdir."
        )
    return value
