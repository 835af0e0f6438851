"""What an attacker is given and what it gives back."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np


class Task(NamedTuple):
    """Training rows, and nothing else: what is not here cannot influence an attacker.

    Attributes:
      z: standardised rows [n, d], float64.
      target: class numbers [n], every one of 0 ... num_classes - 1 present; or reals [n].
      num_classes: 0 for reals.
    """

    z: np.ndarray
    target: np.ndarray
    num_classes: int


class Model(NamedTuple):
    """A fitted attacker.

    Attributes:
      predict: rows [m, d] to scores [m, num_classes], the largest being the guess; or to reals [m].
      settings: what was chosen, as plain values.
      notes: what could not be done.
    """

    predict: Callable[[np.ndarray], np.ndarray]
    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def constant_model(task: Task, why: str) -> Model:
    """Guesses the largest class, or the mean: all that can be learnt where z or s never changes."""
    if task.num_classes:
        guess = np.bincount(task.target, minlength=task.num_classes) / max(len(task.target), 1)
        return Model(lambda rows: np.tile(guess, (len(rows), 1)), {}, (why,))
    mean = float(task.target.mean())
    return Model(lambda rows: np.full(len(rows), mean), {}, (why,))
