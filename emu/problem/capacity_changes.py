"""Capacities over time: a link has one, until a change gives it another."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

#: Times closer than this, relative to themselves, are one instant, as in a schedule.
TIE = 1e-12


@dataclass(frozen=True)
class CapacityChange:
    """A capacity that becomes another one."""

    time: float
    """Seconds since the job began, positive and finite."""
    link: str
    """Name of the link: ``m0 out``, ``m0 in``, or that of a shared one."""
    capacity: float
    """Bytes per second from then on, finite; 0 where it is cut."""


class CapacitySteps:
    """The capacity of every port as steps over time.

    Parameters
    ----------
    start
        Bytes per second at time 0, of every port.
    changes
        Changes of them, in any order.
    ports
        Position of every link by its name.

    Attributes
    ----------
    rows
        Time, port and new capacity of every change, in the order of their times, shape
        (changes, 3).

    Raises
    ------
    ValueError
        When a change is of no link, a time is not positive and finite, a capacity is
        negative or not finite, or two changes of a link are of one time.
    """

    def __init__(
        self,
        start: NDArray[np.float64],
        changes: Sequence[CapacityChange],
        ports: Mapping[str, int],
    ) -> None:
        for change in changes:
            if change.link not in ports:
                raise ValueError(f"no link is called {change.link}")
            if not 0 < change.time < math.inf:
                raise ValueError(
                    f"a change of {change.link}: time {change.time} is not positive "
                    "and finite"
                )
            if not 0 <= change.capacity < math.inf:
                raise ValueError(
                    f"a change of {change.link}: capacity {change.capacity} is "
                    "negative or not finite"
                )
        for (link, time), count in Counter((c.link, c.time) for c in changes).items():
            if count > 1:
                raise ValueError(f"{link} changes {count} times at {time} s")
        self._start = start
        self.rows: NDArray[np.float64] = np.array(
            sorted((c.time, ports[c.link], c.capacity) for c in changes),
            dtype=np.float64,
        ).reshape(-1, 3)

    def of(self, port: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the times, the first of them 0, from which each capacity holds."""
        mine = self.rows[self.rows[:, 1] == port]
        return np.append(0.0, mine[:, 0]), np.append(self._start[port], mine[:, 2])

    def at(self, port: int, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the capacity from each of ``times`` on, changes of then made."""
        since, capacity = self.of(port)
        place = np.searchsorted(since, times * (1.0 + TIE), side="right") - 1
        return capacity[np.maximum(place, 0)]

    def carried(self, port: int, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the bytes that a port can carry by each of ``times``."""
        since, capacity = self.of(port)
        before = np.append(0.0, np.cumsum(np.diff(since) * capacity[:-1]))
        place = np.maximum(np.searchsorted(since, times, side="right") - 1, 0)
        return before[place] + capacity[place] * (times - since[place])

    def when(self, port: int, volume: float) -> float:
        """Return when a port can have carried so many bytes, infinite for never."""
        since, capacity = self.of(port)
        before = np.append(0.0, np.cumsum(np.diff(since) * capacity[:-1]))
        place = int(np.searchsorted(before, volume)) - 1
        if place < 0:
            return 0.0
        if capacity[place] == 0:  # cut for good
            return math.inf
        return float(since[place] + (volume - before[place]) / capacity[place])

    @property
    def losses(self) -> NDArray[np.float64]:
        """Time, port and lost bytes per second of every change, as `rows`."""
        losses, now = self.rows.copy(), self._start.copy()
        for row in losses:
            port, new = int(row[1]), row[2]
            row[2], now[port] = now[port] - new, new
        return losses

    @property
    def cut_for_good(self) -> list[int]:
        """Ports whose last capacity is 0."""
        last = {int(port): capacity for _, port, capacity in self.rows.tolist()}
        return sorted(port for port, capacity in last.items() if capacity == 0)

    @property
    def most(self) -> NDArray[np.float64]:
        """The largest capacity that every port ever has."""
        most = self._start.copy()
        np.maximum.at(most, self.rows[:, 1].astype(np.int64), self.rows[:, 2])
        return most
