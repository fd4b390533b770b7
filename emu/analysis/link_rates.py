"""The rate through every port over time: assigned, or the mean of what moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import RateHistory, Schedule

    Steps = tuple[NDArray[np.float64], NDArray[np.float64]]


def assigned_rates(schedule: Schedule) -> list[Steps] | None:
    """Return per port the times and the sums of assigned rates from then on.

    None when the schedule has no rate history.
    """
    history = schedule.rates
    return None if history is None else _summed(schedule, *_changes(schedule, history))


def peak_rate(schedule: Schedule) -> float:
    """Return the greatest sum of the assigned rates of all flows, bytes per second.

    Raises
    ------
    ValueError
        When the schedule has no rate history.
    """
    if schedule.rates is None:
        raise ValueError("the schedule holds no rates")
    _, time, change = _changes(schedule, schedule.rates)
    # What ends at a moment makes room for what begins then.
    order = np.lexsort((change, time))
    return float(np.cumsum(change[order]).max(initial=0.0))


def _changes(
    schedule: Schedule, history: RateHistory
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return edge, time and change of rate, of every piece of every flow."""
    order = np.lexsort((history.time, history.iteration, history.edge))
    edge, iteration = history.edge[order], history.iteration[order]
    time, rate = history.time[order], history.rate[order]
    first = np.ones(len(edge), dtype=bool)
    first[1:] = (edge[1:] != edge[:-1]) | (iteration[1:] != iteration[:-1])
    last = np.roll(first, -1)
    before = np.where(first, 0.0, np.roll(rate, 1))
    ends = schedule.flow_end[edge[last], iteration[last]]
    return (
        np.concatenate([edge, edge[last]]),
        np.concatenate([time, np.maximum(ends, time[last])]),
        np.concatenate([rate - before, -rate[last]]),
    )


def mean_rates(schedule: Schedule) -> list[Steps]:
    """Return per port the times and the sums of bytes / duration of what is moving."""
    flows = schedule.flows()
    at = tuple(flows.T)
    start, end = schedule.flow_start[at], schedule.flow_end[at]
    moving = end > start
    rate = schedule.flow_bytes[at][moving] / (end - start)[moving]
    edge = flows[moving, 0]
    return _summed(
        schedule,
        np.concatenate([edge, edge]),
        np.concatenate([start[moving], end[moving]]),
        np.concatenate([rate, -rate]),
    )


def _summed(
    schedule: Schedule,
    edge: NDArray[np.int64],
    time: NDArray[np.float64],
    change: NDArray[np.float64],
) -> list[Steps]:
    """Return the running sums of ``change`` per port, one value per distinct time."""
    problem = schedule.problem
    ports = range(len(problem.capacities))
    crossing = np.zeros((len(ports), len(problem.hops)), dtype=bool)
    for position, hops in enumerate(problem.hops):
        crossing[list(hops), position] = True
    steps = []
    for port in ports:
        here = crossing[port][edge] if len(edge) else np.zeros(0, dtype=bool)
        order = np.argsort(time[here], kind="stable")
        times = time[here][order]
        level = np.cumsum(change[here][order])
        kept = np.append(times[1:] != times[:-1], np.ones(min(len(times), 1), bool))
        # Sums of differences leave rounding where nothing moves any more.
        level[np.abs(level) < 1e-9 * problem.capacities[port]] = 0.0
        steps.append((times[kept], level[kept]))
    return steps
