"""Packets that taps get are noted by their headers, as TCP and IP write these."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from emu.lab.machines.capture import Capture
from emu.lab.machines.tap import HEADERS

_TIMESTAMPS = 35
_BELOW_HEADER = 14  # Ethernet


class Tap(socket.socket):
    """Gets packets as datagrams, with the kernel's time of each; two were dropped."""

    def __init__(self) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_DGRAM)
        self.setsockopt(socket.SOL_SOCKET, _TIMESTAMPS, 1)
        self.bind(("127.0.0.1", 0))
        self.setblocking(False)

    @override
    def getsockopt(self, *_: Any) -> Any:
        """Return what a packet socket counts."""
        return struct.pack("=II", 9, 2)


@dataclass(frozen=True)
class Packet:
    """One packet between two machines, by their numbers."""

    sender: int
    receiver: int
    from_port: int
    to_port: int
    payload: int
    options: int = 0
    """Bytes of TCP's own options."""
    protocol: int = socket.IPPROTO_TCP

    @property
    def length(self) -> int:
        """Return the bytes of IP and of what it carries."""
        return 20 + 20 + self.options + self.payload

    def headers(self) -> bytes:
        """Return its first bytes, addresses counted from 10.1.0.1 on."""
        addresses = [
            socket.inet_aton(f"10.1.{(number + 1) >> 8}.{(number + 1) & 255}")
            for number in (self.sender, self.receiver)
        ]
        internet = struct.pack(
            "!BBHHHBBH4s4s",
            *(0x45, 3, self.length, 7, 0x4000, 64, self.protocol, 99),
            *addresses,
        )
        words = (20 + self.options) // 4
        transport = struct.pack(
            "!HHIIBBHHH",
            *(self.from_port, self.to_port, 1 << 31, 5, words << 4, 0x18, 512, 8, 9),
        )
        rest = bytes(self.options + self.payload)
        whole = bytes(_BELOW_HEADER) + internet + transport + rest
        return whole[:HEADERS]


PACKETS = (
    Packet(0, 300, 40000, 29500, 1400),
    Packet(300, 0, 29500, 40000, 1, options=32),
    Packet(2, 1, 80, 81, 0, options=12),  # carries nothing
    Packet(1, 2, 53, 54, 500, protocol=socket.IPPROTO_UDP),
    Packet(254, 255, 7, 8, 65_000, options=12),
)


def await_stamps(tap: Tap) -> None:
    """Wait until packets are stamped as they come.

    The kernel begins with that some time after it was asked to, and stamps until then
    what is read: on a busy host all of one tap's packets came before another's.
    """
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"x", tap.getsockname())
        select.select([tap], [], [])
        now = time.clock_gettime_ns(time.CLOCK_REALTIME)
        _, stamps, _, _ = tap.recvmsg(1, 64)
        _, _, stamp = stamps[0]
        seconds, nanoseconds = struct.unpack("@qq", stamp)
        if 10**9 * seconds + nanoseconds < now:
            return


@pytest.fixture
def taps() -> Iterator[list[Tap]]:
    opened = [Tap(), Tap()]
    await_stamps(opened[0])
    yield opened
    for tap in opened:
        tap.close()


@pytest.mark.parametrize("has_file", [False, True])
def test_packets_with_payload_are_noted_with_their_ends_and_the_kernel_s_time(
    tmp_path: Path, taps: list[Tap], *, has_file: bool
) -> None:
    path = tmp_path / "traffic.pcap"
    before = time.clock_gettime_ns(time.CLOCK_REALTIME)
    capture = Capture(taps, path if has_file else None)
    addresses = [tap.getsockname() for tap in taps]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for number, packet in enumerate(PACKETS):
            sender.sendto(packet.headers(), addresses[number % 2])
    after = time.clock_gettime_ns(time.CLOCK_REALTIME)

    began = before / 1e9 - 10.0
    rows = capture.close(began, time_scale=2.0)

    assert capture.lost == 2 * len(taps)
    noted = [(*row.tolist()[1:],) for row in rows]
    expected = [packet for packet in PACKETS if packet.payload]
    expected = [row for row in expected if row.protocol == socket.IPPROTO_TCP]
    assert noted == [
        (row.sender, row.receiver, row.from_port, row.to_port, row.payload)
        for row in expected
    ]
    # Ten seconds after what they count from, in units of two.
    span = (after - before) / 1e9
    assert (rows["time"] > 5.0 - 1e-6).all()
    assert (rows["time"] < 5.0 + span / 2 + 1e-6).all()

    if has_file:
        records = read_records(path)
        stamps = [stamp for stamp, _, _ in records]
        assert stamps == sorted(stamps)
        assert before <= stamps[0]
        assert stamps[-1] <= after
        assert [(length, header) for _, length, header in records] == [
            (packet.length + _BELOW_HEADER, packet.headers()) for packet in PACKETS
        ]


def read_records(path: Path) -> list[tuple[int, int, bytes]]:
    """Return nanoseconds, bytes on the wire and kept bytes of every record."""
    content = path.read_bytes()
    place = 24
    records = []
    while place < len(content):
        seconds, rest, kept, length = struct.unpack_from("<IIII", content, place)
        header = content[place + 16 : place + 16 + kept]
        records.append((seconds * 10**9 + rest, length, header))
        place += 16 + kept
    return records
