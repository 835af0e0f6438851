"""Hashes that say which bytes a set was made of."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from privjax.datasets.archives import FolderTree, Tree


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, read in blocks."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def tree_sha256(tree: Tree, names: Iterable[str]) -> str:
    """SHA-256 over the last two path components and the bytes of some files.

    The same files give the same digest from whatever archive they are read.
    """
    digest = hashlib.sha256()
    for name in sorted(names):
        short = "/".join(PurePosixPath(name).parts[-2:])
        digest.update(f"{short}\0{hashlib.sha256(tree.read(name)).hexdigest()}\n".encode())
    return digest.hexdigest()


def fingerprint(path: Path) -> dict[str, Any]:
    """What is recorded of a source: name, and length and hash, or of a folder its listing."""
    if path.is_dir():
        return {"name": path.name, "listing": _listing_sha256(path)}
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": file_sha256(path)}


def is_same(path: Path, known: Mapping[str, Any]) -> bool:
    """Whether a source is the one that was recorded, under whatever name."""
    if path.is_dir():
        return known.get("listing") == _listing_sha256(path)
    return path.stat().st_size == known.get("bytes") and file_sha256(path) == known.get("sha256")


def _listing_sha256(folder: Path) -> str:
    """Names and lengths alone: tens of thousands of files are looked at on every load."""
    digest = hashlib.sha256()
    for name in FolderTree(folder).names():
        digest.update(f"{name}\0{(folder / name).stat().st_size}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
