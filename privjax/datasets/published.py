"""Records of published data sets, and readers of their files."""

import contextlib
import hashlib
import io
import shutil
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from privjax.datasets.dataset import Dataset, Origin, SourceFile
from privjax.datasets.splits import DataError, Split

FACE_SIDE = 32  # height and width of the images of all face sets
_MIB = 1 << 20
_LARGEST_RATIO = 100  # of unpacked to packed size


class Rows(NamedTuple):
    """All rows of a published set with their provenance.

    Attributes:
      arrays: Arrays of equal length: the input `x`, and the class numbers of each variable.
      names: Names of the features (`features`), and of the classes of variables that name them.
      source: Address of the download, or `"manual_dir"`.
      files: Fingerprints of the source files.
      verified: Whether the source files are byte for byte the published ones.
    """

    arrays: Mapping[str, np.ndarray]
    names: Mapping[str, Sequence[str]]
    source: str = "memory"
    files: tuple[SourceFile, ...] = ()
    verified: bool = False


@dataclass(frozen=True)
class PublishedSet:
    """A published data set: its source, its reader and its privacy task."""

    name: str
    title: str
    size: str  # rows, shape and classes in words
    terms: str
    citation: str
    homepage: str
    needs: tuple[tuple[str, ...], ...]  # for each required file, its names beside the published one
    read: Callable[[Sequence["Files"]], Rows]  # takes the files of each entry of `needs`
    utility: str
    private: tuple[str, ...]  # private variables to choose from, the default first
    protocols: Mapping[str, Callable[..., Split]]  # take arrays, seed and validation; the default first
    num_rows: int  # of a complete copy
    select: Callable[..., Rows] | None = None  # takes rows, private and seed: the rows of the task
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
        wanted = " and ".join(names[0] for names in self.wanted)
        if self.url is None:
            return (
                f"Accept the terms at {self.homepage}, put {wanted} into a folder and pass it as manual_dir."
            )
        download = f"load({self.name!r}) downloads {self.url}"
        return f"{download}; or put {wanted} from {self.homepage} into a folder and pass it as manual_dir."

    def choose(self, protocol: str | None, private: str | None) -> tuple[str, str]:
        """Return the named protocol and private variable, or the defaults for None."""
        choices = (("protocol", protocol, self.protocols), ("private", private, self.private))
        for argument, chosen, known in choices:
            if chosen not in (None, *known):
                raise ValueError(
                    f"{argument} must be one of {', '.join(known)} for {self.name}, got {chosen!r}."
                )
        return protocol or next(iter(self.protocols)), private or self.private[0]

    def make_dataset(
        self, rows: Rows, *, protocol: str, private: str, seed: int, validation: float
    ) -> Dataset:
        """Return the rows of the task, split by a protocol. Grey values become 0 to 1."""
        part = self.select(rows, private=private, seed=seed) if self.select else rows
        x, y, s = (part.arrays[name] for name in ("x", self.utility, private))
        data = Dataset.from_arrays(
            x / np.float32(255) if x.dtype == np.uint8 else x,
            y,
            s,
            split=self.protocols[protocol](part.arrays, seed=seed, validation=validation),
            y_names=part.names.get(self.utility) or _number_classes(self.utility, y),
            s_names=part.names.get(private) or _number_classes(private, s),
            feature_names=part.names["features"],
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
            complete=len(rows.arrays["x"]) == self.num_rows,
            verified=rows.verified,
            files=rows.files,
        )
        return replace(data, origin=origin)


def _number_classes(word: str, labels: np.ndarray) -> list[str]:
    return [f"{word} {i + 1}" for i in range(int(labels.max()) + 1)]


class Files:
    """Files of a folder, or of an archive that was unpacked into one, by name with forward slashes.

    Attributes:
      path: Path of the folder or archive, for messages.
      names: Names of all files, sorted, without links.
      digests: SHA-256 of every file read so far, by the last part of its name.
    """

    def __init__(self, folder: Path, path: str):
        files = (f for f in folder.rglob("*") if f.is_file() and not f.is_symlink())
        names = (f.relative_to(folder).as_posix() for f in files)
        self.path = path
        self.names = sorted(name for name in names if not name.startswith("__MACOSX/"))
        self.digests: dict[str, str] = {}
        self._folder = folder
        self._places: dict[str, list[str]] = {}  # by the last part of the name
        for name in self.names:
            self._places.setdefault(PurePosixPath(name).name, []).append(name)

    def read(self, name: str) -> bytes:
        """Return the bytes of one file."""
        data = (self._folder / name).read_bytes()
        self.digests[PurePosixPath(name).name] = hashlib.sha256(data).hexdigest()
        return data

    def label(self, name: str) -> str:
        """Return how messages name a file."""
        return f"{self.path}:{name}"

    def find(self, ending: str) -> str:
        """Return the name of the only file whose path ends with `ending`."""
        found = [
            n for n in self._places.get(PurePosixPath(ending).name, ()) if f"/{n}".endswith(f"/{ending}")
        ]
        if len(found) > 1:
            raise DataError(f"{self.path} has {len(found)} files {ending}: keep one of them.")
        if not found:
            raise DataError(f"{self.path} has no file {ending}: get the data set again.")
        return found[0]

    def has(self, name: str) -> bool:
        """Return whether a file in any folder has this name."""
        return name in self._places


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
    """Open a folder, a zip, a tar or a single file.

    Args:
      path: The folder or file.
      scratch: A folder that does not exist yet, to unpack an archive into.
      nested: Names of archives inside the archive; the first one found is opened in its place.
    """
    if path.is_dir():
        return Files(path, str(path))
    limit = _LARGEST_RATIO * max(path.stat().st_size, _MIB)
    _unpack(path, str(path), scratch / "0", limit)
    files = Files(scratch / "0", str(path))
    for inner in nested:
        if files.has(inner):
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
