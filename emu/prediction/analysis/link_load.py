"""Load of a schedule on its ports, by rates or by bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.problem import Problem, RateHistory, Schedule

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Steps = tuple[Floats, Floats]

# The rate through every port over time: assigned, or the mean of what moved.


def sum_rates(schedule: Schedule) -> list[Steps] | None:
    """Return per port the times and the sums of assigned rates from then on.

    None when the schedule has no rate history.
    """
    history = schedule.rates
    if history is None:
        return None
    edge, time, change = _changes(schedule, history)
    return _running_sums(schedule, edge, time, change)


def peak_rate(schedule: Schedule) -> float:
    """Return the greatest sum of the assigned rates of all flows, bytes per second.

    Raises ValueError when the schedule has no rate history.
    """
    if schedule.rates is None:
        raise ValueError("the schedule holds no rates")
    _, time, change = _changes(schedule, schedule.rates)
    # What ends at a moment makes room for what begins then.
    order = np.lexsort((change, time))
    sums = np.cumsum(change[order])
    return float(sums.max(initial=0.0))


def _changes(schedule: Schedule, history: RateHistory) -> tuple[Ints, Floats, Floats]:
    """Return edge, time and change of rate; nothing ends before its last change."""
    split = pieces(schedule, history)
    end = np.maximum(split.end, split.rates.time)
    return changes_of(split._replace(end=end))


def mean_rates(schedule: Schedule) -> list[Steps]:
    """Return per port the times and the sums of the mean rates of moving flows.

    The mean rate of a flow is its bytes over its duration.
    """
    edge, iteration = schedule.flows().T
    # What moves in no time has no rate.
    takes_time = (
        schedule.flow_end[edge, iteration] > schedule.flow_start[edge, iteration]
    )
    edge = edge[takes_time]
    iteration = iteration[takes_time]

    start = schedule.flow_start[edge, iteration]
    end = schedule.flow_end[edge, iteration]
    size = schedule.flow_bytes[edge, iteration]
    rate = size / (end - start)
    return _running_sums(
        schedule,
        edge=np.tile(edge, 2),
        time=np.append(start, end),
        change=np.append(rate, -rate),
    )


def _running_sums(
    schedule: Schedule,
    edge: Ints,
    time: Floats,
    change: Floats,
) -> list[Steps]:
    """Return the running sums of ``change`` per port, one value per distinct time."""
    problem = schedule.problem
    # A stable order by time: of each port it is that of its own changes, too.
    order = np.argsort(time, kind="stable")
    edge = edge[order]
    time = time[order]
    change = change[order]

    ports = len(problem.capacities)
    crosses = np.zeros((ports, len(problem.hops)), dtype=bool)
    for position, hops in enumerate(problem.hops):
        crosses[list(hops), position] = True

    steps = []
    for edges, most in zip(crosses, problem.links.steps.most, strict=True):
        is_here = edges[edge]
        times = time[is_here]
        level = np.cumsum(change[is_here])
        # Sums of differences leave rounding where nothing moves any more.
        level[np.abs(level) < 1e-9 * most] = 0.0

        is_last = np.append(times[1:] != times[:-1], True)[: len(times)]
        steps.append((times[is_last], level[is_last]))
    return steps


class LinkContention:
    """The active flows of every port of a schedule; those without bytes not counted."""

    def __init__(self, schedule: Schedule) -> None:
        self._hops = schedule.problem.hops
        self._steps = schedule.problem.links.steps
        crossing: list[list[int]] = [[] for _ in schedule.problem.links]
        for edge, hops in enumerate(self._hops):
            for port in hops:
                crossing[port].append(edge)

        self._begun = list[Floats]()
        self._ended = list[Floats]()
        for edges in crossing:
            has_bytes = schedule.flow_bytes[edges] > 0
            starts = schedule.flow_start[edges][has_bytes]
            ends = schedule.flow_end[edges][has_bytes]
            # Sorted each by itself: only their numbers up to a moment are asked for.
            self._begun.append(np.sort(starts))
            self._ended.append(np.sort(ends))

    def degree(self, port: int, times: Floats) -> Ints:
        """Return the active flows over ``port`` just after each of ``times``."""
        starts = np.searchsorted(self._begun[port], times, "right")
        ends = np.searchsorted(self._ended[port], times, "right")
        return starts - ends

    @property
    def most(self) -> int:
        """The most flows that were active over one link at a time."""
        most = 0
        for port, starts in enumerate(self._begun):
            # Only a start raises the number.
            degrees = self.degree(port, starts)
            most = max(most, int(degrees.max(initial=0)))
        return most

    def bottleneck(self, edge: int, start: float, end: float) -> int:
        """Return the port that gives the flows of ``edge`` least, -1 within a machine.

        Least is the smallest capacity per active flow, for most of the time from
        ``start`` to ``end``; of equal ports the first that the flow crosses. Under
        ``oes`` this is exactly what limits the flow (Algorithm 1 of the paper).
        """
        hops = self._hops[edge]
        if not hops:
            return -1
        moments = self._moments(hops, start, end)
        last_end = max(end, moments[-1])
        lengths = np.diff(moments, append=last_end)

        shares = []
        for port in hops:
            # Just after a moment the flow itself may be over: a share still is of one
            # flow.
            degree = np.maximum(self.degree(port, moments), 1)
            capacity = self._steps.at(port, moments)
            shares.append(capacity / degree)

        tightest = np.argmin(shares, axis=0)
        seconds = [lengths[tightest == hop].sum() for hop in range(len(hops))]
        longest = int(np.argmax(seconds))
        return hops[longest]

    def _moments(self, hops: Sequence[int], start: float, end: float) -> Floats:
        """Return when shares of some ports may change, from ``start`` to ``end``."""
        changes = [np.array([start])]
        for port in hops:
            capacity_changes, _ = self._steps.of(port)
            for times in (self._begun[port], self._ended[port], capacity_changes):
                first, last = np.searchsorted(times, [start, end], "right")
                changes.append(times[first:last])
        # One that comes twice has no length. np.unique would import numpy.ma: 20 ms.
        return np.sort(np.concatenate(changes))


#: Sums of (instant, port) that are made at once: 32 MB.
_BLOCK = 1 << 22


class Pieces(NamedTuple):
    """Pieces of constant rate; those of a flow stand together, in the order of time."""

    schedule: Schedule
    history: RateHistory
    """The rates as they were written."""
    order: Ints
    """Rows of the history, flow by flow."""
    rates: RateHistory
    """The history in that order, a row per piece."""
    goes_on: NDArray[np.bool_]
    """True where the next piece is of the same flow."""
    end: Floats
    """When the next piece begins, or the flow ends, seconds."""

    @property
    def first(self) -> Ints:
        """Position of the first piece of every flow."""
        return np.flatnonzero(~np.roll(self.goes_on, 1))


def pieces(schedule: Schedule, rates: RateHistory) -> Pieces:
    """Return the pieces of all flows."""
    order = np.lexsort(  # stable: time stays in order
        (_short(rates.iteration), _short(rates.edge)),
    )
    rows = rates.rows(order)
    edge = rows.edge
    iteration = rows.iteration
    goes_on = np.zeros(order.size, dtype=bool)
    goes_on[:-1] = edge[1:] == edge[:-1]
    goes_on[:-1] &= iteration[1:] == iteration[:-1]

    # The last piece of a flow lasts until the flow ends.
    is_last = ~goes_on
    end = np.roll(rows.time, -1)
    end[is_last] = schedule.flow_end[edge[is_last], iteration[is_last]]
    return Pieces(
        schedule=schedule,
        history=rates,
        order=order,
        rates=rows,
        goes_on=goes_on,
        end=end,
    )


def _short(values: Ints) -> NDArray[Any]:
    """Return the same in 16 bits where they fit: a fourth of the time to sort."""
    largest = int(values.max(initial=0))
    return values.astype(np.min_scalar_type(largest))


def fluid_ends(schedule: Schedule) -> Floats:
    """Return when the assigned rates had carried each flow's bytes.

    Returns
    -------
    Floats
        Seconds, shape (edges, iterations); NaN for what has no rates (handoffs, flows
        of no bytes) and where the rates never carried all of it.

    Raises
    ------
    ValueError
        The schedule holds no rates.
    """
    if schedule.rates is None:
        raise ValueError("the schedule holds no rates")
    split = pieces(schedule, schedule.rates)
    time = split.rates.time
    rate = split.rates.rate
    flow = split.rates.edge, split.rates.iteration

    # Bytes of a flow that its earlier pieces have carried, by one sum over all flows.
    sizes = np.where(split.goes_on, rate * (split.end - time), 0.0)
    carried_bytes = np.cumsum(sizes) - sizes
    first = split.first
    piece_counts = np.diff(first, append=len(time))
    carried_bytes -= np.repeat(carried_bytes[first], piece_counts)
    missing = np.maximum(schedule.flow_bytes[flow] - carried_bytes, 0.0)

    has_rate = rate > 0
    arrival = np.full(len(time), np.inf)
    arrival[has_rate] = time[has_rate] + missing[has_rate] / rate[has_rate]
    piece_end = np.where(split.goes_on, split.end, np.inf)
    # Rounding of a long sum must not push the end into the next piece, or out of all.
    latest_end = piece_end + 1e-9 * np.abs(time)
    is_end = np.isfinite(arrival) & (arrival <= latest_end)

    ends: Floats = np.full_like(schedule.flow_end, np.nan)
    # Later pieces are written first: where rounding names several, the earliest wins.
    latest_first = np.flatnonzero(is_end)[::-1]
    edge, iteration = flow
    ends[edge[latest_first], iteration[latest_first]] = arrival[latest_first]
    return ends


def fluid_bytes(split: Pieces) -> Floats:
    """Return the bytes that the rates of each (edge, iteration) amount to."""
    rates = split.rates
    fluid = np.zeros(split.schedule.flow_end.shape)
    first = split.first
    if first.size:
        sizes = rates.rate * (split.end - rates.time)
        flows = rates.edge[first], rates.iteration[first]
        fluid[flows] = np.add.reduceat(sizes, first)
    return fluid


def changes_of(split: Pieces) -> tuple[Ints, Floats, Floats]:
    """Return edge, time and change of rate, of every row and of every flow's end."""
    rate = split.rates.rate
    last_rate = np.roll(rate, 1)
    last_rate[split.first] = 0.0
    change = np.empty_like(last_rate)
    change[split.order] = rate - last_rate

    last = np.flatnonzero(~split.goes_on)
    edge = np.append(split.history.edge, split.rates.edge[last])
    time = np.append(split.history.time, split.end[last])
    return edge, time, np.append(change, -rate[last])


def _instants(times: Floats, tolerance: float) -> Ints:
    """Return the number of the instant of every time, in the order of time.

    Ends and starts of one instant may differ in the last bits.
    """
    starts = []
    first = 0
    while first < times.size:
        starts.append(first)
        time = times[first]
        limit = time + max(tolerance, 1e-12 * abs(time))
        first = int(np.searchsorted(times, limit, side="right"))
    is_new = np.zeros(times.size, dtype=np.int64)
    is_new[starts[1:]] = 1
    return np.cumsum(is_new)


def _changes_and_losses(split: Pieces) -> tuple[Ints, Floats, Floats]:
    """Return path, time and change, by time: of rates, and of what capacities lose.

    A capacity's loss is summed as the rate of one more flow would be. Its path is
    numbered behind the edges, by port.
    """
    edge, time, change = changes_of(split)
    problem = split.schedule.problem
    loss_time, loss_port, loss = problem.links.steps.losses.T

    loss_path = len(problem.hops) + loss_port.astype(np.int64)
    path = np.append(edge, loss_path)
    time = np.append(time, loss_time)
    change = np.append(change, loss)
    order = np.argsort(time, kind="stable")  # nearly in order, as histories are
    return path[order], time[order], change[order]


def _ports_by_hop(problem: Problem) -> list[Ints]:
    """Return the port of every path at its first hop, its second, and so on.

    A path that has fewer hops is at a port behind the last one.
    """
    ports = len(problem.links)
    paths = [*problem.hops]
    # What a capacity loses crosses its port alone.
    paths += [(port,) for port in range(ports)]
    columns = zip_longest(*paths, fillvalue=ports)
    return [np.array(column) for column in columns]


def excess_loads(split: Pieces, tolerance: float) -> list[tuple[float, float]]:
    """Return the most that rates over every port exceed its capacity, B/s, and when.

    Less than 0 where they never do. Changes within ``tolerance`` seconds count as one
    instant.
    """
    path, time, change = _changes_and_losses(split)
    instant = _instants(time, tolerance)
    is_new = np.diff(instant, prepend=-1) > 0
    begin = time[is_new]
    problem = split.schedule.problem
    ports = len(problem.links)
    columns = ports + 1
    ports_by_hop = _ports_by_hop(problem)

    level = -problem.links.capacities
    peak = level.copy()
    peak_time = np.zeros(ports)
    rows = max(_BLOCK // max(ports, 1), 1)
    for first in range(0, begin.size, rows):
        start, end = np.searchsorted(instant, [first, first + rows])
        row = instant[start:end] - first
        size = (int(row[-1]) + 1) * columns
        sums = np.zeros(size)
        for port_of_path in ports_by_hop:
            cell = row * columns + port_of_path[path[start:end]]
            sums += np.bincount(cell, change[start:end], size)

        # The last column has what paths of fewer hops would add beyond their last.
        sums_by_port = sums.reshape(-1, columns)[:, :ports]
        loads = level + np.cumsum(sums_by_port, axis=0)
        worst = np.argmax(loads, axis=0)
        most = loads[worst, np.arange(ports)]
        peak_time = np.where(most > peak, begin[first + worst], peak_time)
        peak = np.maximum(most, peak)
        level = loads[-1]
    return list(zip(peak.tolist(), peak_time.tolist(), strict=True))


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
    step = np.arange(place.size)
    for _ in range(max(place.size - 1, 0).bit_length()):
        order = np.argsort(node >> 1, kind="stable")
        nodes = node[order]
        totals = total[order]
        bests = best[order]
        side = nodes & 1
        parent = nodes >> 1
        is_first = np.diff(parent, prepend=-1)
        first = np.maximum.accumulate(np.where(is_first, step, 0))

        # Of both children the newest values that a step of their parent sees.
        sums = []
        tops = []
        for child in (0, 1):
            latest = np.maximum.accumulate(np.where(side == child, step, -1))
            is_known = latest >= first
            sums.append(np.where(is_known, totals[latest], 0.0))
            tops.append(np.where(is_known, bests[latest], -np.inf))
        left_sum, right_sum = sums
        left_top, right_top = tops
        total[order] = left_sum + right_sum
        best[order] = np.maximum(left_top, left_sum + right_top)
        node = node >> 1
    return best


def worst_interval(
    schedule: Schedule,
    port: int,
    factor: float,
    tolerance: float,
) -> tuple[float, float, float]:
    """Return the most bytes over ``factor`` times capacity in an interval, and that.

    Counted are the flows that lie in the interval as a whole, so that any excess is
    certain. It runs from some flow's start to some flow's end and is stretched by
    ``tolerance`` seconds. The clock here is the bytes that the port can have carried.

    Returns
    -------
    tuple[float, float, float]
        Excess in bytes, begin and end of the interval in seconds; zeros where there is
        no excess.
    """
    crosses = np.array([port in hops for hops in schedule.problem.hops], dtype=bool)
    is_over = ~np.isnan(schedule.flow_end) & crosses[:, None]
    edge, iteration = np.nonzero(is_over)
    if not edge.size:
        return 0.0, 0.0, 0.0
    # Latest starts first: after each step the set holds all flows that begin no
    # earlier, so that every step stands for one begin of the interval.
    flow_start = schedule.flow_start[edge, iteration]
    latest_first = np.argsort(-flow_start, kind="stable")
    flows = edge[latest_first], iteration[latest_first]
    sizes = schedule.flow_bytes[flows]

    steps = schedule.problem.links.steps
    start = steps.carry(port, schedule.flow_start[flows])
    end = steps.carry(port, schedule.flow_end[flows])
    by_end = np.argsort(end, kind="stable")
    rank_of_end = np.empty(end.size, dtype=np.int64)
    rank_of_end[by_end] = np.arange(end.size)
    best = best_sums(rank_of_end, sizes, sizes - factor * end)
    first = int(np.argmax(best + factor * start))

    # The interval begins with that flow; the sums from there decide where it ends.
    inside = by_end[start[by_end] >= start[first]]
    sums = np.cumsum(sizes[inside])
    slack = steps.most[port] * tolerance
    excess = sums - factor * (end[inside] - start[first] + slack)
    worst = int(np.argmax(excess))
    # A sum of many volumes is itself exact to some last bits only.
    if excess[worst] <= 1e-12 * sums[-1]:
        return 0.0, 0.0, 0.0
    begin_time = float(schedule.flow_start[flows][first])
    end_time = float(schedule.flow_end[flows][inside[worst]])
    return float(excess[worst]), begin_time, end_time
