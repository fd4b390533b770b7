"""Changes while a job runs: capacities of links and speeds of machines over time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
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


def _check(
    what: str, changes: Iterable[tuple[str, float, float]], known: Collection[str]
) -> None:
    """Check changes of (name, time, what it has from then on).

    Raises ValueError when one is of nothing known, a time is not positive and finite, a
    value is negative or not finite, or two changes of one thing are of one time.
    """
    rows = [*changes]
    for name, time, value in rows:
        if name not in known:
            raise ValueError(f"no {what} is called {name}")
        if not 0 < time < math.inf:
            raise ValueError(
                f"a change of {name}: time {time} is not positive and finite"
            )
        if not 0 <= value < math.inf:
            level = {"link": "capacity", "machine": "share"}[what]
            raise ValueError(
                f"a change of {name}: {level} {value} is negative or not finite"
            )
    for (name, time), count in Counter(row[:2] for row in rows).items():
        if count > 1:
            raise ValueError(f"{name} changes {count} times at {time} s")


def _sum_steps(
    since: NDArray[np.float64], level: NDArray[np.float64], times: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return what has come by each of ``times`` at a level that changes in steps."""
    before = np.append(0.0, np.cumsum(np.diff(since) * level[:-1]))
    place = np.maximum(np.searchsorted(since, times, side="right") - 1, 0)
    sums: NDArray[np.float64] = before[place] + level[place] * (times - since[place])
    return sums


class CapacitySteps:
    """The capacity of every port as steps over time.

    ``start``: bytes per second of every port at time 0. ``rows``: time, port and new
    capacity of every change, in the order of their times, shape (changes, 3).

    Raises ValueError when a change is of no link, a time is not positive and finite, a
    capacity is negative or not finite, or two changes of a link are of one time.
    """

    def __init__(
        self,
        start: NDArray[np.float64],
        changes: Sequence[CapacityChange],
        ports: Mapping[str, int],
    ) -> None:
        _check("link", [(c.link, c.time, c.capacity) for c in changes], ports)
        self._start = start
        self._known: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        self.rows: NDArray[np.float64] = np.array(
            sorted((c.time, ports[c.link], c.capacity) for c in changes),
            dtype=np.float64,
        ).reshape(-1, 3)

    def of(self, port: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the times, the first of them 0, from which each capacity holds."""
        if port not in self._known:  # a critical path asks 1,700 times: 0.1 s of CPU
            mine = self.rows[self.rows[:, 1] == port]
            since = np.append(0.0, mine[:, 0])
            capacity = self._start[port]
            self._known[port] = since, np.append(capacity, mine[:, 2])
        return self._known[port]

    def at(self, port: int, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the capacity from each of ``times`` on, changes of then made."""
        since, capacity = self.of(port)
        place = np.searchsorted(since, times * (1.0 + TIE), side="right") - 1
        return capacity[np.maximum(place, 0)]

    def carry(self, port: int, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the bytes that a port can carry by each of ``times``."""
        return _sum_steps(*self.of(port), times)

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
        losses = self.rows.copy()
        now = self._start.copy()
        for row in losses:
            port = int(row[1])
            new = row[2]
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


@dataclass(frozen=True)
class SpeedChange:
    """A share of a machine's speed that becomes another one."""

    time: float
    """Seconds since the job began, positive and finite."""
    machine: str
    share: float
    """Share of its speed from then on, 0 to 1; 0 where it stands still."""


def end_of_work(
    since: Sequence[float], share: Sequence[float], start: float, work: float
) -> float:
    """Return when work is done that a machine begins at ``start``, seconds.

    Work that is done as a machine stops is done. ``since``, ``share``: times, the first
    of them 0, from which it has each share of its speed; ``work``: seconds that it
    takes at full speed.
    """
    if work <= 0.0:
        return start
    now = start
    step = bisect_right(since, start) - 1
    while True:
        until = since[step + 1] if step + 1 < len(since) else math.inf
        if share[step] > 0.0:
            end = now + work / share[step]
            if end <= until * (1.0 + TIE):
                return end
            work -= share[step] * (until - now)
        elif until == math.inf:
            return math.inf
        now, step = until, step + 1


class SpeedSteps:
    """The share of its speed that every machine has, as steps over time.

    Raises ValueError when a change is of no machine, a time is not positive and finite,
    a share is not from 0 to 1, two changes of a machine are of one time, or one stands
    still for good.
    """

    def __init__(
        self, changes: Sequence[SpeedChange], machines: Mapping[str, int]
    ) -> None:
        _check("machine", [(c.machine, c.time, c.share) for c in changes], machines)
        for change in changes:
            if change.share > 1:
                which = f"a change of {change.machine}: share {change.share}"
                raise ValueError(f"{which} is above 1")
        self._of: list[tuple[list[float], list[float]]] = [
            ([0.0], [1.0]) for _ in machines
        ]
        for change in sorted(changes, key=lambda change: change.time):
            since, share = self._of[machines[change.machine]]
            since.append(change.time)
            share.append(change.share)
        for name, machine in machines.items():
            if self._of[machine][1][-1] == 0:
                since = self._of[machine][0]
                raise ValueError(f"{name} stands still from {since[-1]} s on for good")

    def of(self, machine: int) -> tuple[list[float], list[float]]:
        """Return the times, the first of them 0, from which each share holds."""
        return self._of[machine]

    def work(
        self, machine: int, start: NDArray[np.float64], end: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the seconds at full speed that a machine can do from start to end."""
        since, share = (np.array(values) for values in self._of[machine])
        if len(since) == 1:
            return end - start
        return _sum_steps(since, share, end) - _sum_steps(since, share, start)

    @cached_property
    def flat(
        self,
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """First step of every machine, then of all steps the time and the share."""
        counts = [len(since) for since, _ in self._of]
        first: NDArray[np.int64] = np.cumsum([0, *counts], dtype=np.int64)
        since, share = (
            np.array([value for steps in self._of for value in steps[column]])
            for column in (0, 1)
        )
        return first, since, share
