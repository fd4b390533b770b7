"""Bytes that max-min rates would carry of flows while these lasted, by arrays.

The slow oracle (`emu.trust.rate_rules.maxmin`) solves one instant after the other. Here
all instants of a stretch of time are solved at once: 20,000 flows take a second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import reduce
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

import numpy as np

from emu.array_types import Floats, Ints, Mask
from emu.problem import Schedule

#: Edge and iteration.
Flow: TypeAlias = tuple[int, int]

#: Flows under way, summed over the instants that are solved at once: what the arrays
#: need then stays in a cache of some megabytes.
_AT_ONCE = 100_000


def shares_of_max_min(
    schedule: Schedule, flows: Collection[Flow]
) -> dict[Flow, tuple[float, float]]:
    """Return bytes that flows carried, and those of max-min rates while they lasted.

    Where a network shares max-min both are equal. On kernel NICs with one queue (Linux
    6.18, reno) two connections of the golden job had 0.31 and 1.42 of it, and its
    makespan was 9 % longer without a loss: a connection keeps in the queue of its
    machine what it sends in 1 ms at the rate that its window allows, and the window of
    one that has sent for longer is larger.

    ``flows``: between machines. With them come those that were under way beside them on
    one of their links.
    """
    crossings = _Crossings.of(schedule)
    rows = []
    for row, flow in enumerate(crossings.flows):
        if flow in flows:
            rows.append(row)
    is_asked = crossings.mark_neighbours(rows)
    if not is_asked.any():
        return {}

    fair = np.zeros(len(crossings.flows))
    for stretch in _stretches(schedule, crossings, is_asked):
        rates = _max_min_rates(stretch)
        seconds = stretch.seconds[stretch.instant]
        carried = rates * seconds
        fair += np.bincount(stretch.row, carried, len(fair))

    # A share of no bytes at all cannot be compared.
    is_compared = is_asked & (fair > 0)
    shares = {}
    for row in np.flatnonzero(is_compared).tolist():
        flow = crossings.flows[row]
        carried_bytes = float(schedule.flow_bytes[flow])
        fair_bytes = float(fair[row])
        shares[flow] = carried_bytes, fair_bytes
    return shares


class _Crossings(NamedTuple):
    """Flows that took time, and the links that they cross."""

    flows: list[Flow]
    start: Floats
    end: Floats
    port: Ints
    """Links of each flow, shape (longest path, flows): behind the last of a shorter
    path stands `no_link`."""
    no_link: int
    """Number of links."""

    @classmethod
    def of(cls, schedule: Schedule) -> _Crossings:
        """Return the flows of a schedule."""
        problem = schedule.problem
        flows = schedule.flows()
        edge, iteration = flows.T
        start = schedule.flow_start[edge, iteration]
        end = schedule.flow_end[edge, iteration]
        takes_time = end > start

        no_link = len(problem.links)
        hops = list(zip_longest(*problem.hops, fillvalue=no_link))
        shape = (len(hops), len(problem.hops))
        port_of_edge = np.array(hops, np.int64).reshape(shape)
        port = port_of_edge[:, edge]
        rows = flows[takes_time].tolist()
        return cls(
            flows=[(edge, iteration) for edge, iteration in rows],
            start=start[takes_time],
            end=end[takes_time],
            port=port[:, takes_time],
            no_link=no_link,
        )

    def mark_neighbours(self, rows: list[int]) -> Mask:
        """Return which flows met one of ``rows`` on a link, these among them."""
        is_neighbour = np.zeros(len(self.flows), np.bool_)
        for row in rows:
            ports = self.port[:, row]
            links = ports[ports < self.no_link]
            is_crossed = np.isin(self.port, links)
            shares_link = is_crossed.any(axis=0)
            begins_before = self.start < self.end[row]
            ends_after = self.end > self.start[row]
            is_neighbour |= shares_link & begins_before & ends_after
        return is_neighbour


class _Stretch(NamedTuple):
    """Instants between which nothing changes, and the flows that are under way."""

    seconds: Floats
    """Length of each instant."""
    capacity: Floats
    """Bytes per second of links, shape (instants, links + 1): no link has no end."""
    row: Ints
    """Which flow, for each flow of each instant."""
    instant: Ints
    """Which instant, likewise."""
    port: Ints
    """Its links, shape (longest path, flows of instants)."""


def _stretches(
    schedule: Schedule,
    crossings: _Crossings,
    is_asked: Mask,
) -> Iterator[_Stretch]:
    """Yield the instants in which a flow that is asked for is under way."""
    links = schedule.problem.links
    steps = links.steps
    # Rates change only where a flow begins or ends, or a link changes.
    changes = steps.rows[:, 0]
    times = np.concatenate([crossings.start, crossings.end, changes])
    moments = np.unique(times)
    # The last moment is an end, where nobody is under way, or a change behind it.
    seconds = np.diff(moments, append=moments[-1])

    begin = np.searchsorted(moments, crossings.start)
    stop = np.searchsorted(moments, crossings.end)
    parts = _split_instants(
        begin,
        stop,
        is_asked,
        count=len(moments),
    )
    for instants in parts:
        shape = (len(instants), len(links) + 1)
        capacity = np.full(shape, np.inf)
        begins = moments[instants]
        for port in range(len(links)):
            capacity[:, port] = steps.at(port, begins)

        low = np.searchsorted(instants, begin)
        high = np.searchsorted(instants, stop)
        length = high - low
        rows = np.arange(len(low))
        row = np.repeat(rows, length)
        row_start = np.cumsum(length) - length
        place_in_row = np.arange(len(row)) - row_start[row]
        yield _Stretch(
            seconds=seconds[instants],
            capacity=capacity,
            row=row,
            instant=low[row] + place_in_row,
            port=crossings.port[:, row],
        )


def _split_instants(
    begin: Ints,
    stop: Ints,
    is_asked: Mask,
    count: int,
) -> list[Ints]:
    """Return the instants in which a flow that is asked for is under way, in parts."""
    asked_counts = _count_between(
        begin=begin[is_asked],
        stop=stop[is_asked],
        count=count,
    )
    flow_counts = _count_between(begin, stop, count)
    needed = np.flatnonzero(asked_counts)

    load = np.cumsum(flow_counts[needed])
    part = load // _AT_ONCE
    is_cut = np.diff(part) > 0
    cuts = np.flatnonzero(is_cut) + 1
    return np.split(needed, cuts)


def _count_between(begin: Ints, stop: Ints, count: int) -> Ints:
    """Return how many of the ranges from ``begin`` to ``stop`` cover each place."""
    begins = np.bincount(begin, minlength=count)
    stops = np.bincount(stop, minlength=count)
    return np.cumsum(begins - stops)


def _max_min_rates(stretch: _Stretch) -> Floats:
    """Return the max-min rate of every flow in every instant.

    Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5) in rounds:
    a link of which all rising flows have no lower level elsewhere is their bottleneck,
    whatever the order of links, so that all such links of a round are filled at once.
    """
    # One cell for each link in each instant. Hop by hop: arrays of one dimension are
    # twice as fast, and `at` of numpy 2 reads beyond values that it has to broadcast.
    free = stretch.capacity.ravel()
    _, columns = stretch.capacity.shape
    first_cell = stretch.instant * columns
    hop_cells = [ports + first_cell for ports in stretch.port]
    rising = np.zeros(free.size)
    for cell in hop_cells:
        rising += np.bincount(cell, minlength=free.size)

    rates = np.zeros(len(stretch.row))
    flow = np.arange(len(rates))
    while flow.size:
        # What is settled may exceed a full link by rounding.
        np.maximum(free, 0.0, out=free)
        levels = [free[cell] / rising[cell] for cell in hop_cells]
        least = reduce(np.minimum, levels)
        rises_on = _mark_rising(hop_cells, levels, least, cells=free.size)

        settled_place = np.flatnonzero(~rises_on)
        settled_rate = least[settled_place]
        rates[flow[settled_place]] = settled_rate
        for cell in hop_cells:
            settled_cell = cell[settled_place]
            np.subtract.at(free, settled_cell, settled_rate)
            np.subtract.at(rising, settled_cell, 1.0)

        rising_place = np.flatnonzero(rises_on)
        flow = flow[rising_place]
        hop_cells = [cell[rising_place] for cell in hop_cells]
    return rates


def _mark_rising(
    hop_cells: Sequence[Ints],
    levels: Sequence[Floats],
    least: Floats,
    *,
    cells: int,
) -> Mask:
    """Return which flows have no bottleneck on their way yet.

    ``hop_cells`` are the cells of all flows at each of their hops, ``levels`` those of
    the cells, and ``least`` is the lowest level on the way of each flow.
    """
    # No bottleneck is where one of its flows has a lower level elsewhere.
    is_open = np.zeros(cells, np.bool_)
    for cell, level in zip(hop_cells, levels, strict=True):
        is_above = level > least
        open_cell = cell[is_above]
        is_open[open_cell] = True

    rises_on = np.ones(len(least), np.bool_)
    for cell in hop_cells:
        rises_on &= is_open[cell]
    return rises_on
