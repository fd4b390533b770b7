"""What came over data connections: counts, and the most that came at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The kernel notes when the last byte of a call came: of the call's bytes no more is
#: known. With a megabyte at a time a burst of 500 kB was one call.
_PORTION = 1 << 16


@dataclass(frozen=True, slots=True)
class DataServerStatistics:
    """What arrived over accepted connections.

    ``payloads`` says which bytes: rows of ``edge``, ``kind`` (`emu.wire.payload_kind`)
    and ``bytes``; ``bursts`` the most at once: rows of ``edge`` and ``bytes``.
    """

    connections: int
    frames: int
    payload_bytes: int
    header_bytes: int
    rejections: int
    payloads: list[dict[str, int | str]]
    bursts: list[dict[str, float]]


class ArrivalBursts:
    """A leaky bucket per edge: what came in any interval, less what its rate carries.

    An interval begins at the time of one call of receive and ends at that of another.
    Segments that wait for their reader may be joined by the kernel and have the time
    of the last then: while a reader stands still, its bursts may seem larger.

    Parameters
    ----------
    rates
        Real bytes per wall second that an edge may have at most; others are not seen.
    """

    def __init__(self, rates: Mapping[int, float]) -> None:
        self._rates = rates
        self._last: dict[int, float] = {}
        self._level: dict[int, float] = {}
        self.most: dict[int, float] = {}
        """Real bytes by edge."""

    def portion(self, edge: int | None, view: memoryview) -> memoryview:
        """Return how much of a buffer to fill at once, so that bursts can be seen."""
        return view[:_PORTION] if edge in self._rates else view

    def note(self, edge: int, count: int, wall: float) -> None:
        """Take note of payload bytes, the last of which came at ``wall``."""
        rate = self._rates.get(edge)
        if rate is None:
            return
        if edge in self._last:
            carried = rate * (wall - self._last[edge])
            level = max(self._level[edge], 0.0) + count - carried
            self.most[edge] = max(self.most.get(edge, 0.0), level)
            self._level[edge] = level
        else:  # how long these bytes took is not known
            self._level[edge] = 0.0
        self._last[edge] = wall
