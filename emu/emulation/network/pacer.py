"""One pacer per process: drives all its shaped edges with a single alarm."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Protocol

from emu.emulation.network.clock import Alarm, RunClock
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.network.send_log import FrameLog, SendLog
from emu.emulation.shaping import QUANTUM, EmulationSettings, RateSegment, pace_at
from emu.host.this_host import this_host

_DEFAULTS = EmulationSettings()


class Paced(Protocol):
    """An edge that a pacer drives: an `OutEdge` with a shaped frame in front."""

    def advance(self, now: float) -> float:
        """Send what may be sent at wall time ``now``; return when to look again."""


@dataclass(frozen=True, slots=True)
class PacerStatistics:
    """Rings of the alarm, and by how many wall seconds they were late."""

    wakes: int
    max_lag: float
    mean_lag: float


class Pacer:
    """Looks at the rate board for every edge that has a shaped frame to send.

    An idle pacer has no alarm set and uses no CPU time.

    Of the settings of a run it keeps to the byte scale, what ends a flow, and what a
    sender may catch up. While a frame is queued it looks at least every ``quantum``
    wall seconds, at time scale 1 (see `pace_at`).
    """

    def __init__(
        self,
        board: RateBoard,
        settings: EmulationSettings = _DEFAULTS,
        quantum: float = QUANTUM,
    ) -> None:
        self.board, self._byte_scale = board, settings.byte_scale
        self._settings = settings, quantum
        self.pace = pace_at(1.0, *self._settings)
        self._clock: RunClock | None = None
        self._active: dict[Paced, float] = {}  # and the wall time of its next look
        self._alarm = Alarm(asyncio.get_running_loop(), self._ring)
        self.device = self._alarm.device
        self._due = math.inf
        self._wakes, self._max_lag, self._lag = 0, 0.0, 0.0
        self.lag = 0.0  # wall seconds by which the present ring is late
        self.log, self.departures = SendLog(), FrameLog()

    def start(self, clock: RunClock) -> None:
        """Let shaped frames go, from now on by this clock; before it they wait."""
        self._clock = clock
        self.pace = pace_at(clock.time_scale, *self._settings)
        for edge in list(self._active):  # a look may end one
            self.look(edge)

    @property
    def busy(self) -> bool:
        """True where a shaped frame is waiting or on its way."""
        return bool(self._active)

    def segment(self, edge: int, iteration: int) -> RateSegment | None:
        """Return the fluid of a flow in real bytes and wall seconds, if it has one."""
        clock, segment = self._clock, self.board.read(edge)
        # A segment of another iteration is of the flow before or after this one: at its
        # rate the sender would spend what is not its own.
        if clock is None or segment is None or segment.iteration != iteration:
            return None
        volume, since = segment.served * self._byte_scale, clock.to_wall(segment.since)
        return RateSegment(iteration, volume, self.to_wall_rate(segment.rate), since)

    def to_wall_rate(self, rate: float) -> float:
        """Return emulated bytes per second as real bytes per wall second."""
        scale = self._clock.time_scale if self._clock is not None else 1.0
        return rate * self._byte_scale / scale

    def to_wall(self, time: float) -> float:
        """Return the wall time of a run time, -infinity before the run begins."""
        return self._clock.to_wall(time) if self._clock is not None else -math.inf

    def activate(self, edge: Paced) -> None:
        """Take an edge with a shaped frame under the pacer's eye."""
        # Nothing is due until its first look says so.
        self._active[edge] = math.inf
        self.look(edge)

    def deactivate(self, edge: Paced) -> None:
        """Let go of an edge; the last one stops the alarm."""
        self._active.pop(edge, None)
        if not self._active:
            self._arm()

    def look(self, edge: Paced) -> None:
        """Look at one edge now, apart from the others."""
        if self._clock is None:
            return
        self._advance(edge, this_host.monotonic())
        self._arm()

    def statistics(self) -> PacerStatistics:
        """Return the number of wakes of the pacer, and their delays."""
        mean = self._lag / self._wakes if self._wakes else 0.0
        return PacerStatistics(self._wakes, self._max_lag, mean)

    def close(self) -> None:
        """Give the alarm back; shaped frames stay where they are."""
        self._active.clear()
        self._alarm.close()

    def _ring(self) -> None:
        now = this_host.monotonic()
        lag = self.lag = now - self._due
        # The alarm is spent: `_arm` has to set it even for the time it was set to.
        self._wakes, self._due = self._wakes + 1, math.inf
        self._lag += lag
        self._max_lag = max(self._max_lag, lag)
        soon = now + self.pace.shortest / 2  # one wake-up for those that are due soon
        for edge in [edge for edge, due in self._active.items() if due <= soon]:
            self._advance(edge, now)
        self.lag = 0.0
        self._arm()

    def _advance(self, edge: Paced, now: float) -> None:
        due = edge.advance(now)
        if edge in self._active:  # it may have sent its last byte, or lost its peer
            # A time that has passed counts from now, or the next ring would seem late.
            self._active[edge] = max(due, now)

    def _arm(self) -> None:
        # One timer for all edges: a system call per edge and look would cost more than
        # the payload does. Linear in the edges that send now, which are few.
        due = min(self._active.values(), default=math.inf)
        if due == self._due:  # a setting that changes nothing is a system call saved
            return
        self._due = due
        if due < math.inf:
            self._alarm.set(due)
        else:
            self._alarm.cancel()
