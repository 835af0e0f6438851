"""Report of a sweep: one page with its trade-off curve, audits and encoders."""

from privjax.reporting.page import report

__all__ = ["report"]
