"""Attackers on released rows: numpy in, a report out; no parameters, no gradients.

`privjax.audit` is the function of that name; the modules of this package are reached with
`from privjax.auditing import ...`.
"""

from privjax.auditing.pareto import Curve, Mean, Point, pareto
from privjax.auditing.report import AttributeReport, AuditReport
from privjax.auditing.run import audit
from privjax.auditing.sweep import audit_sweep

__all__ = [
    "AttributeReport",
    "AuditReport",
    "Curve",
    "Mean",
    "Point",
    "audit",
    "audit_sweep",
    "pareto",
]
