"""Sealed messages: whatever is done to them on their way is noticed."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from emu.emulation.wire.decoding import MessageReader
from emu.emulation.wire.encoding import encode_message
from emu.emulation.wire.frame_layout import Kind, Seal
from emu.errors import MalformedFrame, WireError

KEY = bytes(range(32))
NUMBERS = list(range(4))


def sealed() -> list[bytes]:
    seal = Seal(KEY)
    return [encode_message(Kind.CONTROL, {"n": n}, seal) for n in NUMBERS]


def heard(data: bytes) -> tuple[list[int], WireError | None]:
    """Return what a reader takes of a stream, and what it says of the rest."""
    reader = MessageReader(kinds={Kind.CONTROL})
    reader.trust(seal=Seal(KEY))
    reader.get_buffer()[: len(data)] = data
    reader.on_bytes(len(data))
    numbers: list[int] = []
    try:
        while (came := reader.take()) is not None:
            numbers.append(came.fields["n"])
        reader.end()
    except WireError as error:
        return numbers, error
    return numbers, None


def test_sealed_messages_arrive() -> None:
    assert heard(b"".join(sealed())) == (NUMBERS, None)


@given(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=6))
def test_only_the_order_they_were_sent_in_is_taken(order: list[int]) -> None:
    frames = sealed()
    numbers, error = heard(b"".join(frames[n] for n in order))

    assert numbers == NUMBERS[: len(numbers)]
    assert (error is None) == (order == NUMBERS[: len(order)])


@given(st.data())
def test_no_altered_byte_is_taken(data: st.DataObject) -> None:
    stream = bytearray(b"".join(sealed()))
    place = data.draw(st.integers(0, len(stream) - 1))
    stream[place] ^= data.draw(st.integers(1, 255))
    numbers, error = heard(bytes(stream))

    assert error is not None
    assert numbers == NUMBERS[: len(numbers)]
    assert len(numbers) == place * len(NUMBERS) // len(stream)


def test_message_without_seal_is_refused_where_one_is_due() -> None:
    _, error = heard(encode_message(Kind.CONTROL, {"n": 0}))

    assert isinstance(error, MalformedFrame)
    assert "seal of 0 bytes where 16 are due" in str(error)


def test_seal_is_refused_where_none_is_due() -> None:
    reader = MessageReader(kinds={Kind.CONTROL})
    frame = sealed()[0]
    reader.get_buffer()[: len(frame)] = frame
    reader.on_bytes(len(frame))
    with contextlib.suppress(MalformedFrame):
        reader.take()
        raise AssertionError
