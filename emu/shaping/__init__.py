"""Compute the bytes that a paced sender may send now, and when to look again.

Pure arithmetic on a fluid line. Any consistent units do: the asyncio edge hands it
wall seconds and real bytes. Must not know: sockets, timers, the rate board.
"""

from emu.shaping.pacing import (
    RISE,
    Bucket,
    Depth,
    FlowEnds,
    Looks,
    RateSegment,
    allowance,
    fluid_end,
    next_look,
)
from emu.shaping.settings import ComputeMode, EmulationSettings, Tls

__all__ = [
    "RISE",
    "Bucket",
    "ComputeMode",
    "Depth",
    "EmulationSettings",
    "FlowEnds",
    "Looks",
    "RateSegment",
    "Tls",
    "allowance",
    "fluid_end",
    "next_look",
]
