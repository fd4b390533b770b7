"""One pacer per process: drives all its shaped edges with a single alarm."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from emu.network.clock import Alarm, RunClock
from emu.network.send_log import SendLog
from emu.network.traffic import Traffic
from emu.shaping import Depth, FluidLine

if TYPE_CHECKING:
    from emu.network.rate_board import RateBoard


#: Wall seconds between two looks at the board. 16 flows in 8 processes on 2 cores cost
#: 1.4 CPU-s per GB with 1 ms and 1.0 with 2 ms, at the same median finish error.
QUANTUM = 0.002


class Paced(Protocol):
    """What a pacer drives: an `OutEdge` with a shaped frame in front."""

    def advance(self, now: float) -> float:
        """Send what may be sent at wall time ``now``; return when to look again."""


@dataclass(frozen=True, slots=True)
class PacerStatistics:
    """How often the pacer woke, and how late (wall seconds).

    Parameters
    ----------
    wakes
        Times the alarm rang.
    max_lag, mean_lag
        Between the time it was set to and the time it rang.
    """

    wakes: int
    max_lag: float
    mean_lag: float


class Pacer:
    """Looks at the rate board for every edge that has a shaped frame to send.

    An idle pacer has no alarm set and uses no CPU time.

    Parameters
    ----------
    board
        In emulated units.
    byte_scale
        Real bytes per emulated byte.
    quantum
        Wall seconds between two looks at the board while a frame is queued. Not
        longer than the depth's ``lead_time``, which must last from look to look.
    depth
        How far senders may lead, in wall seconds and real bytes.
    """

    def __init__(
        self,
        board: RateBoard,
        *,
        byte_scale: float = 1.0,
        quantum: float = QUANTUM,
        depth: Depth | None = None,
        timerfd: bool = True,
    ) -> None:
        self.depth = depth or Depth()
        if not 0 < quantum <= self.depth.lead_time:
            raise ValueError(f"quantum {quantum} s is not in (0, lead_time]")
        if not byte_scale > 0:
            raise ValueError(f"byte_scale must be positive, not {byte_scale}")
        self._board, self._byte_scale, self.quantum = board, byte_scale, quantum
        self._clock: RunClock | None = None
        self._active: dict[Paced, None] = {}
        self._alarm = Alarm(asyncio.get_running_loop(), self._ring, timerfd=timerfd)
        self._due = math.inf
        self._wakes, self._max_lag, self._lag = 0, 0.0, 0.0
        self.lag = 0.0  # wall seconds by which the present ring is late
        self.traffic, self.log = Traffic(), SendLog()

    def start(self, clock: RunClock) -> None:
        """Let shaped frames go, from now on by this clock; before it they wait."""
        self._clock = clock
        self.traffic.start(clock)
        if self._active:
            self._set(time.monotonic())

    @property
    def device(self) -> str:
        """What keeps the time: "timerfd" or "loop"."""
        return self._alarm.device

    @property
    def busy(self) -> bool:
        """Whether a shaped frame is waiting or on its way."""
        return bool(self._active)

    def line(self, edge: int, iteration: int) -> FluidLine | None:
        """Return the fluid of a flow in real bytes and wall seconds, if it has one."""
        clock, line = self._clock, self._board.read(edge)
        if clock is None or line is None or line.iteration != iteration:
            return None
        scale = self._byte_scale
        return FluidLine(
            iteration,
            line.served * scale,
            line.rate * scale / clock.time_scale,
            clock.to_wall(line.since),
        )

    def activate(self, edge: Paced) -> None:
        """Take an edge with a shaped frame under the pacer's eye."""
        self._active[edge] = None
        self.look(edge)

    def deactivate(self, edge: Paced) -> None:
        """Let go of an edge; the last one stops the alarm."""
        self._active.pop(edge, None)
        if not self._active:
            self._due = math.inf
            self._alarm.cancel()

    def look(self, edge: Paced) -> None:
        """Look at one edge now, apart from the others."""
        if self._clock is None:
            return
        now = time.monotonic()
        end = edge.advance(now)
        if self._active:
            due = min(self._due, self._next(now, end))
            if due != self._due:
                self._set(due)

    def statistics(self) -> PacerStatistics:
        """Return how often and how late the pacer woke."""
        mean = self._lag / self._wakes if self._wakes else 0.0
        return PacerStatistics(self._wakes, self._max_lag, mean)

    def close(self) -> None:
        """Give the alarm back; shaped frames stay where they are."""
        self._active.clear()
        self._alarm.close()

    def _ring(self) -> None:
        now = time.monotonic()
        lag = self.lag = now - self._due
        self._wakes += 1
        self._lag += lag
        self._max_lag = max(self._max_lag, lag)
        ends = [edge.advance(now) for edge in list(self._active)]
        self.lag = 0.0
        if self._active:
            self._set(min(self._next(now, end) for end in ends))

    def _next(self, now: float, end: float) -> float:
        return min(max(now, end), now + self.quantum)

    def _set(self, due: float) -> None:
        self._due = due
        self._alarm.set(due)
