"""A sweep's folder: one process at a time in it, and only for the sweep it was made for."""

import contextlib
import importlib.metadata
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from privjax.datasets import Dataset
from privjax.files import Busy, exclusive, write_json
from privjax.networks import Networks
from privjax.training import Objective

SCHEMA = 1


@contextlib.contextmanager
def opened(folder: Path, config: Mapping[str, Any]) -> Iterator[None]:
    """Locks a folder for this process and makes sure that it belongs to this sweep.

    Args:
      folder: the workdir; made when it is not there.
      config: what makes this sweep this sweep, as JSON.
    """
    if "[" in str(folder.absolute()):  # Orbax looks for its files by a pattern, in which it means a choice
        raise ValueError(
            f"workdir {folder} has a [ in its path, which checkpoints cannot bear: give another."
        )
    lock = folder / f".lock-{jax.process_index()}"
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(exclusive(lock, wait=False))
        except Busy:
            raise RuntimeError(
                f"another process is at work on {folder}: wait for it, or give another workdir."
            ) from None
        except (NotADirectoryError, FileExistsError):
            raise ValueError(f"workdir {folder} is not a folder: give another.") from None
        _check_config(folder, config)
        yield


def _check_config(folder: Path, config: Mapping[str, Any]) -> None:
    path = folder / "config.json"
    if not path.exists():
        if jax.process_index() == 0:
            others = [p.name for p in folder.iterdir() if not p.name.startswith(".")]
            if others:
                raise ValueError(
                    f"workdir {folder} holds {others[0]} but no config.json, so it is no sweep's: "
                    "give an empty folder."
                )
            write_json(path, config)
        return
    before = read_json(path)
    differing = list(_differences(before, config))
    if differing:
        raise ValueError(
            f"workdir {folder} was made for another sweep ({'; '.join(differing[:3])}): give another "
            "workdir, or the old settings."
        )


def _differences(before: Any, now: Any, name: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*before, *now]):
            yield from _differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now:
        yield f"{name} was {_short(before)}, now {_short(now)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_json(path: Path) -> Any:
    """Reads one of a sweep's JSON files, or says in one sentence what is wrong with it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is not there: is {path.parent} the workdir of a sweep?") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read ({error}): restore it, or sweep elsewhere.") from None


def as_json(value: Any) -> Any:
    """The same as it will be read back: tuples are lists, and NumPy's numbers Python's."""
    return json.loads(json.dumps(value, default=lambda number: number.item()))


def versions() -> dict[str, str]:
    """Versions that a member's numbers depend on."""
    return {name: importlib.metadata.version(name) for name in ("privjax", "jax", "flax", "optax")}


def describe_data(data: Dataset) -> dict[str, Any]:
    """What others need to know of the data, as JSON: names, and how to have it again.

    Not part of what makes a sweep this sweep, as files may move: `content_hash` is.
    """
    return {
        **as_json({key: data.provenance.get(key) for key in ("again", "columns", "private")}),
        "shape": list(data.x.shape[1:]),
        "rows": {part: len(rows) for part, rows in data.split._asdict().items()},
        "feature_names": list(data.feature_names),
        "y_names": list(data.y_names),
        "s_names": list(data.s_names),
        "scale": data.scaler.method,
    }


def describe_objective(objective: Objective) -> dict[str, Any]:
    """An objective as JSON: enough to see that two differ."""
    fields = objective._asdict()
    loss = fields.pop("privacy_loss")
    loss = getattr(loss, "func", loss)  # of a partial
    plain = {k: v for k, v in fields.items() if isinstance(v, (str, int, float, bool))}
    if not plain["within_utility"]:  # folders of before it was there go on
        del plain["within_utility"]
    return {
        **plain,
        "privacy_loss": f"{loss.__module__}.{getattr(loss, '__qualname__', type(loss).__qualname__)}",
        "settings": {name: repr(value) for name, value in objective.settings},
        "schedule": objective.schedule._asdict(),
    }


def describe_networks(networks: Networks) -> dict[str, Any]:
    """Networks as JSON, which `make_networks` reads; for own ones the shapes of their parameters."""
    if networks.settings is not None:
        return dict(networks.settings)
    params = jax.eval_shape(networks.init, jax.random.key(0))
    leaves = jax.tree_util.tree_leaves_with_path(params)
    shapes = {jax.tree_util.keystr(path): list(leaf.shape) for path, leaf in leaves}
    return {"kind": "own", "parameters": shapes}
