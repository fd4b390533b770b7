"""When a peer counts as silent, and when it was oneself that stood still."""

from __future__ import annotations

import asyncio
import time

#: Wall seconds between two signs of life.
BEAT = 1.0
#: Wall seconds without one after which a peer counts as cut off, unless told otherwise.
SILENCE = 60.0
_LOOK = BEAT / 2


class SilenceWatch:
    """How long a peer has said nothing, in wall seconds in which this process ran.

    A stopped process, a suspended laptop and a loop that is held up all hear nothing;
    what was said meanwhile is read afterwards. So a look that comes late is a pause of
    one's own, and does not count.

    Parameters
    ----------
    limit
        Wall seconds of silence.
    now
        The monotonic clock.
    """

    def __init__(self, limit: float, now: float) -> None:
        self.limit = limit
        self._heard = self._looked = now
        self._stood_still = self._untold = 0.0

    def heard(self, now: float) -> None:
        """Note that the peer has said something."""
        self._heard, self._stood_still = now, 0.0

    def look(self, now: float) -> bool:
        """Return whether the peer has been silent for too long; called every 0.5 s."""
        late = now - self._looked - _LOOK
        self._looked = now
        if late > _LOOK:
            self._heard += late
            self._stood_still += late
            self._untold += late
        return now - self._heard > self.limit

    def stood_still(self) -> float:
        """Return for how long this process stood still since this was last asked."""
        untold, self._untold = self._untold, 0.0
        return untold

    async def silence(self) -> str:
        """Return when the peer has been silent for too long: how long, in words."""
        while not self.look(time.monotonic()):  # noqa: ASYNC110 -- time passes, no event
            await asyncio.sleep(_LOOK)
        own = self._stood_still
        beside = f", {own:.1f} s in which this process stood still apart" if own else ""
        return f"has been silent for {self.limit:g} s of wall time{beside}"
