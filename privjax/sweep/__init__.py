"""A whole trade-off curve at once: many members trained side by side, kept safe on disk."""

from privjax.sweep.results import Encoder, load_encoder, load_history, load_results
from privjax.sweep.run import SweepResult, sweep

__all__ = ["Encoder", "SweepResult", "load_encoder", "load_history", "load_results", "sweep"]
