"""Published data sets: their records, their files, and their preparation as TFDS data sets."""

import contextlib
import hashlib
import io
import shutil
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from privjax.datasets.dataset import Dataset, Origin, SourceFile
from privjax.datasets.splits import DataError, Split
from privjax.extras import import_optional
from privjax.files import exclusive

FACE_SIDE = 32  # height and width of the images of all face sets
_BLOCK = 1024  # rows per record
_LARGEST_RATIO = 100  # of unpacked to packed size
_MIB = 1 << 20
_SPLIT = "rows"
_VERSION = "2.0.0"  # of the stored layout: a set of another version is prepared again


class Rows(NamedTuple):
    """All rows of a published set with their provenance."""

    arrays: Mapping[str, np.ndarray]  # of equal length: the input `x`, and the labels of each variable
    names: Mapping[str, Sequence[str]]  # of the features (`features`), and of the classes of variables
    source: str = "memory"  # address of the download, or "manual_dir"
    files: tuple[SourceFile, ...] = ()
    verified: bool = False  # whether the source files are byte for byte the published ones


@dataclass(frozen=True)
class PublishedSet:
    """A published data set: its source, its reader and its privacy task."""

    name: str
    title: str
    size: str  # rows, shape and classes in words
    terms: str
    read: Callable[..., Rows]  # takes the files of each entry of `needs`; without files, seed and options
    utility: str
    private: tuple[str, ...]  # private variables to choose from, the default first
    # Take arrays, seed and validation; None splits by the private class. The default comes first.
    protocols: Mapping[str, Callable[..., Split] | None]
    citation: str = "none"
    homepage: str = ""
    needs: tuple[tuple[str, ...], ...] = ()  # for each required file, its names beside the published one
    num_rows: int | None = None  # of a complete copy
    select: Callable[..., Rows] | None = None  # takes rows and seed: the rows of the task
    nested: tuple[str, ...] = ()  # archives inside the published archive
    url: str | None = None  # None where the terms allow no direct download
    bytes: int | None = None
    sha256: str | None = None
    content_sha256: str | None = None  # of the files read, where the host repacks the published file

    @property
    def wanted(self) -> tuple[tuple[str, ...], ...]:
        """Names that each required file may have in `manual_dir`, the published one first."""
        published = () if self.url is None else (PurePosixPath(self.url).name,)
        return ((*published, *self.needs[0]), *self.needs[1:])

    @property
    def instructions(self) -> str:
        """How to get the files, in one or two sentences."""
        if not self.needs:
            return f"load({self.name!r}): no download"
        wanted = " and ".join(names[0] for names in self.wanted)
        put = f"put {wanted} into a folder and pass it as manual_dir."
        if self.url is None:
            return f"Accept the terms at {self.homepage}, {put}"
        return f"load({self.name!r}) downloads {self.url}; or get the files at {self.homepage}, {put}"

    def choose(self, protocol: str | None, private: str | None) -> tuple[str, str]:
        """Return the named protocol and private variable, or the defaults for None."""
        choices = (("protocol", protocol, self.protocols), ("private", private, self.private))
        for argument, chosen, known in choices:
            if chosen not in (None, *known):
                found = f"{', '.join(known)} for {self.name}, got {chosen!r}"
                raise ValueError(f"{argument} must be one of {found}.")
        return protocol or next(iter(self.protocols)), private or self.private[0]

    def make_dataset(
        self, rows: Rows, protocol: str, private: str, *, seed: int, validation: float
    ) -> Dataset:
        """Return the rows of the task, split by a protocol; the private variable is no feature."""
        part = self.select(rows, seed=seed) if self.select else rows
        x, y, s = (part.arrays[name] for name in ("x", self.utility, private))
        if x.dtype == np.uint8:
            x = x / np.float32(255)
        kept = [i for i, name in enumerate(part.names["features"]) if name.partition("=")[0] != private]
        shares, split = {"seed": seed, "validation": validation}, self.protocols[protocol]
        data = Dataset.from_arrays(
            x if len(kept) == x.shape[-1] else x[:, kept],
            y,
            s,
            split=split and split(part.arrays, **shares),
            y_names=part.names.get(self.utility, _number_classes(self.utility, y)),
            s_names=part.names.get(private, _number_classes(private, s)),
            feature_names=[part.names["features"][i] for i in kept],
            **shares,
        )
        origin = Origin(
            name=self.name,
            protocol=protocol,
            seed=seed,
            utility=self.utility,
            private=(private,),
            source=rows.source,
            terms=self.terms,
            citation=self.citation,
            complete=self.num_rows in (None, len(rows.arrays["x"])),
            verified=rows.verified,
            files=rows.files,
        )
        return replace(data, origin=origin)


def _number_classes(word: str, labels: np.ndarray) -> list[str]:
    return [f"{word} {i + 1}" for i in range(int(labels.max()) + 1)]


class Files:
    """Files of a folder, or of an archive that was unpacked into one, by name with forward slashes."""

    def __init__(self, folder: Path, path: str):
        files = (f for f in folder.rglob("*") if f.is_file() and not f.is_symlink())
        names = (f.relative_to(folder).as_posix() for f in files)
        self.folder = folder
        self.path = path  # of the folder or archive, for messages
        self.names = sorted(name for name in names if not name.startswith("__MACOSX/"))
        self.digests: dict[str, str] = {}  # SHA-256 of every file read so far, by the last part of its name
        self.places: dict[str, list[str]] = {}  # names by their last part
        for name in self.names:
            self.places.setdefault(PurePosixPath(name).name, []).append(name)

    def read(self, name: str) -> bytes:
        """Return the bytes of one file."""
        data = (self.folder / name).read_bytes()
        self.digests[PurePosixPath(name).name] = hashlib.sha256(data).hexdigest()
        return data

    def label(self, name: str) -> str:
        """Return how messages name a file."""
        return f"{self.path}:{name}"

    def find(self, ending: str) -> str:
        """Return the name of the only file whose path ends with `ending`."""
        alike = self.places.get(PurePosixPath(ending).name, ())
        found = [name for name in alike if f"/{name}".endswith(f"/{ending}")]
        if len(found) > 1:
            raise DataError(f"{self.path} has {len(found)} files {ending}: keep one of them.")
        if not found:
            raise DataError(f"{self.path} has no file {ending}: get the data set again.")
        return found[0]


@contextlib.contextmanager
def refuse_damaged(label: str) -> Iterator[None]:
    """Turn the error of any decoder into one that names the file."""
    try:
        yield
    except (DataError, ImportError):
        raise
    except Exception as error:  # zipfile, lzma, SciPy, Pillow and NumPy each raise errors of their own
        reason = str(error).partition("\n")[0]
        raise DataError(f"{label} is truncated or corrupt ({reason}): get the file again.") from error


def open_files(path: Path, scratch: Path, *, nested: Sequence[str] = ()) -> Files:
    """Open a folder, or unpack a zip, a tar or a single file into a new folder.

    The first archive of `nested` that is found inside the archive is opened in its place.
    """
    if path.is_dir():
        return Files(path, str(path))
    limit = _LARGEST_RATIO * max(path.stat().st_size, _MIB)
    _unpack(path, str(path), scratch / "0", limit)
    files = Files(scratch / "0", str(path))
    for inner in nested:
        if inner in files.places:
            name = files.find(inner)
            # The limit is that of the outer archive: two ratios would multiply.
            _unpack(scratch / "0" / name, files.label(name), scratch / "1", limit)
            return Files(scratch / "1", files.label(name))
    return files


def _unpack(path: Path, label: str, folder: Path, limit: int) -> None:
    """Unpack an archive of bounded size, no link and nothing outside of the folder; copy any other file."""
    folder.mkdir(parents=True)
    with refuse_damaged(label):
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(path) as archive:
                _check_size(label, sum(info.file_size for info in archive.infolist()), limit)
                archive.extractall(folder)
        elif path.suffix.lower() in (".tar", ".gz", ".tgz", ".xz"):
            with tarfile.open(path) as archive:
                members = [info for info in archive if info.isreg() or info.isdir()]
                _check_size(label, sum(info.size for info in members), limit)
                archive.extractall(folder, members, filter="data")
                while archive.fileobj and archive.fileobj.read(_MIB):  # the checksum is at the end
                    pass
        else:
            shutil.copy(path, folder)


def _check_size(label: str, size: int, limit: int) -> None:
    if size > limit:
        raise DataError(f"{label} unpacks to over {_LARGEST_RATIO} times its size, which is refused.")


def read_matrix(files: Files, name: str, *, columns: int) -> np.ndarray:
    """Read whitespace-separated numbers, `columns` of them per line, as float64."""
    data, label = io.BytesIO(files.read(name)), files.label(name)
    with refuse_damaged(label), warnings.catch_warnings(action="error"):  # warns of an empty file
        matrix = np.loadtxt(data, comments=None, ndmin=2)
        if matrix.shape[1] != columns or not (np.abs(matrix) <= np.finfo(np.float32).max).all():
            raise ValueError(f"it must hold {columns} finite numbers per line")
    return matrix


def check_labels(values: np.ndarray, label: str, *, low: int, high: int) -> np.ndarray:
    """Return labels as int32, or refuse those that are not integers from `low` to `high`."""
    wrong = values[(values != np.round(values)) | (values < low) | (values > high)]
    if wrong.size:
        raise DataError(f"{label}: labels must be integers from {low} to {high}, got {wrong.flat[0]:g}.")
    return values.astype(np.int32)


def prepared_folder(name: str, data_dir: Path) -> Path:
    """Return the folder of a prepared set. It exists only when it is complete."""
    return data_dir / name / _VERSION


def fetch(
    published: PublishedSet, *, data_dir: Path, manual_dir: Path | None = None, force: bool = False
) -> Rows:
    """Load the rows of a published set, and prepare the set if that was not done yet."""
    if manual_dir is not None and not manual_dir.is_dir():
        raise DataError(f"manual_dir {manual_dir} is not a folder.")
    folder, rows = prepared_folder(published.name, data_dir), None
    if not force and folder.exists():
        with contextlib.suppress(DataError):  # damaged, or replaced at this moment by another process
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
    rows = published.read(*opened)
    files = tuple(_fingerprint(path) for path in paths)
    # The hash of the names and bytes of the files read is the same from every archive.
    digests = sorted(item for found in opened for item in found.digests.items())
    listing = "".join(f"{name}\0{digest}\n" for name, digest in digests)
    known = {file.sha256 for file in files} | {digest for _, digest in digests}
    content = hashlib.sha256(listing.encode()).hexdigest()
    verified = published.sha256 in known or published.content_sha256 == content
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
