"""Bytes as a fluid: service clocks of groups and the ends that follow from them.

All flows of a group have one rate, so one clock per group counts the bytes served to
each of them, and a flow ends when the clock reaches its mark. An event then costs one
clock per group whose rate changes, not one per flow.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emu.scheduling import heap
from emu.scheduling.compiled import inlined
from emu.scheduling.state import DIRTY, State

if TYPE_CHECKING:
    from emu.scheduling.layout import Layout


@inlined
def advance(state: State, group: int, now: float) -> None:
    """Bring the clock of ``group`` to ``now``."""
    if now > state.since[group]:
        state.service[group] += state.rate[group] * (now - state.since[group])
    state.since[group] = now


@inlined
def _mark_dirty(layout: Layout, state: State, group: int, flows: int) -> None:
    """Count ``flows`` more (or fewer) active flows of ``group`` on its ports."""
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        port = layout.hop[i]
        state.degree[port] += flows
        if not state.is_dirty[port]:
            state.is_dirty[port] = True
            state.dirty[state.length[DIRTY]] = port
            state.length[DIRTY] += 1


@inlined
def open_flow(
    layout: Layout, state: State, edge: int, volume: float, now: float
) -> None:
    """Make a flow of ``edge`` active; its rate is 0 until rates are computed."""
    group = layout.group[edge]
    if state.active[group] == 0:
        state.service[group] = 0.0
        state.since[group] = now
        state.rate[group] = 0.0
    else:
        advance(state, group, now)
    state.base[edge] = state.service[group]
    heap.push(
        state.mark,
        state.mark_edge,
        layout.slot[group],
        state.active[group],
        state.service[group] + volume,
        edge,
    )
    state.active[group] += 1
    state.finish[group] = -1.0
    _mark_dirty(layout, state, group, 1)


@inlined
def close_flow(
    layout: Layout, state: State, group: int, place: int, now: float
) -> None:
    """Take the flow at ``place`` of the heap of ``group`` out of the network."""
    advance(state, group, now)
    heap.remove(
        state.mark, state.mark_edge, layout.slot[group], state.active[group], place
    )
    state.active[group] -= 1
    if state.active[group] == 0:
        state.rate[group] = 0.0
        state.finish[group] = math.inf
    else:
        state.finish[group] = -1.0
    _mark_dirty(layout, state, group, -1)


@inlined
def set_rate(layout: Layout, state: State, group: int, rate: float, now: float) -> None:
    """Give the flows of ``group``, which has some, ``rate`` from ``now`` on."""
    if rate == state.rate[group] and state.finish[group] >= 0.0:
        return
    advance(state, group, now)
    state.rate[group] = rate
    left = state.mark[layout.slot[group]] - state.service[group]
    if rate > 0.0:
        state.finish[group] = now + max(left, 0.0) / rate
    else:
        state.finish[group] = math.inf
