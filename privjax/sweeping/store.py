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
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex

import jax
import numpy as np

from privjax.encoder import Encoder
from privjax.files import Busy, exclusive, read_arrays, write_arrays, write_json
from privjax.networks import Networks
from privjax.sweeping.records import SCHEMA, MemberRecord, SweepConfig, SweepRun, check_schema, format_numbers
from privjax.training import History, Losses, Measures
from privjax.typed_json import to_json

PathLike = str | os.PathLike
_SECONDS_TO_OPEN = 600.0  # in which process 0 loads the first data set and writes config.json
_SECONDS_BETWEEN_LOOKS = 0.2


class FinishedMember(NamedTuple):
    """The content of a file in `members/`."""

    record: MemberRecord
    history: History
    encoder: Encoder


@contextlib.contextmanager
def open_workdir(folder: Path, config: SweepConfig, *, process: int = 0) -> Iterator[None]:
    """Lock a workdir for this process, and check that it belongs to this sweep.

    Process 0 writes the config to an empty folder; every other process waits for it.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(exclusive(folder / f".lock-{process}", wait=False))
        except Busy:
            raise RuntimeError(
                f"another process is at work on {folder}: wait for it, or give another workdir."
            ) from None
        except (NotADirectoryError, FileExistsError):
            raise ValueError(f"workdir {folder} is not a folder: give another.") from None
        _check_config(folder, config, process)
        yield


def _check_config(folder: Path, config: SweepConfig, process: int) -> None:
    path = folder / "config.json"
    foreign = [found.name for found in folder.iterdir() if not found.name.startswith(".")]
    if not path.exists():
        if foreign:
            raise ValueError(
                f"workdir {folder} holds {foreign[0]} but no config.json, so it belongs to no sweep: "
                "give an empty folder."
            )
        if process == 0:
            write_json(path, to_json(config))
    end = time.monotonic() + _SECONDS_TO_OPEN
    while not path.exists() and time.monotonic() < end:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    differences = list(_differences(_read_json(path, check_schema), to_json(config)))
    if differences:
        _refuse(folder, "; ".join(differences[:3]))


def _differences(before: Any, now: Any, name: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*before, *now]):
            yield from _differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now:
        before, now = (
            text if len(text) <= 60 else f"{text[:57]}..." for text in map(json.dumps, (before, now))
        )
        yield f"{name} was {before}, now {now}"


def _refuse(folder: Path, difference: str) -> None:
    raise ValueError(
        f"workdir {folder} belongs to another sweep ({difference}): give another workdir or the old settings."
    )


def check_content_hash(folder: Path, member: int, before: str, now: str) -> None:
    """Refuse a workdir in which a member was trained on other data."""
    for difference in _differences(before, now, f"content_hash of member {member}"):
        _refuse(folder, difference)


def save_member(folder: Path, member: FinishedMember) -> None:
    """Write one finished member, then delete its checkpoints."""
    header, arrays = member.encoder.to_arrays()
    arrays = {f"encoder/{name}": array for name, array in arrays.items()} | _name_arrays(member.history)
    content = {"schema": SCHEMA, "record": member.record.to_dict(), "encoder": header}
    write_arrays(_member_path(folder, member.record.member), content, arrays)
    for path in _checkpoint_paths(folder, member.record.member):
        path.unlink(missing_ok=True)


def read_records(folder: Path, members: Iterable[int]) -> dict[int, MemberRecord]:
    """Read the records of those members that have finished; a damaged file is a warning."""
    records = {}
    for member in members:
        with contextlib.suppress(FileNotFoundError):
            try:
                records[member] = _read_member(folder, member)[0]
            except ValueError as error:
                warnings.warn(f"{error} Member {member} is trained again.", stacklevel=2)
    return records


def wait_for_records(folder: Path, members: Iterable[int]) -> dict[int, MemberRecord]:
    """Read the records of all members, once their processes have written, or replaced, their files."""
    return {member: _wait_for(lambda m=member: _read_member(folder, m)[0]) for member in members}


def _wait_for(read: Callable[[], Any]) -> Any:
    """Return the content of a file as soon as another process has written it."""
    while True:
        try:
            return read()
        except (FileNotFoundError, ValueError):
            time.sleep(_SECONDS_BETWEEN_LOOKS)


def _read_member(folder: Path, member: int) -> tuple[MemberRecord, dict[str, Any], dict[str, np.ndarray]]:
    """Return the record, the header of the encoder, and all arrays of a finished member."""
    path = _member_path(folder, member)
    header, arrays = read_arrays(path)
    try:
        check_schema(header)
        return MemberRecord.from_dict(header["record"]), header["encoder"], arrays
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def save_checkpoint(folder: Path | None, member: int, content_hash: str, tree: Any) -> None:
    """Write the state of one member, a pytree of NumPy arrays; the checkpoint before stays beside it."""
    if folder is None:
        return
    header = {"schema": SCHEMA, "content_hash": content_hash, "leaves": _leaf_names(tree)}
    newest, before = _checkpoint_paths(folder, member)
    if newest.exists():
        os.replace(newest, before)
    write_arrays(newest, header, {f"{i:04d}": leaf for i, leaf in enumerate(jax.tree.leaves(tree))})


def read_checkpoint(folder: Path | None, member: int, content_hash: str, like: Any) -> list[np.ndarray]:
    """Return the leaves of the newest readable checkpoint of one member; none if there is no such file.

    A file with other leaves than `like` is damaged, and one of other data belongs to another sweep.
    """
    if folder is None:
        return []
    for path in _checkpoint_paths(folder, member):
        try:
            header, arrays = read_arrays(path)
            check_schema(header)
            leaves = list(arrays.values())
            expected = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(like)]
            if header["leaves"] != _leaf_names(like) or [(a.shape, a.dtype) for a in leaves] != expected:
                raise ValueError(f"{path} holds other arrays than those of this sweep.")
        except FileNotFoundError:
            continue
        except (KeyError, ValueError) as error:
            warnings.warn(
                f"checkpoint {path} cannot be used ({error}): falling back to the one before, or to the "
                f"first epoch of member {member}.",
                stacklevel=2,
            )
            path.unlink()  # or it would replace the one before at the next checkpoint
            continue
        check_content_hash(folder, member, header["content_hash"], content_hash)
        return leaves
    return []


def remove_partial_files(folder: Path, members: Iterable[int]) -> None:
    """Delete the incomplete files that a killed process left of some members."""
    for member in members:
        for path in (_member_path(folder, member), _checkpoint_paths(folder, member)[0]):
            for part in path.parent.glob(f".{path.name}.*.part"):
                part.unlink(missing_ok=True)


def write_results(folder: Path, run: SweepRun) -> None:
    """Write `results.json`."""
    write_json(folder / "results.json", run.to_dict())


def wait_for_results(folder: Path) -> None:
    """Wait until process 0 has written the results of all members."""

    def read() -> None:
        if not load_results(folder).complete:
            raise ValueError("the sweep is not complete")

    _wait_for(read)


def load_results(workdir: PathLike) -> SweepRun:
    """Load the results of a sweep, finished or not.

    Args:
      workdir: Folder of the sweep.

    Returns:
      The content of `results.json`.

    Example:
      >>> import privjax, tempfile
      >>> workdir = tempfile.mkdtemp()
      >>> run = privjax.sweep("digits", privacy_weights=[1.0], num_epochs=1, workdir=workdir).run
      >>> load_results(workdir) == run
      True
    """
    return _read_json(Path(workdir).expanduser() / "results.json", SweepRun.from_dict)


def load_history(workdir: PathLike, member: SupportsIndex) -> History:
    """Load the history of one finished member.

    Args:
      workdir: Folder of the sweep.
      member: Number of the member, or a point of a curve.

    Returns:
      Losses and measures of each epoch, as NumPy arrays.

    Example:
      >>> import privjax, tempfile
      >>> workdir = tempfile.mkdtemp()
      >>> _ = privjax.sweep("digits", privacy_weights=[1.0], num_epochs=2, workdir=workdir)
      >>> load_history(workdir, 0).losses.utility.shape
      (2,)
    """
    return _make_history(_load_member(workdir, member)[2])


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
    return Encoder.from_arrays(header, own, networks=networks)


def _load_member(workdir: PathLike, member: SupportsIndex):
    folder, number = Path(workdir).expanduser(), operator.index(member)
    _read_json(folder / "config.json", check_schema)
    try:
        return _read_member(folder, number)
    except FileNotFoundError:
        finished = format_numbers(sorted(int(p.stem) for p in (folder / "members").glob("[0-9]*.npz")))
        raise ValueError(
            f"{workdir} has no finished member {number}: the finished ones are {finished}."
        ) from None
    except ValueError as error:
        raise ValueError(f"member {number} of {workdir} is damaged ({error}): repeat the sweep.") from None


def _read_json(path: Path, parse: Callable[[Any], Any]) -> Any:
    """Read one of the JSON files of a workdir, or say in one sentence why it cannot be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is missing: give the workdir of a sweep, which all its processes reach."
        ) from None
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} cannot be read ({error}): restore it, or repeat the sweep.") from None
    try:
        return parse(value)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _member_path(folder: Path, member: int) -> Path:
    return folder / "members" / f"{member:04d}.npz"


def _checkpoint_paths(folder: Path, member: int) -> tuple[Path, Path]:
    """Return the paths of the newest checkpoint and of the one before."""
    return folder / "checkpoints" / f"{member:04d}.npz", folder / "checkpoints" / f"{member:04d}.before.npz"


def _leaf_names(tree: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def _name_arrays(history: History) -> dict[str, np.ndarray]:
    """Name the arrays of a history, for instance `history/losses/privacy`."""
    leaves = jax.tree_util.tree_leaves_with_path(history)
    return {f"history/{jax.tree_util.keystr(p, simple=True, separator='/')}": leaf for p, leaf in leaves}


def _make_history(arrays: Mapping[str, np.ndarray]) -> History:
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        root, *parents, last = name.split("/", 3)  # the name of a private variable may hold a slash
        if root == "history":
            node = tree
            for parent in parents:
                node = node.setdefault(parent, {})
            node[last] = array
    return History(**{**tree, "losses": Losses(**tree["losses"]), "measures": Measures(**tree["measures"])})
