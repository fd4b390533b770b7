"""Sockets that get the headers of what leaves a device, picked by the kernel."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct

from emu.lab.machines.nic import Instruction

_ALL = 3  # ETH_P_ALL
_ATTACH_FILTER = 26
_RECEIVE_BUFFER_FORCE = 33
_TIMESTAMPS = 35
#: What a tap gives of a packet, bytes: Ethernet, IP without options, TCP with its own.
HEADERS = 94
_LOAD_WORD = 0x20
_LOAD_HALF = 0x28
_EQUAL = 0x15
_TAKE = 0x06
_PACKET_TYPE = 0xFFFFF004
_OUTGOING = 4
_WAITING = 16 << 20  # bytes of headers that may wait for the reader


def data_filter() -> list[Instruction]:
    """Return a classic BPF program that takes what leaves a device with TCP payload."""
    load_byte = 0x30
    greater = 0x25
    right = 0x74
    and_k = 0x54
    to_x = 0x07
    minus_x = 0x1C

    return [
        (_LOAD_WORD, 0, 0, _PACKET_TYPE),
        (_EQUAL, 0, 11, _OUTGOING),
        (_LOAD_HALF, 0, 0, 12),
        (_EQUAL, 0, 9, 0x0800),
        (load_byte, 0, 0, 23),
        (_EQUAL, 0, 7, 6),
        (load_byte, 0, 0, 46),  # length of the TCP header, in its upper half
        (right, 0, 0, 2),
        (and_k, 0, 0, 0x3C),
        (to_x, 0, 0, 0),
        (_LOAD_HALF, 0, 0, 16),
        (minus_x, 0, 0, 0),
        (greater, 1, 0, 20),
        (_TAKE, 0, 0, 0),
        (_TAKE, 0, 0, HEADERS),
    ]


def whole_filter() -> list[Instruction]:
    """Return a classic BPF program that takes all IPv4 that leaves a device."""
    return [
        (_LOAD_WORD, 0, 0, _PACKET_TYPE),
        (_EQUAL, 0, 3, _OUTGOING),
        (_LOAD_HALF, 0, 0, 12),
        (_EQUAL, 0, 1, 0x0800),
        (_TAKE, 0, 0, HEADERS),
        (_TAKE, 0, 0, 0),
    ]


def open_tap(device: str, program: list[Instruction]) -> socket.socket:
    """Return a socket that gets of what leaves a device the headers that BPF picks."""
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
