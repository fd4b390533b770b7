"""From a policy's code to the rates of all active flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from emu.scheduling.compiled import inlined
from emu.scheduling.fluid import set_rate
from emu.scheduling.sharing import fill_up, share_equally
from emu.scheduling.state import DIRTY, State

if TYPE_CHECKING:
    from emu.scheduling.layout import Layout

OES: Final = 0
MAXMIN: Final = 1


@inlined
def _allocate(layout: Layout, state: State, now: float) -> None:
    """Compute the rate of every group from scratch, and set it."""
    scratch = state.scratch
    for port in range(layout.capacity.size):
        scratch.residual[port] = layout.capacity[port]
    for group in range(state.active.size):
        scratch.rate[group] = 0.0
        scratch.weight[group] = 1.0
    fill_up(layout, state)
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
    elif state.length[DIRTY] > 0:
        _allocate(layout, state, now)
    for i in range(state.length[DIRTY]):
        state.is_dirty[state.dirty[i]] = False
    state.length[DIRTY] = 0
