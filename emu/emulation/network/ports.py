"""Ports at which servers of a run listen, and tries to be let in at a full one."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from emu.emulation.network.authentication import AGAIN
from emu.errors import NodeLost, NodeMisbehaved
from emu.host.this_host import this_host

T = TypeVar("T")
#: Wall seconds before who was refused for want of room tries again.
_PAUSE = 0.02


async def listen_within(
    port: int, ports: Sequence[int] | None, listen: Callable[[int], Awaitable[T]]
) -> T:
    """Return what listens at ``port``, or where that is 0 at the first free of a range.

    The range is its first and last port; without one the kernel chooses. Raises OSError
    when the port is in use, or all of the range are, or the address is not of this
    host.
    """
    if port or ports is None:
        return await listen(port)
    first, last = ports
    for candidate in range(first, last + 1):
        try:
            return await listen(candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"all of emulation.ports {first}-{last} are in use")


async def enter_port(enter: Callable[[float], Awaitable[T]], within: float) -> T:
    """Return what is entered, trying again where strangers take all the room.

    ``enter`` connects and proves who it is, within so many wall seconds. Raises what it
    raised for another reason, or when no time is left.
    """
    end, rest = this_host.monotonic() + within, within
    while True:
        try:
            return await enter(rest)
        except (NodeLost, NodeMisbehaved) as error:
            rest = end - this_host.monotonic()
            if not str(error).endswith(AGAIN) or rest <= _PAUSE:
                raise
            await asyncio.sleep(_PAUSE)
