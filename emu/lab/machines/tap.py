"""Sockets that get the headers of what leaves a device, picked by the kernel."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct

from emu.lab.machines.nic import Instruction

_ALL = 3  # ETH_P_ALL
_ATTACH_FILTER, _RECEIVE_BUFFER_FORCE, _TIMESTAMPS = 26, 33, 35
#: What a tap gives of a packet, bytes: Ethernet, IP without options, TCP with its own.
HEADERS = 94
_WAITING = 16 << 20  # bytes of headers that may wait for the reader


def data_filter() -> list[Instruction]:
    """Return a classic BPF program that takes what leaves a device with TCP payload."""
    load_word, load_half, load_byte = 0x20, 0x28, 0x30
    equal, greater, take = 0x15, 0x25, 0x06
    right, and_k, to_x, minus_x = 0x74, 0x54, 0x07, 0x1C
    packet_type, outgoing = 0xFFFFF004, 4
    return [
        (load_word, 0, 0, packet_type),
        (equal, 0, 11, outgoing),
        (load_half, 0, 0, 12),
        (equal, 0, 9, 0x0800),
        (load_byte, 0, 0, 23),
        (equal, 0, 7, 6),
        (load_byte, 0, 0, 46),  # length of the TCP header, in its upper half
        (right, 0, 0, 2),
        (and_k, 0, 0, 0x3C),
        (to_x, 0, 0, 0),
        (load_half, 0, 0, 16),
        (minus_x, 0, 0, 0),
        (greater, 1, 0, 20),
        (take, 0, 0, 0),
        (take, 0, 0, HEADERS),
    ]


def whole_filter() -> list[Instruction]:
    """Return a classic BPF program that takes all IPv4 that leaves a device."""
    load_word, load_half, equal, take = 0x20, 0x28, 0x15, 0x06
    packet_type, outgoing = 0xFFFFF004, 4
    return [
        (load_word, 0, 0, packet_type),
        (equal, 0, 3, outgoing),
        (load_half, 0, 0, 12),
        (equal, 0, 1, 0x0800),
        (take, 0, 0, HEADERS),
        (take, 0, 0, 0),
    ]


def open_tap(device: str, program: list[Instruction]) -> socket.socket:
    """Return a socket that gets headers of what leaves a device of this network.

    The program picks them: classic BPF.
    """
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    memory = ctypes.create_string_buffer(code, len(code))
    packed_program = struct.pack("@HP", len(program), ctypes.addressof(memory))
    tap.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, packed_program)
    with contextlib.suppress(PermissionError):  # in a user namespace: less may wait
        tap.setsockopt(socket.SOL_SOCKET, _RECEIVE_BUFFER_FORCE, _WAITING)
    tap.setsockopt(socket.SOL_SOCKET, _TIMESTAMPS, 1)
    tap.bind((device, _ALL))  # no packet before the filter is there
    tap.setblocking(False)
    return tap
