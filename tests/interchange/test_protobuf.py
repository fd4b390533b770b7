"""Numbers of protobuf's wire format: seven bits a byte, at most ten bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.interchange.protobuf import (
    FIXED,
    INTEGER,
    REAL,
    SIGNED,
    TEXT,
    Schema,
    decode,
    encode,
    read_messages,
    read_varint,
    write_varint,
)


def spelled(number: int, length: int) -> bytes:
    """Return a number in so many bytes, the lowest seven bits first."""
    groups = [number >> 7 * place & 0x7F for place in range(length)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_a_number_is_read_where_it_stands(
    number: int, before: bytes, after: bytes
) -> None:
    length = max(-(-number.bit_length() // 7), 1)
    content = spelled(number, length)

    assert write_varint(number) == content
    found = read_varint(before + content + after, len(before))
    assert found == (number, len(before) + length)


@pytest.mark.parametrize("length", range(1, 13))
def test_a_number_has_ten_bytes_at_most_and_all_that_it_begins(length: int) -> None:
    """Longer spellings of small numbers are in order, as far as 64 bits have bytes."""
    content = spelled(5, length)
    if length <= 10:
        assert read_varint(content, 0) == (5, length)
    else:
        with pytest.raises(ValueError, match="too long"):
            read_varint(content, 0)
    with pytest.raises(ValueError, match="cut short"):
        read_varint(content[:-1], 0)


@given(st.lists(st.binary(max_size=200), max_size=4), st.integers(1, 300))
def test_messages_are_those_that_were_announced(
    messages: list[bytes], missing: int
) -> None:
    content = b"".join(write_varint(len(each)) + each for each in messages)
    assert [*read_messages(content)] == messages

    cut = content + write_varint(missing) + bytes(missing - 1)
    with pytest.raises(ValueError, match=f"where {missing} more bytes are announced"):
        list(read_messages(cut))


SCHEMA: Schema = {
    1: ("whole", INTEGER),
    2: ("signed", SIGNED),
    3: ("fixed", FIXED),
    4: ("real", REAL),
    5: ("text", TEXT),
    6: ("inner", {1: ("whole", INTEGER), 5: ("text", TEXT)}),
    7: ("passed", None),
}


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        ("08 ac02", {"whole": [300]}),
        ("08 ffffffffffffffff7f", {"whole": [2**63 - 1]}),
        ("08 80808080808080808001", {"whole": [-(2**63)]}),
        ("08 feffffffffffffffff01", {"whole": [-2]}),
        ("10 03 10 04 10 00", {"signed": [-2, 2, 0]}),
        ("0a 03 ac02 05", {"whole": [300, 5]}),
        ("12 02 03 04", {"signed": [-2, 2]}),
        ("19 fdffffffffffffff", {"fixed": [-3]}),
        ("1d fcffffff", {"fixed": [-4]}),
        ("21 000000000000f83f", {"real": [1.5]}),
        ("25 0000803e", {"real": [0.25]}),
        ("2a 02 6869 2a 01 ff 2a 00", {"text": ["hi", "\ufffd", ""]}),
        ("32 05 0807 2a01 61 32 00", {"inner": [{"whole": [7], "text": ["a"]}, {}]}),
        ("38 05 3a 01 41 3d 00000000", {"passed": [5]}),
        ("78 05 7a 01 41 08 01", {"field 15": [5], "whole": [1]}),
        ("8001 06", {"field 16": [6]}),
        ("0d 07000000", {"whole": [7]}),
    ],
)
def test_a_field_has_its_value_by_its_kind(content: str, fields: object) -> None:
    """Bytes as protobuf's own encoder writes them; a field comes as often as it may."""
    assert decode(bytes.fromhex(content), SCHEMA) == fields


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("2a 03 6869", "field 5 of 3 bytes is cut short"),
        ("19 fdffffffffffff", "field 3 of 8 bytes is cut short"),
        ("25 000080", "field 4 of 4 bytes is cut short"),
        ("02 00", "field 0 of 0 bytes is cut short"),
        ("0b", "field 1 has type 3 of the wire"),
        ("0f", "field 1 has type 7 of the wire"),
        ("08 ac", "a number is cut short"),
        ("0a 01 ac", "a number is cut short"),
    ],
)
def test_a_damaged_message_is_refused(content: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode(bytes.fromhex(content), SCHEMA)


def test_a_message_is_written_as_it_is_read() -> None:
    """Numbers with their sign, texts, bytes, and lists of them; of an empty one none.

    A number up to 127 takes a byte.
    """
    fields = {1: 127, 5: "h\u00e9", 6: b"\x08\x80\x01", 7: [128, -1], 9: []}
    written = encode(fields)

    expected = "08 7f 2a 03 68c3a9 32 03 088001 38 8001 38 ffffffffffffffffff01"
    assert written == bytes.fromhex(expected)
    assert decode(written, SCHEMA) == {
        "whole": [127],
        "text": ["h\u00e9"],
        "inner": [{"whole": [128]}],
        "passed": [128, -1],
    }
