"""End a command on a signal: one line, status 130, nothing half-written.

Ctrl-C, SIGTERM and a lost terminal end a command alike, whatever it is doing. Within a
run the event loop receives them, which ends the run in good order; at all other times
they raise a KeyboardInterrupt here. That may come up in the middle of an import or of
a library's code, which swallows it or makes another error of it: what follows a signal
is its consequence, and what goes on regardless is ended.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING

from emu.atomic_file import discard_begun_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

#: As shells have it: 128 + SIGINT.
INTERRUPTED = 130
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Wall seconds that the command has to end by itself.
_PATIENCE = 5.0
_told: list[str] = []


class Interrupted(KeyboardInterrupt):
    """A signal came.

    A class of its own: CPython takes note of a plain KeyboardInterrupt wherever it
    crosses C code, and kills the process by SIGINT at its end, caught or not.
    """


@contextlib.contextmanager
def one_line_at_a_signal() -> Iterator[None]:
    """End the process with one line and status 130 if a signal comes in the block."""
    heard: list[str] = []
    _told.clear()

    def interrupted(number: int, _frame: FrameType | None) -> None:
        if not heard:
            heard.append(signal.Signals(number).name)
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE)
            raise Interrupted(f"interrupted by {heard[0]}")

    def overdue(_number: int, _frame: FrameType | None) -> None:
        discard_begun_files()
        tell(f"interrupted by {heard[0]}")
        os._exit(INTERRUPTED)

    for number in _ENDING:
        signal.signal(number, interrupted)
    signal.signal(signal.SIGALRM, overdue)
    atexit.register(_over)
    try:
        yield
    except KeyboardInterrupt as interruption:
        tell(str(interruption) or "interrupted")
        sys.exit(INTERRUPTED)
    except BaseException:
        if not heard:
            raise
        tell(f"interrupted by {heard[0]}")
        sys.exit(INTERRUPTED)


def _over() -> None:
    """Let no signal kill an interpreter that takes its handlers, then itself, down."""
    for number in (*_ENDING, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


def tell(line: str) -> None:
    """Print the one line, unless it has been."""
    if not _told:
        _told.append(line)
        with contextlib.suppress(OSError):  # nobody may be there to read it
            print(f"emu: {line}", file=sys.stderr, flush=True)  # noqa: T201
