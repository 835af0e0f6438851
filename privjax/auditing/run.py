"""The audit of one release."""

import contextlib
import time
import warnings
from collections.abc import Iterator, Sequence

from numpy.typing import ArrayLike

from privjax.auditing.adversaries import Adversaries, Adversary, choose, with_threads
from privjax.auditing.attack import Attack, attack
from privjax.auditing.context import chance, confidence, label_alone, majority
from privjax.auditing.folds import NUM_FOLDS
from privjax.auditing.inputs import PARTS, Labels, Problem, Target, make_problem
from privjax.auditing.network import WIDTHS
from privjax.auditing.report import AttributeReport, AuditReport


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
    adversaries: Adversaries = "all",
    network_widths: Sequence[int] = WIDTHS,
    seed: int = 0,
    n_jobs: int | None = None,
) -> AuditReport:
    """Attacks released rows: how much of s do fresh attackers learn from z?

    Attackers are fitted, and everything is chosen, on the training rows; test rows are scored and do
    nothing else. z is standardised by its training rows first.

    Args:
      z_train: released rows [n, d] that attackers learn from.
      s_train: the private variable: integers or strings [n] are classes, reals are continuous, each
        column of a real matrix is a variable; or a dict of several.
      z_test: released rows that attackers are judged on.
      s_test: their private variable.
      y_train: utility label, for what it alone gives away.
      y_test: the same of the test rows.
      z_validation: more released rows to judge on, for choices such as an operating point.
      s_validation: their private variable.
      adversaries: "all", "paper" (the four of the paper; for a continuous variable the five
        regressors) or "fast"; names; scikit-learn estimators; a list of these, or a dict of
        estimators by name.
      network_widths: hidden widths of the network attacker: those of the privacy discriminator.
      seed: of folds, forests, networks and intervals; the same gives the same numbers, whatever n_jobs.
      n_jobs: attackers at a time, as in joblib; `joblib.parallel_config` may put them elsewhere.
    """
    from joblib import Parallel, delayed, effective_n_jobs

    start = time.perf_counter()
    if not hasattr(seed, "__index__") or seed < 0:
        raise ValueError(f"seed must be a whole number, not negative, got {seed!r}.")
    problem = make_problem(
        {"train": z_train, "test": z_test, "validation": z_validation},
        {"train": s_train, "test": s_test, "validation": s_validation},
        {"train": y_train, "test": y_test},
    )
    threads = min(effective_n_jobs(n_jobs), NUM_FOLDS)  # pyright: ignore[reportArgumentType]
    jobs = [(t, with_threads(a, threads)) for t, a in plan(problem, adversaries, network_widths)]
    # The longest first, so that no worker is left with it at the end; networks stay in this process.
    away = sorted(
        (i for i, (_, adversary) in enumerate(jobs) if adversary.fit is not None),
        key=lambda i: jobs[i][1].name not in ("rbf_svm", "boosting", "kernel_ridge"),
    )
    found: dict[int, Attack] = {}
    with quiet():
        results = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator_unordered")(
            delayed(_numbered)(i, problem, jobs[i][0], jobs[i][1], seed) for i in away
        )
        for i, (target, adversary) in enumerate(jobs):
            if adversary.fit is None:
                found[i] = attack(problem, target, adversary, seed=seed)
        found.update(result for result in results if result is not None)
    attacks = [(jobs[i][0], found[i]) for i in range(len(jobs))]
    return assemble(problem, attacks, seed=seed, start=start)


def plan(
    problem: Problem, adversaries: Adversaries, network_widths: Sequence[int] = WIDTHS
) -> list[tuple[Target, Adversary]]:
    """Every private variable with every attacker that suits it."""
    jobs = []
    for target in problem.targets:
        chosen = choose(adversaries, discrete=target.discrete, network_widths=network_widths)
        if not chosen:
            kind = "classes" if target.discrete else "a continuous variable"
            raise ValueError(f"adversaries has none that suits {target.name}, which is {kind}.")
        jobs += [(target, adversary) for adversary in chosen]
    return jobs


def assemble(
    problem: Problem, attacks: Sequence[tuple[Target, Attack]], *, seed: int, start: float
) -> AuditReport:
    """The report of attacks that are done, with what stands beside them."""
    attributes = {
        target.name: AttributeReport(
            name=target.name,
            discrete=target.discrete,
            num_classes=target.num_classes,
            chance=chance(target),
            majority=majority(problem, target),
            label_alone=label_alone(problem, target, seed=seed),
            confidence=confidence(problem, target, seed=seed),
            attacks=tuple(attack for of, attack in attacks if of.name == target.name),
            notes=target.notes,
        )
        for target in problem.targets
    }
    rows = {part: len(problem.z.get(part, ())) for part in PARTS}
    return AuditReport(attributes, rows, seed, time.perf_counter() - start, problem.notes)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """One BLAS thread, for the same numbers on every number of cores; no words that the report has.

    Entered once around all the work and not by each thread: the warning filters are the process's.
    """
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The number of unique classes is greater than 50%")
        yield


def _numbered(
    i: int, problem: Problem, target: Target, adversary: Adversary, seed: int
) -> tuple[int, Attack]:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # OpenMP's is a thread's own, and a worker may be another process
        return i, attack(problem, target, adversary, seed=seed)
