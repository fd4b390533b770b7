"""What waits for a core at each moment: a queue that serves a known demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class CpuQueue:
    """A queue without limit, by Lindley's recursion.

    Parameters
    ----------
    moments
        Wall seconds at which something is asked for, ascending, shape (moments,).
    service
        Wall seconds that all cores together need for it, same shape.
    """

    def __init__(
        self, moments: NDArray[np.float64], service: NDArray[np.float64]
    ) -> None:
        asked = np.cumsum(service)
        free = np.minimum.accumulate(np.minimum(asked - service - moments, 0.0))
        self._moments = moments
        self.backlog = np.asarray(asked - moments - free)
        """What is not yet served just after each moment, same shape."""

    def at(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what is not yet served at these wall seconds, any shape."""
        last = np.searchsorted(self._moments, times, "right") - 1
        left = self.backlog[last] - (times - self._moments[last])
        return np.where(last < 0, 0.0, np.maximum(left, 0.0))
