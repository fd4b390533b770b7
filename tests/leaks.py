"""What a test may not leave: a thread, a child process, an open file or socket.

The check costs 0.2 ms, so that every test has it: open files are listed only where
their number or one of them has changed. Caches keep hundreds of mapped arrays open: to
list 300 takes 0.75 ms of CPU before each test and behind it, to see that they are the
same 0.1. Tests that start processes have
`tests.leftovers` as well, which looks at ports, shared memory and temporary files.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import uvloop

#: Wall seconds in which what is ending may end: the kernel reaps, it does not say when.
PATIENCE = 2.0
# libuv has one pipe for signals, made with the first loop, for the life of the process.
uvloop.new_event_loop().close()
_DESCRIPTORS = Path("/proc/self/fd")
_THREADS = Path("/proc/self/task")
#: What libraries keep for the life of the process, by design.
_KEPT = (
    "multiprocessing.resource_tracker",
    "multiprocessing.forkserver",
    "tests.warm_process",
    "/dev/urandom",
    "/dev/null",
    "/pym-",  # the heap of multiprocessing
    ".ttf",  # fonts of matplotlib
    "libxsmm",  # of torch
    ".npy",  # mapped arrays of data sets that bounded caches keep
)


@dataclass(frozen=True)
class Held:
    """What a process holds at a moment."""

    threads: frozenset[threading.Thread]
    children: frozenset[str]
    descriptors: frozenset[tuple[str, int]]

    @classmethod
    def now(cls) -> Held:
        """Return what this process holds."""
        return cls(frozenset(threading.enumerate()), _children(), _descriptors())

    def more_than(self, before: Held) -> list[str]:
        """Return what is held beside what was held before, in words."""
        found = [
            f"thread {thread.name}"
            for thread in self.threads - before.threads
            if thread.is_alive()
        ]
        found += [
            f"process {child}: {_command(child)}"
            for child in self.children - before.children
        ]
        for descriptor, _ in self.descriptors - before.descriptors:
            with contextlib.suppress(OSError):  # closed by another thread
                target = (_DESCRIPTORS / descriptor).readlink()
                found.append(f"descriptor {descriptor}: {target}")
        return [each for each in found if not any(kept in each for kept in _KEPT)]


def left_since(before: Held) -> list[str]:
    """Return what is held beside what was held before, once it has had time to end."""
    found = Held.now().more_than(before)
    if not found:
        return []
    deadline = time.monotonic() + PATIENCE
    while found and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
        found = Held.now().more_than(before)
    return found


@dataclass(frozen=True)
class _Listing:
    """Open descriptors, and by what these are known again."""

    count: int
    places: dict[int, int]
    """Where a file is read next that has been read; behind a mapped array its end."""
    inodes: dict[int, int]
    """Inodes of the other descriptors: asking for one takes 1 us, for a place 0.2."""
    descriptors: frozenset[tuple[str, int]]

    @classmethod
    def of(cls, count: int) -> _Listing:
        """Return what is open now."""
        found = _listed_descriptors()
        places = {}
        inodes = {}
        for name, inode in found:
            number = int(name)
            place = 0
            with contextlib.suppress(OSError):  # a socket, which has no such place
                place = os.lseek(number, 0, os.SEEK_CUR)
            if place:
                places[number] = place
            else:
                inodes[number] = inode
        return cls(count, places, inodes, found)

    def still_holds(self, count: int) -> bool:
        """Return True where as many are open, and each of these is as it was."""
        if count != self.count:
            return False
        try:
            places = map(os.lseek, self.places, repeat(0), repeat(os.SEEK_CUR))
            inodes = [os.fstat(number).st_ino for number in self.inodes]
            are_there = [*places] == [*self.places.values()]
        except OSError:  # closed, or a socket by now
            return False
        return are_there and inodes == [*self.inodes.values()]


#: Open files as they were last listed.
_last_listing: list[_Listing] = []


def _descriptors() -> frozenset[tuple[str, int]]:
    """Return the open descriptors with the inodes behind them.

    Before Linux 6.2 nothing counts them, and each look lists them.
    """
    count = _DESCRIPTORS.stat().st_size if _DESCRIPTORS.is_dir() else 0
    if not count:
        return _listed_descriptors()
    if not _last_listing or not _last_listing[0].still_holds(count):
        _last_listing[:] = [_Listing.of(count)]
    return _last_listing[0].descriptors


def _listed_descriptors() -> frozenset[tuple[str, int]]:
    found = []
    for name in _listed(_DESCRIPTORS):
        with contextlib.suppress(OSError):  # that of the listing itself
            found.append((name, os.fstat(int(name)).st_ino))
    return frozenset(found)


def _children() -> frozenset[str]:
    """Return the ids of the children of all threads; Linux tells them cheaply."""
    found: list[str] = []
    for thread in _listed(_THREADS):
        with contextlib.suppress(OSError):
            found += Path(f"{_THREADS}/{thread}/children").read_text().split()
    return frozenset(found)


def _listed(folder: Path) -> list[str]:
    """Return the names in a folder of /proc; none on another system."""
    return os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208 -- faster


def _command(child: str) -> str:
    try:
        command = Path(f"/proc/{child}/cmdline").read_bytes()
    except OSError:
        return "gone by now"
    return command.replace(b"\0", b" ").decode(errors="replace") or "a zombie"
