"""From bytes of a peer, who may be anybody, to frames that can be trusted.

Rule 1: no memory is taken for a length that was not checked. Rule 2: nothing that a
peer can send raises anything but a `WireError`. Rule 3: after an error a reader is
dead, since nothing says where the next frame would begin.
"""

from __future__ import annotations

from collections.abc import Collection

import msgpack
from isal import isal_zlib

from emu.emulation.wire.frame_layout import (
    CHECKSUM,
    MAGIC,
    PREFIX,
    PREFIX_BYTES,
    SEAL_BYTES,
    VERSION,
    Fields,
    Kind,
    Message,
    Seal,
    WireLimits,
)
from emu.errors import FrameTooLarge, MalformedFrame, TruncatedFrame, WireError

#: Bytes that one receive call may bring of what is not the middle of a long message.
AHEAD = 1 << 14
# `Kind(number)` takes 0.4 us.
_KINDS = {kind.value: kind for kind in Kind}


class MessageReader:
    """Turns a stream of bytes into messages.

    Fits `asyncio.BufferedProtocol`: fill the memory of `get_buffer`, say with
    `on_bytes` how much of it was filled, then `take` messages until there is none. What
    is short comes in one receive call, however many messages that are; with a call for
    each part one took three.

    Frames of other kinds, or beyond the limits, are refused.
    """

    def __init__(
        self,
        *,
        kinds: Collection[Kind],
        limits: WireLimits | None = None,
    ) -> None:
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
        self._seal_bytes = 0
        self._length = 0  # of both

    def trust(
        self,
        *,
        seal: Seal,
        limits: WireLimits | None = None,
    ) -> None:
        """Take only sealed messages, and maybe other lengths, from now on."""
        self._seal = seal
        self._limits = limits or self._limits

    @property
    def inside(self) -> bool:
        """True where a message has begun and not ended."""
        return self._kind is not None or self._end > self._begin

    def take_rest(self) -> bytes:
        """Return what came beyond the messages that were taken."""
        rest = bytes(self._ahead[self._begin : self._end])
        self._begin = self._end
        return rest

    def get_buffer(self) -> memoryview:
        """Return the memory that the next bytes belong in, never empty.

        Raises WireError if the connection has already proved unusable.
        """
        if self._error is not None:
            raise self._error

        # Let what is due next fit behind what came of it.
        rest = self._ahead[self._begin : self._end]
        room = len(self._ahead)
        _, part_bytes = self._part()
        if part_bytes > room or (not rest and room > AHEAD):
            self._ahead = memoryview(bytearray(max(part_bytes, AHEAD)))
        self._ahead[: len(rest)] = rest  # 0.2 us where it lies there already
        self._begin = 0
        self._end = len(rest)
        return self._ahead[self._end :]

    def on_bytes(self, count: int) -> None:
        """Note that so many bytes were filled in; raises ValueError beyond the room."""
        room = len(self._ahead) - self._end
        if not 0 < count <= room:
            raise ValueError(f"{count} bytes received where {room} were offered")
        self._end += count

    def take(self) -> Message | None:
        """Return the next message that has come, None when there is no whole one.

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

    def _take(self) -> Message | None:
        if self._kind is None:
            prefix = self._due(PREFIX_BYTES)
            if prefix is None:
                return None
            self._take_prefix(prefix)
        content = self._due(self._length)
        kind = self._kind
        if content is None or kind is None:
            return None
        self._kind = None

        seal = content[: self._seal_bytes]
        body = content[self._seal_bytes :]
        if self._seal is not None and not self._seal.fits(seal, body):
            raise MalformedFrame("a message was altered, repeated or lost on its way")
        return Message(kind, decode_fields(body))

    def end(self) -> None:
        """Note the end of the stream; raises TruncatedFrame if that is in a frame."""
        if self._error is not None or not self.inside:
            return
        part, length = self._part()
        raise truncation(part, self._end - self._begin, length)

    def _part(self) -> tuple[str, int]:
        """Return the name of the part that is due next, and its length in bytes."""
        if self._kind is None:
            return "prefix", PREFIX_BYTES
        return "message", self._length

    def _due(self, length: int) -> memoryview | None:
        """Return the next bytes, None if there are not so many."""
        if self._end - self._begin < length:
            return None
        view = self._ahead[self._begin : self._begin + length]
        self._begin += length
        return view

    def _take_prefix(self, prefix: memoryview) -> None:
        kind, header, body = check_prefix(prefix, self._kinds)
        seal_bytes = SEAL_BYTES if self._seal is not None else 0
        if header != seal_bytes:
            raise MalformedFrame(f"a seal of {header} bytes where {seal_bytes} are due")
        check_length(body, self._limits.message, "message")
        if not body:
            raise MalformedFrame("the message is empty")
        self._kind = kind
        self._seal_bytes = header
        self._length = header + body


def check_prefix(prefix: memoryview, kinds: Collection[Kind]) -> tuple[Kind, int, int]:
    """Return kind of a frame, one of some, and lengths of its header and body.

    Raises MalformedFrame when it is none of ours.
    """
    magic, version, kind, header, body = PREFIX.unpack_from(prefix)
    if magic != MAGIC:
        raise MalformedFrame(f"the frame starts with {magic!r}, not {MAGIC!r}")
    if version != VERSION:
        raise MalformedFrame(f"the frame has version {version}, ours is {VERSION}")
    # Before any length is believed: an altered one would have us wait for ever.
    (checksum,) = CHECKSUM.unpack_from(prefix, PREFIX.size)
    if checksum != isal_zlib.crc32(prefix[: PREFIX.size]):
        raise MalformedFrame("the lengths of a frame were altered on their way")
    if kind not in kinds:
        raise MalformedFrame(f"a frame of kind {kind} has no place here")
    return _KINDS[kind], header, body


def truncation(part: str, count: int, length: int) -> TruncatedFrame:
    """Return what it means that a stream ended within a part of a frame."""
    progress = f"{count} of {length} bytes of its {part}"
    return TruncatedFrame(f"the connection ended inside a frame: {progress}")


def check_length(length: int, limit: int, part: str) -> None:
    """Raise FrameTooLarge where a part of a frame is beyond its limit, bytes."""
    if length > limit:
        raise FrameTooLarge(f"a {part} of {length} bytes, at most {limit} are taken")


def decode_fields(view: memoryview) -> Fields:
    """Return the map that some bytes are; raises MalformedFrame if they are none."""
    try:
        fields = msgpack.unpackb(view)
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise MalformedFrame(f"not a msgpack map: {error}"[:200]) from error
    if not isinstance(fields, dict) or not {*map(type, fields)} <= {str}:
        raise MalformedFrame("not a msgpack map with text keys")
    return fields
