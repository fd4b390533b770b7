"""Load of a schedule on its ports, by rates or by bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from emu.array_types import Array, Floats, Ints, Mask
from emu.problem import Problem, RateHistory, Schedule

Steps = tuple[Floats, Floats]

# The rate through every port over time: assigned, or the mean of what moved.


def sum_rates(schedule: Schedule) -> list[Steps] | None:
    """Return per port the times and the sums of assigned rates from then on.

    None when the schedule has no rate history.
    """
    history = schedule.rates
    if history is None:
        return None
    return _running_sums(schedule, _changes(schedule, history))


def peak_rate(schedule: Schedule) -> float:
    """Return the greatest sum of the assigned rates of all flows, bytes per second.

    Raises ValueError when the schedule has no rate history.
    """
    history = _history(schedule)
    changes = _changes(schedule, history)
    # What ends at a moment makes room for what begins then.
    order = np.lexsort((changes.change, changes.time))
    sums = np.cumsum(changes.change[order])
    return float(sums.max(initial=0.0))


def _history(schedule: Schedule) -> RateHistory:
    if schedule.rates is None:
        raise ValueError("the schedule holds no rates")
    return schedule.rates


class Changes(NamedTuple):
    """Changes of rates, a row each."""

    path: Ints
    """Edge whose rate changes; behind all edges each port by itself is a path."""
    time: Floats
    """Seconds."""
    change: Floats
    """Bytes per second."""

    def by_time(self) -> Changes:
        """Return the same in the order of time; rows of one time keep theirs."""
        order = np.argsort(self.time, kind="stable")  # histories are nearly in order
        return Changes(
            path=self.path[order],
            time=self.time[order],
            change=self.change[order],
        )


def _changes(schedule: Schedule, history: RateHistory) -> Changes:
    """Return the changes of rates; nothing ends before its last change."""
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

    # What moves in no time has no rate.
    takes_time = end > start
    edge = edge[takes_time]
    start = start[takes_time]
    end = end[takes_time]
    seconds = end - start
    rate = size[takes_time] / seconds
    changes = Changes(
        path=np.tile(edge, 2),
        time=np.append(start, end),
        change=np.append(rate, -rate),
    )
    return _running_sums(schedule, changes)


def with_times(steps: Steps, further: Floats) -> Steps:
    """Return steps with rows at further times as well, at the rate of each."""
    times, rates = steps
    is_new = ~np.isin(further, times)
    new_times = further[is_new]
    # Nothing goes through a port before its first row.
    rates_from_start = np.append(0.0, rates)
    rates_then = rates_from_start[np.searchsorted(times, new_times, side="right")]

    all_times = np.append(times, new_times)
    order = np.argsort(all_times, kind="stable")
    return all_times[order], np.append(rates, rates_then)[order]


def _running_sums(schedule: Schedule, changes: Changes) -> list[Steps]:
    """Return the running sums of changes per port, one value per distinct time."""
    problem = schedule.problem
    # A stable order by time: of each port it is that of its own changes, too.
    edge, time, change = changes.by_time()

    ports = len(problem.capacities)
    edges = len(problem.hops)
    crosses = np.zeros((ports, edges), dtype=bool)
    for position, hops in enumerate(problem.hops):
        crosses[list(hops), position] = True

    steps = []
    most = problem.links.steps.most
    for port, crosses_port in enumerate(crosses):
        is_here = crosses_port[edge]
        times = time[is_here]
        level = np.cumsum(change[is_here])
        # Sums of differences leave rounding where nothing moves any more.
        rounding = 1e-9 * most[port]
        level[np.abs(level) < rounding] = 0.0

        is_last = np.ones_like(times, dtype=bool)
        is_last[:-1] = times[1:] != times[:-1]
        steps.append((times[is_last], level[is_last]))
    return steps


def edges_by_port(problem: Problem) -> list[list[int]]:
    """Return the edges whose flows cross each port, by position."""
    edges: list[list[int]] = [[] for _ in problem.links]
    for edge, hops in enumerate(problem.hops):
        for port in hops:
            edges[port].append(edge)
    return edges


class LinkContention:
    """The active flows of every port of a schedule; those without bytes not counted."""

    def __init__(self, schedule: Schedule) -> None:
        problem = schedule.problem
        self._hops = problem.hops
        self._steps = problem.links.steps

        self._begun = list[Floats]()
        self._ended = list[Floats]()
        for edges in edges_by_port(problem):
            has_bytes = schedule.flow_bytes[edges] > 0
            starts = schedule.flow_start[edges]
            ends = schedule.flow_end[edges]
            # Sorted each by itself: only their numbers up to a moment are asked for.
            begun = np.sort(starts[has_bytes])
            ended = np.sort(ends[has_bytes])
            self._begun.append(begun)
            self._ended.append(ended)

    def degree(self, port: int, times: Floats) -> Ints:
        """Return the active flows over ``port`` just after each of ``times``."""
        begun = self._begun[port]
        ended = self._ended[port]
        starts = np.searchsorted(begun, times, "right")
        ends = np.searchsorted(ended, times, "right")
        return starts - ends

    @property
    def most(self) -> int:
        """The most flows that were active over one link at a time."""
        most = 0
        for port, starts in enumerate(self._begun):
            # Only a start raises the number.
            degrees = self.degree(port, starts)
            most_of_port = int(degrees.max(initial=0))
            most = max(most, most_of_port)
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
            flows = self.degree(port, moments)
            # Just after a moment the flow itself may be over: a share still is of one
            # flow.
            degree = np.maximum(flows, 1)
            capacity = self._steps.at(port, moments)
            shares.append(capacity / degree)

        tightest = np.argmin(shares, axis=0)
        seconds = []
        for hop in range(len(hops)):
            lengths_as_tightest = lengths[tightest == hop]
            seconds.append(lengths_as_tightest.sum())
        longest = int(np.argmax(seconds))
        return hops[longest]

    def _moments(self, hops: Sequence[int], start: float, end: float) -> Floats:
        """Return when shares of some ports may change, from ``start`` to ``end``."""
        changes = [np.array([start])]
        interval = [start, end]
        for port in hops:
            capacity_changes, _ = self._steps.of(port)
            for times in (self._begun[port], self._ended[port], capacity_changes):
                first, last = np.searchsorted(times, interval, "right")
                changes.append(times[first:last])
        moments = np.concatenate(changes)
        # One that comes twice has no length. np.unique would import numpy.ma: 20 ms.
        return np.sort(moments)


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
    goes_on: Mask
    """True where the next piece is of the same flow."""
    end: Floats
    """When the next piece begins, or the flow ends, seconds."""

    @property
    def first(self) -> Ints:
        """Position of the first piece of every flow."""
        # The last piece of all never goes on: rolled round, it makes the first a first.
        follows = np.roll(self.goes_on, 1)
        return np.flatnonzero(~follows)


def pieces(schedule: Schedule, rates: RateHistory) -> Pieces:
    """Return the pieces of all flows."""
    edge_key = _short(rates.edge)
    iteration_key = _short(rates.iteration)
    order = np.lexsort((iteration_key, edge_key))  # stable: time stays in order
    rows = rates.rows(order)
    edge = rows.edge
    iteration = rows.iteration
    goes_on = np.zeros_like(edge, dtype=bool)
    goes_on[:-1] = edge[1:] == edge[:-1]
    goes_on[:-1] &= iteration[1:] == iteration[:-1]

    # The last piece of a flow lasts until the flow ends.
    end = np.roll(rows.time, -1)
    is_last = ~goes_on
    flows = edge[is_last], iteration[is_last]
    end[is_last] = schedule.flow_end[flows]
    return Pieces(
        schedule=schedule,
        history=rates,
        order=order,
        rates=rows,
        goes_on=goes_on,
        end=end,
    )


def _short(values: Ints) -> Array:
    """Return the same in 16 bits where they fit: a fourth of the time to sort."""
    largest = int(values.max(initial=0))
    shortest_type = np.min_scalar_type(largest)
    return values.astype(shortest_type)


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
    history = _history(schedule)
    split = pieces(schedule, history)
    time = split.rates.time
    rate = split.rates.rate
    flow = split.rates.edge, split.rates.iteration

    # Bytes of a flow that its earlier pieces have carried, by one sum over all flows.
    seconds = split.end - time
    sizes = np.where(split.goes_on, rate * seconds, 0.0)
    carried_bytes = np.cumsum(sizes) - sizes
    first = split.first
    piece_counts = np.diff(first, append=len(time))
    carried_by_others = np.repeat(carried_bytes[first], piece_counts)
    carried_bytes -= carried_by_others
    volume = schedule.flow_bytes[flow]
    missing = np.maximum(volume - carried_bytes, 0.0)

    has_rate = rate > 0
    seconds_left = missing[has_rate] / rate[has_rate]
    arrival = np.full_like(time, np.inf)
    arrival[has_rate] = time[has_rate] + seconds_left
    piece_end = np.where(split.goes_on, split.end, np.inf)
    # Rounding of a long sum must not push the end into the next piece, or out of all.
    rounding = 1e-9 * np.abs(time)
    latest_end = piece_end + rounding
    is_end = np.isfinite(arrival)
    is_end &= arrival <= latest_end

    ends: Floats = np.full_like(schedule.flow_end, np.nan)
    # Later pieces are written first: where rounding names several, the earliest wins.
    latest_first = np.flatnonzero(is_end)[::-1]
    edge = split.rates.edge[latest_first]
    iteration = split.rates.iteration[latest_first]
    ends[edge, iteration] = arrival[latest_first]
    return ends


def fluid_bytes(split: Pieces) -> Floats:
    """Return the bytes that the rates of each (edge, iteration) amount to."""
    rates = split.rates
    fluid = np.zeros_like(split.schedule.flow_end)
    first = split.first
    seconds = split.end - rates.time
    sizes = rates.rate * seconds
    edge = rates.edge[first]
    iteration = rates.iteration[first]
    fluid[edge, iteration] = np.add.reduceat(sizes, first)
    return fluid


def changes_of(split: Pieces) -> Changes:
    """Return the changes of rates, of every row and of every flow's end."""
    rate = split.rates.rate
    last_rate = np.roll(rate, 1)
    last_rate[split.first] = 0.0
    change = np.empty_like(last_rate)
    change[split.order] = rate - last_rate

    # Behind the rows the ends of the flows, at which their rates fall to 0.
    is_last = ~split.goes_on
    edge_of_end = split.rates.edge[is_last]
    time_of_end = split.end[is_last]
    rate_at_end = rate[is_last]
    return Changes(
        path=np.append(split.history.edge, edge_of_end),
        time=np.append(split.history.time, time_of_end),
        change=np.append(change, -rate_at_end),
    )


def _instants(times: Floats, tolerance: float) -> Ints:
    """Return the number of the instant of every time, in the order of time.

    Ends and starts of one instant may differ in the last bits.
    """
    starts = []
    first = 0
    while first < times.size:
        starts.append(first)
        time = times[first]
        rounding = 1e-12 * abs(time)
        limit = time + max(tolerance, rounding)
        first_behind = np.searchsorted(times, limit, side="right")
        first = int(first_behind)

    is_new = np.zeros_like(times, dtype=np.int64)
    is_new[starts[1:]] = 1
    return np.cumsum(is_new)


def _changes_and_losses(split: Pieces) -> Changes:
    """Return the changes, by time: of rates, and of what capacities lose.

    A capacity's loss is summed as the rate of one more flow would be. Its path is
    numbered behind the edges, by port.
    """
    edge, time, change = changes_of(split)
    problem = split.schedule.problem
    losses = problem.links.steps.losses
    loss_time, loss_port, loss = losses.T

    first_path = len(problem.hops)
    loss_path = first_path + loss_port.astype(np.int64)
    changes = Changes(
        path=np.append(edge, loss_path),
        time=np.append(time, loss_time),
        change=np.append(change, loss),
    )
    return changes.by_time()


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
    changes = _changes_and_losses(split)
    instant = _instants(changes.time, tolerance)
    is_new = np.diff(instant, prepend=-1) > 0
    begin = changes.time[is_new]
    problem = split.schedule.problem
    ports_by_hop = _ports_by_hop(problem)
    ports = len(problem.links)

    # The excess over capacity after the instants so far, and the most it ever was.
    level = -problem.links.capacities
    peak = level.copy()
    peak_time = np.zeros_like(peak)
    instants_of_block = max(_BLOCK // max(ports, 1), 1)
    for first in range(0, begin.size, instants_of_block):
        bounds = [first, first + instants_of_block]
        start, end = np.searchsorted(instant, bounds)
        steps = _steps_of_ports(
            changes.path[start:end],
            changes.change[start:end],
            instant[start:end] - first,
            ports_by_hop,
            ports,
        )
        loads = level + np.cumsum(steps, axis=0)
        worst = np.argmax(loads, axis=0)
        most = loads[worst, np.arange(ports)]
        worst_time = begin[first + worst]

        is_higher = most > peak
        peak_time = np.where(is_higher, worst_time, peak_time)
        peak = np.maximum(most, peak)
        level = loads[-1]

    peaks = peak.tolist()
    times = peak_time.tolist()
    return list(zip(peaks, times, strict=True))


def _steps_of_ports(
    path: Ints,
    change: Floats,
    instant: Ints,
    ports_by_hop: Sequence[Ints],
    ports: int,
) -> Floats:
    """Return by how much the load of each port steps up at each instant, in B/s.

    ``path``, ``change`` and ``instant`` have a row per change; instants count from 0.
    """
    # The last column has what paths of fewer hops would add beyond their last.
    columns = ports + 1
    shape = (int(instant[-1]) + 1, columns)
    steps = np.zeros(shape)
    for port_of_path in ports_by_hop:
        port = port_of_path[path]
        cell = instant * columns + port
        steps_of_hop = np.bincount(cell, change, steps.size)
        steps += steps_of_hop.reshape(shape)
    return steps[:, :ports]
