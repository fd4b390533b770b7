"""Fluid lines: which flows serve differently from an instant on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.scheduling.compiled import compiled, inlined

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Floats, Ints, Layout
    from emu.scheduling.state import State


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
