"""Turns of the coordinator's loop that took long, or began late for want of a core."""

from __future__ import annotations

from io import BufferedReader
from pathlib import Path

import numpy as np

from emu.array_types import Floats
from emu.emulation.network.clock import RunClock
from emu.host.this_host import this_host
from emu.prediction.core import ffi, lib

#: Wall seconds from which a turn, or a wait before it, is kept.
_SHORT = 1e-3
#: Wall seconds of a turn up to which the waits within it count as before the next one:
#: to read them takes 1.5 us, and they are no longer than the turn.
_BRIEF = 5e-5
#: Turns that are kept until `keep_room`: as many as a second has.
_ROOM = 1024
_SCHEDSTAT = Path("/proc/thread-self/schedstat")


class TurnLog:
    """Notes when the loop was at work, and for how long it had no core.

    To be used in one thread. Where the host does not count waits they are 0. The core
    notes its own turns here as well: ``core`` is the structure of the same name in
    core.h.
    """

    def __init__(self) -> None:
        self._file: BufferedReader | None = None
        self._newest = np.zeros((_ROOM, 4))
        self._older = np.zeros((0, 4))
        fields = {
            "fd": -1,
            "least": _SHORT,
            "brief": _BRIEF,
            "room": _ROOM,
            "row": ffi.from_buffer("TurnRow[]", self._newest),
        }
        self.core = ffi.new("TurnLog *", fields)

    def start(self) -> None:
        """Count the waits of this thread from here on."""
        # Open all the while: 1.3 us per reading, where to open it takes 16 us more.
        if _SCHEDSTAT.exists():
            self._file = _SCHEDSTAT.open("rb")
            self.core.fd = self._file.fileno()
        self.core.waited = lib.waited_for_core(self.core.fd)

    def begin(self, now: float) -> None:
        """Begin a turn at a wall time."""
        lib.begin_turn(self.core, now)

    def end(self) -> None:
        """End the turn now, and keep it if it is worth it."""
        lib.end_turn(self.core, this_host.monotonic())

    def keep_room(self) -> None:
        """Have room for a further second of turns."""
        count = self.core.count
        if count >= _ROOM // 2:
            self._older = np.concatenate([self._older, self._newest[:count]])
            self.core.count = 0

    def close(self) -> None:
        """Close the file of the counts."""
        if self._file is not None:
            self._file.close()
            self.core.fd = -1

    def rows(self, clock: RunClock) -> Floats:
        """Return begin and end in run time, and waits before and within, run seconds.

        Shape (turns, 4).
        """
        newest = self._newest[: self.core.count]
        rows = np.concatenate([self._older, newest])
        instants = clock.run_times(rows[:, :2])
        waits = rows[:, 2:] / clock.time_scale
        return np.column_stack([instants, waits])
