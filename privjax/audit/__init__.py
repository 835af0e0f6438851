"""Attackers on released rows: numpy in, a report out; no parameters, no gradients.

`privjax.audit` is the function of that name; the modules of this package are reached with
`from privjax.audit import ...`.
"""

from privjax.audit.pareto import Curve, Mean, Point, pareto
from privjax.audit.report import AttributeReport, AuditReport
from privjax.audit.run import audit
from privjax.audit.sweep import audit_sweep

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
