"""Bind a process to another's life, and end a coroutine on a signal."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

_PR_SET_PDEATHSIG = 1
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
T = TypeVar("T")


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies, however it dies.

    Linux only; elsewhere a process ends when it sees its control connection end.
    """
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the request was in place
        os.kill(os.getpid(), signal.SIGKILL)


def _signal_handlers() -> dict[signal.Signals, Any]:
    """Return the handlers of signals that end a run, of those that are not ignored.

    None outside of the main thread: signals reach that only, and a notebook's run is in
    another one.
    """
    handlers: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            handler = signal.getsignal(number)
            if handler is not signal.SIG_IGN:
                handlers[number] = handler
    return handlers


def run_until_signalled(work: Coroutine[Any, Any, T], story: Callable[[], str]) -> T:
    """Run a coroutine in a loop of its own; a signal cancels it and is waited out.

    Ctrl-C, SIGTERM and a lost terminal all end it in the same orderly way; a second
    one changes nothing, because the end is under way and takes a few seconds at most.
    One that this process was started to ignore, as by nohup, is ignored.

    Raises KeyboardInterrupt when a signal came; its text names the signal and the
    story.
    """
    signals: list[str] = []

    def end(number: signal.Signals, task: asyncio.Task[T]) -> None:
        if not signals:
            signals.append(f"{number.name} while {story()}")
            task.cancel()

    async def listening() -> T:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        handlers = _signal_handlers()
        try:
            for number in handlers:
                loop.add_signal_handler(number, end, number, task)
            return await task
        finally:
            for number, handler in handlers.items():
                if loop.remove_signal_handler(number):
                    signal.signal(number, handler)

    # Each process and each edge is a connection; hosts begin with 1,024 files as a
    # rule, for programs that call select, which none of ours does.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS: there is no such number
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        return uvloop.run(listening())
    except asyncio.CancelledError:
        if not signals:
            raise
        raise KeyboardInterrupt(f"interrupted by {signals[0]}") from None
