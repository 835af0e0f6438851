"""Extended Yale B: cropped faces under many lights; utility = random group of people, private = person."""

import io

import numpy as np

from privjax.datasets.published import FACE_SIDE, Files, PublishedSet, Rows, check_labels, refuse_damaged
from privjax.datasets.splits import DataError, random_groups
from privjax.extras import import_optional


def _read(files: Files) -> Rows:
    """Read the images, which the file stores column by column."""
    name = files.find("YaleB_32x32.mat")
    data, label = files.read(name), files.label(name)
    with refuse_damaged(label):
        found = import_optional("scipy.io").loadmat(io.BytesIO(data), variable_names=("fea", "gnd"))
        grey, people = found["fea"], found["gnd"].ravel()
    if grey.dtype.kind not in "uif" or not len(people) or grey.shape != (len(people), FACE_SIDE**2):
        raise DataError(f"{label}: fea must be grey values [n, 1024], and gnd people [n, 1].")
    # A copy that is scaled to 0..1 would become black images.
    check_labels(grey.ravel(), f"{label}, fea", low=0, high=255)
    images = grey.reshape(-1, FACE_SIDE, FACE_SIDE).transpose(0, 2, 1)[..., None].astype(np.uint8)
    person = check_labels(people, f"{label}, gnd", low=1, high=38) - 1
    return Rows({"x": images, "person": person}, {"features": ("grey",)})


def _select(rows: Rows, *, seed: int) -> Rows:
    """Deal the people into 4 groups."""
    group = random_groups(rows.arrays["person"], 4, seed=seed)
    return Rows({**rows.arrays, "group": group}, {**rows.names, "group": [f"group {i}" for i in range(4)]})


SET = PublishedSet(
    name="yaleb",
    title="Extended Yale B, cropped faces under many lights, 32 x 32",
    size="2414 x 32 x 32, 4 groups (utility), 38 people (private)",
    terms="free for research; cite both papers",
    citation="Georghiades, Belhumeur, Kriegman, PAMI 2001; Lee, Ho, Kriegman, PAMI 2005",
    homepage="http://www.cad.zju.edu.cn/home/dengcai/Data/FaceData.html",
    url="http://www.cad.zju.edu.cn/home/dengcai/Data/YaleB/YaleB_32x32.mat",
    bytes=2214688,
    sha256="3fbbda4eb781b9bb28025189677b6727706e114eb0215bbfd718f1f4fcb54b99",
    needs=(("YaleB_32x32.zip",),),
    read=_read,
    utility="group",
    private=("person",),
    protocols={"per_person": None},
    select=_select,
    num_rows=2414,
)
