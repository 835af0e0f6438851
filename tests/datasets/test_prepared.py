"""Preparation that dies, races, or is damaged later: a half-made set never loads."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import privjax.datasets
from privjax.datasets import DataError, describe, load
from privjax.datasets.prepared import default_data_dir, is_prepared, prepared_arrays, prepared_folder
from privjax.datasets.sources import SOURCES

REPOSITORY = Path(__file__).resolve().parents[2]
YALEB = SOURCES["yaleb"]

# A child that loads yaleb, and dies at a named moment of its preparation.
# The package is named without running its __init__, which would import jax for nothing.
STUB = f"""
import sys, types
package = types.ModuleType("privjax")
package.__path__ = [{str(REPOSITORY / "privjax")!r}]
sys.modules["privjax"] = package
"""
CHILD = """
import os, signal, sys, pathlib, time
from privjax.datasets import faces, load, prepared
moment, data_dir, manual_dir, log = sys.argv[1:]
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
records = faces.yaleb_records
def counted(trees):
    with open(log, "a") as handle:
        handle.write("prepared\\n")
    for number, record in enumerate(records(trees)):
        if number == 1000 and moment == "records":
            die()
        if number == 500 and moment == "slow":
            time.sleep(0.5)
        yield record
faces.yaleb_records = counted
if moment == "gather":
    prepared._gather = die
if moment == "write":
    os.fsync = die
if moment == "between":
    replace = os.replace
    os.replace = lambda a, b: die() if str(b).endswith("arrays.json") else replace(a, b)
if moment == "publish":
    pathlib.Path.rename = die
print(load("yaleb", data_dir=data_dir, manual_dir=manual_dir).content_hash)
"""


def child(moment, data_dir, manual_dir, log):
    arguments = [moment, str(data_dir), str(manual_dir), str(log)]
    command = [sys.executable, "-c", STUB + CHILD, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def sound(shared_data, tmp_path_factory):
    """A prepared folder to copy and damage, and the hash of what is in it."""
    folder = tmp_path_factory.mktemp("sound")
    return folder, load("yaleb", data_dir=folder, manual_dir=shared_data).content_hash


@pytest.fixture
def damaged(sound, tmp_path):
    shutil.copytree(sound[0], tmp_path / "data")
    return tmp_path / "data", prepared_folder(YALEB, tmp_path / "data"), sound[1]


@pytest.mark.parametrize("moment", ["records", "gather", "write", "between", "publish"])
def test_a_killed_preparation_never_loads(moment, sound, shared_data, tmp_path):
    process = child(moment, tmp_path / "data", shared_data, tmp_path / "log")
    process.communicate(timeout=600)
    assert process.returncode == -9
    assert not is_prepared(YALEB, tmp_path / "data")
    assert not next(row for row in describe(data_dir=tmp_path / "data") if row.name == "yaleb")[5]
    # The lock died with its holder, and what it left is cleared away.
    again = load("yaleb", data_dir=tmp_path / "data", manual_dir=shared_data)
    assert again.content_hash == sound[1]
    assert not list((tmp_path / "data").glob(".incomplete*"))


def test_processes_that_prepare_at_once(sound, shared_data, tmp_path):
    processes = [child("slow", tmp_path / "data", shared_data, tmp_path / "log") for _ in range(3)]
    hashes = [process.communicate(timeout=600)[0].strip() for process in processes]
    assert hashes == [sound[1]] * 3
    assert (tmp_path / "log").read_text() == "prepared\n"  # one did the work, two waited


def test_damaged_arrays_are_made_again_from_the_records(damaged):
    data_dir, folder, expected = damaged
    arrays = folder / "arrays.npz"
    for place in (0.2, 0.9):
        data = bytearray(arrays.read_bytes())
        data[int(place * len(data))] ^= 1
        arrays.write_bytes(data)
        assert load("yaleb", data_dir=data_dir).content_hash == expected
    arrays.write_bytes(arrays.read_bytes()[:1000])
    assert load("yaleb", data_dir=data_dir).content_hash == expected
    (folder / "arrays.json").write_text("{")
    assert load("yaleb", data_dir=data_dir).content_hash == expected
    (folder / "arrays.json").unlink()
    assert load("yaleb", data_dir=data_dir).content_hash == expected


@pytest.mark.parametrize("damage", ["cut", "gone", "flipped", "info"])
def test_damaged_records_are_refused(damaged, damage, shared_data):
    data_dir, folder, expected = damaged
    (folder / "arrays.npz").unlink()
    (records,) = folder.glob("*.array_record*")
    if damage == "cut":
        records.write_bytes(records.read_bytes()[: records.stat().st_size // 2])
    elif damage == "gone":
        records.unlink()
    elif damage == "flipped":
        data = bytearray(records.read_bytes())
        data[len(data) // 2] ^= 0xFF
        records.write_bytes(data)
    else:
        (folder / "dataset_info.json").write_text("{")
    with pytest.raises(DataError, match=r"cannot be read: call load\('yaleb', force=True\)"):
        load("yaleb", data_dir=data_dir)
    again = load("yaleb", data_dir=data_dir, manual_dir=shared_data, force=True)
    assert again.content_hash == expected


def test_another_source_file_is_not_answered_with_the_old_arrays(damaged, shared_data, tmp_path):
    data_dir, folder, expected = damaged
    other = tmp_path / "manual"
    other.mkdir()
    shutil.copy(shared_data / "YaleB_32x32.zip", other)
    assert load("yaleb", data_dir=data_dir, manual_dir=other).content_hash == expected
    with (other / "YaleB_32x32.zip").open("ab") as handle:
        handle.write(b"\0")
    with pytest.raises(DataError, match=r"prepared from another YaleB_32x32\.zip .* force=True"):
        load("yaleb", data_dir=data_dir, manual_dir=other)


def test_another_folder_or_a_folder_for_a_file_is_noticed(tmp_path):
    source, line = SOURCES["mhealth"], " ".join(["0.5"] * 23)
    logs = tmp_path / "manual" / "MHEALTHDATASET"
    logs.mkdir(parents=True)
    (logs / "mHealth_subject1.log").write_text(f"{line} 1\n" * 3)
    options = {"data_dir": tmp_path / "data", "manual_dir": tmp_path / "manual"}
    assert len(prepared_arrays(source, **options)[0]["x"]) == 3
    assert len(prepared_arrays(source, **options)[0]["x"]) == 3
    (logs / "mHealth_subject2.log").write_text(f"{line} 2\n" * 4)
    with pytest.raises(DataError, match="prepared from another MHEALTHDATASET than .*: pass force"):
        prepared_arrays(source, **options)
    assert len(prepared_arrays(source, force=True, **options)[0]["x"]) == 7
    shutil.make_archive(str(tmp_path / "other" / "MHEALTHDATASET"), "zip", logs)
    with pytest.raises(DataError, match=r"another MHEALTHDATASET than .*MHEALTHDATASET\.zip"):
        prepared_arrays(source, data_dir=tmp_path / "data", manual_dir=tmp_path / "other")


def test_arrays_that_change_while_they_are_read_are_not_mixed(damaged, monkeypatch):
    # Between the hash and the reading, another process puts a new set in place.
    folder = damaged[1]
    newer = damaged[0] / "newer.npz"
    np.savez(newer, x=np.zeros(3))
    digest = hashlib.file_digest

    def swap(handle, name):
        found = digest(handle, name)
        if newer.exists():
            os.replace(newer, folder / "arrays.npz")
        return found

    monkeypatch.setattr(hashlib, "file_digest", swap)
    assert load("yaleb", data_dir=damaged[0]).content_hash == damaged[2]
    assert not newer.exists()


def test_a_failed_second_preparation_keeps_the_first(damaged, tmp_path):
    data_dir, folder, expected = damaged
    (tmp_path / "manual").mkdir()
    (tmp_path / "manual" / "YaleB_32x32.zip").write_bytes(b"PK not a zip")
    with pytest.raises(DataError, match=r"YaleB_32x32\.zip is truncated or corrupt"):
        load("yaleb", data_dir=data_dir, manual_dir=tmp_path / "manual", force=True)
    assert load("yaleb", data_dir=data_dir).content_hash == expected


def test_the_default_folder_is_set_by_the_environment(monkeypatch, damaged, tmp_path):
    monkeypatch.setenv("PRIVJAX_DATA", str(damaged[0]))
    assert default_data_dir() == damaged[0]
    assert load("yaleb").content_hash == damaged[2]
    assert {row.name for row in describe() if row.prepared} >= {"yaleb", "digits"}
    monkeypatch.delenv("PRIVJAX_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_data_dir() == tmp_path / ".cache" / "privjax"


def test_loading_what_is_prepared_needs_no_tfds(damaged):
    code = (
        "import sys\n"
        "sys.modules['tensorflow_datasets'] = None\n"
        "from privjax.datasets import load\n"
        f"print(load('yaleb', data_dir={str(damaged[0])!r}).content_hash)\n"
    )
    command = [sys.executable, "-c", STUB + code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == damaged[2]


def test_preparing_without_the_extra_names_it(monkeypatch, shared_data, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    monkeypatch.delitem(sys.modules, "privjax.datasets.builders", raising=False)
    monkeypatch.delattr(privjax.datasets, "builders", raising=False)
    with pytest.raises(ImportError, match=r"^tensorflow_datasets is not installed: .*\[data\]"):
        load("yaleb", data_dir=tmp_path, manual_dir=shared_data)
    assert not is_prepared(YALEB, tmp_path)


def test_the_records_hold_what_the_arrays_hold(sound):
    from privjax.datasets import builders

    builder = builders.Yaleb(data_dir=str(sound[0]), file_format="array_record")
    source = builder.as_data_source(builders.SPLIT)
    with np.load(prepared_folder(YALEB, sound[0]) / "arrays.npz") as arrays:
        assert len(source) == len(arrays["x"]) == 2414
        for row in (0, 1000, 2413):
            np.testing.assert_array_equal(source[row]["x"], arrays["x"][row])
            assert source[row]["person"] == arrays["person"][row]


def test_a_kill_between_two_renames_keeps_what_was_prepared(damaged):
    data_dir, folder, expected = damaged
    aside = data_dir / ".incomplete.yaleb"
    aside.mkdir()
    folder.rename(aside / "old")
    assert load("yaleb", data_dir=data_dir).content_hash == expected  # without a source to prepare it from
    assert folder.exists()
