"""Run time and wall time, and an alarm that rings at the time that was set.

Wall time is CLOCK_MONOTONIC of this host; run time is emulated seconds since the start
barrier. uvloop rounds its timers to whole milliseconds (0.4 ms fires at once, 1.6 ms
0.5 ms late), so deadlines of a pacer are kept by a timerfd: 0.03 to 0.1 ms late.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import math
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from emu.array_types import Floats
from emu.errors import EmulatorError
from emu.host.this_host import this_host
from emu.prediction.core import ffi, lib

# Another host's clock beside ours: offset, drift, and how far both may be off.
#
# A ping brings the peer's reading, taken between our sending and our hearing of it. So
# its offset is that of the middle, off by half the round trip at most (Cristian,
# 1989). Two such readings bound the drift: the longer they are apart, the closer.

#: Share by which clocks of two hosts may drift before anything is known of theirs: the
#: kernel slews them by 500 ppm at most, crystals differ by less.
MOST_DRIFT = 5e-4
#: Readings that are kept, five minutes of one a second: clocks change with the room.
_KEPT = 300
_LOOK = 0.25  # wall seconds between two looks at a deadline, at most
#: Wall seconds between two signs of life.
BEAT = 1.0
_TICK = BEAT / 2
_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class ClockLine:
    """The peer's clock, by ours."""

    at: float
    """Reading of our clock, seconds."""
    offset: float
    """The peer's clock minus ours at that moment, seconds."""
    drift: float = 0.0
    """Seconds that the peer's clock gains per second of ours."""
    uncertainty: float = 0.0
    """Seconds by which the offset may be off, until a second later."""

    def ahead(self, wall: float) -> float:
        """Return the peer's clock minus ours at a reading of ours, seconds."""
        return self.offset + self.drift * (wall - self.at)


def line_of_ping(sent: float, reading: float, came: float) -> ClockLine:
    """Return the line of one ping: the peer's reading between two of ours, seconds."""
    middle = (sent + came) / 2
    return ClockLine(
        at=middle,
        offset=reading - middle,
        uncertainty=(came - sent) / 2,
    )


class PeerClock:
    """A peer's clock, as measured by pings."""

    def __init__(self) -> None:
        self._kept: deque[ClockLine] = deque(maxlen=_KEPT)

    def note(self, readings: Collection[ClockLine]) -> None:
        """Keep the surest of some readings."""
        if readings:
            surest = min(readings, key=lambda line: line.uncertainty)
            self._kept.append(surest)

    def line(self, now: float) -> ClockLine | None:
        """Return the peer's clock as it is now, None where no reading came of it.

        The reading that is the surest today, and the drift from the one that
        is the surest of that.
        """
        if not self._kept:
            return None

        def uncertainty_now(line: ClockLine) -> float:
            return line.uncertainty + MOST_DRIFT * (now - line.at)

        surest = min(self._kept, key=uncertainty_now)
        drift = 0.0
        drift_error = MOST_DRIFT
        for line in self._kept:
            distance = surest.at - line.at
            error = surest.uncertainty + line.uncertainty
            if distance * drift_error > error:
                drift = (surest.offset - line.offset) / distance
                drift_error = error / distance

        age = now - surest.at
        return ClockLine(
            at=now,
            offset=surest.offset + drift * age,
            drift=drift,
            uncertainty=surest.uncertainty + drift_error * (age + 1.0),
        )


class PauseAwareClock:
    """CLOCK_MONOTONIC without the pauses of this process: they expire no timeout.

    A stopped process, a suspended laptop and a loop that is held up receive nothing;
    what was said meanwhile is read afterwards. So a reading that comes late is a pause
    of one's own: a process that runs reads ``every`` so many wall seconds at least.
    """

    def __init__(self, every: float, now: float) -> None:
        self._every = every
        self._looked = now
        self.lost = 0.0  #: wall seconds that have passed in pauses

    def read(self, now: float) -> float:
        """Return the time; it goes on by twice ``every`` at most between readings."""
        # A reading in time counts whole; one that is late by more than ``every`` was a
        # pause, of which only the first ``every`` counts.
        late = now - self._looked - self._every
        self._looked = now
        if late > self._every:
            self.lost += late
        return now - self.lost


@contextlib.asynccontextmanager
async def awake_timeout(within: float) -> AsyncIterator[None]:
    """Give what is awaited so many wall seconds in which this process runs.

    `asyncio.timeout` counts pauses as well: a host that goes on after them looks at its
    timers first, and at what came meanwhile afterwards.

    Raises TimeoutError when they are over.
    """
    loop = asyncio.get_running_loop()
    start = this_host.monotonic()
    every = min(_LOOK, within / 4)
    clock = PauseAwareClock(every, start)
    async with asyncio.timeout(None) as limit:
        next_look: asyncio.TimerHandle | None = None

        def look() -> None:
            nonlocal next_look
            if clock.read(this_host.monotonic()) - start >= within:
                limit.reschedule(loop.time())
            else:
                next_look = loop.call_later(every, look)

        look()
        try:
            yield
        finally:
            if next_look is not None:
                next_look.cancel()


class SilenceWatch:
    """Silence of a peer, in wall seconds in which this process ran."""

    def __init__(self, limit: float, now: float) -> None:
        self.limit = limit
        self._clock = PauseAwareClock(_TICK, now)
        self._last = now
        # Wall seconds for which this process stood still: those that `stood_still` has
        # returned, and those before the peer's last message.
        self._told = 0.0
        self._lost = 0.0

    def on_message(self, now: float) -> None:
        """Note that the peer has said something."""
        self._last = now - self._clock.lost
        self._lost = self._clock.lost

    def look(self, now: float) -> bool:
        """Return True where the peer has been silent too long; called every 0.5 s."""
        return self._clock.read(now) - self._last > self.limit

    def stood_still(self) -> float:
        """Return for how long this process stood still since this was last asked."""
        untold = self._clock.lost - self._told
        self._told = self._clock.lost
        return untold

    async def silence(self) -> str:
        """Return when the peer has been silent for too long: how long, in words."""
        while not self.look(this_host.monotonic()):  # noqa: ASYNC110 -- time passes, no event
            await asyncio.sleep(_TICK)
        silence = f"has been silent for {self.limit:g} s of wall time"
        pause = self._clock.lost - self._lost
        if not pause:
            return silence
        return f"{silence}, {pause:.1f} s in which this process stood still apart"

    @contextlib.asynccontextmanager
    async def heartbeats(
        self,
        beat: Callable[[], None],
        on_silence: Callable[[str], None],
    ) -> AsyncIterator[None]:
        """Send signs of life in a block, and listen for the peer's."""

        async def send() -> None:
            with contextlib.suppress(EmulatorError, OSError):
                while True:
                    beat()
                    await asyncio.sleep(BEAT)

        async def listen() -> None:
            on_silence(await self.silence())

        sending = asyncio.create_task(send())
        listening = asyncio.create_task(listen())
        try:
            yield
        finally:
            sending.cancel()
            listening.cancel()


class RunClock:
    """Maps CLOCK_MONOTONIC of this host to emulated seconds and back.

    Emulated time 0 is at ``start_wall`` of the *coordinator's* clock, which is
    ``offset`` seconds ahead of ours, 0 on its own host; an emulated second takes
    ``time_scale`` wall seconds.
    """

    def __init__(
        self,
        start_wall: float,
        time_scale: float,
        offset: float = 0.0,
    ) -> None:
        if not time_scale > 0:
            raise ValueError(f"time_scale must be positive, not {time_scale}")
        self.time_scale = time_scale
        self._start = start_wall
        self._line = ClockLine(0.0, offset)  # the newest of:
        self._lines = [self._line]

    def follow(self, line: ClockLine, now: float, within: float) -> None:
        """Go as the coordinator's clock does ``within`` wall seconds from ``now``.

        Time never jumps: it goes faster or slower until then.
        """
        # From where we are to where it will be: a new offset at once would be a jump.
        present = self._line.ahead(now)
        target = line.ahead(now + within)
        self._line = ClockLine(
            at=now,
            offset=present,
            drift=(target - present) / within,
        )
        self._lines.append(self._line)

    def show(self, pacing: Any) -> None:
        """Write this clock into the `Pacing` of the core, as it goes now."""
        line = self._line
        pacing.start = self._start
        pacing.at = line.at
        pacing.offset = line.offset
        pacing.drift = line.drift

    def now(self) -> float:
        """Return the emulated time, negative before the start."""
        return self.to_emulated(this_host.monotonic())

    def to_emulated(self, wall: float) -> float:
        """Return the emulated time of a recent reading of this host's clock."""
        return (wall + self._line.ahead(wall) - self._start) / self.time_scale

    def to_wall(self, emulated: float) -> float:
        """Return the reading of this host's clock at an emulated time to come."""
        line = self._line
        since = self._start + emulated * self.time_scale - line.offset - line.at
        return line.at + since / (1.0 + line.drift)

    def run_times(self, walls: Floats) -> Floats:
        """Return the emulated times of readings, each as it was counted then."""
        starts = np.array([line.at for line in self._lines])
        offsets = np.array([line.offset for line in self._lines])
        drifts = np.array([line.drift for line in self._lines])
        lines = np.searchsorted(starts, walls, side="right") - 1
        lines = np.maximum(lines, 0)
        since = np.where(np.isfinite(walls), walls - starts[lines], 0.0)
        ahead = offsets[lines] + drifts[lines] * since
        times: Floats = (walls + ahead - self._start) / self.time_scale
        return times


class Alarm:
    """Calls back once when a wall time has come, by a timerfd where there is one."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ring: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        #: Descriptor of the timerfd, which the core may set as well; -1 without one.
        self.fd = -1
        if _LIBC is not None and this_host.precise_timers():
            self.fd = int(_LIBC.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC))
        self.device = "timerfd" if self.fd >= 0 else "loop"
        if self.fd >= 0:
            loop.add_reader(self.fd, self._on_expiry)

    def set(self, wall: float) -> None:
        """Ring at this wall time (at once if it is past), not any time before."""
        if self.fd >= 0:
            self._expire(wall)
        else:
            self.cancel()
            delay = max(0.0, wall - this_host.monotonic())
            self._handle = self._loop.call_later(delay, self._on_loop, wall)

    def _expire(self, wall: float) -> None:
        """Have the timerfd expire at a wall time; never, if that is infinite."""
        if not lib.set_timer(self.fd, wall):
            raise OSError(ffi.errno, "timerfd_settime")

    def cancel(self) -> None:
        """Do not ring."""
        if self.fd >= 0:
            self._expire(math.inf)
        elif self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def lend(self) -> None:
        """Do not ring: who sets the timerfd looks at it as well."""
        loop = self._loop
        loop.remove_reader(self.fd)

    def close(self) -> None:
        """Give the timer back; the alarm cannot be used afterwards."""
        self.cancel()
        if self.fd >= 0:
            self._loop.remove_reader(self.fd)
            os.close(self.fd)
            self.fd = -1

    def _on_expiry(self) -> None:
        try:
            os.read(self.fd, 8)
        except BlockingIOError:  # set anew between expiry and this callback
            return
        self._ring()

    def _on_loop(self, wall: float) -> None:
        self._handle = None
        if this_host.monotonic() < wall:  # uvloop fires up to 0.5 ms early
            self.set(wall)
        else:
            self._ring()
