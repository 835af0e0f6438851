"""The one door: data sets by name, and the list of them."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from privjax.datasets.dataset import Dataset, LoadSpec, assemble
from privjax.datasets.embedded import diabetes, digits
from privjax.datasets.prepared import default_data_dir, is_prepared, prepared_arrays
from privjax.datasets.recipes import RECIPES, choose_protocol, is_complete
from privjax.datasets.simulated import simulated_sensors
from privjax.datasets.sources import SOURCES
from privjax.datasets.tables import from_table

_EMBEDDED: dict[str, tuple[Callable[..., Dataset], str, str, str]] = {
    "digits": (
        digits,
        "handwritten digits, 8 x 8",
        "1797 x 64, parity (utility), 10 digits (private)",
        "CC BY 4.0 at UCI",
    ),
    "diabetes": (
        diabetes,
        "diabetes progression; a continuous utility",
        "442 x 9, progression (utility), age or sex (private)",
        "free to use, with citation",
    ),
    "simulated_sensors": (
        simulated_sensors,
        "made motion windows with a known best trade-off",
        "any number of rows x 192, 6 activities (utility), 30 users (private)",
        "none",
    ),
}


class Description(NamedTuple):
    """One line of the list of data sets."""

    name: str
    title: str
    size: str
    terms: str
    protocols: tuple[str, ...]
    prepared: bool
    how: str


def names() -> tuple[str, ...]:
    """Every name that ``load`` knows."""
    return (*_EMBEDDED, *SOURCES)


def describe(*, data_dir: str | os.PathLike | None = None) -> list[Description]:
    """Lists the data sets: size, classes, terms, what is prepared, how to get the rest.

    Args:
      data_dir: Where prepared sets are kept; by default ``$PRIVJAX_DATA``.

    Returns:
      One description per set, embedded ones first.
    """
    folder = _folder(data_dir)
    rows = [
        Description(name, title, size, terms, ("per_label",), True, f"load({name!r}): no download")
        for name, (_, title, size, terms) in _EMBEDDED.items()
    ]
    for name, source in SOURCES.items():
        ready = is_prepared(source, folder)
        rows.append(
            Description(
                name,
                source.title,
                source.size,
                source.terms,
                RECIPES[name][1],
                ready,
                f"load({name!r}): prepared in {folder}" if ready else source.instructions,
            )
        )
    return rows


def load(
    name: str,
    *,
    data_dir: str | os.PathLike | None = None,
    manual_dir: str | os.PathLike | None = None,
    seed: int = 0,
    protocol: str | None = None,
    validation: float = 0.1,
    scale: str = "standard",
    force: bool = False,
    **options: Any,
) -> Dataset:
    """Loads a data set by name, split by its protocol and scaled by its training rows.

    Args:
      name: One of ``names()``.
      data_dir: Where prepared sets are kept; by default ``$PRIVJAX_DATA``, or ``~/.cache/privjax``.
      manual_dir: A folder with the set's published files, where they are not to be downloaded.
      seed: Picks the split, and every random group or sample of the protocol.
      protocol: One of the set's protocols; by default the paper's.
      validation: Share of the training rows (of 100 frames per activity and user, on raw frames)
        for the validation part.
      scale: ``"standard"``, ``"minmax"`` or ``"none"``.
      force: Prepare the set again, whatever is there.
      **options: Those of an embedded set, for instance ``private="sex"`` or ``rows=1_000_000``.

    Returns:
      The data set.

    Example:
      >>> data = load("digits", seed=1)
      >>> data.x.shape, data.y_names, len(data.s_names)
      ((1797, 64), ('even', 'odd'), 10)
    """
    if name not in names():
        raise ValueError(f"name must be one of {', '.join(names())}, got {name!r}.")
    if not 0.0 <= validation < 1.0:
        raise ValueError(f"validation must lie in [0, 1), got {validation}.")
    again = {"name": name, "protocol": protocol, "validation": validation, "scale": scale, **options}
    if name in _EMBEDDED:
        if protocol not in (None, "per_label"):
            raise ValueError(f"protocol must be left out for {name}, got {protocol!r}.")
        make = _EMBEDDED[name][0]
        found = make(seed=seed, validation=validation, **options)
    else:
        if options:
            raise TypeError(f"load({name!r}) has no option {sorted(options)[0]!r}.")
        if data_dir is not None:
            again["data_dir"] = str(_folder(data_dir).resolve())
        found = _prepared(name, data_dir, manual_dir, seed, protocol, validation, scale, force)
    again.pop("scale")
    origin = dataclasses.replace(found.origin, load_spec=LoadSpec("load", again, seed))
    return dataclasses.replace(found, origin=origin)


def reload(spec: LoadSpec, *, seed: int | None = None) -> Dataset:
    """Load a data set by its load spec, as its files are now: compare the `content_hash`.

    Args:
      spec: Load spec of the data set's origin.
      seed: Seed of another split; the one of the spec when None.

    Returns:
      The data set.

    Example:
      >>> data = load("digits", seed=1)
      >>> reload(data.origin.load_spec).content_hash == data.content_hash
      True
    """
    spec = LoadSpec.from_dict(spec.to_dict())
    function = load if spec.function == "load" else from_table
    return function(**spec.arguments, seed=spec.seed if seed is None else seed)


def load_again(again: Mapping[str, Any], *, seed: int | None = None) -> Dataset:
    """Load from a spec given as a dict; `reload` takes its place."""
    return reload(LoadSpec.from_dict(again), seed=seed)


def _prepared(
    name: str,
    data_dir: str | os.PathLike | None,
    manual_dir: str | os.PathLike | None,
    seed: int,
    protocol: str | None,
    validation: float,
    scale: str,
    force: bool,
) -> Dataset:
    """A set from its published files; arguments as for ``load``."""
    source = SOURCES[name]
    chosen = choose_protocol(name, protocol)
    arrays, notes = prepared_arrays(
        source,
        data_dir=_folder(data_dir),
        manual_dir=None if manual_dir is None else Path(manual_dir).expanduser(),
        force=force,
    )
    cooked = RECIPES[name][0](arrays, notes, chosen, seed, validation)
    return assemble(
        cooked.x,
        cooked.y,
        cooked.s,
        cooked.split,
        y_names=cooked.y_names,
        s_names=cooked.s_names,
        feature_names=cooked.feature_names,
        scale=scale,
        provenance={
            "name": name,
            "protocol": chosen,
            "seed": seed,
            "origin": notes["origin"],
            "files": notes["files"],
            "verified": notes["verified"],
            "terms": source.terms,
            "citation": source.citation,
            "complete": is_complete(name, arrays, notes, source.published),
        },
    )


def _folder(data_dir: str | os.PathLike | None) -> Path:
    return default_data_dir() if data_dir is None else Path(data_dir).expanduser()
