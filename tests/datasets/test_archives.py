"""Hostile and broken archives: every one is refused by name, and nothing is written."""

import functools
import io
import random
import stat
import tarfile
import zipfile

import pytest

from privjax.datasets import DataError
from privjax.datasets.archives import open_tree
from privjax.datasets.fingerprints import tree_sha256

FILES = {"set/a.txt": b"one\n" * 50, "set/b/c.txt": bytes(range(256)) * 20}


def write_zip(path, files=FILES, **options):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **options) as file:
        for name, data in files.items():
            file.writestr(name, data)
    return path


def write_tar(path, files=FILES, mode="w:xz"):
    with tarfile.open(path, mode) as file:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return path


def write_folder(path, files=FILES):
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


WRITERS = {
    "a.zip": write_zip,
    "a.tar.xz": write_tar,
    "a.tar.gz": functools.partial(write_tar, mode="w:gz"),
    "a.tar.bz2": functools.partial(write_tar, mode="w:bz2"),
    "a.tar": functools.partial(write_tar, mode="w"),
    "folder": write_folder,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_container_reads_alike(tmp_path, name):
    tree = open_tree(WRITERS[name](tmp_path / name))
    assert tree.names() == ["set/a.txt", "set/b/c.txt"]
    assert {n: tree.read(n) for n in tree.names()} == FILES
    assert tree.find("b/c.txt") == "set/b/c.txt"
    assert str(tmp_path / name) in tree.label("set/a.txt")
    digest = tree_sha256(tree, tree.names())
    assert digest == tree_sha256(open_tree(write_zip(tmp_path / "other.zip")), FILES)
    changed = {**FILES, "set/a.txt": b"two\n"}
    assert digest != tree_sha256(open_tree(write_zip(tmp_path / "c.zip", changed)), changed)


def test_missing_and_double_files_are_named(tmp_path):
    tree = open_tree(write_zip(tmp_path / "a.zip", {"x/a.txt": b"", "y/a.txt": b""}))
    with pytest.raises(DataError, match=r"a\.zip has no file train/X_train\.txt"):
        tree.find("train/X_train.txt")
    with pytest.raises(DataError, match=r"2 files a\.txt"):
        tree.find("a.txt")
    with pytest.raises(DataError, match="does not exist"):
        open_tree(tmp_path / "nothing.zip")


@pytest.mark.parametrize("writer", [write_zip, write_tar])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
def test_a_truncated_archive(tmp_path, writer, keep):
    path = writer(tmp_path / ("a.zip" if writer is write_zip else "a.tar.xz"))
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(DataError, match=f"{path.name} is truncated or corrupt"):
        open_tree(path)


def test_a_plain_tar_cut_between_two_members(tmp_path):
    path = write_tar(tmp_path / "a.tar", mode="w")
    path.write_bytes(path.read_bytes()[:1024])  # the first member, header and content, is whole
    with pytest.raises(DataError, match="truncated or corrupt"):
        open_tree(path)


@pytest.mark.parametrize("writer", [write_zip, write_tar])
def test_a_flipped_byte_never_changes_content(tmp_path, writer):
    path = writer(tmp_path / ("a.zip" if writer is write_zip else "a.tar.xz"))
    good = path.read_bytes()
    refused = 0
    for place in range(len(good)):
        data = bytearray(good)
        data[place] ^= 0xFF
        path.write_bytes(data)
        try:
            tree = open_tree(path)
            read = [tree.read(name) for name in tree.names()]
        except DataError:
            refused += 1
        else:
            # A zip's list may lose or rename a member; what it gives under a name is sound.
            assert all(content in FILES.values() for content in read)
    assert refused > len(good) // 2


@pytest.mark.parametrize("writer", [write_zip, write_tar])
@pytest.mark.parametrize(
    "name", ["../evil.txt", "set/../../evil.txt", "/etc/evil.txt", "..\\evil.txt", "C:\\evil.txt"]
)
def test_a_member_that_points_outside(tmp_path, writer, name):
    inner = tmp_path / "inner"
    inner.mkdir()
    path = writer(inner / ("a.zip" if writer is write_zip else "a.tar.xz"), {name: b"x"})
    with pytest.raises(DataError, match="points outside: it is refused"):
        open_tree(path)
    assert [p.name for p in tmp_path.rglob("*")] == ["inner", path.name]


def test_links_are_refused(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as file:
        info = tarfile.TarInfo("set/link")
        info.type = tarfile.SYMTYPE
        info.linkname = "/etc/passwd"
        file.addfile(info)
    with pytest.raises(DataError, match="set/link, which is not a plain file"):
        open_tree(path)
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as file:
        info = zipfile.ZipInfo("set/link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match="has the link set/link"):
        open_tree(path)
    folder = write_folder(tmp_path / "folder")
    (folder / "set" / "link.txt").symlink_to("/etc/passwd")
    assert open_tree(folder).names() == list(FILES)


@pytest.mark.parametrize("writer", [write_zip, write_tar])
def test_a_bomb_is_refused_and_a_dense_archive_is_not(tmp_path, writer):
    ending = ".zip" if writer is write_zip else ".tar.xz"
    bomb = writer(tmp_path / f"bomb{ending}", {"zeros": bytes(12 << 20)})
    assert bomb.stat().st_size * 100 < 12 << 20
    with pytest.raises(DataError, match="over 100 times its size: refused"):
        open_tree(bomb)
    text = b"".join(b"%d\n" % (i * i) for i in range(100_000))
    dense = writer(tmp_path / f"dense{ending}", {"numbers.txt": text})
    assert open_tree(dense).read("numbers.txt") == text


def test_a_bomb_inside_a_wrapper(tmp_path):
    bomb = write_zip(tmp_path / "bomb.zip", {"zeros": bytes(12 << 20)}).read_bytes()
    wrapper = write_zip(tmp_path / "outer.zip", {"inner.zip": bomb})
    with pytest.raises(DataError, match=r"outer\.zip:inner\.zip unpacks to"):
        open_tree(wrapper, nested=("inner.zip",))


def test_a_wrapped_archive_is_opened(tmp_path):
    inner = write_zip(tmp_path / "inner.zip").read_bytes()
    wrapper = write_zip(tmp_path / "outer.zip", {"names": b"", "sub/inner.zip": inner})
    tree = open_tree(wrapper, nested=("inner.zip",))
    assert tree.names() == list(FILES)
    assert "outer.zip:sub/inner.zip:set/a.txt" in tree.label("set/a.txt")


def test_a_file_that_is_no_archive(tmp_path):
    path = tmp_path / "a.zip"
    path.write_bytes(b"<html>404</html>")
    with pytest.raises(DataError, match=r"a\.zip is truncated or corrupt"):
        open_tree(path)


def test_a_member_larger_than_it_says_is_not_unpacked(tmp_path):
    import tracemalloc

    path = write_zip(tmp_path / "a.zip", {"zeros": bytes(64 << 20)})
    data = bytearray(path.read_bytes())
    for place in (data.index(b"PK\1\2") + 24, 22):  # the list at the end, and the member's own head
        data[place : place + 4] = (1000).to_bytes(4, "little")
    path.write_bytes(data)
    tree = open_tree(path)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"a\.zip:zeros is truncated or corrupt"):
        tree.read("zeros")
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_other_ways_of_compression_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_BZIP2) as file:
        file.writestr("a.txt", b"a" * 100)
    with pytest.raises(DataError, match=r"a\.txt is compressed in a way that is refused"):
        open_tree(tmp_path / "a.zip")


def test_a_sparse_file_in_a_tar_is_refused(tmp_path):
    head = bytearray(tarfile.TarInfo("holes.txt").tobuf(tarfile.GNU_FORMAT))
    head[156:157] = tarfile.GNUTYPE_SPARSE
    head[386:410] = b"%011o\0" % 0 * 2
    head[483:495] = b"%011o\0" % (8 << 20)  # the size with its holes
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    (tmp_path / "a.tar").write_bytes(bytes(head) + bytes(10240 - 512))
    with pytest.raises(DataError, match=r"holes\.txt, which is not a plain file"):
        open_tree(tmp_path / "a.tar")


def test_a_bomb_in_two_stages(tmp_path):
    # The inner archive unpacks 50-fold, and, being many copies of a part, is itself packed.
    part = random.Random(0).randbytes(20_000) + bytes(980_000)
    inner = write_zip(tmp_path / "inner.zip", {f"{i}": part for i in range(20)})
    assert len(open_tree(inner).names()) == 20
    with zipfile.ZipFile(tmp_path / "outer.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.write(inner, "inner.zip")
    assert (tmp_path / "outer.zip").stat().st_size * 3 < inner.stat().st_size
    with pytest.raises(DataError, match=r"inner\.zip unpacks to .* over 100 times its size"):
        open_tree(tmp_path / "outer.zip", nested=("inner.zip",))
