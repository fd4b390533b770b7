"""Headers of the packets that machines are delivered, and their file for Wireshark."""

from __future__ import annotations

import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from emu.array_types import Records
from emu.lab.machines.tap import HEADERS
from emu.prediction.analysis.traffic import PACKET

_NANOSECONDS = 0xA1B23C4D
_VERSION = (2, 4)
_LINK_TYPE = 1
_RECORD = struct.Struct("<IIII")


class PcapFile:
    """A file that is being written; packets of several taps are put in order."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._waiting: list[tuple[int, int, bytes]] = []
        major, minor = _VERSION
        head = struct.Struct("<IHHIIII")
        packed = head.pack(_NANOSECONDS, major, minor, 0, 0, HEADERS, _LINK_TYPE)
        self._file.write(packed)

    def add(
        self,
        time: int,
        length: int,
        header: bytes,
    ) -> None:
        """Take a packet: nanoseconds since 1970, its bytes, the first of them."""
        packet = (time, length, header)
        self._waiting.append(packet)

    def write(self, limit: int) -> None:
        """Write what is older than a time, nanoseconds, before which all has come."""
        self._waiting.sort()
        count = 0
        for stamp, length, header in self._waiting:
            if stamp >= limit:
                break
            seconds, nanoseconds = divmod(stamp, 10**9)
            record = _RECORD.pack(seconds, nanoseconds, len(header), length)
            self._file.write(record + header)
            count += 1
        del self._waiting[:count]

    def close(self) -> None:
        """Write the rest."""
        self.write(1 << 63)
        self._file.close()


_PACKET_LAYER = 263
_STATISTICS = 6
_ROW = struct.Struct("<dHHHHI")
#: From byte 14: length, protocol, lower halves of both addresses, ports, TCP's own
#: length.
_FIELDS = struct.Struct(">2xH5xB4xH2xHHH8xB")
_ETHERNET = 14
_IP_HEADER = 20
_LEAST = 47
#: Wall seconds in which packets gather before they are read: a wake-up for each of them
#: took 16 us of CPU a packet.
_PAUSE = 0.005
_STAMP = struct.Struct("@qq")


class Capture:
    """Reads taps in a thread of its own, from the making to `close`.

    There is one per machine, of what it is delivered; ``pcap`` gets the headers of all.
    """

    def __init__(
        self,
        taps: Sequence[socket.socket],
        pcap: Path | None = None,
    ) -> None:
        self._taps = list(taps)
        self._pcap = None if pcap is None else PcapFile(pcap)
        self._began = time.clock_gettime(time.CLOCK_REALTIME)  # as the kernel stamps
        self._rows = bytearray()
        self._ended, self._end = os.pipe()
        self.cpu_seconds = 0.0
        """CPU seconds that reading took."""
        self.lost = 0
        """Packets that the kernel dropped before they were read."""
        self._thread = threading.Thread(target=self._read_all, daemon=True)
        self._thread.start()

    def close(self, began: float, time_scale: float = 1.0) -> Records:
        """Return the packets, rows of `emu.prediction.analysis.traffic.PACKET` by time.

        Their seconds count from a time in seconds since 1970, and have ``time_scale``
        wall seconds each.
        """
        os.write(self._end, b"1")
        self._thread.join()
        for tap in self._taps:
            counts = tap.getsockopt(_PACKET_LAYER, _STATISTICS, 8)
            _, dropped = struct.unpack("=II", counts)
            self.lost += dropped
            tap.close()
        os.close(self._end)
        os.close(self._ended)
        rows = np.frombuffer(self._rows, PACKET)
        shift = self._began - began
        times = np.maximum(rows["time"] + shift, 0.0)
        rows["time"] = times / time_scale
        order = np.argsort(rows["time"], kind="stable")
        return rows[order]

    def _read_all(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._ended, selectors.EVENT_READ)
            for tap in self._taps:
                selector.register(tap, selectors.EVENT_READ, tap)
            going = True
            while going:
                ready = [key.data for key, _ in selector.select()]
                time.sleep(_PAUSE)
                going = None not in ready

                now = time.clock_gettime_ns(time.CLOCK_REALTIME)
                # A file takes packets in order of time: of all taps until now.
                reads_all = self._pcap is not None or not going
                due = self._taps if reads_all else ready
                for tap in due:
                    self._read(tap)
                if self._pcap is not None:
                    self._pcap.write(now)
        if self._pcap is not None:
            self._pcap.close()
        self.cpu_seconds = time.thread_time()

    def _read(self, tap: socket.socket) -> None:
        """Note what has come."""
        while True:
            try:
                data, stamps, _, _ = tap.recvmsg(HEADERS, 64)
            except BlockingIOError:
                return
            _, _, stamp = stamps[0]
            seconds, nanoseconds = _STAMP.unpack_from(stamp)
            header = data.ljust(_LEAST, b"\0")
            fields = _FIELDS.unpack_from(header, _ETHERNET)
            length, protocol, source, destination, from_port, to_port, tcp = fields
            if self._pcap is not None:
                instant = 10**9 * seconds + nanoseconds
                self._pcap.add(instant, length + _ETHERNET, data)

            tcp_header = 4 * (tcp >> 4)
            payload = length - _IP_HEADER - tcp_header
            if protocol == socket.IPPROTO_TCP and payload > 0:
                passed = seconds - self._began + 1e-9 * nanoseconds
                # Addresses of machines count from 1 (`Lab.address`).
                self._rows += _ROW.pack(
                    passed,
                    source - 1,
                    destination - 1,
                    from_port,
                    to_port,
                    payload,
                )
