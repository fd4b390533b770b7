"""Receive memory: taken once, touched before the run, used again and again.

The first touch of a fresh page costs more than the transfer (64 MB: 0.9 to 4 GB/s
against 5), so buffers are pooled by size class. Four classes per power of two waste at
most a quarter.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from emu.errors import RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST = 4096


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Bytes of receive memory, by size class (so including what rounding adds)."""

    in_use: int
    high_water: int
    """Bytes handed out now, and at most so far."""
    held: int
    """Bytes taken from the system, in use or ready."""
    limit: int
    """Most that ``in_use`` may become."""


class PooledBuffer:
    """Memory on loan: ``view`` has exactly the bytes asked for, until `release`."""

    __slots__ = ("_block", "_pool", "view")

    def __init__(self, pool: BufferPool, block: NDArray[np.uint8], size: int) -> None:
        self._pool: BufferPool | None = pool
        self._block = block
        self.view = block.data[:size]

    def release(self) -> None:
        """Give the memory back; its arrays will be overwritten. Once only.

        Raises
        ------
        ValueError
            If it was given back before.
        """
        if self._pool is None:
            raise ValueError("this buffer was released before")
        pool, self._pool = self._pool, None
        pool.take_back(self._block)


class BufferPool:
    """Buffers by size class, with a hard cap on what may be in use at once.

    Parameters
    ----------
    limit
        Most bytes in use at once; memory in flight is bounded by it.
    """

    def __init__(self, limit: int = 4 << 30) -> None:
        if limit < _LEAST:
            raise ValueError(f"limit must be at least {_LEAST} bytes, not {limit}")
        self.limit = limit
        self._ready: dict[int, list[NDArray[np.uint8]]] = defaultdict(list)
        self._in_use = self._high_water = self._held = 0

    def reserve(self, size: int, count: int = 1) -> None:
        """Take and touch ``count`` buffers for ``size`` bytes ahead of the run."""
        for _ in range(count):
            block = np.empty(size_class(size), dtype=np.uint8)
            block.fill(0)
            self._held += block.nbytes
            self._ready[block.nbytes].append(block)

    def acquire(self, size: int) -> PooledBuffer:
        """Return a buffer of ``size`` bytes, its content undefined.

        Raises
        ------
        RunError
            If more than ``limit`` bytes would be in use.
        """
        length = size_class(size)
        if self._in_use + length > self.limit:
            raise RunError(
                f"{size} bytes arrive while {self._in_use} of at most {self.limit} "
                "bytes of receive memory are in use: a smaller credit window or a "
                "higher limit is needed"
            )
        ready = self._ready[length]
        if ready:
            block = ready.pop()
        else:
            self._make_room(length)
            block = np.empty(length, dtype=np.uint8)
            self._held += length
        self._in_use += length
        self._high_water = max(self._high_water, self._in_use)
        return PooledBuffer(self, block, size)

    def take_back(self, block: NDArray[np.uint8]) -> None:
        """Accept a released block (called by `PooledBuffer.release`)."""
        self._in_use -= block.nbytes
        self._ready[block.nbytes].append(block)

    def statistics(self) -> PoolStatistics:
        """Return the bytes in use now, those in use at most, and those held."""
        return PoolStatistics(self._in_use, self._high_water, self._held, self.limit)

    def _make_room(self, length: int) -> None:
        # What is held stays under the cap too: drop the largest that lie ready.
        for blocks in sorted(
            self._ready.values(), key=lambda b: -b[0].nbytes if b else 0
        ):
            while blocks and self._held + length > self.limit:
                self._held -= blocks.pop().nbytes


def size_class(size: int) -> int:
    """Return the length of the buffer that serves ``size`` bytes."""
    if size <= _LEAST:
        return _LEAST
    step = 1 << max(0, (size - 1).bit_length() - 3)
    return -(-size // step) * step
