"""Which senders to wake that a flow of theirs may go, or go much faster.

Otherwise they would have to look: every 0.1 ms for a flow that gets its rate at once,
while under rules that serve one flow at a time most wait for long. With 462 flows in 6
s under ``fifo`` the error fell from 1.03-1.53 to 0.92-1.07 % (three runs each), and
from 1.50-2.03 % where only those were notified that had to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.shaping import RISE
from emu.wire.messages import WakeSender

if TYPE_CHECKING:
    from emu.problem import Problem
    from emu.scheduling import RateSegments


class SenderWakeups:
    """Follows what senders know of the rates of their flows."""

    def __init__(self, problem: Problem) -> None:
        job = problem.job
        owner = {t: p for p, members in job.processes.items() for t in members}
        self._process = {
            e: owner[edge.source]
            for e, edge in enumerate(job.edges)
            if not job.control[e]
        }
        self._iteration = np.full(len(job.edges), -1, dtype=np.int64)
        #: Lowest rate of the flow since its sender was notified: it knows none lower.
        self._known = np.zeros(len(job.edges))

    def due(self, lines: RateSegments) -> dict[str, WakeSender]:
        """Return what to wake to which process: of rates `RISE` times those known."""
        edges, rates = lines.edge, lines.rate
        new = self._iteration[edges] != lines.iteration
        known = np.where(new, 0.0, self._known[edges])
        wake = (rates > 0) & (rates >= RISE * known)
        self._iteration[edges] = lines.iteration
        self._known[edges] = np.where(wake, rates, np.minimum(known, rates))
        found: dict[str, tuple[list[int], list[float]]] = {}
        woken = zip(edges[wake].tolist(), lines.since[wake].tolist(), strict=True)
        for edge, since in woken:
            mine = found.setdefault(self._process[edge], ([], []))
            mine[0].append(edge)
            mine[1].append(since)
        return {process: WakeSender(*mine) for process, mine in found.items()}
