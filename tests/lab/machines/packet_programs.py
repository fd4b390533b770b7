"""Interpreter of the programs by which the kernel picks packets: classic BPF."""

from __future__ import annotations

import struct

from emu.lab.machines.nic import Instruction

#: Types of a packet, as the kernel numbers them: it came, or it leaves.
INCOMING, OUTGOING = 0, 4
#: Where a program finds the type of its packet: at no place of the packet itself.
_TYPE = 0xFFFFF004
#: Bits of a code that name its class, and classes: loads, arithmetic, jumps.
_CLASS = 0x07
_LOAD, _CALCULATE, _JUMP = 0x00, 0x04, 0x05
_FORMATS = {0x20: ">I", 0x28: ">H", 0x30: ">B"}


def run(program: list[Instruction], packet: bytes, kind: int = OUTGOING) -> int:
    """Return what a program makes of a packet, as the kernel runs it."""
    a = x = position = 0
    while True:
        code, yes, no, k = program[position]
        position += 1
        if code == 0x16:  # ret a
            return a
        if code == 0x06:  # ret
            return k
        if code == 0x07:  # tax
            x = a
        elif code & _CLASS == _LOAD:
            a = _load(code, k, packet, kind)
        elif code & _CLASS == _CALCULATE:
            a = _calculate(code, a, x, k)
        elif code & _CLASS == _JUMP:
            position += yes if _is_met(code, a, k) else no
        else:
            raise AssertionError(code)


def _load(code: int, k: int, packet: bytes, kind: int) -> int:
    if code == 0x80:  # ld len
        return len(packet)
    if k == _TYPE:
        return kind
    (value,) = struct.unpack_from(_FORMATS[code], packet, k)
    return int(value)


def _calculate(code: int, a: int, x: int, k: int) -> int:
    """Return the result in 32 bits, without a sign."""
    results = {
        0x04: a + k,
        0x0C: a + x,
        0x1C: a - x,
        0x24: a * k,
        0x54: a & k,
        0x74: a >> min(k, 32),
    }
    return results[code] & 0xFFFFFFFF


def _is_met(code: int, a: int, k: int) -> bool:
    return {0x15: a == k, 0x25: a > k}[code]
