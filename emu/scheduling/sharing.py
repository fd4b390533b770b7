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

from emu.scheduling.compiled import apart, inlined
from emu.scheduling.priorities import flow_edge, note_flow, precedes
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


# Rates by fair sharing where every port is divided among jobs first.
#
# Counts per port and job stand at ``port * Layout.jobs + job``. Everything is counted
# anew at every event: few clusters run several jobs at once, and those few jobs.

#: Levels that are apart by less, as a share, are one.
_SAME = 1e-12


@inlined
def _count_flows(layout: Layout, state: State) -> None:
    """Count the active flows of every job over every port, and the jobs there."""
    scratch = state.scratch
    for place in range(scratch.job_flows.size):
        scratch.job_flows[place] = 0
        scratch.job_used[place] = 0.0
    for port in range(scratch.flows.size):
        scratch.flows[port] = 0
    for group in range(state.active.size):
        if state.active[group] == 0:
            continue
        for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
            port = layout.hop[i]
            place = port * layout.jobs + layout.owner[group]
            if scratch.job_flows[place] == 0:
                scratch.flows[port] += 1
            scratch.job_flows[place] += state.active[group]


@apart
def share_equally_by_job(layout: Layout, state: State, now: float) -> None:
    """Give every flow the least of its job's equal shares of the ports it crosses."""
    _count_flows(layout, state)
    scratch = state.scratch
    for group in range(state.active.size):
        if state.active[group] == 0:
            continue
        rate = math.inf
        for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
            port = layout.hop[i]
            flows = scratch.job_flows[port * layout.jobs + layout.owner[group]]
            rate = min(rate, state.capacity[port] / (scratch.flows[port] * flows))
        set_rate(layout, state, group, rate, now)


@inlined
def _next_level(state: State, jobs: int) -> float:
    """Note what every job's flows could rise to at every port; return the least."""
    scratch, least = state.scratch, math.inf
    for place in range(scratch.job_flows.size):
        scratch.job_level[place] = math.inf
        if scratch.job_flows[place] > 0:
            port = place // jobs
            part = scratch.residual[port] / scratch.flows[port]
            left = max(part - scratch.job_used[place], 0.0)
            scratch.job_level[place] = left / scratch.job_flows[place]
            least = min(least, scratch.job_level[place])
    return least


@apart
def share_max_min_by_job(layout: Layout, state: State, now: float) -> None:
    """Raise all flows until their job's part of a port is full; then freeze them there.

    The part is equal among the jobs with flows that rise still; what the others have
    not used is theirs. ``scratch.residual`` is a port without what the others use.
    Parts that are full at one level freeze together: one of them first would leave more
    to the other, and a rule must not depend on the order of ports.
    """
    _count_flows(layout, state)
    scratch, jobs = state.scratch, layout.jobs
    for port in range(state.capacity.size):
        scratch.residual[port] = state.capacity[port]
    for group in range(state.active.size):
        scratch.frozen[group] = state.active[group] == 0
    while True:
        level = _next_level(state, jobs)
        if level == math.inf:
            return
        for place in range(scratch.job_level.size):
            if scratch.job_level[place] > level * (1.0 + _SAME):
                continue
            port = place // jobs
            for i in range(layout.port_start[port], layout.port_start[port + 1]):
                group = layout.port_group[i]
                if not scratch.frozen[group] and layout.owner[group] == place % jobs:
                    _freeze_of_job(layout, state, group, level, now)


@inlined
def _freeze_of_job(
    layout: Layout, state: State, group: int, rate: float, now: float
) -> None:
    scratch, count = state.scratch, state.active[group]
    scratch.frozen[group] = True
    set_rate(layout, state, group, rate, now)
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        port = layout.hop[i]
        place = port * layout.jobs + layout.owner[group]
        scratch.job_flows[place] -= count
        scratch.job_used[place] += count * rate
        if scratch.job_flows[place] == 0:
            scratch.flows[port] -= 1
            used = scratch.job_used[place]
            scratch.residual[port] = max(scratch.residual[port] - used, 0.0)


# Rates of ``fifo``: every machine sends one flow at a time, first come first served.
#
# First is what its source produced first. An edge that has more to send than its
# active flow produced that later, so no pending flow is ahead of the active ones. The
# heads of the queues share the ports that they meet at max-min fairly.


@inlined
def _first_in_line(layout: Layout, state: State, port: int) -> int:
    """Return the group whose flow comes first of those that queue at ``port``."""
    first = -1
    for i in range(layout.port_start[port], layout.port_start[port + 1]):
        group = layout.port_group[i]
        if state.active[group] == 0 or layout.hop[layout.hop_start[group]] != port:
            continue
        if first < 0 or precedes(layout, state, group, first):
            first = group
    return first


@inlined
def _disturb(layout: Layout, state: State, group: int) -> None:
    """Empty the ports of ``group``: what they give is given anew."""
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        port = layout.hop[i]
        state.scratch.residual[port] = state.capacity[port]


@inlined
def _is_disturbed(layout: Layout, state: State, group: int) -> bool:
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        if state.scratch.residual[layout.hop[i]] > 0.0:
            return True
    return False


@inlined
def _change_heads(layout: Layout, state: State, now: float) -> None:
    """Find the heads of the queues where flows came or went."""
    scratch = state.scratch
    for i in range(state.length[TOUCHED]):
        group = state.touched[i]
        if state.active[group] > 0:
            edge = flow_edge(layout, state, group)
            note_flow(layout, state, group)
            scratch.key[group] = state.log.flow_ready[edge, state.delivered[edge]]
            set_rate(layout, state, group, 0.0, now)
    for i in range(state.length[TOUCHED]):
        port = layout.hop[layout.hop_start[state.touched[i]]]
        head = _first_in_line(layout, state, port)
        before = scratch.head[port]
        if before >= 0 and head != before:
            _disturb(layout, state, before)
            if state.active[before] > 0:
                set_rate(layout, state, before, 0.0, now)
        if head >= 0 and (head != before or state.is_touched[head]):
            _disturb(layout, state, head)
        scratch.head[port] = head


@inlined
def serve_heads(layout: Layout, state: State, now: float) -> None:
    """Share the ports anew among the heads that may feel what came and went.

    Others keep their rates: no chain of shared ports leads to them.
    """
    scratch = state.scratch
    for port in range(scratch.residual.size):
        scratch.residual[port] = 0.0
    _change_heads(layout, state, now)
    state.length[ORDERED], before = 0, -1
    while state.length[ORDERED] > before:
        before = state.length[ORDERED]
        for port in range(scratch.head.size):
            group = scratch.head[port]
            if group < 0 or scratch.is_ordered[group]:
                continue
            if _is_disturbed(layout, state, group):
                _disturb(layout, state, group)
                scratch.is_ordered[group] = True
                scratch.weight[group] = 1.0
                scratch.rate[group] = 0.0
                scratch.order[state.length[ORDERED]] = group
                state.length[ORDERED] += 1
    fill_up(layout, state)
    for i in range(state.length[ORDERED]):
        group = scratch.order[i]
        scratch.is_ordered[group] = False
        set_rate(layout, state, group, scratch.rate[group], now)
