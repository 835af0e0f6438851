"""One pass over a user's table: kinds, classes, missing cells, and what must be refused."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from privjax.datasets.blocks import Table
from privjax.datasets.columns import Column, agreement, classes_of, is_category
from privjax.datasets.errors import DataError


@dataclasses.dataclass(frozen=True)
class Schema:
    """How a table becomes x, y and s."""

    utility: str
    private: tuple[str, ...]
    features: tuple[str, ...]
    columns: Mapping[str, Column]
    categorical: frozenset[str]
    classes: Mapping[str, tuple[Any, ...]]
    joint: tuple[tuple[int, ...], ...]
    rows: int
    missing: str

    @property
    def y_names(self) -> tuple[str, ...]:
        """Utility classes; empty for a continuous one."""
        return tuple(str(c) for c in self.classes.get(self.utility, ()))

    @property
    def s_names(self) -> tuple[str, ...]:
        """Private classes; of several private columns, the combinations that occur."""
        if self.private[0] not in self.categorical:
            return ()
        if len(self.private) == 1:
            return tuple(str(c) for c in self.classes[self.private[0]])
        return tuple(
            ", ".join(
                f"{name}={self.classes[name][code]}" for name, code in zip(self.private, codes, strict=True)
            )
            for codes in self.joint
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Columns of x: a category is one column per class."""
        return tuple(name for feature in self.features for name in self.feature_columns(feature))

    def feature_columns(self, feature: str) -> tuple[str, ...]:
        """Columns of x that one feature becomes."""
        if feature not in self.categorical:
            return (feature,)
        return tuple(f"{feature}={c}" for c in self.classes[feature])


def learn_schema(
    table: Table,
    *,
    utility: str,
    private: Sequence[str],
    features: Sequence[str] | None,
    kinds: Mapping[str, str],
    missing: str,
    allow_private_features: bool,
) -> Schema:
    """Reads the table once and decides how it is to be encoded; see ``from_table``."""
    privates = expand(table, private)
    features = None if features is None else expand(table, features)
    chosen = _choose_features(table, utility, privates, features, allow_private_features)
    if missing not in ("refuse", "drop", "impute"):
        raise ValueError(f"missing must be 'refuse', 'drop' or 'impute', got {missing!r}.")
    for name, kind in kinds.items():
        if name not in table.columns or kind not in ("category", "continuous"):
            raise ValueError(f"kinds must map columns to 'category' or 'continuous', got {name!r}.")
    labels = (utility, *privates)
    used = {name: Column(name) for name in dict.fromkeys((*labels, *chosen))}
    copies = {(f, p): 0 for f in chosen for p in privates if f != p}  # rows that agree so far
    combinations: set[tuple[Any, ...]] = set()
    rows = left = 0
    for block in table.blocks():
        rows += block.rows
        stays = np.ones(block.rows, dtype=bool)
        if missing == "drop":
            stays &= ~np.any([block.cells[name].missing for name in used], axis=0)
        left += int(stays.sum())
        for name, column in used.items():
            keep = kinds.get(name, "category" if name in labels else "") == "category"
            column.add(block.cells[name], block, stays, keep_values=keep)
        for pair in list(copies):
            agreed = agreement(block.cells[pair[0]], block.cells[pair[1]])
            if agreed is None:
                del copies[pair]
            else:
                copies[pair] += agreed
        if len(privates) > 1:
            kept = stays & ~np.any([block.cells[p].missing for p in privates], axis=0)
            combinations.update(zip(*(block.cells[p].values[kept] for p in privates), strict=True))
    if rows == 0:
        raise DataError(f"{table.label} has no rows.")
    _refuse_missing(table.label, used, labels, missing)
    if not left:
        worst = max(used.values(), key=lambda column: column.missing)
        raise DataError(
            f"{table.label}: every row has a missing value, most often {worst.name!r}: leave it out."
        )
    # Cells may be missing in a copy; a few that agree are no copy yet.
    copied = [pair for pair, agreed in copies.items() if 2 * agreed >= rows]
    if copied and not allow_private_features:
        raise DataError(
            f"{table.label}: the feature {copied[0][0]!r} is a copy of the private column "
            f"{copied[0][1]!r}: leave it out, or pass allow_private_features=True."
        )
    categorical = frozenset(
        name for name, c in used.items() if is_category(c, kinds.get(name), name in labels)
    )
    for name, column in used.items():
        if name not in categorical:
            column.check_resolution(table.label)
    classes = {name: classes_of(table.label, used[name], rows, name in labels) for name in categorical}
    if len({p in categorical for p in privates}) > 1:
        raise DataError(
            f"the private columns {', '.join(privates)} are partly classes and partly continuous: "
            "use kinds to make them one or the other."
        )
    joint = ()
    if len(privates) > 1 and privates[0] in categorical:
        order = [{c: i for i, c in enumerate(classes[p])} for p in privates]
        joint = tuple(
            sorted(
                tuple(o[v] for o, v in zip(order, combination, strict=True)) for combination in combinations
            )
        )
    return Schema(utility, privates, chosen, used, categorical, classes, joint, rows, missing)


def expand(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    """Lets a matrix be named whole: ``x`` stands for ``x[0]``, ``x[1]`` and so on."""
    found: list[str] = []
    known = set(table.columns)
    for name in names:
        entries = [] if name in known else [c for c in table.columns if c.startswith(f"{name}[")]
        found.extend(entries or [name])
    return tuple(found)


def _choose_features(table, utility, privates, features, allow_private) -> tuple[str, ...]:
    if not privates or len(set(privates)) != len(privates):
        raise ValueError("private must name at least one column, each of them once.")
    known = set(table.columns)
    for argument, given in (("utility", (utility,)), ("private", privates), ("features", features)):
        for name in given or ():
            if name not in known:
                raise DataError(f"{argument}: {table.label} has no column {name!r}.")
    if utility in privates:
        raise ValueError(f"utility and private are both {utility!r}: nothing could be released.")
    if features is None:
        chosen = tuple(c for c in table.columns if c != utility and c not in privates)
    else:
        chosen = tuple(dict.fromkeys(features))
    left = [name for name in chosen if name in privates]
    if left and not allow_private:
        raise DataError(
            f"features: the private column {left[0]!r} is among them: leave it out, or pass "
            "allow_private_features=True."
        )
    if utility in chosen:
        raise DataError(f"features: the utility column {utility!r} is among them: leave it out.")
    if not chosen:
        raise DataError(f"features: {table.label} leaves none.")
    return chosen


def _refuse_missing(label, columns, labels, policy) -> None:
    bad = [c for c in columns.values() if c.missing]
    if policy == "impute":
        bad = [c for c in bad if c.name in labels]
    if policy == "drop" or not bad:
        return
    listed = "; ".join(f"{c.name!r}: {c.missing}, first at {c.first_missing}" for c in bad)
    made_up = any(c.name in labels for c in bad)  # a label never is
    advice = "pass missing='drop'" + ("" if made_up else " or missing='impute'")
    raise DataError(f"{label} has missing values ({listed}): {advice}.")
