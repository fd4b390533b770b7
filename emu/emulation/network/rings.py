"""Two rings in memory that a process shares with the coordinator of its host.

Ends go through one, orders through the other, as they are packed in messages
(`emu.emulation.wire.notes`), without a seal, and mostly without a system call: a pipe
each way wakes who has read all. The memory has no name: the coordinator opens it, and
the pipes, by the descriptors of the process, as only a process of the same user may.
What is written there is checked as what is sent is.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import stat
import sys
from collections import deque
from collections.abc import Sequence

from emu.emulation.network.control import UNREAD
from emu.errors import NodeMisbehaved
from emu.prediction.core import ffi, lib

#: Bytes of a ring, at least and at most.
SMALLEST = 1 << 16
LARGEST = 1 << 26
#: Bytes of the longest end or order of a task, and more for each of its edges.
_OF_TASK = 64
_OF_EDGE = 48


def ring_size(tasks: int, edges: int) -> int:
    """Return bytes that hold an end and an order of every task and edge, twice.

    ``edges``: that come and that leave; orders name what a task reads, ends what has
    come.
    """
    needed = 2 * (_OF_TASK * tasks + _OF_EDGE * edges)
    size = SMALLEST
    while size < needed:
        size *= 2
    return size


class Rings:
    """One side of both rings: made by `create_rings` or `join_rings`.

    Parameters
    ----------
    memory
        Descriptor of the memory.
    size
        Bytes of each ring.
    woken
        Descriptor to be watched: something is to be read, or room to be written.
    wakes
        Descriptor of the pipe by which the other side is woken.
    spare
        Descriptors that are closed with the rings, as those before are.
    reports
        Whether this side writes the first of the rings, that of ends.
    """

    def __init__(
        self,
        memory: int,
        size: int,
        woken: int,
        wakes: int,
        spare: Sequence[int] = (),
        *,
        reports: bool,
    ) -> None:
        self.size = size
        self.woken = woken
        self._fds = [memory, woken, wakes, *spare]
        self._memory = mmap.mmap(memory, _bytes_of(size))
        self._start = ffi.from_buffer("uint8_t[]", self._memory)
        start_of_orders = self._start + lib.RING_HEAD + size
        fields = {"size": size, "wake": wakes}
        ends = ffi.new("RingEnd *", {"memory": self._start, **fields})
        orders = ffi.new("RingEnd *", {"memory": start_of_orders, **fields})

        self.writes = ends if reports else orders
        """The `RingEnd` of the core by which this side writes,"""
        self.reads = orders if reports else ends
        """and that by which it reads."""
        self._room = bytearray(size)
        # Kept: to make a view for every call took twice what the core does in it.
        self._target = ffi.from_buffer("uint8_t[]", self._room)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0

    def write(self, notes: bytes) -> None:
        """Pass notes on, in order; those without room go with a later `go_on`.

        Raises NodeMisbehaved where the other side has not read its last 64 MB, or its
        counters cannot be.
        """
        if len(notes) > self.size:
            raise NodeMisbehaved(f"its ring has no room for {len(notes)} bytes")
        self._waiting.append(notes)
        self._waiting_bytes += len(notes)
        self.go_on()
        if self._waiting_bytes > UNREAD:
            raise NodeMisbehaved("it does not read its ring")

    def go_on(self) -> None:
        """Write what had no room; raises NodeMisbehaved as `write`."""
        while self._waiting:
            notes = self._waiting[0]
            outcome = lib.write_ring(self.writes, notes, len(notes))
            if outcome == lib.RING_FULL:
                break
            if outcome == lib.RING_BROKEN:
                raise NodeMisbehaved("the counters of its ring cannot be")
            self._waiting.popleft()
            self._waiting_bytes -= len(notes)
        self.writes.is_queued = bool(self._waiting)

    def read(self) -> bytes:
        """Return all notes that have come; raises NodeMisbehaved as `write`."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, SMALLEST)

        notes = b""
        while count := lib.read_ring(self.reads, self._target):
            if count == lib.RING_BROKEN:
                raise NodeMisbehaved("the counters of its ring cannot be")
            notes += self._room[:count]
        return notes

    def close(self) -> None:
        """Let go of the memory and of all descriptors."""
        ffi.release(self._start)
        ffi.release(self._target)
        self._memory.close()
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


def _bytes_of(size: int) -> int:
    """Return the bytes of two rings and their counters."""
    return 2 * (int(lib.RING_HEAD) + size)


def create_rings(size: int) -> tuple[Rings, list[int]]:
    """Return the rings of a process, and the numbers by which the coordinator joins.

    Raises OSError where there is no memory for them, or no descriptor.
    """
    if not hasattr(os, "memfd_create"):
        raise OSError(f"{sys.platform} has no memory without a name")

    fds: list[int] = []
    try:
        memory = os.memfd_create("emu-rings", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fds.append(memory)
        # Now, and not at some page in the middle of the run.
        os.posix_fallocate(memory, 0, _bytes_of(size))
        # Who shortens memory that another reads has it killed.
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        woken, wakes_us = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        fds += [woken, wakes_us]
        woken_there, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        fds += [woken_there, wakes]
        spare = (wakes_us, woken_there)
        rings = Rings(memory, size, woken, wakes, spare, reports=True)
    except OSError:
        for fd in fds:
            os.close(fd)
        raise

    return rings, [size, memory, woken_there, wakes_us]


def join_rings(pid: int, numbers: Sequence[object]) -> Rings:
    """Return the other side of the rings of a process, by what it says of them.

    Raises OSError where they are not to be had, and NodeMisbehaved where they are not
    such as `create_rings` makes: what can be shortened is not read.
    """
    integers = [number for number in numbers if type(number) is int]
    if len(numbers) != 4 or len(integers) != 4:
        raise NodeMisbehaved("its rings are not four numbers")

    size, *descriptors = integers
    modes = (os.O_RDWR, os.O_RDONLY, os.O_WRONLY)
    fds: list[int] = []
    try:
        for number, mode in zip(descriptors, modes, strict=True):
            path = f"/proc/{pid}/fd/{number}"
            flags = mode | os.O_NONBLOCK | os.O_CLOEXEC
            fds.append(os.open(path, flags))
        memory, woken, wakes = fds
        _check(size, memory, woken, wakes)
        return Rings(memory, size, woken, wakes, reports=False)
    except (OSError, NodeMisbehaved):
        for fd in fds:
            os.close(fd)
        raise


def _check(size: int, memory: int, woken: int, wakes: int) -> None:
    """Raise NodeMisbehaved where descriptors are not those of rings of this size."""
    # Counters stand behind the bytes of a ring: they must not lie across lines.
    is_size = SMALLEST <= size <= LARGEST and size.bit_count() == 1
    if not is_size or os.fstat(memory).st_size != _bytes_of(size):
        raise NodeMisbehaved("its rings have not the size that it says")

    try:
        seals = fcntl.fcntl(memory, fcntl.F_GET_SEALS)
    except OSError:  # it is no such memory
        seals = 0
    if not seals & fcntl.F_SEAL_SHRINK:
        raise NodeMisbehaved("its rings may be shortened")
    for pipe in (woken, wakes):
        if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
            raise NodeMisbehaved("its rings have no pipes")
