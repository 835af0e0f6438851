"""Downloads and preparation: wrong files are refused, and a set is there as a whole or not at all."""

import dataclasses
import functools
import hashlib
import http.server
import io
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import published_copies
import pytest

from privjax.datasets import DataError, describe, load
from privjax.datasets.published import fetch, prepared_folder
from privjax.datasets.registry import PUBLISHED

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGES = 190  # five of each of 38 people
YALEB = published_copies.yaleb(IMAGES)["YaleB_32x32.mat"]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A server of a folder."""
    folder = tmp_path / "site"
    folder.mkdir()
    handler = functools.partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def at_site(site, monkeypatch):
    """Publishes a small copy of a set on the server, with the hash of that copy."""

    def publish(name, file, content, **pins):
        (site[0] / file).write_bytes(content)
        pins = pins or {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        moved = dataclasses.replace(PUBLISHED[name], url=f"{site[1]}/{file}", **pins)
        monkeypatch.setitem(PUBLISHED, name, moved)
        return site[0] / file

    return publish


@pytest.fixture
def yaleb_on_site(at_site):
    return at_site("yaleb", "YaleB_32x32.mat", YALEB)


def test_a_download_with_the_pinned_hash_is_used_and_prints_nothing(yaleb_on_site, tmp_path, capfd):
    data = load("yaleb", data_dir=tmp_path / "data")
    assert len(data) == IMAGES
    assert data.origin.source == PUBLISHED["yaleb"].url
    assert data.origin.verified
    assert data.origin.files[0].sha256 == hashlib.sha256(YALEB).hexdigest()
    assert capfd.readouterr() == ("", "")
    yaleb_on_site.unlink()
    assert load("yaleb", data_dir=tmp_path / "data").content_hash == data.content_hash  # offline


def test_a_wrong_or_truncated_download_is_refused(yaleb_on_site, tmp_path):
    for wrong in (YALEB[:-1] + bytes([YALEB[-1] ^ 1]), YALEB[:1000]):
        yaleb_on_site.write_bytes(wrong)
        with pytest.raises(DataError, match=r"YaleB_32x32\.mat has the wrong checksum"):
            load("yaleb", data_dir=tmp_path / "data")
    assert not prepared_folder("yaleb", tmp_path / "data").exists()
    yaleb_on_site.write_bytes(YALEB)
    assert len(load("yaleb", data_dir=tmp_path / "data")) == IMAGES


def test_a_missing_page_names_the_manual_way(yaleb_on_site, tmp_path):
    yaleb_on_site.unlink()
    with pytest.raises(DataError, match=r"YaleB_32x32\.mat cannot be downloaded \(.*404.*manual_dir"):
        load("yaleb", data_dir=tmp_path / "data")


def test_content_is_pinned_where_the_host_repacks_the_file(at_site, tmp_path):
    files = published_copies.to_bytes(published_copies.cmu_faces())
    digests = {name.rpartition("/")[2]: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    lines = [f"{name}\0{digest}\n" for name, digest in sorted(digests.items()) if name.endswith(".pgm")]
    pin = {"content_sha256": hashlib.sha256("".join(lines).encode()).hexdigest()}
    for level in (0, 9):
        at_site("cmu_faces", "cmu+face+images.zip", wrap(files, level), **pin)
        data = load("cmu_faces", data_dir=tmp_path / str(level))
        assert len(data) == 16
        assert data.origin.verified
    files.popitem()
    at_site("cmu_faces", "cmu+face+images.zip", wrap(files, 0), **pin)
    with pytest.raises(DataError, match="is not the known edition: see https://archive"):
        load("cmu_faces", data_dir=tmp_path / "other")


def wrap(files, level):
    """Pack files into a tar in a zip."""
    inner, outer = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz", compresslevel=level) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("faces.tar.gz", inner.getvalue())
    return outer.getvalue()


def test_every_published_address_is_pinned():
    for published in PUBLISHED.values():
        if published.url:
            assert len(published.sha256 or published.content_sha256) == 64
            assert published.url in published.instructions
        assert "manual_dir" in published.instructions
        assert published.homepage in published.instructions


# A child that prepares yaleb and dies at a named moment. A stub keeps privjax from importing jax.
CHILD = f"""
import os, signal, sys, types, time
from pathlib import Path
package = types.ModuleType("privjax")
package.__path__ = [{str(REPOSITORY / "privjax")!r}]
sys.modules["privjax"] = package
from privjax.datasets import load, published
moment, data_dir, manual_dir, log, force = sys.argv[1:]
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
read, rename, renames = published._read, Path.rename, []
def logged(*arguments):
    with open(log, "a") as handle:
        handle.write("prepared\\n")
    time.sleep(0.5 * (moment == "slow"))
    rows = read(*arguments)
    return die() if moment == "read" else rows
def counted(path, target):
    renames.append(target)
    return die() if moment == f"rename {{len(renames)}}" else rename(path, target)
published._read, Path.rename = logged, counted
if moment == "load":
    published._load = die
if moment == "store":
    import tensorflow_datasets as tfds
    tfds.core.SequentialWriter.close_all = die
data = load("yaleb", data_dir=data_dir, manual_dir=manual_dir, force=force == "force")
print(data.content_hash)
"""


def child(moment, data_dir, manual_dir, log, force="no"):
    arguments = [moment, str(data_dir), str(manual_dir), str(log), force]
    command = [sys.executable, "-c", CHILD, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def manual_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manual")
    with zipfile.ZipFile(folder / "YaleB_32x32.zip", "w") as archive:
        archive.writestr("YaleB_32x32.mat", YALEB)
    return folder


@pytest.fixture(scope="module")
def sound(manual_dir, tmp_path_factory):
    """A prepared set, and the hash of its content."""
    folder = tmp_path_factory.mktemp("sound")
    return folder, load("yaleb", data_dir=folder, manual_dir=manual_dir).content_hash


@pytest.fixture
def copied(sound, tmp_path):
    shutil.copytree(sound[0], tmp_path / "data")
    return tmp_path / "data", prepared_folder("yaleb", tmp_path / "data"), sound[1]


@pytest.mark.parametrize("moment", ["read", "store", "rename 1"])
def test_a_killed_preparation_never_loads(moment, sound, manual_dir, tmp_path):
    process = child(moment, tmp_path / "data", manual_dir, tmp_path / "log")
    process.communicate(timeout=600)
    assert process.returncode == -9
    assert not prepared_folder("yaleb", tmp_path / "data").exists()
    assert not next(row for row in describe(data_dir=tmp_path / "data") if row.name == "yaleb").prepared
    # The lock ended with its process, and the next preparation clears the rest away.
    data = load("yaleb", data_dir=tmp_path / "data", manual_dir=manual_dir)
    assert data.content_hash == sound[1]
    assert [p.name for p in (tmp_path / "data" / "yaleb").iterdir()] == ["2.0.0"]


@pytest.mark.parametrize("moment", ["read", "store", "rename 1", "rename 2", "load"])
def test_a_killed_second_preparation_keeps_the_first(moment, copied, manual_dir, tmp_path):
    process = child(moment, copied[0], manual_dir, tmp_path / "log", "force")
    process.communicate(timeout=600)
    assert process.returncode == -9
    assert load("yaleb", data_dir=copied[0]).content_hash == copied[2]  # without its source files
    assert not list(copied[1].parent.glob(".old"))


def test_a_failed_second_preparation_keeps_the_first(copied, tmp_path):
    (tmp_path / "manual").mkdir()
    (tmp_path / "manual" / "YaleB_32x32.zip").write_bytes(b"PK, not a zip")
    with pytest.raises(DataError, match=r"YaleB_32x32\.zip is truncated or corrupt"):
        load("yaleb", data_dir=copied[0], manual_dir=tmp_path / "manual", force=True)
    assert load("yaleb", data_dir=copied[0]).content_hash == copied[2]


def test_of_several_processes_one_prepares_and_the_others_wait(sound, manual_dir, tmp_path):
    processes = [child("slow", tmp_path / "data", manual_dir, tmp_path / "log") for _ in range(3)]
    hashes = [process.communicate(timeout=600)[0].strip() for process in processes]
    assert hashes == [sound[1]] * 3
    assert (tmp_path / "log").read_text() == "prepared\n"


@pytest.mark.parametrize("damage", ["cut", "gone", "info"])
def test_a_damaged_set_is_refused_until_it_is_prepared_again(copied, damage, manual_dir):
    data_dir, folder, expected = copied
    (records,) = folder.glob("*.array_record*")
    if damage == "cut":
        records.write_bytes(records.read_bytes()[: records.stat().st_size // 2])
    elif damage == "gone":
        records.unlink()
    else:
        (folder / "dataset_info.json").write_text("{")
    with pytest.raises(DataError, match=r"cannot be read \(.*: call load\('yaleb', force=True\)"):
        load("yaleb", data_dir=data_dir)
    data = load("yaleb", data_dir=data_dir, manual_dir=manual_dir, force=True)
    assert data.content_hash == expected


def test_a_flipped_byte_in_a_set_never_changes_its_rows(copied):
    data_dir, folder, expected = copied
    (records,) = folder.glob("*.array_record*")
    good = records.read_bytes()
    refused, used = 0, [place for place, value in enumerate(good) if value]  # the rest is padding
    for place in used[:: len(used) // 60]:
        records.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        try:
            assert load("yaleb", data_dir=data_dir).content_hash == expected
        except DataError:
            refused += 1
    assert refused > 30


def test_another_source_file_needs_another_preparation(copied, manual_dir, tmp_path):
    data_dir, _, expected = copied
    other = tmp_path / "manual"
    other.mkdir()
    shutil.copy(manual_dir / "YaleB_32x32.zip", other)
    assert load("yaleb", data_dir=data_dir, manual_dir=other).content_hash == expected
    with (other / "YaleB_32x32.zip").open("ab") as handle:
        handle.write(b"\0")
    with pytest.raises(DataError, match=r"prepared from another YaleB_32x32\.zip .* force=True"):
        load("yaleb", data_dir=data_dir, manual_dir=other)


def test_another_source_folder_needs_another_preparation(tmp_path):
    published, line = PUBLISHED["mhealth"], " ".join(["0.5"] * 23)
    logs = tmp_path / "manual" / "MHEALTHDATASET"
    logs.mkdir(parents=True)
    (logs / "mHealth_subject1.log").write_text(f"{line} 1\n" * 3)
    options = {"data_dir": tmp_path / "data", "manual_dir": tmp_path / "manual"}
    for _ in range(2):
        assert len(fetch(published, **options).arrays["x"]) == 3
    (logs / "mHealth_subject2.log").write_text(f"{line} 2\n" * 4)
    with pytest.raises(DataError, match="prepared from another MHEALTHDATASET than .*: pass force"):
        fetch(published, **options)
    assert len(fetch(published, force=True, **options).arrays["x"]) == 7
    shutil.make_archive(str(tmp_path / "other" / "MHEALTHDATASET"), "zip", logs)
    with pytest.raises(DataError, match=r"another MHEALTHDATASET than .*MHEALTHDATASET\.zip"):
        fetch(published, data_dir=tmp_path / "data", manual_dir=tmp_path / "other")


def test_missing_files_are_named_with_the_way_to_get_them(tmp_path):
    (tmp_path / "meta.txt").write_text("one@1.jpg 0\n")
    with pytest.raises(DataError, match="has no MeGlass_120x120.zip or .*github.com/cleardusk"):
        load("meglass", data_dir=tmp_path / "data", manual_dir=tmp_path)
    with pytest.raises(DataError, match="meglass cannot be downloaded: Accept the terms"):
        load("meglass", data_dir=tmp_path / "data")
    with pytest.raises(DataError, match="manual_dir .* is not a folder"):
        load("meglass", data_dir=tmp_path / "data", manual_dir=tmp_path / "nowhere")


def test_the_default_folder_is_set_by_the_environment(monkeypatch, copied, tmp_path):
    monkeypatch.setenv("PRIVJAX_DATA", str(copied[0]))
    assert load("yaleb").content_hash == copied[2]
    assert {row.name for row in describe() if row.prepared} >= {"yaleb", "digits"}
    monkeypatch.delenv("PRIVJAX_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    shutil.copytree(copied[0], tmp_path / ".cache" / "privjax")
    assert load("yaleb").content_hash == copied[2]


def test_a_missing_library_names_its_extra(monkeypatch, manual_dir, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ImportError, match=r"^tensorflow_datasets is not installed: .*\[data\]"):
        load("yaleb", data_dir=tmp_path, manual_dir=manual_dir)
    assert not prepared_folder("yaleb", tmp_path).exists()


def test_tfds_reads_a_prepared_set(sound):
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(str(prepared_folder("yaleb", sound[0])))
    assert builder.info.citation.startswith("Georghiades")
    assert builder.info.redistribution_info.license == PUBLISHED["yaleb"].terms
    records = builder.as_data_source("rows")
    assert sum(len(record["x"]) for record in records) == IMAGES
    assert records[0]["x"].shape == (IMAGES, 32, 32, 1)
    assert "tensorflow" not in sys.modules
