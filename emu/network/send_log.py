"""When every shaped frame of a process left, and why not earlier."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from emu.network.clock import RunClock

#: Frames kept, the newest: what one control message may carry.
_MOST = 15_000


class SendLog:
    """Rows of edge, iteration and what `note` takes."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float, ...]] = deque(maxlen=_MOST)

    def note(
        self,
        edge: int,
        iteration: int,
        *,
        finished: float,
        queued: float,
        informed: float,
        lag: float,
    ) -> None:
        """Add a frame, all in wall seconds.

        Parameters
        ----------
        finished, queued
            When the last byte was in the kernel; when the payload was there to send.
        informed
            When the frame's newest line was first seen.
        lag
            How late the alarm rang that sent the last byte.
        """
        self._rows.append((edge, iteration, finished, queued, informed, lag))

    def packed(self, clock: RunClock) -> bytes:
        """Return the rows in emulated seconds, as little-endian float64."""
        rows = np.array(self._rows, dtype="<f8").reshape(-1, 6)
        rows[:, 2:5] = clock.run_times(rows[:, 2:5])
        rows[:, 5] /= clock.time_scale
        return rows.tobytes()
