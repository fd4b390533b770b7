"""The receiving end of one edge without I/O: bytes are fed, events come out.

Whoever owns the connection fills the memory of `get_buffer`, feeds how much came and
when, and does what the events say. Must not know: sockets, loops, other connections.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, cast

from emu.emulation.network.authentication import Challenge, fresh_nonce
from emu.emulation.network.inbox import BufferPool, Delivery, Loan, PooledBuffer
from emu.emulation.wire.data_reader import DataReader, Sink
from emu.emulation.wire.decoding import MessageReader
from emu.emulation.wire.encoding import encode_message
from emu.emulation.wire.frame_layout import (
    LAST_STATE,
    Fields,
    Frame,
    Kind,
    WireLimits,
)
from emu.errors import EmulatorError, NodeLost, NodeMisbehaved
from emu.prediction.core import lib

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
    receiver
        Fields of the core's `Receiver`, by its edge.
    sinks
        What the payloads of edges are compared with that are not kept.
    """

    def __init__(
        self,
        keys: Mapping[int, bytes],
        taken: Container[int],
        pool: BufferPool,
        certificate: bytes = b"",
        receiver: Callable[[int], dict[str, Any]] = lambda _: {},
        sinks: Mapping[int, Sink] = MappingProxyType({}),
    ) -> None:
        self._keys = keys
        self._taken = taken
        self._certificate = certificate
        self._receiver = receiver
        self._sinks = sinks
        self._challenge: Challenge | None = None
        self._pool = pool
        self._buffer: PooledBuffer | None = None
        self._newest = -1
        self._strange = MessageReader(kinds={Kind.HELLO}, limits=_OF_STRANGERS)
        self.frames: DataReader | None = None
        """Reader of who is no stranger."""
        self.edge: int | None = None
        """None for a stranger."""

    @property
    def ended(self) -> bool:
        """True where the end of the stream was received."""
        return self.frames is not None and self.frames.ended

    def get_buffer(self) -> memoryview:
        """Return the memory that the next bytes belong in."""
        return (self.frames or self._strange).get_buffer()

    def feed(self, count: int, wall: float) -> Iterator[Event]:
        """Take so many bytes, the last of them at ``wall``; yield what they bring.

        Raises NodeMisbehaved, WireError where the peer does what it must not, RunError
        where a payload has no room; the end is good for nothing then.
        """
        if self.frames is not None:
            self.frames.on_bytes(count, wall)
        else:
            self._strange.on_bytes(count)
            yield from self._meet(wall)
        yield from self.arrivals()

    def arrivals(self) -> Iterator[Arrived]:
        """Yield the frames that have come whole; raises as `feed`."""
        reader = self.frames
        while reader is not None and (frame := reader.take()) is not None:
            yield self._take_frame(frame, reader.core)

    def _meet(self, wall: float) -> Iterator[Event]:
        while self.frames is None and (hello := self._strange.take()) is not None:
            if self._challenge is None:
                yield self._ask_for_proof(hello.fields)
            else:
                yield from self._accept(self._challenge, hello.fields, wall)

    def give_up(self) -> None:
        """Give back the memory of a payload that has begun."""
        if self._buffer is not None:
            self._buffer.release()
            self._buffer = None
        if self.frames is not None:
            lib.give_up(self.frames.core)

    def end(self, cause: str) -> EmulatorError:
        """Return what it means that no more bytes come, with its cause in words."""
        try:
            (self.frames or self._strange).end()
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

    def _accept(
        self,
        challenge: Challenge,
        fields: Fields,
        wall: float,
    ) -> Iterator[Event]:
        challenge.check(fields, "client")
        edge = cast("int", challenge.subject[0])
        if edge in self._taken:
            raise NodeMisbehaved(f"edge {edge} is connected already")
        self.edge = edge
        self.frames = DataReader(
            self._allocate,
            find_sink=self._find_sink,
            memory=self._pool.core,
            **self._receiver(edge),
        )
        if rest := self._strange.take_rest():  # what it says before it is accepted
            self.frames.get_buffer()[: len(rest)] = rest
            self.frames.on_bytes(len(rest), wall)
        yield answer(accepted=edge)
        yield Accepted(edge)

    def _allocate(self, size: int) -> memoryview:
        buffer = self._pool.acquire(size)
        self._buffer = buffer
        return buffer.view

    def _find_sink(self) -> Sink | None:
        return self._sinks.get(cast("int", self.edge))

    def _take_frame(self, frame: Frame, receiver: Any) -> Arrived:
        edge = frame.edge
        iteration = frame.iteration
        if edge != self.edge:
            place = f"on the connection of edge {self.edge}"
            raise NodeMisbehaved(f"a frame of edge {edge} {place}")
        # Nothing may come twice, and the order on the wire is that of the source.
        if not self._newest < iteration < LAST_STATE:
            problem = f"sent iteration {iteration} after {self._newest}"
            raise NodeMisbehaved(f"edge {edge} {problem}")
        self._newest = iteration
        sink = self._sinks.get(edge)
        if sink is not None:
            sink.finish(frame.sizes)
        buffer: PooledBuffer | Loan | None = self._buffer
        self._buffer = None
        if receiver.passes:
            # Also of an empty body, or the next one would be given up as if it passed.
            receiver.passes = False
            if frame.volume:
                buffer = Loan(self._pool, frame.volume)  # which the core has counted
        delivery = Delivery(
            edge=edge,
            iteration=iteration,
            payload=frame.arrays,
            arrived=receiver.wall,
            buffer=buffer,
        )
        # Without a body the header brings the end as well.
        return Arrived(frame, delivery, receiver.first)
