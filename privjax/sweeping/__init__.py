"""A whole trade-off curve at once: many members trained side by side, kept safe on disk."""

from privjax.sweeping.results import Encoder, load_encoder, load_history, load_results
from privjax.sweeping.run import SweepResult, sweep

__all__ = ["Encoder", "SweepResult", "load_encoder", "load_history", "load_results", "sweep"]
