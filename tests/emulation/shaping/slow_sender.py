"""A sender that keeps to rates, in plain Python: slow, and easy to read.

The compiled rules (emu/prediction/core/pacing.c) are held against these, look by look.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from emu.emulation.shaping import Pace, RateSegment

ROUNDING = 1e-9
RISE = 2.0


def fluid_at(segment: RateSegment, time: float) -> float:
    """Return F(time) in bytes; a time before ``since`` counts as ``since``."""
    return segment.served + segment.rate * max(0.0, time - segment.since)


def fluid_end(segment: RateSegment, volume: float) -> float:
    """Return when the fluid reaches the volume; infinity at rate 0 before that."""
    missing = volume - segment.served
    if missing <= ROUNDING * volume:
        return segment.since
    return segment.since + missing / segment.rate if segment.rate > 0 else math.inf


@dataclass(slots=True)
class Bucket:
    """Loss of one flow's sender that stood still, which it may not catch up.

    In every interval the flow sends what its rates carry in that time, and
    `Pace.catch_up` of its highest rate and ``lead_bytes`` once, at most, and what a
    segment carries before it is seen. What is lost goes when its fluid has ended, at
    the last rate that the sender knew of.
    """

    lost: float = 0.0
    """Bytes."""
    rate: float = 0.0
    highest: float = 0.0
    """The last rate above 0, and the highest, of the segments that were seen."""

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
        """Return a segment without what was lost; the segment itself if nothing can be.

        ``capacity`` is that of the narrowest link on the way, bytes per second: the
        rate of a flow whose sender stood still while it had one. Earlier segments
        carried ``unseen`` bytes which no look could see. The rest is as in `allowance`.
        """
        if pace.catch_up == math.inf:
            return segment
        if segment.rate > 0:
            self.rate, self.highest = segment.rate, max(self.highest, segment.rate)
        if fluid_end(segment, volume) <= segment.since:
            segment = segment._replace(rate=self.rate or capacity)
        if volume - sent > pace.tail:  # those wait by the sender's own choice
            reserve = pace.catch_up * (self.highest or capacity) + unseen
            self.lost = max(self.lost, fluid_at(segment, now) - sent - reserve)
        return segment._replace(served=segment.served - self.lost)


def allowance(
    segment: RateSegment, now: float, sent: int, volume: int, pace: Pace
) -> int:
    """Return the number of bytes that may still be sent at time ``now``.

    The segment, the newest piece of the fluid, may be of a time to come, in seconds of
    the clock of ``now``; ``sent`` and ``volume`` are bytes so far and in all.
    """
    soon = now + pace.lead_time
    if fluid_end(segment, volume) <= soon:
        return volume - sent
    least = pace.lead_bytes if soon >= segment.since else 0
    most = max(fluid_at(segment, soon), fluid_at(segment, now) + least)
    return max(0, int(min(most, float(volume - pace.tail))) - sent)


def next_look(
    segment: RateSegment | None,
    now: float,
    volume: int,
    pace: Pace,
    *,
    notified: bool,
    sending: bool,
) -> float:
    """Return when to look again: for the last bytes, or before a new segment matters.

    A segment seen late costs nothing unless the fluid ends before it is seen. Who waits
    for a rate, or gets `RISE` times the lowest that was on the board since it was last
    notified, is notified; so at half of the time that is left at the present rate
    nothing has been missed. Within `Pace.shortest` of the end a smaller rise is: the
    flow ends late by up to half of that, 0.25 ms of wall time.

    Parameters
    ----------
    segment, now, volume
        As in `allowance`.
    notified
        Whether there is a newer segment that cannot be seen yet: segments and messages
        go to another host by two ways.
    sending
        Whether any bytes are to be sent before the last ones.
    """
    if segment is None:
        return now + (pace.shortest if notified else pace.idle)
    end = fluid_end(segment, volume) - pace.lead_time
    begin = segment.since - pace.lead_time
    if end <= now:
        return now
    if notified:
        return min(end, now + pace.shortest)
    if now < begin:  # nothing may go yet
        return min(begin, now + pace.idle)
    longest = pace.idle
    if sending and end < math.inf:
        # Half of what the bucket holds, of which nothing is to be lost.
        step = (pace.catch_up + pace.lead_bytes / segment.rate) / RISE
        longest = min(pace.longest, max(step, pace.shortest))
    return min(end, now + min(max((end - now) / RISE, pace.shortest), longest))


@dataclass
class SlowSender:
    """The frame in front of one edge."""

    volume: int
    pace: Pace
    capacity: float
    queued: float
    notified: float = -math.inf
    sent: int = 0
    known: float = math.nan
    informed: float = math.nan
    obeyed: RateSegment | None = None
    bucket: Bucket = field(default_factory=Bucket)
    late: float = 0.0
    due: float = math.inf
    end: float = math.inf
    max_stale: float = 0.0
    max_lead: float = 0.0

    def look(self, seen: RateSegment | None, now: float, takes: float) -> int:
        """Look at what is on the board; return the bytes that went, a share of them."""
        begins = segment_time = -math.inf
        line, count = seen, 0
        if seen is not None:
            segment_time = seen.since
            if seen.since != self.known:
                self.known, self.informed = seen.since, now
                stale = now - max(seen.since, self.queued)
                self.max_stale = max(self.max_stale, stale)
            self.late += max(0.0, min(now, seen.since) - self.due)
            begins = seen.since - self.pace.lead_time
            unseen = 0.0
            if begins <= now:
                before = fluid_at(self.obeyed, seen.since) if self.obeyed else 0.0
                unseen = max(0.0, seen.served - before - self.capacity * self.late)
                self.obeyed, self.late = seen, 0.0
            if (fluid := self.obeyed) is not None:
                if begins > now and fluid_at(fluid, now) > seen.served:
                    fluid = RateSegment(fluid.iteration, seen.served, 0.0, now)
                line, count = self._follow(fluid, now, unseen, takes)
            if self.sent == self.volume:
                return count
        self.due = next_look(
            line,
            now,
            self.volume,
            self.pace,
            notified=self.notified > segment_time,
            sending=self.volume - self.sent > self.pace.tail,
        )
        if begins > now:
            self.due = min(self.due, begins)
        return count

    def _follow(
        self, fluid: RateSegment, now: float, unseen: float, takes: float
    ) -> tuple[RateSegment, int]:
        pace, volume = self.pace, self.volume
        self.end = fluid_end(fluid, volume)
        line = self.bucket.without_loss(
            fluid, now, self.sent, volume, pace, self.capacity, unseen
        )
        limit = allowance(line, now, self.sent, volume, pace)
        lead = max(pace.lead_time * line.rate, float(pace.lead_bytes))
        least = min(lead / 4, volume - self.sent) if pace.catch_up == math.inf else 1
        if limit < least:
            return line, 0
        count = max(1, int(limit * takes))
        self.sent += count
        self.max_lead = max(self.max_lead, self.sent - fluid_at(fluid, now))
        return line, count
