"""Rates by priority: one flow after the other takes what is left on its hops.

Keys that are equal up to rounding must count as equal, or the last bit of a sum
would decide the order: keys are compared to 32 bits, then come the iteration
served and the names of destination and source, never the order in the file. Likewise
what is left of a port after it has been given away counts as nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from emu.scheduling.compiled import compiled, inlined
from emu.scheduling.service_clocks import set_rate
from emu.scheduling.state import ORDERED, TOUCHED, State

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Floats, Layout

# Longest remaining paths, for policies that look ahead and for bounds.
#
# Along a path tasks take their times, flows between machines the time they would take
# alone, and iterations of a task or an edge follow one another: constraints (7)-(11).


@inlined
def alone(layout: Layout, capacity: Floats, group: int) -> float:
    """Return the rate that a flow of ``group`` has alone, bytes per second."""
    rate = math.inf
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        rate = min(rate, capacity[layout.hop[i]])
    return rate


@compiled
def means(values: Floats) -> Floats:
    """Return the mean of every row as a column."""
    rows, columns = values.shape
    column = np.zeros((rows, 1))
    for row in range(rows):
        for i in range(columns):
            column[row, 0] += values[row, i] / columns
    return column


@compiled
def longest_paths(
    layout: Layout, times: Floats, volumes: Floats
) -> tuple[Floats, Floats]:
    """Return the longest paths from each task's start and each flow's end.

    Parameters
    ----------
    times, volumes
        As in `Realization`; fewer columns are repeated (one column: the means).

    Returns
    -------
    from_task
        Seconds from the start of (task, iteration) to the end of the job.
    after_flow
        Seconds from the end of (edge, iteration) to the end of the job.
    """
    iterations, columns = layout.iterations, times.shape[1]
    from_task = np.zeros((times.shape[0], iterations))
    after_flow = np.zeros((volumes.shape[0], iterations))
    for n in range(iterations - 1, -1, -1):
        for task in layout.order[::-1]:
            if n >= layout.rounds[task]:
                continue
            longest = from_task[task, n + 1] if n + 1 < iterations else 0.0
            for i in range(layout.out_start[task], layout.out_start[task + 1]):
                edge = layout.out_edge[i]
                arrival = n + layout.lag[edge]
                if n >= layout.sent[edge]:
                    continue
                path = from_task[layout.destination[edge], arrival]
                if layout.group[edge] >= 0:
                    rate = alone(layout, layout.capacity, layout.group[edge])
                    if n + 1 < layout.sent[edge]:
                        behind = volumes[edge, (n + 1) % columns] / rate
                        path = max(path, behind + after_flow[edge, n + 1])
                    after_flow[edge, n] = path
                    path += volumes[edge, n % columns] / rate
                longest = max(longest, path)
            from_task[task, n] = times[task, n % columns] + longest
    return from_task, after_flow


#: Less than this share of a port's capacity is nothing.
CRUMB = 1e-9
#: Leaves 53 - 21 bits of what it splits.
_SPLIT = 2.0**21 + 1.0


@inlined
def coarse(value: float) -> float:
    """Return ``value`` to 32 bits: Veltkamp's splitting, three operations.

    Taking it apart by ``frexp`` and ``ldexp`` was two fifths of a simulation of 1,814
    flows under ``mrtf``.
    """
    if math.isinf(value):
        return value
    spread = value * _SPLIT
    return spread - (spread - value)


@inlined
def flow_edge(layout: Layout, state: State, group: int) -> int:
    """Return the edge of the only flow of ``group``, or of the one that ended last."""
    return state.mark_edge[layout.slot[group]]  # type: ignore[no-any-return]


@inlined
def volume(layout: Layout, state: State, group: int) -> float:
    """Return the bytes of the only flow of ``group``, whose service began at 0."""
    return state.mark[layout.slot[group]]  # type: ignore[no-any-return]


@inlined
def remaining(layout: Layout, state: State, group: int, now: float) -> float:
    """Return the bytes that the only flow of ``group`` has left.

    Never quite 0: a flow whose last byte was not reported yet still needs a rate.
    """
    served = state.service[group] + state.rate[group] * (now - state.since[group])
    all_of_it = volume(layout, state, group)
    return float(max(all_of_it - served, 1e-9 * all_of_it))


@inlined
def note_flow(layout: Layout, state: State, group: int) -> None:
    """Note what stays the same of the flow of ``group`` as long as it is active."""
    edge = flow_edge(layout, state, group)
    state.scratch.turn[group] = state.delivered[edge] + layout.lag[edge]
    state.scratch.alone[group] = alone(layout, state.capacity, group)
    if state.after.shape[0] > 0:
        state.scratch.after[group] = state.after[edge, state.delivered[edge]]


@inlined
def note_active(layout: Layout, state: State) -> None:
    """Bring ``scratch.order`` up to date, what stays in its order and the new behind.

    Rates then cost what active flows do, not all edges.
    """
    scratch, active, ended = state.scratch, state.length[ORDERED], False
    for i in range(state.length[TOUCHED]):
        group = state.touched[i]
        if state.active[group] == 0:
            ended = ended or scratch.is_ordered[group]
            continue
        note_flow(layout, state, group)
        if not scratch.is_ordered[group]:
            scratch.is_ordered[group] = True
            scratch.order[active] = group
            active += 1
    state.length[ORDERED] = active
    if not ended:
        return
    state.length[ORDERED] = 0
    for i in range(active):
        group = scratch.order[i]
        scratch.is_ordered[group] = state.active[group] > 0
        if scratch.is_ordered[group]:
            scratch.order[state.length[ORDERED]] = group
            state.length[ORDERED] += 1


@inlined
def precedes(layout: Layout, state: State, one: int, other: int) -> bool:
    """Return True where the flow of ``one`` goes before that of ``other``."""
    scratch = state.scratch
    if scratch.key[one] != scratch.key[other]:
        return bool(scratch.key[one] < scratch.key[other])
    if scratch.turn[one] != scratch.turn[other]:
        return bool(scratch.turn[one] < scratch.turn[other])
    ours = layout.rank[flow_edge(layout, state, one)]
    return bool(ours < layout.rank[flow_edge(layout, state, other)])


@inlined
def sort_flows(layout: Layout, state: State) -> int:
    """Sort ``scratch.order`` by ``scratch.key``; return how many flows are active.

    By insertion into the order of last time, which changes little between events.
    """
    order, active = state.scratch.order, state.length[ORDERED]
    for i in range(1, active):
        group, hole = order[i], i
        while hole > 0 and precedes(layout, state, group, order[hole - 1]):
            order[hole] = order[hole - 1]
            hole -= 1
        order[hole] = group
    return int(active)


@inlined
def take(layout: Layout, state: State, group: int, rate: float) -> None:
    """Give ``rate`` to the only flow of ``group``, at the cost of its ports."""
    residual = state.scratch.residual
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        port = layout.hop[i]
        residual[port] -= rate
        if residual[port] < CRUMB * state.capacity[port]:
            residual[port] = 0.0


@inlined
def spare(layout: Layout, state: State, group: int) -> float:
    """Return the bandwidth left on the ports of ``group``, bytes per second."""
    rate = math.inf
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        rate = min(rate, state.scratch.residual[layout.hop[i]])
    return rate


@inlined
def fill_in_order(layout: Layout, state: State, active: int, now: float) -> None:
    """Let the first ``active`` flows of ``scratch.order`` take all they can.

    They have it on top of ``scratch.rate``.
    """
    for i in range(active):
        group = state.scratch.order[i]
        rate = spare(layout, state, group)
        if rate > 0.0:
            take(layout, state, group, rate)
        set_rate(layout, state, group, state.scratch.rate[group] + rate, now)


@inlined
def remaining_path(layout: Layout, state: State, group: int, now: float) -> float:
    """Return the longest path from now to the end through the flow of ``group``."""
    flow = remaining(layout, state, group, now) / state.scratch.alone[group]
    return flow + state.scratch.after[group]  # type: ignore[no-any-return]


@inlined
def floor_and_critical_path(layout: Layout, state: State, now: float) -> None:
    """``oes_cp``: every flow its ``oes`` rate, the rest by longest remaining path."""
    scratch = state.scratch
    for port in range(scratch.load.size):
        scratch.load[port] = state.capacity[port] / max(state.degree[port], 1)
    for i in range(state.length[ORDERED]):
        group, rate = scratch.order[i], math.inf
        scratch.key[group] = -coarse(remaining_path(layout, state, group, now))
        for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
            rate = min(rate, scratch.load[layout.hop[j]])
        scratch.rate[group] = rate
        take(layout, state, group, rate)
    fill_in_order(layout, state, sort_flows(layout, state), now)
