"""The receiving end of data connections: one listening port, one connection per edge.

Whoever connects is a stranger until it has proved that it knows the key of an edge that
ends here (`emu.emulation.network.authentication`). A stranger who sends anything else
is dropped and remembered in ``rejections``; the others live on, and nothing was
allocated for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

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
from emu.errors import EmulatorError, NodeMisbehaved
from emu.host.this_host import this_host
from emu.problem.payloads import payload_kind

#: A row of `emu.emulation.wire.frame_layout.WAIT_ROWS`.
_WAITS = struct.Struct("<IIdd")
#: The kernel notes when the last byte of a call came: of the call's bytes no more is
#: known. With a megabyte at a time a burst of 500 kB was one call.
_PORTION = 1 << 16
#: Bytes of a paced body for which the kernel wakes its reader, where as many miss:
#: `testbed_products` at time scale 3 took 3.7 CPU seconds per GB and not 5.0.
_AT_ONCE = 1 << 18
#: Bytes for which that is not worth the two calls.
_FEW = 1 << 16
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


class ArrivalBursts:
    """A leaky bucket per edge: what came in any interval, less what its rate carries.

    An interval begins at the time of one call of receive and ends at that of another.
    Segments that wait for their reader may be joined by the kernel and have the time
    of the last then: while a reader stands still, its bursts may seem larger. Rates are
    the most that an edge may have, real bytes per wall second; others are not seen.
    """

    def __init__(self, rates: Mapping[int, float]) -> None:
        self.rates = rates
        self._last: dict[int, float] = {}
        self._level: dict[int, float] = {}
        self.most: dict[int, float] = {}
        """Real bytes by edge."""

    def portion(self, edge: int | None, view: memoryview) -> memoryview:
        """Return the part of a buffer to fill at once, so that bursts can be seen."""
        return view[:_PORTION] if edge in self.rates else view

    def note(self, edge: int, count: int, wall: float) -> None:
        """Take note of payload bytes, the last of which came at ``wall``."""
        if (rate := self.rates.get(edge)) is None:
            return
        level = 0.0  # how long the first bytes took is not known
        if edge in self._last:
            fluid = rate * (wall - self._last[edge])
            level = max(self._level[edge], 0.0) + count - fluid
            self.most[edge] = max(self.most.get(edge, 0.0), level)
        self._last[edge] = wall
        self._level[edge] = level


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
        As in `ArrivalBursts`.
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
        self.bursts = ArrivalBursts(rates or {})
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
        payloads = [PayloadCount(*key, count) for key, count in self.payloads.items()]
        bursts = [BurstSize(edge, most) for edge, most in self.bursts.most.items()]
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
        header = frame.header
        delivery = event.delivery
        edge = header.edge
        iteration = header.iteration
        volume = frame.volume
        self.frames += 1
        self.header_bytes += frame.overhead
        self.log.note(edge, iteration, event.first, delivery.arrived, volume)
        for name, array in frame.arrays.items():
            self.payloads[edge, payload_kind(name)] += array.nbytes
        self.inbox.deliver(delivery)
        self.on_arrival(edge, iteration, delivery.arrived, volume, header.shaped)

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
            server.keys, server.connected, server.pool, fingerprint
        )
        self._least = 1  # bytes for which the kernel wakes this process
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

    def _receive(self) -> None:
        """Take what has come; the rest of a TLS record is not in the socket."""
        self._take_call()
        while self._open and self._arrivals.pending:
            self._take_call()
        if self._open:
            self._await_more()

    def _await_more(self) -> None:
        """Have the kernel wake this process for much of a paced body, or its rest.

        Where bursts are watched every portion is to have a time of its own.
        """
        missing = self._end.missing
        least = self._least
        if missing > _FEW and self._end.edge not in self._server.bursts.rates:
            least = min(missing, _AT_ONCE)
        elif missing < least:
            least = max(1, missing)
        if least != self._least and isinstance(self._sock, socket.socket):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
            self._least = least

    def _take_call(self) -> None:
        end = self._end
        bursts = self._server.bursts
        try:
            view = bursts.portion(end.edge, end.get_buffer())
            count, wall = self._arrivals.receive(view)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._on_stream_end(f" ({error})")
            return
        if not count:
            self._on_stream_end("")
            return
        # Headers count for nothing: rates are of payload.
        if end.edge is not None and end.in_body:
            bursts.note(end.edge, count, wall)
        try:
            for event in end.feed(count, wall):
                self._on_event(event)
                if not self._open:
                    break
        except EmulatorError as error:
            self._fail(error)
        except BaseException:  # or it is called for ever
            self._on_stream_end(", for a fault of this process")
            raise

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
            header = event.frame.header
            row = _WAITS.pack(header.edge, header.iteration, *waits)
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
