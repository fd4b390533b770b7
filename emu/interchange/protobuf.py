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
INTEGER = "integer"
SIGNED = "signed"
FIXED = "fixed"
REAL = "real"
TEXT = "text"
#: Begins the name of a field that is in no schema.
UNKNOWN = "field "
#: Types on the wire; 3 and 4, which begin and end groups, are deprecated.
_VARINT = 0
_LONG = 1
_BYTES = 2
_SHORT = 5
#: Bytes of a number of fixed width, by its type on the wire.
_WIDTHS = {_LONG: 8, _SHORT: 4}
_FORMS = {
    (FIXED, 8): "<q",
    (FIXED, 4): "<i",
    (REAL, 8): "<d",
    (REAL, 4): "<f",
}


def read_varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number of variable length and where it ends.

    Raises ValueError when it is cut short, or longer than eight bytes hold.
    """
    value = shift = 0
    # Seven bits a byte, the lowest first: 64 bits take ten bytes.
    while place < len(data) and shift < 70:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        shift += 7
        place += 1
        if byte < 0x80:
            return value, place
    raise ValueError(f"a number is cut short or too long at byte {place}")


def read_messages(data: bytes) -> Iterator[bytes]:
    """Yield the messages of a file that has the length of each before it.

    Raises ValueError when one is cut short.
    """
    place = 0
    while place < len(data):
        size, place = read_varint(data, place)
        if size > len(data) - place:
            # Python cuts a slice beyond the end short without an error.
            raise ValueError(f"ends where {size} more bytes are announced")
        yield data[place : place + size]
        place += size


def decode(data: bytes, schema: Schema) -> dict[str, list[Any]]:
    """Return the values of every field that is there, in order, by its name.

    Raises ValueError when the message is damaged.
    """
    message: dict[str, list[Any]] = {}
    place = 0
    while place < len(data):
        tag, place = read_varint(data, place)
        number = tag >> 3
        unknown = (f"{UNKNOWN}{number}", None)
        name, kind = schema.get(number, unknown)

        # The lower three bits say how the value is written.
        wire = tag & 7
        if wire == _VARINT:
            value, place = read_varint(data, place)
            values = [_integer(value, kind)]
        elif wire == _BYTES:
            size, place = read_varint(data, place)
            content = _take(
                data,
                place=place,
                size=size,
                number=number,
            )
            values = _values(content, kind)
            place += size
        elif wire in _WIDTHS:
            size = _WIDTHS[wire]
            content = _take(
                data,
                place=place,
                size=size,
                number=number,
            )
            values = []
            if kind is not None:
                values = _fixed(content, kind)
            place += size
        else:
            raise ValueError(f"field {number} has type {wire} of the wire")
        # Each time a field comes it has one more value: that is how lists are written.
        values_of_field = message.setdefault(name, [])
        values_of_field.extend(values)
    return message


def _take(
    data: bytes,
    place: int,
    size: int,
    number: int,
) -> bytes:
    rest = len(data) - place
    # No field has the number 0: it shows damage.
    if number == 0 or size > rest:
        raise ValueError(f"field {number} of {size} bytes is cut short")
    return data[place : place + size]


def _integer(value: int, kind: Any) -> int:
    if kind == SIGNED:
        # Zigzag: 0, -1, 1, -2, ... are written as 0, 1, 2, 3, ...
        sign = -(value & 1)
        return (value >> 1) ^ sign
    # A negative int64 is written as the two's complement of 64 bits.
    is_negative = value >> 63
    if is_negative:
        return value - (1 << 64)
    return value


def _fixed(data: bytes, kind: Any) -> list[Any]:
    """Return the number in so many bytes; an integer where the kind is none."""
    width = len(data)
    form_of_integer = _FORMS[FIXED, width]
    form = _FORMS.get((kind, width), form_of_integer)
    return [*struct.unpack(form, data)]


def _values(data: bytes, kind: Any) -> list[Any]:
    """Return the values in the bytes of a field: a message, a text, or packed."""
    if isinstance(kind, Mapping):
        return [decode(data, kind)]
    if kind == TEXT:
        # Old traces of Chakra have a message where a version is due (`chakra_nodes`).
        return [data.decode("utf-8", "replace")]
    if kind not in (INTEGER, SIGNED):
        return []

    values = []
    place = 0
    while place < len(data):
        value, place = read_varint(data, place)
        values.append(_integer(value, kind))
    return values


def encode(fields: Mapping[int, Any]) -> bytes:
    """Return a message: whole numbers, texts, bytes, and lists of them, by number."""
    parts = []
    for number, value in fields.items():
        values = value if isinstance(value, list) else [value]
        for single in values:
            if isinstance(single, int):
                tag = number << 3 | _VARINT
                parts.append(write_varint(tag))
                parts.append(write_varint(single))
                continue

            content = single
            if isinstance(single, str):
                content = single.encode()
            tag = number << 3 | _BYTES
            length = len(content)
            parts.append(write_varint(tag))
            parts.append(write_varint(length))
            parts.append(content)
    return b"".join(parts)


def write_varint(value: int) -> bytes:
    """Return a whole number of variable length, of 64 bits with its sign."""
    parts = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        low_bits = value & 0x7F
        parts.append(low_bits | 0x80)
        value >>= 7
    return bytes([*parts, value])
