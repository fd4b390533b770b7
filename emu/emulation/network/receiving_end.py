"""The receiving end of one edge without I/O: bytes are fed, events come out.

Whoever owns the connection fills the memory of `get_buffer`, feeds how much came and
when, and does what the events say. Must not know: sockets, loops, other connections.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

from emu.emulation.network.authentication import Challenge, fresh_nonce
from emu.emulation.network.inbox import BufferPool, Delivery, PooledBuffer
from emu.emulation.wire.decoding import FrameReader
from emu.emulation.wire.encoding import encode_message
from emu.emulation.wire.frame_layout import DATA_KINDS, Fields, Frame, Kind, WireLimits
from emu.errors import EmulatorError, NodeLost, NodeMisbehaved

_OF_STRANGERS = WireLimits(header=0, body=0, message=4096)


@dataclass(frozen=True, slots=True)
class Answer:
    """Bytes that the peer is to get."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """The peer has proved that it knows the key of an edge."""

    edge: int


class Arrived(NamedTuple):
    """A frame has come whole; the first byte of its payload at ``first`` (wall)."""

    frame: Frame
    delivery: Delivery
    first: float


Event: TypeAlias = Answer | Accepted | Arrived


def answer(**fields: object) -> Answer:
    """Return something short for a peer that has got nothing yet."""
    return Answer(encode_message(Kind.HELLO, fields))


class ReceivingEnd:
    """Bytes of one connection, from its hello on.

    Parameters
    ----------
    keys
        Of the edges that may connect.
    taken
        Edges that are connected already, as they are then.
    pool
        Memory for payloads; the buffer of each event belongs to who takes it.
    certificate
        Fingerprint of the TLS certificate that the peer saw, if any.
    """

    def __init__(
        self,
        keys: Mapping[int, bytes],
        taken: Container[int],
        pool: BufferPool,
        certificate: bytes = b"",
    ) -> None:
        self._keys = keys
        self._taken = taken
        self._certificate = certificate
        self._challenge: Challenge | None = None
        self._buffer: PooledBuffer | None = None
        self._first = self._wall = 0.0  # of this frame's payload, of all that came
        self._newest = -1
        self.edge: int | None = None
        """None for a stranger."""

        def allocate(size: int) -> memoryview:
            self._first = self._wall
            self._buffer = pool.acquire(size)
            return self._buffer.view

        kinds = {Kind.HELLO}
        self._reader = FrameReader(allocate, kinds=kinds, limits=_OF_STRANGERS)
        self.get_buffer = self._reader.get_buffer

    @property
    def in_body(self) -> bool:
        """True where the next bytes are of a payload."""
        return self._buffer is not None

    @property
    def missing(self) -> int:
        """Bytes that are still to come of a shaped payload that has begun, else 0."""
        return self._reader.missing

    def feed(self, count: int, wall: float) -> Iterator[Event]:
        """Take so many bytes, the last of them at ``wall``; yield what they bring.

        Raises NodeMisbehaved, WireError where the peer does what it must not, RunError
        where a payload has no room; the end is good for nothing then.
        """
        self._wall = wall
        self._reader.on_bytes(count)
        while (frame := self._reader.take()) is not None:
            if isinstance(frame, Frame):
                yield self._take_frame(frame)
            elif self.edge is not None:
                raise NodeMisbehaved("a second hello on one connection")
            elif self._challenge is None:
                yield self._ask_for_proof(frame.fields)
            else:
                yield from self._accept(self._challenge, frame.fields)

    def give_up(self) -> None:
        """Give back the memory of a payload that has begun."""
        if self._buffer is not None:
            self._buffer.release()
            self._buffer = None

    def end(self, cause: str) -> EmulatorError:
        """Return what it means that no more bytes come, with its cause in words."""
        try:
            self._reader.end()
        except EmulatorError as error:
            return error
        loss = "the connection ended without a hello"
        if self.edge is not None:
            loss = f"the sender of edge {self.edge} has gone"
        return NodeLost(f"{loss}{cause}")

    def _ask_for_proof(self, fields: Fields) -> Answer:
        edge = fields.get("edge")
        if type(edge) is not int or edge not in self._keys:
            raise NodeMisbehaved(f"edge {edge!r:.50} does not end here")
        nonce = fresh_nonce()
        self._challenge = Challenge(
            key=self._keys[edge],
            subject=(edge,),
            client=fields.get("nonce", b""),
            server=nonce,
            binding=self._certificate,
        )
        return answer(nonce=nonce, proof=self._challenge.proof("server"))

    def _accept(self, challenge: Challenge, fields: Fields) -> Iterator[Event]:
        challenge.check(fields, "client")
        edge = cast("int", challenge.subject[0])
        if edge in self._taken:
            raise NodeMisbehaved(f"edge {edge} is connected already")
        self.edge = edge
        self._reader.trust(kinds=DATA_KINDS, limits=WireLimits())
        yield answer(accepted=edge)
        yield Accepted(edge)

    def _take_frame(self, frame: Frame) -> Arrived:
        header = frame.header
        if header.edge != self.edge:
            place = f"on the connection of edge {self.edge}"
            raise NodeMisbehaved(f"a frame of edge {header.edge} {place}")
        # Nothing may come twice, and the order on the wire is that of the source.
        if header.iteration <= self._newest:
            problem = f"sent iteration {header.iteration} after {self._newest}"
            raise NodeMisbehaved(f"edge {header.edge} {problem}")
        self._newest = header.iteration
        buffer = self._buffer
        self._buffer = None
        # Without a body nothing was allocated.
        first = self._first if frame.volume else self._wall
        delivery = Delivery(
            edge=header.edge,
            iteration=header.iteration,
            payload=frame.arrays,
            arrived=self._wall,
            buffer=buffer,
        )
        return Arrived(frame, delivery, first)
