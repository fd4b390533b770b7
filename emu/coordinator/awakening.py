"""Which senders to wake because a flow that waited may move now.

Who has just ended a task looks for its flows' lines by itself. Under rules that serve
one flow at a time another may wait for long: its sender looks ever less often, up to 20
ms late, and the flow may be over in one. With 462 flows in 8 s under ``fifo`` the error
fell from 2.8 to 1.7 %.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from emu.problem import Problem
    from emu.scheduling import Decisions


class Awakening:
    """Follows whose flows have a rate."""

    def __init__(self, problem: Problem) -> None:
        job = problem.job
        owner = {t: p for p, members in job.processes.items() for t in members}
        self._source = np.array([edge.source for edge in job.edges], dtype=np.int64)
        self._process = [owner[edge.source] for edge in job.edges]
        self._moving = np.full(len(job.edges), -1, dtype=np.int64)
        self._ended = np.full(len(job.tasks), np.nan)

    def task_ended(self, task: int, end: float) -> None:
        """Note that a task ended at this run time."""
        self._ended[task] = end

    def due(self, decisions: Decisions, now: float) -> dict[str, list[int]]:
        """Return process -> edges whose first flow got a rate after having waited.

        Parameters
        ----------
        now
            Run time from which the decisions' lines hold.
        """
        edges, iterations = decisions.lines.edge, decisions.lines.iteration
        moves = decisions.lines.rate > 0
        begins = moves & (self._moving[edges] != iterations)
        self._moving[edges] = np.where(moves, iterations, -1)
        waited = begins & (self._ended[self._source[edges]] != now)
        found: dict[str, list[int]] = {}
        for edge in edges[waited].tolist():
            found.setdefault(self._process[edge], []).append(edge)
        return found
