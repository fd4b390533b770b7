"""Processes of the network benchmarks, and the pipes that command them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

MB = 1_000_000
TOKEN = "bench"  # noqa: S105 -- both ends are ours, on loopback
FORK = multiprocessing.get_context("fork")
#: Seconds of one turn of the load: a share of them busy, the rest asleep.
TURN = 0.01


def forked(target: Any, *inputs: Any) -> tuple[BaseProcess, Connection]:
    """Start a process that calls ``target(pipe, *inputs)``; return it and our end."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=target, args=(theirs, *inputs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def ask_of(loop: asyncio.AbstractEventLoop, pipe: Connection) -> Any:
    """Return a coroutine function that reads the pipe without a thread."""

    async def ask() -> Any:
        future: asyncio.Future[Any] = loop.create_future()

        def readable() -> None:
            if not future.done():
                future.set_result(pipe.recv())

        loop.add_reader(pipe.fileno(), readable)
        try:
            return await future
        finally:
            loop.remove_reader(pipe.fileno())

    return ask


def cpu_seconds() -> float:
    """Return user and system time of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _spin(core: int, share: float) -> None:
    """Be busy for a share of every turn, on one core, until killed."""
    os.sched_setaffinity(0, {core})
    while True:
        busy = time.monotonic() + share * TURN
        while time.monotonic() < busy:
            pass
        time.sleep((1 - share) * TURN)


@contextlib.contextmanager
def cpu_load(share: float) -> Iterator[None]:
    """Keep every core busy for a share of the time, at normal priority."""
    hogs = []
    if share:
        for core in sorted(os.sched_getaffinity(0)):
            hog = FORK.Process(target=_spin, args=(core, share), daemon=True)
            hog.start()
            hogs.append(hog)
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.join()
