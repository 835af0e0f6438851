"""Readers of the face sets: trees of published files in, 32 x 32 grey images out."""

import io
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from privjax.datasets.archives import Tree
from privjax.datasets.errors import DataError
from privjax.extras import need

Record = dict[str, Any]
SIDE = 32
_CMU = re.compile(r"([a-z0-9]+)_(straight|left|right|up)_([a-z]+)_(open|sunglasses)_4\.pgm$")


def yaleb_records(trees: list[Tree]) -> Iterator[Record]:
    """Extended Yale B: images that the file holds column by column, turned upright."""
    (tree,) = trees
    name = tree.find("YaleB_32x32.mat")
    label = tree.label(name)
    try:
        file = need("scipy.io").loadmat(io.BytesIO(tree.read(name)), variable_names=("fea", "gnd"))
        images, people = file["fea"], file["gnd"].ravel()
    except ImportError:
        raise
    except Exception as error:  # scipy raises many kinds on a damaged file
        raise DataError(f"{label} is truncated or corrupt ({error}): get it again.") from error
    if not len(people) or images.shape != (len(people), SIDE * SIDE) or not _is_grey(images):
        # A copy scaled to 0..1 would otherwise become black pictures.
        raise DataError(f"{label}: fea must be [n, 1024] whole grey values to 255, one gnd each.")
    outside = ~np.isin(people, np.arange(1, 39))
    if outside.any():
        row = int(np.argmax(outside))
        raise DataError(f"{label}, row {row}: the label {people[row]} is not one of 1 to 38.")
    upright = images.reshape(-1, SIDE, SIDE).transpose(0, 2, 1)[..., None].astype(np.uint8)
    for image, person in zip(upright, people, strict=True):
        yield {"x": image, "person": int(person) - 1}


def _is_grey(images: np.ndarray) -> bool:
    if images.dtype.kind not in "uif":
        return False
    return bool(((images == np.round(images)) & (images >= 0) & (images <= 255)).all())


def meglass_rows(tree: Tree) -> list[tuple[int, str, int, int]]:
    """MeGlass' meta.txt: line, file name, person (text before the first ``@``), glasses."""
    name = tree.find("meta.txt")
    rows: list[tuple[int, str, int, int]] = []
    numbers: dict[str, int] = {}
    seen: set[str] = set()
    for line, text in enumerate(tree.read(name).decode("utf-8", "replace").split("\n"), start=1):
        if not text.strip():
            continue
        cells = text.split()
        where = f"{tree.label(name)}, line {line}"
        if len(cells) != 2:
            raise DataError(f"{where}: {len(cells)} columns where 2 are expected.")
        if "@" not in cells[0] or PurePosixPath(cells[0]).name != cells[0]:
            raise DataError(f"{where}: {cells[0]!r} is not the name of an image of a person.")
        if cells[1] not in ("0", "1"):
            raise DataError(f"{where}: the label {cells[1]} is not one of 0 to 1.")
        if cells[0] in seen:
            raise DataError(f"{where}: {cells[0]} is listed twice.")
        seen.add(cells[0])
        person = cells[0].partition("@")[0]
        rows.append((line, cells[0], numbers.setdefault(person, len(numbers)), int(cells[1])))
    if not rows:
        raise DataError(f"{tree.label(name)} is empty.")
    return rows


def meglass_records(trees: list[Tree]) -> Iterator[Record]:
    """MeGlass: every image that meta.txt lists, grey, 32 x 32."""
    meta, images = trees
    image = need("PIL.Image")
    places = images.names()
    where = {PurePosixPath(name).name: name for name in places}
    twice = {PurePosixPath(name).name for name in places if name != where[PurePosixPath(name).name]}
    listed = meta.label(meta.find("meta.txt"))
    for line, name, person, glasses in meglass_rows(meta):
        if name not in where:
            raise DataError(f"{listed}, line {line}: {images.path} has no image {name}.")
        if name in twice:
            raise DataError(f"{listed}, line {line}: {images.path} has two images {name}: keep one.")
        try:
            with image.open(io.BytesIO(images.read(where[name])), formats=("JPEG", "PNG")) as file:
                # A photo of hostile size is refused before its pixels are unpacked.
                if file.width * file.height > 1 << 26:
                    raise ValueError(f"{file.width} x {file.height} pixels")
                # Of a JPEG, the brightness alone is decoded, at half the size where that is enough.
                file.draft("L", (SIDE, SIDE))
                grey = file.convert("L").resize((SIDE, SIDE), image.Resampling.BOX)
        except DataError:
            raise
        except Exception as error:  # Pillow raises many kinds on a damaged image
            raise DataError(f"{images.label(where[name])} is not a sound image ({error}).") from error
        yield {
            "x": np.asarray(grey, dtype=np.uint8)[..., None],
            "person": person,
            "glasses": glasses,
        }


def cmu_names(tree: Tree) -> list[tuple[str, str, str]]:
    """The 30 x 32 images: name, person, eyes; the ``.bad`` files are left out."""
    found = []
    for name in tree.names():
        if match := _CMU.search(name):
            found.append((name, match.group(1), match.group(4)))
    if not found:
        raise DataError(f"{tree.path} has no file <person>/<person>_..._4.pgm: get the set again.")
    return found


def cmu_records(trees: list[Tree]) -> Iterator[Record]:
    """CMU faces: the authors' 30 x 32 images, first and last line doubled to make 32 x 32."""
    (tree,) = trees
    names = cmu_names(tree)
    people = sorted({person for _, person, _ in names})
    for name, person, eyes in names:
        pixels = read_pgm(tree.read(name), tree.label(name))
        if pixels.shape != (30, 32):
            raise DataError(f"{tree.label(name)} is {pixels.shape}, not 30 x 32.")
        yield {
            "x": np.pad(pixels, ((1, 1), (0, 0)), mode="edge")[..., None],
            "person": people.index(person),
            "glasses": int(eyes == "sunglasses"),
        }


def read_pgm(data: bytes, label: str) -> np.ndarray:
    """Reads a plain (P2) or raw (P5) grey map of at most 255 levels.

    Args:
      data: The bytes of the file.
      label: How errors name it.

    Returns:
      A uint8 array ``[height, width]``.
    """
    header = re.match(rb"P([25])\s(?:\s*#.*\n)*\s*(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})\s", data)
    if not header:
        raise DataError(f"{label} is not a PGM image.")
    kind, width, height, top = (int(group) for group in header.groups())
    if not (0 < width <= 8192 and 0 < height <= 8192 and 0 < top <= 255):
        raise DataError(f"{label} is a PGM image of {width} x {height}, {top} levels: refused.")
    body = data[header.end() :]
    try:
        pixels = np.array(body.split(), np.int64) if kind == 2 else np.frombuffer(body, np.uint8)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{label} has a pixel that is not a number ({error}).") from error
    if len(pixels) != width * height or (len(pixels) and not 0 <= pixels.min() <= pixels.max() <= top):
        raise DataError(f"{label} is truncated or corrupt: get it again.")
    return pixels.astype(np.uint8).reshape(height, width)
