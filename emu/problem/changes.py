"""Changes while a job runs: capacities of links and speeds of machines over time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from emu.array_types import Floats, Ints

#: Times, the first of them 0, and what holds from each of them on.
Steps: TypeAlias = tuple[Floats, Floats]

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


#: Word for what a change of each kind of thing states.
_LEVELS = {"link": "capacity", "machine": "share"}


def _check(
    kind: str,
    changes: Sequence[tuple[str, float, float]],
    known: Collection[str],
) -> None:
    """Check changes of (name, time, what it has from then on).

    Raises ValueError when one is of nothing known, a time is not positive and finite, a
    value is negative or not finite, or two changes of one thing are of one time.
    """
    # Written so that a NaN is refused, too: it compares as false with everything.
    for name, time, value in changes:
        if name not in known:
            raise ValueError(f"no {kind} is called {name}")
        if not 0 < time < math.inf:
            raise ValueError(
                f"a change of {name}: time {time} is not positive and finite"
            )
        if not 0 <= value < math.inf:
            raise ValueError(
                f"a change of {name}: {_LEVELS[kind]} {value} is negative or not finite"
            )

    # Of two changes of one instant nobody could say which holds.
    counts = Counter((name, time) for name, time, _ in changes)
    for (name, time), count in counts.items():
        if count > 1:
            raise ValueError(f"{name} changes {count} times at {time} s")


def _sum_steps(step_times: Floats, level: Floats, times: Floats) -> Floats:
    """Return what has come by each of ``times`` at a level that changes in steps."""
    sum_before = _sums_before(step_times, level)
    # Never -1, which numpy would take for the last step.
    steps_begun = np.searchsorted(step_times, times, side="right")
    place = np.maximum(steps_begun - 1, 0)
    elapsed = times - step_times[place]
    of_step = level[place] * elapsed
    sums: Floats = sum_before[place] + of_step
    return sums


def _sums_before(step_times: Floats, level: Floats) -> Floats:
    """Return what has come by the beginning of every step."""
    spans = np.diff(step_times)
    of_steps = spans * level[:-1]  # the last step has no end
    sums = np.cumsum(of_steps)
    return np.append(0.0, sums)


class CapacitySteps:
    """The capacity of every port as steps over time.

    ``start``: bytes per second of every port at time 0. ``rows``: time, port and new
    capacity of every change to another one, in the order of their times, shape
    (changes, 3).

    Raises ValueError when a change is of no link, a time is not positive and finite, a
    capacity is negative or not finite, or two changes of a link are of one time.
    """

    def __init__(
        self,
        start: Floats,
        changes: Sequence[CapacityChange],
        ports: Mapping[str, int],
    ) -> None:
        entries = [(change.link, change.time, change.capacity) for change in changes]
        _check("link", entries, ports)
        self._start = start
        self._known: dict[int, Steps] = {}

        stated = [(time, ports[link], capacity) for link, time, capacity in entries]
        stated.sort()
        present = start.tolist()
        rows = []
        for time, port, capacity in stated:
            # To the same capacity it would be an event without an effect, at which
            # some rules look at their flows anew.
            if capacity != present[port]:
                present[port] = capacity
                rows.append((time, port, capacity))
        flat = np.array(rows, dtype=np.float64)
        self.rows: Floats = flat.reshape(-1, 3)

    def of(self, port: int) -> Steps:
        """Return the times, the first of them 0, from which each capacity holds."""
        if port not in self._known:  # a critical path asks 1,700 times: 0.1 s of CPU
            is_of_port = self.rows[:, 1] == port
            rows = self.rows[is_of_port]
            step_times = np.append(0.0, rows[:, 0])
            capacity = np.append(self._start[port], rows[:, 2])
            self._known[port] = (step_times, capacity)
        return self._known[port]

    def at(self, port: int, times: Floats) -> Floats:
        """Return the capacity from each of ``times`` on, changes of then made."""
        step_times, capacity = self.of(port)
        # A change of the same instant, but for rounding, is made by then.
        place = np.searchsorted(step_times, times * (1.0 + TIE), side="right") - 1
        place = np.maximum(place, 0)
        return capacity[place]

    def carry(self, port: int, times: Floats) -> Floats:
        """Return the bytes that a port can carry by each of ``times``."""
        step_times, capacity = self.of(port)
        return _sum_steps(step_times, capacity, times)

    def when(self, port: int, volume: float) -> float:
        """Return when a port can have carried so many bytes, infinite for never."""
        step_times, capacity = self.of(port)
        sum_before = _sums_before(step_times, capacity)
        # From the left: what a port has carried just as it is cut, it has carried.
        place = int(np.searchsorted(sum_before, volume)) - 1
        if place < 0:
            return 0.0
        if capacity[place] == 0:  # cut for good
            return math.inf
        rest = volume - sum_before[place]
        seconds = rest / capacity[place]
        return float(step_times[place] + seconds)

    @property
    def losses(self) -> Floats:
        """Time, port and lost bytes per second of every change, as `rows`."""
        losses = self.rows.copy()
        present = self._start.copy()
        for row in losses:
            port = int(row[1])
            capacity = row[2]
            row[2] = present[port] - capacity
            present[port] = capacity
        return losses

    @property
    def cut_for_good(self) -> list[int]:
        """Ports whose last capacity is 0."""
        # Rows go by time: of a port the last one stays.
        last = {}
        for _, port, capacity in self.rows.tolist():
            last[int(port)] = capacity
        return sorted(port for port, capacity in last.items() if capacity == 0)

    @property
    def most(self) -> Floats:
        """The largest capacity that every port ever has."""
        # Not of the rows alone: a link that only gets slower was fastest at first.
        most = self._start.copy()
        ports = self.rows[:, 1].astype(np.int64)
        capacities = self.rows[:, 2]
        np.maximum.at(most, ports, capacities)
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
    step_times: Sequence[float],
    share: Sequence[float],
    start: float,
    work: float,
) -> float:
    """Return when work is done that a machine begins at ``start``, seconds.

    Work that is done as a machine stops is done. ``step_times``, ``share``: times,
    the first of them 0, from which it has each share of its speed; ``work``: seconds
    that it takes at full speed.
    """
    if work <= 0.0:
        return start

    time = start
    step = bisect_right(step_times, start) - 1
    while True:
        next_time = step_times[step + 1] if step + 1 < len(step_times) else math.inf
        if share[step] > 0.0:
            end = time + work / share[step]
            # Else rounding would leave a rest that waits until the machine goes on.
            if end <= next_time * (1.0 + TIE):
                return end
            work -= share[step] * (next_time - time)
        # It stands still for good: such work never ends.
        elif next_time == math.inf:
            return math.inf
        time = next_time
        step += 1


class SpeedSteps:
    """The share of its speed that every machine has, as steps over time.

    Raises ValueError when a change is of no machine, a time is not positive and finite,
    a share is not from 0 to 1, two changes of a machine are of one time, or one stands
    still for good.
    """

    def __init__(
        self,
        changes: Sequence[SpeedChange],
        machines: Mapping[str, int],
    ) -> None:
        entries = [(change.machine, change.time, change.share) for change in changes]
        _check("machine", entries, machines)
        for name, _, level in entries:
            if level > 1:
                raise ValueError(f"a change of {name}: share {level} is above 1")

        self._of: list[tuple[list[float], list[float]]] = []
        for _ in machines:
            self._of.append(([0.0], [1.0]))
        # Appended in the order of time, however the file lists them.
        for change in sorted(changes, key=lambda change: change.time):
            step_times, share = self._of[machines[change.machine]]
            step_times.append(change.time)
            share.append(change.share)

        for name, machine in machines.items():
            step_times, share = self._of[machine]
            # Its tasks would never end; a link may be cut for good where nothing
            # crosses it.
            if share[-1] == 0:
                raise ValueError(
                    f"{name} stands still from {step_times[-1]} s on for good"
                )

    def of(self, machine: int) -> tuple[list[float], list[float]]:
        """Return the times, the first of them 0, from which each share holds."""
        return self._of[machine]

    def work(self, machine: int, start: Floats, end: Floats) -> Floats:
        """Return the seconds at full speed that a machine can do from start to end."""
        step_times, share = map(np.array, self._of[machine])
        # Most machines: there is nothing to add up.
        if len(step_times) == 1:
            return end - start
        by_end = _sum_steps(step_times, share, end)
        by_start = _sum_steps(step_times, share, start)
        return by_end - by_start

    @cached_property
    def flat(self) -> tuple[Ints, Floats, Floats]:
        """First step of every machine, then of all steps the time and the share."""
        counts = [0]
        times: list[float] = []
        shares: list[float] = []
        for times_of_machine, shares_of_machine in self._of:
            counts.append(len(times_of_machine))
            times += times_of_machine
            shares += shares_of_machine
        first: Ints = np.cumsum(counts, dtype=np.int64)
        return first, np.array(times), np.array(shares)
