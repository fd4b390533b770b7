"""Units that a placement can move, and the capacity that every machine has left.

The common ground of all placement algorithms. Must not know: times, volumes, searches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from emu.array_types import Floats, Ints
from emu.names import html_table
from emu.problem import Cluster, Job, Placement
from emu.problem.placement import slot_teams

TOLERANCE = 1e-12  # relative, of a capacity; the same as in Placement.violations
Group = tuple[int, ...]  # positions of units
#: Called with candidates so far, all of them, and the best makespan.
Progress: TypeAlias = Callable[[int, int, float], None]


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
        demanded = set[str]()
        for task in job.tasks:
            demanded.update(task.demands)
        names = cluster.resource_names()
        self.resources = tuple(name for name in names if name in demanded)
        self.capacity = self._capacities()

        self.used = np.zeros_like(self.capacity)
        task_count = len(job.tasks)
        self.fixed: Ints = np.full(task_count, -1, dtype=np.int64)
        units = []
        unit_tasks = job.units if apart else _join_slot_teams(job)
        for process, tasks in unit_tasks.items():
            pins = _pins(job, tasks)
            if not pins:
                unit = Unit(process, tasks)
                units.append(unit)
                continue

            pin = pins.pop()
            position = cluster.index(pin)
            self.fixed[list(tasks)] = position
            self.used[position] += self._demand(tasks)

        self.units = tuple(units)
        self.free = self.capacity - self.used
        self._number_tasks()

    def _capacities(self) -> Floats:
        rows = []
        for machine in self.cluster.machines:
            stated = machine.resources
            # What a machine does not state is without limit there.
            capacities = [stated.get(name, np.inf) for name in self.resources]
            rows.append(capacities)
        return self._table(rows)

    def _number_tasks(self) -> None:
        """Set which tasks each unit has, which unit each task, and the demands."""
        self.unit_of = dict[int, int]()
        starts = [0]
        demands = []
        for number, unit in enumerate(self.units):
            self.unit_of |= dict.fromkeys(unit.tasks, number)
            starts.append(len(self.unit_of))
            demand = self._demand(unit.tasks)
            demands.append(demand)

        self.unit_start: Ints = np.array(starts, np.int64)
        # A dict keeps its order: these are the tasks unit after unit, as `unit_start`
        # counts.
        tasks_by_unit = [*self.unit_of]
        self.unit_task: Ints = np.array(tasks_by_unit, np.int64)
        self.demand = self._table(demands)

    def _table(self, rows: list[list[float]]) -> Floats:
        """Return rows of a column per resource, of which either may be none."""
        columns = len(self.resources)
        table = np.array(rows, dtype=np.float64)
        return table.reshape(len(rows), columns)

    def _demand(self, tasks: Sequence[int]) -> list[float]:
        demands = [self.job.tasks[task].demands for task in tasks]
        totals = []
        for name in self.resources:
            amounts = [demand.get(name, 0.0) for demand in demands]
            total = sum(amounts)
            totals.append(total)
        return totals

    @cached_property
    def slack(self) -> Floats:
        """Excess over a capacity left to rounding, shape (machines, resources)."""
        is_limited = np.isfinite(self.capacity)
        limits: Floats = np.where(is_limited, self.capacity, 0.0)
        return limits * TOLERANCE

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Positions of interchangeable units: same kinds, demands and slowness.

        All demands count, also those that no machine of this cluster limits.
        """
        members: dict[object, list[int]] = defaultdict(list)
        for position, unit in enumerate(self.units):
            kinds = tuple(map(self._kind_of, unit.tasks))
            members[kinds].append(position)
        groups = map(tuple, members.values())
        return tuple(groups)

    def _kind_of(self, position: int) -> _Kind:
        task = self.job.tasks[position]
        position_of_ties = -1
        if task.takes or task.gives_back:
            position_of_ties = position
        demands = sorted(task.demands.items())
        slowness = sorted(task.slowness.items())

        return _Kind(
            kind=task.kind,
            rounds=self.job.rounds[position],
            position=position_of_ties,
            demands=tuple(demands),
            slowness=tuple(slowness),
        )

    @cached_property
    def packed(self) -> tuple[Group, ...]:
        """Positions of the units of equal kinds and demands, of those that ask for any.

        They are the same to packing; slots take no room.
        """
        members: dict[object, list[int]] = defaultdict(list)
        for group in self.groups:
            first = group[0]
            demand = self.demand[first]
            if not demand.any():
                continue

            unit = self.units[first]
            kinds = []
            has_slots = False
            for position in unit.tasks:
                task = self.job.tasks[position]
                kinds.append(task.kind)
                has_slots |= bool(task.takes)
            key: object = group
            # Tasks with slots are groups of their own: packing sees no difference.
            if has_slots:
                key = (*kinds, *demand.tolist())
            members[key] += group
        groups = map(tuple, members.values())
        return tuple(groups)

    def fits(self, machines: Ints) -> bool:
        """Return True where units on ``machines``, -1 for none, respect (2)."""
        use = np.zeros_like(self.free)
        is_placed = machines >= 0
        placed_machines = machines[is_placed]
        demands = self.demand[is_placed]
        # With a plain += a machine of several units would count one of them.
        np.add.at(use, placed_machines, demands)
        has_room = use <= self.free + self.slack
        return bool(has_room.all())

    def expand(self, machines: Sequence[int] | Ints) -> Ints:
        """Return the machine of every task with unit u on ``machines[u]``."""
        unit_sizes = np.diff(self.unit_start)
        machine_of = self.fixed.copy()
        machine_of[self.unit_task] = np.repeat(machines, unit_sizes)
        return machine_of

    def placement(self, machines: Sequence[int] | Ints) -> Placement:
        """Return the placement of all tasks that puts unit u on ``machines[u]``."""
        machine_of = self.expand(machines)
        return Placement(tuple(machine_of.tolist()))

    def machines(self, placement: Placement) -> Ints:
        """Return the machine of every unit under ``placement``, shape (units,)."""
        # Tasks of a unit stand together: the first tells where all do.
        machines = []
        for unit in self.units:
            first_task = unit.tasks[0]
            machine = placement.machine_of[first_task]
            machines.append(machine)
        return np.array(machines, dtype=np.int64)


class _Kind(NamedTuple):
    """Properties of a task that its interchangeable ones have as well."""

    kind: str
    rounds: int
    position: int
    """Position of a task with slots, whose ties go by it; -1 of the others."""
    demands: tuple[tuple[str, float], ...]
    slowness: tuple[tuple[str, float], ...]


def _pins(job: Job, tasks: Iterable[int]) -> set[str]:
    """Return the machines that some tasks are pinned to."""
    pins = set[str]()
    for task in tasks:
        pin = job.tasks[task].pinned
        if pin is not None:
            pins.add(pin)
    return pins


def _join_slot_teams(job: Job) -> dict[str, tuple[int, ...]]:
    """Return the tasks of every process; processes that share slots are one."""
    tasks_of = dict(job.units)
    for names in slot_teams(job):
        team = list[int]()
        for name in names:
            team += tasks_of[name]
        team.sort()
        pins = _pins(job, team)
        # Pinned to several machines they stay apart.
        if len(pins) > 1:
            continue

        # The process whose tasks stand first is the one that has them all.
        first = min(names, key=tasks_of.__getitem__)
        for name in names:
            if name != first:
                del tasks_of[name]
        tasks_of[first] = tuple(team)
    return tasks_of


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
    simulated: Callable[[], float] | None = field(
        default=None, compare=False, repr=False
    )
    """Simulation of the only placement, which returns its makespan; None where that is
    known, or where there was a choice."""

    def with_makespan(self) -> PlacementResult:
        """Return the result with the makespan of the one placement that there is."""
        if self.simulated is None:
            return self
        makespan = self.simulated()
        return replace(
            self,
            makespan=makespan,
            start_makespan=makespan,
            evaluations=1,
            history=((1, makespan),),
            simulated=None,
        )

    def _repr_html_(self) -> str:
        """Return the fields but the placement and the history, for notebooks."""
        rows = []
        for name, value in vars(self.with_makespan()).items():
            if value and name not in {"placement", "history"}:
                rows.append((name, value))
        return html_table(f"placement by {self.policy}", (), rows)
