"""The rate through every port over time: assigned, or the mean of what moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.analysis.link_load import changes_of, pieces

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
    """Return edge, time and change of rate; nothing ends before its last change."""
    of = pieces(schedule, history)
    return changes_of(of._replace(end=np.maximum(of.end, of.rates.time)))


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
        level[np.abs(level) < 1e-9 * problem.links.steps.most[port]] = 0.0
        steps.append((times[kept], level[kept]))
    return steps


class LinkContention:
    """The active flows of every port of a schedule; flows without bytes do not count.

    Parameters
    ----------
    schedule
        Finished, simulated or emulated.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._hops = schedule.problem.hops
        self._steps = schedule.problem.links.steps
        ports = range(len(schedule.problem.links))
        begun: list[list[NDArray[np.float64]]] = [[] for _ in ports]
        ended: list[list[NDArray[np.float64]]] = [[] for _ in ports]
        for edge, hops in enumerate(self._hops):
            moving = schedule.flow_bytes[edge] > 0
            for port in hops:
                begun[port].append(schedule.flow_start[edge, moving])
                ended[port].append(schedule.flow_end[edge, moving])
        self._begun = [_sorted(times) for times in begun]
        self._ended = [_sorted(times) for times in ended]

    def degree(self, port: int, times: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the active flows over ``port`` just after each of ``times``."""
        return np.searchsorted(self._begun[port], times, "right") - np.searchsorted(
            self._ended[port], times, "right"
        )

    @property
    def most(self) -> int:
        """The most flows that were active over one link at a time."""
        degrees = (self.degree(port, begun) for port, begun in enumerate(self._begun))
        return max((int(found.max(initial=0)) for found in degrees), default=0)

    def bottleneck(self, edge: int, start: float, end: float) -> int:
        """Return the port that gives the flows of ``edge`` least, -1 within a machine.

        Least is the smallest capacity per active flow, for most of the time from
        ``start`` to ``end``; of equal ports the first that the flow crosses. Under
        ``oes`` this is exactly what limits the flow (Algorithm 1 of the paper).
        """
        hops = self._hops[edge]
        if not hops:
            return -1
        changes = [np.array([start])]
        for port in hops:
            changed, _ = self._steps.of(port)
            for times in (self._begun[port], self._ended[port], changed):
                first, last = np.searchsorted(times, [start, end], "right")
                changes.append(times[first:last])
        moments = np.unique(np.concatenate(changes))
        lengths = np.diff(np.append(moments, max(end, moments[-1])))
        share = np.array(
            [
                self._steps.at(p, moments) / np.maximum(self.degree(p, moments), 1)
                for p in hops
            ]
        )  # (hops, moments)
        tightest = np.argmin(share, axis=0)
        held = [lengths[tightest == place].sum() for place in range(len(hops))]
        return hops[int(np.argmax(held))]


def _sorted(times: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.sort(np.concatenate(times)) if times else np.empty(0)
