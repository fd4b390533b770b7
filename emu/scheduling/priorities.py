"""Rates by priority: one flow after the other takes what is left on its hops.

Keys that are equal up to rounding must not be told apart, or the last bit of a sum
would decide who goes first: keys are compared to 32 bits, then come the iteration
served and the names of destination and source, never the order in the file. Likewise
what is left of a port after it has been given away counts as nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emu.scheduling.compiled import inlined
from emu.scheduling.remaining_paths import alone
from emu.scheduling.state import ORDERED, TOUCHED, State

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Layout

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
    """Return the edge of the only flow of ``group``."""
    return state.mark_edge[layout.slot[group]]  # type: ignore[no-any-return]


@inlined
def volume(layout: Layout, state: State, group: int) -> float:
    """Return the bytes of the only flow of ``group``."""
    place = layout.slot[group]
    return float(state.mark[place] - state.base[state.mark_edge[place]])


@inlined
def remaining(layout: Layout, state: State, group: int, now: float) -> float:
    """Return the bytes that the only flow of ``group`` has left.

    Never quite 0: a flow whose last byte was not reported yet still needs a rate.
    """
    served = state.service[group] + state.rate[group] * (now - state.since[group])
    left = state.mark[layout.slot[group]] - served
    return float(max(left, 1e-9 * volume(layout, state, group)))


@inlined
def note_active(layout: Layout, state: State) -> None:
    """Bring ``scratch.order`` up to date, what stays in its order and the new behind.

    Rates then cost what active flows do, not all edges: of 41,612 edges, looked at for
    every event, ``mrtf`` took 244 us a flow, and takes 59.
    """
    order, active = state.scratch.order, 0
    for i in range(state.length[ORDERED]):
        group = order[i]
        state.scratch.is_ordered[group] = state.active[group] > 0
        if state.scratch.is_ordered[group]:
            order[active] = group
            active += 1
    for i in range(state.length[TOUCHED]):
        group = state.touched[i]
        if state.active[group] == 0:
            continue
        edge = flow_edge(layout, state, group)
        state.scratch.turn[group] = state.delivered[edge] + layout.lag[edge]
        if not state.scratch.is_ordered[group]:
            state.scratch.is_ordered[group] = True
            order[active] = group
            active += 1
    state.length[ORDERED] = active


@inlined
def _precedes(layout: Layout, state: State, one: int, other: int) -> bool:
    scratch = state.scratch
    if scratch.key[one] != scratch.key[other]:
        return bool(scratch.key[one] < scratch.key[other])
    if state.scratch.turn[one] != state.scratch.turn[other]:
        return bool(state.scratch.turn[one] < state.scratch.turn[other])
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
        while hole > 0 and _precedes(layout, state, group, order[hole - 1]):
            order[hole] = order[hole - 1]
            hole -= 1
        order[hole] = group
    return int(active)


@inlined
def weigh_heads_of_queues(layout: Layout, state: State) -> None:
    """``fifo``, weighted max-min: weight 1 for the first flow of every out port.

    First is what its source produced first. An edge that has more to send than its
    active flow produced that later, so no pending flow is ahead of the active ones.
    """
    scratch = state.scratch
    for port in range(state.capacity.size):
        scratch.flows[port] = -1
    for i in range(state.length[ORDERED]):
        group = state.scratch.order[i]
        scratch.weight[group] = 0.0
        edge = flow_edge(layout, state, group)
        scratch.key[group] = state.log.flow_ready[edge, state.delivered[edge]]
        port = layout.hop[layout.hop_start[group]]
        head = scratch.flows[port]
        if head < 0 or _precedes(layout, state, group, head):
            scratch.flows[port] = group
    for port in range(state.capacity.size):
        if scratch.flows[port] >= 0:
            scratch.weight[scratch.flows[port]] = 1.0


@inlined
def take(layout: Layout, state: State, group: int, rate: float) -> None:
    """Give ``rate`` more to the only flow of ``group``, at the cost of its ports."""
    scratch = state.scratch
    scratch.rate[group] += rate
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        port = layout.hop[i]
        scratch.residual[port] -= rate
        if scratch.residual[port] < CRUMB * state.capacity[port]:
            scratch.residual[port] = 0.0


@inlined
def spare(layout: Layout, state: State, group: int) -> float:
    """Return what is left on the ports of ``group``, bytes per second."""
    rate = math.inf
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        rate = min(rate, state.scratch.residual[layout.hop[i]])
    return rate


@inlined
def fill_in_order(layout: Layout, state: State, active: int) -> None:
    """Let the first ``active`` flows of ``scratch.order`` take all they can."""
    for i in range(active):
        group = state.scratch.order[i]
        take(layout, state, group, spare(layout, state, group))


@inlined
def remaining_path(layout: Layout, state: State, group: int, now: float) -> float:
    """Return the longest path from now to the end through the flow of ``group``."""
    edge = flow_edge(layout, state, group)
    flow = remaining(layout, state, group, now) / alone(layout, state.capacity, group)
    return flow + state.after[edge, state.delivered[edge]]  # type: ignore[no-any-return]


@inlined
def floor_and_critical_path(layout: Layout, state: State, now: float) -> None:
    """``oes_cp``: every flow its ``oes`` rate, the rest by longest remaining path."""
    scratch = state.scratch
    for i in range(state.length[ORDERED]):
        group = state.scratch.order[i]
        scratch.key[group] = -coarse(remaining_path(layout, state, group, now))
        rate = math.inf
        for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
            port = layout.hop[j]
            rate = min(rate, state.capacity[port] / state.degree[port])
        take(layout, state, group, rate)
    fill_in_order(layout, state, sort_flows(layout, state))


@inlined
def _sort_by_remaining_time(layout: Layout, state: State, now: float) -> int:
    for i in range(state.length[ORDERED]):
        group = state.scratch.order[i]
        left = remaining(layout, state, group, now) / alone(
            layout, state.capacity, group
        )
        state.scratch.key[group] = coarse(left)
    return sort_flows(layout, state)


@inlined
def shortest_remaining(layout: Layout, state: State, now: float) -> None:
    """``mrtf``: the flow with least remaining time first, leftovers to the others."""
    fill_in_order(layout, state, _sort_by_remaining_time(layout, state, now))


@inlined
def shortest_remaining_alone(layout: Layout, state: State, now: float) -> None:
    """``mrtf_exclusive``: as ``mrtf``, but a port serves one flow at a time."""
    scratch = state.scratch
    for i in range(_sort_by_remaining_time(layout, state, now)):
        group = state.scratch.order[i]
        idle = True
        for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
            port = layout.hop[j]
            idle = idle and scratch.residual[port] == state.capacity[port]
        if idle:
            take(layout, state, group, alone(layout, state.capacity, group))
