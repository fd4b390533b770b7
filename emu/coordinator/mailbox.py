"""Where what agents and processes say waits for the coordinator, all at once."""

from __future__ import annotations

import asyncio
import time
from typing import Generic, TypeVar

from emu.network import Alarm

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Takes one thing at a time, gives all that have come; one waiter.

    An `asyncio.Queue` under `asyncio.wait_for` would make a task for every wait, and
    wake its waiter a turn of the loop later; uvloop's own timers are off by up to half
    a millisecond either way. What has come is settled in one compiled call, which takes
    10 to 20 us to enter, and goes out once: a line per edge, a message per process.
    """

    def __init__(self) -> None:
        self._there: list[T] = []
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: Alarm | None = None

    def put(self, thing: T) -> None:
        """Add something, and wake who waits."""
        self._there.append(thing)
        self._wake()

    async def everything(self, patience: float) -> list[T]:
        """Return all that has come since the last call, in its order.

        Parameters
        ----------
        patience
            Wall seconds after which [] is returned when nothing comes.
        """
        if not self._there:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            self._alarm = self._alarm or Alarm(loop, self._wake)
            self._alarm.set(time.monotonic() + patience)
            await self._waiter
        there, self._there = self._there, []
        return there

    def close(self) -> None:
        """Give the timer back; nobody may wait afterwards."""
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
