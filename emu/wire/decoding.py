"""From bytes of a peer, who may be anybody, to frames that can be trusted.

Rule 1: no memory is taken for a length that was not checked. Rule 2: nothing that a
peer can send raises anything but a `WireError`. Rule 3: after an error a reader is
dead, since nobody can say where the next frame would begin.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np

from emu.errors import FrameTooLarge, MalformedFrame, TruncatedFrame, WireError
from emu.wire.layout import (
    DTYPES,
    MAGIC,
    MESSAGE_KINDS,
    PREFIX,
    PREFIX_BYTES,
    VERSION,
    DataHeader,
    Frame,
    Kind,
    Message,
    TensorSpec,
    WireLimits,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

#: Bytes offered to one receive call. Of a raw socket's throughput at 16 MB on one core,
#: 4 MB keep 0.93, 2 MB 0.84; unbounded calls held the loop for 5.7 ms (p99 of a control
#: message beside 64 MB bursts).
WINDOW = 1 << 22
MAX_TENSORS = 1024
MAX_DIMENSIONS = 16
MAX_INTEGER = 1 << 62
_KEYS = {"edge", "iteration", "version", "shaped", "tensors"}


class FrameReader:
    """Turns a stream of bytes into frames, receiving bodies where they shall stay.

    Fits `asyncio.BufferedProtocol`: fill the memory of `get_buffer`, then say how much
    of it was filled with `received`.

    Parameters
    ----------
    allocate
        Called with the length of a body that passed every check; returns writable
        memory of exactly that length. Never called for messages or empty bodies.
    kinds
        Kinds that are acceptable on this connection.
    limits
        Lengths beyond which a frame is refused.
    """

    def __init__(
        self,
        allocate: Callable[[int], memoryview],
        *,
        kinds: Collection[Kind],
        limits: WireLimits | None = None,
    ) -> None:
        self._allocate = allocate
        self._kinds = frozenset(kinds)
        self.limits = limits or WireLimits()
        self._prefix = memoryview(bytearray(PREFIX_BYTES))
        self._error: WireError | None = None
        self._kind = Kind.HELLO
        self._header: DataHeader | None = None
        self._lengths = (0, 0)
        self._crc = 0
        self._await_prefix()

    @property
    def inside(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._finish != self._prefix_complete or self._filled > 0

    def get_buffer(self) -> memoryview:
        """Return the memory that the next bytes belong in, never empty.

        Raises
        ------
        WireError
            If the connection has already proved unusable.
        """
        if self._error is not None:
            raise self._error
        return self._view[self._filled : self._filled + WINDOW]

    def received(self, count: int) -> Frame | Message | None:
        """Note that ``count`` bytes were filled in; return the frame they complete.

        Raises
        ------
        FrameTooLarge
            A length is beyond its limit; nothing was allocated for it.
        MalformedFrame
            The bytes are not a frame of ours, or contradict each other.
        ValueError
            ``count`` is more than `get_buffer` offered.
        """
        room = min(len(self._view) - self._filled, WINDOW)
        if not 0 < count <= room:
            raise ValueError(f"{count} bytes received where {room} were offered")
        if self._header is not None and self._header.checksum is not None:
            part = self._view[self._filled : self._filled + count]
            self._crc = zlib.crc32(part, self._crc)
        self._filled += count
        if self._filled < len(self._view):
            return None
        try:
            return self._finish()
        except WireError as error:
            self._error = error
            raise

    def end(self) -> None:
        """Note the end of the stream.

        Raises
        ------
        TruncatedFrame
            If a frame had begun and not ended.
        """
        if self._error is None and self.inside:
            raise TruncatedFrame(
                f"the connection ended inside a frame: {self._filled} of "
                f"{len(self._view)} bytes of its {self._part}"
            )

    def _expect(
        self,
        part: str,
        view: memoryview,
        finish: Callable[[], Frame | Message | None],
    ) -> None:
        self._part, self._view, self._finish = part, view, finish
        self._filled = 0

    def _await_prefix(self) -> None:
        self._header = None
        self._expect("prefix", self._prefix, self._prefix_complete)

    def _prefix_complete(self) -> Frame | Message | None:
        magic, version, kind, header, body = PREFIX.unpack(self._prefix)
        if magic != MAGIC:
            raise MalformedFrame(f"the frame starts with {magic!r}, not {MAGIC!r}")
        if version != VERSION:
            raise MalformedFrame(f"the frame has version {version}, ours is {VERSION}")
        if kind not in self._kinds:
            raise MalformedFrame(f"a frame of kind {kind} has no place here")
        self._kind = Kind(kind)
        self._lengths = (header, body)
        if self._kind in MESSAGE_KINDS:
            if header:
                raise MalformedFrame("a message has no header")
            _within(body, self.limits.message, "message")
            return self._begin("message", body, self._message_complete)
        _within(header, self.limits.header, "header")
        _within(body, self.limits.body, "body")
        return self._begin("header", header, self._header_complete)

    def _begin(
        self, part: str, length: int, finish: Callable[[], Frame | Message | None]
    ) -> Frame | Message | None:
        if not length:
            raise MalformedFrame(f"the {part} is empty")
        self._expect(part, memoryview(bytearray(length)), finish)
        return None

    def _message_complete(self) -> Message:
        fields = _unpack(self._view)
        self._await_prefix()
        return Message(self._kind, fields)

    def _header_complete(self) -> Frame | None:
        header = decode_header(_unpack(self._view), limit=self.limits.body)
        length = self._lengths[1]
        if header.body_bytes != length:
            raise MalformedFrame(
                f"the tensors take {header.body_bytes} bytes, the body has {length}"
            )
        self._header = header
        self._crc = 0
        if not length:
            self._view = memoryview(b"")
            return self._body_complete()
        view = self._allocate(length)
        if view.nbytes != length or view.readonly:
            raise ValueError(f"the allocator returned no writable {length} bytes")
        self._expect("body", view, self._body_complete)
        return None

    def _body_complete(self) -> Frame:
        header, body = self._header, self._view
        if header is None:
            raise RuntimeError("a body without its header")
        if header.checksum is not None and header.checksum != self._crc:
            raise MalformedFrame(
                f"edge {header.edge}, iteration {header.iteration}: checksum "
                f"{self._crc:08x}, the header says {header.checksum:08x}"
            )
        arrays, offset = {}, 0
        for spec in header.tensors:
            arrays[spec.name] = np.ndarray(
                spec.shape, DTYPES[spec.dtype], buffer=body, offset=offset
            )
            offset += spec.nbytes
        overhead = PREFIX_BYTES + self._lengths[0]
        self._await_prefix()
        return Frame(header, arrays, overhead)


def decode_header(fields: dict[str, Any], *, limit: int) -> DataHeader:
    """Return the data header that a peer's map describes.

    Parameters
    ----------
    fields
        As unpacked.
    limit
        Most bytes that one tensor may take.

    Raises
    ------
    MalformedFrame
        If a key is missing, unknown or has an impossible value.
    """
    if set(fields) - {"crc32"} != _KEYS:
        raise MalformedFrame(f"the header has the keys {sorted(fields)}")
    shaped, described = fields["shaped"], fields["tensors"]
    if not isinstance(shaped, bool):
        raise MalformedFrame(f"shaped is {shaped!r}")
    if not isinstance(described, list) or len(described) > MAX_TENSORS:
        raise MalformedFrame(f"tensors is no list of at most {MAX_TENSORS}")
    specs = tuple(_decode_spec(one, limit) for one in described)
    if len({spec.name for spec in specs}) != len(specs):
        raise MalformedFrame("two tensors have one name")
    sizes = [DTYPES[spec.dtype].itemsize for spec in specs]
    if sizes != sorted(sizes, reverse=True):
        raise MalformedFrame("the tensors are not in the order of falling item size")
    crc = _integer(fields, "crc32", (1 << 32) - 1) if "crc32" in fields else None
    return DataHeader(
        edge=_integer(fields, "edge", MAX_INTEGER),
        iteration=_integer(fields, "iteration", MAX_INTEGER),
        version=_integer(fields, "version", MAX_INTEGER),
        shaped=shaped,
        tensors=specs,
        checksum=crc,
    )


def _decode_spec(described: Any, limit: int) -> TensorSpec:
    if not isinstance(described, list) or len(described) != 3:
        raise MalformedFrame(f"a tensor is described by {described!r}"[:200])
    name, dtype, shape = described
    if not isinstance(name, str) or not isinstance(dtype, str) or dtype not in DTYPES:
        raise MalformedFrame(f"tensor {name!r} of dtype {dtype!r}"[:200])
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise MalformedFrame(f"tensor {name!r} has shape {shape!r}"[:200])
    if not all(type(extent) is int and extent >= 0 for extent in shape):
        raise MalformedFrame(f"tensor {name!r} has shape {shape!r}"[:200])
    # Zeros count as ones: numpy refuses (0, 2**62) although it holds nothing.
    largest = math.prod(max(extent, 1) for extent in shape) * DTYPES[dtype].itemsize
    if largest > limit:
        raise FrameTooLarge(f"tensor {name!r}: {largest} bytes, at most {limit}"[:200])
    return TensorSpec(name, dtype, tuple(shape))


def _integer(fields: dict[str, Any], key: str, largest: int) -> int:
    value = fields[key]
    if type(value) is not int or not 0 <= value <= largest:
        raise MalformedFrame(f"{key} is {value!r}"[:200])
    return value


def _within(length: int, limit: int, part: str) -> None:
    if length > limit:
        raise FrameTooLarge(f"a {part} of {length} bytes, at most {limit} are taken")


def _unpack(view: memoryview) -> dict[str, Any]:
    try:
        fields = msgpack.unpackb(view)
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise MalformedFrame(f"not a msgpack map: {error}"[:200]) from error
    if not isinstance(fields, dict) or not all(isinstance(key, str) for key in fields):
        raise MalformedFrame("not a msgpack map with text keys")
    return fields
