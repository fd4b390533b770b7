"""Rates by fair sharing: the paper's equal shares, and max-min by weight.

``oes``, Algorithm 1 of the paper: a flow gets the smallest, over its hops, of capacity
divided by the number of active flows there. Idle capacity stays idle.

Max-min by progressive filling: the rates of all flows rise together, in proportion to
their weights; where a port is full its flows are frozen. With equal weights, see
`max_min`, every flow gets at least its ``oes`` rate: its bottleneck port is full, no
flow there has more, so it has capacity / flows or more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emu.scheduling.compiled import inlined
from emu.scheduling.service_clocks import set_rate
from emu.scheduling.state import ORDERED, TOUCHED, State

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Layout
    from emu.scheduling.state import Scratch


@inlined
def _equal_share(layout: Layout, state: State, group: int, now: float) -> None:
    rate = math.inf
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        rate = min(rate, state.scratch.share[layout.hop[i]])
    set_rate(layout, state, group, rate, now)


@inlined
def share_equally(layout: Layout, state: State, now: float) -> None:
    """Set the ``oes`` rate of every group that crosses a port whose share changed.

    Often none has: where a flow ends, the next one of its edge tends to be ready.
    """
    changed = 0
    for i in range(state.length[TOUCHED]):
        group = state.touched[i]
        for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
            port = layout.hop[j]
            share = math.inf
            if state.degree[port] > 0:
                share = state.capacity[port] / state.degree[port]
            if share != state.scratch.share[port]:
                state.scratch.share[port] = share
                state.scratch.flows[changed] = port
                changed += 1
    for i in range(changed):
        port = state.scratch.flows[i]
        for j in range(layout.port_start[port], layout.port_start[port + 1]):
            group = layout.port_group[j]
            if state.active[group] > 0:
                _equal_share(layout, state, group, now)
    for i in range(state.length[TOUCHED]):
        if state.active[state.touched[i]] > 0:
            _equal_share(layout, state, state.touched[i], now)


@inlined
def _fullest_port(scratch: Scratch) -> int:
    """Return the port that progressive filling fills next, -1 when none is left."""
    fullest, level = -1, math.inf
    for port in range(scratch.residual.size):
        if (
            scratch.flows[port] > 0
            and scratch.residual[port] < level * scratch.load[port]
        ):
            level = scratch.residual[port] / scratch.load[port]
            fullest = port
    return fullest


@inlined
def _weight_of(layout: Layout, state: State, port: int) -> float:
    """Return the weight of the flows over ``port`` that may still rise.

    Weights may be as 1 to 1e9: what is left of a sum after most of it was subtracted is
    rounding, and shares by it exceeded a port by 3e-9.
    """
    weight = 0.0
    for i in range(layout.port_start[port], layout.port_start[port + 1]):
        group = layout.port_group[i]
        if not state.scratch.frozen[group]:
            weight += state.active[group] * state.scratch.weight[group]
    return weight


@inlined
def _freeze(layout: Layout, state: State, group: int, level: float) -> None:
    scratch, count = state.scratch, state.active[group]
    scratch.frozen[group] = True
    weight = count * scratch.weight[group]
    scratch.rate[group] += level * scratch.weight[group]
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        port = layout.hop[i]
        scratch.flows[port] -= count
        scratch.residual[port] = max(scratch.residual[port] - level * weight, 0.0)
        scratch.load[port] -= weight
        if scratch.flows[port] > 0 and scratch.load[port] < weight:
            scratch.load[port] = _weight_of(layout, state, port)


@inlined
def fill_up(layout: Layout, state: State) -> None:
    """Share ``scratch.residual`` max-min fairly by ``scratch.weight``.

    Flows of weight 0 get nothing. What flows get is added to ``scratch.rate`` and
    subtracted from the residual.
    """
    scratch = state.scratch
    for port in range(scratch.residual.size):
        scratch.flows[port] = 0
        scratch.load[port] = 0.0
    for i in range(state.length[ORDERED]):
        group = state.scratch.order[i]
        if scratch.weight[group] == 0.0:
            continue
        scratch.frozen[group] = False
        for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
            scratch.flows[layout.hop[j]] += 1
            scratch.load[layout.hop[j]] += scratch.weight[group]
    while True:
        port = _fullest_port(scratch)
        if port < 0:
            return
        level = scratch.residual[port] / scratch.load[port]
        for i in range(layout.port_start[port], layout.port_start[port + 1]):
            group = layout.port_group[i]
            if not scratch.frozen[group]:
                _freeze(layout, state, group, level)
