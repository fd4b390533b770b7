"""A training job as tasks and edges; any graph of tasks with lags fits.

Edge e from j to j' with lag l means: (j', n) needs what (j, n - l) produced. An edge is
its position in the job, and has a name of its own (`Job.edge_names`): there may be
several between the same two tasks. DGTP's
PS -> worker edge has lag 1, all its others lag 0. A credit edge carries no bytes: with
lag K it lets iteration n of a store start only after its worker ended n - K.

A gate is a task that no process runs: a barrier, a release, a launch. It takes no time
or a stated one, and its edges carry nothing but order.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from emu.array_types import Array, Floats
from emu.problem.edges import Edge, EdgeColumns, columns_of

#: Positions of tasks or edges, or a count for each.
Positions: TypeAlias = tuple[int, ...]
Names: TypeAlias = tuple[str, ...]
#: Tasks of a process that have a lane each in pictures.
_MOST_LANES = 32
#: Program of tasks that compute nothing: they take their time and send bytes.
TIMED = "emu_nodes.timed:Timed"


@dataclass(frozen=True)
class Task:
    """One task, j of the paper: it runs once per iteration, one iteration at a time."""

    name: str
    """Unique in its job."""
    kind: str
    """``graph_store``, ``sampler``, ``worker``, ``parameter_server``, or any other
    word; tasks of one kind with equal demands are interchangeable in a placement."""
    # Bandwidth is none of them: flows share it (A24).
    demands: Mapping[str, float] = field(default_factory=dict)
    """Amount per resource, w_j^r, in the unit of the machine's capacity."""
    pinned: str | None = None
    """The machine that the task must stand on, or None where placement decides."""
    process: str = ""
    """Tasks of the same process share one operating-system process and therefore one
    machine, which needs room for the sum of their demands; empty means a process of its
    own, called as the task. A gate stands on the machine of the process that it
    names."""
    phase: str = ""
    """``sampling`` or ``training`` where it is part of that, for tables; else empty."""
    behind: int = 0
    """Cycles by which its mini-batches are behind the first task of a pipeline: in
    cycle c it works on mini-batch c - behind."""
    program: str = TIMED
    """Import path ``module:Class`` of what the node process runs."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the program for this task, beyond its edges; msgpack-able."""
    iterations: int | None = None
    """Number of its runs, None for as many as the job's; never more."""
    takes: str = ""
    """Pool of its machine that it needs a slot of to start, empty for none."""
    frees: str | None = None
    """Pool that gets a slot back when it ends: None for the one that it takes, empty
    for none."""
    gate: bool = False
    """True where no process runs it: the scheduler ends it after its time."""
    # Without it a task takes the same time everywhere, as in the paper (A18).
    slowness: Mapping[str, float] = field(default_factory=dict)
    """Machine -> what a reference time of this task is multiplied with there, p_j^m
    over p_j, positive; 1 on the others."""

    @property
    def gives_back(self) -> str:
        """The pool that gets a slot back when the task ends, empty for none."""
        return self.takes if self.frees is None else self.frees

    @property
    def job_name(self) -> str:
        """Name of its job among several, ``a`` of ``a/w0``; empty for the only one."""
        return self.name.rpartition("/")[0]

    @property
    def process_name(self) -> str:
        """Name of the process that runs this task, or beside which the gate stands."""
        return self.process or self.name


@lru_cache(maxsize=16_384)
def _words_of(name: str) -> list[str | int]:
    """Return the parts of a name of which every second one is a number."""
    parts = re.split(r"(\d+)", name)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)]


@dataclass(frozen=True)
class Job:
    """Tasks, edges and the number of iterations, the most that any task has.

    Raises ValueError when all tasks are gates, there are no iterations, a name occurs
    twice, an edge points nowhere, has a negative lag, is a loop without lag or a credit
    that reads the newest, edges without lag form a cycle, tasks of one process are
    pinned to different machines, or a process is called as a task of another one, or a
    slowness is not positive and finite.
    """

    tasks: tuple[Task, ...]
    edges: tuple[Edge, ...]
    iterations: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings for every program of the job: dataset, model, seed; msgpack-able. Of
    several jobs ``{"jobs": {name: settings}}``, see `settings_of`."""

    def __post_init__(self) -> None:
        if all(task.gate for task in self.tasks):
            raise ValueError("a job needs at least one task that is no gate")
        if self.iterations < 1:
            raise ValueError(f"a job of {self.iterations} iterations has nothing to do")
        # Of the very tasks and edges another job may have been checked.
        if self.columns.fitting is self.tasks:
            return
        self._check_tasks()
        # Before all that follows edges: their tasks have to be there.
        self._check_edges()
        self._check_processes()
        _ = self.order  # raises where edges form a cycle
        self.columns.fitting = self.tasks

    def _check_tasks(self) -> None:
        for task in self.tasks:
            if task.iterations is not None and task.iterations < 1:
                raise ValueError(f"task {task.name} has {task.iterations} iterations")
            is_possible = [0 < slower < math.inf for slower in task.slowness.values()]
            if not all(is_possible):
                raise ValueError(f"task {task.name}: slowness must be positive, finite")

        counts = Counter(task.name for task in self.tasks)
        for name, count in counts.items():
            if count > 1:
                raise ValueError(f"task {name} occurs {count} times")

    @override
    def __repr__(self) -> str:
        """Return the numbers of tasks, edges and iterations."""
        return (
            f"<Job: {len(self.tasks)} tasks, {len(self.edges)} edges, "
            f"{self.iterations} iterations>"
        )

    def _check_edges(self) -> None:
        columns = self.columns
        tasks = len(self.tasks)
        for ends in (columns.source, columns.destination):
            is_there = (ends >= 0) & (ends < tasks)
            if not is_there.all():
                end = ends[~is_there][0]
                raise ValueError(f"an edge names task number {end}, which is not there")

        # After them, as names of edges take the names of all ends.
        is_backward = columns.lag < 0
        reads_newest_credit = columns.credit & columns.latest
        odd_edges = np.flatnonzero(is_backward | reads_newest_credit)
        if odd_edges.size:
            position = int(odd_edges[0])
            name = self.edge_names[position]
            lag = self.edges[position].lag
            if lag < 0:
                raise ValueError(f"edge {name}: lag {lag} is negative")
            raise ValueError(f"edge {name} is a credit: there is nothing to read")

    def _check_processes(self) -> None:
        for process, members in self.units.items():
            pins = {self.tasks[member].pinned for member in members}
            pins.discard(None)
            if len(pins) > 1:
                raise ValueError(f"process {process} is pinned to several machines")

        for task in self.tasks:
            # Otherwise one name would mean a task of one process and all of another.
            if task.process_name != task.name in self.units:
                raise ValueError(
                    f"process {task.name} is called as a task of process {task.process}"
                )

    def beginning_at(self, first: int) -> Job:
        """Return the job from an iteration on, ValueError where none is left."""
        tasks = []
        for task in self.tasks:
            remaining = task
            if task.iterations is not None:
                remaining = replace(task, iterations=task.iterations - first)
            tasks.append(remaining)
        return replace(
            self,
            tasks=tuple(tasks),
            iterations=self.iterations - first,
        )

    @cached_property
    def columns(self) -> EdgeColumns:
        """The edges as arrays, shared with all jobs of the very same edges."""
        return columns_of(self.edges)

    @cached_property
    def order(self) -> Positions:
        """Positions of the tasks, each behind the sources of its in-edges without lag.

        Raises ValueError when such edges form a cycle.
        """
        count = len(self.tasks)
        order = self.columns.order(count)

        if len(order) < count:
            found = set(order)
            stuck = []
            for position, task in enumerate(self.tasks):
                if position not in found:
                    stuck.append(task.name)
            first_names = ", ".join(stuck[:8])
            raise ValueError(
                f"edges without lag form a cycle through {first_names}; "
                "give one of them lag 1"
            )
        return order

    @cached_property
    def units(self) -> dict[str, Positions]:
        """Positions of the tasks that stand on one machine, by name of their process.

        In the order of the tasks; a gate that names no process is a unit by itself.
        """
        # A dict keeps the order of the first task of every process.
        members: dict[str, list[int]] = {}
        for position, task in enumerate(self.tasks):
            of_process = members.setdefault(task.process_name, [])
            of_process.append(position)
        return {process: tuple(tasks) for process, tasks in members.items()}

    @cached_property
    def lanes(self) -> Positions:
        """Task in whose lane of a picture each one is drawn, by position.

        That is the first of a process of many, and itself of any other: a rank of a
        recorded program has tasks for each of its calls.
        """
        lanes = list(range(len(self.tasks)))
        for tasks in self.units.values():
            if len(tasks) > _MOST_LANES:
                first = tasks[0]
                for task in tasks:
                    lanes[task] = first
        return tuple(lanes)

    def lane_name(self, task: int) -> str:
        """Return the name of the lane in which a task is drawn."""
        process = self.tasks[task].process_name
        members = self.units[process]
        if len(members) > _MOST_LANES:
            return process
        return self.tasks[task].name

    @cached_property
    def pins(self) -> dict[str, str]:
        """Machine of every process of which a task is pinned."""
        return {
            task.process_name: task.pinned
            for task in self.tasks
            if task.pinned is not None
        }

    @property
    def job_names(self) -> Names:
        """Names of the jobs that it is made of; of one job, an empty one."""
        names = [task.job_name for task in self.tasks]
        return tuple(dict.fromkeys(names))

    @property
    def is_several(self) -> bool:
        """True where it is made of several jobs, which all have names.

        A recorded job tells this by its tasks: it has no settings.
        """
        return self.job_names != ("",)

    @property
    def fixed(self) -> bool:
        """True where every task is pinned, but for gates, which stand nowhere."""
        return all(task.gate or task.pinned is not None for task in self.tasks)

    def settings_of(self, name: str) -> Mapping[str, Any]:
        """Return the settings of one of several jobs, or of the only one."""
        jobs: Mapping[str, Mapping[str, Any]] = self.settings.get("jobs", {})
        # The only job has an empty name, which no several have.
        return jobs.get(name, self.settings)

    @cached_property
    def processes(self) -> dict[str, Positions]:
        """Positions of the tasks that each process runs, in the order of the tasks."""
        processes = {}
        for process, members in self.units.items():
            tasks = [task for task in members if not self.tasks[task].gate]
            if tasks:
                processes[process] = tuple(tasks)
        return processes

    @cached_property
    def control(self) -> tuple[bool, ...]:
        """True for every edge that is order alone: a credit, or to or from a gate.

        Nothing is sent over it: what it waits for is over the moment its source ends.
        """
        is_gate = np.array([task.gate for task in self.tasks], np.bool_)
        columns = self.columns
        at_gate = is_gate[columns.source] | is_gate[columns.destination]
        control = columns.credit | at_gate
        return tuple(control.tolist())

    @cached_property
    def channels(self) -> Names:
        """Names of the channels that flows go over, in the order of the edges."""
        return self.columns.channels

    @cached_property
    def coflows(self) -> Names:
        """Names of the coflows, in the order of the edges."""
        return self.columns.coflows

    @cached_property
    def servers(self) -> Names:
        """Names of the processes that are pools of one slot, see `placement`."""
        names = [task.takes for task in self.tasks if task.takes == task.process_name]
        return tuple(dict.fromkeys(names))

    @cached_property
    def rounds(self) -> Positions:
        """Iterations of every task."""
        rounds = []
        for task in self.tasks:
            count = task.iterations
            if count is None:
                count = self.iterations
            # Searches shorten the job alone: no task has more iterations than that.
            count = min(count, self.iterations)
            rounds.append(count)
        return tuple(rounds)

    @cached_property
    def flow_counts(self) -> Positions:
        """Iterations of its source that every edge sends: those that are needed.

        What no task of the job would receive is not sent: with lag 1 the source's last
        iteration sends nothing (constraint (6) has no iteration N).
        """
        columns = self.columns
        rounds = np.array(self.rounds, np.int64)
        sent = rounds[columns.source]
        # Iteration n of the source is read in iteration n + lag.
        reads = rounds[columns.destination] - columns.lag
        counts = np.minimum(sent, reads)
        counts = np.maximum(counts, 0)
        return tuple(counts.tolist())

    @cached_property
    def edge_names(self) -> Names:
        """Unique name of every edge, in the order of ``edges``.

        ``source->destination`` by the names of the tasks; the second and further ones
        between the same two tasks end in ``#2``, ``#3``, ...
        """
        counts: Counter[str] = Counter()
        names = []
        for edge in self.edges:
            source, destination = self.ends(edge)
            name = f"{source.name}->{destination.name}"
            counts[name] += 1
            # The first keeps the plain name, so that most names need no number.
            if counts[name] > 1:
                name = f"{name}#{counts[name]}"
            names.append(name)
        return tuple(names)

    @cached_property
    def edge_ranks(self) -> Positions:
        """Place of every edge by the names of its destination and its source.

        Ties are broken by it: by the job alone, not the order in its file. Numbers in
        names count as numbers, w2 before w10. Edges between the same two tasks go by
        lag, then in the order of ``edges``.
        """
        words = [_words_of(task.name) for task in self.tasks]
        tasks = range(len(words))
        by_name = sorted(tasks, key=words.__getitem__)

        places = [0] * len(words)
        place = -1
        latest: list[str | int] = []
        for task in by_name:
            # Names that are read alike, w1 and w01, have one place.
            place += words[task] != latest
            latest = words[task]
            places[task] = place

        # By destination first: that is the order in which flows are listed.
        ranks = self.columns.ranks(places)
        return tuple(ranks.tolist())

    @cached_property
    def edge_positions(self) -> dict[str, int]:
        """Position in ``edges`` by name, see `edge_names`."""
        return {name: position for position, name in enumerate(self.edge_names)}

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {task.name: position for position, task in enumerate(self.tasks)}

    def index(self, name: str) -> int:
        """Return the position of the task called ``name``, else raise ValueError."""
        if name not in self._positions:
            raise ValueError(f"no task is called {name}")
        return self._positions[name]

    @cached_property
    def _edges_of_tasks(self) -> tuple[list[list[int]], list[list[int]]]:
        """Positions of the edges into every task, and out of it."""
        entering: list[list[int]] = [[] for _ in self.tasks]
        leaving: list[list[int]] = [[] for _ in self.tasks]
        for position, edge in enumerate(self.edges):
            entering[edge.destination].append(position)
            leaving[edge.source].append(position)
        return entering, leaving

    def in_edges(self, task: int) -> Positions:
        """Return the positions of the edges into ``task``."""
        entering, _ = self._edges_of_tasks
        return tuple(entering[task])

    def ends(self, edge: Edge) -> tuple[Task, Task]:
        """Return the tasks that an edge leads from and to."""
        return self.tasks[edge.source], self.tasks[edge.destination]

    def out_edges(self, task: int) -> Positions:
        """Return the positions of the edges out of ``task``."""
        _, leaving = self._edges_of_tasks
        return tuple(leaving[task])

    def sends(self, edge: int, iteration: int) -> bool:
        """Return True where ``edge`` carries ``iteration``: see `flow_counts`."""
        return 0 <= iteration < self.flow_counts[edge]


def _check_values(values: Floats, name: str) -> Floats:
    """Return a copy that nobody can write to."""
    # A copy: who gave the values may go on to change them.
    array = np.array(values, dtype=np.float64)
    array.flags.writeable = False
    if array.ndim != 2:
        raise ValueError(f"{name} must have two axes, not {array.ndim}")

    is_possible = np.isfinite(array) & (array >= 0)
    if not is_possible.all():
        row, column = np.argwhere(~is_possible)[0]
        value = array[row, column]
        raise ValueError(
            f"{name} [{row}, {column}] is {value}; it must be finite and not negative"
        )
    return array


@dataclass(frozen=True, eq=False)
class Realization:
    """Times and volumes of one run.

    Raises ValueError when an entry is negative, NaN or infinite, or a shape is wrong.
    """

    times: Floats
    """Execution time of (task, iteration), seconds, shape (tasks, iterations): at the
    full speed of its machine, which may have less for a time."""
    volumes: Floats
    """Bytes of (edge, iteration of its source), shape (edges, iterations). Present also
    where the edge stays on one machine or no task receives it; unused there."""

    def __post_init__(self) -> None:
        # The class is frozen: only so can it put checked copies in place.
        times = _check_values(self.times, "times")
        volumes = _check_values(self.volumes, "volumes")
        object.__setattr__(self, "times", times)
        object.__setattr__(self, "volumes", volumes)

    def beginning_at(self, first: int, job: Job) -> Realization:
        """Return the times and volumes of the iterations of a job from one on.

        Its mini-batches before that are done: tasks that are behind have none at first.
        """
        # The same object, so that nothing is checked again.
        if not first:
            return self
        times = self.times[:, first:].copy()
        volumes = self.volumes[:, first:].copy()

        delays = [task.behind for task in job.tasks]
        for row, cycles in zip(times, delays, strict=True):
            row[:cycles] = 0.0
        for row, edge in zip(volumes, job.edges, strict=True):
            # Iteration n is read in n + lag: nothing is sent while either end is
            # filling.
            source_delay = delays[edge.source]
            reader_delay = delays[edge.destination] - edge.lag
            row[: max(source_delay, reader_delay)] = 0.0
        return Realization(times, volumes)

    def of(self, job: Job) -> Realization:
        """Return what is of the first tasks and edges alone, those of ``job``."""
        tasks = len(job.tasks)
        edges = len(job.edges)
        # Copies of state stand behind all others.
        return Realization(times=self.times[:tasks], volumes=self.volumes[:edges])

    def check_shapes(self, job: Job) -> None:
        """Raise ValueError unless the shapes are those of ``job``."""
        times = (len(job.tasks), job.iterations)
        volumes = (len(job.edges), job.iterations)
        fits = self.times.shape == times and self.volumes.shape == volumes
        if not fits:
            raise ValueError(
                f"times {self.times.shape} and volumes {self.volumes.shape} "
                f"do not fit a job of {times} and {volumes}"
            )


@dataclass(frozen=True, eq=False)
class Profile(Realization):
    """Measured times and volumes of some iterations, to draw runs from.

    Raises ValueError as `Realization`, or when nothing was profiled.
    """

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        _, iterations = self.times.shape
        if iterations < 1 or self.volumes.shape[1] != iterations:
            raise ValueError("a profile needs the same iterations of times and volumes")

    def draw(self, rng: np.random.Generator, iterations: int) -> Realization:
        """Return a run of ``iterations``, each drawn whole from the profiled ones.

        An iteration keeps its times and volumes together, so that volumes which rise
        and fall together (one batch, many stores) stay correlated.
        """
        _, count = self.times.shape
        columns = rng.integers(count, size=iterations)
        return Realization(
            times=self.times[:, columns],
            volumes=self.volumes[:, columns],
        )


@dataclass(frozen=True, eq=False)
class Cut:
    """State of all tasks that keep some, before an iteration."""

    iteration: int
    """The first that is not done, counted from the beginning of the whole job."""
    states: Mapping[str, Mapping[str, Array]]
    """Arrays of every task whose state is needed, by its name."""
