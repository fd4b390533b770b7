"""Waiting for everybody: one deadline per wait, and the names of who is missing."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from emu.errors import DeadlineExceeded
from emu.network import Alarm, AwakeClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from pathlib import Path

    from emu.wire.messages import Message


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
        """Give the timer back; no call may wait afterwards."""
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class RunLog:
    """A file that agents and their processes write as well."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, line: str) -> None:
        """Write what happened here."""
        with contextlib.suppress(OSError), self.path.open("a") as log:
            log.write(f"emu run: {line}\n")

    def last_words(self) -> str:
        """Return the last line of all, for a message about who died."""
        try:
            lines = self.path.read_text(errors="replace").strip().splitlines()
        except OSError as error:
            return f"its output is lost: {error}"
        said = f"it said: {lines[-1]}" if lines else "it said nothing"
        return f"{said} (the log is {self.path})"


#: Returns what has been said within so many wall seconds: (who, what).
Events: TypeAlias = "Callable[[float], Awaitable[list[tuple[str, Message]]]]"
_LOOK = 0.25  # wall seconds between two looks at the deadline
_LISTED = 5


class Gathering:
    """Waits of the coordinator outside the run itself.

    Parameters
    ----------
    deadline
        Wall seconds that a wait may take, pauses of this process apart.
    log
        File whose output may show why a process or agent is missing.
    """

    def __init__(self, events: Events, deadline: float, log: Path) -> None:
        self._events, self._deadline, self._log = events, deadline, log
        self._early: list[tuple[str, Message]] = []

    async def messages(
        self, missing: Collection[str], what: str, kind: type[Message]
    ) -> dict[str, Any]:
        """Wait until each of ``missing`` has said a message of ``kind``.

        Messages of other kinds are kept for the next call: the processes of one host
        may be up before another host has its rate board.

        Raises
        ------
        DeadlineExceeded
            When one has not within the deadline; names the first few.
        """
        left, said = set(missing), {}

        def heard(name: str, message: Message) -> None:
            if isinstance(message, kind) and name in left:
                left.discard(name)
                said[name] = message
            else:
                self._early.append((name, message))

        early, self._early = self._early, []
        for name, message in early:
            heard(name, message)
        await self.until(lambda: left, what, heard)
        return said

    async def until(
        self,
        missing: Callable[[], Collection[str]],
        what: str,
        heard: Callable[[str, Message], None],
        *,
        patience: float = 0.0,
    ) -> None:
        """Hand over what is said until nobody is missing.

        Parameters
        ----------
        patience
            Wall seconds to wait where those are more than the deadline.

        Raises
        ------
        DeadlineExceeded
            When somebody is after the deadline: the message says who did not do
            ``what``.
        """
        awake = AwakeClock(_LOOK, time.monotonic())
        deadline = max(self._deadline, patience)
        end = time.monotonic() + deadline
        while names := sorted(missing()):
            if awake.read(time.monotonic()) > end:
                count = len(names) - _LISTED
                more = f" and {count} more" if count > 0 else ""
                raise DeadlineExceeded(
                    f"the coordinator waited {deadline:g} s of wall time: "
                    f"{', '.join(names[:_LISTED])}{more} did not {what} "
                    f"(their output is in {self._log})"
                )
            for name, message in await self._events(_LOOK):
                heard(name, message)
