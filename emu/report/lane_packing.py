"""Lanes: bars that overlap in time are drawn beside each other."""

from __future__ import annotations

import base64
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


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


def packed(values: NDArray[Any] | Sequence[float], dtype: str) -> str:
    """Return numbers as base64 of little-endian ``dtype``: a third of their JSON."""
    array = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(array.tobytes()).decode("ascii")
