"""Bytes over a port within intervals: more than it can carry prove a fault.

Without rates nothing else is known of what a port carried when: flows that lie in an
interval as a whole brought their bytes within it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.array_types import Floats, Ints, Mask

if TYPE_CHECKING:
    from emu.problem import Schedule


def best_sums(place: Ints, total: Floats, best: Floats) -> Floats:
    """Return the best of a growing set of intervals, after every step of its growth.

    Step i adds an element at ``place[i]``: it brings ``total[i]`` to every interval
    that ends there or further right, and makes one possible that ends there, with
    ``best[i] - total[i]`` on top of the totals. A segment tree over the places, all
    steps at once, one level after the other.
    """
    total = total.copy()
    best = best.copy()
    node = place
    last_place = max(place.size - 1, 0)
    levels = last_place.bit_length()
    for _ in range(levels):
        parent = node >> 1
        by_parent = np.argsort(parent, kind="stable")
        first = _first_steps(parent[by_parent])
        is_right = (node[by_parent] & 1) == 1
        left = _newest_steps(~is_right, first)
        right = _newest_steps(is_right, first)

        totals = total[by_parent]
        left_total = _values_at(left, totals, otherwise=0.0)
        right_total = _values_at(right, totals, otherwise=0.0)
        total[by_parent] = left_total + right_total

        bests = best[by_parent]
        left_best = _values_at(left, bests, otherwise=-np.inf)
        right_best = _values_at(right, bests, otherwise=-np.inf)
        # What ends in the right child has all of the left one within it.
        best[by_parent] = np.maximum(left_best, left_total + right_best)
        node = parent
    return best


def _first_steps(nodes: Ints) -> Ints:
    """Return where the row of equal nodes begins that each one is in."""
    step = np.arange(nodes.size)
    is_first = np.diff(nodes, prepend=-1) != 0
    first = np.where(is_first, step, 0)
    return np.maximum.accumulate(first)


def _newest_steps(is_child: Mask, first: Ints) -> Ints:
    """Return the newest step of a child that each step of its parent sees, or -1.

    ``first`` is the first step of the same parent.
    """
    step = np.arange(first.size)
    step_of_child = np.where(is_child, step, -1)
    newest = np.maximum.accumulate(step_of_child)
    return np.where(newest >= first, newest, -1)


def _values_at(steps: Ints, values: Floats, *, otherwise: float) -> Floats:
    """Return the value at each step; another one where the step is -1."""
    return np.where(steps >= 0, values[steps], otherwise)


class BusyInterval(NamedTuple):
    """Time from some flow's start to some flow's end over a port."""

    excess: float
    """Bytes beyond what the port can carry then."""
    begin: float
    """Seconds."""
    end: float


def worst_interval(
    schedule: Schedule,
    port: int,
    factor: float,
    tolerance: float,
) -> BusyInterval:
    """Return the most bytes over ``factor`` times capacity in an interval, and that.

    Counted are the flows that lie in the interval as a whole, so that any excess is
    certain. It is stretched by ``tolerance`` seconds. The clock here is the bytes that
    the port can have carried. Zeros where there is no excess.
    """
    nothing = BusyInterval(excess=0.0, begin=0.0, end=0.0)
    flows = _flows_over(schedule, port)
    sizes = schedule.flow_bytes[flows]
    if not sizes.size:
        return nothing

    steps = schedule.problem.links.steps
    start_time = schedule.flow_start[flows]
    end_time = schedule.flow_end[flows]
    start = steps.carry(port, start_time)
    end = steps.carry(port, end_time)
    by_end = np.argsort(end, kind="stable")
    rank_of_end = np.empty_like(by_end)
    rank_of_end[by_end] = np.arange(end.size)

    surplus = sizes - factor * end
    best = best_sums(rank_of_end, sizes, surplus)
    best_from_start = best + factor * start
    first = int(np.argmax(best_from_start))

    # The interval begins with that flow; the sums from there decide where it ends.
    first_start = start[first]
    is_inside = start[by_end] >= first_start
    inside = by_end[is_inside]
    sums = np.cumsum(sizes[inside])
    slack = steps.most[port] * tolerance
    room = end[inside] - first_start + slack
    excess = sums - factor * room
    worst = int(np.argmax(excess))
    most = float(excess[worst])
    # A sum of many volumes is itself exact to some last bits only.
    rounding = 1e-12 * sums[-1]
    if most <= rounding:
        return nothing

    last = inside[worst]
    return BusyInterval(
        excess=most,
        begin=float(start_time[first]),
        end=float(end_time[last]),
    )


def _flows_over(schedule: Schedule, port: int) -> tuple[Ints, Ints]:
    """Return edges and iterations of the flows that crossed a port, latest first.

    In this order, whenever one more is looked at, all that begin no earlier have been:
    each flow stands for one begin of an interval.
    """
    # Times and bytes that are no numbers are named elsewhere, and lie in no interval.
    has_crossed = np.isfinite(schedule.flow_start) & np.isfinite(schedule.flow_end)
    has_crossed &= np.isfinite(schedule.flow_bytes)
    for position, hops in enumerate(schedule.problem.hops):
        if port not in hops:
            has_crossed[position] = False
    edge, iteration = np.nonzero(has_crossed)

    start = schedule.flow_start[edge, iteration]
    latest_first = np.argsort(-start, kind="stable")
    return edge[latest_first], iteration[latest_first]
