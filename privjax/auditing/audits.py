"""The audit of one release."""

import contextlib
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privjax.auditing.attackers import Attacker, Attackers, select_attackers
from privjax.auditing.inputs import (
    PARTS,
    AttackTask,
    FittedAttack,
    Labels,
    PrivateVariable,
    Release,
    derived_seed,
    make_release,
    sample_rows,
)
from privjax.auditing.report import Attack, AttributeReport, AuditReport, IndependenceTest
from privjax.auditing.scores import Scores, classification_scores, regression_scores

_TESTED_ROWS = 1000  # of the permutation test
_PERMUTATIONS = 499
_BLOCK_ROWS = 4096  # rows predicted at a time


Job = tuple[PrivateVariable, Attacker]


def audit(
    z_train: ArrayLike,
    s_train: Labels,
    z_test: ArrayLike,
    s_test: Labels,
    *,
    y_train: ArrayLike | None = None,
    y_test: ArrayLike | None = None,
    z_validation: ArrayLike | None = None,
    s_validation: Labels | None = None,
    attackers: Attackers = "all",
    network_widths: Sequence[int] | None = None,
    seed: int = 0,
    n_jobs: int | None = None,
) -> AuditReport:
    """Attack released rows: measure how well fresh attackers predict s from z.

    Attackers are fitted, and their settings chosen, on training rows. Test rows are scored, and used for
    nothing else. z is standardised by its training rows first.

    Args:
      z_train: Released rows [n, d] that attackers learn from.
      s_train: Their private variable: integers or strings [n] are classes, reals are continuous, each column
        of a real matrix is a variable; or a dict of several variables.
      z_test: Released rows that attackers are scored on.
      s_test: Their private variable.
      y_train: Utility label of the training rows, for the baseline of an attacker that is given y alone.
      y_test: Utility label of the test rows.
      z_validation: Released rows for a second set of scores, for choices such as an operating point.
      s_validation: Their private variable.
      attackers: "all", "paper" (the four of the paper; for a continuous variable, regressors of their kind)
        or "fast"; names; scikit-learn estimators; a list of these, or a dict of estimators by name.
      network_widths: Hidden widths of the attacker "network"; by default 1024, as in the discriminator.
      seed: Seed of folds, forests, networks and intervals. The numbers do not depend on `n_jobs`.
      n_jobs: Attackers at a time, as in joblib; `joblib.parallel_config` chooses another backend.

    Returns:
      The report. It names attackers that failed, with their error.

    Example:
      >>> import numpy as np
      >>> rng = np.random.default_rng(0)
      >>> s = rng.integers(0, 2, 300)
      >>> z = rng.normal(size=(300, 3)) + 2.0 * s[:, None]
      >>> report = audit(z[:200], s[:200], z[200:], s[200:], attackers=["linear_svm", "neighbours"])
      >>> report.leakage > 0.9
      True
    """
    seed = check_seed(seed)
    release = make_release(
        {"train": z_train, "test": z_test, "validation": z_validation},
        {"train": s_train, "test": s_test, "validation": s_validation},
        {"train": y_train, "test": y_test},
    )
    jobs = plan_jobs(release, attackers, network_widths)
    with quiet_attackers():
        return audit_release(release, jobs, seed=seed, n_jobs=n_jobs)


def plan_jobs(
    release: Release, attackers: Attackers, network_widths: Sequence[int] | None = None
) -> list[Job]:
    """Pair every private variable with every attacker that suits it."""
    jobs = []
    for variable in release.variables:
        selected = select_attackers(attackers, discrete=variable.discrete, network_widths=network_widths)
        if not selected:
            kind = "classes" if variable.discrete else "continuous"
            raise ValueError(f"attackers must suit {variable.name}, which is {kind}, got {attackers!r}.")
        jobs += [(variable, attacker) for attacker in selected]
    return jobs


def audit_release(release: Release, jobs: Sequence[Job], *, seed: int, n_jobs: int | None = 1) -> AuditReport:
    """Run all jobs on a release, and add the baselines and the tests of independence."""
    from joblib import Parallel, delayed, effective_n_jobs

    start = time.perf_counter()
    # The slowest first, so that no worker ends long after the others.
    order = sorted(range(len(jobs)), key=lambda i: -jobs[i][1].cost)
    threads = 1 if n_jobs == 1 else effective_n_jobs(n_jobs)  # pyright: ignore[reportArgumentType]
    found: Any = (attack(release, jobs[i], seed=seed) for i in order)
    if threads > 1:
        calls = (delayed(attack)(release, jobs[i], seed=seed, threads=threads) for i in order)
        found = Parallel(n_jobs=n_jobs, prefer="threads")(calls)
    attacks = dict(zip(order, found, strict=True))
    attributes = {
        variable.name: AttributeReport(
            name=variable.name,
            discrete=variable.discrete,
            num_classes=variable.num_classes,
            chance=1.0 / variable.num_classes if variable.discrete else 0.0,
            majority=_majority(release, variable),
            label_alone=_score_label_alone(release, variable, seed=seed),
            confidence=_test_independence(release, variable, seed=seed),
            attacks=tuple(attacks[i] for i, (of, _) in enumerate(jobs) if of.name == variable.name),
            notes=variable.notes,
        )
        for variable in release.variables
    }
    rows = {part: len(release.z.get(part, ())) for part in PARTS}
    return AuditReport(attributes, rows, seed, round(time.perf_counter() - start, 3), release.notes)


def attack(release: Release, job: Job, *, seed: int, threads: int = 1) -> Attack:
    """Fit and score one attacker. An error becomes part of the result, so that the audit goes on."""
    start, (variable, attacker) = time.perf_counter(), job
    scores: dict[str, Scores] = {"test": {}, "validation": {}}
    settings, notes, failed = {}, (), None
    try:
        # Attackers are judged by their predictions: an overflow must not end one, even if NumPy raises.
        with single_blas_thread(), np.errstate(all="ignore"):
            task, notes = make_task(release, job, seed=seed)
            options = {"widths": attacker.widths} if attacker.widths else {}
            options |= {"seed": derived_seed(seed, attacker.name, variable.name)}
            options |= {"threads": min(threads, attacker.threads)}
            fitted = _fit_constant(task) or attacker.fit(task, **options)
            settings, notes = fitted.settings, (*notes, *fitted.notes)
            for part in scores.keys() & release.z.keys():
                z, truth = release.rows(variable, part)
                blocks = [fitted.predict(z[i : i + _BLOCK_ROWS]) for i in range(0, len(z), _BLOCK_ROWS)]
                scores[part] = _score(np.concatenate(blocks), truth, variable, seed=seed)
    except Exception as error:  # whatever an attacker raises
        failed, scores = f"{type(error).__name__}: {error}", {"test": {}, "validation": {}}
    return Attack(
        name=attacker.name,
        group=attacker.group(discrete=variable.discrete) or "other",
        scores=scores["test"],
        validation=scores["validation"],
        settings=settings,
        seconds=round(time.perf_counter() - start, 3),
        notes=notes,
        failed=failed,
    )


def make_task(release: Release, job: Job, *, seed: int) -> tuple[AttackTask, tuple[str, ...]]:
    """Return the training rows of a job, at most as many as the attacker takes, and remarks."""
    (variable, attacker), notes = job, ()
    z, target = release.rows(variable, "train")
    task = AttackTask(z, target, variable.num_train_classes)
    if len(z) > attacker.max_rows:
        rows = sample_rows(target, attacker.max_rows, seed=derived_seed(seed, "rows", variable.name))
        if variable.discrete:  # a class that the sample lost keeps one row
            classes, first = np.unique(target, return_index=True)
            rows = np.union1d(rows, first[~np.isin(classes, target[rows])])
        notes = (f"trained on a sample of {len(rows)} of {len(z)} rows",)
        task = task.take(rows)
    return task, notes


def check_seed(seed: int) -> int:
    """Return the seed as an int, or refuse it."""
    if not hasattr(seed, "__index__") or seed < 0:
        raise ValueError(f"seed must be a whole number, not negative, got {seed!r}.")
    return int(seed)


def single_blas_thread() -> contextlib.AbstractContextManager:
    """Limit BLAS and OpenMP to one thread, so that any number of cores gives the same numbers."""
    import scipy.linalg  # noqa: F401  # its BLAS can be limited only once it is loaded
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)


@contextlib.contextmanager
def quiet_attackers() -> Iterator[None]:
    """Limit threads, and silence warnings that the report repeats.

    Both belong to the process, so this is entered once around all work and not in every thread alone.
    """
    from sklearn.exceptions import ConvergenceWarning

    with single_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The number of unique classes is greater than 50%")
        yield


def _fit_constant(task: AttackTask) -> FittedAttack | None:
    """Return a constant guess where there is nothing to learn from, or nothing to learn; None elsewhere."""
    if not task.z.shape[1]:
        note = "z is constant in training rows: the guess is the best constant"
    elif not np.ptp(task.target) > 0:
        note = "s is constant in training rows: the guess is that constant"
    else:
        return None
    if task.num_classes:
        guess = np.bincount(task.target, minlength=task.num_classes) / len(task.target)
    else:
        guess = task.target.mean()
    return FittedAttack(lambda rows: np.broadcast_to(guess, (len(rows), *np.shape(guess))), {}, (note,))


def _score(predicted: np.ndarray, truth: np.ndarray, variable: PrivateVariable, *, seed: int) -> Scores:
    """Score predictions; all attackers share the draws of the intervals."""
    if np.isnan(predicted).any():
        raise ValueError("the predictions must be numbers, got NaN.")
    scores = classification_scores if variable.discrete else regression_scores
    return scores(predicted, truth, seed=derived_seed(seed, "interval", variable.name))


def _majority(release: Release, variable: PrivateVariable) -> float | None:
    """Return the share of test rows in the largest training class; None for a continuous variable."""
    if not variable.discrete:
        return None
    largest = np.bincount(release.rows(variable, "train")[1]).argmax()
    return float((release.rows(variable, "test")[1] == largest).mean())


def _score_label_alone(release: Release, variable: PrivateVariable, *, seed: int) -> Scores | None:
    """Score an attacker that is given y alone: a decision tree with a leaf for every class of y.

    No release that keeps y can allow less. A leaf of a continuous y has a twentieth of the rows at least.
    """
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    if not release.y:
        return None
    (_, target), (_, truth) = (release.rows(variable, part) for part in ("train", "test"))
    y_train, y_test = (release.y[part][np.isfinite(variable.values[part])] for part in ("train", "test"))
    continuous = y_train.max() > len(y_train) / 10
    tree = DecisionTreeClassifier if variable.discrete else DecisionTreeRegressor
    model: Any = tree(min_samples_leaf=math.ceil(len(y_train) / 20) if continuous else 1, random_state=0)
    model.fit(y_train, target)
    guess = model.predict_proba(y_test) if variable.discrete else model.predict(y_test)
    return _score(np.asarray(guess), truth, variable, seed=seed)


def _test_independence(release: Release, variable: PrivateVariable, *, seed: int) -> IndependenceTest:
    """Test whether z is independent of s on test rows, at most 1000 of them."""
    import jax

    from privjax.independence import privacy_confidence

    z, values = release.rows(variable, "test")
    rows = sample_rows(values, _TESTED_ROWS, seed=derived_seed(seed, "confidence", variable.name))
    z, values = z[rows], values[rows]
    if not z.shape[1]:
        return IndependenceTest(1.0, None, len(rows), "z is constant in training rows")
    if len(np.unique(values)) < 2 or len(rows) < 3:
        return IndependenceTest(None, None, len(rows), "too few test rows, or a single value of s among them")
    if variable.discrete:
        p = np.unique(values, return_inverse=True)[1].astype(np.int32)
    else:
        p = ((values - values.mean()) / values.std())[:, None].astype(np.float32)
    key = jax.random.key(derived_seed(seed, "permutations", variable.name))
    try:
        found = privacy_confidence(z.astype(np.float32), p, key=key, num_permutations=_PERMUTATIONS)
    except Exception as error:  # the attacks stand without it
        return IndependenceTest(None, None, len(rows), f"{type(error).__name__}: {error}")
    p_value, statistic = (float(v) if np.isfinite(v) else None for v in (found.p_value, found.statistic))
    return IndependenceTest(p_value, statistic, len(rows))
