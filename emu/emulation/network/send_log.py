"""When every shaped frame of a process left, and why not earlier."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from emu.emulation.network.clock import RunClock
from emu.emulation.wire.frame_layout import FRAME_ROWS
from emu.prediction.core import ffi, lib

#: Rows that there is room for at first; more doubles it.
_FIRST = 64
#: Rows of one piece, so that two pieces fit into one control message.
_PIECE = 12_000
#: Frames kept, the newest: what one control message may carry.
_MOST = 15_000


class FrameLog:
    """Collects rows of `emu.emulation.wire.frame_layout` while a run goes on."""

    def __init__(self) -> None:
        self._rows = np.empty(_FIRST, FRAME_ROWS)
        self.core = ffi.new("FrameRows *")
        """Its `FrameRows` of the core."""
        self._lend()

    def _lend(self) -> None:
        self.core.row = ffi.from_buffer("FrameRow[]", self._rows)
        self.core.room = len(self._rows)

    def make_room(self) -> None:
        """Have room for another row."""
        if self.core.count == self.core.room:
            unused_rows = np.empty_like(self._rows)
            self._rows = np.concatenate([self._rows, unused_rows])
            self._lend()

    def reserve(self, count: int) -> None:
        """Have room for so many more rows."""
        needed = self.core.count + count
        missing = needed - self.core.room
        if missing <= 0:
            return
        more = np.empty(missing, FRAME_ROWS)
        self._rows = np.concatenate([self._rows, more])
        self._lend()

    def note(
        self,
        edge: int,
        iteration: int,
        first: float,
        last: float,
        nbytes: int,
    ) -> None:
        """Add a frame: wall seconds of its first and last byte, payload bytes."""
        self.make_room()
        lib.add_frame(self.core, edge, iteration, first, last, nbytes)

    def pieces(self, clock: RunClock) -> Iterator[bytes]:
        """Yield the rows so far, in run seconds; at least one piece, maybe empty."""
        rows = self._rows[: self.core.count].copy()
        for name in ("first", "last"):
            rows[name] = clock.run_times(rows[name])
        count = max(len(rows), 1)
        for begin in range(0, count, _PIECE):
            piece = rows[begin : begin + _PIECE]
            yield piece.tobytes()


class SendLog:
    """Rows of shaped frames, the newest: `SentRow` of the core."""

    def __init__(self) -> None:
        # Pages that no row comes to take no memory.
        self._rows = np.empty((_MOST, 6))
        self.core = ffi.new("SentRows *", {"room": _MOST})
        """Its `SentRows` of the core."""
        self.core.row = ffi.from_buffer("SentRow[]", self._rows)

    def pack(self, clock: RunClock) -> bytes:
        """Return the rows in emulated seconds, as little-endian float64."""
        count = self.core.count
        rows = self._rows[:count].astype("<f8")
        if count > _MOST:
            rows = np.roll(rows, -(count % _MOST), axis=0)  # the oldest first
        walls = rows[:, 2:5]
        rows[:, 2:5] = clock.run_times(walls)
        lateness = rows[:, 5]
        lateness /= clock.time_scale
        return rows.tobytes()
