"""Wall time in which this process ran: what it did not see counts against nobody."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_LOOK = 0.25  # wall seconds between two looks at a deadline, at most


class AwakeClock:
    """CLOCK_MONOTONIC without the pauses of this process.

    A stopped process, a suspended laptop and a loop that is held up all hear nothing;
    what was said meanwhile is read afterwards. So a reading that comes late is a pause
    of one's own.

    Parameters
    ----------
    every
        Wall seconds between two readings, at most, of a process that runs.
    now
        The monotonic clock.
    """

    def __init__(self, every: float, now: float) -> None:
        self._every, self._looked = every, now
        self.lost = 0.0  #: wall seconds that have passed in pauses

    def read(self, now: float) -> float:
        """Return the time; it goes on by twice ``every`` at most between readings."""
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

    Raises
    ------
    TimeoutError
        When they are over.
    """
    loop, begun = asyncio.get_running_loop(), time.monotonic()
    every = min(_LOOK, within / 4)
    clock = AwakeClock(every, begun)
    async with asyncio.timeout(None) as limit:
        looks: list[asyncio.TimerHandle] = []

        def look() -> None:
            if clock.read(time.monotonic()) - begun >= within:
                limit.reschedule(loop.time())
            else:
                looks[:] = [loop.call_later(every, look)]

        look()
        try:
            yield
        finally:
            for coming in looks:
                coming.cancel()
