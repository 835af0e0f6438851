"""What is on disk survives kills, damage and full disks, and is refused where it does not belong."""

import errno
import functools
import json
import logging
import operator
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from small import NETWORKS, make_small, small_sweep

import privjax
from privjax import load_encoder, load_history, load_results
from privjax.files import exclusive, write_json
from privjax.sweeping.checkpoints import _plain_errors, remove_leftovers
from privjax.sweeping.results import write_results
from privjax.sweeping.workdir import describe_objective

HERE = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    return small_sweep(workdir=folder), folder


@pytest.fixture
def copied(finished, tmp_path):
    """A finished workdir of one's own, to damage."""
    shutil.copytree(finished[1], tmp_path / "run")
    return tmp_path / "run"


def newest(folder: Path) -> Path:
    return max(path for path in (folder / "checkpoints").iterdir())


def largest_file(folder: Path) -> Path:
    return max((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def interrupted(folder: Path, after: int) -> None:
    """Runs a sweep that is stopped, as by Ctrl-C, after so many checkpoints."""
    from privjax.sweeping.checkpoints import Checkpoints

    count, save = 0, Checkpoints.save

    def stopping(self, *args, **kwargs):
        nonlocal count
        save(self, *args, **kwargs)
        count += 1
        if count == after:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", stopping)
        with pytest.raises(KeyboardInterrupt):
            small_sweep(workdir=folder)


def test_a_workdir_changes_no_number(finished, undisturbed):
    result, folder = finished
    assert result.members == undisturbed.members
    assert load_results(folder)["members"] == undisturbed.members
    assert load_results(folder)["complete"] is True
    again = small_sweep(workdir=folder)
    assert again.members == undisturbed.members


def test_results_are_strict_json(finished):
    def refuse(token):
        raise AssertionError(token)

    results = json.loads((finished[1] / "results.json").read_text(), parse_constant=refuse)
    assert results["schema"] == 1
    assert results["versions"]["privjax"] == privjax.__version__
    assert results["backend"] == "cpu"
    assert results["data"]["name"] == "small"
    assert results["data"]["splits"]["1"] == make_small(1).content_hash
    assert results["config"]["privacy_weights"] == [0.0, 2.0]
    assert set(results["members"][0]) >= {
        *("point", "objective", "privacy_weight", "seed", "status", "epochs", "losses", "utility"),
        *("effective_rank", "live_units"),
    }
    history = load_history(finished[1], 2)
    assert len(history["losses"]["utility"]) == 6
    assert history["losses"]["utility"][-1] == results["members"][2]["losses"]["utility"]


def test_encoders_come_back(finished):
    x = make_small().x
    for point in range(4):
        encoder = load_encoder(finished[1], point)
        np.testing.assert_array_equal(encoder(x), finished[0].encoder(point)(x))
        assert set(encoder.params) == {"Dense_0"}
        assert encoder(x).shape == (120, 4)
    data = make_small(1)
    np.testing.assert_array_equal(load_encoder(finished[1], 3).shift, data.scaler.shift)
    assert not np.array_equal(load_encoder(finished[1], 0)(x), load_encoder(finished[1], 1)(x))
    with pytest.raises(ValueError, match="it has 0 to 3"):
        load_encoder(finished[1], 4)


def test_no_pickle(finished):
    for path in finished[1].rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            # A pickle begins with its protocol, and names classes of modules.
            assert not content.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")), path
            assert b"cnumpy" not in content
            assert b"c__builtin__" not in content


@pytest.mark.parametrize("after", [1, 4, 9])
def test_going_on_changes_no_bit(tmp_path, undisturbed, after):
    interrupted(tmp_path / "run", after)
    assert (tmp_path / "run" / "config.json").exists()
    # Other chunks than it began with: states belong to members, not to chunks.
    assert small_sweep(workdir=tmp_path / "run").members == undisturbed.members


def test_ctrl_c_says_how_to_go_on(tmp_path, capsys):
    from privjax.sweeping.checkpoints import Checkpoints

    def stop(self, *args, **kwargs):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            small_sweep(workdir=tmp_path / "run", progress="log")
    assert "the same call goes on" in capsys.readouterr().err


def truncate(path: Path) -> None:
    with path.open("r+b") as handle:
        handle.truncate(path.stat().st_size // 2)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink])
@pytest.mark.parametrize("where", ["data", "note", "everything"])
def test_a_damaged_checkpoint_falls_back(tmp_path, undisturbed, damage, where):
    folder = tmp_path / "run"
    interrupted(folder, 4)
    target = newest(folder)
    if where == "data":
        damage(largest_file(target))
    elif where == "note":
        damage(target / "note" / "metadata")
    else:
        for path in [p for p in target.rglob("*") if p.is_file()]:
            damage(path)
    with pytest.warns(UserWarning, match="falling back to the one before"):
        result = small_sweep(workdir=folder)
    assert result.members == undisturbed.members
    assert not target.exists()


def test_a_damaged_last_checkpoint_is_trained_again(copied, undisturbed):
    truncate(largest_file(newest(copied)))
    with (
        pytest.warns(UserWarning, match="falling back"),
        pytest.raises(ValueError, match="point 3 is damaged"),
    ):
        load_encoder(copied, 3)
    with pytest.warns(UserWarning, match="falling back"):
        assert small_sweep(workdir=copied).members == undisturbed.members
    load_encoder(copied, 3)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (dict(privacy_weights=[0.0, 3.0]), "privacy_weights"),
        (dict(seeds=[0, 2]), "seeds"),
        (dict(objective="kdi"), "objective.name"),
        (dict(batch_size=20), "batch_size"),
        (dict(private_rate=1e-2), "rates.private_rate"),
        (dict(num_epochs=7), "num_epochs"),
        (dict(data=lambda seed: make_small(seed, rows=130)), "data.content_hash"),
        (
            dict(networks=privjax.nn_networks(6, num_outputs=2, private_widths=(5,))),
            "networks.private_widths",
        ),
    ],
)
def test_another_sweep_is_refused(finished, settings, named):
    before = (finished[1] / "results.json").read_bytes()
    with pytest.raises(ValueError, match=f"{named} was .* now ") as caught:
        small_sweep(workdir=finished[1], **settings)
    assert "give another workdir" in str(caught.value)
    assert (finished[1] / "results.json").read_bytes() == before


def test_any_callable_may_be_an_objectives_loss():
    def loss(z, p, **_):
        return (z**2).mean()

    def described(privacy_loss):
        return describe_objective(privjax.train.Objective("own", privacy_loss))["privacy_loss"]

    assert described(loss).endswith("<locals>.loss")
    assert described(functools.partial(loss, key=None)) == described(loss)
    assert described(operator.itemgetter(0)) == "operator.itemgetter"


def test_another_version_is_refused(copied):
    config = json.loads((copied / "config.json").read_text())
    config["versions"]["privjax"] = "0.0.1"
    write_json(copied / "config.json", config)
    with pytest.raises(ValueError, match=r"versions.privjax was \"0.0.1\""):
        small_sweep(workdir=copied)


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "letters").mkdir()
    with pytest.raises(ValueError, match="holds letters but no config.json"):
        small_sweep(workdir=tmp_path)
    with pytest.raises(ValueError, match="has a . in its path"):
        small_sweep(workdir=tmp_path / "run[1]")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="not a folder"):
        small_sweep(workdir=tmp_path / "file")


def test_a_second_process_is_refused(copied):
    code = "import sys; from small import small_sweep; small_sweep(workdir=sys.argv[1])"
    with exclusive(copied / ".lock-0"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(copied)], cwd=HERE, capture_output=True, text=True, timeout=300
        )
    assert done.returncode != 0
    assert "another process is at work" in done.stderr
    small_sweep(workdir=copied)


def test_damaged_results_are_told(copied):
    truncate(copied / "results.json")
    with pytest.raises(ValueError, match="cannot be read"):
        load_results(copied)
    small_sweep(workdir=copied)
    assert len(load_results(copied)["members"]) == 4
    write_json(copied / "results.json", {"schema": 99})
    with pytest.raises(ValueError, match="schema 99"):
        load_results(copied)
    with pytest.raises(FileNotFoundError, match="workdir of a sweep"):
        load_results(copied / "nowhere")


def test_an_audit_stays_with_its_member(copied):
    results = load_results(copied)
    results["members"][1]["audit"] = {"strongest": 0.5}
    write_json(copied / "results.json", results)
    small_sweep(workdir=copied)
    assert load_results(copied)["members"][1]["audit"] == {"strongest": 0.5}
    # Also while another member is being mended.
    ours = load_results(copied)
    write_results(copied, ours | {"complete": False, "members": ours["members"][:1]})
    assert load_results(copied)["members"] == ours["members"]
    write_results(copied, ours | {"complete": True, "members": ours["members"][:1]})
    assert load_results(copied)["members"] == ours["members"][:1]


def test_a_full_disk_leaves_the_last_good_state(tmp_path, undisturbed):
    """Files may grow to a kilobyte and no further: what a full disk looks like to a writer."""
    folder = tmp_path / "run"
    interrupted(folder, 3)
    names = sorted(path.name for path in (folder / "checkpoints").iterdir())

    code = "import sys; from small import small_sweep; small_sweep(workdir=sys.argv[1])"
    limited = ["sh", "-c", 'ulimit -f 2; exec "$@"', "sh", sys.executable, "-c", code, str(folder)]
    done = subprocess.run(limited, cwd=HERE, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert names == sorted(p.name for p in (folder / "checkpoints").iterdir() if "tmp" not in p.name)
    assert small_sweep(workdir=folder).members == undisturbed.members


def test_own_networks_are_passed_again(tmp_path):
    own = NETWORKS._replace(settings=None)
    result = small_sweep(networks=own, workdir=tmp_path / "run", seeds=[0], num_epochs=1)
    assert result.encoder(0)(make_small().x).shape == (120, 4)
    with pytest.raises(ValueError, match="pass them as networks="):
        load_encoder(tmp_path / "run", 0)
    assert load_encoder(tmp_path / "run", 0, networks=own)(make_small().x).shape == (120, 4)


def test_kill_at_any_moment(tmp_path):
    """Ten kills with no warning at random moments, then the numbers of a run that nobody disturbed."""
    folder = tmp_path / "killed"
    rng = random.Random(0)
    kills = 0
    cache = tmp_path / "cache"  # a start should not take longer than the time to the next kill
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache)}
    environment |= {
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    seen = set()
    for attempt in range(200):
        process = subprocess.Popen([sys.executable, "killed.py", str(folder)], cwd=HERE, env=environment)
        if kills < 10:
            # From its first sign of life in this attempt, so that every kill hits the work itself.
            before = set((folder / "checkpoints").glob("*")) if attempt else set()
            while process.poll() is None and set((folder / "checkpoints").glob("*")) <= before:
                time.sleep(0.005)
            time.sleep(rng.uniform(0.0, 0.5))
            if process.poll() is None:
                process.kill()
                kills += 1
        process.wait(timeout=600)
        seen.add(len(list((folder / "members").glob("*.json"))))
        if process.returncode == 0:
            if kills == 10:
                break
            shutil.rmtree(folder)  # a machine so fast that it was done before: once more from the start
    assert kills == 10
    undisturbed = small_sweep(checkpoint_every=1, num_epochs=30)
    assert load_results(folder)["members"] == undisturbed.members
    for point in range(4):
        x = make_small().x
        np.testing.assert_array_equal(load_encoder(folder, point)(x), undisturbed.encoder(point)(x))
    assert len(seen) > 1  # the kills were spread over the sweep


def test_settings_that_cannot_be_leave_the_folder_alone(tmp_path):
    for settings, error in (
        ({"private_rate": -1.0}, ValueError),
        ({"privte_rate": 1e-3}, TypeError),
        ({"privacy_weights": [{"a": 1.0}]}, TypeError),
        ({"batch_size": 10.5}, ValueError),
        ({"num_epochs": 1.5}, ValueError),
    ):
        (wrong,) = [name for name in settings]
        with pytest.raises(error, match="privacy_weight" if wrong == "privacy_weights" else wrong):
            small_sweep(workdir=tmp_path / "run", **settings)
        assert not (tmp_path / "run" / "config.json").exists()


def test_folders_of_before_within_utility_go_on():
    assert "within_utility" not in describe_objective(privjax.make_objective("mmd"))
    changed = describe_objective(privjax.make_objective("mmd", within_utility=True))
    assert changed["within_utility"] is True


def test_only_leftovers_of_ours_are_removed(copied):
    checkpoints = copied / "checkpoints"
    ours = [checkpoints / f"00000009-0.{end}" for end in ("orbax-checkpoint-tmp", "trash")]
    for path in (*ours, checkpoints / "backup"):
        path.mkdir()
        (path / "file").write_text("kept?")
    remove_leftovers(checkpoints)
    assert (checkpoints / "backup" / "file").exists()
    assert not any(path.exists() for path in ours)


@pytest.mark.parametrize("point", ['0"><b>', 1.5, None, True])
def test_points_are_numbers(copied, point):
    path = copied / "results.json"
    content = json.loads(path.read_text())
    content["members"][0]["point"] = point
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="not every member has its number"):
        privjax.load_results(copied)


def test_a_full_disk_is_what_it_is_called(tmp_path):
    logger = logging.getLogger("absl")
    level = logger.level

    def failed(message):
        with _plain_errors(tmp_path):
            assert logger.level == logging.CRITICAL
            raise ValueError(message)

    with pytest.raises(OSError, match="No space left") as caught:
        failed("RESOURCE_EXHAUSTED: writing: No space left on device")
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(ValueError, match="something else"):
        failed("something else")
    assert logger.level == level
