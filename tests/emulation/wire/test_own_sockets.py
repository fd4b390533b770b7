"""Readers of data frames that receive by themselves, and what they judge."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from emu.emulation.wire.data_reader import DataReader
from emu.emulation.wire.encoding import encode_data
from emu.errors import MalformedFrame, RunError
from emu.prediction.core import ffi, lib
from tests.emulation.wire.prefix import prefix_of
from tests.emulation.wire.test_decoding import Recorder, feed


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Give two ends of a connection, the second of which does not block."""
    sender, receiver = socket.socketpair()
    receiver.setblocking(False)
    with sender, receiver:
        yield sender, receiver


def receiving(fd: int) -> DataReader:
    """Return a reader of a descriptor."""
    return DataReader(Recorder(), fd=fd, arrivals=ffi.new("Arrivals *"))


def test_a_reader_of_its_own_descriptor_receives_up_to_the_end(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    sender, receiver = ends
    reader = receiving(receiver.fileno())
    data = b"".join(encode_data(1, 2, {"x": np.arange(5)}))

    assert reader.receives
    assert [reader.take(), reader.ended] == [None, False]
    sender.sendall(data + data[:-1])
    frame = reader.take()
    assert frame is not None
    np.testing.assert_array_equal(frame.arrays["x"], np.arange(5))
    assert [reader.take(), reader.ended] == [None, False]
    sender.sendall(data[-1:])
    assert reader.take() is not None
    assert reader.take() is None
    sender.close()
    while not reader.ended:
        assert reader.take() is None
    assert not reader.inside


def test_what_cannot_be_received_has_the_error_of_the_system() -> None:
    sender, receiver = socket.socketpair()
    descriptor = receiver.detach()
    reader = receiving(descriptor)
    sender.close()
    socket.close(descriptor)

    with pytest.raises(OSError, match="descriptor") as raised:
        reader.take()

    assert raised.value.errno == errno.EBADF


def test_a_reader_without_a_descriptor_has_not_ended() -> None:
    reader = DataReader(Recorder())
    assert not reader.ended
    assert not reader.receives
    assert receiving(0).receives


def test_an_error_is_said_at_every_further_frame() -> None:
    reader = DataReader(Recorder())
    good = b"".join(encode_data(1, 2, {}))
    data = prefix_of(version=9) + good
    reader.get_buffer()[: len(data)] = data
    reader.on_bytes(len(data))

    for _ in range(2):
        with pytest.raises(MalformedFrame, match="version 9"):
            reader.take()


def test_nothing_is_taken_behind_an_altered_frame() -> None:
    reader = DataReader(Recorder())
    data = bytearray(b"".join(encode_data(1, 2, {"x": np.zeros(3, np.uint8)})))
    good = b"".join(encode_data(1, 3, {}))
    data[-1] ^= 1
    with pytest.raises(MalformedFrame, match="altered on its way"):
        feed(reader, bytes(data))
    room = ffi.buffer(lib.next_room(reader.core).start, len(good))
    room[:] = good
    reader.on_bytes(len(good))

    with pytest.raises(MalformedFrame, match="altered on its way"):
        reader.take()


def test_a_refused_prefix_behind_another_frame_is_named() -> None:
    reader = DataReader(Recorder())
    with pytest.raises(MalformedFrame, match="version 9, ours is 5"):
        feed(reader, b"".join(encode_data(1, 2, {})) + prefix_of(version=9))


@pytest.mark.parametrize("shape", [(2, 0), (3,)])
def test_a_header_beyond_the_usual_memory_is_read(shape: tuple[int, ...]) -> None:
    """Five hundred names of sixty bytes take more than 16 KB."""
    payload = {f"{number:060}": np.zeros(shape, np.uint8) for number in range(500)}
    (frame,) = feed(DataReader(Recorder()), b"".join(encode_data(1, 2, payload)))

    assert frame.arrays.keys() == payload.keys()
    assert frame.overhead > 1 << 15
    assert {array.shape for array in frame.arrays.values()} == {shape}


class Expected:
    """A sink that finds every body right."""

    core = ffi.NULL

    def __init__(self) -> None:
        self._ring = np.zeros(64, np.uint8)
        fields: dict[str, Any] = {
            "ring": ffi.from_buffer("uint8_t[]", self._ring),
            "period": 64,
            "block": 64,
        }
        self.core = ffi.new("Expected *", fields)

    def finish(self, _sizes: Any) -> None:
        """Find the body right."""


def test_sizes_of_what_is_not_kept_are_those_of_its_own_header() -> None:
    """The header of bytes alone is plain, and a name that is not of ASCII is odd."""
    sink = Expected()
    reader = DataReader(Recorder(), find_sink=lambda: sink)
    payloads: list[dict[str, Any]] = [
        {"bytes": np.zeros(7, np.uint8)},
        {"é": np.zeros((2, 3), np.int32)},
        {"bytes": np.zeros(5, np.uint8)},
        {"a": np.zeros((2, 5), np.int64), "b": np.zeros((), np.uint8)},
    ]
    data = b"".join(
        b"".join(encode_data(1, number, payload))
        for number, payload in enumerate(payloads)
    )

    sizes = [frame.sizes for frame in feed(reader, data)]

    assert sizes == [{"bytes": 7}, {"é": 24}, {"bytes": 5}, {"a": 80, "b": 1}]


def test_a_body_that_passes_needs_room_in_the_memory_of_payloads() -> None:
    """A buffer has at least 4096 bytes, and is free once its body was looked at."""
    sink = Expected()
    memory = ffi.new("PayloadMemory *", {"limit": 4096})
    reader = DataReader(Recorder(), find_sink=lambda: sink, memory=memory)
    fits = b"".join(encode_data(1, 2, {"bytes": np.zeros(6, np.uint8)}))
    assert len(feed(reader, fits)) == 1
    beyond = b"".join(encode_data(1, 3, {"bytes": np.zeros(3, np.uint8)}))

    expected = "3 bytes arrive while 4096 of at most 4096 bytes of receive memory"
    with pytest.raises(RunError, match=re.escape(expected)):
        feed(reader, beyond)


def test_a_lent_reader_refuses_a_body_without_room(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """The core begins bodies of its own accord once it knows what to expect."""
    sender, receiver = ends
    sink = Expected()
    memory = ffi.new("PayloadMemory *", {"limit": 6})
    arrivals = ffi.new("Arrivals *")
    reader = DataReader(
        Recorder(), memory=memory, fd=receiver.fileno(), arrivals=arrivals
    )
    reader.lend(sink)
    sender.sendall(b"".join(encode_data(1, 3, {"bytes": np.zeros(8, np.uint8)})))

    expected = "8 bytes arrive while 0 of at most 6 bytes of receive memory are in use"
    with pytest.raises(RunError, match=re.escape(expected)):
        reader.take()
