"""A neighbour that takes from the host what a run needs; a program of its own.

    python hog_process.py busy|bursts|faults|paging FILE

It says ``ready`` when it has begun, and ends when its standard input does: the kernel
closes that pipe however the one who holds the other end dies.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

_PAGE = 1 << 20
#: Bytes that are touched in turn: far more than caches hold, far less than a host has.
_MEMORY = 1 << 30
_FILE = 1 << 28
_BURST = 0.05  # wall seconds on, and off
#: Linux: write dirty pages out and drop them. Python has no name for it.
_MADV_PAGEOUT = 21


def busy() -> None:
    """Keep a core busy."""
    while True:
        pass


def bursts() -> None:
    """Keep a core busy for 50 ms, and leave it for 50 ms."""
    while True:
        until = time.monotonic() + _BURST
        while time.monotonic() < until:
            pass
        time.sleep(_BURST)


def faults() -> None:
    """Fill memory with bytes and hand it back: page faults and memory bandwidth."""
    memory, page = mmap.mmap(-1, _MEMORY), b"\1" * _PAGE
    while True:
        for at in range(0, _MEMORY, _PAGE):
            memory[at : at + _PAGE] = page
        memory.madvise(mmap.MADV_DONTNEED)


def paging(path: Path) -> None:
    """Have the kernel write pages to a file and read them back, as swapping does.

    A swap device would be the host's; a shared mapping has a file of its own.
    """
    with path.open("w+b") as file:
        path.unlink()  # it goes with the process
        file.truncate(_FILE)
        memory, page = mmap.mmap(file.fileno(), _FILE), b"\1" * _PAGE
        while True:
            for at in range(0, _FILE, _PAGE):
                memory[at : at + _PAGE] = page
            memory.madvise(_MADV_PAGEOUT)


def _die_with_input() -> None:
    while os.read(0, 1):
        pass
    os._exit(0)


def main() -> None:
    """Begin what the first argument says."""
    threading.Thread(target=_die_with_input, daemon=True).start()
    kind, page = sys.argv[1], Path(sys.argv[2])
    kinds: dict[str, Callable[[], None]] = {
        "busy": busy,
        "bursts": bursts,
        "faults": faults,
        "paging": lambda: paging(page),
    }
    begin = kinds[kind]
    print("ready", flush=True)  # noqa: T201 -- what its parent waits for
    begin()


if __name__ == "__main__":
    main()
