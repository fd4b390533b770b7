"""Speeds over time: a machine has all of its speed, until a change gives it a share."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from emu.problem.capacity_changes import TIE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


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

    Work that is done as a machine stops is done.

    Parameters
    ----------
    since, share
        Times, the first of them 0, from which it has each share of its speed.
    work
        Seconds that it takes at full speed.
    """
    if work <= 0.0:
        return start
    now, step = start, bisect_right(since, start) - 1
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

    Parameters
    ----------
    changes
        Changes of them, in any order.
    machines
        Position of every machine by its name.

    Raises
    ------
    ValueError
        When a change is of no machine, a time is not positive and finite, a share is
        not from 0 to 1, two changes of a machine are of one time, or one stands still
        for good.
    """

    def __init__(
        self, changes: Sequence[SpeedChange], machines: Mapping[str, int]
    ) -> None:
        for change in changes:
            name = change.machine
            if name not in machines:
                raise ValueError(f"no machine is called {name}")
            if not 0 < change.time < math.inf:
                raise ValueError(f"a speed of {name}: time {change.time} cannot be")
            if not 0 <= change.share <= 1:
                raise ValueError(f"a speed of {name}: share {change.share} cannot be")
        for (name, time), count in Counter(
            (c.machine, c.time) for c in changes
        ).items():
            if count > 1:
                raise ValueError(
                    f"the speed of {name} changes {count} times at {time} s"
                )
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
        self,
        machine: int,
        start: NDArray[np.float64],
        end: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the seconds at full speed that a machine can do from start to end."""
        since, share = (np.array(values) for values in self._of[machine])
        if len(since) == 1:
            return end - start
        done = np.append(0.0, np.cumsum(np.diff(since) * share[:-1]))

        def by(times: NDArray[np.float64]) -> NDArray[np.float64]:
            place = np.maximum(np.searchsorted(since, times, side="right") - 1, 0)
            worked: NDArray[np.float64] = share[place] * (times - since[place])
            return done[place] + worked

        return by(end) - by(start)

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
