"""Programs by which the kernel picks packets for a tap, run over packets."""

from __future__ import annotations

import struct

import pytest

from emu.lab.machines.tap import HEADERS, data_filter, whole_filter
from tests.lab.machines.packet_programs import INCOMING, OUTGOING, run

IPV4, IPV6, ARP = 0x0800, 0x86DD, 0x0806
TCP, UDP, SCTP = 6, 17, 132


def frame(
    payload: int,
    *,
    ether_type: int = IPV4,
    protocol: int = TCP,
    options: int = 12,
) -> bytes:
    """Return an Ethernet frame: IPv4 without options, TCP with some, and a payload."""
    ethernet = bytes(12) + struct.pack(">H", ether_type)
    length = 20 + 20 + options + payload
    ip = struct.pack(">BBHIBB", 0x45, 0, length, 0, 64, protocol) + bytes(10)
    words = (20 + options) // 4
    # Flags stand beside the length: they must not count.
    tcp = bytes(12) + struct.pack(">BB", words << 4 | 0x0F, 0x10) + bytes(6 + options)
    # A frame of Ethernet has 60 bytes at least: what fills it is no payload.
    return (ethernet + ip + tcp + bytes(payload)).ljust(60, b"\0")


@pytest.mark.parametrize(
    ("packet", "kind", "is_data", "is_whole"),
    [
        (frame(1), OUTGOING, True, True),
        (frame(1448), OUTGOING, True, True),
        (frame(1, options=0), OUTGOING, True, True),
        (frame(1, options=40), OUTGOING, True, True),
        (frame(0), OUTGOING, False, True),
        (frame(0, options=0), OUTGOING, False, True),
        (frame(0, options=40), OUTGOING, False, True),
        (frame(1448, protocol=UDP), OUTGOING, False, True),
        (frame(1448, protocol=SCTP), OUTGOING, False, True),
        (frame(1448, ether_type=ARP), OUTGOING, False, False),
        (frame(1448, ether_type=IPV6), OUTGOING, False, False),
        (frame(1448), INCOMING, False, False),
    ],
)
def test_headers_are_taken_of_what_leaves(
    packet: bytes, kind: int, *, is_data: bool, is_whole: bool
) -> None:
    """One program takes TCP with payload, the other all IPv4, each up to 94 bytes."""
    assert HEADERS == 14 + 20 + 60
    assert run(data_filter(), packet, kind) == HEADERS * is_data
    assert run(whole_filter(), packet, kind) == HEADERS * is_whole
