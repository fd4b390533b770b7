"""Lines on standard error while a command works for long, where nothing is drawn.

A log has no progress bar: after 10 s it gets a line, then one after thrice the time.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

#: Wall seconds until the first line, and by how much the time grows to each further.
FIRST = 10.0
SELDOMER = 3.0
#: How far the work is, in words.
_stages = [""]


def note_stage(text: str) -> None:
    """Say how far the work of this process is, for the next line."""
    _stages[0] = text


@contextlib.contextmanager
def signs_of_life(command: str, first: float = FIRST) -> Iterator[None]:
    """Write the lines of a command until the block ends; none on a terminal."""
    if sys.stderr.isatty():
        yield
        return

    over = threading.Event()
    # Trials put another file in the place of standard error while they last.
    arguments = (command, first, over, sys.stderr)
    thread = threading.Thread(target=_tell, args=arguments, daemon=True)
    note_stage("")
    thread.start()
    try:
        yield
    finally:
        over.set()
        # No line may follow those that the command ends with.
        thread.join()


def _tell(
    command: str,
    seconds: float,
    over: threading.Event,
    log: TextIO,
) -> None:
    began = time.monotonic()
    # Counted from the beginning: lines come after 10, 30, 90 s.
    while not over.wait(max(began + seconds - time.monotonic(), 0.0)):
        line = f"emu {command}: at work for {seconds:g} s"
        if _stages[0]:
            line += f": {_stages[0]}"
        with contextlib.suppress(OSError, ValueError):  # closed
            print(line, file=log, flush=True)
        seconds *= SELDOMER
