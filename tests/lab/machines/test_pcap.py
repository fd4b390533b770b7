"""Packet headers in a file for Wireshark."""

from __future__ import annotations

import struct
from pathlib import Path

from emu.lab.machines.capture import PcapFile


def test_packets_of_several_taps_are_written_in_the_order_of_time(
    tmp_path: Path,
) -> None:
    path = tmp_path / "traffic.pcap"
    file = PcapFile(path)
    second = 10**9
    file.add(7 * second, 60, b"late")
    file.add(5 * second + 3, 60, b"soon")
    file.write(limit=6 * second)
    file.add(6 * second, 60, b"then")
    file.close()

    content, at, found = path.read_bytes(), 24, []
    while at < len(content):
        seconds, nanoseconds, kept, length = struct.unpack_from("<IIII", content, at)
        found.append((seconds, nanoseconds, length, content[at + 16 : at + 16 + kept]))
        at += 16 + kept
    assert found == [(5, 3, 60, b"soon"), (6, 0, 60, b"then"), (7, 0, 60, b"late")]
