"""One page about a sweep: curve, audits, encoders; `privjax.report` is the function of that name."""

from privjax.reporting.write import report

__all__ = ["report"]
