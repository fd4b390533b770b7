"""From bytes of a peer, who may be anybody, to frames that can be trusted.

Rule 1: no memory is taken for a length that was not checked. Rule 2: nothing that a
peer can send raises anything but a `WireError`. Rule 3: after an error a reader is
dead, since nothing says where the next frame would begin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import msgpack
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from emu.emulation.wire.frame_layout import (
    CHECKSUM,
    DTYPES,
    MAGIC,
    MESSAGE_KINDS,
    PREFIX,
    PREFIX_BYTES,
    SEAL_BYTES,
    VERSION,
    DataHeader,
    Fields,
    Frame,
    Kind,
    Message,
    Seal,
    TensorSpec,
    WireLimits,
)
from emu.errors import FrameTooLarge, MalformedFrame, TruncatedFrame, WireError

#: Bytes offered to one receive call. Of a raw socket's throughput at 16 MB on one core,
#: 4 MB keep 0.93, 2 MB 0.84; unbounded calls held the loop for 5.7 ms (p99 of a control
#: message beside 64 MB bursts).
WINDOW = 1 << 22
#: Bytes that one receive call may bring of what is not the middle of a body.
AHEAD = 1 << 14
MAX_TENSORS = 1024
MAX_DIMENSIONS = 16
MAX_INTEGER = 1 << 62
_KEYS = {"edge", "iteration", "shaped", "tensors"}


class FrameReader:
    """Turns a stream of bytes into frames, receiving bodies where they shall stay.

    Fits `asyncio.BufferedProtocol`: fill the memory of `get_buffer`, say with
    `received` how much of it was filled, then `take` frames until there is none. What
    is short comes in one receive call, however many frames that are; with a call for
    each part a control message took three.

    ``allocate`` is called with the length of a body that passed every check, never for
    messages or empty bodies, and returns writable memory of exactly that length; by
    default it is new. Frames of other kinds, or beyond the limits, are refused.
    """

    def __init__(
        self,
        allocate: Callable[[int], memoryview] | None = None,
        *,
        kinds: Collection[Kind],
        limits: WireLimits | None = None,
    ) -> None:
        self._allocate = allocate or (lambda size: memoryview(bytearray(size)))
        self._kinds = frozenset(kinds)
        self._limits = limits or WireLimits()
        self._seal: Seal | None = None
        self._error: WireError | None = None
        self._ahead = memoryview(bytearray(AHEAD))
        # What came and was not taken yet, in _ahead.
        self._begin = 0
        self._end = 0

        # The frame whose prefix was taken.
        self._kind: Kind | None = None
        self._header_bytes = 0
        self._length = 0  # of its body
        self._header: DataHeader | None = None
        self._body = memoryview(b"")
        self._filled = 0
        self._stated = 0  # its checksum as sent
        self._checksum = 0  # of what has come
        self.body_bytes = 0  # that have come, of all frames

    def trust(
        self,
        *,
        kinds: Collection[Kind] | None = None,
        limits: WireLimits | None = None,
        seal: Seal | None = None,
    ) -> None:
        """Take other kinds and lengths, and only sealed messages, from now on."""
        self._seal = seal or self._seal
        self._kinds = frozenset(kinds) if kinds is not None else self._kinds
        self._limits = limits or self._limits

    @property
    def inside(self) -> bool:
        """True where a frame has begun and not ended."""
        return self._kind is not None or self._end > self._begin

    @property
    def missing(self) -> int:
        """Bytes that are still to come of a shaped body that has begun, else 0."""
        if self._header is None or not self._header.shaped:
            return 0
        return len(self._body) - self._filled

    def get_buffer(self) -> memoryview:
        """Return the memory that the next bytes belong in, never empty.

        Raises WireError if the connection has already proved unusable.
        """
        if self._error is not None:
            raise self._error
        if self._header is not None:
            return self._body[self._filled : self._filled + WINDOW]

        # Let what is due next fit behind what came of it.
        rest = self._ahead[self._begin : self._end]
        room = len(self._ahead)
        _, part_bytes = self._part()
        if part_bytes > room or (not rest and room > AHEAD):
            self._ahead = memoryview(bytearray(max(part_bytes, AHEAD)))
        elif rest and self._begin + part_bytes <= room:
            return self._ahead[self._end :]
        self._ahead[: len(rest)] = rest
        self._begin = 0
        self._end = len(rest)
        return self._ahead[self._end :]

    def on_bytes(self, count: int) -> None:
        """Note that so many bytes were filled in; raises ValueError beyond the room."""
        inside = self._header is not None
        room = len(self._ahead) - self._end
        if inside:
            room = min(len(self._body) - self._filled, WINDOW)
        if not 0 < count <= room:
            raise ValueError(f"{count} bytes received where {room} were offered")
        if inside:
            self._fill(count)
        else:
            self._end += count

    def take(self) -> Frame | Message | None:
        """Return the next frame that has come, None when there is no whole one.

        Raises FrameTooLarge when a length is beyond its limit, and nothing was
        allocated for it; MalformedFrame when the bytes are not a frame of ours, or
        contradict each other.
        """
        if self._error is not None:
            raise self._error
        try:
            return self._take()
        except WireError as error:
            self._error = error
            raise

    def _take(self) -> Frame | Message | None:
        if self._kind is None:
            prefix = self._due(PREFIX_BYTES)
            if prefix is None:
                return None
            self._take_prefix(prefix)
        if self._kind in MESSAGE_KINDS:
            return self._message()

        if self._header is None:
            header = self._due(self._header_bytes)
            if header is None:
                return None
            self._take_header(header)
        return self._frame() if self._filled == len(self._body) else None

    def end(self) -> None:
        """Note the end of the stream; raises TruncatedFrame if that is in a frame."""
        if self._error is not None or not self.inside:
            return
        part, length = self._part()
        count = self._end - self._begin if self._header is None else self._filled
        progress = f"{count} of {length} bytes of its {part}"
        raise TruncatedFrame(f"the connection ended inside a frame: {progress}")

    def _part(self) -> tuple[str, int]:
        """Return the name of the part that is due next, and its length in bytes."""
        if self._kind is None:
            return "prefix", PREFIX_BYTES
        if self._header is not None:
            return "body", len(self._body)
        if self._kind in MESSAGE_KINDS:
            return "message", self._header_bytes + self._length
        return "header", self._header_bytes

    def _due(self, length: int) -> memoryview | None:
        """Return the next bytes, None if there are not so many."""
        if self._end - self._begin < length:
            return None
        view = self._ahead[self._begin : self._begin + length]
        self._begin += length
        return view

    def _take_prefix(self, prefix: memoryview) -> None:
        magic, version, kind, header, body = PREFIX.unpack_from(prefix)
        if magic != MAGIC:
            raise MalformedFrame(f"the frame starts with {magic!r}, not {MAGIC!r}")
        if version != VERSION:
            raise MalformedFrame(f"the frame has version {version}, ours is {VERSION}")
        # Before any length is believed: an altered one would have us wait for ever.
        (checksum,) = CHECKSUM.unpack_from(prefix, PREFIX.size)
        if checksum != isal_zlib.crc32(prefix[: PREFIX.size]):
            raise MalformedFrame("the lengths of a frame were altered on their way")

        if kind not in self._kinds:
            raise MalformedFrame(f"a frame of kind {kind} has no place here")
        if kind in MESSAGE_KINDS:
            seal_bytes = SEAL_BYTES if self._seal is not None else 0
            if header != seal_bytes:
                raise MalformedFrame(
                    f"a seal of {header} bytes where {seal_bytes} are due"
                )
            _within(body, self._limits.message, "message")
        else:
            _within(header, self._limits.header, "header")
            _within(body, self._limits.body, "body")

        self._kind = Kind(kind)
        self._header_bytes = header
        self._length = body
        part, length = self._part()
        if not length or (kind in MESSAGE_KINDS and not body):
            raise MalformedFrame(f"the {part} is empty")

    def _message(self) -> Message | None:
        content = self._due(self._header_bytes + self._length)
        kind = self._kind
        if content is None or kind is None:
            return None
        self._kind = None

        seal = content[: self._header_bytes]
        body = content[self._header_bytes :]
        if self._seal is not None and not self._seal.fits(seal, body):
            raise MalformedFrame("a message was altered, repeated or lost on its way")
        return Message(kind, _unpack(body))

    def _take_header(self, packed: memoryview) -> None:
        if len(packed) < CHECKSUM.size:
            raise MalformedFrame("the header has no checksum")
        (self._stated,) = CHECKSUM.unpack_from(packed)
        packed = packed[CHECKSUM.size :]
        self._checksum = isal_zlib.crc32(packed)

        header = decode_header(_unpack(packed), limit=self._limits.body)
        size = header.body_bytes
        length = self._length
        if size != length:
            raise MalformedFrame(
                f"the tensors take {size} bytes, the body has {length}"
            )
        body = self._allocate(length) if length else memoryview(bytearray(0))
        # No fault of the peer's, so no WireError.
        if body.nbytes != length or body.readonly:
            raise ValueError(f"the allocator returned no writable {length} bytes")

        self._header = header
        self._body = body
        self._filled = 0
        # The beginning of the body may have come with its header.
        count = min(length, self._end - self._begin)
        body[:count] = self._ahead[self._begin : self._begin + count]
        self._begin += count
        self._fill(count)

    def _fill(self, count: int) -> None:
        part = self._body[self._filled : self._filled + count]
        self._checksum = isal_zlib.crc32(part, self._checksum)
        self._filled += count
        self.body_bytes += count

    def _frame(self) -> Frame:
        header = self._header
        body = self._body
        if header is None:
            raise RuntimeError("a body without its header")
        if self._checksum != self._stated:
            raise MalformedFrame("a frame was altered on its way")

        arrays = {}
        offset = 0
        for spec in header.tensors:
            array: NDArray[Any] = np.ndarray(
                spec.shape,
                DTYPES[spec.dtype],
                buffer=body,
                offset=offset,
            )
            arrays[spec.name] = array
            offset += array.nbytes

        self._kind = None
        self._header = None
        self._body = memoryview(b"")
        return Frame(
            header=header,
            arrays=arrays,
            volume=len(body),
            overhead=PREFIX_BYTES + self._header_bytes,
        )


def decode_header(fields: Fields, *, limit: int) -> DataHeader:
    """Return the data header that a peer's map describes; no tensor is over the limit.

    Raises MalformedFrame if a key is missing, unknown or has an impossible value.
    """
    if set(fields) != _KEYS:
        raise MalformedFrame(f"the header has the keys {sorted(fields)}")
    is_shaped = fields["shaped"]
    tensors = fields["tensors"]
    if not isinstance(is_shaped, bool):
        raise MalformedFrame(f"shaped is {is_shaped!r}")

    if not isinstance(tensors, list) or len(tensors) > MAX_TENSORS:
        raise MalformedFrame(f"tensors is no list of at most {MAX_TENSORS}")
    specs = tuple(_decode_spec(description, limit) for description in tensors)
    if len({spec.name for spec in specs}) != len(specs):
        raise MalformedFrame("two tensors have one name")
    sizes = [DTYPES[spec.dtype].itemsize for spec in specs]
    if sizes != sorted(sizes, reverse=True):
        raise MalformedFrame("the tensors are not in the order of falling item size")

    return DataHeader(
        edge=_integer(fields, "edge"),
        iteration=_integer(fields, "iteration"),
        shaped=is_shaped,
        tensors=specs,
    )


def _decode_spec(described: Any, limit: int) -> TensorSpec:
    if not isinstance(described, list) or len(described) != 3:
        raise MalformedFrame(f"a tensor is described by {described!r}"[:200])
    name, dtype, shape = described
    if not isinstance(name, str) or not isinstance(dtype, str) or dtype not in DTYPES:
        raise MalformedFrame(f"tensor {name!r} of dtype {dtype!r}"[:200])
    if (
        not isinstance(shape, list)
        or len(shape) > MAX_DIMENSIONS
        or not all(type(extent) is int and extent >= 0 for extent in shape)
    ):
        raise MalformedFrame(f"tensor {name!r} has shape {shape!r}"[:200])

    # Zeros count as ones: numpy refuses (0, 2**62) although it holds nothing.
    most_items = math.prod(max(extent, 1) for extent in shape)
    largest = most_items * DTYPES[dtype].itemsize
    if largest > limit:
        raise FrameTooLarge(f"tensor {name!r}: {largest} bytes, at most {limit}"[:200])
    return TensorSpec(name, dtype, tuple(shape))


def _integer(fields: Fields, key: str) -> int:
    value = fields[key]
    if type(value) is not int or not 0 <= value <= MAX_INTEGER:
        raise MalformedFrame(f"{key} is {value!r}"[:200])
    return value


def _within(length: int, limit: int, part: str) -> None:
    if length > limit:
        raise FrameTooLarge(f"a {part} of {length} bytes, at most {limit} are taken")


def _unpack(view: memoryview) -> Fields:
    try:
        fields = msgpack.unpackb(view)
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise MalformedFrame(f"not a msgpack map: {error}"[:200]) from error
    if not isinstance(fields, dict) or not {*map(type, fields)} <= {str}:
        raise MalformedFrame("not a msgpack map with text keys")
    return fields
