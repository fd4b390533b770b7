"""Headers of the packets that machines are delivered, noted while programs run."""

from __future__ import annotations

import os
import selectors
import struct
import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from emu.analysis.traffic import PACKET
from emu.machines.tap import HEADERS

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from numpy.typing import NDArray

_PACKET_LAYER, _STATISTICS = 263, 6
_ROW = struct.Struct("<dHHHHI")
#: From byte 14: length, the lower halves of both addresses, ports, TCP's own length.
_FIELDS = struct.Struct(">2xH10xH2xHHH8xB")
#: Wall seconds in which packets gather before they are read: a wake-up for each of them
#: took 16 us of CPU a packet.
_PAUSE = 0.005
_STAMP = struct.Struct("@qq")


class Capture:
    """Reads taps in a thread of its own, from the making to `close`.

    Parameters
    ----------
    taps
        One per machine, of what it is delivered.
    """

    def __init__(self, taps: Sequence[socket.socket]) -> None:
        self._taps = list(taps)
        self._began = time.clock_gettime(time.CLOCK_REALTIME)  # as the kernel stamps
        self._rows = bytearray()
        self._ended, self._end = os.pipe()
        self.cpu_seconds = 0.0
        """CPU seconds that reading took."""
        self.lost = 0
        """Packets that the kernel dropped before they were read."""
        self._thread = threading.Thread(target=self._read_all, daemon=True)
        self._thread.start()

    def close(self) -> NDArray[np.void]:
        """Return what was noted, rows of `emu.analysis.traffic.PACKET` by time."""
        os.write(self._end, b"1")
        self._thread.join()
        for tap in self._taps:
            counts = tap.getsockopt(_PACKET_LAYER, _STATISTICS, 8)
            self.lost += struct.unpack("=II", counts)[1]
            tap.close()
        os.close(self._end)
        os.close(self._ended)
        rows = np.frombuffer(bytes(self._rows), PACKET)
        return rows[np.argsort(rows["time"], kind="stable")]

    def _read_all(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._ended, selectors.EVENT_READ)
            for tap in self._taps:
                selector.register(tap, selectors.EVENT_READ, tap)
            going = True
            while going:
                ready = selector.select()
                time.sleep(_PAUSE)
                for key, _ in ready:
                    if key.data is None:
                        going = False
                    else:
                        self._read(key.data)
            for tap in self._taps:
                self._read(tap)
        self.cpu_seconds = time.thread_time()

    def _read(self, tap: socket.socket) -> None:
        """Note what has come."""
        while True:
            try:
                data, stamps, _, _ = tap.recvmsg(HEADERS, 64)
            except BlockingIOError:
                return
            seconds, nanoseconds = _STAMP.unpack_from(stamps[0][2])
            length, source, there, from_port, to_port, tcp = _FIELDS.unpack_from(
                data, 14
            )
            self._rows += _ROW.pack(
                seconds - self._began + 1e-9 * nanoseconds,
                source - 1,
                there - 1,
                from_port,
                to_port,
                length - 20 - 4 * (tcp >> 4),
            )
