"""The Schedule: what happened when, whether simulated or emulated.

Audit, comparison, plots and reports know only this type. Must not know who made it.
"""

from emu.schedule.audit import AuditReport, Violation, audit
from emu.schedule.critical_chain import Cause, CriticalChain, Link, critical_chain
from emu.schedule.crowd import Crowd
from emu.schedule.schedule import RateHistory, Schedule

__all__ = [
    "AuditReport",
    "Cause",
    "CriticalChain",
    "Crowd",
    "Link",
    "RateHistory",
    "Schedule",
    "Violation",
    "audit",
    "critical_chain",
]
