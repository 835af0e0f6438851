"""Preparation of published sets with TFDS: download or `manual_dir`, verification, one TFDS data set."""

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privjax.datasets.dataset import SourceFile
from privjax.datasets.published import Files, PublishedSet, Rows, open_files
from privjax.datasets.splits import DataError
from privjax.extras import import_optional
from privjax.files import exclusive

_VERSION = "2.0.0"  # of the stored layout: a set of another version is prepared again
_SPLIT = "rows"
_BLOCK = 1024  # rows per record


def prepared_folder(name: str, data_dir: Path) -> Path:
    """Return the folder of a prepared set. It exists only when it is complete."""
    return data_dir / name / _VERSION


def fetch(
    published: PublishedSet, *, data_dir: Path, manual_dir: Path | None = None, force: bool = False
) -> Rows:
    """Load the rows of a published set, and prepare the set if that was not done yet.

    Args:
      published: The set.
      data_dir: Folder of the prepared sets.
      manual_dir: Folder with the published files.
      force: Whether to prepare the set again. The old one stays until the new one is complete.
    """
    if manual_dir is not None and not manual_dir.is_dir():
        raise DataError(f"manual_dir {manual_dir} is not a folder.")
    folder, rows = prepared_folder(published.name, data_dir), None
    if not force and folder.exists():
        with contextlib.suppress(DataError):  # replaced at this moment by another process, or damaged
            rows = _load(published.name, folder)
    if rows is None:
        with exclusive(data_dir / f".{published.name}.lock"):
            _clean(folder)
            if force or not folder.exists():
                _prepare(published, folder, manual_dir)
            rows = _load(published.name, folder)
    if manual_dir is not None and rows.source == "manual_dir":
        for path, known in zip(_find(published, manual_dir), rows.files, strict=False):
            if _fingerprint(path).sha256 != known.sha256:
                remedy = "pass force=True to prepare it again, or another data_dir"
                raise DataError(f"{folder} was prepared from another {known.name} than {path}: {remedy}.")
    return rows


def _import_tfds() -> Any:
    import_optional("array_record")
    return import_optional("tensorflow_datasets")


def _clean(folder: Path) -> None:
    """Put the old set back after a stop between the renames of `_prepare`, and remove leftovers."""
    if not folder.exists() and folder.with_name(".old").exists():
        folder.with_name(".old").rename(folder)
    for leftover in (".old", ".new"):
        shutil.rmtree(folder.with_name(leftover), ignore_errors=True)


def _prepare(published: PublishedSet, folder: Path, manual_dir: Path | None) -> None:
    new = folder.with_name(".new")
    new.mkdir(parents=True)
    try:
        with tempfile.TemporaryDirectory(dir=new) as scratch:
            rows = _read(published, _find(published, manual_dir), Path(scratch))
        _store(published, rows, new)
        if folder.exists():
            folder.rename(folder.with_name(".old"))
        new.rename(folder)
    finally:
        _clean(folder)


def _find(published: PublishedSet, manual_dir: Path | None) -> list[Path]:
    """Return the paths of all required files, or no path if `manual_dir` has none of them."""
    if manual_dir is None:
        return []
    found = [[manual_dir / n for n in names if (manual_dir / n).exists()] for names in published.wanted]
    for paths, names in zip(found, published.wanted, strict=True):
        if any(found) and not paths:
            raise DataError(f"{manual_dir} has no {' or '.join(names)}: {published.instructions}")
    return [paths[0] for paths in found if paths]


def _read(published: PublishedSet, paths: Sequence[Path], scratch: Path) -> Rows:
    """Read and verify the files in `manual_dir`, or else a download."""
    source = "manual_dir" if paths else published.url
    if source is None:
        raise DataError(f"{published.name} cannot be downloaded: {published.instructions}")
    paths = paths or [_download(published, source, scratch)]
    opened = [open_files(p, scratch / str(i), nested=published.nested) for i, p in enumerate(paths)]
    rows = published.read(opened)
    files = tuple(_fingerprint(path) for path in paths)
    known = {file.sha256 for file in files}.union(*(files.digests.values() for files in opened))
    verified = published.sha256 in known or published.content_sha256 == _content_sha256(opened)
    if source == published.url and not verified:
        raise DataError(f"{source} is not the known edition: see {published.homepage} for a new one.")
    return rows._replace(source=source, files=files, verified=verified)


def _download(published: PublishedSet, url: str, folder: Path) -> Path:
    tfds = _import_tfds()
    known, name = {}, published.wanted[0][0]
    if published.sha256:
        known[url] = tfds.core.download.checksums.UrlInfo(published.bytes, published.sha256, name)
    tfds.disable_progress_bar()
    try:
        path = Path(tfds.download.DownloadManager(download_dir=folder, url_infos=known).download(url))
    except Exception as error:  # requests, urllib, sockets and TFDS each raise errors of their own
        reason = "has the wrong checksum" if "checksum" in str(error) else f"cannot be downloaded ({error})"
        raise DataError(f"{url} {reason}. {published.instructions}") from error
    finally:
        tfds.enable_progress_bar()
    return path.rename(folder / name)


def _content_sha256(sources: Sequence[Files]) -> str:
    """Return a hash of the names and bytes of the files read, which is the same from every archive."""
    digests = sorted(item for files in sources for item in files.digests.items())
    return hashlib.sha256("".join(f"{name}\0{digest}\n" for name, digest in digests).encode()).hexdigest()


def _fingerprint(path: Path) -> SourceFile:
    """Return name, hash and size of a file; the hash of a folder is that of its file names and sizes."""
    if path.is_dir():
        names = Files(path, str(path)).names
        listing = "".join(f"{name}\0{(path / name).stat().st_size}\n" for name in names)
        return SourceFile(path.name, hashlib.sha256(listing.encode(errors="surrogateescape")).hexdigest())
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return SourceFile(path.name, digest, path.stat().st_size)


def _store(published: PublishedSet, rows: Rows, folder: Path) -> None:
    """Write the rows as a TFDS data set of array_record files; a record is a block of rows."""
    tfds = _import_tfds()
    identity = tfds.core.dataset_info.DatasetIdentity(
        name=published.name, version=_VERSION, data_dir=str(folder), module_name=__name__
    )
    tensors = {
        key: tfds.features.Tensor(shape=(None, *values.shape[1:]), dtype=values.dtype, encoding="bytes")
        for key, values in rows.arrays.items()
    }
    notes = {
        "names": {key: list(names) for key, names in rows.names.items()},
        "source": rows.source,
        "files": [file._asdict() for file in rows.files],
        "verified": rows.verified,
    }
    info = tfds.core.DatasetInfo(
        builder=identity,
        description=published.title,
        features=tfds.features.FeaturesDict(tensors),
        homepage=published.homepage,
        license=published.terms,
        citation=published.citation,
        metadata=tfds.core.MetadataDict(notes),
        disable_shuffling=True,
    )
    starts = range(0, len(rows.arrays["x"]), _BLOCK)
    records = [{key: values[i : i + _BLOCK] for key, values in rows.arrays.items()} for i in starts]
    writer = tfds.core.SequentialWriter(info, len(records) + 1, file_format="array_record")
    writer.initialize_splits([_SPLIT])
    writer.add_examples({_SPLIT: records})
    writer.close_all()


def _load(name: str, folder: Path) -> Rows:
    tfds = _import_tfds()
    try:
        builder = tfds.builder_from_directory(str(folder))
        source = builder.as_data_source(_SPLIT)
        records = [source[i] for i in range(builder.info.splits[_SPLIT].num_examples)]
        arrays = {key: np.concatenate([record[key] for record in records]) for key in records[0]}
        notes = builder.info.metadata
        files = tuple(SourceFile(**file) for file in notes["files"])
        return Rows(arrays, notes["names"], notes["source"], files, notes["verified"])
    except Exception as error:  # of array_record, TFDS and json
        remedy = f"call load({name!r}, force=True) to prepare it again"
        raise DataError(f"{folder} cannot be read ({error}): {remedy}.") from error
