"""Data sets by name."""

import dataclasses
import inspect
import os
from pathlib import Path
from typing import Any, NamedTuple

from privjax.datasets import adult, cmu_faces, hapt, har, meglass, mhealth, simulated, yaleb
from privjax.datasets.dataset import Dataset, LoadSpec
from privjax.datasets.published import PublishedSet, Rows, fetch, prepared_folder
from privjax.datasets.tables import from_table
from privjax.extras import import_optional


def _read_digits(*, seed: int) -> Rows:
    found = import_optional("sklearn.datasets").load_digits()
    arrays = {"x": found.data, "parity": found.target % 2, "digit": found.target}
    names = {"features": found.feature_names, "parity": ("even", "odd"), "digit": list(map(str, range(10)))}
    return Rows(arrays, names, source="scikit-learn")


def _read_diabetes(*, seed: int) -> Rows:
    found = import_optional("sklearn.datasets").load_diabetes(scaled=False)
    columns = dict(zip(found.feature_names, found.data.T, strict=True))
    arrays = {"x": found.data, "progression": found.target, "age": columns["age"], "sex": columns["sex"] - 1}
    names = {"features": list(columns), "progression": (), "age": (), "sex": ("sex 1", "sex 2")}
    return Rows(arrays, names, source="scikit-learn")


# Parity is a function of the digit, so some privacy always costs utility: five digits share a
# parity, and an attacker who knows it is right at least one time in five.
DIGITS = PublishedSet(
    name="digits",
    title="handwritten digits, 8 x 8",
    size="1797 x 64, parity (utility), 10 digits (private)",
    terms="CC BY 4.0 at UCI",
    citation="Alpaydin, Kaynak, Optical Recognition of Handwritten Digits, UCI 1998",
    read=_read_digits,
    utility="parity",
    private=("digit",),
    protocols={"per_label": None},
)
DIABETES = PublishedSet(
    name="diabetes",
    title="diabetes progression; a continuous utility",
    size="442 x 9, progression (utility), age or sex (private)",
    terms="free to use, with citation",
    citation="Efron, Hastie, Johnstone, Tibshirani, Annals of Statistics 2004",
    read=_read_diabetes,
    utility="progression",
    private=("age", "sex"),
    protocols={"per_label": None},
)

# A new published set is one module and one entry here.
PUBLISHED = {module.SET.name: module.SET for module in (har, mhealth, yaleb, meglass, hapt, cmu_faces, adult)}
_EMBEDDED = {found.name: found for found in (DIGITS, DIABETES, simulated.SET)}


class Description(NamedTuple):
    """Entry of the list of data sets."""

    name: str
    title: str
    size: str  # rows, shape and classes in words
    terms: str
    protocols: tuple[str, ...]  # the default first
    prepared: bool  # whether the set loads without its published files
    how: str  # how to load the set


def names() -> tuple[str, ...]:
    """Return the names of all data sets.

    Example:
      >>> "har" in names()
      True
    """
    return (*_EMBEDDED, *PUBLISHED)


def describe(*, data_dir: str | os.PathLike[str] | None = None) -> list[Description]:
    """List the data sets with their size, terms and protocols, and how to get them.

    Args:
      data_dir: Folder of the prepared sets; by default `$PRIVJAX_DATA`, or `~/.cache/privjax`.

    Returns:
      One description per data set, those without files first.

    Example:
      >>> describe()[0].how
      "load('digits'): no download"
    """
    rows, folder = [], _data_dir(data_dir)
    for name, found in {**_EMBEDDED, **PUBLISHED}.items():
        is_file = found.needs and prepared_folder(name, folder).exists()
        how = f"load({name!r}): prepared in {folder}" if is_file else found.instructions
        prepared = bool(is_file or not found.needs)
        rows.append(
            Description(name, found.title, found.size, found.terms, tuple(found.protocols), prepared, how)
        )
    return rows


def load(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    manual_dir: str | os.PathLike[str] | None = None,
    seed: int = 0,
    protocol: str | None = None,
    validation: float = 0.1,
    force: bool = False,
    **options: Any,
) -> Dataset:
    """Load a data set by name, split by one of its protocols.

    Args:
      name: One of `names()`.
      data_dir: Folder of the prepared sets; by default `$PRIVJAX_DATA`, or `~/.cache/privjax`.
      manual_dir: Folder with the published files, for sets that are not to be downloaded.
      seed: Seed of the split, and of the random groups or samples of a protocol.
      protocol: One of the protocols of the set; by default the first.
      validation: Share of the training rows in the validation part. On raw frames, the share of the
        100 training frames per activity and user that is added for validation.
      force: Whether to prepare a published set again.
      **options: Options of the set: `private="sex"` where it has several private variables,
        `rows=1_000_000` for simulated sensors.

    Returns:
      The data set.

    Raises:
      DataError: The files are missing, damaged or not the published ones.

    Example:
      >>> data = load("digits", seed=1)
      >>> data.x.shape, data.y_names, len(data.s_names)
      ((1797, 64), ('even', 'odd'), 10)
    """
    if name not in names():
        raise ValueError(f"name must be one of {', '.join(names())}, got {name!r}.")
    if not 0.0 <= validation < 1.0:
        raise ValueError(f"validation must lie in [0, 1), got {validation}.")
    arguments = {"name": name, "protocol": protocol, "validation": validation, **options}
    found = {**_EMBEDDED, **PUBLISHED}[name]
    protocol, private = found.choose(protocol, options.pop("private", None))
    known = inspect.signature(found.read).parameters if name in _EMBEDDED else {}
    if unknown := sorted(set(options) - set(known)):
        raise TypeError(f"load({name!r}) has no option {unknown[0]!r}.")
    if name in _EMBEDDED:
        rows = found.read(seed=seed, **options)
    else:
        if data_dir is not None:
            arguments["data_dir"] = str(_data_dir(data_dir).resolve())
        manual = None if manual_dir is None else Path(manual_dir).expanduser()
        rows = fetch(found, data_dir=_data_dir(data_dir), manual_dir=manual, force=force)
    data = found.make_dataset(rows, protocol, private, seed=seed, validation=validation)
    origin = dataclasses.replace(data.origin, load_spec=LoadSpec("load", arguments, seed))
    return dataclasses.replace(data, origin=origin)


def reload(spec: LoadSpec, *, seed: int | None = None) -> Dataset:
    """Load the data set of a load spec. Its files may have changed since: compare the `content_hash`.

    Args:
      spec: Load spec of the data set's origin.
      seed: Seed of another split; by default that of the spec.

    Example:
      >>> data = load("digits", seed=1)
      >>> reload(data.origin.load_spec).content_hash == data.content_hash
      True
    """
    functions = {"load": load, "from_table": from_table}
    if spec.function not in functions:
        raise ValueError(f"load_spec: function must be one of {', '.join(functions)}, got {spec.function!r}.")
    return functions[spec.function](**spec.arguments, seed=spec.seed if seed is None else seed)


def _data_dir(given: str | os.PathLike[str] | None) -> Path:
    given = given or os.environ.get("PRIVJAX_DATA") or Path.home() / ".cache" / "privjax"
    return Path(given).expanduser()
