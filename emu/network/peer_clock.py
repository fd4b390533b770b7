"""Another host's clock beside ours: offset, drift, and how far both may be off.

A ping brings the peer's reading, taken between our sending and our hearing of it. So
its offset is that of the middle, off by half the round trip at most (Cristian, 1989).
Two such readings bound the drift: the longer they are apart, the closer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

#: Share by which clocks of two hosts may drift before anything is known of theirs: the
#: kernel slews them by 500 ppm at most, crystals differ by less.
MOST_DRIFT = 5e-4
#: Readings that are kept, five minutes of one a second: clocks change with the room.
_KEPT = 300


@dataclass(frozen=True, slots=True)
class ClockLine:
    """The peer's clock, by ours."""

    at: float
    """Reading of our clock, seconds."""
    offset: float
    """The peer's clock minus ours at that moment, seconds."""
    drift: float = 0.0
    """Seconds that the peer's clock gains per second of ours."""
    uncertainty: float = 0.0
    """Seconds by which the offset may be off, until a second later."""

    def ahead(self, wall: float) -> float:
        """Return the peer's clock minus ours at a reading of ours, seconds."""
        return self.offset + self.drift * (wall - self.at)


def answered(sent: float, theirs: float, came: float) -> ClockLine:
    """Return the line of one ping: the peer's reading between two of ours, seconds."""
    middle = (sent + came) / 2
    return ClockLine(middle, theirs - middle, 0.0, (came - sent) / 2)


class PeerClock:
    """A peer's clock, as measured by pings."""

    def __init__(self) -> None:
        self._kept: deque[ClockLine] = deque(maxlen=_KEPT)

    def note(self, readings: Collection[ClockLine]) -> None:
        """Keep the surest of some readings."""
        if readings:
            self._kept.append(min(readings, key=lambda each: each.uncertainty))

    def line(self, now: float) -> ClockLine | None:
        """Return the peer's clock as it is now, None where nothing was heard of it.

        The reading that leaves the least doubt today, and the drift from the one that
        leaves the least doubt about that.
        """
        if not self._kept:
            return None
        newest = min(
            self._kept, key=lambda each: each.uncertainty + MOST_DRIFT * (now - each.at)
        )
        drift, doubt = 0.0, MOST_DRIFT
        for older in self._kept:
            between = newest.at - older.at
            if between * doubt > newest.uncertainty + older.uncertainty:
                drift = (newest.offset - older.offset) / between
                doubt = (newest.uncertainty + older.uncertainty) / between
        age = now - newest.at
        off = newest.uncertainty + doubt * (age + 1.0)
        return ClockLine(now, newest.offset + drift * age, drift, off)
