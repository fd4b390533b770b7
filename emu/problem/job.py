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
from numpy.typing import NDArray
from typing_extensions import override

from emu.problem.edges import Edge, EdgeColumns, columns_of

Floats: TypeAlias = NDArray[np.float64]
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
        self._check_tasks()
        # Before all that follows edges: their tasks have to be there.
        self._check_edges()
        self._check_processes()
        _ = self.order  # raises where edges form a cycle

    def _check_tasks(self) -> None:
        for task in self.tasks:
            if task.iterations is not None and task.iterations < 1:
                raise ValueError(f"task {task.name} has {task.iterations} iterations")
            if not all(0 < slower < math.inf for slower in task.slowness.values()):
                raise ValueError(f"task {task.name}: slowness must be positive, finite")
        for name, count in Counter(task.name for task in self.tasks).items():
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
        for ends in (columns.source, columns.destination):
            is_there = (ends >= 0) & (ends < len(self.tasks))
            if not is_there.all():
                end = ends[~is_there][0]
                raise ValueError(f"an edge names task number {end}, which is not there")

        # After them, as names of edges take the names of all ends.
        is_odd = (columns.lag < 0) | (columns.credit & columns.latest)
        for position in np.flatnonzero(is_odd).tolist():
            edge = self.edges[position]
            if edge.lag < 0:
                name = self.edge_names[position]
                raise ValueError(f"edge {name}: lag {edge.lag} is negative")
            if edge.credit and edge.latest:
                name = self.edge_names[position]
                raise ValueError(f"edge {name} is a credit: there is nothing to read")

    def _check_processes(self) -> None:
        for process, members in self.units.items():
            pins = {self.tasks[member].pinned for member in members} - {None}
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
        tasks = [
            task
            if task.iterations is None
            else replace(task, iterations=task.iterations - first)
            for task in self.tasks
        ]
        return replace(self, tasks=tuple(tasks), iterations=self.iterations - first)

    @cached_property
    def columns(self) -> EdgeColumns:
        """The edges as arrays, shared with all jobs of the very same edges."""
        return columns_of(self.edges)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Positions of the tasks, each behind the sources of its in-edges without lag.

        Raises ValueError when such edges form a cycle.
        """
        order = self.columns.order(len(self.tasks))
        if len(order) < len(self.tasks):
            found = set(order)
            stuck = [
                task.name
                for position, task in enumerate(self.tasks)
                if position not in found
            ]
            raise ValueError(
                "edges without lag form a cycle through "
                f"{', '.join(stuck[:8])}; give one of them lag 1"
            )
        return order

    @cached_property
    def units(self) -> dict[str, tuple[int, ...]]:
        """Positions of the tasks that stand on one machine, by name of their process.

        In the order of the tasks; a gate that names no process is a unit by itself.
        """
        # A dict keeps the order of the first task of every process.
        members: dict[str, list[int]] = {}
        for position, task in enumerate(self.tasks):
            members.setdefault(task.process_name, []).append(position)
        return {process: tuple(tasks) for process, tasks in members.items()}

    @cached_property
    def lanes(self) -> tuple[int, ...]:
        """Task in whose lane of a picture each one is drawn, by position.

        That is the first of a process of many, and itself of any other: a rank of a
        recorded program has tasks for each of its calls.
        """
        lanes = [*range(len(self.tasks))]
        for tasks in self.units.values():
            if len(tasks) > _MOST_LANES:
                for task in tasks:
                    lanes[task] = tasks[0]
        return tuple(lanes)

    def lane_name(self, task: int) -> str:
        """Return the name of the lane in which a task is drawn."""
        is_shared = len(self.units[self.tasks[task].process_name]) > _MOST_LANES
        return self.tasks[task].process_name if is_shared else self.tasks[task].name

    @cached_property
    def pins(self) -> dict[str, str]:
        """Machine of every process of which a task is pinned."""
        return {
            task.process_name: task.pinned
            for task in self.tasks
            if task.pinned is not None
        }

    @property
    def job_names(self) -> tuple[str, ...]:
        """Names of the jobs that it is made of; of one job, an empty one."""
        return tuple(dict.fromkeys(task.job_name for task in self.tasks))

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
    def processes(self) -> dict[str, tuple[int, ...]]:
        """Positions of the tasks that each process runs, in the order of the tasks."""
        processes = {}
        for process, members in self.units.items():
            tasks = [member for member in members if not self.tasks[member].gate]
            if tasks:
                processes[process] = tuple(tasks)
        return processes

    @cached_property
    def control(self) -> tuple[bool, ...]:
        """True for every edge that is order alone: a credit, or to or from a gate.

        Nothing is sent over it: what it waits for is over the moment its source ends.
        """
        gate = np.array([task.gate for task in self.tasks], np.bool_)
        columns = self.columns
        at_gate = gate[columns.source] | gate[columns.destination]
        return tuple((columns.credit | at_gate).tolist())

    @cached_property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels that flows go over, in the order of the edges."""
        return self.columns.channels

    @cached_property
    def coflows(self) -> tuple[str, ...]:
        """Names of the coflows, in the order of the edges."""
        return self.columns.coflows

    @cached_property
    def servers(self) -> tuple[str, ...]:
        """Names of the processes that are pools of one slot, see `placement`."""
        names = [task.takes for task in self.tasks if task.takes == task.process_name]
        return tuple(dict.fromkeys(names))

    @cached_property
    def rounds(self) -> tuple[int, ...]:
        """Iterations of every task."""
        rounds = []
        for task in self.tasks:
            count = self.iterations if task.iterations is None else task.iterations
            # Searches shorten the job alone: no task has more iterations than that.
            rounds.append(min(count, self.iterations))
        return tuple(rounds)

    @cached_property
    def flow_counts(self) -> tuple[int, ...]:
        """Iterations of its source that every edge sends: those that are needed.

        What no task of the job would receive is not sent: with lag 1 the source's last
        iteration sends nothing (constraint (6) has no iteration N).
        """
        columns = self.columns
        rounds = np.array(self.rounds, np.int64)
        # Iteration n of the source is read in iteration n + lag.
        reads = rounds[columns.destination] - columns.lag
        counts = np.minimum(rounds[columns.source], reads)
        return tuple(np.maximum(counts, 0).tolist())

    @cached_property
    def edge_names(self) -> tuple[str, ...]:
        """Unique name of every edge, in the order of ``edges``.

        ``source->destination`` by the names of the tasks; the second and further ones
        between the same two tasks end in ``#2``, ``#3``, ...
        """
        counts: Counter[str] = Counter()
        names = []
        for edge in self.edges:
            source = self.tasks[edge.source]
            destination = self.tasks[edge.destination]
            name = f"{source.name}->{destination.name}"
            counts[name] += 1
            # The first keeps the plain name, so that most names need no number.
            names.append(f"{name}#{counts[name]}" if counts[name] > 1 else name)
        return tuple(names)

    @cached_property
    def edge_ranks(self) -> tuple[int, ...]:
        """Place of every edge by the names of its destination and its source.

        Ties are broken by it: by the job alone, not the order in its file. Numbers in
        names count as numbers, w2 before w10. Edges between the same two tasks go by
        lag, then in the order of ``edges``.
        """
        words = [_words_of(task.name) for task in self.tasks]
        places = [0] * len(words)
        place = -1
        latest: list[str | int] = []
        for task in sorted(range(len(words)), key=words.__getitem__):
            # Names that are read alike, w1 and w01, have one place.
            place += words[task] != latest
            latest = words[task]
            places[task] = place
        # By destination first: that is the order in which flows are listed.
        return tuple(self.columns.ranks(places).tolist())

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

    def in_edges(self, task: int) -> tuple[int, ...]:
        """Return the positions of the edges into ``task``."""
        entering, _ = self._edges_of_tasks
        return tuple(entering[task])

    def out_edges(self, task: int) -> tuple[int, ...]:
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
        raise ValueError(
            f"{name} [{row}, {column}] is {array[row, column]}; "
            "it must be finite and not negative"
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
        object.__setattr__(self, "times", _check_values(self.times, "times"))
        object.__setattr__(self, "volumes", _check_values(self.volumes, "volumes"))

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
            row[: max(delays[edge.source], delays[edge.destination] - edge.lag)] = 0.0
        return Realization(times, volumes)

    def of(self, job: Job) -> Realization:
        """Return what is of the first tasks and edges alone, those of ``job``."""
        return Realization(
            # Copies of state stand behind all others.
            times=self.times[: len(job.tasks)],
            volumes=self.volumes[: len(job.edges)],
        )

    def check_shapes(self, job: Job) -> None:
        """Raise ValueError unless the shapes are those of ``job``."""
        times = (len(job.tasks), job.iterations)
        volumes = (len(job.edges), job.iterations)
        if self.times.shape != times or self.volumes.shape != volumes:
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
        if self.times.shape[1] < 1 or self.volumes.shape[1] != self.times.shape[1]:
            raise ValueError("a profile needs the same iterations of times and volumes")

    def draw(self, rng: np.random.Generator, iterations: int) -> Realization:
        """Return a run of ``iterations``, each drawn whole from the profiled ones.

        An iteration keeps its times and volumes together, so that volumes which rise
        and fall together (one batch, many stores) stay correlated.
        """
        columns = rng.integers(self.times.shape[1], size=iterations)
        return Realization(self.times[:, columns], self.volumes[:, columns])


@dataclass(frozen=True, eq=False)
class Cut:
    """State of all tasks that keep some, before an iteration."""

    iteration: int
    """The first that is not done, counted from the beginning of the whole job."""
    states: Mapping[str, Mapping[str, NDArray[Any]]]
    """Arrays of every task whose state is needed, by its name."""
