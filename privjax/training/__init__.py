"""Training of the three networks (Algorithm 1): one gradient, one scan, a member as arrays."""

from privjax.training.data import (
    Hyperparameters,
    Rates,
    TrainConfig,
    TrainData,
    check_positive_integer,
    check_rates,
    hyperparameters,
)
from privjax.training.fitting import FitResult, fit, one_blas_thread, prepare
from privjax.training.loop import (
    FINISHED,
    RUNNING,
    STATUS_NAMES,
    History,
    TrainState,
    init_state,
    no_history,
    train_epochs,
)
from privjax.training.loss import Losses, total_loss
from privjax.training.monitor import Measures, measure, utility_score

__all__ = [
    "FINISHED",
    "RUNNING",
    "STATUS_NAMES",
    "FitResult",
    "History",
    "Hyperparameters",
    "Losses",
    "Measures",
    "Rates",
    "TrainConfig",
    "TrainData",
    "TrainState",
    "check_positive_integer",
    "check_rates",
    "fit",
    "hyperparameters",
    "init_state",
    "measure",
    "no_history",
    "one_blas_thread",
    "prepare",
    "total_loss",
    "train_epochs",
    "utility_score",
]
