"""Outcome of an emulated run, and the barrier of it."""

from __future__ import annotations

import contextlib
from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from emu.emulation.wire.array_parts import ArrayParts, Arrays
from emu.emulation.wire.frame_layout import FRAME_ROWS
from emu.emulation.wire.messages import FlowEnded, Frames, ResultPart, TaskEnded
from emu.errors import NodeMisbehaved
from emu.prediction.scheduling import Decisions, Scheduler
from emu.problem import Problem, RateHistory, Realization, Schedule
from emu.trust.lateness import late_times

#: Columns of the rates that are recorded, by their names in `RateSegments`.
_COLUMNS = {"since": "d", "edge": "q", "iteration": "q", "rate": "d"}
#: Rates that are packed together, in 0.06 ms: 7 bytes each of 32 (an hour of golden).
_TOGETHER = 1024


@dataclass(frozen=True, eq=False)
class EmulatedRun:
    """Outcome of an emulated run."""

    schedule: Schedule
    realization: Realization
    """Times and volumes as they happened, to replay them in a simulation."""
    perturbed: Realization
    """Times and volumes with all that came late added to them: the simulation of these
    is the run itself."""
    arrivals: NDArray[np.float64]
    """Run time at which the last byte of (edge, iteration) came; NaN where none did."""
    reports: list[tuple[float, str, int, dict[str, float]]]
    """(run time, task name, iteration of the whole job, figures) of every task that
    reported any."""
    results: dict[str, Arrays]
    """Arrays that tasks handed over at the end, by task name."""
    statistics: dict[str, dict[str, Any]]
    """Statistics of every process, as it counted them."""
    sent: NDArray[np.void]
    received: NDArray[np.void]
    """Rows of `frame_layout`: every frame, by sender and by receiver."""
    late: NDArray[np.float64]
    """Run seconds by which (task, iteration) ended after its profiled time."""
    cpu: NDArray[np.float64]
    """CPU seconds of computation of (task, iteration)."""
    began: NDArray[np.float64]
    """Run time at which (task, iteration) says that it began to compute, else NaN."""
    hosts: list[dict[str, Any]]
    """Descriptions of the hosts, as their agents reported them."""
    tuning: dict[str, Any]
    startup: dict[str, float]
    """Wall seconds until every process was connected and ready, and their summed
    proportional memory in bytes (local processes; 0 when unknown)."""
    wall: float
    """Wall seconds from run time 0 until the last end was settled, up to 50 ms before
    its time."""

    @property
    def late_work(self) -> NDArray[np.float64]:
        """Seconds of ``late`` in which the machine of (task, iteration) worked."""
        end = self.schedule.task_end
        return np.nan_to_num(self.schedule.problem.work(end - self.late, end))


@dataclass
class Tally:
    """Figures of the tasks, gathered while the run goes on."""

    late: NDArray[np.float64]
    cpu: NDArray[np.float64]
    began: NDArray[np.float64]
    first: int = 0
    """Iterations of the whole job before iteration 0."""
    reports: list[tuple[float, str, int, dict[str, float]]] = field(
        default_factory=list
    )

    @classmethod
    def of(cls, problem: Problem, first: int) -> Tally:
        """Return an empty tally for a problem that begins at an iteration."""
        shape = len(problem.job.tasks), problem.job.iterations
        # Not zeros: their memory would only be taken as the run goes on.
        late, cpu, began = (np.full(shape, value) for value in (0.0, 0.0, np.nan))
        return cls(late, cpu, began, first)

    def note(self, message: TaskEnded, name: str) -> None:
        """Note what the task of this name says of one iteration."""
        at = message.task, message.iteration
        self.late[at], self.cpu[at] = message.late, message.cpu
        self.began[at] = message.began
        if message.report:
            n = message.iteration + self.first
            self.reports.append((message.end, name, n, message.report))


class FrameRows:
    """Rows of `frame_layout`, put together from those of all processes."""

    def __init__(self) -> None:
        self._sent, self._received = bytearray(), bytearray()

    def add(self, message: Frames) -> None:
        """Take in some rows.

        Raises NodeMisbehaved when a row is cut short.
        """
        if (len(message.sent) | len(message.received)) % FRAME_ROWS.itemsize:
            raise NodeMisbehaved("a row of the frames is cut short")
        self._sent += message.sent
        self._received += message.received

    def arrays(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Return the rows of senders and of receivers."""
        out_rows, in_rows = bytes(self._sent), bytes(self._received)
        return np.frombuffer(out_rows, FRAME_ROWS), np.frombuffer(in_rows, FRAME_ROWS)


class Results:
    """Arrays that tasks hand over at the end, put together from their parts."""

    def __init__(self, problem: Problem) -> None:
        self._names = [task.name for task in problem.job.tasks]
        self._parts: dict[int, ArrayParts] = defaultdict(ArrayParts)

    def add(self, part: ResultPart) -> None:
        """Take in the next part of an array.

        Raises NodeMisbehaved when the parts of an array are longer than it.
        """
        with self._blame(part.task):
            self._parts[part.task].add(part)

    def arrays(self) -> dict[str, Arrays]:
        """Return the arrays by task name and name.

        Raises NodeMisbehaved when one is cut short, or its type or shape cannot be.
        """
        found = {}
        for task, parts in self._parts.items():
            with self._blame(task):
                found[self._names[task]] = parts.arrays()
        return found

    @contextlib.contextmanager
    def _blame(self, task: int) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            problem = f"of the result of {self._names[task]}, {error}"
            raise NodeMisbehaved(problem) from error


# Gather the events of an emulated run into a Schedule and a Realization.


class Recorder:
    """Collects starts, ends and rates while the run goes on.

    Parameters
    ----------
    scheduler
        What it decides is recorded; it keeps the bytes that were announced, what edges
        that read the newest have read, and the quotas.
    """

    def __init__(self, problem: Problem, scheduler: Scheduler) -> None:
        job = problem.job
        self._problem = problem
        tasks, edges, iterations = len(job.tasks), len(job.edges), job.iterations
        self.task_start = np.full((tasks, iterations), np.nan)
        self.task_end = np.full((tasks, iterations), np.nan)
        self._activated = np.full((edges, iterations), np.nan)
        self.arrivals = np.full((edges, iterations), np.nan)
        self._ended = np.full((edges, iterations), np.nan)
        self._scheduler = scheduler
        self._volumes, self._log = scheduler.volumes, scheduler.log
        # The arrays of each instant were 1 kB per event of a run.
        self._columns = {name: array(code) for name, code in _COLUMNS.items()}
        self._packed: dict[str, list[bytes]] = {name: [] for name in _COLUMNS}

    def on_decisions(self, decisions: Decisions) -> None:
        """Note what the scheduler decided."""
        for task, iteration in decisions.tasks:
            self.task_start[task, iteration] = decisions.time
        for gate, iteration, start in decisions.gates:
            self.task_start[gate, iteration] = start
            self.task_end[gate, iteration] = decisions.time
        for edge, iteration in decisions.flows:
            self._activated[edge, iteration] = decisions.time
        for name, column in self._columns.items():
            values = getattr(decisions.lines, name)
            column.frombytes(np.ascontiguousarray(values, column.typecode).tobytes())
            if len(column) >= _TOGETHER:
                self._packed[name].append(isal_zlib.compress(column.tobytes(), 1))
                del column[:]

    def task_ended(self, message: TaskEnded) -> None:
        """Note the end of a task."""
        self.task_end[message.task, message.iteration] = message.end

    def flow_arrived(self, message: FlowEnded) -> None:
        """Note when a flow's last byte arrived."""
        self.arrivals[message.edge, message.iteration] = message.time

    def flow_ended(self, message: FlowEnded) -> None:
        """Note when a flow ended."""
        self._ended[message.edge, message.iteration] = message.time

    def realization(self) -> Realization:
        """Return the measured times and volumes, to replay in a simulation."""
        work = self._problem.work(self.task_start, self.task_end)
        times = np.maximum(np.nan_to_num(work), 0.0)
        return Realization(times, self._volumes)

    def with_lateness(self) -> Realization:
        """Return times and volumes that have what came late in them."""
        return Realization(late_times(self.schedule()), self._volumes)

    def schedule(self) -> Schedule:
        """Return the finished run as a Schedule.

        Handoffs within a machine and flows of no bytes end as soon as the flow before
        them on their edge has ended (DESIGN section 4), or on their channel.
        """
        job = self._problem.job
        ready, start, end = (np.full(self._ended.shape, np.nan) for _ in range(3))
        for e, edge in enumerate(job.edges):
            free = 0.0
            for n in range(job.flow_counts[e]):
                ready[e, n] = self.task_end[edge.source, n]
                start[e, n] = end[e, n] = max(ready[e, n], free)
                if self._problem.hops[e] and self._volumes[e, n] > 0:
                    start[e, n], end[e, n] = self._activated[e, n], self._ended[e, n]
                elif self._problem.hops[e] and edge.channel:  # its turn, of no length
                    start[e, n] = end[e, n] = self._log.flow_end[e, n]
                free = end[e, n]
        with_bytes = ~np.isnan(ready)
        return Schedule(
            problem=self._problem,
            task_start=self.task_start,
            task_end=self.task_end,
            flow_ready=ready,
            flow_start=start,
            flow_end=end,
            flow_bytes=np.where(with_bytes, self._volumes, np.nan),
            rates=self.rates(),
            reads=self._log.reads if self._log.reads.size else None,
            quotas=self._scheduler.quotas,
            task_settled=self._log.task_end,
            flow_settled=self._log.flow_end,
        )

    def rates(self) -> RateHistory:
        """Return every rate that was assigned, in the order of time."""
        columns = []
        for name, rest in self._columns.items():
            parts = [*map(isal_zlib.decompress, self._packed[name]), rest.tobytes()]
            columns.append(np.frombuffer(bytearray().join(parts), rest.typecode))
        return RateHistory(*columns)
