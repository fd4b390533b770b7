"""Shares of flows: what they carried over what max-min rates would have meanwhile.

Max-min rates of the flows that are under way at each moment say what a flow would have
carried while it lasted. Where a network shares max-min all shares are 1. On kernel NICs
with one queue (Linux 6.18, reno) two connections of the golden job had 0.31 and 1.42,
and its makespan was 9 % longer without a loss: a connection keeps in the queue of its
machine what it sends in 1 ms at the rate that its window allows, and the window of one
that has sent for longer is larger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from emu.problem import Schedule


def shares_of_max_min(
    schedule: Schedule, flows: Collection[tuple[int, int]]
) -> dict[tuple[int, int], tuple[float, float]]:
    """Return bytes that flows carried, and those of max-min rates while they lasted.

    Parameters
    ----------
    flows
        (Edge, iteration) of flows between machines. With them come those that were
        under way beside them on one of their links.

    Notes
    -----
    O(moments of these flows * links * flows under way).
    """
    every = schedule.flows()
    every = every[(schedule.flow_end > schedule.flow_start)[tuple(every.T)]]
    at = tuple(every.T)
    start, end = schedule.flow_start[at], schedule.flow_end[at]
    crosses = np.zeros((len(schedule.problem.links), len(every)))
    for number, edge in enumerate(every[:, 0].tolist()):
        crosses[[*schedule.problem.hops[edge]], number] = 1.0
    wanted = np.zeros(len(every), dtype=bool)
    for number, flow in enumerate(every.tolist()):
        if tuple(flow) in flows:
            beside = (start < end[number]) & (end > start[number])
            wanted |= beside & (crosses[:, number] @ crosses > 0)
    fair = np.zeros(len(every))
    changes = schedule.problem.links.steps.rows[:, 0]
    moments = np.unique(np.concatenate([start, end, changes]))
    begun = np.searchsorted(np.sort(start[wanted]), moments[:-1], side="right")
    over = np.searchsorted(np.sort(end[wanted]), moments[:-1], side="right")
    for number in np.flatnonzero(begun > over).tolist():
        moment, until = moments[number : number + 2]
        active = np.flatnonzero((start <= moment) & (end >= until))
        rates = _max_min(crosses[:, active], _capacities(schedule, float(moment)))
        fair[active] += rates * (until - moment)
    return {
        (edge, n): (float(schedule.flow_bytes[edge, n]), float(fair[number]))
        for number, (edge, n) in enumerate(every.tolist())
        if wanted[number] and fair[number] > 0
    }


def _capacities(schedule: Schedule, moment: float) -> NDArray[np.float64]:
    """Return bytes/s of every link from a moment on."""
    links = schedule.problem.links
    if not len(links.steps.rows):
        return links.capacities
    now = np.array([moment])
    return np.array([links.steps.at(port, now)[0] for port in range(len(links))])


def _max_min(
    crosses: NDArray[np.float64], capacity: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return max-min rates by progressive filling.

    Parameters
    ----------
    crosses
        1 where a flow crosses a link, else 0, shape (links, flows).
    capacity
        Bytes per second, shape (links,).

    References
    ----------
    Bertsekas and Gallager, Data Networks, 1992, section 6.5.2.
    """
    rates = np.zeros(crosses.shape[1])
    rising = np.ones(crosses.shape[1], dtype=bool)
    while rising.any():
        count = crosses[:, rising].sum(axis=1)
        left = capacity - crosses[:, ~rising] @ rates[~rising]
        level = np.full(len(capacity), np.inf)
        np.divide(np.maximum(left, 0.0), count, out=level, where=count > 0)
        narrowest = int(np.argmin(level))
        full = rising & (crosses[narrowest] > 0)
        rates[full] = level[narrowest]
        rising &= ~full
    return rates
