"""Attackers on released rows: NumPy arrays in, a report out."""

from privjax.auditing.attackers import ATTACKERS, Attacker
from privjax.auditing.audits import audit
from privjax.auditing.report import Attack, AttributeReport, AuditReport, IndependenceTest
from privjax.auditing.scores import Score
from privjax.auditing.sweep_audits import audit_sweep, load_reports

__all__ = [
    "ATTACKERS",
    "Attack",
    "Attacker",
    "AttributeReport",
    "AuditReport",
    "IndependenceTest",
    "Score",
    "audit",
    "audit_sweep",
    "load_reports",
]
