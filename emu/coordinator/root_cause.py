"""Which of several reports names the cause of a failure.

A process that dies takes its peers down: within milliseconds they report broken
connections, often before the agent reports the death. So reports are weighed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from emu.errors import EmulatorError

#: Errors that a process reports when somebody else has gone.
_CONSEQUENCES = {"NodeLost", "TruncatedFrame"}


class Severity(IntEnum):
    """How likely a report names the cause: the lowest is believed."""

    KILLED = 0  #: somebody was killed, as its parent saw
    FAILED = 1  #: somebody failed of itself, or was silent
    GONE = 2  #: a connection ended; whoever knows why will say so
    CONSEQUENCE = 3  #: somebody misses somebody else


@dataclass(frozen=True)
class Report:
    """One error that the coordinator has heard of."""

    severity: Severity
    error: EmulatorError


def severity_of(error: str) -> Severity:
    """Return the severity of what a process says of itself, by the error's class."""
    return Severity.CONSEQUENCE if error in _CONSEQUENCES else Severity.FAILED


def cause(reports: Iterable[Report]) -> EmulatorError:
    """Return the error to believe; of equal ones, the first."""
    return min(reports, key=lambda report: report.severity).error
