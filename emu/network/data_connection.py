"""One accepted data connection: a stranger until it has proved which edge it is."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast

from emu.errors import EmulatorError, NodeLost, NodeMisbehaved
from emu.network.authentication import Challenge, fresh_nonce
from emu.network.inbox import Delivery
from emu.network.rx_timestamps import ArrivalReader
from emu.network.tls_socket import TlsSocket
from emu.network.tuning import tune_socket
from emu.wire import (
    DATA_KINDS,
    Frame,
    FrameReader,
    Kind,
    WireLimits,
    encode_message,
    payload_kind,
)

if TYPE_CHECKING:
    import socket

    from emu.network.data_server import DataServer
    from emu.network.pool import PooledBuffer

_STRANGER_LIMITS = WireLimits(header=0, body=0, message=4096)


class DataConnection:
    """Receives the frames of one edge, once it is known which.

    The socket is read by our own calls: a transport does not hand on the kernel's note
    of when bytes came.

    Parameters
    ----------
    server
        Told of everything.
    sock
        Accepted, non-blocking; closed with the connection.
    peer
        Host and port of the other end.
    """

    def __init__(self, server: DataServer, sock: socket.socket, peer: str) -> None:
        self._server, self._peer = server, peer
        tune_socket(sock)
        context = server.tls.context if server.tls is not None else None
        tls = TlsSocket(sock, context, server=True) if context is not None else None
        self._sock = tls or sock
        self._arrivals = tls or ArrivalReader(sock)
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(
            self._allocate, kinds={Kind.HELLO}, limits=_STRANGER_LIMITS
        )
        self._buffer: PooledBuffer | None = None
        self._edge: int | None = None
        self._challenge: Challenge | None = None
        self._newest = -1
        self._first = self._wall = 0.0  # of this frame's payload, of all that came
        self._open = True
        self._deadline = self._loop.call_later(server.hello_timeout, self._too_late)
        self._loop.add_reader(sock.fileno(), self._readable)

    def close(self) -> None:
        """Close at once, without an error; a payload that was begun is given up."""
        if not self._open:
            return
        self._open = False
        self._deadline.cancel()
        self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        if self._buffer is not None:
            self._buffer.release()
            self._buffer = None
        self._server.connections.discard(self)
        self._server.strangers.leave(self)

    def _readable(self) -> None:
        self._receive()
        while self._open and self._arrivals.pending:
            self._receive()

    def _receive(self) -> None:
        try:
            view = self._server.bursts.portion(self._edge, self._reader.get_buffer())
            count, wall = self._arrivals.receive(view)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._ended(f" ({error})")
            return
        if not count:
            self._ended("")
            return
        self._wall = wall
        if self._edge is not None and self._buffer is not None:
            self._server.bursts.note(self._edge, count, wall)
        try:
            self._reader.received(count)
            while self._open and (came := self._reader.take()) is not None:
                if isinstance(came, Frame):
                    self._frame(came, wall)
                else:
                    self._hello(came.fields)
        except EmulatorError as error:
            self._fail(error)
        except BaseException:
            self._ended(", for a fault of this process")  # or it is called for ever
            raise

    def _allocate(self, size: int) -> memoryview:
        self._first = self._wall
        self._buffer = self._server.pool.acquire(size)
        return self._buffer.view

    def _hello(self, fields: dict[str, Any]) -> None:
        """Take a stranger's hello, then its proof."""
        server = self._server
        if self._edge is not None:
            raise NodeMisbehaved("a second hello on one connection")
        if self._challenge is None:
            edge = fields.get("edge")
            if type(edge) is not int or edge not in server.keys:
                raise NodeMisbehaved(f"edge {edge!r:.50} does not end here")
            challenge = Challenge.of(
                server.keys[edge],
                (edge,),
                fields.get("nonce"),
                fresh_nonce(),
                server.tls.fingerprint if server.tls is not None else b"",
            )
            self._challenge = challenge
            self._answer(
                {"nonce": challenge.server, "proof": challenge.proof("server")}
            )
            return
        self._challenge.check(fields, "client")
        self._accept(cast("int", self._challenge.subject[0]))

    def _accept(self, edge: int) -> None:
        server = self._server
        if edge in server.connected:
            raise NodeMisbehaved(f"edge {edge} is connected already")
        self._deadline.cancel()
        self._edge = edge
        server.strangers.leave(self)
        self._reader.trust(kinds=DATA_KINDS, limits=server.limits)
        self._answer({"accepted": edge})
        server.accept(edge, self)

    def _frame(self, frame: Frame, wall: float) -> None:
        header, server = frame.header, self._server
        if header.edge != self._edge:
            raise NodeMisbehaved(
                f"a frame of edge {header.edge} on the connection of edge {self._edge}"
            )
        if header.iteration <= self._newest:
            raise NodeMisbehaved(
                f"edge {header.edge} sent iteration {header.iteration} after "
                f"{self._newest}"
            )
        self._newest = header.iteration
        volume = header.body_bytes
        server.frames += 1
        first = self._first if volume else wall
        server.log.note(header.edge, header.iteration, first, wall, volume)
        server.payload_bytes += volume
        for tensor in header.tensors:
            kind = payload_kind(tensor.name)
            server.payloads[header.edge, kind] += tensor.nbytes
        server.header_bytes += frame.overhead
        buffer, self._buffer = self._buffer, None
        server.inbox.deliver(
            Delivery(
                header.edge,
                header.iteration,
                frame.arrays,
                wall,
                header.version,
                buffer,
            )
        )
        if server.on_arrival is not None:
            server.on_arrival(
                header.edge, header.iteration, wall, volume, header.shaped
            )

    def _answer(self, fields: dict[str, Any]) -> None:
        """Say something short to a peer that has been told nothing yet."""
        with contextlib.suppress(OSError):  # it has gone, which reading will show
            self._sock.send(encode_message(Kind.HELLO, fields))

    def _too_late(self) -> None:
        self._fail(NodeMisbehaved(f"no hello in {self._server.hello_timeout:g} s"))

    def turn_away(self, reason: str) -> None:
        """Answer a stranger that it was refused, and close."""
        self._server.rejections.note(self._peer, reason)
        self._answer({"refused": reason})
        self.close()

    def _fail(self, error: EmulatorError) -> None:
        if self._edge is None:
            self.turn_away(str(error))
        else:
            self.close()
            self._server.fail(self._edge, error)

    def _ended(self, reason: str) -> None:
        """Take the end of the stream for what it is."""
        self.close()
        try:
            self._reader.end()
        except EmulatorError as error:
            if self._edge is None:
                self._server.rejections.note(self._peer, str(error))
            else:
                self._server.fail(self._edge, error)
            return
        if self._edge is None:
            self._server.rejections.note(
                self._peer, f"the connection ended without a hello{reason}"
            )
            return
        self._server.inbox.fail(
            self._edge, NodeLost(f"the sender of edge {self._edge} has gone{reason}")
        )
