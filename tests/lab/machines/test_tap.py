"""Programs by which the kernel picks packets for a tap, as `bpf_asm` writes them."""

from __future__ import annotations

from emu.lab.machines.tap import data_filter, whole_filter

#: Instructions: load a word, half or byte, shift right, and, subtract, jump, return.
WORD, HALF, BYTE, RIGHT, AND = 0x20, 0x28, 0x30, 0x74, 0x54
TO_X, MINUS_X, EQUAL, GREATER, TAKE = 0x07, 0x1C, 0x15, 0x25, 0x06
#: Where the kernel has the direction of a packet, and what stands for one that leaves.
DIRECTION, LEAVES = 0xFFFFF004, 4


def test_what_leaves_with_payload_of_tcp_is_taken() -> None:
    """Of IPv4 by its length: more than 20 bytes of IP and the header of TCP."""
    assert data_filter() == [
        (WORD, 0, 0, DIRECTION),
        (EQUAL, 0, 11, LEAVES),
        (HALF, 0, 0, 12),  # type of the frame
        (EQUAL, 0, 9, 0x800),
        (BYTE, 0, 0, 23),  # protocol
        (EQUAL, 0, 7, 6),
        (BYTE, 0, 0, 46),  # words of the header of TCP, in the upper half
        (RIGHT, 0, 0, 2),
        (AND, 0, 0, 0x3C),
        (TO_X, 0, 0, 0),
        (HALF, 0, 0, 16),  # length of IP
        (MINUS_X, 0, 0, 0),
        (GREATER, 1, 0, 20),
        (TAKE, 0, 0, 0),
        (TAKE, 0, 0, 94),
    ]


def test_all_that_leaves_by_ipv4_is_taken_where_a_file_has_all() -> None:
    """The first 94 bytes of each: Ethernet, IP, and TCP with its options."""
    assert whole_filter() == [
        (WORD, 0, 0, DIRECTION),
        (EQUAL, 0, 3, LEAVES),
        (HALF, 0, 0, 12),
        (EQUAL, 0, 1, 0x800),
        (TAKE, 0, 0, 94),
        (TAKE, 0, 0, 0),
    ]
