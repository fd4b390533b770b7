"""Ends that processes have told, until the scheduler may take them in.

A task that holds its profiled time tells its end as soon as its work is done, ahead of
it. When that time comes nothing has to wake but the coordinator: no process, to tell;
and its payload waits at the sender already.
"""

from __future__ import annotations

import heapq
import itertools
import math
from typing import TYPE_CHECKING

from emu.coordinator.online import event_time
from emu.errors import NodeMisbehaved

if TYPE_CHECKING:
    from collections.abc import Iterable

    from emu.wire.messages import FlowEnded, TaskEnded


class Agenda:
    """Gives ends in the order of their times, none before it has come."""

    def __init__(self) -> None:
        self._ahead: list[tuple[float, int, TaskEnded | FlowEnded]] = []
        self._order = itertools.count()
        self._passed = -math.inf

    @property
    def next(self) -> float:
        """Earliest end that is kept, run time; infinite when there is none."""
        return self._ahead[0][0] if self._ahead else math.inf

    def add(self, ends: Iterable[TaskEnded | FlowEnded], now: float) -> None:
        """Take ends that were told by ``now``, run time.

        Raises
        ------
        NodeMisbehaved
            When the time of one is not a number.
        """
        for end in ends:
            time = event_time(end)
            if not math.isfinite(time):
                raise NodeMisbehaved(f"a process reported the impossible: {end}")
            if time <= now:
                self._passed = max(self._passed, time)
            heapq.heappush(self._ahead, (time, next(self._order), end))

    def due(self, until: float) -> list[TaskEnded | FlowEnded]:
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
