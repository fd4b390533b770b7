"""Shaped bytes per window of time: how far a port was driven beyond its bandwidth."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emu.network.clock import RunClock

#: Windows kept before two neighbours become one: an hour of run has 360,000 of 10 ms.
_MOST = 4096


class Traffic:
    """Counts bytes per window; the windows widen by two when there are too many.

    They start at run time 0, so those of different processes can be added.

    Parameters
    ----------
    window
        Emulated seconds, and at the least the same wall seconds: a wake-up of the
        sender moves more than the bytes of a shorter time.
    """

    def __init__(self, window: float = 0.01) -> None:
        self._window = window
        self._start, self._width = 0.0, 0.0
        self._bytes: defaultdict[int, int] = defaultdict(int)

    def start(self, clock: RunClock) -> None:
        """Count from run time 0 of this clock; what came before does not count."""
        self._start = clock.to_wall(0.0)
        self._width = self._window * max(clock.time_scale, 1.0)

    def note(self, wall: float, nbytes: int) -> None:
        """Count real bytes that were sent or arrived at wall time ``wall``."""
        if not self._width:
            return
        self._bytes[int((wall - self._start) / self._width)] += nbytes
        if len(self._bytes) > _MOST:
            self._widen()

    def _widen(self) -> None:
        self._width *= 2
        counted, self._bytes = self._bytes, defaultdict(int)
        for index, nbytes in counted.items():
            self._bytes[index // 2] += nbytes

    def to_json(self) -> dict[str, Any]:
        """Return wall seconds per window, and index and real bytes of each."""
        return {
            "width": self._width,
            "index": list(self._bytes),
            "bytes": list(self._bytes.values()),
        }
