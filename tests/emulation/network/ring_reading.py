"""Reads rings as the loops of a run do, by the core."""

from __future__ import annotations

import contextlib
import os

from emu.emulation.network.rings import SMALLEST, Rings
from emu.errors import NodeMisbehaved
from emu.prediction.core import ffi, lib


def read_all(side: Rings) -> bytes:
    """Return all that has come; raises NodeMisbehaved where its counters cannot be."""
    with contextlib.suppress(BlockingIOError):
        os.read(side.woken, SMALLEST)

    target = ffi.new("uint8_t[]", side.size)
    found = b""
    while count := lib.read_ring(side.reads, target):
        if count == lib.RING_BROKEN:
            raise NodeMisbehaved("the counters of its ring cannot be")
        found += bytes(ffi.buffer(target, count))
    return found
