"""Who takes part in a run, as the coordinator knows them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from emu.errors import MalformedFrame
from emu.network import SilenceWatch

if TYPE_CHECKING:
    from emu.network import ControlConnection, RateBoard

_LINE = 3  # numbers that describe a clock


def agent_name(host_name: str) -> str:
    """Return what the agent of a host is called: no process has a blank in its name."""
    return f"agent {host_name}"


@dataclass
class HostClock:
    """How the coordinator's clock goes by that of a host that reads another."""

    readings: int = 0
    """Lines that its agent has told; 0 where both read one clock."""
    offset: float = 0.0
    drift: float = 0.0
    last_uncertainty: float = 0.0
    """Of the newest line."""
    uncertainty: float = 0.0
    """Wall seconds by which the offset may have been off during the run, at most."""

    def begin(self) -> None:
        """Count what is uncertain from now on: the clock was watched before."""
        self.uncertainty = self.last_uncertainty

    def note(self, told: list[Any]) -> None:
        """Take what a beat says of it.

        Raises
        ------
        MalformedFrame
            When that is no clock.
        """
        if not told:
            return
        if len(told) != _LINE or not all(
            isinstance(each, float) and math.isfinite(each) for each in told
        ):
            raise MalformedFrame("a beat's clock is no line")
        self.offset, self.drift, self.last_uncertainty = told
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
