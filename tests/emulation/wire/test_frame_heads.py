"""Heads of frames as the core writes them, beside those of `encode_data`."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from emu.emulation.wire.data_reader import DataReader
from emu.emulation.wire.encoding import encode_data
from emu.prediction.core import ffi, lib, pointer

Bytes: TypeAlias = NDArray[np.uint8]
#: Numbers on both sides of each length that msgpack has for them.
_BOUNDS = [n + d for n in (1 << 7, 1 << 8, 1 << 16, 1 << 32) for d in (-1, 0, 1)]
numbers = st.sampled_from(_BOUNDS) | st.integers(0, 1 << 40)


def head_of(edge: int, iteration: int, payload: Bytes, *, shaped: bool) -> bytes:
    """Return what the core writes before a payload."""
    head = ffi.new("uint8_t[]", lib.HEAD)
    body = pointer(payload)
    size = lib.write_head(head, edge, iteration, shaped, body, len(payload))
    return bytes(ffi.buffer(head, size))


@pytest.mark.parametrize("number", [0, *_BOUNDS])
def test_numbers_take_the_fewest_bytes(number: int) -> None:
    payload = np.zeros(min(number, 70_000), np.uint8)
    views = encode_data(number, number + 2, {"bytes": payload})
    assert head_of(number, number + 2, payload, shaped=False) == bytes(views[0])


@given(
    edge=numbers,
    iteration=numbers,
    shaped=st.booleans(),
    content=st.binary(max_size=300),
)
def test_heads_are_those_of_python(
    *,
    edge: int,
    iteration: int,
    shaped: bool,
    content: bytes,
) -> None:
    payload = np.frombuffer(content, np.uint8)
    views = encode_data(edge, iteration, {"bytes": payload}, shaped=shaped)

    assert head_of(edge, iteration, payload, shaped=shaped) == bytes(views[0])


@given(st.integers(0, 70_000), st.integers(1, 70_000))
def test_heads_of_longer_bodies_are_read(iteration: int, length: int) -> None:
    """Edge and iteration differ, and so do the lengths of header and body."""
    payload = np.arange(length).astype(np.uint8)
    head = head_of(7, iteration, payload, shaped=True)
    reader = DataReader(lambda body: memoryview(bytearray(body)))
    stream = head + payload.tobytes()
    found = None
    while found is None:
        view = reader.get_buffer()
        count = min(len(view), len(stream))
        view[:count] = stream[:count]
        stream = stream[count:]
        reader.on_bytes(count)
        found = reader.take()
    assert (found.edge, found.iteration, found.shaped) == (7, iteration, True)
    np.testing.assert_array_equal(found.arrays["bytes"], payload)
