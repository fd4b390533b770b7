"""Rates of ``fifo``: every machine sends one flow at a time, first come first served.

First is what its source produced first. An edge that has more to send than its active
flow produced that later, so no pending flow is ahead of the active ones. The heads of
the queues share the ports that they meet at max-min fairly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.scheduling.compiled import inlined
from emu.scheduling.priorities import flow_edge, note_flow, precedes
from emu.scheduling.service_clocks import set_rate
from emu.scheduling.sharing import fill_up
from emu.scheduling.state import ORDERED, TOUCHED, State

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Layout


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
