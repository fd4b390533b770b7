"""Who takes part in a run, as the coordinator knows them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from emu.network import SilenceWatch

if TYPE_CHECKING:
    from emu.network import ControlConnection, RateBoard


class JoinedAgent:
    """An agent that has joined, with the rate board of its host."""

    def __init__(
        self,
        name: str,
        connection: ControlConnection,
        host: dict[str, Any],
        silence: float,
    ) -> None:
        self.name, self.connection, self.host = name, connection, host
        self.address = connection.peer_address
        self.board: RateBoard | None = None
        self.watch = SilenceWatch(silence, time.monotonic())
        self.gone = False

    @override
    def __str__(self) -> str:
        return f"{self.name} at {self.address}"


class Process:
    """A node process that has joined."""

    def __init__(self, name: str, pid: int, connection: ControlConnection) -> None:
        self.name, self.pid, self.connection = name, pid, connection
        self.failed = self.done = False
