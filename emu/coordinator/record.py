"""What happened in an emulated run, gathered into a Schedule and a Realization."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.problem import Realization
from emu.schedule import RateHistory, Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import Problem
    from emu.scheduling import Decisions
    from emu.wire.messages import FlowEnded, TaskEnded


class Recorder:
    """Collects starts, ends, volumes and rates while the run goes on."""

    def __init__(self, problem: Problem) -> None:
        job = problem.job
        self._problem = problem
        tasks, edges, iterations = len(job.tasks), len(job.edges), job.iterations
        self.task_start = np.full((tasks, iterations), np.nan)
        self.task_end = np.full((tasks, iterations), np.nan)
        self._activated = np.full((edges, iterations), np.nan)
        self._arrived = np.full((edges, iterations), np.nan)
        self._volumes = np.zeros((edges, iterations))
        self._lines: list[tuple[float, Decisions]] = []

    def decided(self, decisions: Decisions, time: float) -> None:
        """Note what the scheduler decided at run time ``time``."""
        for task, iteration in decisions.tasks:
            self.task_start[task, iteration] = time
        for edge, iteration in decisions.flows:
            self._activated[edge, iteration] = time
        if len(decisions.lines.edge):
            self._lines.append((time, decisions))

    def task_ended(self, message: TaskEnded) -> None:
        """Note the end of a task and what it sends."""
        self.task_end[message.task, message.iteration] = message.end
        self._volumes[message.edges, message.iteration] = message.volumes

    def volume(self, edge: int, iteration: int) -> float:
        """Return the bytes that the sender announced for a flow."""
        return float(self._volumes[edge, iteration])

    def flow_ended(self, message: FlowEnded) -> None:
        """Note the arrival of a flow's last byte."""
        self._arrived[message.edge, message.iteration] = message.time

    def realization(self) -> Realization:
        """Return the measured times and volumes, to replay in a simulation."""
        return Realization(
            np.maximum(self.task_end - self.task_start, 0.0), self._volumes
        )

    def schedule(self) -> Schedule:
        """Return the finished run as a Schedule.

        Handoffs within a machine and flows of no bytes end as soon as the flow before
        them on their edge has ended (DESIGN section 4).
        """
        ready, start, end = self._flow_times()
        sent = ~np.isnan(ready)
        return Schedule(
            problem=self._problem,
            task_start=self.task_start,
            task_end=self.task_end,
            flow_ready=ready,
            flow_start=start,
            flow_end=end,
            flow_bytes=np.where(sent, self._volumes, np.nan),
            rates=self._rates(),
        )

    def _flow_times(
        self,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        job = self._problem.job
        shape = self._arrived.shape
        ready, start, end = (np.full(shape, np.nan) for _ in range(3))
        for e, edge in enumerate(job.edges):
            free = 0.0
            for n in range(max(job.iterations - edge.lag, 0)):
                ready[e, n] = self.task_end[edge.source, n]
                start[e, n] = max(ready[e, n], free)
                end[e, n] = start[e, n]
                if self._problem.hops[e] and self._volumes[e, n] > 0:
                    start[e, n] = self._activated[e, n]
                    end[e, n] = self._arrived[e, n]
                free = end[e, n]
        return ready, start, end

    def _rates(self) -> RateHistory:
        counts = [len(decisions.lines.edge) for _, decisions in self._lines]
        if not counts:
            nothing = np.empty(0, dtype=np.int64)
            return RateHistory(np.empty(0), nothing, nothing, np.empty(0))
        return RateHistory(
            time=np.repeat([time for time, _ in self._lines], counts),
            edge=np.concatenate([d.lines.edge for _, d in self._lines]),
            iteration=np.concatenate([d.lines.iteration for _, d in self._lines]),
            rate=np.concatenate([d.lines.rate for _, d in self._lines]),
        )
