"""Training of the three networks (Algorithm 1): one gradient, one scan, a member as arrays."""

from privjax.training.data import Attribute, Task, TrainData, make_data
from privjax.training.fit import FitResult, fit, prepare
from privjax.training.loop import History, no_history, train_epochs
from privjax.training.loss import Batch, Losses, total_loss, utility_loss
from privjax.training.monitor import (
    Measures,
    effective_rank,
    live_units,
    measure,
    ridge_probe,
    utility_score,
)
from privjax.training.objectives import Objective, Schedule, make_objective
from privjax.training.state import (
    CONVERGED,
    DIVERGED,
    FINISHED,
    RUNNING,
    STATUS_NAMES,
    Hyperparameters,
    TrainConfig,
    TrainState,
    hyperparameters,
    init_state,
)
from privjax.training.threads import one_blas_thread

__all__ = [
    "CONVERGED",
    "DIVERGED",
    "FINISHED",
    "RUNNING",
    "STATUS_NAMES",
    "Attribute",
    "Batch",
    "FitResult",
    "History",
    "Hyperparameters",
    "Losses",
    "Measures",
    "Objective",
    "Schedule",
    "Task",
    "TrainConfig",
    "TrainData",
    "TrainState",
    "effective_rank",
    "fit",
    "hyperparameters",
    "init_state",
    "live_units",
    "make_data",
    "make_objective",
    "measure",
    "no_history",
    "one_blas_thread",
    "prepare",
    "ridge_probe",
    "total_loss",
    "train_epochs",
    "utility_loss",
    "utility_score",
]
