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
    what = command, first, over, sys.stderr
    thread = threading.Thread(target=_tell, args=what, daemon=True)
    note_stage("")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _tell(command: str, after: float, over: threading.Event, to: TextIO) -> None:
    began = time.monotonic()
    while not over.wait(max(began + after - time.monotonic(), 0.0)):
        stage = f": {_stages[0]}" if _stages[0] else ""
        with contextlib.suppress(OSError, ValueError):  # closed
            line = f"emu {command}: at work for {after:g} s{stage}"
            print(line, file=to, flush=True)
        after *= SELDOMER
