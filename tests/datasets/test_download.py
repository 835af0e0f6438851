"""The way through the network, on a server of our own: checksums, and what a wrong one does."""

import dataclasses
import functools
import http.server
import threading
import zipfile

import pytest

from privjax.datasets import DataError, builders, load
from privjax.datasets.fingerprints import file_sha256
from privjax.datasets.prepared import is_prepared
from privjax.datasets.sources import SOURCES


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def site(tmp_path, monkeypatch):
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
def published(site, monkeypatch):
    """Puts a set on our server: the same checks, another address."""

    def publish(name, file, **changes):
        source = dataclasses.replace(SOURCES[name], url=f"{site[1]}/{file}", **changes)
        builder = builders.BUILDERS[name]
        monkeypatch.setattr(builder, "SOURCE", source)
        monkeypatch.setattr(builder, "url_infos", builders._checksums(source))
        return source

    return publish


@pytest.fixture
def yaleb_on_site(site, shared_data):
    with zipfile.ZipFile(shared_data / "YaleB_32x32.zip") as file:
        file.extract("YaleB_32x32.mat", site[0])
    return site[0] / "YaleB_32x32.mat"


def test_a_download_with_the_right_checksum(yaleb_on_site, published, prepared, tmp_path):
    published("yaleb", yaleb_on_site.name)  # length and SHA-256 are those of the real address
    data = load("yaleb", data_dir=tmp_path / "data")
    assert len(data) == 2414
    assert data.provenance["origin"].startswith("http://127.0.0.1")
    assert data.provenance["files"][0]["sha256"] == SOURCES["yaleb"].sha256


def test_a_wrong_checksum_is_refused(yaleb_on_site, published, tmp_path):
    published("yaleb", yaleb_on_site.name)
    good = yaleb_on_site.read_bytes()
    yaleb_on_site.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(DataError, match=r"YaleB_32x32\.mat has the wrong checksum"):
        load("yaleb", data_dir=tmp_path / "data")
    assert not is_prepared(SOURCES["yaleb"], tmp_path / "data")
    # Once the site is well again, so is the loader.
    yaleb_on_site.write_bytes(good)
    assert len(load("yaleb", data_dir=tmp_path / "data")) == 2414


def test_a_truncated_download_is_refused(yaleb_on_site, published, tmp_path):
    published("yaleb", yaleb_on_site.name)
    yaleb_on_site.write_bytes(yaleb_on_site.read_bytes()[:100_000])
    with pytest.raises(DataError, match="wrong checksum"):
        load("yaleb", data_dir=tmp_path / "data")


def test_a_download_damaged_on_our_own_disk_is_refused(yaleb_on_site, published, tmp_path):
    published("yaleb", yaleb_on_site.name)
    load("yaleb", data_dir=tmp_path / "data")
    (kept,) = [p for p in (tmp_path / "data" / "downloads").rglob("*.mat") if p.is_file()]
    kept.write_bytes(kept.read_bytes()[:-1])
    with pytest.raises(DataError, match="has the wrong checksum .*: load it again"):
        load("yaleb", data_dir=tmp_path / "data", force=True)
    assert not kept.exists()
    assert len(load("yaleb", data_dir=tmp_path / "data", force=True)) == 2414


def test_a_missing_page_says_what_to_do(site, published, tmp_path):
    published("yaleb", "gone.mat")
    with pytest.raises(DataError, match=r"gone\.mat cannot be downloaded \(.*404.*manual_dir"):
        load("yaleb", data_dir=tmp_path / "data")


def test_content_is_checked_where_the_file_is_repacked(site, published, shared_data, tmp_path):
    # The real tree in a wrapper of our own packing, as its site does now and then.
    wrapper = site[0] / "cmu+face+images.zip"
    inner = tmp_path / "faces.tar.gz"
    repack(shared_data / "cmu_faces.tar.xz", inner)
    with zipfile.ZipFile(wrapper, "w") as file:
        file.write(inner, "faces.tar.gz")
    published("cmu_faces", wrapper.name)
    data = load("cmu_faces", data_dir=tmp_path / "data")
    assert len(data) == 624
    assert data.provenance["files"][0]["sha256"] == file_sha256(wrapper)
    repack(shared_data / "cmu_faces.tar.xz", inner, leave_out="an2i_left_angry_open_4.pgm")
    with zipfile.ZipFile(wrapper, "w") as file:
        file.write(inner, "faces.tar.gz")
    with pytest.raises(DataError, match="the content of .* has the wrong checksum"):
        load("cmu_faces", data_dir=tmp_path / "other")


def repack(source, target, leave_out=""):
    import tarfile

    with tarfile.open(source) as old, tarfile.open(target, "w:gz", compresslevel=0) as new:
        for member in old:
            if member.isreg() and not (leave_out and member.name.endswith(leave_out)):
                new.addfile(member, old.extractfile(member))


def test_every_published_address_has_a_checksum():
    for source in SOURCES.values():
        if source.url:
            assert source.sha256 or source.tree_sha256
            assert len(source.sha256 or source.tree_sha256 or "") == 64
            assert source.url in source.instructions
        else:
            assert "manual_dir" in source.instructions
            assert source.homepage in source.instructions
