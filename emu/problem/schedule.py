"""Start and end of every (task, iteration) and flow, and the rates in between."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from typing_extensions import override

from emu.array_types import Array, Floats, Ints, Mask
from emu.host.foreign_code import INSTALL_FIGURES, import_library
from emu.names import html_table
from emu.units import format_duration

if TYPE_CHECKING:
    import pandas as pd

    from emu.problem import Pool, Problem


class TaskRow(TypedDict):
    """A (task, iteration) as result.json has it, see `Schedule.to_json`."""

    task: str
    iteration: int
    start: float
    end: float


#: A flow likewise: ``from`` is a word of Python, and no attribute.
FlowRow = TypedDict(
    "FlowRow",
    {
        "edge": str,
        "from": str,
        "to": str,
        "iteration": int,
        "ready": float,
        "start": float,
        "end": float,
        "bytes": float,
        "landed": NotRequired[float],
    },
)


class ActiveFlow(NamedTuple):
    """A flow that waits for its rate; listed by ``serves``, destination, source."""

    edge: str
    """Name of its edge, as ``a->b``: unique, among flows that are active too."""
    source: str
    """Task that sends it."""
    destination: str
    """Task that waits for it."""
    iteration: int
    """Iteration of the source, from 0."""
    serves: int
    """Iteration of the destination."""
    volume: float
    """Bytes in all."""
    links: tuple[str, ...]
    """Links that it crosses, ``m0 out`` and ``m1 in`` unless a route states others."""
    job: str
    """Job of its tasks, empty where there is one."""
    left: float
    """Bytes to go, above 0."""
    coflow: str = ""
    """Name of its coflow, else its destination: flows of one that serve one iteration
    go together."""

    @property
    def name(self) -> str:
        """Name of it in errors."""
        return f"{self.edge} of iteration {self.iteration}"


#: Seconds by which a time may be off, simulated or emulated: rounding. What processes
#: report late, the scheduler knows late: its decisions are judged by `task_settled`.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class RateHistory:
    """Assigned rates, one row per change, in the order of time.

    Row i means: from ``time[i]`` on, seconds, the flow ``iteration[i]`` of ``edge[i]``
    has ``rate[i]``, bytes per second, until its next row or its end.
    """

    time: Floats
    edge: Ints
    iteration: Ints
    rate: Floats

    def rows(self, chosen: Array) -> RateHistory:
        """Return the chosen rows, by their positions or a mask."""
        return RateHistory(
            time=self.time[chosen],
            edge=self.edge[chosen],
            iteration=self.iteration[chosen],
            rate=self.rate[chosen],
        )


@dataclass(frozen=True)
class Outages:
    """Seconds that deaths add to a job: part of its makespan, of no schedule."""

    seconds: float = 0.0
    """Length of the whole job less the end of the last task in its schedule."""
    recovery: float = 0.0
    """Seconds of them in which nothing runs: as stated, so no prediction at all."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """One finished run of a problem, simulated or emulated.

    Parameters
    ----------
    task_start, task_end
        Seconds, shape (tasks, iterations); NaN where a task has fewer (`Job.rounds`).
    flow_ready, flow_start, flow_end
        Seconds, shape (edges, iterations), iteration of the source; ready when the
        source ended, start when the flow before it on the edge ended too. NaN where
        nothing is sent (`Job.sends`). A local handoff has all three equal.
    flow_bytes
        Bytes, same shape, NaN where nothing is sent.
    rates
        Assigned rates, or None when they were not recorded.
    reads
        Iteration of the source that every iteration of the destination read, -1 where
        none had arrived, int64, shape (edges, iterations); of edges that read the
        newest, -1 on others. None where the job has no such edge.
    quotas
        Slots of each tuned pool from every look on, int64, shape (looks, tuners), in
        the order of ``Cluster.tuners``; 0 where one looked less often. None where none
        is tuned.
    task_settled, flow_settled
        Seconds at which the scheduler of an emulated run took each end in: it is
        reported, so later than the end itself, and what was decided in between did not
        know of it. Shapes as above; None where decisions know every end at once.
    outages
        Seconds that deaths add. The schedule is that of the attempt that lasted, or of
        the job without deaths.
    """

    problem: Problem
    task_start: Floats
    task_end: Floats
    flow_ready: Floats
    flow_start: Floats
    flow_end: Floats
    flow_bytes: Floats
    rates: RateHistory | None = None
    reads: Ints | None = None
    quotas: Ints | None = None
    task_settled: Floats | None = None
    flow_settled: Floats | None = None
    outages: Outages = Outages()

    @override
    def __repr__(self) -> str:
        """Return the makespan and the sizes of the job."""
        return (
            f"<Schedule: makespan {format_duration(self.makespan, 5)}, "
            f"{self.problem.job!r}>"
        )

    @property
    def makespan(self) -> float:
        """Seconds of the whole job (objective (15)), with those that deaths add."""
        return self.length + self.outages.seconds

    @property
    def length(self) -> float:
        """End of the last task, seconds."""
        # Tasks of fewer iterations have NaN in the others.
        return float(np.nanmax(self.task_end))

    def error_over(self, expected: Schedule) -> float:
        """Return how far the makespan is off another one, as a share of that.

        Recovery is left out of what it is a share of: it would dilute any error. Of no
        time at all it is 1, or 0 where clocks are apart by rounding.
        """
        difference = self.makespan - expected.makespan
        running = expected.makespan - expected.outages.recovery
        return difference / running if running else float(difference > ROUNDING)

    @property
    def tasks(self) -> pd.DataFrame:
        """One row per (task, iteration), in columns; DataError without pandas."""
        pandas = import_library("pandas", "schedule.tasks", INSTALL_FIGURES)
        job = self.problem.job
        count, iterations = self.task_start.shape
        names = [task.name for task in job.tasks]
        kinds = [task.kind for task in job.tasks]
        machine_of = self.problem.machine_of_task
        machines = [machine_of[name] for name in names]
        numbers = np.arange(iterations)

        rows = pandas.DataFrame(
            {
                "task": np.repeat(names, iterations),
                "kind": np.repeat(kinds, iterations),
                "machine": np.repeat(machines, iterations),
                "iteration": np.tile(numbers, count),
                "start": self.task_start.ravel(),
                "end": self.task_end.ravel(),
            }
        )
        # NaN where a task has fewer iterations than the job.
        return rows.dropna(subset=["end"])

    @property
    def work(self) -> Floats:
        """Seconds of (task, iteration) as of `Problem.work`, 0 where it did not."""
        seconds = self.problem.work(self.task_start, self.task_end)
        seconds = np.nan_to_num(seconds)
        # Differences of sums may be below nothing by rounding.
        return np.maximum(seconds, 0.0)

    def _repr_html_(self) -> str:
        """Return the machines, what they ran and how long they computed."""
        problem = self.problem
        # NaN where a task has fewer iterations than the job.
        seconds = self.task_end - self.task_start
        busy = np.nansum(seconds, axis=1)

        machine_of = np.array(problem.placement.machine_of)
        rows = []
        for position, machine in enumerate(problem.cluster.machines):
            tasks = np.flatnonzero(machine_of == position).tolist()
            if tasks:
                names = ", ".join(problem.job.tasks[task].name for task in tasks)
                computing = float(busy[tasks].sum())
                rows.append((machine.name, names, format_duration(computing)))
        columns = ("machine", "tasks", "computing")
        return html_table(repr(self), columns, rows)

    def bars(self) -> Mask:
        """Return which (task, iteration) a picture shows: all but gates of no time."""
        tasks = self.problem.job.tasks
        gates = np.array([task.gate for task in tasks], dtype=bool)
        # A release lasts, and is shown; a barrier takes no time, and is not.
        takes_no_time = self.task_end <= self.task_start
        is_hidden = gates[:, None] & takes_no_time
        has_run = ~np.isnan(self.task_end)
        return has_run & ~is_hidden

    def flows(self) -> Ints:
        """Return (edge, iteration) of every flow between machines, shape (flows, 2)."""
        hops = self.problem.hops
        remote = np.array([bool(ports) for ports in hops], dtype=bool)
        has_ended = ~np.isnan(self.flow_end)
        # Of what stays on one machine no bytes crossed anything.
        return np.argwhere(has_ended & remote[:, None])

    def to_json(self) -> dict[str, Any]:
        """Return the documented, stable form: seconds, bytes, iterations from 0.

        ``{"makespan", "tasks": [{"task", "iteration", "start", "end"}], "flows":
        [{"edge", "from", "to", "iteration", "ready", "start", "end", "bytes"}]}``;
        flows are those between two machines, ``edge`` is their edge by name,
        ``iteration`` is that of the source; where links have latencies, ``landed`` is
        when its destination has it. Where edges read the newest, ``reads``
        has a row for each by name: see `Schedule.reads`; and ``quotas`` has the quotas
        of each tuned pool, ``lambdas of m0``.
        """
        content: dict[str, Any] = {"makespan": self.makespan}
        if self.outages != Outages():
            content["outages"] = asdict(self.outages)
        content["tasks"] = self._task_rows()
        content["flows"] = self._flow_rows()
        if self.reads is not None:
            content["reads"] = self._read_rows(self.reads)
        if self.quotas is not None:
            cluster = self.problem.cluster
            paths = map(list, cluster.paths_of(self.quotas))
            content["quotas"] = dict(zip(cluster.tuned_names, paths, strict=True))
        return content

    def _task_rows(self) -> list[TaskRow]:
        job = self.problem.job
        # Lists at once, as of flows: JSON takes no numbers of numpy.
        starts = self.task_start.tolist()
        ends = self.task_end.tolist()

        rows = []
        for position, task in enumerate(job.tasks):
            rounds = job.rounds[position]
            for n in range(rounds):
                row: TaskRow = {
                    "task": task.name,
                    "iteration": n,
                    "start": starts[position][n],
                    "end": ends[position][n],
                }
                rows.append(row)
        return rows

    def _flow_rows(self) -> list[FlowRow]:
        job = self.problem.job
        latencies = self.problem.latencies
        # Most scenarios have none: their files keep the columns that they had.
        adds_latency = latencies.any()
        flows = self.flows()
        edges, iterations = flows.T
        place = (edges, iterations)
        # Lists at once: to index arrays by single numbers is many times slower.
        ready = self.flow_ready[place].tolist()
        starts = self.flow_start[place].tolist()
        ends = self.flow_end[place].tolist()
        sizes = self.flow_bytes[place].tolist()

        rows = []
        for position, (number, iteration) in enumerate(flows.tolist()):
            edge = job.edges[number]
            row: FlowRow = {
                "edge": job.edge_names[number],
                "from": job.tasks[edge.source].name,
                "to": job.tasks[edge.destination].name,
                "iteration": iteration,
                "ready": ready[position],
                "start": starts[position],
                "end": ends[position],
                "bytes": sizes[position],
            }
            if adds_latency:
                latency = float(latencies[number])
                row["landed"] = ends[position] + latency
            rows.append(row)
        return rows

    def slots_of(self, pool: Pool) -> tuple[Floats, Ints]:
        """Return the times, the first of them 0, from which each quota holds."""
        cluster = self.problem.cluster
        paths = zip(cluster.tuners, cluster.paths_of(self.quotas), strict=True)
        for tuner, path in paths:
            if tuner.machine == pool.machine and tuner.pool == pool.name:
                # The first look comes after one period; before it the machine's slots
                # hold.
                times = tuner.period * np.arange(len(path) + 1.0)
                return times, np.array([pool.slots, *path])
        return np.zeros(1), np.array([pool.slots])

    def _read_rows(self, reads: Ints) -> dict[str, list[int]]:
        job = self.problem.job
        rows = {}
        for position, edge in enumerate(job.edges):
            if edge.latest:
                rounds = job.rounds[edge.destination]
                name = job.edge_names[position]
                rows[name] = reads[position, :rounds].tolist()
        return rows
