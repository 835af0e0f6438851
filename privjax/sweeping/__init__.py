"""A whole trade-off curve at once: many members trained side by side, each kept on disk."""

from privjax.sweeping.records import (
    DataRecord,
    LossRecord,
    MemberRecord,
    SweepConfig,
    SweepRun,
    UtilityRecord,
)
from privjax.sweeping.run import SweepResult, sweep
from privjax.sweeping.store import load_encoder, load_history, load_results
from privjax.training import History

__all__ = [
    "DataRecord",
    "History",
    "LossRecord",
    "MemberRecord",
    "SweepConfig",
    "SweepResult",
    "SweepRun",
    "UtilityRecord",
    "load_encoder",
    "load_history",
    "load_results",
    "sweep",
]
