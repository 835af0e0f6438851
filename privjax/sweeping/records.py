"""Typed records of a sweep: the content of its JSON files."""

import dataclasses
import operator
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, SupportsIndex

import jax

from privjax.datasets import Column, Dataset, LoadSpec
from privjax.networks import Networks
from privjax.objectives import Objective, Schedule
from privjax.typed_json import from_json, to_json

SCHEMA = 2  # of the files in a workdir

PrivacyWeight = float | dict[str, float]
_PerVariable = float | dict[str, float | None] | None


class UtilityRecord(NamedTuple):
    """Utility on two parts of the data: accuracy, or R^2 of a continuous y; None for an empty part."""

    validation: float | None
    test: float | None


class LossRecord(NamedTuple):
    """Mean losses of the last epoch; None where a loss is not finite or no epoch ran."""

    utility: float | None
    privacy: _PerVariable
    orthonormality: float | None
    discriminator: float | None
    objective: float | None


@dataclasses.dataclass(frozen=True)
class MemberRecord:
    """The result of one finished member.

    Attributes:
      member: Number of the member in its sweep.
      objective: Name of the privacy objective.
      privacy_weight: lambda_P, or one for each private variable.
      seed: Seed of the split and of the training.
      status: "converged", "finished" (at its last epoch) or "diverged".
      epochs: Epochs trained.
      losses: Losses of the last epoch.
      utility: Utility on validation and test rows.
      effective_rank: Effective number of directions of z.
      live_units: Units of z that are not constant.
      probe: Score of a ridge probe of the private variable.
      content_hash: SHA-256 of the data set of the member's seed.
    """

    member: int
    objective: str
    privacy_weight: PrivacyWeight
    seed: int
    status: str
    epochs: int
    losses: LossRecord
    utility: UtilityRecord
    effective_rank: float | None
    live_units: int | None
    probe: _PerVariable
    content_hash: str

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return to_json(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "MemberRecord":
        """Build a record from JSON values. Raises ValueError for a missing or mistyped value."""
        return from_json(cls, value, "member")


class RowCounts(NamedTuple):
    """Number of rows in each part of a data set."""

    train: int
    validation: int
    test: int


@dataclasses.dataclass(frozen=True)
class DataRecord:
    """The data set of the first seed, without its arrays.

    Attributes:
      content_hash: SHA-256 of arrays, names and split. Other seeds have their own, see `MemberRecord`.
      shape: Shape of a row of x.
      rows: Rows of each part.
      columns: How the cells of a table become x; None when x is not from a table.
      private: Names of the private columns.
      load_spec: The call that loads the data set; None for arrays.
    """

    name: str
    content_hash: str
    shape: tuple[int, ...]
    rows: RowCounts
    feature_names: tuple[str, ...]
    y_names: tuple[str, ...]
    s_names: tuple[str, ...]
    columns: tuple[Column, ...] | None = None
    private: tuple[str, ...] = ()
    load_spec: LoadSpec | None = None

    @classmethod
    def of(cls, data: Dataset) -> "DataRecord":
        """Describe a data set."""
        names = {name: getattr(data, name) for name in ("feature_names", "y_names", "s_names", "columns")}
        origin = {"private": data.origin.private, "load_spec": data.origin.load_spec}
        rows = RowCounts(*map(len, data.split))
        return cls(data.name, data.content_hash, data.x.shape[1:], rows, **names, **origin)


class DataIdentity(NamedTuple):
    """Name and SHA-256 of the data set of the first seed."""

    name: str
    content_hash: str


class ObjectiveRecord(NamedTuple):
    """An objective without its functions: enough to tell two objectives apart."""

    name: str
    privacy_loss: str
    continuous: bool
    within_utility: bool
    private_rate: float
    public_rate: float
    discriminator_rate: float
    settings: dict[str, str]
    schedule: Schedule

    @classmethod
    def of(cls, objective: Objective) -> "ObjectiveRecord":
        """Describe an objective; its loss by module and name."""
        fields = {name: getattr(objective, name) for name in cls._fields}
        loss = getattr(objective.privacy_loss, "func", objective.privacy_loss)  # of a partial
        name = getattr(loss, "__qualname__", type(loss).__qualname__)
        settings = {key: repr(value) for key, value in objective.settings}
        return cls(**{**fields, "privacy_loss": f"{loss.__module__}.{name}", "settings": settings})


def describe_networks(networks: Networks) -> dict[str, Any]:
    """Return the settings for `make_networks`; for a user's networks, the shapes of their parameters."""
    if networks.settings is not None:
        return dict(networks.settings)
    params = jax.eval_shape(networks.init, jax.random.key(0))
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {"kind": "own", "parameters": {jax.tree_util.keystr(p): list(leaf.shape) for p, leaf in leaves}}


@dataclasses.dataclass(frozen=True)
class SweepConfig:
    """Everything that the numbers of a sweep depend on, as given to `sweep`; a workdir belongs to one config.

    Attributes:
      schema: Version of the files in the workdir.
      versions: Versions of privjax, jax, flax and optax.
      networks: Settings for `make_networks`; the kind "own" with parameter shapes for a user's networks.
      rates: Learning and dropout rates that replace defaults.
      data: The data set of the first seed.
      release: Name and settings of the release mechanism.
    """

    schema: int
    versions: dict[str, str]
    objective: ObjectiveRecord
    networks: dict[str, Any]
    privacy_weights: tuple[PrivacyWeight, ...]
    seeds: tuple[int, ...]
    rates: dict[str, float]
    scaling: str
    batch_size: int
    num_epochs: int | None
    data: DataIdentity
    release: dict[str, Any] = dataclasses.field(default_factory=lambda: {"name": "exact"})

    def normalised(self) -> "SweepConfig":
        """Return the config as it is read from JSON: with Python numbers, and lists for sequences."""
        return from_json(SweepConfig, to_json(self), "config")


@dataclasses.dataclass(frozen=True)
class SweepRun:
    """The content of `results.json`.

    Attributes:
      config: Everything that the numbers depend on.
      data: The data set of the first seed.
      backend: JAX backend of the last call of `sweep`.
      devices: Number of its devices.
      complete: Whether every member has finished.
      seconds: Duration of the last call, or None before its end.
      members: Records of finished members, by number.
    """

    config: SweepConfig
    data: DataRecord
    backend: str
    devices: int
    complete: bool
    seconds: float | None
    members: tuple[MemberRecord, ...]

    @property
    def schema(self) -> int:
        """Version of the files."""
        return self.config.schema

    @property
    def versions(self) -> dict[str, str]:
        """Versions of privjax, jax, flax and optax that trained the members."""
        return self.config.versions

    def find(self, member: SupportsIndex) -> MemberRecord:
        """Return the record of a member by its number."""
        number = operator.index(member)
        for record in self.members:
            if record.member == number:
                return record
        raise ValueError(f"member must be {format_numbers(r.member for r in self.members)}, got {number}.")

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `results.json`."""
        return {"schema": self.schema, **to_json(self)}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "SweepRun":
        """Build the record from the content of `results.json`.

        Raises:
          ValueError: The schema is unknown, or a value is missing or mistyped.
        """
        check_schema(value)
        return from_json(cls, value, "results")


def check_schema(value: Any) -> Any:
    """Return the content of a file, or refuse it if another version of privjax wrote it."""
    schema = value.get("schema") if isinstance(value, Mapping) else None
    if schema != SCHEMA:
        raise ValueError(
            f"it has schema {schema}, and this version of privjax reads schema {SCHEMA}: "
            "use the version that wrote it, or sweep again in another workdir."
        )
    return value


def format_numbers(numbers: Iterable[int]) -> str:
    """Format sorted numbers as ranges.

    Example:
      >>> format_numbers([0, 1, 2, 5])
      '0 to 2, 5'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in runs) or "none"
