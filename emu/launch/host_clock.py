"""What an agent knows of the coordinator's clock, for every process of its host."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from emu.network import BEAT, PeerClock, clock_of_host

if TYPE_CHECKING:
    from emu.network import ClockLine, ControlConnection, RateBoard

#: Pings before the first line, and of every beat: the surest of each counts.
_FIRST, _PER_BEAT = 20, 4
_APART = 0.01  # wall seconds from one ping to the next


class HostClock:
    """Compares this host's clock with the coordinator's, once a beat.

    Parameters
    ----------
    theirs
        Name of the clock that the coordinator reads; who reads the same compares
        nothing.
    """

    def __init__(
        self, connection: ControlConnection, board: RateBoard, theirs: str
    ) -> None:
        self._connection, self._board = connection, board
        self._clock = PeerClock()
        self.same = clock_of_host() == theirs != ""
        self.line: ClockLine | None = None

    async def compare(self, pings: int = _FIRST) -> None:
        """Put the coordinator's clock on the board of this host.

        Raises
        ------
        EmulatorError
            When the coordinator has gone.
        """
        if self.same:
            return
        pongs = self._connection.pongs
        pongs.clear()
        while pings > 0 or not pongs:
            self._connection.ping()
            pings -= 1
            await asyncio.sleep(_APART)
        self._clock.note(pongs)
        self.line = self._clock.line(time.monotonic())
        if self.line is not None:
            self._board.publish_clock(self.line)

    async def keep(self) -> None:
        """Compare until cancelled."""
        while not self.same:
            await asyncio.sleep(BEAT)
            await self.compare(_PER_BEAT)

    def told(self) -> list[float]:
        """Return what the coordinator is told of it: nothing where there is one."""
        line = self.line
        return [] if line is None else [line.offset, line.drift, line.uncertainty]
