"""Packet headers in a file for Wireshark: pcap with nanoseconds, in order of time.

Format: draft-ietf-opsawg-pcap, which the files of libpcap follow.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from emu.machines.tap import HEADERS

if TYPE_CHECKING:
    from pathlib import Path

_NANOSECONDS, _VERSION, _ETHERNET = 0xA1B23C4D, (2, 4), 1
_RECORD = struct.Struct("<IIII")


class PcapFile:
    """A file that is being written; packets of several taps are put in order."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._waiting: list[tuple[int, int, bytes]] = []
        head = (_NANOSECONDS, *_VERSION, 0, 0, HEADERS, _ETHERNET)
        self._file.write(struct.pack("<IHHIIII", *head))

    def add(self, time: int, length: int, header: bytes) -> None:
        """Take a packet: nanoseconds since 1970, its bytes, the first of them."""
        self._waiting.append((time, length, header))

    def write(self, until: int) -> None:
        """Write what is older than a time, nanoseconds, before which all has come."""
        self._waiting.sort()
        count = 0
        for time, length, header in self._waiting:
            if time >= until:
                break
            record = (*divmod(time, 10**9), len(header), length)
            self._file.write(_RECORD.pack(*record) + header)
            count += 1
        del self._waiting[:count]

    def close(self) -> None:
        """Write the rest."""
        self.write(1 << 63)
        self._file.close()
