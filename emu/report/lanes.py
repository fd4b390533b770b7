"""Lanes: where bars that overlap in time are drawn below each other."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def lanes(start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return a lane for every interval, as few as possible, low ones first.

    Intervals that only touch share a lane. O(n log n): the free lane with the lowest
    number takes the next interval.
    """
    lane = np.zeros(len(start), dtype=np.int64)
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    used = 0
    for i in np.lexsort((end, start)).tolist():
        while busy and busy[0][0] <= start[i]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            free.append(used)
            used += 1
        lane[i] = heapq.heappop(free)
        heapq.heappush(busy, (float(end[i]), int(lane[i])))
    return lane
