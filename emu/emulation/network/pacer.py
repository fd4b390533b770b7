"""One pacer per process: drives all its shaped edges with a single alarm."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Protocol

from emu.emulation.network.clock import Alarm, RunClock
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.network.send_log import FrameLog, SendLog
from emu.emulation.network.tcp_info import ConnectionLog
from emu.emulation.shaping import QUANTUM, EmulationSettings, pace_at
from emu.host.this_host import this_host
from emu.prediction.core import ffi, lib

_DEFAULTS = EmulationSettings()


class Paced(Protocol):
    """An edge that a pacer drives: an `OutEdge` with a shaped frame in front."""

    edge: int
    sender: Any
    """Its `Sender` of the core."""

    def attend(self, outcome: int) -> None:
        """Do what an advance of its sender came to, other than ``lib.PACED``."""


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
        self.board = board
        self._settings = settings
        self._quantum = quantum
        self._clock: RunClock | None = None
        #: Of the core, what all senders go by.
        self.core = ffi.new("Pacing *", {"time_scale": 1.0, "board": board.address})
        self.core.byte_scale = settings.byte_scale

        self._edges: dict[int, Paced] = {}
        self._active = ffi.new("Sender *[]", board.edges)
        self._attention = ffi.new("int64_t[]", board.edges)
        self.core.active = self._active
        self.core.attention = self._attention
        self._keep_to(1.0)

        self._alarm = Alarm(asyncio.get_running_loop(), self._ring)
        self.device = self._alarm.device
        self.core.alarm = self._alarm.fd
        self.core.due = math.inf
        self.log = SendLog()
        self.core.sent = self.log.core
        self.departures = FrameLog()
        self.core.departures = self.departures.core
        self.connections = ConnectionLog()

    def start(self, clock: RunClock) -> None:
        """Let shaped frames go, from now on by this clock; before it they wait."""
        self._clock = clock
        self.core.started = True
        self._keep_to(clock.time_scale)
        for edge in list(self._edges.values()):  # a look may end one
            self.look(edge)

    def _keep_to(self, time_scale: float) -> None:
        self.pace = pace_at(time_scale, self._settings, self._quantum)
        self.core.time_scale = time_scale
        self.core.pace = dataclasses.asdict(self.pace)

    @property
    def busy(self) -> bool:
        """True where a shaped frame is waiting or on its way."""
        return bool(self._edges)

    def to_wall(self, time: float) -> float:
        """Return the wall time of a run time, -infinity before the run begins."""
        if self._clock is None:
            return -math.inf
        return self._clock.to_wall(time)

    def activate(self, edge: Paced) -> None:
        """Take an edge with a shaped frame under the pacer's eye."""
        self._edges[edge.edge] = edge
        self._active[self.core.count] = edge.sender
        self.core.count += 1
        self.look(edge)

    def deactivate(self, edge: Paced) -> None:
        """Let go of an edge; the last one stops the alarm."""
        if self._edges.pop(edge.edge, None) is not None:
            lib.drop(self.core, edge.sender)
        if not self._edges:
            self._arm()

    def look(self, edge: Paced) -> None:
        """Look at one edge now, apart from the others."""
        if self._clock is None:
            return
        self._clock.show(self.core)
        outcome = lib.look(self.core, edge.sender, this_host.monotonic())
        if outcome != lib.PACED:
            edge.attend(outcome)
        self._arm()

    def lend_alarm(self) -> None:
        """Leave it to the core to ring; it has the alarm as ``core.alarm``."""
        self._alarm.lend()

    def statistics(self) -> PacerStatistics:
        """Return the number of wakes of the pacer, and their delays."""
        core = self.core
        return PacerStatistics(
            wakes=core.rings,
            max_lag=core.max_lag,
            mean_lag=core.lag_sum / core.rings if core.rings else 0.0,
        )

    def close(self) -> None:
        """Give the alarm back; shaped frames stay where they are."""
        self._edges.clear()
        self.core.count = 0
        self.core.alarm = -1  # another file may get the number
        self._alarm.close()

    def _ring(self) -> None:
        if self._clock is not None:
            self._clock.show(self.core)
        count = lib.ring(self.core, this_host.monotonic())
        for number in self._attention[0:count]:
            edge = self._edges.get(number)
            if edge is not None:  # another may have closed it
                edge.attend(edge.sender.outcome)
        self.core.lag = 0.0
        self._arm()

    def _arm(self) -> None:
        if not lib.set_alarm(self.core):
            return
        due = self.core.due
        if due < math.inf:
            self._alarm.set(due)
        else:
            self._alarm.cancel()
