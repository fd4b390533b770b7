"""When every shaped frame of a process left, and why not earlier."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator

import numpy as np

from emu.emulation.network.clock import RunClock
from emu.emulation.wire.frame_layout import FRAME_ROWS

#: A row of `emu.emulation.wire.frame_layout`. Packed, 100,000 frames take 3 MB; as
#: tuples 20.
_ROW = struct.Struct("<IIddQ")
#: Rows of one piece, so that two pieces fit into one control message.
_PIECE = 12_000
#: Frames kept, the newest: what one control message may carry.
_MOST = 15_000


class FrameLog:
    """Collects rows of `emu.emulation.wire.frame_layout` while a run goes on."""

    def __init__(self) -> None:
        self._rows = bytearray()

    def note(
        self,
        edge: int,
        iteration: int,
        first: float,
        last: float,
        nbytes: int,
    ) -> None:
        """Add a frame: wall seconds of its first and last byte, payload bytes."""
        self._rows += _ROW.pack(edge, iteration, first, last, nbytes)

    def pieces(self, clock: RunClock) -> Iterator[bytes]:
        """Yield the rows so far, in run seconds; at least one piece, maybe empty."""
        data = bytes(self._rows)
        rows = np.frombuffer(data, FRAME_ROWS).copy()
        for name in ("first", "last"):
            rows[name] = clock.run_times(rows[name])
        count = max(len(rows), 1)
        for begin in range(0, count, _PIECE):
            piece = rows[begin : begin + _PIECE]
            yield piece.tobytes()


class SendLog:
    """Rows of shaped frames: edge, iteration, and four columns of wall seconds.

    When the last byte was in the kernel; when the payload was there to send; when the
    frame's newest segment was first seen; how late the alarm rang that sent the last
    byte.
    """

    def __init__(self) -> None:
        self._rows: deque[tuple[float, ...]] = deque(maxlen=_MOST)

    def note(self, *row: float) -> None:
        """Add a frame."""
        self._rows.append(row)

    def pack(self, clock: RunClock) -> bytes:
        """Return the rows in emulated seconds, as little-endian float64."""
        rows = np.array(self._rows, dtype="<f8")
        rows = rows.reshape(-1, 6)  # also where there is none
        walls = rows[:, 2:5]
        rows[:, 2:5] = clock.run_times(walls)
        lateness = rows[:, 5]
        lateness /= clock.time_scale
        return rows.tobytes()
