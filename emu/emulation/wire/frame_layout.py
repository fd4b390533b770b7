"""The layout of a frame, shared by the encoding and the decoding side.

    offset  0  4 bytes  magic "emuF"
            4  u16      version of this layout
            6  u16      kind
            8  u32      length of the header
           12  u32      length of the body
           16  u32      CRC-32 of these 16 bytes
           20           header, then body

An altered length would let a reader wait for bytes that never come, its sum does not.

The header of a message is its seal, or nothing. That of a data frame is a CRC-32 (u32)
of all that follows, then a msgpack map: TCP sums are 16 bits, and what a middlebox
alters it sums anew.
All prefix integers are in network byte order, tensors in little-endian order.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import math
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from isal import isal_zlib

from emu.array_types import Array

MAGIC = b"emuF"
VERSION = 5
PREFIX = struct.Struct(">4sHHII")
CHECKSUM = struct.Struct(">I")
PREFIX_BYTES = PREFIX.size + CHECKSUM.size
#: Name on the wire -> what it is in memory. Nothing else is ever constructed.
DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(name).newbyteorder("<")
    for name in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}
#: Rows that say which frame crossed when, as its sender and its receiver note it.
#: ``first`` and ``last``: of the frame's first and last bytes, run seconds. A receiver
#: takes its kernel's notes, a sender the instants before it handed the bytes to its
#: own. ``bytes``: payload, real bytes.
FRAME_ROWS = np.dtype(
    {
        "names": ["edge", "iteration", "first", "last", "bytes"],
        "formats": ["<u4", "<u4", "<f8", "<f8", "<u8"],
    }
)
#: Iteration in the row of a connection after its last flow.
LAST_STATE = 2**32 - 1
#: Rows of a sender's kernel (TCP_INFO) before each flow of an edge, and after the last:
#: microseconds of its timer and round trips, bytes of a segment and of the receiver's
#: window, segments of its own window; and counts since the connection began: segments
#: sent again, microseconds in which it was busy, and of these limited by the receiver's
#: window or its own buffer, timeouts and their milliseconds.
CONNECTION_ROWS = np.dtype(
    [
        ("edge", "<u4"),
        ("iteration", "<u4"),
        ("timer", "<u4"),
        ("segment", "<u4"),
        ("round_trip", "<u4"),
        ("segments_allowed", "<u4"),
        ("retransmitted", "<u4"),
        ("least_round_trip", "<u4"),
        ("busy", "<u8"),
        ("receiver_limited", "<u8"),
        ("buffer_limited", "<u8"),
        ("window", "<u4"),
        ("timeouts", "<u2"),
        ("timeout_time", "<u4"),
    ]
)
#: Rows of a receiver: wall seconds in which the newest bytes of a flow waited for a
#: lost segment, and in which bytes that were not the last waited to be read.
WAIT_ROWS = np.dtype(
    [("edge", "<u4"), ("iteration", "<u4"), ("hole", "<f8"), ("unread", "<f8")]
)
#: Rows of a rate board, read from it when they were put there: bytes per second of
#: (edge, iteration) from a run time on, seconds.
BOARD_ROWS = np.dtype(
    [("since", "<f8"), ("edge", "<u4"), ("iteration", "<u4"), ("rate", "<f8")]
)
#: Rows that a process hands over, by their names in `EmulatedRun` and frames.npz.
ROWS = {
    "sent": FRAME_ROWS,
    "received": FRAME_ROWS,
    "connections": CONNECTION_ROWS,
    "waits": WAIT_ROWS,
}
#: Rows of frames.npz.
KEPT_ROWS = {**ROWS, "board": BOARD_ROWS}
#: Bytes that a seal takes in front of its message.
SEAL_BYTES = 16


def prefix_of(kind: int, header: int, body: int) -> bytes:
    """Return the prefix of a frame with a header and a body of so many bytes.

    Raises struct.error when a length takes more than 32 bits.
    """
    lengths = PREFIX.pack(MAGIC, VERSION, kind, header, body)
    return lengths + CHECKSUM.pack(isal_zlib.crc32(lengths))


class Kind(enum.IntEnum):
    """Purpose of a frame."""

    HELLO = 1  # message: the first frame of a data connection, and the answer to it
    DATA = 2  # tensors: one iteration of one edge
    CONTROL = 3  # message: coordinator, agents and node processes


DATA_KINDS = frozenset({Kind.HELLO, Kind.DATA})
#: Fields of a message, or of what it specifies, by name: msgpack's own types.
Fields: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Lengths beyond which a frame is refused before anything is allocated, bytes."""

    header: int = 1 << 16
    body: int = 1 << 30
    message: int = 1 << 20


class TensorSpec(NamedTuple):
    """One tensor of a data frame."""

    name: str
    """Key in the payload."""
    dtype: str
    """Name as in `DTYPES`, e.g. "f4"."""
    shape: tuple[int, ...]
    """Extents; () is a scalar."""

    @property
    def nbytes(self) -> int:
        """Bytes on the wire and in memory (no padding)."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


class DataHeader(NamedTuple):
    """Header of a data frame."""

    edge: int
    iteration: int
    """Which flow or handoff this is."""
    shaped: bool
    """True where the sender paced it; False for handoffs within a machine."""
    tensors: tuple[TensorSpec, ...]
    """In the order of the body: falling item size, so that each tensor is aligned to
    its own items without padding."""

    @property
    def body_bytes(self) -> int:
        """Sum of the tensors' bytes: the length of the body."""
        return sum(spec.nbytes for spec in self.tensors)


class Frame(NamedTuple):
    """A complete data frame; ``arrays`` view the memory the allocator handed out.

    The first three are as in `DataHeader`. ``arrays`` are empty where the body went
    into a sink; ``sizes`` are the bytes of each tensor, ``volume`` of all, ``overhead``
    those of prefix and header, which no flow volume contains.
    """

    edge: int
    iteration: int
    shaped: bool
    arrays: dict[str, Array]
    sizes: dict[str, int]
    volume: int
    overhead: int


class Message(NamedTuple):
    """A complete message frame: one map with text keys."""

    kind: Kind
    fields: Fields


class Seal:
    """Seals the messages of one direction of one connection, in their order.

    No third party can alter, repeat or drop one. A seal is a BLAKE2b, keyed (RFC 7693),
    of the number of the message and its bytes: 0.5 us for a message of 100 bytes, where
    an HMAC-SHA256 took 1.6.
    """

    def __init__(self, key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=SEAL_BYTES)
        self._count = 0

    def next(self, message: bytes | memoryview) -> bytes:
        """Return the seal of the next message."""
        self._count += 1
        seal = self._keyed.copy()
        seal.update(self._count.to_bytes(8, "big"))
        seal.update(message)
        return seal.digest()

    def fits(self, seal: bytes | memoryview, message: bytes | memoryview) -> bool:
        """Return True where the next message has this seal, in constant time."""
        return hmac.compare_digest(self.next(message), bytes(seal))
