"""Rates by coflow: the active flows to one iteration of one task.

OMCoflow (Tan et al., ToN 27(5) 2019) as section VI-B of the DGTP paper describes it:
rates within a coflow inversely proportional to the predicted finish time of the flow,
supposing that its coflow is alone. Which formula that means is our reading; the
variants are ours as well. SEBF and MADD are Varys' (SIGCOMM 2014).

Coflows are chained anew where a flow came or went: the first flow stands for all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emu.scheduling.compiled import inlined
from emu.scheduling.priorities import (
    CRUMB,
    coarse,
    fill_in_order,
    flow_edge,
    remaining,
    sort_flows,
    take,
    volume,
)
from emu.scheduling.service_clocks import set_rate
from emu.scheduling.state import ORDERED, TOUCHED, State

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Layout

#: Where a finish is predicted, a flow counts at least this share of its volume as left:
#: the last bytes would get all the weight.
LEAST_LEFT = 0.01
#: The whole volume counts, as when the flow began.
WHOLE = 1.0


@inlined
def _note_left(
    layout: Layout, state: State, group: int, now: float, least: float
) -> float:
    """Note what is left of the flow of ``group``, at least a share of its volume."""
    left = remaining(layout, state, group, now)
    left = max(left, least * volume(layout, state, group))
    state.scratch.left[group] = left
    return float(left)


@inlined
def _active_to(layout: Layout, state: State, place: int) -> int:
    """Return the group with an active flow at ``place`` of all in-edges, or -1."""
    group = layout.group[layout.in_edge[place]]
    return group if group >= 0 and state.active[group] > 0 else -1


@inlined
def _count_flows(layout: Layout, state: State, coflow: int) -> None:
    """Count the flows of ``coflow`` over each of its ports, and the bytes left."""
    scratch = state.scratch
    group = coflow
    while group >= 0:
        for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
            scratch.flows[layout.hop[i]] = 0
            scratch.load[layout.hop[i]] = 0.0
        group = scratch.next_member[group]
    group = coflow
    while group >= 0:
        for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
            scratch.flows[layout.hop[i]] += 1
            scratch.load[layout.hop[i]] += scratch.left[group]
        group = scratch.next_member[group]


@inlined
def _set_fair_rates(layout: Layout, state: State, coflow: int) -> None:
    """Set the rates of the flows of ``coflow`` if equal shares were all that counts."""
    _count_flows(layout, state, coflow)
    group = coflow
    while group >= 0:
        rate = math.inf
        for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
            port = layout.hop[i]
            rate = min(rate, state.capacity[port] / state.scratch.flows[port])
        state.scratch.fair[group] = rate
        group = state.scratch.next_member[group]


@inlined
def _chain(layout: Layout, state: State, task: int) -> None:
    """Chain the active flows to each iteration of ``task``."""
    scratch = state.scratch
    first, end = layout.in_start[task], layout.in_start[task + 1]
    for i in range(first, end):
        group = _active_to(layout, state, i)
        if group >= 0:
            scratch.coflow[group] = -1
    for i in range(first, end):
        coflow = _active_to(layout, state, i)
        if coflow < 0 or scratch.coflow[coflow] >= 0:
            continue
        last = coflow
        for j in range(i, end):
            group = _active_to(layout, state, j)
            if group >= 0 and scratch.turn[group] == scratch.turn[coflow]:
                scratch.coflow[group] = coflow
                scratch.next_member[last] = group
                last = group
        scratch.next_member[last] = -1
        scratch.gamma[coflow] = -1.0
        _set_fair_rates(layout, state, coflow)


@inlined
def chain_coflows(layout: Layout, state: State) -> None:
    """Chain the coflows of every task to which a flow came or went."""
    chained = state.scratch.is_chained
    for i in range(state.length[TOUCHED]):
        task = layout.destination[flow_edge(layout, state, state.touched[i])]
        if not chained[task]:
            chained[task] = True
            _chain(layout, state, task)
    for i in range(state.length[TOUCHED]):
        chained[layout.destination[flow_edge(layout, state, state.touched[i])]] = False


@inlined
def weigh_by_finish(layout: Layout, state: State, now: float, least: float) -> None:
    """Weigh every flow by 1 / its finish time if its coflow were alone.

    ``omcoflow_wc`` is weighted max-min with these weights.
    """
    scratch = state.scratch
    for i in range(state.length[ORDERED]):
        group = scratch.order[i]
        left = _note_left(layout, state, group, now, least)
        scratch.weight[group] = scratch.fair[group] / left


@inlined
def omcoflow(layout: Layout, state: State, now: float, least: float) -> None:
    """``omcoflow`` and ``omcoflow_frozen``: every port divided by weight.

    A flow gets the smallest of its shares; what others leave is not handed on.
    """
    scratch = state.scratch
    weigh_by_finish(layout, state, now, least)
    for port in range(scratch.load.size):
        scratch.load[port] = 0.0
    for i in range(state.length[ORDERED]):
        group = scratch.order[i]
        for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
            scratch.load[layout.hop[j]] += scratch.weight[group]
    for i in range(state.length[ORDERED]):
        group, rate = scratch.order[i], math.inf
        for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
            port = layout.hop[j]
            share = scratch.weight[group] / scratch.load[port]
            rate = min(rate, state.capacity[port] * share)
        set_rate(layout, state, group, rate, now)


@inlined
def _set_gamma(
    layout: Layout, state: State, coflow: int, now: float, least: float
) -> None:
    """Set ``scratch.gamma``: the time of the coflow's fullest port for it alone.

    It is what it was as long as the coflow is the same and nothing is sent.
    """
    scratch = state.scratch
    known = scratch.gamma[coflow] >= 0.0
    group = coflow
    while group >= 0:
        known = known and state.rate[group] == 0.0
        group = scratch.next_member[group]
    if known:
        return
    group = coflow
    while group >= 0:
        _note_left(layout, state, group, now, least)
        group = scratch.next_member[group]
    _count_flows(layout, state, coflow)
    scratch.gamma[coflow] = 0.0
    group = coflow
    while group >= 0:
        for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
            port = layout.hop[i]
            time = scratch.load[port] / state.capacity[port]
            scratch.gamma[coflow] = max(scratch.gamma[coflow], time)
        group = scratch.next_member[group]


@inlined
def _set_gammas(layout: Layout, state: State, now: float, least: float) -> None:
    for i in range(state.length[ORDERED]):
        group = state.scratch.order[i]
        if state.scratch.coflow[group] == group:
            _set_gamma(layout, state, group, now, least)


@inlined
def weigh_by_bottleneck(layout: Layout, state: State, now: float) -> None:
    """``omcoflow_gamma``, weighted max-min: a coflow weighs 1 / gamma.

    Within it, MADD: rates in proportion to what is left, so all flows end together.
    """
    scratch = state.scratch
    _set_gammas(layout, state, now, LEAST_LEFT)
    for i in range(state.length[ORDERED]):
        group = scratch.order[i]
        gamma = scratch.gamma[scratch.coflow[group]]
        scratch.weight[group] = scratch.left[group] / gamma**2


@inlined
def _is_blocked(layout: Layout, state: State, coflow: int) -> bool:
    """Return True where ``coflow`` needs a port on which nothing is left."""
    group = coflow
    while group >= 0:
        for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
            port = layout.hop[i]
            if state.scratch.residual[port] <= CRUMB * state.capacity[port]:
                return True
        group = state.scratch.next_member[group]
    return False


@inlined
def _allocate_minimum(layout: Layout, state: State, coflow: int) -> None:
    """MADD: let all flows of ``coflow`` end together, as soon as the rest allows."""
    scratch = state.scratch
    _count_flows(layout, state, coflow)
    slowest = 0.0
    group = coflow
    while group >= 0:
        for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
            port = layout.hop[i]
            slowest = max(slowest, scratch.load[port] / scratch.residual[port])
        group = scratch.next_member[group]
    group = coflow
    while group >= 0:
        scratch.rate[group] = scratch.left[group] / slowest
        take(layout, state, group, scratch.rate[group])
        group = scratch.next_member[group]


@inlined
def smallest_bottleneck_first(layout: Layout, state: State, now: float) -> None:
    """``sebf_madd``: coflows by gamma, MADD within, the rest to flows in that order."""
    scratch = state.scratch
    _set_gammas(layout, state, now, 0.0)
    for i in range(state.length[ORDERED]):
        group = scratch.order[i]
        scratch.key[group] = coarse(scratch.gamma[scratch.coflow[group]])
        scratch.rate[group] = 0.0
    active = sort_flows(layout, state)
    last = -1
    for i in range(active):
        coflow = scratch.coflow[scratch.order[i]]
        if coflow != last and not _is_blocked(layout, state, coflow):
            _allocate_minimum(layout, state, coflow)
        last = coflow
    fill_in_order(layout, state, active, now)
