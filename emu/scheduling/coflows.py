"""Rates by coflow: the active flows to one iteration of one task.

OMCoflow (Tan et al., ToN 27(5) 2019) as section VI-B of the DGTP paper describes it:
rates within a coflow inversely proportional to the predicted finish time of the flow,
supposing that its coflow is alone. Which formula that means is our reading; the
variants are ours as well. SEBF and MADD are Varys' (SIGCOMM 2014).
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
from emu.scheduling.state import ORDERED, State

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Layout

#: Where a finish is predicted, a flow counts at least this share of its volume as left:
#: the last bytes would get all the weight.
LEAST_LEFT = 0.01
#: The whole volume counts, as when the flow began.
WHOLE = 1.0


@inlined
def _left(layout: Layout, state: State, group: int, now: float, least: float) -> float:
    """Return what is left of the flow of ``group``, at least a share of its volume."""
    left = remaining(layout, state, group, now)
    return float(max(left, least * volume(layout, state, group)))


@inlined
def find_coflows(layout: Layout, state: State) -> int:
    """Sort the active flows into ``scratch.coflow``; return the number of coflows."""
    scratch = state.scratch
    coflows = members = 0
    for i in range(state.length[ORDERED]):
        scratch.coflow[state.scratch.order[i]] = -1
    for i in range(state.length[ORDERED]):
        first = state.scratch.order[i]
        if scratch.coflow[first] >= 0:
            continue
        scratch.member_start[coflows] = members
        task = layout.destination[flow_edge(layout, state, first)]
        for j in range(layout.in_start[task], layout.in_start[task + 1]):
            group = layout.group[layout.in_edge[j]]
            if group < 0 or state.active[group] == 0:
                continue
            if state.scratch.turn[group] == state.scratch.turn[first]:
                scratch.coflow[group] = coflows
                scratch.member[members] = group
                members += 1
        coflows += 1
    scratch.member_start[coflows] = members
    return coflows


@inlined
def _count_coflow(
    layout: Layout, state: State, coflow: int, now: float, least: float
) -> None:
    """Set ``scratch.flows`` and ``scratch.load`` (bytes) on the ports of ``coflow``."""
    scratch = state.scratch
    first, end = scratch.member_start[coflow], scratch.member_start[coflow + 1]
    for i in range(first, end):
        group = scratch.member[i]
        for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
            scratch.flows[layout.hop[j]] = 0
            scratch.load[layout.hop[j]] = 0.0
    for i in range(first, end):
        group = scratch.member[i]
        left = _left(layout, state, group, now, least)
        for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
            scratch.flows[layout.hop[j]] += 1
            scratch.load[layout.hop[j]] += left


@inlined
def weigh_by_finish(layout: Layout, state: State, now: float, least: float) -> None:
    """Weigh every flow by 1 / its finish time if its coflow were alone.

    ``omcoflow_wc`` is weighted max-min with these weights.
    """
    scratch = state.scratch
    for coflow in range(find_coflows(layout, state)):
        _count_coflow(layout, state, coflow, now, least)
        for i in range(scratch.member_start[coflow], scratch.member_start[coflow + 1]):
            group = scratch.member[i]
            rate = math.inf
            for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
                port = layout.hop[j]
                rate = min(rate, state.capacity[port] / scratch.flows[port])
            scratch.weight[group] = rate / _left(layout, state, group, now, least)


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
        group = state.scratch.order[i]
        for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
            scratch.load[layout.hop[j]] += scratch.weight[group]
    for i in range(state.length[ORDERED]):
        group, rate = state.scratch.order[i], math.inf
        for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
            port = layout.hop[j]
            share = scratch.weight[group] / scratch.load[port]
            rate = min(rate, state.capacity[port] * share)
        scratch.rate[group] = rate


@inlined
def _set_gamma(
    layout: Layout, state: State, coflow: int, now: float, least: float
) -> None:
    """Set ``scratch.gamma``: the time of the coflow's fullest port for it alone."""
    scratch = state.scratch
    _count_coflow(layout, state, coflow, now, least)
    scratch.gamma[coflow] = 0.0
    for i in range(scratch.member_start[coflow], scratch.member_start[coflow + 1]):
        group = scratch.member[i]
        for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
            port = layout.hop[j]
            time = scratch.load[port] / state.capacity[port]
            scratch.gamma[coflow] = max(scratch.gamma[coflow], time)


@inlined
def weigh_by_bottleneck(layout: Layout, state: State, now: float) -> None:
    """``omcoflow_gamma``, weighted max-min: a coflow weighs 1 / gamma.

    Within it, MADD: rates in proportion to what is left, so all flows end together.
    """
    scratch = state.scratch
    for coflow in range(find_coflows(layout, state)):
        _set_gamma(layout, state, coflow, now, LEAST_LEFT)
        for i in range(scratch.member_start[coflow], scratch.member_start[coflow + 1]):
            group = scratch.member[i]
            left = _left(layout, state, group, now, LEAST_LEFT)
            scratch.weight[group] = left / scratch.gamma[coflow] ** 2


@inlined
def _allocate_minimum(layout: Layout, state: State, coflow: int, now: float) -> None:
    """MADD: let all flows of ``coflow`` end together, as soon as the rest allows.

    A coflow that needs a port on which nothing is left gets nothing.
    """
    scratch = state.scratch
    _count_coflow(layout, state, coflow, now, 0.0)
    slowest = 0.0
    for i in range(scratch.member_start[coflow], scratch.member_start[coflow + 1]):
        group = scratch.member[i]
        for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
            port = layout.hop[j]
            if scratch.residual[port] <= CRUMB * state.capacity[port]:
                return
            slowest = max(slowest, scratch.load[port] / scratch.residual[port])
    for i in range(scratch.member_start[coflow], scratch.member_start[coflow + 1]):
        group = scratch.member[i]
        take(layout, state, group, remaining(layout, state, group, now) / slowest)


@inlined
def smallest_bottleneck_first(layout: Layout, state: State, now: float) -> None:
    """``sebf_madd``: coflows by gamma, MADD within, the rest to flows in that order."""
    scratch = state.scratch
    for coflow in range(find_coflows(layout, state)):
        _set_gamma(layout, state, coflow, now, 0.0)
    for i in range(state.length[ORDERED]):
        group = state.scratch.order[i]
        scratch.key[group] = coarse(scratch.gamma[scratch.coflow[group]])
    active = sort_flows(layout, state)
    last = -1
    for i in range(active):
        coflow = scratch.coflow[state.scratch.order[i]]
        if coflow != last:
            _allocate_minimum(layout, state, coflow, now)
            last = coflow
    fill_in_order(layout, state, active)
