"""Numbers of protobuf's wire format: seven bits a byte, at most ten bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.interchange.protobuf import read_messages, read_varint, write_varint


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
