"""Waiting until a wall time, to a tenth of a millisecond, for many waiters at once."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time

from emu.network import Alarm


class WallClockTimer:
    """Lets coroutines wait for wall times; one timerfd for all of them.

    asyncio.sleep under uvloop is off by up to half a millisecond either way.
    """

    def __init__(self) -> None:
        self._alarm = Alarm(asyncio.get_running_loop(), self._ring)
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    async def until(self, wall: float) -> None:
        """Return at ``wall`` of CLOCK_MONOTONIC, at once when that is past."""
        if time.monotonic() >= wall:
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (wall, next(self._order), future))
        self._alarm.set(self._waiting[0][0])
        await future

    def _ring(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)
        if self._waiting:
            self._alarm.set(self._waiting[0][0])

    def close(self) -> None:
        """Give the timer back."""
        self._alarm.close()
