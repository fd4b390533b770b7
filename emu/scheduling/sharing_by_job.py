"""Rates by fair sharing where every port is divided among jobs first.

Counts per port and job stand at ``port * Layout.jobs + job``. Everything is
counted anew at every event: few clusters run several jobs at once, and those few jobs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emu.scheduling.compiled import apart, inlined
from emu.scheduling.service_clocks import set_rate

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Layout
    from emu.scheduling.state import State


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
                    _freeze(layout, state, group, level, now)


@inlined
def _freeze(layout: Layout, state: State, group: int, rate: float, now: float) -> None:
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
