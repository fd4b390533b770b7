"""Ports at which servers of a run listen: any free one, one stated, or a range's."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def listen_within(
    port: int, ports: Sequence[int] | None, listen: Callable[[int], Awaitable[T]]
) -> T:
    """Return what listens at ``port``, or where that is 0 at the first free of a range.

    Parameters
    ----------
    ports
        First and last of the range; None for none, the kernel chooses then.
    listen
        Listens at a port; 0 is any.

    Raises
    ------
    OSError
        When the port is in use, or all of the range are, or the address is not of this
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
    problem = f"all of emulation.ports {first}-{last} are in use"
    raise OSError(errno.EADDRINUSE, problem)
