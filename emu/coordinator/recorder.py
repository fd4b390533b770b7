"""Gather the events of an emulated run into a Schedule and a Realization."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
from isal import isal_zlib

from emu.analysis.link_load import fluid_ends
from emu.problem import RateHistory, Realization, Schedule
from emu.trust.resource_audit import lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import Problem
    from emu.scheduling import Decisions
    from emu.wire.messages import FlowEnded, TaskEnded

#: Columns of the rates that are recorded, by their names in `RateSegments`.
_COLUMNS = {"since": "d", "edge": "q", "iteration": "q", "rate": "d"}
#: Rates that are packed together, in 0.06 ms: 7 bytes each of 32 (an hour of golden).
_TOGETHER = 1024


class Recorder:
    """Collects starts, ends and rates while the run goes on.

    Parameters
    ----------
    volumes
        Bytes that were announced of every flow, shape (edges, iterations): those of
        the scheduler, which go on changing.
    reads
        What edges that read the newest have read, likewise; no rows where none does.
    """

    def __init__(
        self,
        problem: Problem,
        volumes: NDArray[np.float64],
        reads: NDArray[np.int64],
    ) -> None:
        job = problem.job
        self._problem = problem
        tasks, edges, iterations = len(job.tasks), len(job.edges), job.iterations
        self.task_start = np.full((tasks, iterations), np.nan)
        self.task_end = np.full((tasks, iterations), np.nan)
        self._activated = np.full((edges, iterations), np.nan)
        self.arrivals = np.full((edges, iterations), np.nan)
        self._ended = np.full((edges, iterations), np.nan)
        self._volumes, self._reads = volumes, reads
        self.task_settled = np.full((tasks, iterations), np.nan)
        self._flow_settled = np.full((edges, iterations), np.nan)
        # The arrays of each instant were 1 kB per event of a run.
        self._columns = {name: array(code) for name, code in _COLUMNS.items()}
        self._packed: dict[str, list[bytes]] = {name: [] for name in _COLUMNS}

    def decided(self, decisions: Decisions) -> None:
        """Note what the scheduler decided."""
        for task, iteration in decisions.tasks:
            self.task_start[task, iteration] = decisions.time
        for gate, iteration, start in decisions.gates:
            self.task_start[gate, iteration] = start
            self.task_end[gate, iteration] = decisions.time
            self.task_settled[gate, iteration] = decisions.time
        for edge, iteration in decisions.flows:
            self._activated[edge, iteration] = decisions.time
        for name, column in self._columns.items():
            values = getattr(decisions.lines, name)
            column.frombytes(np.ascontiguousarray(values, column.typecode).tobytes())
            if len(column) >= _TOGETHER:
                self._packed[name].append(isal_zlib.compress(column.tobytes(), 1))
                del column[:]

    def task_ended(self, message: TaskEnded, settled: float) -> None:
        """Note the end of a task, and when the scheduler settled it."""
        self.task_end[message.task, message.iteration] = message.end
        self.task_settled[message.task, message.iteration] = settled

    def flow_arrived(self, message: FlowEnded) -> None:
        """Note when a flow's last byte arrived."""
        self.arrivals[message.edge, message.iteration] = message.time

    def flow_ended(self, message: FlowEnded, settled: float) -> None:
        """Note when a flow ended, and when the scheduler settled it."""
        self._ended[message.edge, message.iteration] = message.time
        self._flow_settled[message.edge, message.iteration] = settled

    def realization(self) -> Realization:
        """Return the measured times and volumes, to replay in a simulation."""
        times = np.nan_to_num(self.task_end - self.task_start)
        return Realization(np.maximum(times, 0.0), self._volumes)

    def perturbed(self) -> Realization:
        """Return times and volumes that have what came late in them.

        A task lasts from when it could have started, had every flow ended with its
        fluid, until its end was settled. The scheduler of the simulation is that of the
        run, so these make it repeat the run, but for flows that waited for the late
        arrival of the one before on their edge.
        """
        schedule, job = self.schedule(), self._problem.job
        shaped = ~np.isnan(self._flow_settled)
        there = np.fmin(fluid_ends(schedule), self._flow_settled)
        could = np.zeros_like(self.task_settled)
        could[:, 1:] = self.task_settled[:, :-1]
        for e, edge in enumerate(job.edges):
            count = job.flow_counts[e]
            handed = self.task_settled[edge.source, :count]
            ends = np.where(shaped[e, :count], there[e, :count], handed)
            into = could[edge.destination, edge.lag : edge.lag + count]
            np.maximum(into, ends, out=into)
        for pool in schedule.problem.pools:  # the wait for a slot is no work
            takers = list(pool.takers)
            could[takers] = np.fmax(could[takers], self.task_start[takers])
        times = np.nan_to_num(self.task_settled - could)
        return Realization(np.maximum(times, 0.0), self._volumes)

    def schedule(self) -> Schedule:
        """Return the finished run as a Schedule.

        Handoffs within a machine and flows of no bytes end as soon as the flow before
        them on their edge has ended (DESIGN section 4), or on their channel.
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
            rates=self.rates(),
            reads=self._reads if self._reads.size else None,
        )

    def _flow_times(
        self,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        job = self._problem.job
        shape = self._ended.shape
        ready, start, end = (np.full(shape, np.nan) for _ in range(3))
        for e, edge in enumerate(job.edges):
            free = 0.0
            for n in range(job.flow_counts[e]):
                ready[e, n] = self.task_end[edge.source, n]
                start[e, n] = max(ready[e, n], free)
                end[e, n] = start[e, n]
                if self._problem.hops[e] and self._volumes[e, n] > 0:
                    start[e, n] = self._activated[e, n]
                    end[e, n] = self._ended[e, n]
                free = end[e, n]
        for _, edges, iterations in lines(self._problem, ready):
            free = 0.0
            for at in zip(edges.tolist(), iterations.tolist(), strict=True):
                if not self._volumes[at] > 0:
                    start[at] = end[at] = max(end[at], free)
                free = max(free, end[at])
        return ready, start, end

    def rates(self) -> RateHistory:
        """Return every rate that was assigned, in the order of time."""
        since, edge, iteration, rate = map(self._column, _COLUMNS)
        return RateHistory(time=since, edge=edge, iteration=iteration, rate=rate)

    def _column(self, name: str) -> NDArray[Any]:
        parts = [*map(isal_zlib.decompress, self._packed[name])]
        rest = self._columns[name]
        return np.frombuffer(bytearray().join([*parts, rest.tobytes()]), rest.typecode)
