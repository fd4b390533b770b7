"""Values of calls, in memory that the ranks of a run share.

A deposit is what one rank brings to one call. Each rank has a file in memory of its
own, which the others map when they first read of it; a place is a byte in it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from emu.virtual.rank.layouts import Bytes, flat

#: Bytes of addresses for the deposits of a rank; memory is taken as it is used.
_ADDRESSES = 1 << 38
#: Bytes of the smallest deposit: a line of the caches.
_LEAST = 64
_PAGE = 4096
#: Bytes from which on a deposit that all have read has no memory.
_LARGE = 1 << 26


@dataclass(frozen=True)
class _Memory:
    """The file of a rank."""

    descriptor: int
    mapping: Any
    content: Bytes
    address: int


class Deposits:
    """Deposits of this rank, and those it reads of others.

    Parameters
    ----------
    folder
        Where the files lie.
    rank
        This rank.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder = folder
        self._rank = rank
        self._memory_of = cache(self._map)
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        """Size -> places that a deposit of it may have."""
        self._sizes: dict[int, int] = {}
        """By place."""
        self._allocated: dict[int, int] = {}
        """Bytes from a place on that have memory."""
        self._end = 0
        """Bytes so far."""

    def leave(
        self,
        content: Tensor,
        zeros: int = 0,
        room: int = 0,
    ) -> int:
        """Leave the bytes of a tensor; return its place.

        Behind them are so many zeros, and room for so many bytes.

        Raises OSError where the computer has no memory for them.
        """
        written = content.nbytes
        size = max(_LEAST, written + zeros + room)
        exponent = (size - 1).bit_length()
        rounded = 1 << exponent
        place = self._find_place(rounded)
        memory = self._memory_of(self._rank)
        if size > self._allocated.get(place, 0):
            # A page that cannot be had would end this process later, without a word.
            # To ask for pages that are there takes longer than to write them.
            os.posix_fallocate(memory.descriptor, place, size)
            self._allocated[place] = size
        self._sizes[place] = rounded

        values = flat(content)
        address = memory.address + place
        ctypes.memmove(address, values.data_ptr(), written)
        if zeros:
            start = place + written
            end = start + zeros
            memory.content[start:end] = 0
        return place

    def _find_place(self, size: int) -> int:
        """Return a place for a deposit of so many bytes, a power of 2."""
        places = self._free[size]
        if places:
            return places.pop()
        start = self._end
        if size > _PAGE:
            pages = -(-start // _PAGE)
            start = pages * _PAGE
        self._end = start + size
        return start

    def free(self, place: int) -> None:
        """Take in that all have read a deposit of this rank."""
        size = self._sizes[place]
        self._free[size].append(place)
        if size >= _LARGE:
            memory = self._memory_of(self._rank)
            memory.mapping.madvise(mmap.MADV_REMOVE, place, size)
            del self._allocated[place]

    def view(self, rank: int, place: int, count: int) -> Bytes:
        """Return bytes of a rank's deposits, not copied, shape (count,)."""
        content = self._memory_of(rank).content
        return content[place : place + count]

    def _map(self, rank: int) -> _Memory:
        path = self._folder / f"values{rank}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(descriptor, _ADDRESSES)
        mapping: Any = mmap.mmap(descriptor, _ADDRESSES)
        content = np.frombuffer(mapping, np.uint8)
        return _Memory(
            descriptor=descriptor,
            mapping=mapping,
            content=content,
            address=content.ctypes.data,
        )
