"""Waiting for everybody: one deadline per wait, and the names of who is missing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeAlias

from emu.errors import DeadlineExceeded
from emu.network import AwakeClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from pathlib import Path

    from emu.wire.messages import Message

#: Returns what has been said within so many wall seconds: (who, what).
Events: TypeAlias = "Callable[[float], Awaitable[list[tuple[str, Message]]]]"
_LOOK = 0.25  # wall seconds between two looks at the deadline
_LISTED = 5


class Gathering:
    """What the coordinator waits for outside the run itself.

    Parameters
    ----------
    deadline
        Wall seconds that a wait may take, pauses of this process apart.
    log
        Where output is that may say why somebody is missing.
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
