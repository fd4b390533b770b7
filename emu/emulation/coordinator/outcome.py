"""Outcome of an emulated run, and the barrier of it."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from emu.array_types import Floats, Ints, Records
from emu.emulation.coordinator.board_record import BoardRecord
from emu.emulation.coordinator.desk import Desk
from emu.emulation.coordinator.rate_record import RateRecord
from emu.emulation.wire.array_parts import ArrayParts, Arrays
from emu.emulation.wire.frame_layout import ROWS
from emu.emulation.wire.messages import (
    FlowEnded,
    Frames,
    Message,
    Outcome,
    ResultPart,
    TaskEnded,
)
from emu.errors import NodeMisbehaved
from emu.prediction.scheduling import Scheduler
from emu.problem import Job, Problem, Realization, Schedule

#: Run time, task name, mini-batch of the whole job, figures that the task reported.
Report: TypeAlias = tuple[float, str, int, dict[str, float]]


@dataclass(frozen=True, eq=False)
class EmulatedRun:
    """Outcome of an emulated run."""

    schedule: Schedule
    realization: Realization
    """Times and volumes as they happened, to replay them in a simulation."""
    perturbed: Realization
    """Times and volumes with all that came late added to them: the simulation of these
    is the run itself."""
    arrivals: Floats
    """Run time at which the last byte of (edge, iteration) came; NaN where none did."""
    reports: list[Report]
    """Figures of every task that reported any."""
    results: dict[str, Arrays]
    """Arrays that tasks handed over at the end, by task name."""
    statistics: dict[str, dict[str, Any]]
    """Statistics of every process, as it counted them."""
    sent: Records
    received: Records
    connections: Records
    waits: Records
    """Rows of `frame_layout`: every frame, by sender and by receiver; states of the
    senders' connections, and waits at receivers."""
    late: Floats
    """Run seconds by which (task, iteration) ended after its profiled time."""
    cpu: Floats
    """CPU seconds of computation of (task, iteration)."""
    began: Floats
    """Run time at which (task, iteration) says that it began to compute, else NaN."""
    board: Records
    """Rows that senders of this host found on their rate board (`BOARD_ROWS`)."""
    turns: Floats
    """Long turns of the coordinator, as `TurnLog.rows` returns them."""
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
    def late_work(self) -> Floats:
        """Seconds of ``late`` in which the machine of (task, iteration) worked."""
        schedule = self.schedule
        end = schedule.task_end
        work = schedule.problem.work(end - self.late, end)
        return np.nan_to_num(work)  # of those that never ended


def processes_by_task(job: Job) -> dict[int, str]:
    """Return the process of every task that one runs, by the task's position."""
    by_task: dict[int, str] = {}
    for process, tasks in job.processes.items():
        by_task.update(dict.fromkeys(tasks, process))
    return by_task


class Answers:
    """Answers of processes at the end: their statistics, frames, and tasks' results."""

    def __init__(self, job: Job) -> None:
        self._owner = processes_by_task(job)
        self._tasks = job.tasks
        self._parts: dict[str, ArrayParts] = defaultdict(ArrayParts)
        self.statistics: dict[str, dict[str, Any]] = {}
        self._rows = {name: bytearray() for name in ROWS}

    def take(self, process: str, message: Message, window: list[float]) -> None:
        """Take in what a process says, between two run times in wall seconds.

        Raises NodeMisbehaved when it is nothing of that, a row of frames is cut short,
        or a result is another process's or longer than announced.
        """
        if isinstance(message, Outcome):
            statistics = {**message.statistics, "answered": window}
            self.statistics[process] = statistics
        elif isinstance(message, Frames):
            for kind, layout in ROWS.items():
                rows = getattr(message, kind)
                if len(rows) % layout.itemsize:
                    raise NodeMisbehaved("a row of the frames is cut short")
                self._rows[kind] += rows
        elif isinstance(message, ResultPart):
            self._take_result(process, message)
        else:
            kind = type(message).__name__
            raise NodeMisbehaved(f"{process} sent {kind} after the run")

    def _take_result(self, process: str, part: ResultPart) -> None:
        if self._owner.get(part.task) != process:
            raise NodeMisbehaved(f"{process} has results not its own")
        name = self._tasks[part.task].name
        with _blame(name):
            self._parts[name].add(part)

    def note_missing(self, missing: Ints) -> None:
        """Note how many rates of each edge never came to the board of its sender.

        A sender finds this when the next one comes: of the last rate it knows nothing.
        """
        for figures in self.statistics.values():
            for row in figures["sent"]:
                missing_of_edge = int(missing[row["edge"]])
                row["missed"] = max(row["missed"], missing_of_edge)

    def results(self) -> dict[str, Arrays]:
        """Return the arrays by task name and name.

        Raises NodeMisbehaved when one is cut short, or its type or shape cannot be.
        """
        arrays = {}
        for name, parts in self._parts.items():
            with _blame(name):
                arrays[name] = parts.arrays()
        return arrays

    def frames(self) -> dict[str, Records]:
        """Return the rows of every kind of `ROWS`, by its name."""
        return {
            kind: np.frombuffer(bytes(self._rows[kind]), layout)
            for kind, layout in ROWS.items()
        }


@contextlib.contextmanager
def _blame(task: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise NodeMisbehaved(f"of the result of {task}, {error}") from error


class Recorder:
    """Collects starts, ends and rates of a run for a Schedule and a Realization.

    The desk notes starts and ends. The scheduler itself keeps the bytes that were
    announced, what edges that read the newest have read, and the quotas. ``first`` is
    the number of iterations of the whole job before iteration 0.
    """

    def __init__(
        self,
        problem: Problem,
        scheduler: Scheduler,
        desk: Desk,
        first: int = 0,
    ) -> None:
        self._problem = problem
        self._scheduler = scheduler
        self._first = first
        self._volumes = scheduler.volumes
        self._log = scheduler.log
        self.reports: list[Report] = []
        self.loss = math.nan
        """Loss that a task has reported last."""
        self._untaken: dict[tuple[int, int], TaskEnded] = {}
        self.board = BoardRecord(len(problem.job.edges))

        self.task_start = desk.task_start
        self.task_end = desk.task_end
        self.began = desk.began
        self.late = desk.late
        self.cpu = desk.cpu
        self._activated = desk.activated
        self.arrivals = desk.arrivals
        self._ended = desk.flow_end

        self.rate_rows = RateRecord(len(scheduler.room.edge))

    @property
    def has_reports(self) -> bool:
        """True where a task has reported figures with an end that is yet to settle."""
        return bool(self._untaken)

    def take_report(self, end: TaskEnded) -> None:
        """Take what a task says of an iteration, to be filed when it is settled."""
        self._untaken[end.task, end.iteration] = end

    def file_report(self, end: TaskEnded | FlowEnded) -> None:
        """File what a task has said, if anything, of an iteration that has ended."""
        if not isinstance(end, TaskEnded):
            return
        told = self._untaken.pop((end.task, end.iteration), None)
        if told is not None:
            end.report = told.report
            self.loss = end.report.get("loss", self.loss)
            task = self._problem.job.tasks[end.task]
            # An iteration of a pipeline is a cycle, and phases are at other batches.
            mini_batch = end.iteration + self._first - task.behind
            self.reports.append((end.end, task.name, mini_batch, end.report))

    def realization(self) -> Realization:
        """Return the measured times and volumes, to replay in a simulation."""
        work = self._problem.work(self.task_start, self.task_end)
        times = np.maximum(np.nan_to_num(work), 0.0)  # what never ran took none
        return Realization(times, self._volumes)

    def schedule(self) -> Schedule:
        """Return the finished run as a Schedule.

        Handoffs within a machine and flows of no bytes end as soon as the flow before
        them on their edge has ended (DESIGN section 4), or on their channel.
        """
        job = self._problem.job
        ready = np.full(self._ended.shape, np.nan)
        start = np.full(self._ended.shape, np.nan)
        end = np.full(self._ended.shape, np.nan)
        for position, edge in enumerate(job.edges):
            crosses = self._problem.hops[position]
            free = 0.0  # when the flow before it has ended
            for iteration in range(job.flow_counts[position]):
                flow = (position, iteration)
                ready[flow] = self.task_end[edge.source, iteration]
                if crosses and self._volumes[flow] > 0:  # it was sent and reported
                    start[flow] = self._activated[flow]
                    end[flow] = self._ended[flow]
                elif crosses and edge.channel:  # its turn, of no length
                    start[flow] = end[flow] = self._log.flow_end[flow]
                else:
                    start[flow] = end[flow] = max(ready[flow], free)
                free = end[flow]

        is_flow = ~np.isnan(ready)
        reads = self._log.reads
        return Schedule(
            problem=self._problem,
            task_start=self.task_start,
            task_end=self.task_end,
            flow_ready=ready,
            flow_start=start,
            flow_end=end,
            flow_bytes=np.where(is_flow, self._volumes, np.nan),
            rates=self.rate_rows.history(),
            reads=reads if reads.size else None,
            quotas=self._scheduler.quotas,
            task_settled=self._log.task_end,
            flow_settled=self._log.flow_end,
        )
