"""Leaky buckets, which say when a link carries more than its capacity allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.analysis.link_load import best_sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class Overflow(NamedTuple):
    """A bucket that overflowed.

    ``at``: the first instant, seconds. ``most``, ``since``, ``until``: the most bytes
    beyond capacity times length of any interval, and that interval.
    """

    at: float
    most: float
    since: float
    until: float


def of_flows(
    start: Floats, end: Floats, sent: Floats, capacity: float, depth: float
) -> Overflow | None:
    """Return how flows overflow a link, None when they fit.

    In every interval the flows that lie in it as a whole may bring no more bytes than
    the link carries in that time, and ``depth`` once. What is late never breaks this:
    every excess is certain.

    Parameters
    ----------
    start, end
        Of every flow: when it could begin, and when its last byte was there, seconds.
    sent
        Bytes of every flow.
    capacity
        Bytes per second.
    depth
        Bytes that may be ahead.
    """
    if not sent.size:
        return None
    order = np.argsort(end, kind="stable")
    start, end, sent = start[order], end[order], sent[order]
    place = np.empty(start.size, dtype=np.int64)
    place[np.argsort(-start, kind="stable")] = np.arange(start.size)
    # Of all intervals that end with this flow, the one that is the most over.
    excess = best_sums(place, sent, sent + capacity * start) - capacity * end
    # Sums of many volumes and products of large times are exact to some last bits only.
    rounding = 1e-9 * (sent + capacity * (end - start)) + 1e-12 * capacity * end
    over = np.flatnonzero(excess > depth + rounding)
    if not over.size:
        return None
    worst = int(np.argmax(excess))
    since = _begin(start[: worst + 1], sent[: worst + 1], capacity)
    return Overflow(float(end[over[0]]), float(excess[worst]), since, float(end[worst]))


def _begin(start: Floats, sent: Floats, capacity: float) -> float:
    """Return where the interval begins that these flows overfill the most."""
    latest_first = np.argsort(-start, kind="stable")
    excess = np.cumsum(sent[latest_first]) + capacity * start[latest_first]
    return float(start[latest_first[int(np.argmax(excess))]])
