"""One HAR split end to end: train, release z, attack the users' identity.

    python experiments/har_check.py --objective mmd --weight 4 --scaling standardised
    python experiments/har_check.py --objective kdi --weight 0.002 --scaling given

Activity recognition is the utility, the user is the private variable. Rows are split 80:20 within each
user; nothing of the test rows is used but for the scores that are printed. Attackers are fitted on the
released training rows: a random forest of 250 trees, and an RBF-SVM whose penalty and bandwidth are
chosen by cross-validation on those rows.

What one run each on two CPU cores gave (activity / forest / RBF-SVM; the largest user is 0.040):

    mmd   4      standardised   seed 0   0.972 / 0.052 / 0.062
    mmd   4      standardised   seed 1   0.976 / 0.057 / 0.066
    kdi   0.002  given          seed 0   0.980 / 0.038 / 0.049
    kdi   0.002  given          seed 1   0.980 / 0.044 / 0.054

KDI at 0.003 lost the utility on the split of seed 1 (0.706), so 0.002 is near the edge. Rates that fall after
15 epochs without a decline instead of 30 fall too soon by chance: MMD then gave 0.978 / 0.140 / 0.131 on the
split of seed 0. The weights were looked for on these very splits, so they say what can be reached, not what
to expect.
"""

import argparse
import io
import os
import pathlib
import time
import zipfile

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from privjax.train import FitResult, fit


def data_folder() -> pathlib.Path:
    """Where the archives are: PRIVJAX_SHARED_DATA, or beside the repository."""
    beside = pathlib.Path(__file__).parents[2] / "shared" / "data"
    return pathlib.Path(os.environ.get("PRIVJAX_SHARED_DATA", beside))


def read_har(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The features x [10299, 561], activities y and users s of the archive as published."""
    with zipfile.ZipFile(path) as archive:

        def column(name: str) -> np.ndarray:
            parts = []
            for part in ("train", "test"):
                member = archive.read(f"UCI HAR Dataset/{part}/{name}_{part}.txt")
                parts.append(np.loadtxt(io.BytesIO(member), dtype=np.float32))
            return np.concatenate(parts)

        x, y, s = column("X"), column("y"), column("subject")
    return x, y.astype(int) - 1, s.astype(int) - 1


def split(s: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of one 80:20 split within each user."""
    splitter = StratifiedShuffleSplit(1, test_size=0.2, random_state=seed)
    return next(splitter.split(np.zeros(len(s)), s))


def attack(z_train, s_train, z_test, s_test) -> dict[str, float]:
    """Accuracy of attackers who learn the user from released rows."""
    forest = RandomForestClassifier(250, n_jobs=2, random_state=0).fit(z_train, s_train)
    # The grid on a third of the rows: the choice of two numbers does not need them all.
    search = GridSearchCV(
        make_pipeline(StandardScaler(), SVC()),
        {"svc__C": [1.0, 10.0, 100.0], "svc__gamma": [0.25 / z_train.shape[1], "scale", 0.2]},
        cv=3,
        n_jobs=2,
        refit=False,
    ).fit(z_train[::3], s_train[::3])
    svm = make_pipeline(StandardScaler(), SVC()).set_params(**search.best_params_)
    return {
        "forest": float(forest.score(z_test, s_test)),
        "rbf_svm": float(svm.fit(z_train, s_train).score(z_test, s_test)),
    }


def run(x, y, s, *, objective, weight, scaling, seed=0, **settings) -> tuple[FitResult, dict]:
    """Trains on one split and attacks what is released."""
    train, test = split(s, seed)
    if scaling == "standardised":
        x = (x - x[train].mean(0)) / np.maximum(x[train].std(0), 1e-6)
    start = time.perf_counter()
    result = fit(
        x[train], y[train], s[train], objective=objective, privacy_weight=weight, seed=seed, **settings
    )
    seconds = time.perf_counter() - start
    scores = {
        "activity": result.score(x[test], y[test]),
        **attack(result.encoder(x[train]), s[train], result.encoder(x[test]), s[test]),
        "majority": float(np.bincount(s[test]).max() / len(test)),
        "epochs": len(result.history.ran),
        "seconds": round(seconds, 1),
        "status": "collapsed" if result.collapsed else result.status,
    }
    return result, scores


def main() -> None:
    """Reads the arguments, prints one line a weight."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--objective", default="mmd")
    parser.add_argument("--weight", type=float, nargs="+", default=[4.0])
    parser.add_argument("--scaling", choices=["standardised", "given"], default="standardised")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--archive", type=pathlib.Path, default=None)
    args = parser.parse_args()
    x, y, s = read_har(args.archive or data_folder() / "UCI_HAR_Dataset.zip")
    for weight in args.weight:
        _, scores = run(
            x, y, s, objective=args.objective, weight=weight, scaling=args.scaling, seed=args.seed
        )
        shown = " ".join(
            f"{name}={value:.4f}" if isinstance(value, float) else f"{name}={value}"
            for name, value in scores.items()
        )
        print(f"{args.objective} weight={weight:g} {args.scaling} {shown}", flush=True)


if __name__ == "__main__":
    main()
