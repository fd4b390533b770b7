"""Packing units onto machines: Algorithm 2's dynamic program, and integer programs.

A state of the dynamic program is how many units of every group the first machines hold;
which units those are does not matter, and that makes the program polynomial. HiGHS
solves linear and integer programs. Must not know: jobs, policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from emu.array_types import Floats, Ints, Mask
from emu.errors import InfeasiblePlacement, PlacementError
from emu.prediction.core import lib, pointer
from emu.prediction.placement.space import Space
from emu.problem import Cluster, Job, Placement, Realization
from emu.problem.machine import format_amount, name_amount

Counts = tuple[int, ...]
_Fit: TypeAlias = "list[tuple[int, Counts]]"  # bins, and the items of each group there

MAX_STATES = 50_000_000  # one byte each
#: States times bins beyond which first fit goes before the program: that takes 1.5 s of
#: CPU for 6 million (64 machines of DGTP's testbed), and for 1,300 million (256) hours.
MAX_STEPS = 20_000_000


@dataclass(frozen=True, eq=False)
class Packing:
    """Groups of equal items, and bins."""

    demand: Floats
    """Demand of one item of each group, shape (groups, resources)."""
    sizes: Counts
    """Number of items of each group."""
    free: Floats
    """Room of each bin, shape (bins, resources)."""

    def options(self, position: int) -> Ints:
        """Return every vector of counts that fits one bin, in lexicographic order.

        Shape (options, groups).
        """
        free = self.free[position]
        counts: Ints = np.zeros((1, 0), dtype=np.int64)
        for group, size in enumerate(self.sizes):
            # eta: the most of a group alone, a bound of the loop and no test (A9).
            demand = self.demand[group]
            needs = demand > 0
            counts_by_room = free[needs] / demand[needs]
            room = counts_by_room.min(initial=np.inf)
            # Items that fill the room exactly must not lose one to rounding.
            whole = np.floor(room * (1 + 1e-12))
            most = int(np.clip(whole, 0, size))

            choices = np.arange(most + 1)
            column = np.tile(choices, len(counts))
            counts = np.repeat(counts, choices.size, axis=0)
            counts = np.column_stack([counts, column])
            use = counts @ self.demand[: group + 1]
            fits = (use <= free).all(axis=1)
            counts = counts[fits]
        return counts

    @property
    def _states(self) -> int:
        """Number of all vectors of counts, those that no bins hold included."""
        return prod(size + 1 for size in self.sizes)

    def solve(self, order: Sequence[int]) -> _Fit | None:
        """Return (bin, counts) that hold everything, found in ``order``, or None.

        States are kept once, the first way to reach one wins, and every bin is tried
        first with all that is left (A10). Where states and bins are very many, what
        first fit finds is taken, and the program decides where that finds nothing.

        Raises PlacementError when there are too many groups of different items to
        count.
        """
        sizes = np.array(self.sizes, dtype=np.int64)
        if self._states * len(order) > MAX_STEPS:
            fit = self.first_fit(order)
            if fit is not None:
                return fit

        states = np.zeros((1, len(sizes)), dtype=np.int64)
        steps: list[_Step] = []
        for position in order:
            items_left = sizes - states
            needs = items_left @ self.demand
            fits = (needs <= self.free[position]).all(axis=1)
            if fits.any():
                state = int(np.argmax(fits))
                last_counts = items_left[state]
                path = [*_counts_before(steps, state), last_counts]
                # Bins behind the last that is needed hold nothing.
                return _pair(order[: len(path)], path)

            options = self.options(position)
            states, step = self._extend(states, options)
            steps.append(step)
            if not len(states):
                return None
        return None

    def first_fit(self, order: Sequence[int]) -> _Fit | None:
        """Return (bin, counts) that hold everything, groups of large items first.

        None where this finds no room, which need not mean that there is none.
        """
        room = self.free[order].astype(np.float64)
        # Groups go by the largest share that an item has of the roomiest bin.
        roomiest = room.max(axis=0, initial=0.0)
        is_stated = np.isfinite(room).all(axis=0)
        limits = is_stated & (roomiest > 0)
        shares = self.demand[:, limits] / roomiest[limits]
        largest = shares.max(axis=1, initial=0.0)

        bins = len(order)
        groups = len(self.sizes)
        counts = np.zeros((bins, groups), dtype=np.int64)
        for group in np.argsort(-largest, kind="stable"):
            demand = self.demand[group]
            needs = demand > 0
            rest = self.sizes[group]
            for place in range(bins):
                counts_by_room = room[place, needs] / demand[needs]
                most = counts_by_room.min(initial=rest)
                count = min(int(most), rest)
                room[place] -= count * demand
                counts[place, group] = count
                rest -= count
            if rest:
                return None

        return _pair(order, counts)

    def reachable(self) -> Ints:
        """Return the counts that the bins can hold together, shape (states, groups)."""
        states = np.zeros((1, len(self.sizes)), dtype=np.int64)
        for position in range(len(self.free)):
            options = self.options(position)
            states, _ = self._extend(states, options)
        return states

    def _extend(self, states: Ints, options: Ints) -> tuple[Ints, _Step]:
        """Put every option on top of every state; return what is new, and its step."""
        count = self._states
        if count > MAX_STATES:
            raise PlacementError(
                f"{len(self.sizes)} kinds of tasks with different demands make "
                f"{count:.2g} states, more than {MAX_STATES:.2g}; give tasks equal "
                "kinds and demands, or place them explicitly"
            )

        sizes = np.array(self.sizes, dtype=np.int64)
        # The weight of every count in the number of a state: of the last group 1.
        radices = np.append(sizes[1:], 0) + 1
        last_first = np.cumprod(radices[::-1])
        strides = last_first[::-1].astype(np.int64)
        most = min(len(states) * len(options), count)
        marks = np.empty(count, dtype=np.bool_)
        origin, addition = np.empty((2, most), dtype=np.int32)
        new = lib.extend(
            pointer(states),
            len(states),
            pointer(options),
            len(options),
            pointer(sizes),
            pointer(strides),
            len(sizes),
            pointer(marks),
            count,
            pointer(origin),
            pointer(addition),
        )
        counts = options[addition[:new]]
        origins = origin[:new].astype(np.int64)
        new_states = states[origins] + counts
        return new_states, _Step(origins, counts)


class _Step(NamedTuple):
    """Origins of the states that one more bin leads to, a row each."""

    origins: Ints
    """Positions of the states before."""
    counts: Ints
    """Counts put on top, shape (states, groups)."""


def _counts_before(steps: Sequence[_Step], state: int) -> list[Ints]:
    """Return the counts of every bin on the way to a state, the first bin first."""
    last_first = []
    for step in reversed(steps):
        last_first.append(step.counts[state])
        state = int(step.origins[state])
    return last_first[::-1]


def _pair(order: Sequence[int], counts: Iterable[Ints]) -> _Fit:
    """Return the bins of ``order`` with what each holds."""
    fit = []
    for position, row in zip(order, counts, strict=True):
        fit.append((position, tuple(row.tolist())))
    return fit


# Compute a placement's load on every machine, and the bytes that edges send.


@dataclass(frozen=True)
class ResourceLoad:
    """Use of one resource of one machine, in the resource's unit."""

    machine: str
    resource: str
    used: float
    capacity: float
    """Infinite where the machine does not limit it."""

    @property
    def fraction(self) -> float:
        """Used part of the capacity; infinite when something uses a capacity of 0."""
        if self.capacity == 0:
            return np.inf if self.used else 0.0
        return self.used / self.capacity


def resource_loads(
    job: Job,
    cluster: Cluster,
    placement: Placement,
) -> tuple[ResourceLoad, ...]:
    """Return the load of every machine and resource, machine by machine.

    Listed are the resources that some task demands or some machine limits, sorted.
    """
    resources = {*cluster.resource_names()}
    for task in job.tasks:
        resources.update(task.demands)
    usage = placement.usage(job, cluster)

    loads = []
    for machine, use in zip(cluster.machines, usage, strict=True):
        for resource in sorted(resources):
            load = ResourceLoad(
                machine=machine.name,
                resource=resource,
                used=use.get(resource, 0.0),
                capacity=machine.resources.get(resource, np.inf),
            )
            loads.append(load)
    return tuple(loads)


def sum_edge_bytes(job: Job, realization: Realization) -> Floats:
    """Return the bytes that every edge sends in the whole run, shape (edges,).

    Edges of control carry nothing, and what no task would receive is not sent.
    """
    sums = np.zeros(len(job.edges))
    for position, control in enumerate(job.control):
        if not control:
            count = job.flow_counts[position]
            volumes = realization.volumes[position, :count]
            sums[position] = volumes.sum()
    return sums


# Why a job does not fit a cluster: the binding resource and the shortfall.


def infeasibility(space: Space) -> InfeasiblePlacement:
    """Return the error that names what is missing, for a space known to be too small.

    The first of these that holds, over resources in alphabetical order: pinned tasks
    overload their machine; all tasks together want more than all machines have; one
    unit is larger than the room on any machine; one resource alone cannot be packed.
    Otherwise no single resource is to blame, and the error names those that movable
    tasks demand.
    """
    for _, resource, shortfall, problem in overload(space):
        return InfeasiblePlacement(
            problem,
            resource=resource,
            shortfall=shortfall,
            key="placement.tasks",
        )
    for find in (_total_shortfalls, _unit_shortfalls, _packing_shortfalls):
        for resource, shortfall, problem in find(space):
            return InfeasiblePlacement(problem, resource=resource, shortfall=shortfall)

    names = [space.resources[column] for column in _list_demands(space)]
    movable = ", ".join(names)
    return InfeasiblePlacement(
        f"the tasks do not fit the cluster: {movable} bind together, none of them alone"
    )


def _list_demands(space: Space) -> list[int]:
    """Return the resources of which some movable task demands any."""
    is_demanded = space.demand.any(axis=0)
    return np.flatnonzero(is_demanded).tolist()


def overload(space: Space) -> Iterator[tuple[str, str, float, str]]:
    """Yield machine, resource, shortfall, sentence where pinned tasks are too much."""
    is_too_full = space.free < -space.slack
    places = np.argwhere(is_too_full)
    for number, column in places.tolist():
        machine = space.cluster.machines[number].name
        resource = space.resources[column]
        capacity = space.capacity[number, column]
        used = space.used[number, column]
        shortfall = -float(space.free[number, column])

        problem = (
            f"machine {machine} has {name_amount(capacity, resource)}, the tasks "
            f"pinned to it need {format_amount(used, resource)} "
            f"({format_amount(shortfall, resource)} more)"
        )
        yield machine, resource, shortfall, problem


_Shortfalls: TypeAlias = Iterator[tuple[str, float, str]]


def _total_shortfalls(space: Space) -> _Shortfalls:
    """Yield resource, shortfall, sentence where all machines have too little."""
    for column, resource in enumerate(space.resources):
        capacities = space.capacity[:, column]
        pinned = space.used[:, column]
        movable = space.demand[:, column]
        room = float(capacities.sum())
        needs = float(pinned.sum() + movable.sum())
        if needs > room * (1 + 1e-12):
            shortfall = needs - room
            problem = (
                f"the tasks need {name_amount(needs, resource)} in total, all machines "
                f"together have {format_amount(room, resource)} "
                f"({format_amount(shortfall, resource)} short)"
            )
            yield resource, shortfall, problem


def _unit_shortfalls(space: Space) -> _Shortfalls:
    """Yield the same where one unit is larger than the room on any machine."""
    if not space.units:
        return
    for column, resource in enumerate(space.resources):
        demands = space.demand[:, column]
        rooms = space.free[:, column]
        unit = int(demands.argmax())
        machine = int(rooms.argmax())
        demand = float(demands[unit])
        room = float(rooms[machine])

        if demand > room + space.slack[machine, column]:
            unit_name = space.units[unit].name
            machine_name = space.cluster.machines[machine].name
            shortfall = demand - room
            problem = (
                f"{unit_name} needs {name_amount(demand, resource)}, the roomiest "
                f"machine, {machine_name}, has {format_amount(room, resource)} left "
                f"({format_amount(shortfall, resource)} short)"
            )
            yield resource, shortfall, problem


def _packing_shortfalls(space: Space) -> _Shortfalls:
    """Yield the same where a resource cannot be packed, were the others endless."""
    room = space.free + space.slack
    for column in _list_demands(space):
        demands = space.demand[:, column]
        demands = demands[demands > 0]
        amounts, sizes = np.unique(demands, return_counts=True)
        packing = Packing(
            demand=amounts[:, None],
            sizes=tuple(sizes.tolist()),
            free=room[:, [column]],
        )
        held = packing.reachable() @ amounts
        most = float(held.max())

        needs = float(demands.sum())
        shortfall = needs - most
        if shortfall > needs * 1e-12:
            resource = space.resources[column]
            pieces = [format_amount(amount, resource) for amount in amounts]
            problem = (
                f"of {name_amount(needs, resource)} that the movable tasks need, the "
                f"machines can hold {format_amount(most, resource)} at best, in pieces "
                f"of {', '.join(pieces)} ({format_amount(shortfall, resource)} short)"
            )
            yield resource, shortfall, problem


class Row(NamedTuple):
    """``least <= factors . x[columns] <= most``."""

    columns: Sequence[int]
    factors: Sequence[float]
    least: float
    most: float


def stands_once(first: int, count: int) -> Row:
    """Return the row by which ``count`` variables from ``first`` on sum up to 1."""
    return Row(
        columns=range(first, first + count),
        factors=[1.0] * count,
        least=1.0,
        most=1.0,
    )


class Solution(NamedTuple):
    """The best that was found."""

    x: Floats | None
    """Variables, shape (variables,); None where nothing was found."""
    bound: float
    """Costs that no x goes below, -inf where these are not known."""


def minimise(
    costs: Floats,
    upper: Floats,
    is_whole: Mask,
    rows: Iterable[Row],
    *,
    nodes: int = 0,
    seconds: float = 0.0,
) -> Solution:
    """Return the x in 0 ... ``upper`` of least ``costs . x`` that keeps to the rows.

    Parameters
    ----------
    costs, upper
        Shape (variables,).
    is_whole
        True for variables that are whole numbers, same shape.
    nodes, seconds
        Limits on branching, each 0 for no limit of this kind.

    Raises
    ------
    ValueError
        A row names a variable twice, or one that there is not.
    """
    import highspy  # noqa: PLC0415 - other commands do without

    # Not highspy.Highs: from 1.16 on it prints a banner before it can be asked not to.
    solver = highspy._core._Highs()  # noqa: SLF001
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("parallel", "off")
    if nodes:
        solver.setOptionValue("mip_max_nodes", nodes)
    if seconds:
        solver.setOptionValue("time_limit", seconds)

    rows = list(rows)
    model = highspy.HighsLp()
    model.num_col_ = len(costs)
    model.num_row_ = len(rows)
    model.col_cost_ = costs
    model.col_upper_ = upper
    model.col_lower_ = np.zeros_like(costs)
    model.row_lower_ = np.array([row.least for row in rows])
    model.row_upper_ = np.array([row.most for row in rows])
    has_whole = bool(is_whole.any())
    if has_whole:
        kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
        model.integrality_ = [kinds[flag] for flag in is_whole.tolist()]

    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    _write_rows(model.a_matrix_, rows)

    if solver.passModel(model) == highspy.HighsStatus.kError:
        raise ValueError("the program is not one: does a row name a column twice?")
    solver.run()
    info = solver.getInfo()
    bound = info.mip_dual_bound if has_whole else info.objective_function_value
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        # What has no x at all is bounded by +inf, which is of no use to anybody.
        is_known = has_whole and bound < np.inf
        return Solution(None, bound if is_known else -np.inf)
    values = solver.getSolution().col_value
    return Solution(np.array(values), bound)


def _write_rows(matrix: Any, rows: Iterable[Row]) -> None:
    """Set the entries of a matrix of HiGHS that is kept row by row."""
    starts = [0]
    columns = list[int]()
    factors = list[float]()
    for row in rows:
        columns += row.columns
        factors += row.factors
        starts.append(len(columns))

    matrix.start_ = np.array(starts)
    matrix.index_ = np.array(columns)
    matrix.value_ = np.array(factors)
