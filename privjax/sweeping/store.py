"""A sweep's workdir: its lock, its config, and one file for every member.

    config.json            the `SweepConfig`, written once: a workdir belongs to one config
    members/0007.npz       record, history and encoder of one finished member
    checkpoints/0007.npz   state of one member in training, and beside it the checkpoint before
    results.json           the `SweepRun`, written by process 0

Each process writes the files of the members that it trains, and no other. A file is read back before it
takes its name, so any process, or a single one later, reads the members of all.
"""

import contextlib
import json
import operator
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, SupportsIndex

import jax
import numpy as np

from privjax.encoder import Encoder
from privjax.files import exclusive, read_arrays, to_json, write_arrays, write_json
from privjax.networks import Networks
from privjax.sweeping.records import SCHEMA, MemberRecord, SweepConfig, SweepRun, check_schema
from privjax.training import History, Losses, Measures

PathLike = str | os.PathLike[str]
_SECONDS_TO_OPEN = 600.0  # in which process 0 loads the first data set and writes config.json
_SECONDS_BETWEEN_LOOKS = 0.2


@contextlib.contextmanager
def open_workdir(folder: Path, config: SweepConfig) -> Iterator[None]:
    """Lock a workdir for this process, and check that it belongs to this sweep."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"workdir {folder} is not a folder: give another.")
    with exclusive(folder / f".lock-{jax.process_index()}", wait=False):
        _check_config(folder, config)
        yield


def _check_config(folder: Path, config: SweepConfig) -> None:
    """Compare the config of a workdir; process 0 writes it to an empty folder, and the others wait for it."""
    path = folder / "config.json"
    foreign = [found.name for found in folder.iterdir() if not found.name.startswith(".")]
    if foreign and not path.exists():
        raise ValueError(
            f"workdir {folder} holds {foreign[0]} but no config.json, so it belongs to no sweep: "
            "give an empty folder."
        )
    if jax.process_index() == 0:
        _remove_partial_files(path, folder / "results.json")
        if not path.exists():
            write_json(path, to_json(config))
    end = time.monotonic() + _SECONDS_TO_OPEN
    while not path.exists() and time.monotonic() < end:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    refuse_differences(folder, "", _read_json(path, check_schema), to_json(config))


def refuse_differences(folder: Path | None, name: str, before: Any, now: Any) -> None:
    """Refuse a workdir in which a value was another."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*before, *now]):
            inner = f"{name}.{key}" if name else key
            refuse_differences(folder, inner, before.get(key), now.get(key))
    elif before != now:
        raise ValueError(
            f"workdir {folder} belongs to another sweep ({name} was {json.dumps(before):.60}, now "
            f"{json.dumps(now):.60}): give another workdir or the old settings."
        )


def save_member(folder: Path, record: MemberRecord, history: History, encoder: Encoder) -> None:
    """Write one finished member, then delete its checkpoints."""
    header, arrays = encoder.to_arrays()
    header = {"schema": SCHEMA, "record": record.to_dict(), "encoder": header}
    arrays = {f"encoder/{name}": array for name, array in arrays.items()}
    arrays |= {f"history{name}": leaf for name, leaf in _name_leaves(history).items()}
    member, *checkpoints = _paths(folder, record.member)
    write_arrays(member, header, arrays)
    for path in checkpoints:
        path.unlink(missing_ok=True)


def read_records(folder: Path, members: Iterable[int]) -> dict[int, MemberRecord]:
    """Read the records of those members that have finished; a damaged file is a warning.

    Files that a killed process left behind are deleted.
    """
    records = {}
    for member in members:
        path, *checkpoints = _paths(folder, member)
        _remove_partial_files(path, *checkpoints)
        try:
            records[member] = read_member(folder, member)[0]
        except FileNotFoundError:
            continue
        except ValueError as error:
            warnings.warn(f"{error} Member {member} is trained again.", stacklevel=2)
            continue
        for checkpoint in checkpoints:
            checkpoint.unlink(missing_ok=True)
    return records


def read_member(folder: Path, member: int) -> tuple[MemberRecord, dict[str, Any], dict[str, np.ndarray]]:
    """Return the record, the header of the encoder, and all arrays of a finished member."""
    path = _paths(folder, member)[0]
    header, arrays = read_arrays(path)
    try:
        record, encoder = MemberRecord.from_dict(check_schema(header)["record"]), header["encoder"]
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    if record.member != member:
        raise ValueError(f"{path} cannot be read: it is the file of member {record.member}.")
    return record, encoder, arrays


def wait_for(read: Callable[[], Any], accept: Callable[[Any], bool] = lambda found: True) -> Any:
    """Return the content of a file, once another process has written or replaced it."""
    while True:
        with contextlib.suppress(FileNotFoundError, ValueError):
            if accept(found := read()):
                return found
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def save_checkpoint(folder: Path | None, member: int, content_hash: str, tree: Any) -> None:
    """Write the state of one member, a pytree of NumPy arrays; the checkpoint before stays beside it."""
    if folder is None:
        return
    _, newest, before = _paths(folder, member)
    if newest.exists():
        os.replace(newest, before)
    write_arrays(newest, {"schema": SCHEMA, "content_hash": content_hash}, _name_leaves(tree))


def read_checkpoint(folder: Path | None, member: int, content_hash: str, like: Any) -> list[np.ndarray]:
    """Return the leaves of the newest readable checkpoint with the leaves of `like`; none without a file."""
    if folder is None:
        return []
    for path in _paths(folder, member)[1:]:
        try:
            header, arrays = read_arrays(path)
            check_schema(header)
            found = {name: (a.shape, a.dtype) for name, a in arrays.items()}
            if found != {name: (a.shape, a.dtype) for name, a in _name_leaves(like).items()}:
                raise ValueError(f"{path} holds other arrays than those of this sweep.")
        except FileNotFoundError:
            continue
        except ValueError as error:
            warnings.warn(
                f"checkpoint {path} cannot be used ({error}): falling back to the one before, or to the "
                f"first epoch of member {member}.",
                stacklevel=2,
            )
            path.unlink()  # or it would replace the one before at the next checkpoint
            continue
        refuse_differences(folder, f"content_hash of member {member}", header["content_hash"], content_hash)
        return list(arrays.values())
    return []


def _name_leaves(tree: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def write_results(folder: Path, run: SweepRun) -> None:
    """Write `results.json`."""
    write_json(folder / "results.json", run.to_dict())


def load_results(workdir: PathLike) -> SweepRun:
    """Load the results of a sweep, finished or not, from its `results.json`.

    Args:
      workdir: Folder of the sweep.

    Example:
      >>> import privjax, tempfile
      >>> workdir = tempfile.mkdtemp()
      >>> run = privjax.sweep("digits", privacy_weights=[1.0], num_epochs=1, workdir=workdir).run
      >>> load_results(workdir) == run
      True
    """
    return _read_json(Path(workdir).expanduser() / "results.json", SweepRun.from_dict)


def load_history(workdir: PathLike, member: SupportsIndex) -> History:
    """Load the losses and measures of each epoch of one finished member, as NumPy arrays.

    Args:
      workdir: Folder of the sweep.
      member: Number of the member, or a point of a curve.

    Example:
      >>> import privjax, tempfile
      >>> workdir = tempfile.mkdtemp()
      >>> _ = privjax.sweep("digits", privacy_weights=[1.0], num_epochs=2, workdir=workdir)
      >>> load_history(workdir, 0).losses.utility.shape
      (2,)
    """
    record, _, arrays = _load_member(workdir, member)
    each = jax.tree.map(lambda _: 0, record.losses.privacy, is_leaf=lambda leaf: leaf is None)
    like = History(Losses(0, each, 0, 0, 0), Measures(0, 0, 0, 0, each), 0, 0)  # pyright: ignore
    leaves = [array for name, array in arrays.items() if name.startswith("history")]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def load_encoder(workdir: PathLike, member: SupportsIndex, *, networks: Networks | None = None) -> Encoder:
    """Load the encoder of one finished member, which maps raw rows to z.

    Args:
      workdir: Folder of the sweep.
      member: Number of the member, or a point of a curve.
      networks: The networks of the sweep, if they are your own.

    Example:
      >>> import privjax, tempfile
      >>> workdir = tempfile.mkdtemp()
      >>> _ = privjax.sweep("digits", privacy_weights=[1.0], num_epochs=1, workdir=workdir)
      >>> load_encoder(workdir, 0).width
      50
    """
    _, header, arrays = _load_member(workdir, member)
    own = {name.removeprefix("encoder/"): a for name, a in arrays.items() if name.startswith("encoder/")}
    try:
        return Encoder.from_arrays(header, own, networks=networks)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ValueError(f"member {int(member)} of {workdir} cannot be loaded: {error}") from None


def _load_member(workdir: PathLike, member: SupportsIndex):
    folder, number = Path(workdir).expanduser(), operator.index(member)
    _read_json(folder / "config.json", check_schema)
    try:
        return read_member(folder, number)
    except FileNotFoundError:
        names = sorted(path.stem for path in (folder / "members").glob("*.npz"))
        finished = ", ".join(str(int(name)) for name in names if name.isdigit()) or "none"
        raise ValueError(
            f"{workdir} has no finished member {number}: the finished ones are {finished}."
        ) from None
    except ValueError as error:
        raise ValueError(f"member {number} of {workdir} is damaged ({error}): repeat the sweep.") from None


def _read_json(path: Path, parse: Callable[[Any], Any]) -> Any:
    """Read one of the JSON files of a workdir, or say in one sentence why it cannot be read."""
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is missing: give the workdir of a sweep, which all its processes reach."
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise ValueError(f"{path} cannot be read ({error}): restore it, or repeat the sweep.") from None
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _paths(folder: Path, member: int) -> tuple[Path, Path, Path]:
    """Return the paths of a finished member, of its newest checkpoint and of the checkpoint before."""
    name, checkpoints = f"{member:04d}", folder / "checkpoints"
    return folder / "members" / f"{name}.npz", checkpoints / f"{name}.npz", checkpoints / f"{name}.before.npz"


def _remove_partial_files(*paths: Path) -> None:
    """Delete the incomplete files that a killed process left beside these files."""
    for path in paths:
        for part in path.parent.glob(f".{path.name}.*.part"):
            part.unlink(missing_ok=True)
