"""CMU Face Images, in place of MeGlass; utility = sunglasses, private = person."""

import re

import numpy as np

from privjax.datasets.published import Files, PublishedSet, Rows
from privjax.datasets.splits import DataError

_IMAGE = re.compile(r"([a-z0-9]+)_(?:straight|left|right|up)_[a-z]+_(open|sunglasses)_4\.pgm$")
_HEADER = re.compile(rb"P5\s+32\s+30\s+\d+\s")


def _read(files: Files) -> Rows:
    """Read the images of 30 x 32; the first and the last line are doubled to make 32 x 32."""
    found = [(name, *match.groups()) for name in files.names if (match := _IMAGE.search(name))]
    if not found:
        raise DataError(f"{files.path} has no file <person>/<person>_..._4.pgm: get the data set again.")
    images = []
    for name, _, _ in found:
        data = files.read(name)
        header = _HEADER.match(data)
        if header is None or len(data) != header.end() + 30 * 32:
            raise DataError(f"{files.label(name)} is not a PGM image of 30 x 32: get the file again.")
        grey = np.frombuffer(data, np.uint8, offset=header.end()).reshape(30, 32, 1)
        images.append(np.pad(grey, ((1, 1), (0, 0), (0, 0)), mode="edge"))
    people, person = np.unique([person for _, person, _ in found], return_inverse=True)
    eyes = np.array([eyes == "sunglasses" for _, _, eyes in found], np.int32)
    names = {"features": ("grey",), "person": people.tolist(), "sunglasses": ("open", "sunglasses")}
    return Rows({"x": np.stack(images), "person": person, "sunglasses": eyes}, names)


SET = PublishedSet(
    name="cmu_faces",
    title="CMU Face Images; stands in for MeGlass",
    size="624 x 32 x 32, sunglasses or not (utility), 20 people (private)",
    terms="CC BY 4.0 at UCI",
    citation="Mitchell, CMU Face Images, UCI Machine Learning Repository, 1997",
    homepage="https://archive.ics.uci.edu/dataset/124",
    url="https://archive.ics.uci.edu/static/public/124/cmu+face+images.zip",
    content_sha256="cb8024f8362cc18bccdbbd3aaa7b7e1fa8a4faa2d2031bda4f37a5eb44dee8ba",
    needs=(("faces.tar.gz", "cmu_faces.tar.xz", "faces"),),
    nested=("faces.tar.gz",),
    read=_read,
    utility="sunglasses",
    private=("person",),
    protocols={"per_person": None},
    num_rows=624,
)
