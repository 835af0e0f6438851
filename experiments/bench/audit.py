"""The audit against scikit-learn's `GridSearchCV`: the same grids and folds, time and strength in one run.

    python experiments/bench/audit.py            # HAR and digits; takes minutes, mostly for GridSearchCV
    python experiments/bench/audit.py --quick    # digits only

The comparison uses `GridSearchCV` over four penalties and three bandwidths for the RBF SVM, over four
penalties for the linear SVM, with five folds in two processes; a forest of 250 trees; and an `MLPClassifier`
of the discriminator's width. privjax runs `audit(..., attackers="paper")` on two threads. Both get the same
standardised rows. The releases are z of `nn_networks` trained with MMD, and the first principal components of
x, which leak.

Targets: five times faster for the four attackers together on HAR (8239 x 50, 30 classes), with the best
accuracy at most half a point lower. Seconds of the four overlap, so they do not add up to the total.
"""

import argparse
import os
import sys
import time
import warnings

import numpy as np
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from privjax import audit, datasets, fit

# The attackers of the paper and the grids that `audit` searches.
PAPER = ("linear_svm", "rbf_svm", "random_forest", "network")
LINEAR_PENALTIES = (0.01, 0.1, 1.0, 10.0)
PENALTIES = (0.1, 1.0, 10.0, 100.0)
BANDWIDTHS = (0.25, 1.0, 4.0)

Release = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def releases(name: str, *, epochs: int) -> dict[str, Release]:
    """Return released training and test rows of a data set, by encoder."""
    data = datasets.load(name, validation=0.0)
    (x, y, s), test = data.train, data.test
    private = fit(x, y, s, objective="mmd", privacy_weight=4.0, num_epochs=epochs)
    width = min(50, x.shape[1])
    pca = PCA(width, random_state=0).fit(x)
    encoders = {f"{name}, MMD": private.encoder, f"{name}, {width} PCs": pca.transform}
    return {key: (e(x), s, e(test.x), test.s) for key, e in encoders.items()}


def plain(release: Release) -> tuple[dict[str, float], dict[str, float]]:
    """Return the accuracy and the seconds of each of the four in scikit-learn."""
    z_train, s_train, z_test, s_test = release
    live = z_train.std(0) > 1e-6
    scaler = StandardScaler().fit(z_train[:, live])
    z_train, z_test = (np.asarray(scaler.transform(z[:, live])) for z in (z_train, z_test))
    gammas = [times / z_train.shape[1] for times in BANDWIDTHS]
    attackers = {
        "linear_svm": GridSearchCV(LinearSVC(), {"C": list(LINEAR_PENALTIES)}, cv=5, n_jobs=2),
        "rbf_svm": GridSearchCV(SVC(), {"C": list(PENALTIES), "gamma": gammas}, cv=5, n_jobs=2),
        "random_forest": RandomForestClassifier(250, n_jobs=2, random_state=0),
        "network": MLPClassifier((1024,), random_state=0),
    }
    accuracy, seconds = {}, {}
    for name, attacker in attackers.items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            accuracy[name] = float(attacker.fit(z_train, s_train).score(z_test, s_test))
        seconds[name] = time.perf_counter() - start
    return accuracy, seconds


def compare(key: str, release: Release) -> bool:
    """Print one release's rows of the table; return whether its targets are met."""
    start = time.perf_counter()
    report = audit(*release, attackers="paper", n_jobs=2)
    ours_total = time.perf_counter() - start
    ours = {a.name: a for a in report.attributes["s"].attacks}
    accuracy, seconds = plain(release)
    for name in PAPER:
        row = (f"{accuracy[name]:.4f}", f"{ours[name].value('accuracy'):.4f}")
        row = (*row, f"{seconds[name]:.1f}", f"{ours[name].seconds:.1f}")
        print(f"| {key} | {name} | " + " | ".join(row) + " |")
    best, found = max(accuracy.values()), report.leakage or 0.0
    total = sum(seconds.values())
    ratio = f"{ours_total:.1f}: **{total / ours_total:.1f}x**"
    print(f"| {key} | all four | {best:.4f} | {found:.4f} | {total:.1f} | {ratio} |", flush=True)
    return found >= best - 0.005 and (total / ours_total >= 5 or not key.startswith("har"))


def main() -> None:
    """Print a table; exit with 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="digits only")
    parser.add_argument("--only", default="", help="prefix of the releases to run, as 'har, 50'")
    parser.add_argument("--epochs", type=int, default=25, help="epochs of the private release")
    args = parser.parse_args()
    # The workers of GridSearchCV print the same warning in every fit.
    os.environ["PYTHONWARNINGS"] = "ignore"
    print("| release | attacker | accuracy, GridSearchCV | privjax | seconds, GridSearchCV | privjax |")
    print("|---|---|---|---|---|---|", flush=True)
    reached = []
    for name in ("digits",) if args.quick else ("digits", "har"):
        if name[: len(args.only)] != args.only[: len(name)]:
            continue
        for key, release in releases(name, epochs=args.epochs).items():
            if key.startswith(args.only):
                reached.append(compare(key, release))
    print(f"\ntargets met: {sum(reached)} of {len(reached)} releases")
    sys.exit(not all(reached))


if __name__ == "__main__":
    main()
