"""Rates of ``mrtf`` and ``mrtf_exclusive``: least remaining time first.

A flow gets what those before it leave on its ports. Every port therefore keeps its
flows in their order, and an event computes anew what is behind a flow that came, went,
or overtook another. Only a flow that is served overtakes: what waits has left what it
had. Of 686 flows at once 92 are served, and an event changes 4 rates.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emu.scheduling.compiled import inlined
from emu.scheduling.policies import MRTF_EXCLUSIVE
from emu.scheduling.priorities import CRUMB, coarse, note_flow, precedes, remaining
from emu.scheduling.service_clocks import set_rate
from emu.scheduling.state import ORDERED, SUSPECTS, TOUCHED, State

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Layout


@inlined
def _place(layout: Layout, state: State, port: int, group: int) -> int:
    """Return the place of ``group`` in the order of ``port``, behind it if nowhere."""
    place = layout.port_start[port]
    end = place + state.scratch.ranked[port]
    while place < end and state.scratch.ranking[place] != group:
        place += 1
    return int(place)


@inlined
def _suspect(layout: Layout, state: State, port: int, place: int) -> None:
    """Suspect the rates of the flows over ``port`` from ``place`` on."""
    scratch = state.scratch
    for i in range(place, layout.port_start[port] + scratch.ranked[port]):
        group = scratch.ranking[i]
        if not scratch.is_suspect[group]:
            scratch.is_suspect[group] = True
            scratch.suspect[state.length[SUSPECTS] % scratch.suspect.size] = group
            state.length[SUSPECTS] += 1


@inlined
def _sort(layout: Layout, state: State, port: int) -> None:
    """Sort the flows over ``port``; suspect all from the first that moved."""
    ranking, first = state.scratch.ranking, layout.port_start[port]
    moved = end = first + state.scratch.ranked[port]
    for i in range(first + 1, end):
        group, hole = ranking[i], i
        while hole > first and precedes(layout, state, group, ranking[hole - 1]):
            ranking[hole] = ranking[hole - 1]
            hole -= 1
        ranking[hole] = group
        if hole < i:
            moved = min(moved, hole)
    _suspect(layout, state, port, moved)


@inlined
def _leave(layout: Layout, state: State, group: int) -> None:
    """Take ``group`` out of the orders of its ports, if it stands there."""
    scratch = state.scratch
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        port = layout.hop[i]
        place = _place(layout, state, port, group)
        last = layout.port_start[port] + scratch.ranked[port] - 1
        if place > last:
            continue
        for j in range(place, last):
            scratch.ranking[j] = scratch.ranking[j + 1]
        scratch.ranked[port] -= 1
        _suspect(layout, state, port, place)


@inlined
def _join(layout: Layout, state: State, group: int) -> None:
    """Put ``group`` into the orders of its ports."""
    scratch = state.scratch
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        port = layout.hop[i]
        place = layout.port_start[port] + scratch.ranked[port]
        scratch.ranking[place] = group
        scratch.ranked[port] += 1
        _suspect(layout, state, port, place)
        _sort(layout, state, port)


@inlined
def _overtake(layout: Layout, state: State, group: int) -> None:
    """Sort the flows over the ports of ``group`` if it precedes the one before it."""
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        port = layout.hop[i]
        place = _place(layout, state, port, group)
        if place > layout.port_start[port]:
            before = state.scratch.ranking[place - 1]
            if precedes(layout, state, group, before):
                _sort(layout, state, port)


@inlined
def _set_key(layout: Layout, state: State, group: int, now: float) -> None:
    """Set the key of ``group``: what it would still need alone, seconds."""
    time = remaining(layout, state, group, now) / state.scratch.alone[group]
    state.scratch.key[group] = coarse(time)


@inlined
def _bring_up_to_date(layout: Layout, state: State, now: float) -> None:
    """Bring the order of every port up to date."""
    scratch = state.scratch
    for i in range(state.length[TOUCHED]):
        _leave(layout, state, state.touched[i])
    for i in range(state.length[ORDERED]):
        if not state.is_touched[scratch.order[i]]:
            _set_key(layout, state, scratch.order[i], now)
    for i in range(state.length[ORDERED]):
        if not state.is_touched[scratch.order[i]]:
            _overtake(layout, state, scratch.order[i])
    for i in range(state.length[TOUCHED]):
        group = state.touched[i]
        if state.active[group] > 0:
            note_flow(layout, state, group)
            _set_key(layout, state, group, now)
            scratch.rate[group] = 0.0
            _join(layout, state, group)


@inlined
def _left_for(layout: Layout, state: State, group: int) -> float:
    """Return the bandwidth that groups before ``group`` leave it, bytes per second.

    ``mrtf_exclusive`` takes whole ports only.
    """
    least = math.inf
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        port = layout.hop[i]
        left, place = state.capacity[port], layout.port_start[port]
        while left > 0.0 and state.scratch.ranking[place] != group:
            left -= state.scratch.rate[state.scratch.ranking[place]]
            if left < CRUMB * state.capacity[port]:
                left = 0.0
            place += 1
        if layout.policy == MRTF_EXCLUSIVE and left < state.capacity[port]:
            left = 0.0
        least = min(least, left)
    return least


@inlined
def _suspect_behind(layout: Layout, state: State, group: int) -> None:
    """Suspect the rates of all behind ``group`` on its ports."""
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        port = layout.hop[i]
        place = _place(layout, state, port, group)
        _suspect(layout, state, port, place + 1)


@inlined
def _set_rates(layout: Layout, state: State, now: float) -> None:
    """Set the rates of flows that came or were served, or are; keep the last."""
    scratch = state.scratch
    for i in range(state.length[TOUCHED]):
        group = state.touched[i]
        if state.active[group] > 0:
            set_rate(layout, state, group, scratch.rate[group], now)
    listed, state.length[ORDERED] = state.length[ORDERED], 0
    for i in range(listed):
        group = scratch.order[i]
        scratch.is_ordered[group] = False
        if state.active[group] == 0:
            continue
        set_rate(layout, state, group, scratch.rate[group], now)
        if scratch.rate[group] > 0.0:
            scratch.is_ordered[group] = True
            scratch.order[state.length[ORDERED]] = group
            state.length[ORDERED] += 1


@inlined
def serve_shortest(layout: Layout, state: State, now: float) -> None:
    """Give each flow what those before it leave.

    Flows are taken in any order, and again when one before them changed: the first of
    each port is right at once, then the second.
    """
    scratch = state.scratch
    state.length[SUSPECTS], done = 0, 0
    _bring_up_to_date(layout, state, now)
    while done < state.length[SUSPECTS]:
        group = scratch.suspect[done % scratch.suspect.size]
        scratch.is_suspect[group] = False
        done += 1
        if state.active[group] == 0:  # suspected, and gone since
            continue
        rate = _left_for(layout, state, group)
        if rate != scratch.rate[group]:
            scratch.rate[group] = rate
            _suspect_behind(layout, state, group)
        if rate > 0.0 and not scratch.is_ordered[group]:
            scratch.is_ordered[group] = True
            scratch.order[state.length[ORDERED]] = group
            state.length[ORDERED] += 1
    _set_rates(layout, state, now)
