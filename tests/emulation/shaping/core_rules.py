"""The compiled rules of senders, called as functions of segments and paces."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

from emu.emulation.shaping import Pace, RateSegment
from emu.prediction.core import ffi, lib


@cache
def _pace(pace: Pace) -> Any:
    return ffi.new("Pace *", dataclasses.asdict(pace))


def _segment(segment: RateSegment) -> Any:
    return ffi.new("Segment *", segment[1:])


def lead(pace: Pace, rate: float) -> float:
    """Return the most bytes a sender may be ahead at this rate."""
    return max(pace.lead_time * rate, float(pace.lead_bytes))


def fluid_end(segment: RateSegment, volume: float) -> float:
    """Return when the fluid reaches the volume; infinity at rate 0 before that."""
    return float(lib.fluid_end(_segment(segment), volume))


def allowance(
    segment: RateSegment, now: float, sent: int, volume: int, pace: Pace
) -> int:
    """Return the bytes that may still be sent at ``now``."""
    return int(lib.allowance(_segment(segment), now, sent, volume, _pace(pace)))


def next_look(
    segment: RateSegment | None,
    now: float,
    volume: int,
    pace: Pace,
    *,
    notified: bool,
    sending: bool,
) -> float:
    """Return when to look again."""
    seen = ffi.NULL if segment is None else _segment(segment)
    return float(lib.next_look(seen, now, volume, _pace(pace), notified, sending))


class Bucket:
    """Loss of one flow's sender that stood still."""

    def __init__(self) -> None:
        self.core = ffi.new("Bucket *")

    @property
    def content(self) -> tuple[float, float, float]:
        """``lost``, ``rate`` and ``highest``."""
        return self.core.lost, self.core.rate, self.core.highest

    @property
    def lost(self) -> float:
        """Bytes."""
        return float(self.core.lost)

    @property
    def rate(self) -> float:
        """The last rate above 0 that was seen."""
        return float(self.core.rate)

    @property
    def highest(self) -> float:
        """The highest."""
        return float(self.core.highest)

    def without_loss(
        self,
        segment: RateSegment,
        now: float,
        sent: int,
        volume: int,
        pace: Pace,
        capacity: float,
        unseen: float = 0.0,
    ) -> RateSegment:
        """Return a segment without what was lost."""
        how = now, sent, volume, _pace(pace), capacity, unseen
        left = lib.without_loss(self.core, _segment(segment), *how)
        return RateSegment(segment.iteration, left.served, left.rate, left.since)
