"""Folders and archives read as one tree of files; nothing is ever unpacked onto the disk."""

import bz2
import gzip
import io
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath, PureWindowsPath

from privjax.datasets.errors import DataError

_LARGEST_RATIO = 100  # what unpacks to more than this many times its size is refused
_SMALL = 1 << 20  # below this many bytes the ratio says nothing
_OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,  # an encrypted zip
    ValueError,  # a name that is not the text it claims to be
    struct.error,
)


class Tree:
    """Files by their names with forward slashes; ``label`` says how errors name one of them."""

    def __init__(self, path: str):
        self.path = path

    def names(self) -> list[str]:
        """Every file, sorted; folders and the litter of some packers left out."""
        raise NotImplementedError

    def read(self, name: str) -> bytes:
        """The bytes of one file."""
        raise NotImplementedError

    def label(self, name: str) -> str:
        """How an error names this file."""
        return f"{self.path}:{name}"

    def find(self, ending: str) -> str:
        """The one file whose path ends so; a missing one is an error that names it."""
        found = [n for n in self.names() if n == ending or n.endswith("/" + ending)]
        if not found:
            raise DataError(f"{self.path} has no file {ending}: get the set again.")
        if len(found) > 1:
            raise DataError(f"{self.path} has {len(found)} files {ending}: keep one copy there.")
        return found[0]


class FolderTree(Tree):
    """An unpacked folder; links out of it are not followed."""

    def __init__(self, root: Path):
        super().__init__(str(root))
        self._root = root

    def names(self) -> list[str]:
        """See the base class."""
        found = []
        for folder, _, files in os.walk(self._root):
            for name in files:
                path = Path(folder, name)
                if not path.is_symlink():
                    found.append(path.relative_to(self._root).as_posix())
        return sorted(found)

    def read(self, name: str) -> bytes:
        """See the base class."""
        return (self._root / name).read_bytes()

    def label(self, name: str) -> str:
        """See the base class."""
        return str(self._root / name)


class _ZipTree(Tree):
    def __init__(self, source: Path | io.BytesIO, label: str, size: int):
        super().__init__(label)
        try:
            self._zip = zipfile.ZipFile(source)
        except _BROKEN as error:
            raise _broken(label, error) from error
        self._members = {}
        total = 0
        for info in self._zip.infolist():
            _check_member(label, info.filename)
            if stat.S_ISLNK(info.external_attr >> 16):
                raise DataError(f"{label} has the link {info.filename}: links are refused.")
            # Of the other methods Python unpacks a piece whole, however large it gets.
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise DataError(f"{label}: {info.filename} is compressed in a way that is refused.")
            total += info.file_size
            if not info.is_dir():
                self._members[info.filename.replace("\\", "/")] = info
        _check_ratio(label, total, size)

    def names(self) -> list[str]:
        return sorted(n for n in self._members if not n.startswith("__MACOSX/"))

    def read(self, name: str) -> bytes:
        try:
            info = self._members[name]
            with self._zip.open(info) as member:
                # No further than the size that was checked, whatever more is in there; the
                # CRC is compared once the end is reached.
                return member.read(info.file_size + 1)
        except _BROKEN as error:
            raise _broken(self.label(name), error) from error


class _TarTree(Tree):
    """A tar has no table of contents, so it is read whole, counting as it goes."""

    def __init__(self, source: Path | io.BytesIO, label: str, size: int):
        super().__init__(label)
        self._members: dict[str, bytes] = {}
        try:
            data = _decompress(source, label, size)
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
                for info in tar:
                    _check_member(label, info.name)
                    if info.isdir():
                        continue
                    if not info.isreg() or info.issparse():  # holes of any size, at no cost
                        raise DataError(f"{label} has {info.name}, which is not a plain file.")
                    handle = tar.extractfile(info)
                    content = b"" if handle is None else handle.read()
                    if len(content) != info.size:
                        raise EOFError(f"{info.name} is cut short")
                    self._members[PurePosixPath(info.name).as_posix()] = content
            # Cut between two members a tar still reads well; only its closing zeros tell.
            if data[-1024:].strip(b"\0") or len(data) < 1024:
                raise EOFError("the end is missing")
        except DataError:
            raise
        except _BROKEN as error:
            raise _broken(label, error) from error

    def names(self) -> list[str]:
        return sorted(self._members)

    def read(self, name: str) -> bytes:
        return self._members[name]


class _FileTree(Tree):
    def __init__(self, path: Path, name: str):
        super().__init__(str(path))
        self._file = path
        self._name = name

    def names(self) -> list[str]:
        return [self._name]

    def read(self, name: str) -> bytes:
        return self._file.read_bytes()

    def label(self, name: str) -> str:
        return str(self._file)


def open_tree(path: Path, *, nested: Iterable[str] = (), name: str | None = None) -> Tree:
    """Opens a folder, a zip, a tar (plain, gz, bz2, xz) or a single file as a tree.

    Args:
      path: What the user has.
      nested: Names of archives that a site wraps in a further archive; the first one found
        inside is opened instead of its wrapper.
      name: The file's own name, where it was stored under another.

    Returns:
      The tree; every member's name, kind and size has been checked.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist.")
    if path.is_dir():
        return FolderTree(path)
    size = path.stat().st_size
    tree = _open(path, str(path), size, name or path.name)
    for inner in nested:
        if any(PurePosixPath(n).name == inner for n in tree.names()):
            member = tree.find(inner)
            content = tree.read(member)
            # Twice a hundred times would be ten thousand: the wrapper's own size counts.
            return _open(io.BytesIO(content), tree.label(member), min(size, len(content)), inner)
    return tree


def _open(source: Path | io.BytesIO, label: str, size: int, name: str) -> Tree:
    lower = name.lower()
    if lower.endswith(".zip"):
        return _ZipTree(source, label, size)
    if lower.endswith((".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")):
        return _TarTree(source, label, size)
    if isinstance(source, Path):
        return _FileTree(source, name)
    raise DataError(f"{label} is not a zip or a tar.")


def _decompress(source: Path | io.BytesIO, label: str, size: int) -> bytes:
    """All bytes of a tar, whatever it is compressed with; stops as soon as they are too many."""
    with source.open("rb") if isinstance(source, Path) else source as raw:
        magic = raw.read(6)
        raw.seek(0)
        opener = next((o for m, o in _OPENERS.items() if magic.startswith(m)), None)
        if opener is None:
            return raw.read()
        chunks, total = [], 0
        with opener(raw) as stream:
            while chunk := stream.read(_SMALL):
                chunks.append(chunk)
                total += len(chunk)
                _check_ratio(label, total, size)
        return b"".join(chunks)


def _check_member(label: str, name: str) -> None:
    plain = name.replace("\\", "/")
    outside = ".." in PurePosixPath(plain).parts or plain.startswith("/")
    if outside or PureWindowsPath(name).drive or "\0" in name:
        raise DataError(f"{label} has the member {name!r}, which points outside: it is refused.")


def _check_ratio(label: str, total: int, size: int) -> None:
    if total > _SMALL and total > _LARGEST_RATIO * size:
        raise DataError(f"{label} unpacks to {total} bytes, over {_LARGEST_RATIO} times its size: refused.")


def _broken(label: str, error: BaseException) -> DataError:
    return DataError(f"{label} is truncated or corrupt ({error}): get it again.")
