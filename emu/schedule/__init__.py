"""The Schedule: what happened when, whether simulated or emulated.

Audit, comparison, plots and reports know only this type. Must not know who made it.
"""

from emu.schedule.audit import AuditReport, Violation, audit
from emu.schedule.schedule import RateHistory, Schedule

__all__ = ["AuditReport", "RateHistory", "Schedule", "Violation", "audit"]
