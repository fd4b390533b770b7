"""Bytes as a fluid: service clocks of groups and the ends that follow from them.

All flows of a group have one rate, so one clock per group counts the bytes served to
each of them, and a flow ends when the clock reaches its mark. An event then costs one
clock per group whose rate changes, not one per flow.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emu.scheduling.compiled import inlined, vectorised
from emu.scheduling.state import TOUCHED, State

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Floats, Ints, Layout

# A binary heap of (key, item) in a slice of two arrays, smallest key first.
#
# numba does not compile heapq.


@inlined
def heap_push(
    keys: Floats, items: Ints, first: int, size: int, key: float, item: int
) -> None:
    """Add to the heap of ``size`` entries that begins at ``first``."""
    hole = size
    while hole > 0:
        parent = (hole - 1) >> 1
        if keys[first + parent] <= key:
            break
        keys[first + hole] = keys[first + parent]
        items[first + hole] = items[first + parent]
        hole = parent
    keys[first + hole] = key
    items[first + hole] = item


@inlined
def heap_pop(keys: Floats, items: Ints, first: int, size: int) -> None:
    """Remove the smallest key from the heap of ``size`` at ``first``."""
    last = size - 1
    key = keys[first + last]
    item = items[first + last]
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= last:
            break
        if child + 1 < last and keys[first + child + 1] < keys[first + child]:
            child += 1
        if keys[first + child] >= key:
            break
        keys[first + hole] = keys[first + child]
        items[first + hole] = items[first + child]
        hole = child
    keys[first + hole] = key
    items[first + hole] = item


@inlined
def advance(state: State, group: int, now: float) -> None:
    """Bring the clock of ``group`` to ``now``."""
    if now > state.since[group]:
        state.service[group] += state.rate[group] * (now - state.since[group])
    state.since[group] = now


@inlined
def touch(state: State, group: int) -> None:
    """Have the rates of ``group`` computed anew."""
    if not state.is_touched[group]:
        state.is_touched[group] = True
        state.touched[state.length[TOUCHED]] = group
        state.length[TOUCHED] += 1


@inlined
def _count(layout: Layout, state: State, group: int, flows: int) -> None:
    """Count ``flows`` more (or fewer) active flows of ``group``; its end is unknown."""
    state.active[group] += flows
    state.finish[group] = -1.0 if state.active[group] > 0 else math.inf
    state.soonest[group >> layout.block_bits] = -1.0
    for i in range(layout.hop_start[group], layout.hop_start[group + 1]):
        state.degree[layout.hop[i]] += flows
    touch(state, group)


@inlined
def open_flow(
    layout: Layout, state: State, edge: int, volume: float, now: float
) -> None:
    """Make a flow of ``edge`` active; rates are to be computed before time goes on."""
    group = layout.group[edge]
    if state.active[group] == 0:
        state.service[group] = 0.0
        state.since[group] = now
    else:
        advance(state, group, now)
    state.base[edge] = state.service[group]
    heap_push(
        state.mark,
        state.mark_edge,
        layout.slot[group],
        state.active[group],
        state.service[group] + volume,
        edge,
    )
    _count(layout, state, group, 1)


@inlined
def close_first(layout: Layout, state: State, group: int, now: float) -> int:
    """Take the first flow of ``group`` to end out of the network; return its edge."""
    first = layout.slot[group]
    edge = int(state.mark_edge[first])
    advance(state, group, now)
    heap_pop(state.mark, state.mark_edge, first, state.active[group])
    _count(layout, state, group, -1)
    return edge


@inlined
def set_rate(layout: Layout, state: State, group: int, rate: float, now: float) -> None:
    """Give the flows of ``group``, which has some, ``rate`` from ``now`` on."""
    if rate == state.rate[group] and state.finish[group] >= 0.0:
        return
    advance(state, group, now)
    state.rate[group] = rate
    state.soonest[group >> layout.block_bits] = -1.0
    left = state.mark[layout.slot[group]] - state.service[group]
    if rate > 0.0:
        state.finish[group] = now + max(left, 0.0) / rate
    else:
        state.finish[group] = math.inf


@vectorised
def _least(times: Floats, first: int, end: int) -> float:
    least = math.inf
    for i in range(first, end):
        least = min(least, times[i])
    return least


@inlined
def next_end(layout: Layout, state: State) -> float:
    """Return when the next flow ends at the rates of now, infinity if none does."""
    time = math.inf
    for block in range(state.soonest.size):
        if state.soonest[block] < 0.0:
            first, end = block << layout.block_bits, (block + 1) << layout.block_bits
            end = min(end, state.finish.size)
            state.soonest[block] = _least(state.finish, first, end)
        time = min(time, state.soonest[block])
    return time
