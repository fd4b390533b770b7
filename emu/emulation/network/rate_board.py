"""The rate board: shared memory in which every sender finds its rate segment.

One entry per edge, and one for the clock of the host; one writer each. An entry is
framed by two counters: the writer counts the last one up, writes the segment, then
counts the first one up; a reader loads them in the other order and takes the segment
only if they agree. The board has no name: it is gone with the last process that holds
it, however that process ends.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emu.array_types import Array
from emu.emulation.network.clock import ClockLine
from emu.emulation.shaping import RateSegment
from emu.host.this_host import this_host
from emu.prediction.core import ffi, lib, pointer

#: Loaded and stored from low to high address; 64 bytes, one cache line per edge.
_ENTRY = np.dtype(
    [
        ("ended", "u8"),
        ("iteration", "i8"),
        ("served", "f8"),
        ("rate", "f8"),
        ("since", "f8"),
        ("number", "u8"),
        ("begun", "u8"),
        ("unused", "u8"),
    ]
)
_READ = struct.Struct("=QqdddQQ")
#: A writer holds an entry for some microseconds; a reader that meets a writer stopped
#: in the middle gives up and looks again at its next poll.
_ATTEMPTS = 1000


class RateBoard:
    """Rate segments of all edges, in emulated bytes and seconds.

    Made by `create` or `open`. A board passed on by ``fork`` works in the child.
    """

    def __init__(self, fd: int, path: str, *, writable: bool) -> None:
        self._fd = fd
        self.path = path
        self._temporary = False
        self._writable = writable
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        self._memory = mmap.mmap(fd, 0, access=access)
        self._entries: Array = np.frombuffer(self._memory, _ENTRY)
        self.edges = len(self._entries) - 1
        #: For the core, which reads it as `read` does; it lives as long as the board.
        self.address = ffi.from_buffer("BoardEntry[]", self._memory)

    @classmethod
    def create(cls, edges: int) -> RateBoard:
        """Return a new board without segments, writable, for this many edges.

        Its ``path`` opens it in any process of the same user on this host, for as long
        as this process holds the board. Where there is no memfd, that is a temporary
        file.
        """
        if edges < 1:
            raise ValueError(f"a board needs an edge, not {edges}")
        fd, path = this_host.create_memory()
        os.ftruncate(fd, (edges + 1) * _ENTRY.itemsize)
        board = cls(fd, path, writable=True)
        board._temporary = not path.startswith("/proc/")
        board._entries["iteration"] = -1
        return board

    @classmethod
    def open(cls, path: str, *, writable: bool = False) -> RateBoard:
        """Return the board at a path.

        Raises OSError if it is not there (its creator has ended) or not ours to open.
        """
        mode = os.O_RDWR if writable else os.O_RDONLY
        fd = this_host.open_memory(path, mode)
        return cls(fd, path, writable=writable)

    def publish(
        self,
        edges: ArrayLike,
        iterations: ArrayLike,
        served: ArrayLike,
        rates: ArrayLike,
        since: ArrayLike,
        numbers: ArrayLike | None = None,
    ) -> None:
        """Replace the segments of some edges, lowered rates first.

        The parameters are those of `CoreSegments`. Raises IndexError when an edge is
        not on the board, and ValueError when it was opened to read.
        """
        if not self._writable:
            raise ValueError("this board is read-only")
        segments = CoreSegments(edges, iterations, served, rates, since, numbers)
        order = np.empty_like(segments.edge)
        is_written = lib.publish(
            self.address,
            self.edges + 1,
            segments.core,
            pointer(order),
        )
        if not is_written:
            raise IndexError(f"a segment of an edge beyond the {self.edges} of a board")

    def read(self, edge: int) -> RateSegment | None:
        """Return the newest segment of an edge, None if it has none (about 1 us)."""
        _, iteration, carried_bytes, rate, since, _ = self._read(edge)
        if iteration < 0:
            return None
        return RateSegment(iteration, carried_bytes, rate, since)

    @property
    def entries(self) -> Array:
        """Entries of all edges, and of the clock in the last row."""
        return self._entries

    def count_missed(self, edge: int) -> int:
        """Return how many segments of an edge never came, before its newest one."""
        count, *_, number = self._read(edge)
        return number - count

    def _read(self, edge: int) -> tuple[int, int, float, float, float, int]:
        for _ in range(_ATTEMPTS):
            *entry, start = _READ.unpack_from(self._memory, edge * 64)
            if entry[0] == start:  # no writer came in between
                return tuple(entry)
        return 0, -1, 0.0, 0.0, 0.0, 0

    @property
    def counts(self) -> NDArray[np.uint64]:
        """Segments of each edge that came, shape (edges,)."""
        return np.array(self._entries["ended"][: self.edges])

    def clear(self) -> None:
        """Take all segments away, as `create` has none; the clock of the host stays."""
        edges = slice(self.edges)
        segments = self._entries[edges]
        segments.fill(0)
        segments["iteration"] = -1

    def publish_clock(self, line: ClockLine) -> None:
        """Say how the coordinator's clock goes by that of this host."""
        self.publish(
            self.edges,
            iterations=0,
            served=line.offset,
            rates=line.drift,
            since=line.at,
        )

    def clock(self) -> ClockLine | None:
        """Return what `publish_clock` said; None where both read one clock."""
        entry = self.read(self.edges)
        if entry is None:
            return None
        return ClockLine(at=entry.since, offset=entry.served, drift=entry.rate)

    def close(self) -> None:
        """Let go of the memory; the last holder's close frees it."""
        if self._temporary:
            Path(self.path).unlink(missing_ok=True)
        ffi.release(self.address)
        del self._entries
        with contextlib.suppress(BufferError):  # a caller's view keeps it until it goes
            self._memory.close()
        os.close(self._fd)


class CoreSegments:
    """Segments as the core takes them.

    All are of shape (segments,), or a scalar: edges, none twice, and iterations,
    integers; emulated bytes served and bytes per second; since when, emulated seconds;
    and how many segments of its edge were to come with each, by default as many as
    came. By `structure` it took 10 us and not 4.
    """

    __slots__ = ("_kept", "core", "edge", "since")

    def __init__(
        self,
        edges: ArrayLike,
        iterations: ArrayLike,
        served: ArrayLike,
        rates: ArrayLike,
        since: ArrayLike,
        numbers: ArrayLike | None = None,
    ) -> None:
        self.edge = np.ascontiguousarray(edges, np.int64)
        count = self.edge.size

        def column(values: ArrayLike, dtype: type[Any]) -> Array:
            array = np.ascontiguousarray(values, dtype)
            return array if array.size == count else np.full(count, array)

        self.since = column(since, np.float64)
        columns = {
            "edge": self.edge,
            "iteration": column(iterations, np.int64),
            "served": column(served, np.float64),
            "rate": column(rates, np.float64),
            "since": self.since,
        }
        if numbers is not None:
            columns["number"] = column(numbers, np.int64)
        self._kept = columns
        self.core = ffi.new("Segments *")
        self.core.count = count
        for name, array in columns.items():
            setattr(self.core, name, pointer(array))
