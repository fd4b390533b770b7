"""From a policy's code to the rates of all active flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from emu.scheduling import coflows, priorities
from emu.scheduling.compiled import compiled, hot, inlined
from emu.scheduling.fluid import set_rate
from emu.scheduling.foresight import longest_paths, means
from emu.scheduling.sharing import fill_up, share_equally, share_max_min
from emu.scheduling.state import DIRTY, State

if TYPE_CHECKING:
    from emu.problem import Job, Profile
    from emu.scheduling.layout import Floats, Layout

OES: Final = 0
MAXMIN: Final = 1
OES_CP: Final = 2
WEIGHTED_MAXMIN: Final = 3
MRTF: Final = 4
MRTF_EXCLUSIVE: Final = 5
OMCOFLOW: Final = 6
OMCOFLOW_FROZEN: Final = 7
OMCOFLOW_WC: Final = 8
OMCOFLOW_GAMMA: Final = 9
SEBF_MADD: Final = 10

#: Slack below this share of the longest remaining path counts as this much.
LEAST_SLACK = 0.01


@compiled
def expectation(layout: Layout, times: Floats, volumes: Floats) -> Floats:
    """Return `State.after` for runs like this one; empty if the policy does not look.

    Parameters
    ----------
    times, volumes
        Of iterations that were seen, as in `Profile`; only their means are used.
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
    for group in range(state.active.size):
        if state.active[group] > 0:
            path = priorities.remaining_path(layout, state, group, now)
            scratch.key[group] = path
            longest = max(longest, path)
    for group in range(state.active.size):
        if state.active[group] > 0:
            slack = max(longest - scratch.key[group], LEAST_SLACK * longest)
            scratch.weight[group] = 1.0 / slack


@hot
def _allocate_by_flow(layout: Layout, state: State, now: float) -> None:
    """Compute ``scratch.rate`` under a policy that tells all flows apart."""
    policy = layout.policy
    if policy == WEIGHTED_MAXMIN:
        _weigh_by_slack(layout, state, now)
        fill_up(layout, state)
    elif policy == OES_CP:
        priorities.floor_and_critical_path(layout, state, now)
    elif policy == MRTF:
        priorities.shortest_remaining(layout, state, now)
    elif policy == MRTF_EXCLUSIVE:
        priorities.shortest_remaining_alone(layout, state, now)
    elif policy == OMCOFLOW_WC:
        coflows.omcoflow_conserving(layout, state, now)
    elif policy == OMCOFLOW_GAMMA:
        coflows.omcoflow_by_bottleneck(layout, state, now)
    elif policy == SEBF_MADD:
        coflows.smallest_bottleneck_first(layout, state, now)
    else:
        coflows.omcoflow(layout, state, now, policy == OMCOFLOW_FROZEN)


@inlined
def _allocate(layout: Layout, state: State, now: float) -> None:
    """Compute the rate of every group from scratch, and set it."""
    scratch = state.scratch
    for port in range(layout.capacity.size):
        scratch.residual[port] = layout.capacity[port]
    for group in range(state.active.size):
        scratch.rate[group] = 0.0
        scratch.weight[group] = 1.0
    _allocate_by_flow(layout, state, now)
    for group in range(state.active.size):
        if state.active[group] > 0:
            set_rate(layout, state, group, scratch.rate[group], now)


@inlined
def set_rates(layout: Layout, state: State, now: float) -> None:
    """Give every active flow its rate from ``now`` on.

    Nothing happens where no flow came or went since the last call.
    """
    if layout.policy == OES:
        share_equally(layout, state, now)
    elif layout.policy == MAXMIN:
        if state.length[DIRTY] > 0:
            share_max_min(layout, state, now)
    elif state.length[DIRTY] > 0:
        _allocate(layout, state, now)
    for i in range(state.length[DIRTY]):
        state.is_dirty[state.dirty[i]] = False
    state.length[DIRTY] = 0
