"""Wall time in which this process ran: what it did not see counts against nobody."""

from __future__ import annotations


class AwakeClock:
    """CLOCK_MONOTONIC without the pauses of this process.

    A stopped process, a suspended laptop and a loop that is held up all hear nothing;
    what was said meanwhile is read afterwards. So a reading that comes late is a pause
    of one's own.

    Parameters
    ----------
    every
        Wall seconds between two readings, at most, of a process that runs.
    now
        The monotonic clock.
    """

    def __init__(self, every: float, now: float) -> None:
        self._every, self._looked = every, now
        self.lost = 0.0  #: wall seconds that have passed in pauses

    def read(self, now: float) -> float:
        """Return the time; it goes on by twice ``every`` at most between readings."""
        late = now - self._looked - self._every
        self._looked = now
        if late > self._every:
            self.lost += late
        return now - self.lost
