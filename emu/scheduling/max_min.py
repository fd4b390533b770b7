"""Max-min fair rates, computed anew only where an event changes them.

A port's *level* is the most that any flow gets there: a flow gets the least level of
the ports it crosses. The level follows from what else limits the flows there:

    sum over flows of min(limit, level) = capacity,

infinite where all limits together leave something of the port. Where this holds at
every port, every flow has a bottleneck: a full port where no flow has more. That is
max-min fairness.

A level depends on lower ones only. So dirty ports are settled in the order of their
levels, of the old or the new, whichever is lower, as LPA* (Koenig, Likhachev & Furcy
2004) settles what a changed edge disturbs. What lies below is final then. A port whose
level changes makes dirty those above it with which it shares flows. No rounding can
make this go round in circles: what a level depends on is strictly below it, in floating
point too, and the levels are the same to the last bit whatever came before.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emu.scheduling.compiled import inlined
from emu.scheduling.service_clocks import set_rate
from emu.scheduling.state import DIRTY, TOUCHED, State

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Layout

#: A sum over many events may be wrong by less, as a share of a capacity: a
#: port that is nearer to being full is looked at.
_NEAR = 1e-6


@inlined
def share_max_min(layout: Layout, state: State, now: float) -> None:
    """Set the max-min fair rate of every group where it has changed."""
    for i in range(state.length[TOUCHED]):
        group = state.touched[i]
        flows = state.active[group] - state.levels.shared[group]
        if flows == 0:
            continue
        if state.levels.shared[group] == 0:
            _join(layout, state, group)
        elif state.active[group] == 0:
            _leave(layout, state, group)
        state.levels.shared[group] = state.active[group]
        for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
            port = layout.hop[j]
            _count(state, port, flows, _limit(layout, state, group, port))
            _queue_dirty(state, port)
    while state.length[DIRTY] > 0:
        _settle_next(layout, state, now)
    for i in range(state.length[TOUCHED]):
        group = state.touched[i]
        if state.active[group] > 0:
            set_rate(layout, state, group, _limit(layout, state, group, -1), now)


@inlined
def mark_dirty(state: State, port: int, more: float) -> None:
    """Have rates follow from ``more`` bytes per second of ``port`` when set next."""
    state.levels.left[port] += more
    _queue_dirty(state, port)


@inlined
def _join(layout: Layout, state: State, group: int) -> None:
    """List ``group`` at its ports, in the order of groups: sums round by order."""
    levels = state.levels
    for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
        port = layout.hop[j]
        first = layout.port_start[port]
        hole = first + levels.crowd[port]
        while hole > first and levels.crossing[hole - 1] > group:
            levels.crossing[hole] = levels.crossing[hole - 1]
            hole -= 1
        levels.crossing[hole] = group
        levels.crowd[port] += 1


@inlined
def _leave(layout: Layout, state: State, group: int) -> None:
    """Strike ``group``, which has no flow any more, from the lists of its ports."""
    levels = state.levels
    for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
        port = layout.hop[j]
        levels.crowd[port] -= 1
        place = layout.port_start[port]
        while levels.crossing[place] != group:
            place += 1
        for k in range(place, layout.port_start[port] + levels.crowd[port]):
            levels.crossing[k] = levels.crossing[k + 1]


@inlined
def _limit(layout: Layout, state: State, group: int, port: int) -> float:
    """Return the least level of the ports that ``group`` crosses except ``port``."""
    limit = math.inf
    for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
        if layout.hop[j] != port:
            limit = min(limit, state.levels.level[layout.hop[j]])
    return limit


@inlined
def _count(state: State, port: int, flows: int, limit: float) -> None:
    """Count ``flows`` more (or fewer) over ``port`` that have ``limit`` elsewhere."""
    if limit < state.levels.target[port]:
        state.levels.left[port] -= flows * limit
    else:
        state.levels.rising[port] += flows


@inlined
def _queue_dirty(state: State, port: int) -> None:
    """Put ``port`` among those whose level may have to change.

    No level below ``bound`` is possible, whatever limits have passed ``target``. Ports
    that stay far from full, half of those that an event reaches, are not looked at.
    """
    levels = state.levels
    bound = levels.left[port] - _NEAR * state.capacity[port]
    if levels.rising[port] > 0:
        bound /= levels.rising[port]
    elif bound > 0.0:
        bound = math.inf
    bound = min(bound, levels.level[port])
    if levels.place[port] < 0:
        if bound == math.inf:
            return
        levels.place[port] = state.length[DIRTY]
        levels.dirty_ports[levels.place[port]] = port
        state.length[DIRTY] += 1
    levels.bound[levels.place[port]] = bound


@inlined
def _settle_next(layout: Layout, state: State, now: float) -> None:
    """Look at the dirty port that may be lowest; settle it if it is."""
    levels = state.levels
    place, least, second = 0, levels.bound[0], math.inf
    for i in range(1, state.length[DIRTY]):
        if levels.bound[i] < least:
            place, least, second = i, levels.bound[i], least
        else:
            second = min(second, levels.bound[i])
    port = levels.dirty_ports[place]
    old = levels.level[port]
    _find_target(layout, state, port)
    new = levels.target[port]
    levels.bound[place] = min(old, new)
    if new != old:
        if levels.bound[place] > second:
            return
        levels.level[port] = new
        _pass_on(layout, state, port, old, now)
    state.length[DIRTY] -= 1
    last = levels.dirty_ports[state.length[DIRTY]]
    levels.dirty_ports[place] = last
    levels.bound[place] = levels.bound[state.length[DIRTY]]
    levels.place[last] = place
    levels.place[port] = -1


@inlined
def _find_target(layout: Layout, state: State, port: int) -> None:
    """Find the level of ``port`` by the levels of others.

    Raised from where all flows would be equal, until no limit is below it.
    """
    levels, limit, flows = state.levels, state.scratch.rate, state.scratch.weight
    count, first = levels.crowd[port], layout.port_start[port]
    for i in range(count):
        group = levels.crossing[first + i]
        limit[i] = _limit(layout, state, group, port)
        flows[i] = state.active[group]
    rising, left = float(state.degree[port]), state.capacity[port]
    level = left / rising if rising > 0.0 else math.inf
    while rising > 0.0:
        before, rising, left = rising, 0.0, state.capacity[port]
        for i in range(count):
            limited = limit[i] < level
            left -= flows[i] * limit[i] if limited else 0.0
            rising += 0.0 if limited else flows[i]
        if rising == before:
            break
        level = max(level, left / rising) if rising > 0.0 else math.inf
    levels.target[port] = level
    levels.left[port] = left
    levels.rising[port] = int(rising)


@inlined
def _pass_on(layout: Layout, state: State, port: int, old: float, now: float) -> None:
    """Set the rates over ``port``, whose level was ``old``; note what depends on it.

    A rate may be set twice within an event: three flows in a hundred on a dense job.
    """
    levels = state.levels
    new = levels.level[port]
    lower = min(old, new)
    for i in range(levels.crowd[port]):
        group = levels.crossing[layout.port_start[port] + i]
        limit = math.inf
        for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
            other = layout.hop[j]
            if other == port:
                continue
            limit = min(limit, levels.level[other])
            if lower < levels.target[other]:
                _limit_anew(layout, state, group, port, other, old)
        set_rate(layout, state, group, min(limit, new), now)


@inlined
def _limit_anew(
    layout: Layout, state: State, group: int, changed: int, port: int, old: float
) -> None:
    """Count ``group`` anew over ``port``, with another level of port ``changed``."""
    before, after = old, state.levels.level[changed]
    for j in range(layout.hop_start[group], layout.hop_start[group + 1]):
        if layout.hop[j] != port and layout.hop[j] != changed:
            before = min(before, state.levels.level[layout.hop[j]])
            after = min(after, state.levels.level[layout.hop[j]])
    if before != after and min(before, after) < state.levels.target[port]:
        _count(state, port, -state.active[group], before)
        _count(state, port, state.active[group], after)
        _queue_dirty(state, port)
