"""What a sweep gave: the record of each member, `results.json`, and encoders from a workdir."""

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from privjax.datasets import Dataset
from privjax.files import write_json
from privjax.networks import Networks, make_networks
from privjax.sweeping.checkpoints import Checkpoints
from privjax.sweeping.members import Member, learnt
from privjax.sweeping.workdir import SCHEMA, read_json
from privjax.training import STATUS_NAMES, TrainConfig, utility_score
from privjax.training.fit import apply_to_rows, both_spheres

PathLike = str | os.PathLike


class Encoder(NamedTuple):
    """The private sphere of one member, on NumPy rows: what goes on the device.

    Attributes:
      params: its parameters, and nobody else's.
      networks: whose `private` it is.
      shift: what the data set took from raw rows, per feature,
      spread: and then divided them by; the encoder expects rows of the data set, which are scaled.
    """

    params: Any
    networks: Networks
    shift: np.ndarray
    spread: np.ndarray

    def __call__(self, x: ArrayLike) -> np.ndarray:
        """Releases z [n, d] for rows x of the data set."""
        x = np.asarray(x)
        if x.ndim < 2 or x.shape[-1] != len(self.shift):
            raise ValueError(f"x must be rows of {len(self.shift)} features, got shape {x.shape}.")
        rows = x if len(x) else np.zeros((1, *x.shape[1:]))  # networks do not know what to do with none
        return apply_to_rows(self.networks.private, {"private": self.params}, rows)[: len(x)]


def final_tree(state: Any, history: Any, dataset: Dataset) -> dict[str, Any]:
    """What is kept of a member that has ended; also the template to read it by."""
    return {
        "params": state.params,
        "status": state.status,
        "epoch": state.epoch,
        "history": history,
        "shift": dataset.scaler.shift,
        "spread": dataset.scaler.spread,
    }


def make_record(
    member: Member, tree: dict[str, Any], dataset: Dataset, config: TrainConfig
) -> dict[str, Any]:
    """One member as strict JSON.

    Args:
      member: who.
      tree: of `final_tree`.
      dataset: what it was trained on.
      config: all that is static.
    """
    epoch = int(tree["epoch"])
    last = jax.tree.map(lambda a: _number(a[epoch - 1]) if epoch else None, tree["history"])
    test = None
    if len(dataset.split.test):
        part = dataset.part("test")
        outputs = apply_to_rows(both_spheres(config.networks), tree["params"], part.x)
        y = learnt(dataset.y, dataset)[dataset.split.test]
        y = y if config.task.num_classes else y.reshape(len(y), -1)
        test = _number(utility_score(jnp.asarray(outputs), jnp.asarray(y), config.task))
    measures = last.measures
    return {
        "point": member.point,
        "objective": config.objective.name,
        "privacy_weight": member.privacy_weight,
        "seed": member.seed,
        "status": STATUS_NAMES[int(tree["status"])],
        "epochs": epoch,
        "losses": last.losses._asdict(),
        "utility": {
            "validation": measures.utility if len(dataset.split.validation) else None,
            "test": test,
        },
        "effective_rank": measures.effective_rank,
        "live_units": None if measures.live_units is None else int(measures.live_units),
        "probe": measures.probe,
        "content_hash": dataset.content_hash,
    }


def _number(value: Any) -> float | None:
    value = float(value)
    return value if math.isfinite(value) else None


def write_member(folder: Path, record: dict[str, Any], history: Any) -> None:
    """A member's record and its history, epoch by epoch, in a file of its own."""
    epochs = record["epochs"]
    listed = jax.tree.map(lambda a: [_number(value) for value in a[:epochs]], history)
    named = {
        "rate_scale": listed.rate_scale,
        "losses": listed.losses._asdict(),
        "measures": listed.measures._asdict(),
    }
    write_json(_member_path(folder, record["point"]), {**record, "history": named})


def read_member(folder: Path, point: int) -> dict[str, Any] | None:
    """A member's record with its history; None when it is not there or damaged."""
    try:
        return read_json(_member_path(folder, point))
    except (FileNotFoundError, ValueError):
        return None


def _member_path(folder: Path, point: int) -> Path:
    return folder / "members" / f"point-{point:04d}.json"


def write_results(folder: Path, results: dict[str, Any]) -> None:
    """`results.json`; what an audit has added to a member that is still the same stays with it.

    While the sweep is under way members that it has not come to yet stay as well: it may only be mending one.
    """
    path = folder / "results.json"
    if path.exists():
        before = {}
        try:
            found = read_json(path)
            if found["config"] == results["config"]:
                before = {member["point"]: member for member in found["members"]}
        except (ValueError, KeyError, TypeError):  # it is about to be replaced
            pass
        for member in results["members"]:
            old = before.pop(member["point"], {})
            if "audit" in old and {k: v for k, v in old.items() if k != "audit"} == member:
                member["audit"] = old["audit"]
        if not results["complete"]:
            together = [*results["members"], *before.values()]
            results = results | {"members": sorted(together, key=lambda member: member["point"])}
    write_json(path, results)


def load_results(workdir: PathLike) -> dict[str, Any]:
    """Reads `results.json` of a sweep.

    Args:
      workdir: the sweep's folder.

    Returns:
      Its content: `schema`, `versions`, `backend`, `data`, `config`, `complete` and `members`.
    """
    path = Path(workdir).expanduser() / "results.json"
    results = read_json(path)
    if not isinstance(results, dict) or results.get("schema") != SCHEMA:
        schema = results.get("schema") if isinstance(results, dict) else None
        raise ValueError(f"{path} has schema {schema}, this version of privjax reads schema {SCHEMA}.")
    if not isinstance(results.get("members"), list) or not isinstance(results.get("data"), dict):
        raise ValueError(f"{path} is damaged, it has no members or no data: sweep again in this folder.")
    if not all(isinstance(m, dict) and type(m.get("point")) is int for m in results["members"]):
        raise ValueError(f"{path} is damaged, not every member has its number: sweep again in this folder.")
    return results


def load_history(workdir: PathLike, point: int) -> dict[str, Any]:
    """The history of one member, epoch by epoch: `losses`, `measures` and `rate_scale`."""
    member = read_member(Path(workdir).expanduser(), point)
    if member is None:
        raise ValueError(_no_such_point(workdir, point))
    return member["history"]


def load_encoder(workdir: PathLike, point: int, *, networks: Networks | None = None) -> Encoder:
    """The private sphere of one member of a sweep.

    Args:
      workdir: the sweep's folder.
      point: the member's number in `results.json`.
      networks: those it was trained with, when they are your own.

    Returns:
      A function of NumPy rows x, as the data set gives them, to z.
    """
    folder = Path(workdir).expanduser()
    config = read_json(folder / "config.json")
    if networks is None:
        if config["networks"]["kind"] == "own":
            raise ValueError(f"{folder} was trained with networks of your own: pass them as networks=.")
        networks = make_networks(config["networks"])
    params = jax.eval_shape(networks.init, jax.random.key(0))["private"]
    width = jax.ShapeDtypeStruct((config["data"]["features"],), np.float32)
    template = {"params": {"private": params}, "shift": width, "spread": width}
    found = Checkpoints(folder / "checkpoints").read([point], {True: template})
    if point not in found:
        raise ValueError(_no_such_point(folder, point))
    tree = found[point][0]
    return Encoder(tree["params"]["private"], networks, tree["shift"], tree["spread"])


def _no_such_point(workdir: PathLike, point: int) -> str:
    path = Path(workdir).expanduser() / "members"
    done = sorted(int(p.stem.rpartition("-")[2]) for p in path.glob("point-*.json"))
    if point in done:
        return f"what {workdir} keeps of point {point} is damaged: the same sweep again mends it."
    have = f"it has {_ranges(done)}" if done else "it has none yet"
    return f"{workdir} has no finished point {point}: {have}."


def _ranges(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
