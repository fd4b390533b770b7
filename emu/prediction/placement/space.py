"""Units that a placement can move, and the capacity that every machine has left.

The common ground of all placement algorithms. Must not know: times, volumes, searches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from emu.names import html_table
from emu.prediction.scheduling.compiled_problem import Floats, Ints
from emu.problem import Cluster, Job, Placement
from emu.problem.placement import slot_teams

TOLERANCE = 1e-12  # relative, of a capacity; the same as in Placement.violations


@dataclass(frozen=True)
class Unit:
    """The tasks of one unpinned process, or of several that share slots."""

    name: str
    """Name of the process, or the names."""
    tasks: tuple[int, ...]
    """Positions in ``Job.tasks``."""


class Space:
    """The units of a job, the machines of a cluster and the room on them.

    ``apart``: True where processes of which one takes the slots that another gives back
    may stand apart, as they can where a pool is unlimited; else they are one unit.

    Raises ValueError when a task is pinned to a machine that is not in the cluster.

    Attributes
    ----------
    resources
        Names of the resources that some task demands and some machine limits, sorted;
        the others cannot decide anything.
    capacity
        C_m^r, infinite where unlimited, shape (machines, resources).
    used
        Summed demands of the tasks pinned to each machine, same shape.
    free
        Capacity less the demands of pinned tasks, C'_m^r of the paper, same shape;
        negative where the pinned tasks alone are too much.
    units
        Units that can move, in the order of the tasks.
    unit_start, unit_task
        Tasks of all units one after the other, and where those of each begin.
    unit_of
        Unit of every task that can move.
    demand
        Summed w_j^r of every unit, shape (units, resources).
    fixed
        Machine of every pinned task, -1 for the others, shape (tasks,).
    """

    def __init__(self, job: Job, cluster: Cluster, *, apart: bool = False) -> None:
        self.job = job
        self.cluster = cluster
        resources = {r for task in job.tasks for r in task.demands}
        self.resources = tuple(r for r in cluster.resource_names() if r in resources)
        self.capacity: Floats = np.array(
            [
                [machine.resources.get(r, np.inf) for r in self.resources]
                for machine in cluster.machines
            ],
            dtype=np.float64,
        ).reshape(len(cluster.machines), len(self.resources))
        self.used = np.zeros_like(self.capacity)
        self.fixed: Ints = np.full(len(job.tasks), -1, dtype=np.int64)
        units = []
        units_of = dict(job.units)
        for names in () if apart else slot_teams(job):  # those that share slots are one
            team = tuple(sorted(t for name in names for t in units_of[name]))
            # Pinned to several machines they stay apart.
            if len({job.tasks[t].pinned for t in team} - {None}) <= 1:
                first = min(names, key=units_of.__getitem__)
                for name in {*names} - {first}:
                    del units_of[name]
                units_of[first] = team
        for process, tasks in units_of.items():
            pins = {job.tasks[t].pinned for t in tasks} - {None}
            if pins:
                machine = cluster.index(str(pins.pop()))
                self.fixed[list(tasks)] = machine
                self.used[machine] += self._demand(tasks)
            else:
                units.append(Unit(process, tasks))
        self.free = self.capacity - self.used
        self.units = tuple(units)
        starts = np.cumsum([0, *(len(unit.tasks) for unit in units)], dtype=np.int64)
        self.unit_start: Ints = starts
        self.unit_task: Ints = np.array([t for u in units for t in u.tasks], np.int64)
        self.unit_of = {t: u for u, unit in enumerate(units) for t in unit.tasks}
        self.demand: Floats = np.array(
            [self._demand(unit.tasks) for unit in units], dtype=np.float64
        ).reshape(len(units), len(self.resources))

    def _demand(self, tasks: Sequence[int]) -> list[float]:
        return [
            sum(self.job.tasks[t].demands.get(r, 0.0) for t in tasks)
            for r in self.resources
        ]

    @cached_property
    def slack(self) -> Floats:
        """Excess over a capacity left to rounding, shape (machines, resources)."""
        limits: Floats = np.where(np.isfinite(self.capacity), self.capacity, 0.0)
        return limits * TOLERANCE

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Positions of interchangeable units: same kinds, demands and slowness.

        All demands count, also those that no machine of this cluster limits.
        """
        members: dict[object, list[int]] = defaultdict(list)
        for position, unit in enumerate(self.units):
            key = []
            for t in unit.tasks:
                task = self.job.tasks[t]
                # Ties for slots go by position: tasks that share some are not alike.
                apart = t if task.takes or task.gives_back else -1
                both = task.demands, task.slowness
                amounts = (tuple(sorted(one.items())) for one in both)
                key.append((task.kind, self.job.rounds[t], apart, *amounts))
            members[tuple(key)].append(position)
        return tuple(tuple(units) for units in members.values())

    @cached_property
    def packed(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the units of equal kinds and demands, of those that ask for any.

        They are the same to packing; slots take no room.
        """
        members: dict[object, list[int]] = defaultdict(list)
        for group in self.groups:
            tasks = [self.job.tasks[t] for t in self.units[group[0]].tasks]
            takes = any(t.takes for t in tasks)
            demand = self.demand[group[0]]
            if demand.any():
                kinds = tuple(task.kind for task in tasks)
                members[(kinds, *demand.tolist()) if takes else group] += group
        return tuple(tuple(units) for units in members.values())

    def fits(self, machines: Ints) -> bool:
        """Return True where units on ``machines``, -1 for none, respect (2)."""
        use = np.zeros_like(self.free)
        standing = machines >= 0
        np.add.at(use, machines[standing], self.demand[standing])
        return bool((use <= self.free + self.slack).all())

    def expand(self, machines: Sequence[int] | Ints) -> Ints:
        """Return the machine of every task with unit u on ``machines[u]``."""
        machine_of = self.fixed.copy()
        machine_of[self.unit_task] = np.repeat(machines, np.diff(self.unit_start))
        return machine_of

    def placement(self, machines: Sequence[int] | Ints) -> Placement:
        """Return the placement of all tasks that puts unit u on ``machines[u]``."""
        return Placement(tuple(self.expand(machines).tolist()))

    def machines(self, placement: Placement) -> Ints:
        """Return the machine of every unit under ``placement``, shape (units,)."""
        return np.array(
            [placement.machine_of[unit.tasks[0]] for unit in self.units], dtype=np.int64
        )


# Result of a placement algorithm: the placement, and figures of the search.


@dataclass(frozen=True)
class PlacementResult:
    """A placement and what is known about it."""

    placement: Placement
    """Feasible."""
    policy: str
    """Name of the placement policy that found it."""
    makespan: float | None = None
    """Simulated makespan of the search's iterations, seconds, or what several jobs cost
    there (`JobsCost`); None when nothing was simulated."""
    start_makespan: float | None = None
    """The same of the placement that the search began with."""
    candidates: int = 0
    """Placements that were looked at."""
    budget: int = 0
    """Candidates that it might look at, in each of its walks."""
    accepted: int = 0
    """Candidates taken as the next placement of a chain."""
    evaluations: int = 0
    """Candidates simulated; the others were settled by a bound."""
    iterations: int = 0
    """Iterations that were simulated for a makespan."""
    history: tuple[tuple[int, float], ...] = ()
    """(candidates so far, best makespan) at the start and at every improvement."""
    optimal: bool = False
    """True where no feasible placement is better under the same draws."""

    def _repr_html_(self) -> str:
        """Return the fields but the placement and the history, for notebooks."""
        hidden = {"placement", "history"}
        rows = [
            (key, value)
            for key, value in vars(self).items()
            if key not in hidden and value
        ]
        return html_table(f"placement by {self.policy}", (), rows)
