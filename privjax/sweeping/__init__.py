"""A whole trade-off curve at once: many members trained side by side, each kept on disk."""

from privjax.sweeping.records import MemberRecord, SweepRun
from privjax.sweeping.run import SweepResult, sweep
from privjax.sweeping.store import load_encoder, load_history, load_results
from privjax.training import History

__all__ = [
    "History",
    "MemberRecord",
    "SweepResult",
    "SweepRun",
    "load_encoder",
    "load_history",
    "load_results",
    "sweep",
]
