"""Lanes: bars that overlap in time are drawn beside each other."""

from __future__ import annotations

import base64
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray  # noqa: TC002 - NamedTuple reads annotations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emu.problem import Schedule


def pack_lanes(
    start: NDArray[np.float64], end: NDArray[np.float64]
) -> tuple[NDArray[np.int64], int]:
    """Return a lane per bar such that bars of one lane do not overlap, and how many.

    A bar takes the lowest lane that is free, in the order of starts: as few lanes as
    bars ever overlap.

    Parameters
    ----------
    start, end
        Seconds, shape (bars,).
    """
    lanes = np.zeros(len(start), dtype=np.int64)
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    count = 0
    for bar in np.lexsort((end, start)).tolist():
        while busy and busy[0][0] <= start[bar]:
            heappush(free, heappop(busy)[1])
        if free:
            lane = heappop(free)
        else:
            lane, count = count, count + 1
        lanes[bar] = lane
        heappush(busy, (float(end[bar]), lane))
    return lanes, count


def pack_lanes_per_group(
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    group: NDArray[np.int64],
    groups: int,
) -> tuple[NDArray[np.int64], list[int]]:
    """Return `pack_lanes` of every group, and the number of lanes of each."""
    lanes = np.zeros(len(start), dtype=np.int64)
    counts = []
    for number in range(groups):
        members = np.flatnonzero(group == number)
        lanes[members], count = pack_lanes(start[members], end[members])
        counts.append(count)
    return lanes, counts


class Crossings(NamedTuple):
    """Every flow at every link that it crosses, and its lane there."""

    flow: NDArray[np.int64]
    """Position in `Schedule.flows`."""
    port: NDArray[np.int64]
    lane: NDArray[np.int64]
    """The link, and which of its lanes."""
    lanes: list[int]
    """Number of lanes of every link."""


def crossings(schedule: Schedule) -> Crossings:
    """Return the lanes of all flows, in the order of the flows and of their routes."""
    flows, hops = schedule.flows(), schedule.problem.hops
    at = tuple(flows.T)
    port = np.array([p for e in flows[:, 0].tolist() for p in hops[e]], dtype=np.int64)
    count = np.array([len(hops[e]) for e in flows[:, 0].tolist()], dtype=np.int64)
    flow = np.repeat(np.arange(len(flows)), count)
    lane, lanes = pack_lanes_per_group(
        schedule.flow_start[at][flow],
        schedule.flow_end[at][flow],
        port,
        len(schedule.problem.links),
    )
    return Crossings(flow, port, lane, lanes)


def packed(values: NDArray[Any] | Sequence[float], dtype: str) -> str:
    """Return numbers as base64 of little-endian ``dtype``: a third of their JSON."""
    with np.errstate(over="ignore"):  # 1e300 s of a damaged run: drawn as without end
        array = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(array.tobytes()).decode("ascii")
