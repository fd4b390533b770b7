"""Ends that processes have told, until the scheduler may take them in.

A task that holds its profiled time tells its end as soon as its work is done, ahead of
it. So it is known what will happen, as far as no task runs that may end before and has
not told: that much of the schedule can be settled before its time, and everybody hears
of it in time.
"""

from __future__ import annotations

import heapq
import itertools
import math
from typing import TYPE_CHECKING

from emu.coordinator.scheduler_driver import event_time
from emu.errors import NodeMisbehaved
from emu.wire.messages import TaskEnded

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from emu.wire.messages import FlowEnded, RunTask


class EventQueue:
    """Gives ends in the order of their times, and says how far nothing is unknown.

    Parameters
    ----------
    holds
        The least that every iteration of every task takes, seconds, shape (tasks,
        iterations); None when nothing is known of it.
    """

    def __init__(self, holds: NDArray[np.float64] | None = None) -> None:
        self._holds = holds
        self._ahead: list[tuple[float, int, TaskEnded | FlowEnded]] = []
        self._order = itertools.count()
        self._passed = -math.inf
        self._running: dict[int, float] = {}  # and the least time of its end

    @property
    def next(self) -> float:
        """Earliest end that is kept, run time; infinite when there is none."""
        return self._ahead[0][0] if self._ahead else math.inf

    @property
    def lookahead_bound(self) -> float:
        """Earliest run time at which a task may end of whose end nothing is known."""
        return min(self._running.values(), default=math.inf)

    def begun(self, order: RunTask) -> None:
        """Note that a task was told to start."""
        holds = self._holds
        held = -math.inf if holds is None else holds[order.task, order.iteration]
        self._running[order.task] = order.start + float(held)

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
            if isinstance(end, TaskEnded):
                self._running.pop(end.task, None)
            heapq.heappush(self._ahead, (time, next(self._order), end))

    def heard(self, until: float) -> float:
        """Return ``until``, or the last end that had passed when it was told."""
        return max(until, self._passed)

    def due(self, until: float) -> list[TaskEnded | FlowEnded]:
        """Return ends up to ``until``."""
        found = []
        while self._ahead and self.next <= until:
            found.append(heapq.heappop(self._ahead)[2])
        return found
