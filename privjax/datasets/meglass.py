"""MeGlass: faces with and without glasses; utility = glasses, private = random group of people."""

import io

import numpy as np

from privjax.datasets.published import FACE_SIDE, Files, PublishedSet, Rows, refuse_damaged
from privjax.datasets.splits import DataError, per_label_split, sampled_people_groups
from privjax.extras import import_optional

_MOST_PIXELS = 1 << 26


def _read(meta: Files, images: Files) -> Rows:
    """Read every image that meta.txt lists, scaled to 32 x 32."""
    name = meta.find("meta.txt")
    label, lines = meta.label(name), meta.read(name).decode("utf-8", "replace").splitlines()
    listed = [line.split() for line in lines if line.strip()]
    wrong = [cells for cells in listed if "@" not in cells[0] or cells[1:] not in (["0"], ["1"])]
    if wrong or not 0 < len(listed) == len({cells[0] for cells in listed}):
        found = f"got {' '.join(wrong[0])!r}" if wrong else "each image once"
        raise DataError(f"{label}: every line must be <person>@<image> and 0 or 1, {found}.")
    x = [_read_grey(images, images.find(image)) for image, _ in listed]
    people = [image.partition("@")[0] for image, _ in listed]
    numbers = {person: number for number, person in enumerate(dict.fromkeys(people))}
    person = np.array([numbers[person] for person in people])
    glasses = np.array([int(cells[1]) for cells in listed])
    names = {"features": ("grey",), "glasses": ("no glasses", "glasses")}
    return Rows({"x": np.stack(x), "person": person, "glasses": glasses}, names)


def _read_grey(images: Files, name: str) -> np.ndarray:
    image = import_optional("PIL.Image")
    data = images.read(name)
    with refuse_damaged(images.label(name)), image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as file:
        if file.width * file.height > _MOST_PIXELS:
            raise ValueError(f"{file.width} x {file.height} pixels")
        file.draft("L", (FACE_SIDE, FACE_SIDE))  # decodes a JPEG without colour, and smaller
        grey = file.convert("L").resize((FACE_SIDE, FACE_SIDE), image.Resampling.BOX)
        return np.asarray(grey)[..., None]


def _select(rows: Rows, *, seed: int) -> Rows:
    """Draw 500 people and deal them into 100 groups."""
    kept, group = sampled_people_groups(rows.arrays["person"], seed=seed)
    arrays = {key: array[kept] for key, array in rows.arrays.items()}
    return Rows({**arrays, "group": group}, rows.names)


SET = PublishedSet(
    name="meglass",
    title="MeGlass: faces with and without glasses",
    size="47917 images, glasses or not (utility), 1565 people (private, in groups)",
    terms="lists under MIT; the photos belong to their owners",
    citation="Guo, Zhu, Lei, Li, CCBR 2018",
    homepage="https://github.com/cleardusk/MeGlass",
    needs=(
        ("meta.txt", "MeGlass_meta.zip"),
        ("MeGlass_120x120.zip", "MeGlass_120x120", "MeGlass_ori.zip", "MeGlass_ori"),
    ),
    read=_read,
    utility="glasses",
    private=("group",),
    protocols={"sampled_people": lambda arrays, **how: per_label_split(arrays["person"], **how)},
    select=_select,
    num_rows=47917,
)
