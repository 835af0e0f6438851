"""TFDS builders in array_record format; importing this module needs ``privjax[data]``."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from privjax.datasets import faces, sensors
from privjax.datasets.archives import Tree, open_tree
from privjax.datasets.errors import DataError
from privjax.datasets.fingerprints import file_sha256, fingerprint, tree_sha256
from privjax.datasets.sources import SOURCES, VERSION, Source, locate
from privjax.extras import need

tfds: Any = need("tensorflow_datasets")
need("array_record")

SPLIT = "records"
_NUMBER = ((), np.int32)
_FRAMES = {key: _NUMBER for key in ("frame", "activity", "user", "recording")}
_FACE = ((faces.SIDE, faces.SIDE, 1), np.uint8)


class _Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # pyright: ignore
    """Finds the files, checks them, and writes one record per window, image or stretch."""

    VERSION = tfds.core.Version(VERSION)
    SOURCE: Source
    FIELDS: dict[str, tuple[tuple[int | None, ...], Any]]

    def _info(self):
        fields = {
            key: tfds.features.Tensor(
                shape=shape,
                dtype=dtype,
                encoding=tfds.features.Encoding.BYTES if None not in shape and shape else "none",
            )
            for key, (shape, dtype) in self.FIELDS.items()
        }
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.SOURCE.title,
            features=tfds.features.FeaturesDict(fields),
            homepage=self.SOURCE.homepage,
            license=self.SOURCE.terms,
            citation=self.SOURCE.citation,
            metadata=tfds.core.MetadataDict(),
            disable_shuffling=True,  # time is told by the order of the records
        )

    def _split_generators(self, dl_manager):
        trees, origin = self._trees(dl_manager)
        self.info.metadata.update(origin, notes=self._notes(trees))
        return {SPLIT: self._generate_examples(trees)}

    def _generate_examples(self, trees: list[Tree]):
        yield from enumerate(self._records(trees))

    def _trees(self, dl_manager) -> tuple[list[Tree], dict[str, Any]]:
        source = self.SOURCE
        # The public property refuses a missing folder, which is no fault where a download serves.
        manual = Path(dl_manager._manual_dir) if dl_manager._manual_dir else None
        paths = locate(source, manual if manual and manual.is_dir() else None)
        if paths is not None:
            trees = [open_tree(path, nested=source.nested) for path in paths]
            files = [fingerprint(path) for path in paths]
            return trees, {
                "origin": "manual_dir",
                "files": files,
                "verified": self._is_published(trees, files),
            }
        if source.url is None:
            raise DataError(f"{source.name} cannot be downloaded: {source.instructions}")
        path = self._downloaded(dl_manager, source.url)
        tree = open_tree(path, nested=source.nested, name=source.url.rpartition("/")[2])
        if source.tree_sha256:
            found = _images_sha256(tree)
            _compare(path, source.url, f"the content of {path}", found, source.tree_sha256)
        files = [fingerprint(path)]
        return [tree], {"origin": source.url, "files": files, "verified": True}

    def _downloaded(self, dl_manager, url: str) -> Path:
        source = self.SOURCE
        try:
            path = Path(dl_manager.download(url))
        except Exception as error:  # requests, tfds and the socket each have their own kinds
            if "checksum" in str(error):
                raise DataError(
                    f"{url} has the wrong checksum: try again later, or see "
                    f"{source.homepage} for a new edition."
                ) from error
            raise DataError(f"{url} cannot be downloaded ({error}): {source.instructions}") from error
        if source.sha256:
            # Once more on the file itself: one left by an earlier run may have been damaged.
            _compare(path, url, str(path), file_sha256(path), source.sha256)
        return path

    def _is_published(self, trees: list[Tree], files: list[dict[str, Any]]) -> bool:
        """Whether files that the user brought are byte for byte the published ones."""
        source = self.SOURCE
        if source.tree_sha256:
            return _images_sha256(trees[0]) == source.tree_sha256
        if source.sha256 is None or source.url is None:
            return False
        name = source.url.rpartition("/")[2]
        inside = [n for n in trees[0].names() if n.rpartition("/")[2] == name]
        return any(file.get("sha256") == source.sha256 for file in files) or any(
            hashlib.sha256(trees[0].read(n)).hexdigest() == source.sha256 for n in inside
        )

    def _records(self, trees: list[Tree]) -> Iterator[dict[str, Any]]:
        raise NotImplementedError

    def _notes(self, trees: list[Tree]) -> dict[str, Any]:
        return {}


def _compare(path: Path, url: str, what: str, found: str, expected: str) -> None:
    if found != expected:
        path.unlink()  # or the next attempt would find it again
        raise DataError(
            f"{what}, from {url}, has the wrong checksum {found}, not {expected}, and was removed: "
            "load it again."
        )


def _images_sha256(tree: Tree) -> str:
    return tree_sha256(tree, [name for name in tree.names() if name.endswith(".pgm")])


def _checksums(source: Source) -> dict[str, Any]:
    if not (source.url and source.sha256):
        return {}
    info = need("tensorflow_datasets.core.download.checksums").UrlInfo
    name = source.url.rpartition("/")[2]
    return {source.url: info(size=source.bytes, checksum=source.sha256, filename=name)}


class Har(_Builder):
    """UCI HAR: a record is a window."""

    SOURCE = SOURCES["har"]
    url_infos = _checksums(SOURCE)
    FIELDS = {
        "x": ((561,), np.float32),
        "activity": _NUMBER,
        "user": _NUMBER,
        "is_test": _NUMBER,
    }

    def _records(self, trees):
        return sensors.har_records(trees)

    def _notes(self, trees):
        return {"feature_names": sensors.har_feature_names(trees)}


class Mhealth(_Builder):
    """MHEALTH: a record is a stretch of one activity."""

    SOURCE = SOURCES["mhealth"]
    url_infos = _checksums(SOURCE)
    FIELDS = {"x": ((None, 23), np.float32), **_FRAMES}

    def _records(self, trees):
        return sensors.mhealth_records(trees)

    def _is_published(self, trees, files):
        return sensors.mhealth_is_whole(trees)


class Hapt(_Builder):
    """HAPT: a record is a labelled stretch."""

    SOURCE = SOURCES["hapt"]
    url_infos = _checksums(SOURCE)
    FIELDS = {"x": ((None, 6), np.float32), **_FRAMES}

    def _records(self, trees):
        return sensors.hapt_records(trees)


class Yaleb(_Builder):
    """Extended Yale B: a record is an image."""

    SOURCE = SOURCES["yaleb"]
    url_infos = _checksums(SOURCE)
    FIELDS = {"x": _FACE, "person": _NUMBER}

    def _records(self, trees):
        return faces.yaleb_records(trees)


class Meglass(_Builder):
    """MeGlass: a record is an image."""

    SOURCE = SOURCES["meglass"]
    url_infos = _checksums(SOURCE)
    FIELDS = {"x": _FACE, "person": _NUMBER, "glasses": _NUMBER}

    def _records(self, trees):
        return faces.meglass_records(trees)


class CmuFaces(_Builder):
    """CMU faces: a record is an image."""

    SOURCE = SOURCES["cmu_faces"]
    url_infos = _checksums(SOURCE)
    FIELDS = {"x": _FACE, "person": _NUMBER, "glasses": _NUMBER}

    def _records(self, trees):
        return faces.cmu_records(trees)

    def _notes(self, trees):
        return {"people": sorted({person for _, person, _ in faces.cmu_names(trees[0])})}


BUILDERS = {builder.SOURCE.name: builder for builder in (Har, Mhealth, Hapt, Yaleb, Meglass, CmuFaces)}
