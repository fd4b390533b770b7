"""Members of a run, as the coordinator knows them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from emu.errors import MalformedFrame
from emu.network import SilenceWatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from emu.errors import EmulatorError
    from emu.network import ControlConnection, RateBoard


# Root causes. A process that dies takes its peers down: within milliseconds they report
# broken connections, often before the agent reports the death. So reports are weighed.

#: Errors that a process reports when another one has gone.
_CONSEQUENCES = {"NodeLost", "TruncatedFrame"}


class Severity(IntEnum):
    """Rank of a report as the likely cause of an error: the lowest is taken."""

    KILLED = 0  #: a process was killed, as its parent saw
    FAILED = 1  #: a process failed by itself, or was silent
    GONE = 2  #: a connection ended; the report of why follows
    CONSEQUENCE = 3  #: a process misses another one


@dataclass(frozen=True)
class Report:
    """One error that reached the coordinator."""

    severity: Severity
    error: EmulatorError


def severity_of(error: str) -> Severity:
    """Return the severity of an error that a process reports, by its class."""
    return Severity.CONSEQUENCE if error in _CONSEQUENCES else Severity.FAILED


def cause(reports: Iterable[Report]) -> EmulatorError:
    """Return the likeliest cause; of equal ones, the first."""
    return min(reports, key=lambda report: report.severity).error


# A coordinator that was stopped, or starved of the cores, sees all others as dead, and
# its agents give it up: a failure soon after has no other cause.
class Standstill:
    """Follows how much wall time passes between two looks at the clock.

    Parameters
    ----------
    fatal
        Wall seconds after which others give this process up.
    """

    def __init__(self, fatal: float) -> None:
        self._fatal = fatal
        self._looked = time.monotonic()
        self._pause, self._resumed = 0.0, -math.inf

    def look(self) -> float:
        """Look at the clock; return the wall seconds since the last look."""
        now = time.monotonic()
        pause, self._looked = now - self._looked, now
        if pause > self._fatal:
            self._pause, self._resumed = pause, now
        return pause

    def story(self) -> str:
        """Return the pause for which this process was just given up, else nothing."""
        self.look()
        if time.monotonic() - self._resumed > 2 * self._fatal:
            return ""
        return (
            f"the coordinator, this process, stood still for {self._pause:.1f} s of "
            f"wall time: agents give it up after {self._fatal:g} s"
        )


_LINE = 3  # numbers that describe a clock


def agent_name(host_name: str) -> str:
    """Return the name of a host's agent: no process has a blank in its name."""
    return f"agent {host_name}"


@dataclass
class HostClock:
    """Relation of the coordinator's clock to that of a host that reads another."""

    readings: int = 0
    """Lines that its agent has sent; 0 where both read one clock."""
    offset: float = 0.0
    drift: float = 0.0
    last_uncertainty: float = 0.0
    """Uncertainty of the newest line, wall seconds."""
    uncertainty: float = 0.0
    """Wall seconds by which the offset may have been off during the run, at most."""

    def begin(self) -> None:
        """Count what is uncertain from now on: the clock was watched before."""
        self.uncertainty = self.last_uncertainty

    def note(self, line: list[Any]) -> None:
        """Take the clock's line of a beat.

        Raises
        ------
        MalformedFrame
            When that is no clock.
        """
        if not line:
            return
        if len(line) != _LINE or not all(
            isinstance(each, float) and math.isfinite(each) for each in line
        ):
            raise MalformedFrame("a beat's clock is no line")
        self.offset, self.drift, self.last_uncertainty = line
        self.uncertainty = max(self.uncertainty, self.last_uncertainty)
        self.readings += 1


class JoinedAgent:
    """An agent that has joined, with the rate board of its host."""

    def __init__(
        self,
        host_name: str,
        connection: ControlConnection,
        host: dict[str, Any],
        silence: float,
    ) -> None:
        self.host_name, self.connection = host_name, connection
        self.host = {**host, "host": host_name}
        self.name = agent_name(host_name)
        self.address = connection.peer_address
        self.board: RateBoard | None = None
        self.watch = SilenceWatch(silence, time.monotonic())
        self.clock = HostClock()
        self.gone = False

    @property
    def cores(self) -> int:
        """Processor cores that its host says it has, at least 1."""
        stated = self.host.get("cpus")
        return stated if isinstance(stated, int) and stated > 0 else 1

    @override
    def __str__(self) -> str:
        return f"{self.name} at {self.address}"


class Process:
    """A node process that has joined."""

    def __init__(self, name: str, pid: int, connection: ControlConnection) -> None:
        self.name, self.pid, self.connection = name, pid, connection
        self.failed = self.done = False
