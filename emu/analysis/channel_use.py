"""Who held a channel, and whose turn it was: for any Schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.analysis.violation import flow_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from emu.problem import Problem, Schedule

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


class Line(NamedTuple):
    """The flows of a channel between machines, in the order in which they got ready.

    Parameters
    ----------
    channel
        Its name.
    edge, iteration
        Of every flow; of those ready together, by what they serve, then by name.
    """

    channel: str
    edge: Ints
    iteration: Ints


def lines(problem: Problem, ready: Floats) -> Iterator[Line]:
    """Yield the line of every channel.

    Parameters
    ----------
    ready
        When (edge, iteration) got ready, seconds; NaN where nothing is sent.
    """
    job = problem.job
    ranks = np.array(job.edge_ranks, dtype=np.int64)
    lags = np.array([edge.lag for edge in job.edges], dtype=np.int64)
    for channel in job.channels:
        over = [
            bool(hops) and edge.channel == channel
            for edge, hops in zip(job.edges, problem.hops, strict=True)
        ]
        edge, n = np.nonzero(np.array(over)[:, None] & ~np.isnan(ready))
        order = np.lexsort((ranks[edge], n + lags[edge], ready[edge, n]))
        yield Line(channel, edge[order], n[order])


def channel_faults(
    schedule: Schedule, tolerance: float
) -> Iterator[tuple[str, float, str, str]]:
    """Yield flow, amount, unit and sentence of every turn that was not kept.

    No flow starts before the one ends that went before it on its channel, and none
    before a flow that got ready earlier.

    Parameters
    ----------
    tolerance
        Seconds by which a time may be off.
    """
    job = schedule.problem.job
    for channel, edges, iterations in lines(schedule.problem, schedule.flow_ready):
        # Of equal starts those without bytes went first: times of readiness that are
        # equal but for rounding do not say which stood before which.
        ends = schedule.flow_end[edges, iterations]
        order = np.lexsort((ends, schedule.flow_start[edges, iterations]))
        edge, n = edges[order], iterations[order]
        start, end = schedule.flow_start[edge, n], schedule.flow_end[edge, n]
        ready = schedule.flow_ready[edge, n]
        busy = np.maximum.accumulate(end)[:-1] - start[1:]
        # The least readiness among all that start later than each.
        least = np.minimum.accumulate(ready[::-1])[::-1][1:]
        for off, first, words in (
            (busy, 1, "started while another flow was under way"),
            (ready[:-1] - least, 0, "started before one that got ready earlier"),
        ):
            slack = tolerance + 1e-12 * np.abs(start[1:])
            for i in np.flatnonzero(off > slack).tolist():
                name = flow_name(job, int(edge[i + first]), int(n[i + first]))
                yield name, float(off[i]), "s", f"{name} {words} on channel {channel}"
