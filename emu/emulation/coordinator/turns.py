"""Turns of the coordinator's loop that took long, or began late for want of a core."""

from __future__ import annotations

from io import BufferedReader
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emu.emulation.network.clock import RunClock
from emu.host.this_host import this_host
from emu.prediction.core import lib

#: Wall seconds from which a turn, or a wait before it, is kept.
_SHORT = 1e-3
#: Wall seconds of a turn up to which the waits within it count as before the next one:
#: to read them takes 1.5 us, and they are no longer than the turn.
_BRIEF = 5e-5
_SCHEDSTAT = Path("/proc/thread-self/schedstat")


class TurnLog:
    """Notes when the loop was at work, and for how long it had no core.

    To be used in one thread. Where the host does not count waits they are 0.
    """

    def __init__(self) -> None:
        self._file: BufferedReader | None = None
        self._fd = -1
        self._rows: list[tuple[float, float, float, float]] = []
        self._waited = 0.0
        self._before = 0.0
        self._began = 0.0

    def start(self) -> None:
        """Count the waits of this thread from here on."""
        # Open all the while: 1.3 us per reading, where to open it takes 16 us more.
        if _SCHEDSTAT.exists():
            self._file = _SCHEDSTAT.open("rb")
            self._fd = self._file.fileno()
        self._wait()

    def begin(self, now: float) -> None:
        """Begin a turn at a wall time."""
        self._began = now
        self._before = self._wait()

    def end(self) -> None:
        """End the turn now, and keep it if it is worth it."""
        now = this_host.monotonic()
        if max(now - self._began, self._before) < _BRIEF:
            return
        within = self._wait()
        if max(now - self._began, self._before) > _SHORT:
            self._rows.append((self._began, now, self._before, within))

    def close(self) -> None:
        """Close the file of the counts."""
        if self._file is not None:
            self._file.close()
            self._fd = -1

    def rows(self, clock: RunClock) -> NDArray[np.float64]:
        """Return begin and end in run time, and waits before and within, run seconds.

        Shape (turns, 4).
        """
        rows = np.array(self._rows).reshape(-1, 4)
        instants = clock.run_times(rows[:, :2])
        waits = rows[:, 2:] / clock.time_scale
        return np.column_stack([instants, waits])

    def _wait(self) -> float:
        """Return wall seconds without a core since the last call."""
        waited: float = lib.waited_for_core(self._fd)  # none of no file
        passed = waited - self._waited
        self._waited = waited
        return passed
