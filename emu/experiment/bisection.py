"""Where something changes as a figure grows: bisection by ratios, one precision."""

from __future__ import annotations

import math
from collections.abc import Callable

#: A figure is tried from a sixteenth to sixteen times as much.
WIDE = 16.0
#: Neighbours differ by less than this share: 9 steps over 16 times and a 16th.
CLOSE = 0.01


def middle(low: float, high: float, *, whole: bool) -> float | None:
    """Return a value between two positive ones; None where they are neighbours.

    ``whole``: whether only whole numbers are meant, which are neighbours next to each
    other. Others are where they differ by less than `CLOSE`.
    """
    if whole:
        if high - low <= 1:
            return None
        # By ratios, as a figure is tried over two powers of ten.
        root = math.isqrt(int(low) * int(high))
        # The root of neighbours but one may be `low` itself, and nothing would move.
        return max(root, low + 1)
    if high / low <= 1 + CLOSE:
        return None
    return math.sqrt(low * high)


def bisect(
    low: float,
    high: float,
    is_low: Callable[[float], bool],
    *,
    whole: bool = False,
) -> tuple[float, float]:
    """Return neighbours between which a condition changes.

    ``is_low`` holds at ``low`` and does not hold at ``high``; of several changes
    between them one is found.
    """
    while (value := middle(low, high, whole=whole)) is not None:
        if is_low(value):
            low = value
        else:
            high = value
    return low, high
