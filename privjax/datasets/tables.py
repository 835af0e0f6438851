"""Tables of the user: read once and split per seed, or read in blocks as a stream."""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from privjax.datasets.columns import LARGEST, Cells, Column, agreement, class_codes, encode, is_text, numbers
from privjax.datasets.dataset import Dataset, LoadSpec, Origin, Part, check_resolution
from privjax.datasets.errors import DataError
from privjax.datasets.splits import per_label_split
from privjax.datasets.stream import Block, Source, open_source
from privjax.extras import need

_EXACT = 1 << 53  # above, float64 merges neighbouring whole numbers
_MOST_CATEGORIES = 1000  # of one feature: each is a column of x


class Schema(NamedTuple):
    """Encoding of a table as x, y and s.

    Attributes:
      utility: Utility column.
      private: Private columns.
      features: Columns of x.
      combinations: Class numbers of several private columns that occur together, in order.
      rows: Number of rows, including those that are dropped.
      missing: Treatment of missing cells.
    """

    utility: Column
    private: tuple[Column, ...]
    features: tuple[Column, ...]
    combinations: tuple[tuple[int, ...], ...]
    rows: int
    missing: str

    @property
    def y_names(self) -> tuple[str, ...]:
        """Utility classes; empty for a continuous utility."""
        return tuple(map(str, self.utility.classes or ()))

    @property
    def s_names(self) -> tuple[str, ...]:
        """Private classes, or the combinations of those of several columns; empty if continuous."""
        if len(self.private) == 1:
            return tuple(map(str, self.private[0].classes or ()))
        names = [column.feature_names for column in self.private]
        return tuple(
            ", ".join(classes[code] for classes, code in zip(names, codes, strict=True))
            for codes in self.combinations
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of x."""
        return tuple(name for column in self.features for name in column.feature_names)

    def encode(self, block: Block) -> Part:
        """Encode the rows of a block, without those that are dropped."""
        block = _kept(block, self.missing)
        parts = [encode(block.cells[c.name], c, block.place) for c in self.features]
        x, y = np.concatenate(parts, axis=1), _label(block, self.utility)
        labels = [_label(block, column) for column in self.private]
        if len(labels) == 1 or not self.combinations:
            return Part(x, y, labels[0] if len(labels) == 1 else np.stack(labels, axis=1))
        number = {codes: i for i, codes in enumerate(self.combinations)}
        s = [number.get(codes, -1) for codes in zip(*(codes.tolist() for codes in labels), strict=True)]
        if -1 in s:
            names = ", ".join(column.name for column in self.private)
            raise DataError(
                f"{block.place(s.index(-1))}: columns {names} hold none of the known combinations."
            )
        return Part(x, y, np.array(s, np.int32))


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Encoded rows of a table; `split` makes data sets of them without reading the file again.

    Attributes:
      x: Rows, float32 `[n, d]`; NaN where a cell is missing and to be imputed.
      y: Utility label.
      s: Private label.
      schema: Columns and classes.
      origin: Provenance.
    """

    x: np.ndarray
    y: np.ndarray
    s: np.ndarray
    schema: Schema
    origin: Origin

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
        schema, x, columns, spec = self.schema, self.x, self.schema.features, self.origin.load_spec
        strata = self.s if schema.s_names else np.zeros(len(x))
        split = per_label_split(strata, seed=seed, test=test, validation=validation)
        if schema.missing == "impute":
            x = x.copy()
            columns = _fill(x, columns, _means([x[split.train]]))
        if spec is not None:
            spec = LoadSpec(spec.function, {**spec.arguments, "test": test, "validation": validation}, seed)
        return Dataset(
            x=x,
            y=self.y,
            s=self.s,
            y_names=schema.y_names,
            s_names=schema.s_names,
            feature_names=schema.feature_names,
            split=split,
            origin=dataclasses.replace(self.origin, seed=seed, load_spec=spec),
            columns=columns,
        )


@dataclasses.dataclass(frozen=True)
class TableStream:
    """Blocks of a table as (x, y, s), read at every iteration; memory holds one block.

    Attributes:
      schema: Columns, classes and number of rows.
      parts: Reads the blocks.
    """

    schema: Schema
    parts: Callable[[], Iterator[Part]]

    @functools.cached_property
    def _means(self) -> np.ndarray:
        return _means(part.x for part in self.parts())

    def __iter__(self) -> Iterator[Part]:
        for part in self.parts():
            if self.schema.missing == "impute":
                _fill(part.x, self.schema.features, self._means)
            yield part


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
    opened = open_source(source, delimiter=delimiter)
    roles = _roles(opened, utility, private, features, kinds, missing, allow_private_features)
    blocks = list(roles.blocks(opened, None))
    schema = _learn(opened.label, roles, blocks)
    x, y, s = (np.concatenate(arrays) for arrays in zip(*map(schema.encode, blocks), strict=True))
    if len(x) < 3:
        raise DataError(f"{opened.label} leaves {len(x)} rows: too few to split.")
    spec = None
    if isinstance(source, (str, os.PathLike)):
        arguments = {
            **roles._asdict(),
            "source": str(Path(source).expanduser().resolve()),
            "private": list(roles.private),
            "features": None if features is None else list(roles.features),
            "delimiter": delimiter,
        }
        spec = LoadSpec("from_table", arguments)
    origin = Origin(
        name="own",
        protocol="per_private_class" if schema.s_names else "random",
        utility=roles.utility,
        private=roles.private,
        source=opened.label,
        rows_dropped=schema.rows - len(x),
        load_spec=spec,
    )
    return Table(x, y, s, schema, origin)


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


def stream_table(
    source: Any, *, block_rows: int = 65536, delimiter: str | None = None, **options: Any
) -> TableStream:
    """Open a table of any size as a stream of blocks, read once now and once per iteration.

    Args:
      source: See `read_table`.
      block_rows: Rows in memory at a time, at most.
      delimiter: See `read_table`.
      **options: Arguments of `read_table`; missing features are imputed by the means of the file.

    Returns:
      The stream.

    Example:
      >>> import pandas as pd
      >>> people = pd.DataFrame({"steps": range(20), "town": ["A", "B"] * 10, "who": list("stuv") * 5})
      >>> [part.x.shape for part in stream_table(people, utility="town", private="who", block_rows=8)]
      [(8, 1), (8, 1), (4, 1)]
    """
    if block_rows < 1:
        raise ValueError(f"block_rows must be at least 1, got {block_rows}.")
    opened = open_source(source, delimiter=delimiter)
    roles = _roles(opened, **options)
    schema = _learn(opened.label, roles, roles.blocks(opened, block_rows))
    return TableStream(schema, lambda: map(schema.encode, roles.blocks(opened, block_rows)))


class _Roles(NamedTuple):
    """Roles of the columns of one table, by their names."""

    utility: str
    private: tuple[str, ...]
    features: tuple[str, ...]
    kinds: dict[str, str]
    missing: str
    allow_private_features: bool

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.utility, *self.private)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.labels, *self.features)))

    def blocks(self, source: Source, block_rows: int | None) -> Iterator[Block]:
        """Read the columns in use; a column of a text file that is asked to be a category is text."""
        texts = {name: "text" for name, kind in self.kinds.items() if kind == "category"}
        unasked = [name for name in self.labels if name not in self.kinds]
        return source.blocks(self.names, block_rows, texts, padded_names=unasked)


def _names(given: Any) -> tuple[str, ...]:
    """Return one name or several as text: the columns of a DataFrame may be numbers."""
    return (str(given),) if isinstance(given, (str, int)) else tuple(str(name) for name in given)


def _roles(
    source: Source,
    utility: str,
    private: str | Sequence[str],
    features: str | Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    missing: str = "refuse",
    allow_private_features: bool = False,
) -> _Roles:
    """Find the columns of a table, or refuse the arguments; see `read_table`."""
    utility, privates = str(utility), _expand(source, _names(private))
    chosen = tuple(dict.fromkeys(_expand(source, source.names if features is None else _names(features))))
    kinds = {str(name): kind for name, kind in (kinds or {}).items()}
    known = set(source.names)
    if missing not in ("refuse", "drop", "impute"):
        raise ValueError(f"missing must be 'refuse', 'drop' or 'impute', got {missing!r}.")
    for name, kind in kinds.items():
        if name not in known or kind not in ("category", "continuous"):
            raise ValueError(f"kinds must map columns to 'category' or 'continuous', got {name!r}: {kind!r}.")
    if not privates or len(set(privates)) != len(privates):
        raise ValueError("private must name at least one column, each of them once.")
    for argument, names in (("utility", (utility,)), ("private", privates), ("features", chosen)):
        for name in names:
            if name not in known:
                raise DataError(f"{argument}: {source.label} has no column {name!r}.")
    if utility in privates:
        raise ValueError(f"utility and private are both {utility!r}: name two different columns.")
    if features is None:
        chosen = tuple(name for name in chosen if name != utility and name not in privates)
    among = [name for name in privates if name in chosen]
    if among and not allow_private_features:
        raise DataError(
            f"features: the private column {among[0]!r} is among them: leave it out, or pass "
            "allow_private_features=True."
        )
    if utility in chosen:
        raise DataError(f"features: the utility column {utility!r} is among them: leave it out.")
    if not chosen:
        raise DataError(f"features: {source.label} has no other column: name at least one.")
    kinds = {name: "category" for name in source.coded} | kinds
    return _Roles(utility, privates, chosen, kinds, missing, allow_private_features)


def _expand(source: Source, names: Sequence[str]) -> tuple[str, ...]:
    """Replace the name of a matrix, `x`, by its columns `x[0]`, `x[1]` and so on."""
    known, found = set(source.names), []
    for name in names:
        entries = [] if name in known else [c for c in source.names if c.startswith(f"{name}[")]
        found.extend(entries or [name])
    return tuple(found)


def _label(block: Block, column: Column) -> np.ndarray:
    if column.classes is None:
        return encode(block.cells[column.name], column, block.place)[:, 0]
    return class_codes(block.cells[column.name], column, block.place)


def _kept(block: Block, missing: str) -> Block:
    """Return the block without the rows that have a missing cell, where these are dropped."""
    holes = [np.asarray(cells.is_null()) for cells in block.cells.values() if cells.null_count]
    return block.filter(~np.any(holes, axis=0)) if holes and missing == "drop" else block


@dataclasses.dataclass
class _Seen:
    """Contents of one column in the blocks read so far."""

    name: str
    is_label: bool
    asked: str | None
    kind: str = ""
    classes: set[Any] = dataclasses.field(default_factory=set)
    missing: int = 0
    first_missing: str = ""
    low: float = np.inf
    high: float = -np.inf
    whole: bool = True

    def count_missing(self, block: Block) -> None:
        holes = block.cells[self.name].null_count
        if holes and not self.missing:
            self.first_missing = block.place(int(np.argmax(np.asarray(block.cells[self.name].is_null()))))
        self.missing += holes

    def add(self, cells: Cells, place: Callable[[int], str]) -> None:
        known = cells.drop_null()
        if not len(known):
            return
        self.kind = "text" if is_text(cells) else "boolean" if str(cells.type) == "bool" else "number"
        if self.kind != "text":
            values = numbers(cells)
            outside = np.abs(values) > LARGEST
            if outside.any():
                row = place(int(np.argmax(outside)))
                raise DataError(f"{row}: column {self.name!r} is not finite in 32-bit floats.")
            self.low, self.high = min(self.low, np.nanmin(values)), max(self.high, np.nanmax(values))
            self.whole &= bool((np.isnan(values) | (values == np.round(values))).all())
            if not self.whole or (self.asked or "category" * self.is_label) != "category":
                return
            merged = np.abs(values) > _EXACT
            if str(cells.type) == "double" and merged.any():
                raise DataError(
                    f"{place(int(np.argmax(merged)))}: column {self.name!r} holds whole numbers too long to "
                    f"be distinct: make it text, or pass kinds={{{self.name!r}: 'category'}} with a CSV."
                )
        self.classes.update(known.unique().to_pylist())

    def column(self, label: str, rows: int) -> Column:
        """Decide between classes and numbers, once all rows have been read."""
        if not self.kind:
            raise DataError(f"column {self.name!r} is missing in every row: leave it out.")
        if self.asked == "continuous" and self.kind == "text":
            raise DataError(f"kinds: column {self.name!r} holds text and cannot be continuous.")
        # A whole number is a class in a label, also where missing cells made it a float.
        guess = self.kind == "text" or self.is_label and self.whole
        if not (self.asked == "category" or self.asked is None and guess):
            if self.kind == "number":
                check_resolution(label, [self.name], np.array([self.low]), np.array([self.high]))
            return Column(self.name, boolean=self.kind == "boolean")
        if not self.whole:
            raise DataError(f"kinds: column {self.name!r} holds fractions and cannot be a category.")
        classes = sorted(int(c) if isinstance(c, float) else c for c in self.classes)
        self._check_classes(label, classes, rows)
        return Column(self.name, tuple(classes))

    def _check_classes(self, label: str, classes: Sequence[Any], rows: int) -> None:
        found = f"{label}: column {self.name!r} has {len(classes)} classes in {rows} rows"
        if self.is_label and len(classes) < 2:
            raise DataError(f"{label}: column {self.name!r} has one class only, {classes[0]!r}.")
        if self.is_label and len(classes) > max(rows // 2, 2):
            raise DataError(f"{found}: pass kinds={{{self.name!r}: 'continuous'}} if it is a quantity.")
        # Names, addresses and numbers with a unit identify rows; they are no kinds of rows.
        if not self.is_label and len(classes) > min(max(rows // 2, 20), _MOST_CATEGORIES):
            raise DataError(f"{found}: leave it out.")


def _learn(label: str, roles: _Roles, blocks: Iterable[Block]) -> Schema:
    """Read the blocks once, decide the kinds and classes of the columns, and refuse unsuitable tables."""
    seen = {name: _Seen(name, name in roles.labels, roles.kinds.get(name)) for name in roles.names}
    pairs = [(f, p) for f, p in itertools.product(roles.features, roles.private) if f != p]
    copies = {} if roles.allow_private_features else dict.fromkeys(pairs, 0)  # rows that agree so far
    together: set[tuple[Any, ...]] = set()
    rows = left = 0
    for block in blocks:
        for column in seen.values():
            column.count_missing(block)
        kept = _kept(block, roles.missing)
        rows, left = rows + len(block.rows), left + len(kept.rows)
        for name, column in seen.items():
            column.add(kept.cells[name], kept.place)
        agreed = {pair: agreement(*(kept.cells[name] for name in pair)) for pair in copies}
        copies = {pair: copies[pair] + count for pair, count in agreed.items() if count is not None}
        if len(roles.private) > 1:
            together |= _combinations([kept.cells[name] for name in roles.private])
    if rows == 0:
        raise DataError(f"{label} has no rows.")
    _refuse_missing(label, roles, list(seen.values()))
    if left == 0:
        worst = max(seen.values(), key=lambda column: column.missing)
        raise DataError(f"{label}: every row has a missing value, most often {worst.name!r}: leave it out.")
    # A few rows that agree, where most cells are missing, are chance.
    if copied := [pair for pair, count in copies.items() if 2 * count >= left]:
        raise DataError(
            f"{label}: the feature {copied[0][0]!r} is a copy of the private column {copied[0][1]!r}: "
            "leave it out, or pass allow_private_features=True."
        )
    columns = {name: column.column(label, rows) for name, column in seen.items()}
    private = tuple(columns[name] for name in roles.private)
    if len({column.classes is None for column in private}) > 1:
        raise DataError(
            f"the private columns {', '.join(roles.private)} are partly classes and partly continuous: "
            "make them one or the other with kinds."
        )
    numbers = [{c: i for i, c in enumerate(column.classes or ())} for column in private]
    if private[0].classes is None:
        together = set()
    combinations = sorted(tuple(n[c] for n, c in zip(numbers, found, strict=True)) for found in together)
    features = tuple(columns[name] for name in roles.features)
    return Schema(columns[roles.utility], private, features, tuple(combinations), rows, roles.missing)


def _combinations(cells: Sequence[Cells]) -> set[tuple[Any, ...]]:
    """Return the combinations of values of several columns, without missing cells."""
    names = [str(i) for i in range(len(cells))]
    table = need("pyarrow").table(list(cells), names=names).drop_null()
    return {tuple(row.values()) for row in table.group_by(names).aggregate([]).to_pylist()}


def _refuse_missing(label: str, roles: _Roles, columns: Sequence[_Seen]) -> None:
    bad = [c for c in columns if c.missing and (roles.missing == "refuse" or c.is_label)]
    if not bad or roles.missing == "drop":
        return
    listed = "; ".join(f"{c.name!r}: {c.missing}, first at {c.first_missing}" for c in bad)
    advice = "" if any(c.is_label for c in bad) else " or missing='impute'"
    raise DataError(f"{label} has missing values ({listed}): pass missing='drop'{advice}.")


def _means(blocks: Iterable[np.ndarray]) -> np.ndarray:
    """Return the means of the columns of x, in double precision, without missing cells."""
    total, count = 0.0, 0
    for x in blocks:
        total = total + np.nansum(x, axis=0, dtype=np.float64)
        count = count + (~np.isnan(x)).sum(axis=0)
    return np.asarray(total / np.maximum(count, 1))


def _fill(x: np.ndarray, columns: Sequence[Column], means: np.ndarray) -> tuple[Column, ...]:
    """Fill missing cells of x in place; return the columns with their fill values.

    A category is filled with its most frequent class, a number with its mean.
    """
    filled, values, start = [], [], 0
    for column in columns:
        own = means[start : start + len(column.feature_names)]
        start += len(column.feature_names)
        best = int(np.argmax(own))
        fill = float(own[0]) if column.classes is None else column.classes[best]
        filled.append(dataclasses.replace(column, fill=fill))
        values.append(own if column.classes is None else np.arange(len(own)) == best)
    rows, places = np.nonzero(np.isnan(x))
    x[rows, places] = np.concatenate(values)[places]
    return tuple(filled)
