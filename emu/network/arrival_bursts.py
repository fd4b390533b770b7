"""The most bytes that came of an edge at once, as its receiver's kernel saw them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class ArrivalBursts:
    """A leaky bucket per edge: what came in any interval, less what its rate carries.

    An interval begins at the time of one call of receive and ends at that of another:
    the bytes of the calls in between came within it, however late they were read.

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
