"""A workdir survives kills, damage and full disks, and refuses another sweep."""

import dataclasses
import json
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
from privjax.sweeping import store

SUPPORT = Path(__file__).parents[1] / "support"
RESUME = "import sys; from small import small_sweep; small_sweep(workdir=sys.argv[1])"


def interrupt(folder: Path, after: int, **settings) -> None:
    """Run a sweep that stops, as by Ctrl-C, after some checkpoints."""
    count, save = 0, store.save_checkpoint

    def stop(*args):
        nonlocal count
        save(*args)
        count += 1
        if count == after:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "save_checkpoint", stop)
        with pytest.raises(KeyboardInterrupt):
            small_sweep(workdir=folder, **settings)


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


@pytest.mark.slow
def test_a_workdir_changes_no_number(finished, uninterrupted):
    assert finished.members == uninterrupted.members
    assert load_results(finished.workdir) == finished.run
    assert finished.run.complete is True
    resumed = small_sweep(workdir=finished.workdir)
    assert resumed.members == uninterrupted.members
    # Finished members are not trained again, and their checkpoints are deleted.
    assert checkpoints(finished.workdir) == []


def test_the_files_of_a_workdir(finished):
    names = {path.relative_to(finished.workdir).as_posix() for path in finished.workdir.rglob("*")}
    members = {f"members/{number:04d}.npz" for number in range(4)}
    assert names == members | {"members", "checkpoints", "config.json", "results.json", ".lock-0"}


def test_the_history_of_a_member(finished):
    history = load_history(finished.workdir, 2)
    assert history.losses.utility.shape == (6,)
    assert history.ran.all()
    assert history.losses.utility[-1] == finished.members[2].losses.utility
    assert history.measures.effective_rank[-1] == finished.members[2].effective_rank


def test_encoders_are_loaded_as_they_were_trained(finished, uninterrupted):
    x = make_small().x
    for number in range(4):
        encoder = load_encoder(finished.workdir, np.int64(number))
        np.testing.assert_array_equal(encoder(x), uninterrupted.encoder(number)(x))
        np.testing.assert_array_equal(encoder(x), finished.encoder(number)(x))
        assert set(encoder.params) == {"Dense_0"}  # the private network alone
        assert encoder(x).shape == (120, 4)
    assert not np.array_equal(load_encoder(finished.workdir, 0)(x), load_encoder(finished.workdir, 1)(x))
    for number in (4, -1, 10**9):
        with pytest.raises(
            ValueError, match=f"no finished member {number}: the finished ones are 0, 1, 2, 3"
        ):
            load_encoder(finished.workdir, number)


def test_a_workdir_holds_no_pickle(finished):
    for path in finished.workdir.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            # A pickle begins with its protocol, and names classes of modules.
            assert not content.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")), path
            assert b"cnumpy" not in content
            assert b"c__builtin__" not in content


@pytest.mark.parametrize("after", [1, 4, 7])
def test_a_resumed_sweep_changes_no_bit(tmp_path, uninterrupted, after):
    interrupt(tmp_path / "run", after)
    assert (tmp_path / "run" / "config.json").exists()
    assert small_sweep(workdir=tmp_path / "run").members == uninterrupted.members


@pytest.mark.slow
def test_another_layout_resumes_a_sweep(tmp_path, uninterrupted):
    # States belong to members, not to chunks.
    interrupt(tmp_path / "run", 2, chunk_size=4)
    resumed = small_sweep(workdir=tmp_path / "run", chunk_size=1)
    for a, b in zip(resumed.members, uninterrupted.members, strict=True):
        assert a.losses.objective == pytest.approx(b.losses.objective, rel=1e-4)


def test_ctrl_c_says_how_to_resume(tmp_path, capsys, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "save_checkpoint", stop)
    with pytest.raises(KeyboardInterrupt):
        small_sweep(workdir=tmp_path / "run", progress="log")
    assert f"stopped; the same call resumes from {tmp_path / 'run'}." in capsys.readouterr().err


def truncate(path: Path) -> None:
    with path.open("r+b") as handle:
        handle.truncate(path.stat().st_size // 2)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(byte ^ 0x40 for byte in content[middle : middle + 64])
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [truncate, flip])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, uninterrupted, damage):
    folder = tmp_path / "run"
    interrupt(folder, 4)
    assert checkpoints(folder) == ["0000.before.npz", "0000.npz", "0001.before.npz", "0001.npz"]
    damage(folder / "checkpoints" / "0000.npz")
    with pytest.warns(UserWarning, match=r"0000.npz cannot be used .* falling back to the one before"):
        result = small_sweep(workdir=folder)
    assert result.members == uninterrupted.members


@pytest.mark.parametrize("damage", [truncate, flip, Path.unlink])
def test_damaged_checkpoints_fall_back_to_the_first_epoch(tmp_path, uninterrupted, damage):
    folder = tmp_path / "run"
    interrupt(folder, 4)
    for path in (folder / "checkpoints").iterdir():
        damage(path)
    if damage is Path.unlink:
        assert small_sweep(workdir=folder).members == uninterrupted.members
        return
    with pytest.warns(UserWarning, match="the first epoch of member"):
        assert small_sweep(workdir=folder).members == uninterrupted.members


class Crash(BaseException):
    """The end of a process, after which it changes no file."""


@pytest.mark.slow
def test_a_crash_at_any_rename_or_deletion_changes_no_bit(tmp_path, uninterrupted):
    settings = dict(privacy_weights=[2.0], seeds=[0])
    expected = dataclasses.replace(uninterrupted.members[1], member=0)
    for survived in range(100):
        folder, calls, crashed = tmp_path / str(survived), 0, False

        def until_the_crash(function, survived=survived):
            def call(*args, **options):
                nonlocal calls
                calls += 1
                if calls > survived:
                    raise Crash
                return function(*args, **options)

            return call

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "replace", until_the_crash(os.replace))
            patch.setattr(Path, "unlink", until_the_crash(Path.unlink))
            try:
                small_sweep(workdir=folder, **settings)
            except Crash:
                crashed = True
        assert small_sweep(workdir=folder, **settings).members == (expected,)
        assert load_results(folder).complete
        assert not [*folder.rglob("*.part"), *folder.glob("checkpoints/*")]
        if not crashed:
            break
    assert 10 < survived < 99


def test_a_member_under_the_name_of_another_is_damaged(copied, uninterrupted):
    shutil.copy(copied / "members" / "0001.npz", copied / "members" / "0003.npz")
    shutil.copy(copied / "members" / "0001.npz", copied / "members" / "0001 copy.npz")
    with pytest.raises(ValueError, match="member 3 of .* is damaged .*file of member 1.*: repeat the sweep"):
        load_encoder(copied, 3)
    with pytest.raises(ValueError, match="the finished ones are 0, 1, 2, 3"):
        load_encoder(copied, 4)
    with pytest.warns(UserWarning, match="Member 3 is trained again"):
        assert small_sweep(workdir=copied).members == uninterrupted.members


@pytest.mark.parametrize("damage", [truncate, flip])
def test_a_damaged_member_is_trained_again(copied, uninterrupted, damage):
    damage(copied / "members" / "0003.npz")
    with pytest.raises(ValueError, match="member 3 of .* is damaged .*: repeat the sweep"):
        load_encoder(copied, 3)
    with pytest.warns(UserWarning, match="Member 3 is trained again"):
        assert small_sweep(workdir=copied).members == uninterrupted.members
    load_encoder(copied, 3)


def test_a_missing_member_is_trained_again(copied, uninterrupted):
    (copied / "members" / "0002.npz").unlink()
    with pytest.raises(ValueError, match="the finished ones are 0, 1, 3"):
        load_history(copied, 2)
    assert small_sweep(workdir=copied).members == uninterrupted.members


def test_unfinished_results_keep_finished_members(copied, finished, monkeypatch):
    (copied / "members" / "0001.npz").unlink()
    written = []
    write = store.write_results
    monkeypatch.setattr(store, "write_results", lambda folder, run: written.append(run) or write(folder, run))
    small_sweep(workdir=copied)
    assert [(len(run.members), run.complete) for run in written] == [(4, False), (4, True)]
    assert load_results(copied).members == finished.members


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (dict(privacy_weights=[0.0, 3.0]), "privacy_weights"),
        (dict(privacy_weights=[2.0, 0.0]), "privacy_weights"),
        (dict(seeds=[0, 2]), "seeds"),
        (dict(objective="kdi"), "objective.name"),
        (dict(objective=privjax.make_objective("mmd", within_utility=True)), "objective.within_utility"),
        (dict(batch_size=20), "batch_size"),
        (dict(scaling="minmax"), "scaling"),
        (dict(private_rate=1e-2), "rates.private_rate"),
        (dict(num_epochs=7), "num_epochs"),
        (dict(data=lambda seed: make_small(seed, rows=130)), "content_hash"),
        (dict(data=lambda seed: make_small(0)), "content_hash of member 2"),
        (
            dict(networks=privjax.nn_networks(6, num_outputs=2, private_widths=(5,))),
            "networks.private_widths",
        ),
    ],
)
def test_another_sweep_is_refused(finished, settings, named):
    before = (finished.workdir / "results.json").read_bytes()
    with pytest.raises(ValueError, match=f"{named} was .* now ") as caught:
        small_sweep(workdir=finished.workdir, **settings)
    assert "give another workdir" in str(caught.value)
    assert (finished.workdir / "results.json").read_bytes() == before


def test_other_data_of_a_later_seed_are_refused_before_a_checkpoint_is_used(tmp_path):
    interrupt(tmp_path / "run", 5)
    assert "0002.npz" in checkpoints(tmp_path / "run")
    with pytest.raises(ValueError, match="content_hash of member 2 was .* give another workdir"):
        small_sweep(lambda seed: make_small(0), workdir=tmp_path / "run")


def test_another_version_is_refused(copied):
    config = json.loads((copied / "config.json").read_text())
    config["versions"]["privjax"] = "0.0.1"
    write_json(copied / "config.json", config)
    with pytest.raises(ValueError, match=r"versions.privjax was \"0.0.1\""):
        small_sweep(workdir=copied)


def test_a_workdir_of_an_older_schema_is_refused_in_one_sentence(copied):
    config = json.loads((copied / "config.json").read_text())
    write_json(copied / "config.json", config | {"schema": 1})
    write_json(copied / "results.json", {"schema": 1, "members": []})
    for call in (
        lambda: small_sweep(workdir=copied),
        lambda: load_results(copied),
        lambda: load_history(copied, 0),
        lambda: load_encoder(copied, 0),
    ):
        with pytest.raises(ValueError, match="has schema 1, .* reads schema 2") as caught:
            call()
        assert str(caught.value).endswith("or sweep again in another workdir.")


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "letters").mkdir()
    with pytest.raises(ValueError, match="holds letters but no config.json"):
        small_sweep(workdir=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="not a folder"):
        small_sweep(workdir=tmp_path / "file")


@pytest.mark.slow
def test_a_second_process_is_refused(copied):
    with exclusive(copied / ".lock-0"):
        command = [sys.executable, "-c", RESUME, str(copied)]
        done = subprocess.run(command, cwd=SUPPORT, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "another process is at work" in done.stderr
    small_sweep(workdir=copied)


def test_damaged_results_are_refused_and_repaired(copied):
    truncate(copied / "results.json")
    with pytest.raises(ValueError, match="cannot be read"):
        load_results(copied)
    small_sweep(workdir=copied)
    assert len(load_results(copied).members) == 4
    with pytest.raises(FileNotFoundError, match="workdir of a sweep"):
        load_results(copied / "nowhere")
    with pytest.raises(FileNotFoundError, match="workdir of a sweep"):
        load_encoder(copied / "nowhere", 0)


@pytest.mark.slow
def test_a_full_disk_keeps_the_last_good_state(tmp_path, uninterrupted):
    """Limit files to a kilobyte: a writer sees an error like that of a full disk."""
    folder = tmp_path / "run"
    interrupt(folder, 3)
    limited = ["sh", "-c", 'ulimit -f 2; exec "$@"', "sh", sys.executable, "-c", RESUME, str(folder)]
    done = subprocess.run(limited, cwd=SUPPORT, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("OSError: [Errno 27] File too large: ")
    assert str(folder) in last
    assert {name[:4] for name in checkpoints(folder)} == {"0000", "0001"}
    assert not [path for path in folder.rglob("*.part")]
    assert small_sweep(workdir=folder).members == uninterrupted.members


@pytest.mark.slow
def test_own_networks_are_an_argument_of_load_encoder(tmp_path):
    own = NETWORKS._replace(settings=None)
    result = small_sweep(networks=own, workdir=tmp_path / "run", seeds=[0], num_epochs=1)
    assert result.encoder(0)(make_small().x).shape == (120, 4)
    with pytest.raises(ValueError, match="pass them as networks="):
        load_encoder(tmp_path / "run", 0)
    assert load_encoder(tmp_path / "run", 0, networks=own)(make_small().x).shape == (120, 4)


@pytest.mark.slow
def test_ten_kills_at_random_moments_change_no_bit(tmp_path):
    folder = tmp_path / "killed"
    rng = random.Random(0)
    kills = 0
    cache = tmp_path / "cache"  # a start must not take longer than the time to the next kill
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache)}
    environment |= {
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    seen = set()

    def written() -> dict[str, int]:
        return {p.name: p.stat().st_mtime_ns for p in folder.glob("[cm]*/*.npz") if p.exists()}

    for _ in range(200):
        before = written()
        process = subprocess.Popen([sys.executable, "killed.py", str(folder)], cwd=SUPPORT, env=environment)
        if kills < 10:
            # From the first file of this attempt, so that every kill hits the work itself.
            while process.poll() is None and written() == before:
                time.sleep(0.005)
            time.sleep(rng.uniform(0.0, 0.5))
            if process.poll() is None:
                process.kill()
                kills += 1
        process.wait(timeout=600)
        seen.add(len(list((folder / "members").glob("*.npz"))))
        if process.returncode == 0:
            if kills == 10:
                break
            shutil.rmtree(folder)  # the machine was faster than the kills: start once more
    assert kills == 10
    expected = small_sweep(checkpoint_every=1, num_epochs=30)
    assert load_results(folder).members == expected.members
    assert not list(folder.rglob("*.part"))
    for number in range(4):
        x = make_small().x
        np.testing.assert_array_equal(load_encoder(folder, number)(x), expected.encoder(number)(x))
    assert len(seen) > 1  # the kills were spread over the sweep


def test_wrong_settings_leave_the_workdir_alone(tmp_path):
    for settings, error in (
        ({"private_rate": -1.0}, ValueError),
        ({"privte_rate": 1e-3}, TypeError),
        ({"privacy_weights": [{"a": 1.0}]}, TypeError),
        ({"batch_size": 10.5}, ValueError),
        ({"num_epochs": 1.5}, ValueError),
        ({"scaling": "robust"}, ValueError),
    ):
        (wrong,) = settings
        with pytest.raises(error, match="privacy_weight" if wrong == "privacy_weights" else wrong):
            small_sweep(workdir=tmp_path / "run", **settings)
        assert not (tmp_path / "run" / "config.json").exists()


def test_only_partial_files_of_the_sweep_are_removed(copied):
    ours = [copied / "members" / ".0001.npz.123.part", copied / "checkpoints" / ".0003.npz.9.part"]
    foreign = [copied / "members" / "notes.txt", copied / "checkpoints" / "0003.npz.backup"]
    for path in (*ours, *foreign):
        path.write_text("?")
    small_sweep(workdir=copied)
    assert not any(path.exists() for path in ours)
    assert all(path.exists() for path in foreign)


def test_a_path_with_brackets_is_a_workdir(tmp_path):
    folder = tmp_path / "run[1]"
    small_sweep(workdir=folder, privacy_weights=[0.0], seeds=[0], num_epochs=1)
    assert load_encoder(folder, 0).width == 4


def test_history_of_several_private_variables_keeps_their_names(tmp_path, finished):
    history, encoder = load_history(finished.workdir, 0), load_encoder(finished.workdir, 0)
    several = {"age": np.arange(3.0), "height/weight": np.zeros(3)}
    history = history._replace(
        losses=history.losses._replace(privacy=several), measures=history.measures._replace(probe=several)
    )
    losses = finished.members[0].losses._replace(privacy=dict.fromkeys(several, None))
    record = dataclasses.replace(finished.members[0], losses=losses)
    shutil.copy(finished.workdir / "config.json", tmp_path)
    store.save_member(tmp_path, record, history, encoder)
    loaded = load_history(tmp_path, 0)
    np.testing.assert_array_equal(loaded.losses.privacy["height/weight"], np.zeros(3))
    assert loaded.losses.privacy.keys() == several.keys()
