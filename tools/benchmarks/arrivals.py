"""What the times of received chunks say of a rate, and of a port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def window_errors(
    times: NDArray[np.float64],
    sizes: NDArray[np.int64],
    *,
    rate: float,
    span: tuple[float, float],
    width: float,
    step: float,
) -> NDArray[np.float64]:
    """Return bytes per window over what the rate would bring, less 1; shape (windows,).

    Windows are half open, begin ``step`` apart and lie within ``span``: they overlap
    where ``step`` is the shorter.

    Parameters
    ----------
    times, sizes
        When each chunk was received (seconds, rising) and its bytes, shape (chunks,).
    rate
        Bytes per second.
    span
        Where the rate was assigned, seconds.
    width, step
        Seconds.
    """
    first, last = span
    count = int((last - first - width) / step + 1e-9) + 1
    begin = first + step * np.arange(max(count, 0))
    received = np.concatenate([[0], np.cumsum(sizes)])
    ends = received[np.searchsorted(times, begin + width)]
    found: NDArray[np.float64] = (ends - received[np.searchsorted(times, begin)]) / (
        rate * width
    ) - 1.0
    return found
