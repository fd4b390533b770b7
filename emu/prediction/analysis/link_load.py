"""Load of a schedule on its ports, by rates or by bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.problem import RateHistory, Schedule

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
    return float(np.cumsum(change[order]).max(initial=0.0))


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
    start = schedule.flow_start[edge, iteration]
    end = schedule.flow_end[edge, iteration]
    size = schedule.flow_bytes[edge, iteration]

    takes_time = end > start
    rate = size[takes_time] / (end - start)[takes_time]
    return _running_sums(
        schedule,
        edge=np.tile(edge[takes_time], 2),
        time=np.append(start[takes_time], end[takes_time]),
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
    crosses = np.zeros((len(problem.capacities), len(problem.hops)), dtype=bool)
    for position, hops in enumerate(problem.hops):
        crosses[list(hops), position] = True

    steps = []
    for port, edges in enumerate(crosses):
        is_here = edges[edge] if len(edge) else np.zeros(0, dtype=bool)
        order = np.argsort(time[is_here], kind="stable")
        times = time[is_here][order]
        level = np.cumsum(change[is_here][order])

        is_last = np.ones(len(times), dtype=bool)
        is_last[:-1] = times[1:] != times[:-1]
        # Sums of differences leave rounding where nothing moves any more.
        rounding = 1e-9 * problem.links.steps.most[port]
        level[np.abs(level) < rounding] = 0.0
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
            self._begun.append(np.sort(schedule.flow_start[edges][has_bytes]))
            self._ended.append(np.sort(schedule.flow_end[edges][has_bytes]))

    def degree(self, port: int, times: Floats) -> Ints:
        """Return the active flows over ``port`` just after each of ``times``."""
        starts = np.searchsorted(self._begun[port], times, "right")
        ends = np.searchsorted(self._ended[port], times, "right")
        return starts - ends

    @property
    def most(self) -> int:
        """The most flows that were active over one link at a time."""
        degrees = (self.degree(port, starts) for port, starts in enumerate(self._begun))
        return max((int(degree.max(initial=0)) for degree in degrees), default=0)

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
        lengths = np.diff(np.append(moments, max(end, moments[-1])))

        shares = []
        for port in hops:
            # Just after a moment the flow itself may be over: a share still is of one
            # flow.
            degree = np.maximum(self.degree(port, moments), 1)
            shares.append(self._steps.at(port, moments) / degree)
        tightest = np.argmin(shares, axis=0)
        seconds = [lengths[tightest == place].sum() for place in range(len(hops))]
        return hops[int(np.argmax(seconds))]

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

    last = np.flatnonzero(~goes_on)
    end = np.roll(rows.time, -1)
    end[last] = schedule.flow_end[edge[last], iteration[last]]
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
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


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
    ends: Floats = np.full_like(schedule.flow_end, np.nan)
    flow = split.rates.edge * ends.shape[1] + split.rates.iteration

    # Bytes of a flow that its earlier pieces have carried, by one sum over all flows.
    sizes = np.where(split.goes_on, rate * (split.end - time), 0.0)
    carried_bytes = np.cumsum(sizes) - sizes
    first = split.first
    carried_bytes -= np.repeat(
        carried_bytes[first], np.diff(np.append(first, len(flow)))
    )
    missing = np.maximum(schedule.flow_bytes.ravel()[flow] - carried_bytes, 0.0)

    has_rate = rate > 0
    arrival = np.full(len(flow), np.inf)
    arrival[has_rate] = time[has_rate] + missing[has_rate] / rate[has_rate]
    piece_end = np.where(split.goes_on, split.end, np.inf)
    # Rounding of a long sum must not push the end into the next piece, or out of all.
    places = np.flatnonzero(arrival <= piece_end + 1e-9 * np.abs(time))
    places = places[np.isfinite(arrival[places])][::-1]  # the earliest piece wins
    ends.ravel()[flow[places]] = arrival[places]
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
        limit = times[first] + max(tolerance, 1e-12 * abs(times[first]))
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
    losses = problem.links.steps.losses
    loss_time, loss_port, loss = losses.T

    path = np.append(edge, len(problem.hops) + loss_port.astype(np.int64))
    time = np.append(time, loss_time)
    change = np.append(change, loss)
    order = np.argsort(time, kind="stable")  # nearly in order, as histories are
    return path[order], time[order], change[order]


def excess_loads(split: Pieces, tolerance: float) -> list[tuple[float, float]]:
    """Return the most that rates over every port exceed its capacity, B/s, and when.

    Less than 0 where they never do. Changes within ``tolerance`` seconds count as one
    instant.
    """
    path, time, change = _changes_and_losses(split)
    instant = _instants(time, tolerance)
    begin = time[np.flatnonzero(np.diff(instant, prepend=-1))]
    problem = split.schedule.problem
    ports = len(problem.links)
    columns = ports + 1

    # The port of every path at each hop; the last column takes what crosses fewer.
    paths = [list(hops) for hops in problem.hops]
    paths += [[port] for port in range(ports)]
    ports_by_hop = []
    for hop in range(max(map(len, paths), default=0)):
        port_of_path = [hops[hop] if hop < len(hops) else ports for hops in paths]
        ports_by_hop.append(np.array(port_of_path))

    level = -problem.links.capacities
    peak = level.copy()
    peak_time = np.zeros(ports)
    rows = max(_BLOCK // max(ports, 1), 1)
    for first in range(0, begin.size, rows):
        start, end = np.searchsorted(instant, [first, first + rows])
        row = instant[start:end] - first
        sums = np.zeros((int(row[-1]) + 1) * columns)
        for port in ports_by_hop:
            cell = row * columns + port[path[start:end]]
            sums += np.bincount(cell, change[start:end], sums.size)

        loads = level + np.cumsum(sums.reshape(-1, columns)[:, :ports], axis=0)
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
        side = node[order] & 1
        parent = node[order] >> 1
        is_first = np.diff(parent, prepend=-1)
        first = np.maximum.accumulate(np.where(is_first, step, 0))

        # Of both children the newest values that a step of their parent sees.
        sums = []
        tops = []
        for child in (0, 1):
            latest = np.maximum.accumulate(np.where(side == child, step, -1))
            is_known = latest >= first
            sums.append(np.where(is_known, total[order][latest], 0.0))
            tops.append(np.where(is_known, best[order][latest], -np.inf))
        total[order] = sums[0] + sums[1]
        best[order] = np.maximum(tops[0], sums[0] + tops[1])
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
    latest_first = np.argsort(-schedule.flow_start[edge, iteration], kind="stable")
    flows = edge[latest_first], iteration[latest_first]
    sizes = schedule.flow_bytes[flows]

    steps = schedule.problem.links.steps
    start = steps.carry(port, schedule.flow_start[flows])
    end = steps.carry(port, schedule.flow_end[flows])
    rank_of_end = np.empty(end.size, dtype=np.int64)
    rank_of_end[np.argsort(end, kind="stable")] = np.arange(end.size)
    best = best_sums(rank_of_end, sizes, sizes - factor * end)
    first = int(np.argmax(best + factor * start))

    # The interval begins with that flow; the sums from there decide where it ends.
    inside = np.flatnonzero(start >= start[first])
    inside = inside[np.argsort(end[inside], kind="stable")]
    sums = np.cumsum(sizes[inside])
    slack = steps.most[port] * tolerance
    excess = sums - factor * (end[inside] - start[first] + slack)
    worst = int(np.argmax(excess))
    # A sum of many volumes is itself exact to some last bits only.
    if excess[worst] <= 1e-12 * sums[-1]:
        return 0.0, 0.0, 0.0
    begin_time = schedule.flow_start[flows][first]
    end_time = schedule.flow_end[flows][inside[worst]]
    return float(excess[worst]), float(begin_time), float(end_time)
