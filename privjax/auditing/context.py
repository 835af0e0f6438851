"""What stands beside the attacks: chance, majority, what y alone tells, the permutation test."""

from typing import Any

import numpy as np

from privjax.auditing.attack import score
from privjax.auditing.folds import sample_rows
from privjax.auditing.inputs import Problem, Target, derived_seed
from privjax.auditing.scores import Score

TEST_ROWS = 1000
PERMUTATIONS = 499
BINS = 20


def chance(target: Target) -> float:
    """Accuracy of a guess at random; R^2 of the mean."""
    return 1.0 / target.num_classes if target.discrete else 0.0


def majority(problem: Problem, target: Target) -> float | None:
    """Share of test rows in the class that is largest in training; None for a continuous variable."""
    if not target.discrete:
        return None
    largest = np.bincount(problem.part(target, "train")[1]).argmax()
    return float((problem.part(target, "test")[1] == largest).mean())


def label_alone(problem: Problem, target: Target, *, seed: int) -> dict[str, Score | None] | None:
    """Scores of an attacker who sees y alone: no release that keeps y can score less in the end.

    The guess is the largest class (or the mean) among the training rows with the same y; a continuous
    y is cut into 20 equal parts of the training rows.
    """
    if "train" not in problem.y or "test" not in problem.y:
        return None
    train, test = problem.part(target, "train"), problem.part(target, "test")
    cells = _cells(problem.y["train"], problem.y["test"])
    rows = problem.rows[target.name]
    ours, theirs = cells[0][rows["train"]], cells[1][rows["test"]]
    size = int(max(cells[0].max(), cells[1].max())) + 1
    if target.classes is None:
        level = float(train[1].mean())
        count = np.bincount(ours, minlength=size)
        # Half a row at the overall mean, for parts without training rows.
        table = (np.bincount(ours, weights=train[1], minlength=size) + 0.5 * level) / (count + 0.5)
        guess = np.where(theirs < 0, level, table[theirs])
    else:
        k = len(target.classes)
        share = np.bincount(train[1], minlength=k) / len(train[1])
        table = np.tile(0.5 * share, (size, 1))
        np.add.at(table, (ours, train[1]), 1.0)
        table /= table.sum(1, keepdims=True)
        guess = np.where((theirs < 0)[:, None], share, table[theirs])
    return score(guess, test[1], target, seed=seed)


def _cells(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the parts that y cuts the rows into; -1 for a label that is in no training row."""
    if train.ndim > 1:
        columns = [_cells(*each) for each in zip(train.T, test.T, strict=True)]
        cells = [np.stack(part, axis=1) for part in zip(*columns, strict=True)]
        names, ours = np.unique(cells[0], axis=0, return_inverse=True)
        if len(names) > BINS * 50:  # too many to learn from: by the first column alone
            return columns[0]
        known = {tuple(name): i for i, name in enumerate(names)}
        return ours.reshape(-1), np.array([known.get(tuple(row), -1) for row in cells[1]])
    if np.issubdtype(train.dtype, np.floating):
        finite = train[np.isfinite(train)]
        edges = np.unique(np.quantile(finite, np.linspace(0, 1, BINS + 1)[1:-1])) if len(finite) else finite
        # A missing y tells as well: it has a part of its own.
        ours, theirs = (
            np.where(np.isnan(y), len(edges) + 1, np.searchsorted(edges, y)) for y in (train, test)
        )
        return ours, theirs
    names, ours = np.unique(train, return_inverse=True)
    place = np.minimum(np.searchsorted(names, test), len(names) - 1)
    return ours, np.where(names[place] == test, place, -1)


def confidence(problem: Problem, target: Target, *, seed: int) -> dict[str, Any]:
    """`privacy_confidence` of z against s on test rows, at most 1000 of them."""
    import jax
    import jax.numpy as jnp

    from privjax.independence import privacy_confidence

    z, codes = problem.part(target, "test")
    rows = sample_rows(codes, TEST_ROWS, seed=derived_seed(seed, "confidence", target.name))
    z, codes = z[rows], codes[rows]
    found: dict[str, Any] = {"p_value": None, "statistic": None, "rows": len(rows), "note": None}
    if not z.shape[1]:
        return {**found, "p_value": 1.0, "note": "z is constant in training rows"}
    if len(np.unique(codes)) < 2 or len(rows) < 3:
        return {**found, "note": "too few test rows, or a single value of s among them"}
    try:
        if target.discrete:
            p = jnp.asarray(np.unique(codes, return_inverse=True)[1], jnp.int32)
        else:
            p = jnp.asarray(((codes - codes.mean()) / codes.std())[:, None], jnp.float32)
        key = jax.random.key(derived_seed(seed, "permutations", target.name))
        result = privacy_confidence(jnp.asarray(z, jnp.float32), p, key=key, num_permutations=PERMUTATIONS)
        found.update(p_value=float(result.p_value), statistic=float(result.statistic))
    except Exception as error:  # the attacks stand without it
        found["note"] = f"{type(error).__name__}: {error}"
    return found
