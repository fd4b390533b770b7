"""What a schedule puts on its ports, by its rates or by its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import RateHistory, Schedule

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


def _pieces(
    schedule: Schedule, rates: RateHistory
) -> tuple[Ints, Ints, Floats, Floats, Floats]:
    """Return edge, iteration, rate, start and end of every piece of constant rate.

    The pieces of a flow stand together, in the order of time.
    """
    order = np.lexsort((rates.iteration, rates.edge))  # stable: time stays in order
    edge, iteration = rates.edge[order], rates.iteration[order]
    start, end = rates.time[order], schedule.flow_end[edge, iteration]
    goes_on = (edge[1:] == edge[:-1]) & (iteration[1:] == iteration[:-1])
    end[:-1][goes_on] = start[1:][goes_on]
    return edge, iteration, rates.rate[order], start, end


def fluid_bytes(schedule: Schedule, rates: RateHistory) -> Floats:
    """Return the bytes that the rates of each (edge, iteration) amount to."""
    edge, iteration, rate, start, end = _pieces(schedule, rates)
    fluid = np.zeros(schedule.flow_end.shape)
    np.add.at(fluid, (edge, iteration), rate * (end - start))
    return fluid


def _instants(times: Floats, tolerance: float) -> Ints:
    """Return the number of the instant of every time, in the order of time.

    Ends and starts of one instant may differ in the last bits.
    """
    starts, first = [], 0
    while first < times.size:
        starts.append(first)
        limit = times[first] + max(tolerance, 1e-12 * abs(times[first]))
        first = int(np.searchsorted(times, limit, side="right"))
    number = np.zeros(times.size, dtype=np.int64)
    number[starts[1:]] = 1
    return np.cumsum(number)


def peak_loads(
    schedule: Schedule, rates: RateHistory, tolerance: float
) -> list[tuple[float, float]]:
    """Return the largest summed rate over every port, B/s, and when it occurs.

    Changes within ``tolerance`` seconds count as one instant.
    """
    edge, _, rate, start, end = _pieces(schedule, rates)
    time = np.concatenate([start, end])
    order = np.argsort(time, kind="stable")
    time, change = time[order], np.concatenate([rate, -rate])[order]
    edge = np.concatenate([edge, edge])[order]
    instant = _instants(time, tolerance)
    begin = time[np.flatnonzero(np.diff(instant, prepend=-1))]
    peaks = []
    for port in range(len(schedule.problem.capacities)):
        crosses = _crossing(schedule, port)[edge]
        load = np.cumsum(np.bincount(instant[crosses], change[crosses], begin.size))
        worst = int(np.argmax(load)) if load.size else -1
        peaks.append(
            (float(load[worst]), float(begin[worst])) if load.size else (0.0, 0.0)
        )
    return peaks


def _crossing(schedule: Schedule, port: int) -> NDArray[np.bool_]:
    return np.array([port in hops for hops in schedule.problem.hops], dtype=bool)


def best_sums(place: Ints, total: Floats, best: Floats) -> Floats:
    """Return the best of a growing set of intervals, after every step of its growth.

    Step i adds an element at ``place[i]``: it brings ``total[i]`` to every interval
    that ends there or further right, and makes one possible that ends there, with
    ``best[i] - total[i]`` on top of the totals. A segment tree over the places, all
    steps at once, one level after the other.
    """
    total, best, node = total.copy(), best.copy(), place
    step = np.arange(place.size)
    for _ in range(max(place.size - 1, 0).bit_length()):
        order = np.argsort(node >> 1, kind="stable")
        side, above = node[order] & 1, node[order] >> 1
        first = np.maximum.accumulate(np.where(np.diff(above, prepend=-1), step, 0))
        sums, tops = [], []
        for hand in (0, 1):
            latest = np.maximum.accumulate(np.where(side == hand, step, -1))
            there = latest >= first
            sums.append(np.where(there, total[order][latest], 0.0))
            tops.append(np.where(there, best[order][latest], -np.inf))
        total[order] = sums[0] + sums[1]
        best[order] = np.maximum(tops[0], sums[0] + tops[1])
        node = node >> 1
    return best


def worst_interval(
    schedule: Schedule, port: int, capacity: float, tolerance: float
) -> tuple[float, float, float]:
    """Return the most bytes over capacity in an interval, and the interval.

    Counted are the flows that lie in the interval as a whole, so that any excess is
    certain. It runs from some flow's start to some flow's end and is stretched by
    ``tolerance`` seconds.
    """
    edge, iteration = np.nonzero(
        ~np.isnan(schedule.flow_end) & _crossing(schedule, port)[:, None]
    )
    if not edge.size:
        return 0.0, 0.0, 0.0
    latest_first = np.argsort(-schedule.flow_start[edge, iteration], kind="stable")
    flows = edge[latest_first], iteration[latest_first]
    start, end = schedule.flow_start[flows], schedule.flow_end[flows]
    sent = schedule.flow_bytes[flows]
    by_end = np.empty(end.size, dtype=np.int64)
    by_end[np.argsort(end, kind="stable")] = np.arange(end.size)
    best = best_sums(by_end, sent, sent - capacity * end)
    at = int(np.argmax(best + capacity * start))
    return _excess(start, end, sent, float(start[at]), capacity, tolerance)


def _excess(
    start: Floats,
    end: Floats,
    sent: Floats,
    since: float,
    capacity: float,
    tolerance: float,
) -> tuple[float, float, float]:
    """Return the most bytes over capacity in an interval from ``since`` on."""
    inside = np.flatnonzero(start >= since)
    inside = inside[np.argsort(end[inside], kind="stable")]
    carried = np.cumsum(sent[inside])
    excess = carried - capacity * (end[inside] - since + tolerance)
    at = int(np.argmax(excess))
    # A sum of many volumes is itself exact to some last bits only.
    if excess[at] <= 1e-12 * carried[-1]:
        return 0.0, 0.0, 0.0
    return float(excess[at]), since, float(end[inside][at])
