"""RBF SVM: libsvm on kernels computed once, settings found by a race, votes counted by products."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from privjax.auditing.folds import race, tunable
from privjax.auditing.gaussian import gaussian, squared_distances
from privjax.auditing.model import Model, Task

PENALTIES = (0.1, 1.0, 10.0, 100.0)
BANDWIDTHS = (0.25, 1.0, 4.0)  # gamma times the width of z; 1 is scikit-learn's "scale"
ROUGH = 0.1  # libsvm's tolerance while settings are compared; the chosen one is fitted to FINE
FINE = 1e-3
DOUBT = 0.02  # a decision this far from zero is half a vote
PIECE = 2048  # rows predicted at a time


def fit_rbf_svm(task: Task, *, seed: int, threads: int = 1) -> Model:
    """The SVM with the Gaussian kernel; its penalty and bandwidth by 5-fold cross-validation.

    Args:
      task: what to learn from.
      seed: of folds and samples.
      threads: folds at a time; the numbers do not depend on it.
    """
    # By class, as one class against another then reads two runs of a kernel's row.
    order = np.argsort(task.target, kind="stable")
    z, s, k = task.z[order], task.target[order], task.num_classes
    width = z.shape[1]
    grid = [(penalty, times / width) for times in BANDWIDTHS for penalty in PENALTIES]
    chosen, score, notes = (10.0, 1.0 / width), None, ("too few rows a class to tune",)
    rows, heats = 0, 0
    if tunable(s):

        def judge(settings, rows, folds):
            return _right(z[rows], s[rows], k, settings, folds, threads)

        found = race(grid, judge, s, seed=seed)
        chosen, score, rows, heats, notes = found.setting, found.score, found.rows, found.heats, ()
    penalty, gamma = chosen
    machine = fit_votes(gaussian(squared_distances(z, z), gamma), s, k, penalty=penalty, tolerance=FINE)

    def predict(new: np.ndarray) -> np.ndarray:
        pieces = [new[i : i + PIECE] for i in range(0, max(len(new), 1), PIECE)]
        return np.concatenate([machine(gaussian(squared_distances(p, z), gamma)) for p in pieces])

    settings = {"C": penalty, "gamma": gamma, "cv_accuracy": score, "cv_rows": rows, "cv_heats": heats}
    return Model(predict, settings, notes)


def _right(
    z: np.ndarray,
    s: np.ndarray,
    k: int,
    settings: Sequence[tuple[float, float]],
    folds: np.ndarray,
    threads: int,
) -> np.ndarray:
    """Whether each held-out row is guessed, for each (penalty, gamma)."""
    right = np.zeros((len(settings), len(s)))
    distances = squared_distances(z, z)
    with ThreadPoolExecutor(threads) as pool:
        for gamma in sorted({gamma for _, gamma in settings}):
            kernel = gaussian(distances, gamma)
            mine = [i for i, (_, g) in enumerate(settings) if g == gamma]
            penalties = [settings[i][0] for i in mine]

            def one_fold(fold: int, kernel=kernel, mine=mine, penalties=penalties) -> None:
                held, rest = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
                inner = kernel[np.ix_(rest, rest)].astype(np.float64)
                outer = kernel[np.ix_(held, rest)]
                right[np.ix_(mine, held)] = _hits(inner, outer, s[rest], s[held], k, penalties)

            # libsvm works outside of the interpreter's lock.
            list(pool.map(one_fold, range(folds.max() + 1)))
    return right


def _hits(
    inner: np.ndarray,
    outer: np.ndarray,
    s: np.ndarray,
    s_held: np.ndarray,
    k: int,
    penalties: Sequence[float],
) -> np.ndarray:
    """Whether held-out rows are guessed, for each penalty, from one fold's kernels."""
    hits = np.zeros((len(penalties), len(s_held)))
    machine, found = None, np.zeros(len(s_held))
    for i in np.argsort(penalties, kind="stable"):
        # No multiplier at its bound: every larger penalty has the same solution.
        if machine is None or machine.bounded:
            machine = fit_votes(inner, s, k, penalty=penalties[i], tolerance=ROUGH)
            found = machine(outer).argmax(1) == s_held
        hits[i] = found
    return hits


class Votes:
    """A multi-class SVM as arrays: scores of rows from their kernel with the training rows."""

    def __init__(self, machine, classes: np.ndarray, num_classes: int, penalty: float):
        self.bounded = bool(np.abs(machine.dual_coef_).max(initial=0.0) >= penalty * (1 - 1e-6))
        self._classes, self._num_classes = classes, num_classes
        self._support = machine.support_
        # libsvm's own signs: the public ones are turned round for two classes.
        self._weights = machine._dual_coef_.astype(np.float32)
        self._intercepts = machine._intercept_.astype(np.float32)
        self._ends = np.cumsum(np.r_[0, machine.n_support_])

    def decisions(self, kernel: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
        """For each two classes i < j the decision between them, above zero for i.

        Args:
          kernel: of new rows with all training rows [m, n].
        """
        count, ends = len(self._classes), self._ends
        # parts[i][:, j]: what the support of class i gives to the decision between i and another.
        parts = [
            kernel[:, self._support[ends[i] : ends[i + 1]]] @ self._weights[:, ends[i] : ends[i + 1]].T
            for i in range(count)
        ]
        pairs = ((i, j) for i in range(count) for j in range(i + 1, count))
        for pair, (i, j) in enumerate(pairs):
            yield i, j, parts[i][:, j - 1] + parts[j][:, i] + self._intercepts[pair]

    def __call__(self, kernel: np.ndarray) -> np.ndarray:
        """Votes of each class over all others, sum_j f_ij / (|f_ij| + DOUBT).

        A decision near zero counts as less than a whole vote, which tells more than counting: ties are
        many among many classes.
        """
        votes = np.zeros((len(kernel), len(self._classes)))
        for i, j, decision in self.decisions(kernel):
            vote = decision / (np.abs(decision) + DOUBT)
            votes[:, i] += vote
            votes[:, j] -= vote
        scores = np.full((len(kernel), self._num_classes), -float(len(self._classes)))
        scores[:, self._classes] = votes
        return scores


def fit_votes(kernel: np.ndarray, s: np.ndarray, num_classes: int, *, penalty: float, tolerance: float):
    """libsvm, one class against one, on a kernel of training rows [n, n]; classes may be missing."""
    from sklearn.svm import SVC

    classes = np.unique(s)
    if len(classes) == 1:
        return _Only(int(classes[0]), num_classes)
    machine = SVC(C=penalty, kernel="precomputed", tol=tolerance, cache_size=500)
    return Votes(machine.fit(kernel, s), classes, num_classes, penalty)


class _Only:
    """The machine for training rows of one class."""

    bounded = False

    def __init__(self, code: int, num_classes: int):
        self._scores = np.eye(num_classes)[code]

    def __call__(self, kernel: np.ndarray) -> np.ndarray:
        return np.tile(self._scores, (len(kernel), 1))
