"""The reader against a peer who may send anything."""

from __future__ import annotations

import contextlib
import math
import struct
import zlib
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from emu.emulation.wire.data_reader import MAX_TENSORS, DataReader, decode_header
from emu.emulation.wire.decoding import AHEAD, MessageReader
from emu.emulation.wire.encoding import encode_data, encode_message
from emu.emulation.wire.frame_layout import (
    PREFIX_BYTES,
    Frame,
    Kind,
    WireLimits,
)
from emu.errors import (
    FrameTooLarge,
    MalformedFrame,
    NodeMisbehaved,
    TruncatedFrame,
    WireError,
)
from emu.host.stream_key import stream_key
from emu.prediction.core import ffi, lib, structure
from tests.emulation.wire.prefix import prefix_of

LIMITS = WireLimits(header=4096, body=1 << 16, message=4096)
GOOD: dict[str, Any] = {
    "edge": 1,
    "iteration": 2,
    "shaped": False,
    "tensors": [["x", "f4", [2, 3]]],
}


class Recorder:
    """An allocator that remembers what it was asked for."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, size: int) -> memoryview:
        """Return memory of that size."""
        self.sizes.append(size)
        return memoryview(bytearray(size))


def reader_of(allocate: Recorder) -> DataReader:
    return DataReader(allocate, limits=LIMITS)


def message_reader(kind: Kind = Kind.HELLO) -> MessageReader:
    return MessageReader(kinds={kind}, limits=LIMITS)


def feed(
    reader: DataReader | MessageReader, data: bytes, pieces: list[int] | None = None
) -> list[Any]:
    """Hand over the bytes in pieces of the given sizes, then as large as it goes."""
    found, sizes = [], iter(pieces or [])
    while data:
        room = reader.get_buffer()
        count = min(len(room), len(data), next(sizes, len(data)))
        room[:count] = data[:count]
        data = data[count:]
        reader.on_bytes(count)
        while (taken := reader.take()) is not None:
            found.append(taken)
    return found


def frame_of(header: Any, body: bytes = b"", *, length: int | None = None) -> bytes:
    packed = header if isinstance(header, bytes) else msgpack.packb(header)
    size = len(body) if length is None else length
    packed = struct.pack(">I", zlib.crc32(packed + body)) + packed
    return prefix_of(header=len(packed), body=size) + packed + body


payloads = st.dictionaries(
    st.text(max_size=8),
    hnp.arrays(
        st.sampled_from([np.dtype(n) for n in ("f4", "f8", "i4", "i8", "u1", "?")]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
    ),
    max_size=4,
)
pieces = st.lists(st.integers(1, 64), max_size=30)


@given(st.lists(payloads, max_size=4), pieces)
def test_frames_survive_any_chunking(
    sent: list[dict[str, Any]], pieces: list[int]
) -> None:
    data = b"".join(
        b"".join(encode_data(3, n, payload)) for n, payload in enumerate(sent)
    )
    reader = reader_of(Recorder())

    frames = feed(reader, data, pieces)
    reader.end()

    assert len(frames) == len(sent)
    for n, (frame, payload) in enumerate(zip(frames, sent, strict=True)):
        assert isinstance(frame, Frame)
        assert (frame.edge, frame.iteration) == (3, n)
        assert frame.arrays.keys() == payload.keys()
        for name, array in payload.items():
            assert frame.arrays[name].shape == array.shape
            assert frame.arrays[name].tobytes() == array.tobytes()


@given(
    at=st.integers(0, PREFIX_BYTES - 1),
    bit=st.integers(0, 7),
    kind=st.sampled_from(Kind),
)
def test_an_altered_prefix_is_refused_before_what_follows_it(
    at: int, bit: int, kind: Kind
) -> None:
    """With an altered length the reader would wait for bytes that are never sent."""
    sent = bytearray(prefix_of(kind=kind, header=9, body=9))
    sent[at] ^= 1 << bit
    reader = reader_of(Recorder()) if kind == Kind.DATA else message_reader(kind)
    with pytest.raises(MalformedFrame):
        feed(reader, bytes(sent))


@given(payloads, st.data(), pieces)
def test_no_altered_bit_of_a_frame_passes(
    payload: dict[str, Any], data: st.DataObject, pieces: list[int]
) -> None:
    sent = bytearray(b"".join(encode_data(3, 1, payload)))
    at = data.draw(st.integers(0, len(sent) - 1))
    sent[at] ^= 1 << data.draw(st.integers(0, 7))
    reader = reader_of(Recorder())

    def read() -> None:
        assert feed(reader, bytes(sent), pieces) == []
        reader.end()  # where a length has grown, it ends inside

    with pytest.raises(WireError):
        read()


@given(st.binary(min_size=1, max_size=200), pieces)
def test_random_bytes_raise_wire_errors_only(data: bytes, pieces: list[int]) -> None:
    allocate = Recorder()
    reader = reader_of(allocate)

    with contextlib.suppress(WireError):
        feed(reader, data, pieces)
        reader.end()

    assert allocate.sizes == []


@given(st.data())
def test_a_damaged_frame_is_refused_or_another_frame(data: st.DataObject) -> None:
    """Flipped bits anywhere raise a WireError, and never cost more than the limit."""
    good = b"".join(encode_data(1, 2, {"x": np.arange(6), "y": np.zeros(3)}))
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(good) - 49))
        damaged[at] ^= data.draw(st.integers(1, 255))
    allocate = Recorder()
    reader = reader_of(allocate)

    with contextlib.suppress(WireError):
        feed(reader, bytes(damaged))
        reader.end()

    assert sum(allocate.sizes) <= LIMITS.body


@given(st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats()
    | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
), st.sampled_from([*GOOD]))  # fmt: skip
def test_any_value_under_any_key_raises_wire_errors_only(value: Any, key: str) -> None:
    allocate = Recorder()
    body = bytes(24)

    with contextlib.suppress(WireError):
        feed(reader_of(allocate), frame_of({**GOOD, key: value}, body))

    assert sum(allocate.sizes) <= LIMITS.body


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (prefix_of(magic=b"HTTP"), "starts with b'HTTP'"),
        (prefix_of(version=2), "version 2, ours is 5"),
        (prefix_of(kind=3), "kind 3 has no place"),
        (prefix_of(kind=77), "kind 77 has no place"),
        (prefix_of(header=0), "the header is empty"),
        (prefix_of(header=3), "the header has no checksum"),
        (frame_of(b""), "not a msgpack map"),
        (frame_of(b"\xc1"), "not a msgpack map"),
        (frame_of(b"\x91\x01"), "not a msgpack map with text keys"),
        (frame_of({1: 2}), "not a msgpack map"),
        (frame_of(b"\xdf\xff\xff\xff\xff"), "not a msgpack map"),
        (frame_of(b"\x91" * 2000), "not a msgpack map"),
        (frame_of(b"\x81\xa1\xff\x00"), "not a msgpack map"),
        (frame_of({**GOOD, "more": 1}), "has the keys"),
        (frame_of({"edge": 1}), "has the keys"),
        (frame_of({**GOOD, "edge": -1}), "edge is -1"),
        (frame_of({**GOOD, "edge": True}), "edge is True"),
        (frame_of({**GOOD, "iteration": 1.0}), "iteration is 1.0"),
        (frame_of({**GOOD, "shaped": 1}), "shaped is 1"),
        (frame_of({**GOOD, "tensors": {}}), "tensors is no list"),
        (frame_of({**GOOD, "tensors": [0] * 1025}), "tensors is no list"),
        (frame_of({**GOOD, "tensors": [["x", "f4"]]}), "a tensor is described"),
        (frame_of({**GOOD, "tensors": [[1, "f4", []]]}), "tensor 1 of dtype"),
        (frame_of({**GOOD, "tensors": [["x", "O", []]]}), "of dtype 'O'"),
        (frame_of({**GOOD, "tensors": [["x", [], []]]}), "tensor 'x' of dtype"),
        (frame_of({**GOOD, "tensors": [["x", "f4", 3]]}), "has shape 3"),
        (frame_of({**GOOD, "tensors": [["x", "f4", [-1]]]}), "has shape"),
        (frame_of({**GOOD, "tensors": [["x", "f4", [True]]]}), "has shape"),
        (frame_of({**GOOD, "tensors": [["x", "f4", [1] * 17]]}), "has shape"),
        (
            frame_of({**GOOD, "tensors": [["x", "f4", [1]], ["x", "f4", [1]]]}),
            "two tensors have one name",
        ),
        (
            frame_of({**GOOD, "tensors": [["x", "u1", [4]], ["y", "f4", [1]]]}),
            "order of falling item size",
        ),
        (frame_of(msgpack.packb(GOOD) + b"\0", bytes(24)), "not a msgpack map"),
        (frame_of(GOOD, length=25), "take 24 bytes, the body has 25"),
        (frame_of(GOOD, length=0), "take 24 bytes, the body has 0"),
    ],
)
def test_malformed(data: bytes, message: str) -> None:
    """Refused with its own reason, before anything was allocated."""
    allocate = Recorder()

    with pytest.raises(MalformedFrame, match=message):
        feed(reader_of(allocate), data)

    assert allocate.sizes == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (prefix_of(kind=2), "kind 2 has no place"),
        (prefix_of(kind=1, header=1), "a seal of 1 bytes where 0"),
        (prefix_of(kind=1, header=0, body=0), "the message is empty"),
    ],
)
def test_malformed_messages(data: bytes, message: str) -> None:
    with pytest.raises(MalformedFrame, match=message):
        feed(message_reader(), data)


def test_a_hello_is_no_data() -> None:
    with pytest.raises(NodeMisbehaved, match="a second hello"):
        feed(reader_of(Recorder()), encode_message(Kind.HELLO, {"edge": 1}))


@pytest.mark.parametrize(
    "data",
    [
        prefix_of(header=4097),
        prefix_of(body=(1 << 16) + 1),
        prefix_of(body=2**32 - 1),
        frame_of({**GOOD, "tensors": [["x", "f8", [1 << 31, 1 << 31]]]}),
        frame_of({**GOOD, "tensors": [["x", "f8", [0, 2**62]]]}),
        frame_of({**GOOD, "tensors": [["x", "f8", [0, 1 << 12, 1 << 12]]]}),
        frame_of({**GOOD, "tensors": [["x", "f8", [2**64 - 1] * 16]]}),
    ],
    ids=["header", "body", "u64", "product", "zero", "zeros", "overflow"],
)
def test_too_large(data: bytes) -> None:
    allocate = Recorder()

    with pytest.raises(FrameTooLarge):
        feed(reader_of(allocate), data)

    assert allocate.sizes == []


def test_too_large_a_message() -> None:
    with pytest.raises(FrameTooLarge):
        feed(message_reader(), prefix_of(kind=1, header=0, body=4097))


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (1, "1 of 20 bytes of its prefix"),
        (PREFIX_BYTES, "0 of 47 bytes of its header"),
        (PREFIX_BYTES + 1, "1 of 47 bytes of its header"),
        (81, "14 of 64 bytes of its body"),
        (111, "44 of 64 bytes of its body"),
    ],
)
def test_truncated(cut: int, said: str) -> None:
    data = b"".join(encode_data(1, 2, {"x": np.arange(8)}))
    reader = reader_of(Recorder())
    feed(reader, data + data[:cut])

    with pytest.raises(TruncatedFrame, match=f"ended inside a frame: {said}"):
        reader.end()


@pytest.mark.parametrize("reader", [reader_of(Recorder()), message_reader()])
def test_the_end_between_frames_is_clean(reader: DataReader | MessageReader) -> None:
    reader.end()
    is_data = isinstance(reader, DataReader)
    feed(
        reader, frame_of(GOOD, bytes(24)) if is_data else encode_message(Kind.HELLO, {})
    )

    reader.end()

    assert not reader.inside


@pytest.mark.parametrize("begun", [1, PREFIX_BYTES - 1, PREFIX_BYTES])
def test_a_message_has_begun_with_the_first_byte_of_its_prefix(begun: int) -> None:
    reader = message_reader()
    message = encode_message(Kind.HELLO, {})

    assert feed(reader, message[:begun]) == []

    assert reader.inside
    with pytest.raises(TruncatedFrame):
        reader.end()


def test_what_comes_together_is_taken_one_by_one() -> None:
    """Frames in one receive call, the last one not whole."""
    reader = reader_of(Recorder())
    data = b"".join(encode_data(1, 2, {"x": np.arange(4)}))
    together = b"".join([data, data, data[:-1]])

    room = reader.get_buffer()
    room[: len(together)] = together
    reader.on_bytes(len(together))
    taken = [reader.take() for _ in range(3)]

    assert [type(frame) for frame in taken] == [Frame, Frame, type(None)]
    assert reader.inside
    reader.get_buffer()[:1] = data[-1:]
    reader.on_bytes(1)
    last = reader.take()
    assert isinstance(last, Frame)
    np.testing.assert_array_equal(last.arrays["x"], np.arange(4))


def test_what_came_beyond_a_message_is_kept_for_another_reader() -> None:
    reader = message_reader()
    data = encode_message(Kind.HELLO, {}) + b"more"
    reader.get_buffer()[: len(data)] = data
    reader.on_bytes(len(data))

    reader.take()

    assert reader.take_rest() == b"more"
    assert not reader.inside


headers = st.fixed_dictionaries(
    {
        "edge": st.integers(0, 2**64 - 1),
        "iteration": st.integers(-1, 2**20),
        "shaped": st.booleans() | st.integers(0, 1),
        "tensors": st.lists(
            st.tuples(
                st.sampled_from(["a", "bytes", "é", "n" * 31, "n" * 32]),
                st.sampled_from(["u1", "f4", "i8", "b1", "b2", "f1"]),
                st.lists(st.integers(0, 300), max_size=6),
            ),
            max_size=10,
        ),
    }
)


@pytest.mark.parametrize(("dtype", "items"), [("u1", 1 << 16), ("f8", 1 << 13)])
def test_a_tensor_fills_a_body_and_no_more(dtype: str, items: int) -> None:
    full = {**GOOD, "tensors": [["x", dtype, [1, items]]]}
    assert decode_header(full, limit=LIMITS.body).body_bytes == LIMITS.body

    more = {**GOOD, "tensors": [["y", dtype, [0]], ["x", dtype, [1, items + 1]]]}
    with pytest.raises(FrameTooLarge, match="'x'"):
        decode_header(more, limit=LIMITS.body)


def test_as_many_tensors_as_are_allowed_are_read() -> None:
    tensors = [[f"x{number}", "u1", [1]] for number in range(MAX_TENSORS)]
    header = decode_header({**GOOD, "tensors": tensors}, limit=LIMITS.body)
    assert header.body_bytes == MAX_TENSORS


@given(headers, st.data())
def test_a_plain_header_says_what_the_judge_of_others_reads(
    header: dict[str, Any], data: st.DataObject
) -> None:
    """Whatever the core takes by itself, as it stands or altered, is as decoded."""
    packed = bytearray(msgpack.packb(header))
    if data.draw(st.booleans()):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(
            st.integers(0, 255)
        )
    core = ffi.new("Receiver *", {"body_limit": LIMITS.body})
    judged = None
    with contextlib.suppress(ValueError, WireError, TypeError):
        fields = msgpack.unpackb(bytes(packed))
        judged = decode_header(fields, limit=LIMITS.body)
        core.length = judged.body_bytes

    is_plain = lib.read_header(core, ffi.from_buffer("uint8_t[]", packed), len(packed))

    if is_plain:
        assert judged is not None
        assert (core.edge, core.iteration) == (judged.edge, judged.iteration)
        assert core.shaped == judged.shaped
        for tensor, spec in zip(
            core.tensor[0 : core.tensors], judged.tensors, strict=True
        ):
            assert ffi.unpack(tensor.name, tensor.size).decode() == spec.name
            assert ffi.unpack(tensor.type, 2).decode() == spec.dtype
            shape = ffi.unpack(tensor.shape, tensor.dimensions)
            assert tuple(shape) == spec.shape
    elif judged is not None and bytes(packed) == msgpack.packb(header):
        names = [spec.name for spec in judged.tensors]
        most_ranks = max((len(spec.shape) for spec in judged.tensors), default=0)
        has_order = [*header] == ["edge", "iteration", "shaped", "tensors"]
        is_odd = len(names) > 8 or most_ranks > 4 or not all(map(is_short, names))
        assert is_odd or not has_order


def is_short(name: str) -> bool:
    return name.isascii() and len(name) <= 31


@given(st.integers(0, 2**32 - 1), st.integers(0, 700), st.integers(0, 15))
def test_sums_are_those_of_zlib(before: int, size: int, offset: int) -> None:
    """The sum goes on from any other sum, at any length, wherever the bytes lie."""
    content = np.random.default_rng([before, size]).bytes(offset + size)
    data = ffi.from_buffer("uint8_t[]", content) + offset
    content = content[offset:]

    assert lib.checksum(before, data, size) == zlib.crc32(content, before)


def test_an_error_stays() -> None:
    reader = reader_of(Recorder())
    with pytest.raises(MalformedFrame):
        feed(reader, prefix_of(version=9))

    with pytest.raises(MalformedFrame, match="version 9"):
        reader.get_buffer()

    messages = message_reader()
    with pytest.raises(MalformedFrame):
        feed(messages, prefix_of(version=9))
    messages.end()  # which says no more than the error has said


def offers(memory: memoryview) -> Callable[[int], memoryview]:
    """Return an allocator that gives this memory, whatever it is asked for."""
    return lambda _: memory


def test_misuse_is_not_the_peers_fault() -> None:
    for reader in (reader_of(Recorder()), message_reader()):
        with pytest.raises(ValueError, match=f"{AHEAD + 1} bytes received where"):
            reader.on_bytes(AHEAD + 1)

    partly_filled = message_reader()
    partly_filled.on_bytes(3)
    with pytest.raises(ValueError, match=f"where {AHEAD - 3} were offered"):
        partly_filled.on_bytes(AHEAD - 2)

    for memory in (b"", bytearray(23), bytes(24)):
        short = DataReader(offers(memoryview(memory)))
        with pytest.raises(ValueError, match="the allocator"):
            feed(short, frame_of(GOOD, bytes(24)))


def test_bursts_are_what_a_rate_does_not_carry() -> None:
    """A leaky bucket of payload alone, from the time of one call to that of another."""
    head, body = encode_data(1, 2, {"x": np.zeros(1000, np.uint8)})
    reader = DataReader(Recorder(), rate=100.0)

    for wall, size in (
        (0.0, len(head)),
        (1.0, 100),
        (2.0, 50),
        (3.0, 300),
        (4.0, 250),
        (9.0, 300),
    ):
        reader.get_buffer()[:size] = bytes(head if wall == 0.0 else body[:size])
        reader.on_bytes(size, wall)
        reader.take()

    assert not reader.inside
    assert reader.core.burst == 200.0 + 150.0


def test_of_a_watched_body_no_more_is_taken_at_once_than_has_a_time() -> None:
    head, _ = encode_data(1, 2, {"x": np.zeros(1 << 20, np.uint8)})
    rooms = {}
    for rate in (1e9, math.inf):
        reader = DataReader(Recorder(), rate=rate)
        reader.get_buffer()[: len(head)] = head
        reader.on_bytes(len(head))
        reader.take()
        rooms[rate] = len(reader.get_buffer())

    assert rooms == {1e9: 1 << 16, math.inf: 1 << 20}


class _Ring:
    """Compares bodies of an edge with windows into random bytes."""

    def __init__(self, edge: int, first: int = 0, *, block: int = 1 << 16) -> None:
        rng = np.random.default_rng(edge)
        self._period = 10_000
        self._bytes = rng.integers(256, size=self._period, dtype=np.uint8)
        self._first = first
        self._edge = edge
        self.core = structure(
            "Expected",
            seed=7,
            edge=edge,
            first=first,
            ring=self._bytes,
            period=self._period,
            block=block,
        )

    def body(self, iteration: int, size: int) -> NDArray[np.uint8]:
        """Return what is expected, found in another way."""
        number = iteration + self._first
        start = int(stream_key(7, self._edge, number)) % self._period
        return self._bytes[(start + np.arange(size)) % self._period]

    def finish(self, _sizes: Any) -> None:
        """Not called by a reader: its owner looks at the frame before."""
        raise AssertionError


@given(
    st.lists(st.integers(0, 600_000), min_size=1, max_size=3),
    st.lists(st.integers(1, 300_000), max_size=12),
    st.data(),
)
def test_bodies_of_two_connections_are_compared_through_one_window(
    lengths: list[int], pieces: list[int], data: st.DataObject
) -> None:
    """Both receive in turn, so each finds the other's bytes in the window."""
    block = data.draw(st.sampled_from([64, 1000, 1 << 16]))
    rings = [_Ring(0, block=block), _Ring(1, first=5, block=block)]
    readers = [
        DataReader(Recorder(), find_sink=lambda: rings[0]),
        DataReader(Recorder(), find_sink=lambda: rings[1]),
    ]
    streams, faults = [], []
    for edge in range(2):
        sent = [rings[edge].body(n, size + edge) for n, size in enumerate(lengths)]
        altered = data.draw(st.integers(-1, sent[-1].size - 1))
        faults.append(altered)
        if altered >= 0:
            sent[-1][altered] ^= 1
        frames = [encode_data(edge, n, {"x": x}) for n, x in enumerate(sent)]
        streams.append(b"".join(b"".join(views) for views in frames))

    came: list[list[Frame]] = [[], []]
    sizes = iter(pieces)
    while any(streams):
        for edge in range(2):
            count = next(sizes, len(streams[edge]))
            came[edge] += feed(readers[edge], streams[edge][:count])
            streams[edge] = streams[edge][count:]

    for edge in range(2):
        expected = rings[edge].core
        if faults[edge] < 0:
            assert expected.fault == -1
        else:
            assert expected.fault <= faults[edge] < expected.fault + block
        assert expected.iteration == len(lengths) - 1 + 5 * edge
        assert [frame.sizes for frame in came[edge]] == [
            {"x": n + edge} for n in lengths
        ]
        assert [frame.volume for frame in came[edge]] == [n + edge for n in lengths]
        assert not any(frame.arrays for frame in came[edge])


def test_a_body_that_was_altered_in_its_second_window_is_refused() -> None:
    size = (1 << 18) + 100
    data = bytearray(b"".join(encode_data(1, 2, {"x": np.zeros(size, np.uint8)})))
    data[-1] = 1
    reader = DataReader(Recorder(), find_sink=lambda: _Ring(1))

    with pytest.raises(MalformedFrame, match="altered"):
        feed(reader, bytes(data))
