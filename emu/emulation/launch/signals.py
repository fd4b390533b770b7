"""End a coroutine on a signal."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
T = TypeVar("T")


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


def run_until_signalled(
    work: Coroutine[Any, Any, T],
    story: Callable[[], str],
    run: Callable[[Coroutine[Any, Any, T]], T] = uvloop.run,
) -> T:
    """Run a coroutine, in a loop of its own; a signal cancels it and is waited out.

    ``run``: runs a coroutine in another loop, which goes on afterwards.

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
            task.cancel(number.name)

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
        return run(listening())
    except asyncio.CancelledError:
        if not signals:
            raise
        raise KeyboardInterrupt(f"interrupted by {signals[0]}") from None
