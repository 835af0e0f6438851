"""Tables of the user: read once, encoded, and split per seed."""

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privjax.datasets.columns import (
    Cells,
    Column,
    Place,
    agreement,
    class_codes,
    encode,
    is_text,
    numbers,
    refuse,
)
from privjax.datasets.dataset import Dataset, LoadSpec, Origin, check_resolution, split_by_class
from privjax.datasets.splits import DataError
from privjax.datasets.stream import ALL, Source, open_source
from privjax.extras import import_optional

_EXACT = 1 << 53  # above, float64 merges neighbouring whole numbers
_MOST_CATEGORIES = 1000  # of one feature: each is a column of x


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Encoded rows of a table; `split` makes data sets of them without reading the file again."""

    x: np.ndarray  # float32 `[n, d]`; NaN where a cell is missing and to be imputed
    y: np.ndarray
    s: np.ndarray
    y_names: tuple[str, ...]  # empty for a continuous utility
    s_names: tuple[str, ...]  # of combinations, where several columns are private
    columns: tuple[Column, ...]
    origin: Origin
    missing: str  # "refuse", "drop" or "impute"

    def split(self, seed: int = 0, *, test: float = 0.2, validation: float = 0.1) -> Dataset:
        """Split the rows, with the same share of every private class in every part.

        Args:
          seed: Seed of the split.
          test: Share of the rows in the test part.
          validation: Share of the remaining rows in the validation part.

        Returns:
          The data set. Missing features are filled with the mean of its training rows; those of a
          category with the most frequent class.
        """
        shares = {"test": test, "validation": validation}
        split, protocol = split_by_class(self.s, self.s_names, seed=seed, **shares)
        x, columns, spec = self.x, self.columns, self.origin.load_spec
        if self.missing == "impute":
            x, columns = _impute(x, columns, split.train)
        if spec is not None:
            spec = LoadSpec(spec.function, {**spec.arguments, **shares}, seed)
        return Dataset(
            x=x,
            y=self.y,
            s=self.s,
            y_names=self.y_names,
            s_names=self.s_names,
            feature_names=tuple(name for column in columns for name in column.feature_names),
            split=split,
            origin=dataclasses.replace(self.origin, protocol=protocol, seed=seed, load_spec=spec),
            columns=columns,
        )


def read_table(
    source: Any,
    *,
    utility: str,
    private: str | Sequence[str],
    features: str | Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    missing: str = "refuse",
    allow_private_features: bool = False,
    delimiter: str | None = None,
) -> Table:
    """Read a table once; its method `split` then makes a data set for every seed.

    Text and truth values are classes. Whole numbers are classes in a label, and quantities in a
    feature unless the table itself marks the column as categorical. Other numbers are quantities. A
    feature of classes becomes one column of x per class.

    Args:
      source: A CSV (also `.gz`), Parquet or NPZ file, a folder of npy files, or a pandas DataFrame.
      utility: Column that the service needs.
      private: Column, or columns, to hide. Several columns of classes become one class per
        combination.
      features: Columns of x; by default all but the utility and the private ones.
      kinds: `"category"` or `"continuous"` for columns where the rules above are wrong.
      missing: `"refuse"`, `"drop"` the rows, or `"impute"` features from the training rows of a
        split. A missing label is never imputed.
      allow_private_features: Whether a private column, or a copy of one, may be a feature.
      delimiter: Delimiter of a CSV; by default the likeliest of comma, semicolon and tab.

    Returns:
      The table.

    Example:
      >>> import pandas as pd
      >>> people = pd.DataFrame({"steps": range(20), "town": ["A", "B"] * 10, "who": list("stuv") * 5})
      >>> table = read_table(people, utility="town", private="who")
      >>> data = table.split(seed=3)
      >>> data.feature_names, data.y_names, data.s_names, len(data.test.x)
      (('steps',), ('A', 'B'), ('s', 't', 'u', 'v'), 4)
    """
    if missing not in ("refuse", "drop", "impute"):
        raise ValueError(f"missing must be 'refuse', 'drop' or 'impute', got {missing!r}.")
    table = open_source(source, delimiter=delimiter)
    kinds = {str(name): kind for name, kind in (kinds or {}).items()}
    utility, privates = str(utility), _expand(table, private)
    chosen = _choose(table, utility, privates, features, kinds, allow_private_features)
    labels = (utility, *privates)
    kinds = {name: "category" for name in table.coded} | kinds
    cells, rows, dropped = _read(table, labels, chosen, kinds, missing)

    def place(row: int) -> str:
        return table.place(int(rows[row]))

    if not allow_private_features:
        _refuse_copies(table.label, cells, chosen, privates)
    columns = {
        name: _learn_column(table.label, name, found, kinds.get(name), name in labels, place)
        for name, found in cells.items()
    }
    x = np.concatenate([encode(cells[name], columns[name], place) for name in chosen], axis=1)
    y, y_names = _encode_label([columns[utility]], cells, place)
    s, s_names = _encode_label([columns[name] for name in privates], cells, place)
    if len(x) < 3:
        raise DataError(f"{table.label} leaves {len(x)} rows: too few to split.")
    is_file = isinstance(source, (str, os.PathLike))  # rows in memory cannot be loaded again
    arguments = {
        "source": str(Path(source).expanduser().resolve()) if is_file else None,
        "utility": utility,
        "private": list(privates),
        "features": None if features is None else list(chosen),
        "kinds": kinds,
        "missing": missing,
        "allow_private_features": allow_private_features,
        "delimiter": delimiter,
    }
    origin = Origin(
        name="own",
        utility=utility,
        private=privates,
        source=table.label,
        rows_dropped=dropped,
        load_spec=LoadSpec("from_table", arguments) if is_file else None,
    )
    return Table(x, y, s, y_names, s_names, tuple(columns[name] for name in chosen), origin, missing)


def from_table(
    source: Any, *, seed: int = 0, test: float = 0.2, validation: float = 0.1, **options: Any
) -> Dataset:
    """Read a table and split it: `read_table(source, **options).split(seed)`.

    Args:
      source: See `read_table`.
      seed: Seed of the split.
      test: Share of the rows in the test part.
      validation: Share of the remaining rows in the validation part.
      **options: Arguments of `read_table`.

    Returns:
      The data set.

    Example:
      >>> import pandas as pd
      >>> people = pd.DataFrame({"steps": range(20), "town": ["A", "B"] * 10, "who": list("stuv") * 5})
      >>> from_table(people, utility="town", private="who")
      Dataset('own', x (20, 1), y 2 classes, s 4 classes; rows: 14 train, 2 validation, 4 test)
    """
    return read_table(source, **options).split(seed, test=test, validation=validation)


def _expand(table: Source, given: Any) -> tuple[str, ...]:
    """Return names as text, with `x[0]`, `x[1]` and so on for a matrix `x`."""
    known, found = set(table.names), []
    for name in [given] if isinstance(given, (str, int)) else given:
        entries = [] if str(name) in known else [c for c in table.names if c.startswith(f"{name}[")]
        found.extend(entries or [str(name)])  # the columns of a DataFrame may be numbers
    return tuple(found)


def _choose(
    table: Source,
    utility: str,
    privates: Sequence[str],
    features: Any,
    kinds: Mapping[str, str],
    allow_private_features: bool,
) -> tuple[str, ...]:
    """Check the names of columns; return the features."""
    known = set(table.names)
    for name, kind in kinds.items():
        if name not in known or kind not in ("category", "continuous"):
            raise ValueError(f"kinds must map columns to 'category' or 'continuous', got {name!r}: {kind!r}.")
    if not privates or len(set(privates)) != len(privates):
        raise ValueError("private must name at least one column, each of them once.")
    if utility in privates:
        raise ValueError(f"utility and private are both {utility!r}: name two different columns.")
    if features is None:
        chosen = tuple(name for name in table.names if name != utility and name not in privates)
    else:
        chosen = tuple(dict.fromkeys(_expand(table, features)))
    for argument, names in (("utility", [utility]), ("private", privates), ("features", chosen)):
        for name in names:
            if name not in known:
                raise DataError(f"{argument}: {table.label} has no column {name!r}.")
    among = [name for name in chosen if name == utility or name in privates and not allow_private_features]
    if among:
        role = "utility" if among[0] == utility else "private"
        remedy = ", or pass allow_private_features=True" if role == "private" else ""
        raise DataError(f"features: the {role} column {among[0]!r} is among them: leave it out{remedy}.")
    if not chosen:
        raise DataError(f"features: {table.label} has no other column: name at least one.")
    return chosen


def _read(
    table: Source, labels: Sequence[str], features: Sequence[str], kinds: Mapping[str, str], missing: str
) -> tuple[dict[str, Cells], np.ndarray, int]:
    """Return the cells of the kept rows, their row numbers, and the number of dropped rows."""
    names = list(dict.fromkeys((*labels, *features)))
    texts = {name: "text" for name, kind in kinds.items() if kind == "category"}
    unasked = [name for name in labels if name not in kinds]
    _, cells = next(table.blocks(names, ALL, kinds=texts, padded=unasked), (None, {}))
    total = len(next(iter(cells.values()), ()))
    if not total:
        raise DataError(f"{table.label} has no rows.")
    holes = {name: np.asarray(found.is_null()) for name, found in cells.items() if found.null_count}
    refused = {name: hole for name, hole in holes.items() if missing == "refuse" or name in labels}
    if missing != "drop" and refused:
        listed = [
            f"{n!r}: {hole.sum()}, first at {table.place(int(hole.argmax()))}" for n, hole in refused.items()
        ]
        advice = "" if set(labels) & set(refused) else " or missing='impute'"
        raise DataError(
            f"{table.label} has missing values ({'; '.join(listed)}): pass missing='drop'{advice}."
        )
    if missing != "drop":
        return cells, np.arange(total), 0
    kept = ~np.any([*holes.values(), np.zeros(total, bool)], axis=0)
    if not kept.any():
        worst = max(holes, key=lambda name: holes[name].sum())
        raise DataError(f"{table.label}: every row has a missing value, most often {worst!r}: leave it out.")
    cells = {name: found.filter(kept) for name, found in cells.items()}
    return cells, np.flatnonzero(kept), total - int(kept.sum())


def _refuse_copies(
    label: str, cells: Mapping[str, Cells], features: Sequence[str], privates: Sequence[str]
) -> None:
    for feature, private in itertools.product(features, privates):
        agreed = agreement(cells[feature], cells[private])
        # A few rows that agree, where most cells are missing, are chance.
        if agreed is not None and 2 * agreed >= len(cells[feature]):
            raise DataError(
                f"{label}: the feature {feature!r} is a copy of the private column {private!r}: "
                "leave it out, or pass allow_private_features=True."
            )


def _learn_column(
    label: str, name: str, cells: Cells, asked: str | None, is_label: bool, place: Place
) -> Column:
    """Decide whether a column holds classes or numbers, and which classes."""
    known = cells.drop_null()
    if not len(known):
        raise DataError(f"column {name!r} is missing in every row: leave it out.")
    if is_text(cells):
        if asked == "continuous":
            raise DataError(f"kinds: column {name!r} holds text and cannot be continuous.")
        return Column(name, _classes(label, name, known, is_label))
    values = numbers(known)
    # A whole number is a class in a label, also where missing cells made it a float.
    whole = bool((values == np.round(values)).all())
    if asked == "continuous" or asked is None and not (is_label and whole):
        boolean = str(cells.type) == "bool"
        if not boolean:
            check_resolution(label, [name], values.min(keepdims=True), values.max(keepdims=True))
        return Column(name, boolean=boolean)
    if not whole:
        raise DataError(f"kinds: column {name!r} holds fractions and cannot be a category.")
    if str(cells.type) == "double":
        reason = f"too long to be distinct: make it text, or pass kinds={{{name!r}: 'category'}} with a CSV"
        refuse(np.abs(numbers(cells)) > _EXACT, cells, name, place, reason)
        known = known.cast(import_optional("pyarrow").int64())
    return Column(name, _classes(label, name, known, is_label))


def _classes(label: str, name: str, known: Cells, is_label: bool) -> tuple[Any, ...]:
    """Return the classes of a category in order, unless they are too few or too many."""
    classes = sorted(known.unique().to_pylist())
    found = f"{label}: column {name!r} has {len(classes)} classes in {len(known)} rows"
    if is_label and len(classes) < 2:
        raise DataError(f"{label}: column {name!r} has one class only, {classes[0]!r}.")
    if is_label and len(classes) > max(len(known) // 2, 2):
        raise DataError(f"{found}: pass kinds={{{name!r}: 'continuous'}} if it is a quantity.")
    # Names, addresses and numbers with a unit identify rows; they are no kinds of rows.
    if not is_label and len(classes) > min(max(len(known) // 2, 20), _MOST_CATEGORIES):
        raise DataError(f"{found}: leave it out.")
    return tuple(classes)


def _encode_label(
    columns: Sequence[Column], cells: Mapping[str, Cells], place: Place
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Encode one label column, or several: classes become one class per combination."""
    continuous = [column.classes is None for column in columns]
    if len(set(continuous)) > 1:
        names = ", ".join(column.name for column in columns)
        raise DataError(
            f"the private columns {names} are partly classes and partly continuous: make them one or the "
            "other with kinds."
        )
    if all(continuous):
        labels = np.concatenate([encode(cells[c.name], c, place) for c in columns], axis=1)
        return labels if len(columns) > 1 else labels[:, 0], ()
    codes = np.stack([class_codes(cells[c.name], c, place) for c in columns], axis=1)
    if len(columns) == 1:
        return codes[:, 0], tuple(map(str, columns[0].classes or ()))
    together, numbered = np.unique(codes, axis=0, return_inverse=True)
    names = [column.feature_names for column in columns]
    named = tuple(", ".join(n[code] for n, code in zip(names, row, strict=True)) for row in together)
    return numbered.reshape(-1).astype(np.int32), named


def _impute(
    x: np.ndarray, columns: Sequence[Column], train: np.ndarray
) -> tuple[np.ndarray, tuple[Column, ...]]:
    """Fill missing cells by the training rows; return x and the columns with their fill values."""
    known = ~np.isnan(x[train])
    means = np.nansum(x[train], axis=0, dtype=np.float64) / np.maximum(known.sum(axis=0), 1)
    filled, start = [], 0
    for column in columns:
        own = means[start : start + len(column.feature_names)]
        if column.classes is not None:  # the most frequent class
            own[:] = np.arange(len(own)) == np.argmax(own)
        fill = float(own[0]) if column.classes is None else column.classes[int(np.argmax(own))]
        filled.append(dataclasses.replace(column, fill=fill))
        start += len(own)
    return np.where(np.isnan(x), means.astype(np.float32), x), tuple(filled)
