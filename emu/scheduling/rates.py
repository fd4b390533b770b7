"""From a policy's code to the rates of all active flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.scheduling import coflows, priorities
from emu.scheduling.compiled import apart, inlined, spliced
from emu.scheduling.max_min import share_max_min
from emu.scheduling.policies import (
    FIFO,
    MAXMIN,
    MAXMIN_BY_JOB,
    MRTF,
    MRTF_EXCLUSIVE,
    OES,
    OES_BY_JOB,
    OES_CP,
    OMCOFLOW,
    OMCOFLOW_FROZEN,
    OMCOFLOW_GAMMA,
    OMCOFLOW_WC,
    SEBF_MADD,
    WEIGHTED_MAXMIN,
)
from emu.scheduling.priorities import longest_paths, means
from emu.scheduling.service_clocks import set_rate
from emu.scheduling.sharing import (
    fill_up,
    serve_heads,
    share_equally,
    share_equally_by_job,
    share_max_min_by_job,
)
from emu.scheduling.shortest_remaining import serve_shortest
from emu.scheduling.state import ORDERED, TOUCHED, State

if TYPE_CHECKING:
    from emu.problem import Job, Profile
    from emu.scheduling.compiled_problem import Floats, Layout

#: Slack below this share of the longest remaining path counts as this much.
LEAST_SLACK = 0.01


@spliced
def expectation(layout: Layout, times: Floats, volumes: Floats) -> Floats:
    """Return `State.after` for runs like this one; empty if the policy does not look.

    Parameters
    ----------
    times, volumes
        Those of iterations that were seen, as in `Profile`; only their means are used.
    """
    if layout.policy in (OES_CP, WEIGHTED_MAXMIN):
        return longest_paths(layout, means(times), means(volumes))[1]
    return np.zeros((0, 0))


def check_rows(job: Job, profile: Profile) -> None:
    """Raise ValueError unless ``profile`` has a row for every task and edge."""
    rows = profile.times.shape[0], profile.volumes.shape[0]
    if rows != (len(job.tasks), len(job.edges)):
        raise ValueError(
            f"a profile of {rows[0]} tasks and {rows[1]} edges does not fit a job "
            f"of {len(job.tasks)} and {len(job.edges)}"
        )


@inlined
def _weigh_by_slack(layout: Layout, state: State, now: float) -> None:
    """Weigh every flow by 1 / slack: how much later than now its path may begin."""
    scratch = state.scratch
    longest = 0.0
    for i in range(state.length[ORDERED]):
        group = state.scratch.order[i]
        path = priorities.remaining_path(layout, state, group, now)
        scratch.key[group] = path
        longest = max(longest, path)
    for i in range(state.length[ORDERED]):
        group = state.scratch.order[i]
        slack = max(longest - scratch.key[group], LEAST_SLACK * longest)
        scratch.weight[group] = 1.0 / slack


@inlined
def _weigh(layout: Layout, state: State, now: float) -> None:
    """Weigh the flows for a policy that is max-min by weight."""
    if layout.policy == WEIGHTED_MAXMIN:
        _weigh_by_slack(layout, state, now)
    elif layout.policy == OMCOFLOW_WC:
        coflows.weigh_by_finish(layout, state, now, coflows.LEAST_LEFT)
    else:
        coflows.weigh_by_bottleneck(layout, state, now)


@inlined
def _fill_by_weight(layout: Layout, state: State, now: float) -> None:
    """Set the max-min fair rates of flows that were weighed."""
    scratch = state.scratch
    for i in range(state.length[ORDERED]):
        scratch.rate[scratch.order[i]] = 0.0
    fill_up(layout, state)
    for i in range(state.length[ORDERED]):
        group = scratch.order[i]
        set_rate(layout, state, group, scratch.rate[group], now)


@apart
def _allocate_by_flow(layout: Layout, state: State, now: float) -> None:
    """Set the rate of every flow under a policy that rates flows one by one."""
    policy, scratch = layout.policy, state.scratch
    if policy == FIFO:
        serve_heads(layout, state, now)
        return
    if policy in (MRTF, MRTF_EXCLUSIVE):
        serve_shortest(layout, state, now)
        return
    priorities.note_active(layout, state)
    for port in range(state.capacity.size):
        scratch.residual[port] = state.capacity[port]
    if OMCOFLOW <= policy <= SEBF_MADD:
        coflows.chain_coflows(layout, state)
    if policy in (WEIGHTED_MAXMIN, OMCOFLOW_WC, OMCOFLOW_GAMMA):
        _weigh(layout, state, now)
        _fill_by_weight(layout, state, now)
    elif policy == OES_CP:
        priorities.floor_and_critical_path(layout, state, now)
    elif policy == SEBF_MADD:
        coflows.smallest_bottleneck_first(layout, state, now)
    else:
        frozen = policy == OMCOFLOW_FROZEN
        least = coflows.WHOLE if frozen else coflows.LEAST_LEFT
        coflows.omcoflow(layout, state, now, least)


@spliced
def set_rates(layout: Layout, state: State, now: float) -> None:
    """Give every active flow its rate from ``now`` on.

    Nothing happens where no flow came or went since the last call, and no capacity
    changed that an active one crosses.
    """
    if state.length[TOUCHED] == 0:
        return
    if layout.policy == OES:
        share_equally(layout, state, now)
    elif layout.policy == MAXMIN:
        share_max_min(layout, state, now)
    elif layout.policy == OES_BY_JOB:
        share_equally_by_job(layout, state, now)
    elif layout.policy == MAXMIN_BY_JOB:
        share_max_min_by_job(layout, state, now)
    else:
        _allocate_by_flow(layout, state, now)
    for i in range(state.length[TOUCHED]):
        state.is_touched[state.touched[i]] = False
    state.length[TOUCHED] = 0
