"""What is known of every published set: where it lives, under which terms, how large it is."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from privjax.datasets.errors import DataError

VERSION = "1.0.0"  # of the records: a new one is prepared anew
_UCI = "https://archive.ics.uci.edu"

HAR_ACTIVITIES = (
    "WALKING",
    "WALKING_UPSTAIRS",
    "WALKING_DOWNSTAIRS",
    "SITTING",
    "STANDING",
    "LAYING",
)
HAPT_ACTIVITIES = (
    *HAR_ACTIVITIES,
    "STAND_TO_SIT",
    "SIT_TO_STAND",
    "SIT_TO_LIE",
    "LIE_TO_SIT",
    "STAND_TO_LIE",
    "LIE_TO_STAND",
)
HAPT_CHANNELS = ("acc_x", "acc_y", "acc_z", "gyro_x", "gyro_y", "gyro_z")
MHEALTH_ACTIVITIES = (
    "standing still",
    "sitting and relaxing",
    "lying down",
    "walking",
    "climbing stairs",
    "waist bends forward",
    "frontal elevation of arms",
    "knees bending",
    "cycling",
    "jogging",
    "running",
    "jump front and back",
)
MHEALTH_CHANNELS = (
    *(f"chest_acc_{axis}" for axis in "xyz"),
    "ecg_1",
    "ecg_2",
    *(f"ankle_{kind}_{axis}" for kind in ("acc", "gyro", "mag") for axis in "xyz"),
    *(f"arm_{kind}_{axis}" for kind in ("acc", "gyro", "mag") for axis in "xyz"),
)
# Git blob hashes of the ten published logs, mHealth_subject1.log first.
MHEALTH_BLOBS = (
    "c962a497714c2cf243a4da711bb6d2b749af3ae8",
    "07db6a2fb015a0acf759c371b431a456634d27d9",
    "27d566cbc2f184f9f23488957b01fa85f327d82d",
    "4f74459f6545995e023de04137a7cc39576b7a55",
    "082adea0e577201ec68131cb87384083bf48521f",
    "943555f4f79be2250d2004c4fb6ef113d0410a39",
    "a6483aca689470cce13526c4c5e8b9e2f26d6387",
    "26fd92ed14c473a4b6e1fc3987e861bf4d20bb7c",
    "e79d57d00c6036fd63e29b874afd035836b8b665",
    "6ce8da94ef3c979f08808317c11eb9f210fa0087",
)


@dataclasses.dataclass(frozen=True)
class Source:
    """One published set.

    Attributes:
      name: The name to load it under.
      title: What it is, in one line.
      size: Rows, classes and shape as published, for people.
      terms: Under which terms it may be used.
      citation: What its authors ask to cite.
      homepage: Where a person reads about it.
      needs: For each thing the loader needs, the names it may have in ``manual_dir``, in order.
      nested: Archives that the published file wraps.
      url: The published file, or None where the terms or the host leave only the manual way.
      sha256: SHA-256 of the published file, or None where only its content is known.
      bytes: Length of the published file.
      tree_sha256: SHA-256 of the content, for a published file that is repacked now and then.
      published: Counts that a whole copy has.
    """

    name: str
    title: str
    size: str
    terms: str
    citation: str
    homepage: str
    needs: tuple[tuple[str, ...], ...]
    nested: tuple[str, ...] = ()
    url: str | None = None
    sha256: str | None = None
    bytes: int | None = None
    tree_sha256: str | None = None
    published: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def instructions(self) -> str:
        """How a person gets the files, in one or two sentences."""
        wanted = " and ".join(names[0] for names in self.needs)
        if self.url:
            return (
                f"load({self.name!r}) downloads {self.url}; or put {wanted} from {self.homepage} "
                "into a folder and pass it as manual_dir."
            )
        return f"Accept the terms at {self.homepage}, put {wanted} into a folder and pass it as manual_dir."


SOURCES = {
    source.name: source
    for source in (
        Source(
            name="har",
            title="UCI HAR: 561 features of smartphone motion windows",
            size="10299 x 561, 6 activities (utility), 30 users (private)",
            terms="CC BY 4.0 at UCI; its README asks for citation and forbids commercial use",
            citation="Anguita, Ghio, Oneto, Parra, Reyes-Ortiz, ESANN 2013",
            homepage=f"{_UCI}/dataset/240",
            needs=(
                (
                    "UCI HAR Dataset.zip",
                    "UCI_HAR_Dataset.zip",
                    "human+activity+recognition+using+smartphones.zip",
                    "UCI HAR Dataset",
                ),
            ),
            nested=("UCI HAR Dataset.zip",),
            url=f"{_UCI}/static/public/240/human+activity+recognition+using+smartphones.zip",
            sha256="c00b803081a5c797cd5e4b83700a9810b38d53d9d84e01917e090e1fdbc81031",
            bytes=61005872,
            published={"rows": 10299, "y": 6, "s": 30},
        ),
        Source(
            name="mhealth",
            title="MHEALTH: raw frames of body-worn sensors",
            size="10 logs, 23 channels at 50 Hz, 12 activities (utility), 10 users (private)",
            terms="CC BY 4.0 at UCI",
            citation="Banos, Garcia, Holgado-Terriza, Damas et al., IWAAL 2014",
            homepage=f"{_UCI}/dataset/319",
            needs=(
                (
                    "mhealth+dataset.zip",
                    "MHEALTHDATASET.zip",
                    "MHEALTHDATASET",
                    "MHEALTH_sample_72frames.zip",
                ),
            ),
            url=f"{_UCI}/static/public/319/mhealth+dataset.zip",
            sha256="16ad0ce709f3f00df18f348610d15bce0884b79e2143f57f446493673f02b8e0",
            bytes=75567983,
            published={"y": 12, "s": 10},
        ),
        Source(
            name="yaleb",
            title="Extended Yale B, cropped faces under many lights, 32 x 32",
            size="2414 x 32 x 32, 4 groups (utility), 38 people (private)",
            terms="free for research; cite both papers",
            citation="Georghiades, Belhumeur, Kriegman, PAMI 2001; Lee, Ho, Kriegman, PAMI 2005",
            homepage="http://www.cad.zju.edu.cn/home/dengcai/Data/FaceData.html",
            needs=(("YaleB_32x32.mat", "YaleB_32x32.zip"),),
            url="http://www.cad.zju.edu.cn/home/dengcai/Data/YaleB/YaleB_32x32.mat",
            sha256="3fbbda4eb781b9bb28025189677b6727706e114eb0215bbfd718f1f4fcb54b99",
            bytes=2214688,
            published={"rows": 2414, "s": 38},
        ),
        Source(
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
            published={"rows": 47917, "y": 2, "s": 1565},
        ),
        Source(
            name="hapt",
            title="HAPT: raw smartphone frames; stands in for MHEALTH",
            size="815614 x 6 frames at 50 Hz, 6 main activities (utility), 30 users (private)",
            terms="CC BY 4.0 at UCI",
            citation="Reyes-Ortiz, Oneto, Sama, Parra, Anguita, Neurocomputing 2016",
            homepage=f"{_UCI}/dataset/341",
            needs=(
                (
                    "smartphone+based+recognition+of+human+activities+and+postural+transitions.zip",
                    "HAPT Data Set.zip",
                    "HAPT Data Set",
                    "hapt_frames.npz",
                ),
            ),
            nested=("HAPT Data Set.zip",),
            url=f"{_UCI}/static/public/341/smartphone+based+recognition+of+human+activities+and"
            "+postural+transitions.zip",
            sha256="4ac4ae064227c07045a99551876b54d204837e995e298b6488559e209b3deb09",
            bytes=79596192,
            published={"rows": 815614, "y": 12, "s": 30},
        ),
        Source(
            name="cmu_faces",
            title="CMU Face Images; stands in for MeGlass",
            size="624 x 32 x 32, sunglasses or not (utility), 20 people (private)",
            terms="CC BY 4.0 at UCI",
            citation="Mitchell, CMU Face Images, UCI Machine Learning Repository, 1997",
            homepage=f"{_UCI}/dataset/124",
            needs=(("cmu+face+images.zip", "faces.tar.gz", "cmu_faces.tar.xz", "cmu_faces", "faces"),),
            nested=("faces.tar.gz",),
            url=f"{_UCI}/static/public/124/cmu+face+images.zip",
            tree_sha256="55be417878d73d9b6da7e93979048a5035915ccb905f6257b09f7002712a761f",
            published={"rows": 624, "y": 2, "s": 20},
        ),
    )
}


def present(source: Source, manual_dir: Path) -> list[Path | None]:
    """For each thing the set needs, the file or folder in ``manual_dir``, or None."""
    return [
        next((manual_dir / name for name in names if (manual_dir / name).exists()), None)
        for names in source.needs
    ]


def locate(source: Source, manual_dir: Path | None) -> list[Path] | None:
    """The files of a set in ``manual_dir``; None when none of them is there.

    Args:
      source: The set.
      manual_dir: Where the user put its files.

    Returns:
      One path for each thing the set needs.
    """
    found = [] if manual_dir is None else present(source, manual_dir)
    whole = [path for path in found if path is not None]
    if not whole:
        return None
    for path, names in zip(found, source.needs, strict=True):
        if path is None:
            raise DataError(f"{manual_dir} has no {' or '.join(names)}: {source.instructions}")
    return whole
