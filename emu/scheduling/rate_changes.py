"""Fluid lines: which flows serve differently from an instant on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.scheduling.compiled import apart, compiled, inlined
from emu.scheduling.max_min import mark_dirty
from emu.scheduling.policies import MAXMIN
from emu.scheduling.service_clocks import touch
from emu.scheduling.state import CHANGED, State

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Floats, Ints, Layout


class RateChanges(NamedTuple):
    """The lines as last seen, per edge, and what differs since.

    Parameters
    ----------
    iteration, rate
        Those of the flow whose line was last seen; -1 and 0 before the first.
    edge, served
        The edges whose line changed, and the bytes served by now; as many as
        `changed_segments` returns.
    """

    iteration: Ints
    rate: Floats
    edge: Ints
    served: Floats


@compiled
def new_rate_changes(edges: int) -> RateChanges:
    """Return the board before anything was sent."""
    return RateChanges(
        np.full(edges, -1, np.int64),
        np.zeros(edges),
        np.empty(edges, np.int64),
        np.empty(edges),
    )


@inlined
def changed_segments(
    layout: Layout, state: State, board: RateChanges, now: float
) -> int:
    """Bring ``board`` up to date; return how many lines changed."""
    lines = 0
    for group in range(state.active.size):
        first, rate = layout.slot[group], state.rate[group]
        service = state.service[group] + rate * (now - state.since[group])
        for place in range(first, first + state.active[group]):
            edge = state.mark_edge[place]
            if (
                board.iteration[edge] == state.delivered[edge]
                and board.rate[edge] == rate
            ):
                continue
            board.edge[lines] = edge
            board.served[lines] = service - state.base[edge]
            board.iteration[edge] = state.delivered[edge]
            board.rate[edge] = rate
            lines += 1
    return lines


# Capacities that change at stated times: events like any other.
#
# A change counts after the ends of its instant and before rates are set: what ended
# then had the old capacity, what goes on or begins gets its rate from the new one.


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
            mark_dirty(state, port, more)
        for i in range(layout.port_start[port], layout.port_start[port + 1]):
            group = layout.port_group[i]
            if state.active[group] > 0:
                touch(state, group)
        place += 1
    state.length[CHANGED] = place
