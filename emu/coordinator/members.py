"""Who takes part in a run, as the coordinator knows them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from emu.network import SilenceWatch

if TYPE_CHECKING:
    from emu.network import ControlConnection, RateBoard


def agent_name(host_name: str) -> str:
    """Return what the agent of a host is called: no process has a blank in its name."""
    return f"agent {host_name}"


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
