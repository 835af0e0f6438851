"""Small copies of published data sets in their layouts: functions from nothing to bytes by file name."""

import io

import numpy as np


def har():
    """Write nine windows of six users."""
    rng = np.random.default_rng(0)
    files = {"features.txt": "".join(f"{i} f{i // 2}\n" for i in range(1, 562))}
    for part, rows in (("train", 6), ("test", 3)):
        table = "\n".join(" ".join(f"{v: .7e}" for v in row) for row in rng.uniform(-1, 1, (rows, 561)))
        files[f"{part}/X_{part}.txt"] = table.replace("e-01", "e-001")  # as HAR prints exponents
        files[f"{part}/y_{part}.txt"] = "".join(f"{i % 6 + 1}\n" for i in range(rows))
        files[f"{part}/subject_{part}.txt"] = "".join(f"{i + 1}\n" for i in range(rows))
    return files


def mhealth():
    """Write four frames of users 3 and 10."""
    line = " ".join(["0.5"] * 23)
    log = f"{line} 1\n{line} 1\n{line} 0\n{line} 12\n"
    return {"mHealth_subject3.log": log, "mHealth_subject10.log": log}


def hapt():
    """Write one recording with two labelled stretches."""
    files = {f"RawData/{kind}_exp01_user02.txt": "0 0 1\n" * 4 for kind in ("acc", "gyro")}
    return {**files, "RawData/labels.txt": "1 2 5 1 2\n1 2 12 4 4\n"}


def hapt_arrays(**changes):
    """Write five frames as one array file."""
    arrays = {
        "x": np.zeros((5, 6), np.float32),
        "activity": np.full(5, 2),
        "subject": np.full(5, 1),
        "recording": np.zeros(5, int),
        "frame": np.arange(5) + 250,
    }
    buffer = io.BytesIO()
    np.savez(buffer, **{k: v for k, v in {**arrays, **changes}.items() if v is not None})
    return {"hapt_frames.npz": buffer.getvalue(), "notes.txt": "beside the array file"}


def yaleb(images=4, **changes):
    """Write images of people 38, 37, ... in turn."""
    from scipy.io import savemat

    grey = np.arange(images * 1024).reshape(images, -1) % 251
    buffer = io.BytesIO()
    savemat(buffer, {"fea": grey, "gnd": 38 - np.arange(images).reshape(-1, 1) % 38, **changes})
    return {"YaleB_32x32.mat": buffer.getvalue()}


def cmu_faces():
    """Write eight images of each of two people, and one that its authors call bad."""
    files = {"faces/ann/ann_left_sad_open_4.bad": ""}
    for i in range(16):
        pose = ("left", "right", "straight", "up")[i % 4]
        name = f"{('ann', 'bob')[i // 8]}_{pose}_sad_{('open', 'sunglasses')[i // 4 % 2]}_4.pgm"
        files[f"faces/{name[:3]}/{name}"] = b"P5\n32 30\n255\n" + bytes(range(i, i + 240)) * 4
    return files


def adult():
    """Write three training rows, one with unknown cells, and two test rows."""
    first = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male"
    second = "18, ?, 1000, 11th, 7, Never-married, ?, Own-child, Black, Female"
    train = [
        f"{first}, 2174, 0, 40, Cuba, <=50K",
        f"{second}, 0, 0, 20, ?, <=50K",
        f"{first}, 0, 0, 9, Cuba, >50K",
    ]
    test = [f"{second}, 0, 0, 20, Cuba, <=50K.", f"{first}, 0, 0, 9, Peru, >50K."]
    return {
        "adult.data": "\n".join(train) + "\n\n",
        "adult.test": "\n".join(["|1x3 Cross validator", *test]) + "\n\n",
    }


def to_bytes(files):
    """Encode the text files among `files`."""
    return {k: v.encode(errors="surrogateescape") if isinstance(v, str) else v for k, v in files.items()}


def write_folder(folder, files):
    """Write files into a folder and return it."""
    for name, data in to_bytes(files).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder
