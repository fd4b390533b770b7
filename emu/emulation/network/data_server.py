"""The receiving end of data connections: one listening port, one connection per edge.

Whoever connects is a stranger until it has proved that it knows the key of an edge that
ends here (`emu.emulation.network.authentication`). A stranger who sends anything else
is dropped and remembered in ``rejections``; the others live on, and nothing was
allocated for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from emu.emulation.network.authentication import (
    Rejections,
    Strangers,
    listen_within,
    name_of,
)
from emu.emulation.network.clock import awake_timeout
from emu.emulation.network.inbox import BufferPool, Inbox
from emu.emulation.network.receiving_end import (
    Answer,
    Arrived,
    Event,
    ReceivingEnd,
    answer,
)
from emu.emulation.network.rx_timestamps import ArrivalReader
from emu.emulation.network.send_log import FrameLog
from emu.emulation.network.tcp_info import RowLog
from emu.emulation.network.tls import ServerTls, TlsSocket
from emu.emulation.network.tuning import tune_socket
from emu.emulation.wire.data_reader import DataReader, Sink
from emu.errors import EmulatorError, NodeMisbehaved
from emu.host.this_host import this_host
from emu.problem.payloads import payload_kind

#: A row of `emu.emulation.wire.frame_layout.WAIT_ROWS`.
_WAITS = struct.Struct("<IIdd")
#: Wall seconds before the next connection is accepted when one could not be.
_PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class PayloadCount:
    """Payload bytes of one edge and kind (`emu.problem.payloads.payload_kind`)."""

    edge: int
    kind: str
    bytes: int


@dataclass(frozen=True, slots=True)
class BurstSize:
    """The most real bytes of one edge that came at once."""

    edge: int
    bytes: float


@dataclass(frozen=True, slots=True)
class DataServerStatistics:
    """Counts of what arrived over accepted connections."""

    connections: int
    frames: int
    payload_bytes: int
    header_bytes: int
    rejections: int
    payloads: list[PayloadCount]
    bursts: list[BurstSize]


def _ignore(*_: object) -> None:
    pass


class DataServer:
    """Receives the frames of the edges that end in this process.

    Parameters
    ----------
    keys
        Of the edges that may connect, each once.
    inbox, pool
        Where payloads go and the memory they arrive in.
    on_arrival
        Called for each frame after it was put into the inbox: edge, iteration, wall
        time of the last byte, payload bytes, whether it was shaped.
    on_failure
        Called with an edge when its accepted connection ends or sends what it must not;
        its waiters get the same error. An end is no failure where nothing was to come.
    rates
        Of edges whose bursts are watched: the most that each may have, real bytes per
        wall second. Segments that wait for their reader may be joined by the kernel and
        have the time of the last then: while a reader stands still, its bursts may seem
        larger.
    certificate
        As from `draw_certificate`: senders must speak TLS then.
    notify
        Called with a line on each of the first hundred refusals.
    """

    def __init__(
        self,
        *,
        keys: Mapping[int, bytes],
        inbox: Inbox,
        pool: BufferPool,
        on_arrival: Callable[[int, int, float, int, bool], object] = _ignore,
        on_failure: Callable[[int, EmulatorError], object] = _ignore,
        rates: Mapping[int, float] | None = None,
        certificate: bytes = b"",
        notify: Callable[[str], None] | None = None,
    ) -> None:
        self.tls = ServerTls(certificate) if certificate else None
        self.keys = dict(keys)
        self.inbox = inbox
        self.pool = pool
        self.on_arrival = on_arrival
        self.on_failure = on_failure
        self.log = FrameLog()
        self.waits = RowLog()
        self.rates = rates or {}
        self.sinks: dict[int, Sink] = {}
        """The sink of an edge, whose payloads are compared and not kept."""
        self.connected: dict[int, DataConnection] = {}
        self.connections: dict[DataConnection, None] = {}  # a set has no order
        self.rejections = Rejections(notify)
        self.strangers = Strangers()
        self.frames = 0
        self.header_bytes = 0
        self.payloads: Counter[tuple[int, str]] = Counter()
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Future[None] | None = None
        self.changed = asyncio.Event()
        """Set where an edge gets its connection."""

    async def start(
        self,
        host: str,
        port: int = 0,
        ports: Sequence[int] | None = None,
    ) -> tuple[str, int]:
        """Listen; return the address, with the port that port 0 became: one of a range.

        Raises OSError if the port is in use or the address is not of this host.
        """
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, *_, address = addresses[0]

        async def listen(candidate: int) -> socket.socket:
            host = address[0]
            return this_host.listen((host, candidate), family=family, backlog=1024)

        listener = await listen_within(port, ports, listen)
        listener.setblocking(False)
        self._listener = listener
        self._accepting = asyncio.ensure_future(self._accept_all(listener))
        return cast("tuple[str, int]", listener.getsockname()[:2])

    async def _accept_all(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listener)
                connection = DataConnection(self, sock, name_of(address))
                self.connections[connection] = None
                self.strangers.enter(connection)
            except OSError as error:  # it left already, or there is no descriptor left
                self.rejections.note("unknown", str(error))
                await asyncio.sleep(_PAUSE)

    async def wait_connected(self, *, within: float) -> None:
        """Wait until every edge is connected; raises TimeoutError after that long."""
        async with awake_timeout(within):
            while self.keys.keys() > self.connected.keys():
                self.changed.clear()
                await self.changed.wait()

    def statistics(self) -> DataServerStatistics:
        """Return the counts of what arrived so far."""
        kinds = Counter[tuple[int, str]]()
        for (edge, tensor), count in self.payloads.items():
            kinds[edge, payload_kind(tensor)] += count
        payloads = [PayloadCount(*key, count) for key, count in kinds.items()]
        bursts = []
        for edge, connection in self.connected.items():
            burst = connection.largest_burst
            if burst >= 0:
                bursts.append(BurstSize(edge, burst))
        return DataServerStatistics(
            connections=len(self.connected),
            frames=self.frames,
            payload_bytes=self.payloads.total(),
            header_bytes=self.header_bytes,
            rejections=self.rejections.total,
            payloads=payloads,
            bursts=bursts,
        )

    def take(self, event: Arrived) -> None:
        """Count, log and deliver what has come on a connection."""
        frame = event.frame
        delivery = event.delivery
        edge = frame.edge
        iteration = frame.iteration
        volume = frame.volume
        self.frames += 1
        self.header_bytes += frame.overhead
        self.log.note(edge, iteration, event.first, delivery.arrived, volume)
        for name, size in frame.sizes.items():
            self.payloads[edge, name] += size
        self.inbox.deliver(delivery)
        self.on_arrival(edge, iteration, delivery.arrived, volume, frame.shaped)

    async def aclose(self) -> None:
        """Stop listening and drop every connection, silently."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
            self._accepting = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            connection.close()


class DataConnection:
    """Receives the frames of one edge, once it is known which.

    The socket is read by our own calls: a transport does not hand on the kernel's note
    of when bytes came.
    """

    def __init__(self, server: DataServer, sock: socket.socket, peer: str) -> None:
        self._server = server
        self._peer = peer
        tune_socket(sock)
        tls = TlsSocket(sock, server.tls.context, server=True) if server.tls else None
        self._sock = tls or sock
        self._arrivals = tls or ArrivalReader(sock)
        self._loop = asyncio.get_running_loop()
        fingerprint = server.tls.fingerprint if server.tls else b""
        self._end = ReceivingEnd(
            server.keys,
            server.connected,
            server.pool,
            fingerprint,
            self._receiver,
            server.sinks,
        )
        self._open = True
        patience = server.strangers.patience
        error = NodeMisbehaved(f"no hello in {patience:g} s")
        self._deadline = self._loop.call_later(patience, self._fail, error)
        self._loop.add_reader(sock.fileno(), self._receive)

    def close(self) -> None:
        """Close at once, without an error; a payload that was begun is given up."""
        if not self._open:
            return
        self._open = False
        self._deadline.cancel()
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        self._end.give_up()
        self._server.connections.pop(self, None)
        self._server.strangers.leave(self)

    @property
    def largest_burst(self) -> float:
        """The most real bytes that came at once, -1 where that was not watched."""
        frames = self._end.frames
        return -1.0 if frames is None else float(frames.core.burst)

    @property
    def is_plain(self) -> bool:
        """True where the kernel's socket has the frames as they are."""
        arrivals = self._arrivals
        if not isinstance(arrivals, ArrivalReader):
            return False
        return arrivals.fd >= 0

    def lend(self, sink: Sink) -> Any:
        """Leave it to the core to receive; return its `Receiver`.

        Payloads are compared with ``sink``, and what the core does not take is for
        `take_back`.
        """
        frames = cast("DataReader", self._end.frames)
        self._loop.remove_reader(self._sock.fileno())
        return frames.lend(sink)

    def take_back(self) -> None:
        """Receive again, from what the core has met on."""
        if self._open:
            self._loop.add_reader(self._sock.fileno(), self._receive)
            self._receive()

    def _receiver(self, edge: int) -> dict[str, Any]:
        rates = self._server.rates
        fields: dict[str, Any] = {"rate": rates.get(edge, math.inf)}
        if isinstance(self._arrivals, ArrivalReader):
            fields["fd"] = self._arrivals.fd
            fields["arrivals"] = self._arrivals.core
        return fields

    def _receive(self) -> None:
        """Take what has come; the rest of a TLS record is not in the socket."""
        try:
            frames = self._end.frames
            if frames is not None and frames.receives:
                self._take_events(self._end.arrivals())
            else:
                self._take_call()
                while self._open and self._arrivals.pending:
                    self._take_call()
        except OSError as error:
            self._on_stream_end(f" ({error})")
        except EmulatorError as error:
            self._fail(error)
        except BaseException:  # or it is called for ever
            self._on_stream_end(", for a fault of this process")
            raise

    def _take_call(self) -> None:
        view = self._end.get_buffer()
        try:
            count, wall = self._arrivals.receive(view)
        except (BlockingIOError, InterruptedError):
            return
        if count:
            self._take_events(self._end.feed(count, wall))
        else:
            self._on_stream_end("")

    def _take_events(self, events: Iterator[Event]) -> None:
        """Do what events say; the core may have met the end of the stream after them.

        Raises OSError where the connection broke.
        """
        for event in events:
            self._on_event(event)
            if not self._open:
                return
        if self._end.ended:
            self._on_stream_end("")

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Arrived):
            self._server.take(event)
            self._note_waits(event)
        elif isinstance(event, Answer):
            with contextlib.suppress(OSError):  # it has gone, which reading will show
                self._sock.send(event.data)
        else:  # no stranger any more: an error is the run's, not a rejection
            self._deadline.cancel()
            self._server.strangers.leave(self)
            self._server.connected[event.edge] = self
            self._server.changed.set()

    def _note_waits(self, event: Arrived) -> None:
        waits = self._arrivals.take_waits()
        if any(waits):
            frame = event.frame
            row = _WAITS.pack(frame.edge, frame.iteration, *waits)
            self._server.waits.add(row)

    def turn_away(self, reason: str) -> None:
        """Answer a stranger that it was refused, and close."""
        self._server.rejections.note(self._peer, reason)
        self._on_event(answer(refused=reason))
        self.close()

    def _fail(self, error: EmulatorError) -> None:
        if self._end.edge is None:
            self.turn_away(str(error))
        else:
            self.close()
            self._server.inbox.fail(self._end.edge, error)
            self._server.on_failure(self._end.edge, error)

    def _on_stream_end(self, cause: str) -> None:
        self.close()
        self._fail(self._end.end(cause))
