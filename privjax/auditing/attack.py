"""One attacker against one private variable: fitted on training rows, then scored on the others."""

import dataclasses
import time
from typing import Any

import numpy as np

from privjax.auditing.adversaries import Adversary
from privjax.auditing.folds import sample_rows
from privjax.auditing.inputs import Problem, Target, derived_seed
from privjax.auditing.model import Model, Task, constant_model
from privjax.auditing.network import fit_networks
from privjax.auditing.scores import Score, classification_scores, regression_scores


@dataclasses.dataclass(frozen=True)
class Attack:
    """What one attacker reached.

    Attributes:
      name: the attacker.
      group: "paper", "other" or "user".
      scores: by name, each a `Score`, or None where it is not defined.
      validation: the same on validation rows; empty without them.
      settings: what was chosen, on training rows.
      seconds: spent on fitting and scoring.
      notes: what it could not do as meant.
      failed: why there are no scores, or None.
    """

    name: str
    group: str
    scores: dict[str, Score | None]
    validation: dict[str, Score | None]
    settings: dict[str, Any]
    seconds: float
    notes: tuple[str, ...] = ()
    failed: str | None = None

    def value(self, score: str, *, part: str = "test") -> float | None:
        """One of the scores as a number, or None."""
        found = (self.scores if part == "test" else self.validation).get(score)
        return None if found is None else found.value


def attack(problem: Problem, target: Target, adversary: Adversary, *, seed: int) -> Attack:
    """Fits and scores one attacker; whatever goes wrong is in the result, never raised."""
    return attack_many([problem], [target], adversary, seed=seed)[0]


def attack_many(
    problems: list[Problem],
    targets: list[Target],
    adversary: Adversary,
    *,
    seed: int,
    lanes: int = 1,
) -> list[Attack]:
    """One attacker against several releases; networks are trained side by side.

    Args:
      problems: the releases.
      targets: the private variable of each.
      adversary: who attacks.
      seed: of the audit.
      lanes: networks trained in one call.
    """
    start = time.perf_counter()
    tasks, noted = [], []
    for problem, target in zip(problems, targets, strict=True):
        task, notes = training_task(problem, target, adversary, seed=seed)
        tasks.append(task)
        noted.append(notes)
    seeds = [derived_seed(seed, adversary.name, target.name) for target in targets]
    models: list[Model | Exception] = [_trivial(task) or _pending for task in tasks]
    waiting = [i for i, model in enumerate(models) if model is _pending]
    if adversary.fit is None and waiting:
        try:
            with _unflagged():
                fitted = fit_networks(
                    [tasks[i] for i in waiting],
                    seeds=[seeds[i] for i in waiting],
                    widths=adversary.widths,
                    lanes=lanes,
                )
        except Exception as error:  # the audit goes on without it, and says so
            fitted = [error] * len(waiting)
        for i, model in zip(waiting, fitted, strict=True):
            models[i] = model
    elif adversary.fit is not None:
        for i in waiting:
            try:
                with _unflagged():
                    models[i] = adversary.fit(tasks[i], seed=seeds[i])
            except Exception as error:  # the same
                models[i] = error
    shared = (time.perf_counter() - start) / max(len(problems), 1)
    return [
        _scored(problem, target, adversary, model, notes, seed, shared)
        for problem, target, model, notes in zip(problems, targets, models, noted, strict=True)
    ]


def training_task(
    problem: Problem, target: Target, adversary: Adversary, *, seed: int
) -> tuple[Task, tuple[str, ...]]:
    """The training rows of one private variable, at most as many as the attacker takes."""
    z, codes = problem.part(target, "train")
    notes = ()
    if len(z) > adversary.max_rows:
        rows = sample_rows(codes, adversary.max_rows, seed=derived_seed(seed, "rows", target.name))
        # A class may lose its last row to the sample; the codes must stay without gaps.
        missing = np.setdiff1d(codes, codes[rows]) if target.discrete else []
        rows = np.union1d(rows, [np.flatnonzero(codes == code)[0] for code in missing]).astype(int)
        notes = (f"trained on a sample of {len(rows)} of {len(z)} rows",)
        z, codes = z[rows], codes[rows]
    return Task(z, codes, 0 if target.classes is None else len(target.classes)), notes


def _trivial(task: Task) -> Model | None:
    """Where there is nothing to learn from, or nothing to learn."""
    if not task.z.shape[1]:
        return constant_model(task, "z is constant in training rows: the best constant guess")
    if task.num_classes == 1 or (not task.num_classes and not np.ptp(task.target) > 0):
        return constant_model(task, "s is constant in training rows: that constant is the guess")
    if len(task.target) < 2:
        return constant_model(task, "a single training row: its value is the guess")
    return None


_pending = Model(lambda rows: rows, {})


def _unflagged():
    """An attacker is judged by its predictions, not by what its arithmetic flagged on the way.

    Where warnings are errors, or NumPy raises, an overflow that harms nothing would silence an attacker, and
    a release would look the more private for it. Some BLAS kernels flag numbers that they never use.
    """
    return np.errstate(all="ignore")


def _scored(
    problem: Problem,
    target: Target,
    adversary: Adversary,
    model: Model | Exception,
    notes: tuple[str, ...],
    seed: int,
    seconds: float,
) -> Attack:
    start = time.perf_counter()
    failed, found = None, {"test": {}, "validation": {}}
    settings: dict[str, Any] = {}
    try:
        if isinstance(model, Exception):
            raise model
        settings, notes = dict(model.settings), (*notes, *model.notes)
        for part in found:
            if part in problem.z:
                z, codes = problem.part(target, part)
                with _unflagged():
                    predicted = model.predict(z)
                found[part] = score(predicted, codes, target, seed=seed)
    except Exception as error:  # one attacker's trouble is not the audit's
        failed, found = f"{type(error).__name__}: {error}", {"test": {}, "validation": {}}
    seconds += time.perf_counter() - start
    return Attack(
        adversary.name, adversary.group, found["test"], found["validation"], settings, seconds, notes, failed
    )


def score(predicted: np.ndarray, codes: np.ndarray, target: Target, *, seed: int) -> dict[str, Score | None]:
    """Scores of predictions, with intervals from draws that every attacker shares."""
    seed = derived_seed(seed, "interval", target.name)
    if np.isnan(predicted).any():
        raise ValueError("the predictions are not numbers")
    if target.discrete:
        return classification_scores(predicted, codes, seed=seed)
    return regression_scores(predicted, codes, seed=seed)
