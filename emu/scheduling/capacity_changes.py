"""Capacities that change at stated times: events like any other.

A change counts after the ends of its instant and before rates are set: what ended then
had the old capacity, what goes on or begins gets its rate from the new one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emu.scheduling.compiled import apart, inlined
from emu.scheduling.max_min import doubt_capacity
from emu.scheduling.policies import MAXMIN
from emu.scheduling.service_clocks import touch
from emu.scheduling.state import CHANGED, State

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Layout


@inlined
def next_change(layout: Layout, state: State) -> float:
    """Return when a capacity changes next, infinity if none does any more."""
    place = state.length[CHANGED]
    if place == layout.changes.shape[0]:
        return math.inf
    return layout.changes[place, 0]  # type: ignore[no-any-return]


@inlined
def change_capacities(layout: Layout, state: State, instant: float) -> None:
    """Let the changes that are due by ``instant`` hold."""
    if layout.changes.size > 0 and next_change(layout, state) <= instant:
        _change(layout, state, instant)


@apart
def _change(layout: Layout, state: State, instant: float) -> None:
    """Make the changes that are due by ``instant``.

    Groups with flows over such a port count as touched.
    """
    place = state.length[CHANGED]
    while place < layout.changes.shape[0] and layout.changes[place, 0] <= instant:
        port = int(layout.changes[place, 1])
        more = layout.changes[place, 2] - state.capacity[port]
        state.capacity[port] = layout.changes[place, 2]
        if layout.policy == MAXMIN:
            doubt_capacity(state, port, more)
        for i in range(layout.port_start[port], layout.port_start[port + 1]):
            group = layout.port_group[i]
            if state.active[group] > 0:
                touch(state, group)
        place += 1
    state.length[CHANGED] = place
