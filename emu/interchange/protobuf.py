"""Messages of protobuf on the wire, by schemas of a few lines.

A schema is ``{number: (name, kind)}``: kinds are `INTEGER`, `SIGNED` (zigzag), `FIXED`
and `REAL` numbers, `TEXT`, the schema of a message within, or None for what is known
and not read. Fields beyond it are named by their number. Packed lists of 183,000
numbers take 0.1 s, and the package ``protobuf`` would be one more dependency for what
60 lines say.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = Mapping[int, tuple[str, Any]]
INTEGER, SIGNED, FIXED, REAL, TEXT = "integer", "signed", "fixed", "real", "text"
#: Begins the name of a field that is in no schema.
UNKNOWN = "field "
_VARINT, _LONG, _BYTES, _SHORT = 0, 1, 2, 5
_FORMS = {(FIXED, 8): "<q", (FIXED, 4): "<i", (REAL, 8): "<d", (REAL, 4): "<f"}


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length and where it ends.

    Raises ValueError when it is cut short, or longer than eight bytes hold.
    """
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number is cut short or too long at byte {at}")


def read_messages(data: bytes) -> Iterator[bytes]:
    """Yield the messages of a file that has the length of each before it.

    Raises ValueError when one is cut short.
    """
    at = 0
    while at < len(data):
        size, at = read_varint(data, at)
        if size > len(data) - at:
            raise ValueError(f"ends where {size} more bytes are announced")
        yield data[at : at + size]
        at += size


def decode(data: bytes, schema: Schema) -> dict[str, list[Any]]:
    """Return the values of every field that is there, in order, by its name.

    Raises ValueError when the message is damaged.
    """
    message: dict[str, list[Any]] = {}
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        name, kind = schema.get(number, (f"{UNKNOWN}{number}", None))
        if wire == _VARINT:
            value, at = read_varint(data, at)
            values = [_integer(value, kind)]
        elif wire in (_LONG, _SHORT, _BYTES):
            size = {_LONG: 8, _SHORT: 4}.get(wire, 0)
            if wire == _BYTES:
                size, at = read_varint(data, at)
            if number == 0 or size > len(data) - at:
                raise ValueError(f"field {number} of {size} bytes is cut short")
            values = _values(data[at : at + size], kind, 0 if wire == _BYTES else size)
            at += size
        else:
            raise ValueError(f"field {number} has type {wire} of the wire")
        message.setdefault(name, []).extend(values)
    return message


def _integer(value: int, kind: Any) -> int:
    if kind == SIGNED:
        return (value >> 1) ^ -(value & 1)
    return value - (1 << 64) if value >> 63 else value


def _values(data: bytes, kind: Any, width: int) -> list[Any]:
    """Return the values in the bytes of a field; ``width`` is 0 where they are many."""
    if kind is None:
        return []
    if isinstance(kind, Mapping):
        return [decode(data, kind)]
    if kind == TEXT:
        return [data.decode("utf-8", "replace")]
    if width:
        return [*struct.unpack(_FORMS.get((kind, width), _FORMS[FIXED, width]), data)]
    values, at = [], 0
    while kind in (INTEGER, SIGNED) and at < len(data):
        value, at = read_varint(data, at)
        values.append(_integer(value, kind))
    return values


def encode(fields: Mapping[int, Any]) -> bytes:
    """Return a message: whole numbers, texts, bytes, and lists of them, by number."""
    parts = []
    for number, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, int):
                parts.append(write_varint(number << 3) + write_varint(one))
            else:
                content = one.encode() if isinstance(one, str) else one
                parts.append(write_varint(number << 3 | _BYTES))
                parts.append(write_varint(len(content)) + content)
    return b"".join(parts)


def write_varint(value: int) -> bytes:
    """Return a whole number of variable length, of 64 bits with its sign."""
    parts, value = bytearray(), value & (1 << 64) - 1
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
