"""Frames against literal bytes, both ways."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest

from emu.emulation.wire.data_reader import DataReader, decode_header
from emu.emulation.wire.decoding import MessageReader
from emu.emulation.wire.encoding import encode_data, encode_message
from emu.emulation.wire.frame_layout import (
    CONNECTION_ROWS,
    LAST_STATE,
    Frame,
    Kind,
    Message,
    WireLimits,
)
from emu.errors import MalformedFrame

HELLO = (
    b"emuF\x00\x05\x00\x01\x00\x00\x00\x00\x00\x00\x00\x07"
    b"\x9a\x7f\x92\xd7"
    b"\x81\xa4edge\x03"
)
DATA_HEADER = (
    b"\x84\xa4edge\x02\xa9iteration\x07\xa6shaped\xc3"
    b"\xa7tensors\x92\x93\xa1a\xa2f4\x92\x01\x02\x93\xa1b\xa2u1\x91\x03"
)
BODY = b"\x00\x00\x80\x3f\x00\x00\x00\x40\x09\x08\x07"
LENGTHS = b"emuF\x00\x05\x00\x02" + struct.pack(">II", len(DATA_HEADER) + 4, 11)
DATA = (
    LENGTHS
    + struct.pack(">II", zlib.crc32(LENGTHS), zlib.crc32(DATA_HEADER + BODY))
    + DATA_HEADER
    + BODY
)


def memory(size: int) -> memoryview:
    return memoryview(bytearray(size))


def feed(reader: DataReader, data: bytes) -> list[Frame]:
    """Hand the reader the bytes in the largest pieces it takes."""
    found = []
    while data:
        room = reader.get_buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        reader.on_bytes(count)
        while (taken := reader.take()) is not None:
            found.append(taken)
    return found


def test_message_both_ways() -> None:
    encoded = encode_message(Kind.HELLO, {"edge": 3})
    reader = MessageReader(kinds={Kind.HELLO})
    reader.get_buffer()[: len(HELLO)] = HELLO
    reader.on_bytes(len(HELLO))

    assert encoded == HELLO
    assert reader.take() == Message(Kind.HELLO, {"edge": 3})
    assert reader.take() is None


def test_data_both_ways() -> None:
    payload: dict[str, Any] = {
        "b": np.array([9, 8, 7], dtype=np.uint8),
        "a": np.array([[1.0, 2.0]], dtype=np.float32),
    }

    encoded = encode_data(2, 7, payload, shaped=True)
    (frame,) = feed(DataReader(memory), DATA)

    assert b"".join(encoded) == DATA
    assert (frame.edge, frame.iteration, frame.shaped) == (2, 7, True)
    assert frame.overhead == len(DATA) - 11
    assert list(frame.arrays) == ["a", "b"]
    for name, array in payload.items():
        np.testing.assert_array_equal(frame.arrays[name], array)
        assert frame.arrays[name].dtype == array.dtype


def test_tensors_are_viewed_at_both_ends() -> None:
    """Encoding hands out the array's own memory, decoding views what was filled."""
    array = np.zeros(100, dtype=np.int64)
    landing = bytearray(array.nbytes)
    reader = DataReader(lambda _: memoryview(landing))

    array[:] = 7
    buffers = encode_data(0, 0, {"x": array})
    assert np.shares_memory(np.frombuffer(buffers[1], np.uint8), array)
    (frame,) = feed(reader, b"".join(buffers))

    assert frame.arrays["x"][99] == 7
    landing[:] = bytes(len(landing))
    assert frame.arrays["x"][99] == 0


def test_tensors_are_aligned_without_padding() -> None:
    payload: dict[str, Any] = {
        "bytes": np.ones(3, dtype=np.uint8),
        "labels": np.ones(5, dtype=np.int32),
        "vertices": np.ones(2, dtype=np.int64),
    }

    (frame,) = feed(DataReader(memory), b"".join(encode_data(0, 0, payload)))

    assert frame.volume == 3 + 20 + 16
    assert all(array.flags.aligned for array in frame.arrays.values())


def test_empty_tensors_and_scalars() -> None:
    payload: dict[str, Any] = {
        "none": np.empty((0, 4), dtype=np.float32),
        "scalar": np.array(2.5),
    }

    frames = feed(
        DataReader(memory),
        b"".join(encode_data(0, 0, payload)) + b"".join(encode_data(0, 1, {})),
    )

    assert [type(frame) for frame in frames] == [Frame, Frame]
    first = frames[0]
    assert first.arrays["none"].shape == (0, 4)
    assert first.arrays["scalar"] == 2.5
    assert first.arrays["scalar"].shape == ()


def test_nothing_is_allocated_for_a_payload_without_bytes() -> None:
    def refuse(size: int) -> memoryview:
        raise AssertionError(size)

    frames = feed(
        DataReader(refuse),
        b"".join(encode_data(0, 0, {"x": np.empty(0)})),
    )

    assert len(frames) == 1


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4, 4))[:, 1],
        np.zeros(3, dtype=">f4"),
        np.zeros(3, dtype=np.complex64),
        np.array(["text"]),
        np.array([None]),
    ],
    ids=["strided", "big-endian", "complex", "text", "object"],
)
def test_arrays_that_the_wire_does_not_carry(array: Any) -> None:
    with pytest.raises(ValueError, match="tensor 'x'"):
        encode_data(0, 0, {"x": array})


def test_limits_of_lengths_and_numbers() -> None:
    """By default; the iteration of a last state is the largest of 32 bits."""
    limits = WireLimits()
    assert (limits.header, limits.body, limits.message) == (65536, 2**30, 2**20)
    assert np.iinfo(CONNECTION_ROWS["iteration"]).max == LAST_STATE
    fields: dict[str, Any] = {"edge": 2**62, "shaped": False, "tensors": []}
    most = decode_header({**fields, "iteration": 2**62}, limit=1)
    assert (most.edge, most.iteration) == (2**62, 2**62)
    with pytest.raises(MalformedFrame, match="iteration is 4611686018427387905"):
        decode_header({**fields, "iteration": 2**62 + 1}, limit=1)


def test_messages_carry_plain_values_only() -> None:
    with pytest.raises(TypeError):
        encode_message(Kind.CONTROL, {"x": object()})
