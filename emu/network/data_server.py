"""The receiving end of data connections: one listening port, one connection per edge.

Whoever connects is a stranger until it has proved that it knows the key of an edge that
ends here (`emu.network.authentication`). A stranger who sends anything else is dropped
and remembered in ``rejections``; the others live on, and nothing was allocated for it.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from emu.errors import DeadlineExceeded, EmulatorError
from emu.network.arrival_bursts import ArrivalBursts
from emu.network.authentication import (
    Rejections,
    Strangers,
    name_of,
)
from emu.network.awake_clock import awake_timeout
from emu.network.data_connection import DataConnection
from emu.network.frame_log import FrameLog
from emu.network.tls import ServerTls
from emu.wire import (
    WireLimits,
)

if TYPE_CHECKING:
    from emu.network.inbox import Inbox
    from emu.network.pool import BufferPool

#: (edge, iteration, wall time of the last byte, payload bytes, shaped)
OnArrival: TypeAlias = Callable[[int, int, float, int, bool], None]
#: (edge, error): an accepted connection broke.
OnFailure: TypeAlias = Callable[[int, EmulatorError], None]

#: Wall seconds before the next connection is accepted when one could not be.
_PAUSE = 0.1


@dataclass(frozen=True, slots=True)
class DataServerStatistics:
    """What arrived over accepted connections.

    ``payloads`` says which bytes: rows of ``edge``, ``kind`` (`emu.wire.payload_kind`)
    and ``bytes``; ``bursts`` the most at once: rows of ``edge`` and ``bytes``.
    """

    connections: int
    frames: int
    payload_bytes: int
    header_bytes: int
    rejections: int
    payloads: list[dict[str, int | str]]
    bursts: list[dict[str, float]]


class DataServer:
    """Receives the frames of the edges that end in this process.

    Parameters
    ----------
    keys
        Of the edges that may connect, each once.
    inbox, pool
        Where payloads go and the memory they arrive in.
    on_arrival
        Called for each frame after it was put into the inbox.
    on_failure
        Called when an accepted connection ends inside a frame or sends what it must
        not; waiters of the edge get the same error.
    limits
        Of frames on accepted connections.
    hello_timeout
        Wall seconds a stranger has to introduce itself.
    rates
        As in `ArrivalBursts`.
    certificate
        As from `draw_certificate`: senders must speak TLS then.
    tell
        Called with a line on each of the first hundred refusals.
    """

    def __init__(
        self,
        *,
        keys: Mapping[int, bytes],
        inbox: Inbox,
        pool: BufferPool,
        on_arrival: OnArrival | None = None,
        on_failure: OnFailure | None = None,
        limits: WireLimits | None = None,
        hello_timeout: float = 10.0,
        rates: Mapping[int, float] | None = None,
        certificate: bytes = b"",
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.tls = ServerTls(certificate) if certificate else None
        self.keys = dict(keys)
        self.inbox, self.pool = inbox, pool
        self.on_arrival, self.on_failure = on_arrival, on_failure
        self.limits = limits or WireLimits()
        self.log, self.bursts = FrameLog(), ArrivalBursts(rates or {})
        self.hello_timeout = hello_timeout
        self.connected: dict[int, DataConnection] = {}
        self.connections: set[DataConnection] = set()
        self.rejections, self.strangers = Rejections(tell), Strangers()
        self.frames = self.payload_bytes = self.header_bytes = 0
        self.payloads: Counter[tuple[int, str]] = Counter()
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Future[None] | None = None
        self._changed = asyncio.Event()

    async def start(self, host: str, port: int = 0) -> tuple[str, int]:
        """Listen; return the address, with the port that port 0 became.

        Raises
        ------
        OSError
            If the port is in use or the address is not of this host.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, *_, address = found[0]
        listener = socket.create_server(address[:2], family=family, backlog=1024)
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
                self.connections.add(connection)
                self.strangers.enter(connection)
            except OSError as error:  # it left already, or there is no descriptor left
                self.rejections.note("unknown", str(error))
                await asyncio.sleep(_PAUSE)

    async def wait_connected(self, *, within: float) -> None:
        """Wait until every edge has its connection.

        Raises
        ------
        DeadlineExceeded
            If some did not connect within ``within`` wall seconds; names them.
        """
        try:
            async with awake_timeout(within):
                while missing := self.keys.keys() - self.connected.keys():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            missing = self.keys.keys() - self.connected.keys()
            raise DeadlineExceeded(
                f"{self.inbox.owner} waited {within:g} s for the senders of edges "
                f"{sorted(missing)} to connect"
            ) from None

    def accept(self, edge: int, connection: DataConnection) -> None:
        """Note the connection of an edge (called by `DataConnection`)."""
        self.connected[edge] = connection
        self._changed.set()

    def fail(self, edge: int, error: EmulatorError) -> None:
        """Spread the end of an accepted connection (called by `DataConnection`)."""
        self.inbox.fail(edge, error)
        if self.on_failure is not None:
            self.on_failure(edge, error)

    def statistics(self) -> DataServerStatistics:
        """Return what arrived so far."""
        return DataServerStatistics(
            len(self.connected),
            self.frames,
            self.payload_bytes,
            self.header_bytes,
            self.rejections.total,
            [
                {"edge": edge, "kind": kind, "bytes": count}
                for (edge, kind), count in self.payloads.items()
            ],
            [{"edge": e, "bytes": most} for e, most in self.bursts.most.items()],
        )

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
