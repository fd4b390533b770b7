"""Ends that processes have told, until the scheduler may take them in.

A task that holds its profiled time tells its end as soon as its work is done, ahead of
it. When that time comes nothing has to wake but the coordinator: no process, to tell;
and its payload waits at the sender already.
"""

from __future__ import annotations

import heapq
import itertools
import math
from typing import TYPE_CHECKING, TypeAlias

from emu.wire.messages import TaskEnded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from emu.wire.messages import FlowEnded

    End: TypeAlias = TaskEnded | FlowEnded


def time_of(end: End) -> float:
    """Return the run time at which a task or flow ended, or will."""
    return end.end if isinstance(end, TaskEnded) else end.time


class Agenda:
    """Gives ends in the order of their times, none before it has come."""

    def __init__(self) -> None:
        self._ahead: list[tuple[float, int, End]] = []
        self._order = itertools.count()
        self._passed = -math.inf

    @property
    def next(self) -> float:
        """Earliest end that is kept, run time; infinite when there is none."""
        return self._ahead[0][0] if self._ahead else math.inf

    def add(self, ends: Iterable[End], now: float) -> None:
        """Take ends that were told by ``now``, run time."""
        for end in ends:
            time = time_of(end)
            if time <= now:
                self._passed = max(self._passed, time)
            heapq.heappush(self._ahead, (time, next(self._order), end))

    def due(self, until: float) -> list[End]:
        """Return ends up to ``until``, and up to the last that had passed when told.

        Parameters
        ----------
        until
            Run time before which every end should have been told.
        """
        until = max(until, self._passed)
        found = []
        while self._ahead and self.next <= until:
            found.append(heapq.heappop(self._ahead)[2])
        return found
