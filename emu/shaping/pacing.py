"""Pacing against a fluid: a token bucket whose level is a straight line in time.

A flow with assigned rates is a fluid F(t), the integral of the rate. It is carried as
its newest straight piece, so a sender that missed earlier pieces lost nothing. The
sender may lead F by a bounded depth, which hides late wake-ups; the last bytes are
held until F reaches the volume, so that the end is never early and hardly late.
Measured with a timerfd at 10 Mbit/s to 24 Gbit/s: 0.1 to 0.2 ms late (median).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

#: The fluid has reached the volume when this share of it is missing: a scheduler that
#: clips ``served`` at the volume must not leave the last bytes waiting on a rounding.
ROUNDING = 1e-9


class FluidLine(NamedTuple):
    """The newest piece of a flow's fluid: F(t) = served + rate * (t - since).

    Parameters
    ----------
    iteration
        Which flow of the edge this is.
    served
        Bytes at time ``since``.
    rate
        Bytes per second from then on; 0 is legal.
    since
        Seconds.
    """

    iteration: int
    served: float
    rate: float
    since: float

    def at(self, time: float) -> float:
        """Return F(time) in bytes; a time before ``since`` counts as ``since``."""
        return self.served + self.rate * max(0.0, time - self.since)


@dataclass(frozen=True, slots=True)
class Depth:
    """How far a sender may lead its fluid.

    Parameters
    ----------
    lead_time
        Seconds of the present rate.
    lead_bytes
        Least lead, so that slow flows are not cut into crumbs.
    tail
        Last bytes of a flow, held until the fluid reaches the volume.
    """

    lead_time: float = 0.002
    lead_bytes: int = 16384
    tail: int = 16384

    def lead(self, rate: float) -> float:
        """Return the most bytes a sender may be ahead at this rate."""
        return max(self.lead_time * rate, float(self.lead_bytes))


def fluid_end(line: FluidLine, volume: float) -> float:
    """Return when the fluid reaches the volume; infinity at rate 0 before that."""
    missing = volume - line.served
    if missing <= ROUNDING * volume:
        return line.since
    return line.since + missing / line.rate if line.rate > 0 else math.inf


def allowance(line: FluidLine, now: float, sent: int, volume: int, depth: Depth) -> int:
    """Return how many more bytes may be sent at time ``now``.

    Parameters
    ----------
    line
        Newest piece of the fluid.
    now
        Seconds, on the line's clock.
    sent, volume
        Bytes sent so far and in all.
    depth
        How far the sender may lead.
    """
    fluid = line.at(now)
    if volume - fluid <= ROUNDING * volume:
        return volume - sent
    limit = min(fluid + depth.lead(line.rate), float(volume - depth.tail))
    return max(0, int(limit) - sent)


def next_look(line: FluidLine, now: float, volume: int, poll: float) -> float:
    """Return when to look again: the fluid's end, or the next poll if that is sooner.

    Between two polls the sender lives on its lead, so the poll must not be longer than
    the lead. A rate of 0 leaves only the poll, at which a new rate will be seen.
    """
    end = fluid_end(line, volume)
    return end if now < end < now + poll else now + poll
