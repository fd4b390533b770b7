"""Costs of candidate placements from compiled code: bounds, penalty, makespan.

`Candidates` is made once per search; everything else is a function of it and of one
placement, so that a search keeps no state that could drift. Must not know: moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.placement.job_costs import (
    JobCosts,
    JobsCost,
    cost_of_ends,
    job_costs,
    least_cost,
    longest_makespan,
)
from emu.placement.packing import sent_bytes
from emu.placement.space import TOLERANCE
from emu.scheduling.compiled import compiled
from emu.scheduling.compiled_problem import plain, port_at, route_between
from emu.simulation.evaluator import MakespanEvaluator, run_ends, run_makespan

if TYPE_CHECKING:
    from emu.placement.space import Space
    from emu.problem import Realization
    from emu.scheduling.compiled_problem import Floats, Ints, JobArrays, Routes

NORM = 16  # of `estimate`; an integer compiles to four products
ROUNDING = 1e-9  # relative; a bound must exceed a limit by more to reject anything


class Units(NamedTuple):
    """Units to place, their demands, and the machines' capacities, as flat arrays."""

    fixed: Ints
    """Machine of every pinned task, -1 for the others."""
    unit_start: Ints
    unit_task: Ints
    """Tasks of every unit."""
    demand: Floats
    used: Floats
    capacity: Floats
    """Demands of units, of pinned tasks per machine, and capacities; shapes (units,
    resources), (machines, resources) twice. Infinite capacities stay in."""


class Transfers(NamedTuple):
    """Input of a bound: edges, the bytes they send, and the links they cross."""

    source: Ints
    destination: Ints
    """Tasks of every edge."""
    routes: Routes
    capacity: Floats
    """As in `JobArrays`."""
    sent: Floats
    """Bytes of every edge in the whole run."""
    head: Floats
    tail: Floats
    """Least time from the start to the first flow of an edge, and from the end of its
    last flow to the makespan, with every task on the machine where it is fastest;
    seconds."""
    least: float
    """Makespan if every transfer took no time, likewise; seconds."""


class Candidates(NamedTuple):
    """A search space as flat arrays, with one realization for all placements."""

    arrays: JobArrays
    """Input of `emu.simulation` besides the placement."""
    times: Floats
    volumes: Floats
    """The realization: the same for every candidate (common random numbers, A20), with
    reference times."""
    units: Units
    """Units to place."""
    transfers: Transfers
    """Edges between their tasks."""
    costs: JobCosts
    """Cost by which several jobs are judged."""
    busy: Floats
    """Seconds that every task computes on every machine, shape (tasks, machines)."""


def candidates(
    space: Space,
    realization: Realization,
    policy: str,
    cost: JobsCost | None = None,
) -> Candidates:
    """Return the arrays of a search in ``space`` under one realization.

    Raises
    ------
    ValueError
        When there is no such rate policy, or the realization does not fit the job.
    """
    realization.check_shapes(space.job)
    arrays = MakespanEvaluator(space.job, space.cluster, policy).arrays
    times = plain(realization.times)
    head, tail, least = _without_transfers(arrays, _least_times(space, arrays, times))
    sizes = [len(unit.tasks) for unit in space.units]
    return Candidates(
        arrays,
        times,
        plain(realization.volumes),
        Units(
            space.fixed,
            np.cumsum([0, *sizes], dtype=np.int64),
            np.array([t for unit in space.units for t in unit.tasks], dtype=np.int64),
            space.demand,
            space.used,
            space.capacity,
        ),
        Transfers(
            arrays.source,
            arrays.destination,
            arrays.routes,
            space.cluster.links.steps.most,
            sent_bytes(space.job, realization),
            head,
            tail,
            float(least),
        ),
        job_costs(space.job, times, cost),
        times.sum(axis=1)[:, None] * _slowness(arrays, len(times)),
    )


def _slowness(arrays: JobArrays, tasks: int) -> Floats:
    """Return the factors on reference times, shape (tasks, machines)."""
    stated = arrays.slowness
    return stated if len(stated) else np.ones((tasks, stated.shape[1]))


def _least_times(space: Space, arrays: JobArrays, times: Floats) -> Floats:
    """Return the times of every task on the machine where it is fastest."""
    if not len(arrays.slowness):
        return times
    pinned = space.fixed >= 0
    least = arrays.slowness.min(axis=1)
    least[pinned] = arrays.slowness[pinned, space.fixed[pinned]]
    return np.asarray(times * least[:, None])


@compiled
def _without_transfers(
    arrays: JobArrays, times: Floats
) -> tuple[Floats, Floats, float]:
    """Return head and tail of every edge and the makespan if transfers were free."""
    end = _earliest_ends(arrays, times, np.zeros(arrays.source.size))
    rest = _longest_rests(arrays, times)
    head = np.zeros(arrays.source.size)
    tail = np.zeros(arrays.source.size)
    for edge in range(arrays.source.size):
        target = arrays.destination[edge]
        head[edge] = end[arrays.source[edge], 0]
        tail[edge] = rest[target, arrays.rounds[target] - 1]
    return head, tail, end.max()


@compiled
def _earliest_ends(arrays: JobArrays, times: Floats, taken: Floats) -> Floats:
    """Return the end of every (task, iteration); 0 of those that are not there.

    Every transfer of an edge takes as long as its entry of ``taken``, seconds.
    """
    end = np.zeros(times.shape)
    for n in range(times.shape[1]):
        for j in arrays.order:
            if n >= arrays.rounds[j]:
                continue
            start = end[j, n - 1] if n > 0 else 0.0
            for i in range(arrays.in_start[j], arrays.in_start[j + 1]):
                edge = arrays.in_edge[i]
                sent = n - arrays.lag[edge]
                if 0 <= sent < arrays.sent[edge]:
                    start = max(start, end[arrays.source[edge], sent] + taken[edge])
            end[j, n] = start + times[j, n]
    return end


@compiled
def _longest_rests(arrays: JobArrays, times: Floats) -> Floats:
    """Return the time from the start of every (task, iteration) to the makespan."""
    tasks, iterations = times.shape
    rest = np.zeros((tasks, iterations + 1))
    for n in range(iterations - 1, -1, -1):
        for j in arrays.order[::-1]:
            if n >= arrays.rounds[j]:
                continue
            after = rest[j, n + 1]
            for i in range(arrays.out_start[j], arrays.out_start[j + 1]):
                edge = arrays.out_edge[i]
                if n < arrays.sent[edge]:
                    after = max(
                        after, rest[arrays.destination[edge], n + arrays.lag[edge]]
                    )
            rest[j, n] = times[j, n] + after
    return rest


@compiled
def expand(u: Units, machines: Ints) -> Ints:
    """Return the machine of every task for units on ``machines``."""
    machine_of = u.fixed.copy()
    for unit in range(machines.size):
        for i in range(u.unit_start[unit], u.unit_start[unit + 1]):
            machine_of[u.unit_task[i]] = machines[unit]
    return machine_of


@compiled
def usage(u: Units, machines: Ints) -> Floats:
    """Return the summed demands on every machine, shape (machines, resources)."""
    used = u.used.copy()
    for unit in range(machines.size):
        for r in range(used.shape[1]):
            used[machines[unit], r] += u.demand[unit, r]
    return used


@compiled
def excess(capacities: Floats, used: Floats) -> float:
    """Return the violated part of all capacities, the sum in cost (21); 0: feasible."""
    total = 0.0
    for machine in range(used.shape[0]):
        for r in range(used.shape[1]):
            capacity = capacities[machine, r]
            over = used[machine, r] - capacity
            if over > capacity * TOLERANCE:
                total += over / capacity if capacity > 0.0 else np.inf
    return total


@compiled
def lower_bound(t: Transfers, costs: JobCosts, machine_of: Ints) -> float:
    """Return a cost that no schedule of this placement beats, seconds.

    The cost of several jobs follows from the makespan.
    """
    return least_cost(costs, max(t.least, _port_bounds(t, machine_of).max()))


@compiled
def _port_bounds(t: Transfers, machine_of: Ints) -> Floats:
    """Return the makespan that every port asks for, seconds; 0 where it sends nothing.

    The bytes of a port need their time, its first flow cannot come before its head, and
    after its last flow comes at least the shortest tail.
    """
    ports = t.capacity.size
    load = np.zeros(ports)
    head = np.full(ports, np.inf)
    tail = np.full(ports, np.inf)
    for edge in range(t.source.size):
        if t.sent[edge] <= 0.0:
            continue
        source, destination = (
            machine_of[t.source[edge]],
            machine_of[t.destination[edge]],
        )
        first, end = route_between(t.routes, source, destination)
        for i in range(first, end):
            port = port_at(t.routes, i, source, destination)
            load[port] += t.sent[edge]
            head[port] = min(head[port], t.head[edge])
            tail[port] = min(tail[port], t.tail[edge])
    bounds = np.zeros(max(ports, 1))  # a cluster may have none
    for port in range(ports):
        if load[port] > 0.0:
            bounds[port] = head[port] + load[port] / t.capacity[port] + tail[port]
    return bounds


@compiled
def estimate(c: Candidates, machine_of: Ints) -> float:
    """Return the mean of what ports and tasks ask for, as a norm, and of `_crowded`.

    Seconds, for a hundredth of a simulation's time. Unlike the bound, their maximum,
    the norm falls when any port that counts gets less to do. It is blind to what waits,
    by which the best of 1.0 and 1.18 times their makespan differed.
    """
    busy = _port_bounds(c.transfers, machine_of)
    most = max(busy.max(), c.transfers.least)
    if most <= 0.0:
        return 0.0
    total = 0.0
    for asked in busy:
        total += (asked / most) ** NORM
    for task in range(machine_of.size):
        total += (c.busy[task, machine_of[task]] / most) ** NORM
    return float(most * total ** (1.0 / NORM) + _crowded(c, machine_of, busy)) / 2.0


@compiled
def _crowded(c: Candidates, machine_of: Ints, busy: Floats) -> float:
    """Return the makespan if every flow met all others of its ports, seconds.

    From the first iterations, with mean times; ``busy`` holds the seconds of ports.
    """
    a, t = c.arrays, c.transfers
    taken = np.zeros(t.source.size)
    for edge in range(t.source.size):
        if t.sent[edge] > 0.0:
            ends = machine_of[t.source[edge]], machine_of[t.destination[edge]]
            first, end = route_between(t.routes, ends[0], ends[1])
            for i in range(first, end):
                port = port_at(t.routes, i, ends[0], ends[1])
                taken[edge] = max(taken[edge], busy[port] / a.sent[edge])
    iterations = c.times.shape[1]
    times = np.empty((machine_of.size, min(2, iterations)))
    for task in range(machine_of.size):
        times[task] = c.busy[task, machine_of[task]] / a.rounds[task]
    done = _earliest_ends(a, times, taken)
    once, last = done[:, 0].max(), done[:, -1].max()
    return float(once + (iterations - 1) * (last - once))


@compiled
def placement_cost(c: Candidates, machine_of: Ints, limit: float) -> float:
    """Return makespan or cost, seconds; beyond ``limit`` that or infinity.

    Infinity too where tasks wait for slots forever, or more are given back than taken.
    """
    a = c.arrays
    if a.slots.size > 0 and not _balanced(
        a.taken, a.freed, a.slots, a.rounds, machine_of
    ):
        return np.inf
    if c.costs.job.size == 0:
        makespan = run_makespan(a, machine_of, c.times, c.volumes, limit)
        return np.inf if np.isnan(makespan) else float(makespan)
    longest = longest_makespan(c.costs, limit)
    ends = run_ends(a, machine_of, c.times, c.volumes, longest)
    return float(cost_of_ends(c.costs, ends))


@compiled
def _balanced(
    taken: Ints, freed: Ints, slots: Ints, rounds: Ints, machine_of: Ints
) -> bool:
    """Return True where no limited pool gets back more slots than are taken of it."""
    kept = np.zeros_like(slots)
    for task in range(machine_of.size):
        if taken[task] >= 0:
            kept[machine_of[task], taken[task]] += rounds[task]
        if freed[task] >= 0:
            kept[machine_of[task], freed[task]] -= rounds[task]
    return not ((slots >= 0) & (kept < 0)).any()
