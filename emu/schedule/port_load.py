"""What a schedule puts on its ports, by its rates or by its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.schedule.schedule import RateHistory, Schedule


def _rows(rates: RateHistory) -> dict[tuple[int, int], list[int]]:
    """Return the rows of every (edge, iteration), in the order of time."""
    rows: dict[tuple[int, int], list[int]] = {}
    for row, flow in enumerate(zip(rates.edge, rates.iteration, strict=True)):
        rows.setdefault((int(flow[0]), int(flow[1])), []).append(row)
    return rows


def fluid_bytes(schedule: Schedule, rates: RateHistory) -> dict[tuple[int, int], float]:
    """Return the bytes that the rates of each (edge, iteration) amount to."""
    return {
        flow: float(
            rates.rate[rows] @ np.diff([*rates.time[rows], schedule.flow_end[flow]])
        )
        for flow, rows in _rows(rates).items()
    }


def _changes(
    schedule: Schedule, rates: RateHistory, tolerance: float
) -> Iterator[tuple[float, list[tuple[int, float]]]]:
    """Yield every instant with the changes of rate per edge, ends included."""
    events: list[tuple[float, int, float]] = []
    for flow, rows in _rows(rates).items():
        times = [*rates.time[rows], schedule.flow_end[flow]]
        changes = np.diff([0.0, *rates.rate[rows], 0.0])
        events += [
            (float(time), flow[0], float(change))
            for time, change in zip(times, changes, strict=True)
        ]
    events.sort()
    first = 0
    while first < len(events):
        time, last = events[first][0], first
        # Ends and starts of one instant may differ in the last bits.
        limit = time + max(tolerance, 1e-12 * abs(time))
        while last < len(events) and events[last][0] <= limit:
            last += 1
        yield time, [(edge, change) for _, edge, change in events[first:last]]
        first = last


def peak_loads(
    schedule: Schedule, rates: RateHistory, tolerance: float
) -> list[tuple[float, float]]:
    """Return the largest summed rate over every port, B/s, and when it occurs.

    Changes within ``tolerance`` seconds count as one instant.
    """
    ports = len(schedule.problem.capacities)
    load, worst, when = np.zeros(ports), np.zeros(ports), np.zeros(ports)
    for time, changes in _changes(schedule, rates, tolerance):
        for edge, change in changes:
            load[list(schedule.problem.hops[edge])] += change
        worse = load > worst
        worst[worse], when[worse] = load[worse], time
    return list(zip(worst.tolist(), when.tolist(), strict=True))


def worst_interval(
    schedule: Schedule, port: int, capacity: float, tolerance: float
) -> tuple[float, float, float]:
    """Return the most bytes over capacity in an interval, and the interval.

    Counted are the flows that lie in the interval as a whole, so that any excess is
    certain. It runs from some flow's start to some flow's end and is stretched by
    ``tolerance`` seconds.
    """
    hops = schedule.problem.hops
    flows = np.array(
        [flow for flow in schedule.flows() if port in hops[flow[0]]], dtype=np.int64
    ).reshape(-1, 2)
    place = flows[:, 0], flows[:, 1]
    order = np.argsort(schedule.flow_end[place], kind="stable")
    start = schedule.flow_start[place][order]
    end = schedule.flow_end[place][order]
    sent = schedule.flow_bytes[place][order]
    worst = (0.0, 0.0, 0.0)
    for since in np.unique(start):
        inside = start >= since
        carried = np.cumsum(sent[inside])
        excess = carried - capacity * (end[inside] - since + tolerance)
        # A sum of many volumes is itself exact to some last bits only.
        if excess.size and excess.max() > worst[0] + 1e-12 * carried[-1]:
            at = int(np.argmax(excess))
            worst = (float(excess[at]), float(since), float(end[inside][at]))
    return worst
