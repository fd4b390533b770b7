"""Where what agents and processes say waits for the coordinator, all at once."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Takes one thing at a time, gives all that have come; one waiter.

    An `asyncio.Queue` under `asyncio.wait_for` would make a task for every wait, and
    wake its waiter a turn of the loop later.
    """

    def __init__(self) -> None:
        self._there: list[T] = []
        self._waiter: asyncio.Future[None] | None = None

    def put(self, thing: T) -> None:
        """Add something, and wake who waits."""
        self._there.append(thing)
        if self._waiter is not None:
            _wake(self._waiter)

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
            timer = loop.call_later(patience, _wake, self._waiter)
            try:
                await self._waiter
            finally:
                timer.cancel()
        there, self._there = self._there, []
        return there


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
