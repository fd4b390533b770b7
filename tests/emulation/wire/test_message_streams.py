"""Streams of messages: long ones, what is left of them, and errors that stay."""

from __future__ import annotations

import hashlib

import pytest

from emu.emulation.wire.decoding import AHEAD, MessageReader
from emu.emulation.wire.encoding import encode_message
from emu.emulation.wire.frame_layout import Kind, Message, Seal, WireLimits
from emu.errors import FrameTooLarge, MalformedFrame, TruncatedFrame
from tests.emulation.wire.prefix import prefix_of
from tests.emulation.wire.test_decoding import feed, message_reader

KEY = bytes(range(32))


def fill(reader: MessageReader, data: bytes) -> int:
    """Hand over bytes at once; return the room that was offered for them."""
    room = reader.get_buffer()
    room[: len(data)] = data
    reader.on_bytes(len(data))
    return len(room)


def test_a_long_message_has_memory_of_its_own_until_it_was_taken() -> None:
    """It comes behind the beginning of another, in three pieces of its own."""
    reader = MessageReader(kinds={Kind.HELLO})
    short = encode_message(Kind.HELLO, {"n": 1})
    fields = {"bytes": bytes(range(250)) * 400}
    long = encode_message(Kind.HELLO, fields)
    usual = reader.get_buffer().obj

    assert fill(reader, short + long[:30]) == AHEAD
    assert reader.take() == Message(Kind.HELLO, {"n": 1})
    assert reader.take() is None
    # Ten bytes are there behind the prefix, which is taken.
    larger = reader.get_buffer().obj
    assert larger is not usual
    for begin in (30, 60_000):
        assert reader.take() is None
        end = 60_000 if begin == 30 else len(long)
        assert reader.get_buffer().obj is larger
        assert fill(reader, long[begin:end]) == len(long) - begin
    assert reader.take() == Message(Kind.HELLO, fields)

    assert len(reader.get_buffer()) == AHEAD
    assert not reader.inside


def test_short_messages_take_no_memory_anew() -> None:
    reader = message_reader()
    short = encode_message(Kind.HELLO, {"n": 1})
    usual = reader.get_buffer().obj
    # As many messages as end within a prefix at the end of the memory.
    together = short * (AHEAD // len(short)) + short[:5]

    for begin in range(0, len(together), 1000):
        fill(reader, together[begin : begin + 1000])
        while reader.take() is not None:
            pass
        assert reader.get_buffer().obj is usual

    assert len(reader.get_buffer()) == AHEAD - 5
    assert reader.take_rest() == short[:5]


@pytest.mark.parametrize(
    ("cut", "said"),
    [(1, "1 of 20 bytes of its prefix"), (23, "3 of 4 bytes of its message")],
)
def test_the_end_within_a_message_says_in_which_part(cut: int, said: str) -> None:
    reader = message_reader()
    message = encode_message(Kind.HELLO, {"n": 1})
    assert len(message) == 24
    feed(reader, message + message[:cut])

    with pytest.raises(TruncatedFrame, match=f"ended inside a frame: {said}"):
        reader.end()


def test_a_refused_stream_of_messages_stays_refused() -> None:
    """Whatever is asked of its reader, and what came behind says nothing more."""
    reader = message_reader()
    fill(reader, prefix_of(kind=1, version=9) + encode_message(Kind.HELLO, {}))

    for _ in range(2):
        with pytest.raises(MalformedFrame, match="version 9"):
            reader.take()
    with pytest.raises(MalformedFrame, match="version 9"):
        reader.get_buffer()
    assert reader.inside
    reader.end()


def test_messages_are_as_long_as_the_limits_say() -> None:
    """At a limit, beyond it, and under a limit that came with a seal."""
    message = encode_message(Kind.HELLO, {"n": 1})
    at_limit = MessageReader(kinds={Kind.HELLO}, limits=WireLimits(message=4))
    assert feed(at_limit, message) == [Message(Kind.HELLO, {"n": 1})]
    below = MessageReader(kinds={Kind.HELLO}, limits=WireLimits(message=3))
    with pytest.raises(FrameTooLarge, match="4 bytes, at most 3"):
        feed(below, message)

    sealed = encode_message(Kind.HELLO, {"n": 1}, Seal(KEY))
    trusting = MessageReader(kinds={Kind.HELLO}, limits=WireLimits(message=3))
    trusting.trust(seal=Seal(KEY), limits=WireLimits(message=4))
    assert feed(trusting, sealed) == [Message(Kind.HELLO, {"n": 1})]
    unchanged = MessageReader(kinds={Kind.HELLO}, limits=WireLimits(message=3))
    unchanged.trust(seal=Seal(KEY))
    with pytest.raises(FrameTooLarge, match="4 bytes, at most 3"):
        feed(unchanged, sealed)


def test_seals_are_keyed_sums_of_number_and_message() -> None:
    """Numbers are counted from 1, in eight bytes of network order."""
    seal = Seal(KEY)
    for number in (1, 2):
        content = bytes(7) + bytes([number]) + b"message"
        expected = hashlib.blake2b(content, key=KEY, digest_size=16).digest()
        assert seal.next(b"message") == expected
