"""When a peer counts as silent, and when it was oneself that stood still."""

from __future__ import annotations

import asyncio
import time

from emu.network.pause_aware_clock import AwakeClock

#: Wall seconds between two signs of life.
BEAT = 1.0
#: Wall seconds without one after which a peer counts as cut off, unless told otherwise.
SILENCE = 60.0
_LOOK = BEAT / 2


class SilenceWatch:
    """Silence of a peer, in wall seconds in which this process ran.

    Parameters
    ----------
    limit
        Wall seconds of silence.
    now
        The monotonic clock.
    """

    def __init__(self, limit: float, now: float) -> None:
        self.limit = limit
        self._clock = AwakeClock(_LOOK, now)
        self._heard = now
        self._told = self._lost = 0.0  # of the pauses: said, and before the last word

    def heard(self, now: float) -> None:
        """Note that the peer has said something."""
        self._heard, self._lost = now - self._clock.lost, self._clock.lost

    def look(self, now: float) -> bool:
        """Return True where the peer has been silent too long; called every 0.5 s."""
        return self._clock.read(now) - self._heard > self.limit

    def stood_still(self) -> float:
        """Return for how long this process stood still since this was last asked."""
        untold, self._told = self._clock.lost - self._told, self._clock.lost
        return untold

    async def silence(self) -> str:
        """Return when the peer has been silent for too long: how long, in words."""
        while not self.look(time.monotonic()):  # noqa: ASYNC110 -- time passes, no event
            await asyncio.sleep(_LOOK)
        own = self._clock.lost - self._lost
        beside = f", {own:.1f} s in which this process stood still apart" if own else ""
        return f"has been silent for {self.limit:g} s of wall time{beside}"
