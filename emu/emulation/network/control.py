"""Control connections: messages between coordinator, agents and node processes.

Both sides are the same object. A connection begins with a handshake that proves to each
side whom it has there; from then on every message is sealed, and pings are answered
where they arrive, so that clocks can be compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

from typing_extensions import override

from emu.emulation.network.authentication import (
    AGAIN,
    Challenge,
    Identity,
    Rejections,
    Side,
    Strangers,
    enter_port,
    format_address,
    fresh_nonce,
    listen_within,
    name_of,
)
from emu.emulation.network.clock import ClockLine, awake_timeout, line_of_ping
from emu.emulation.network.tls import (
    ServerTls,
    client_context,
    draw_certificate,
    peer_fingerprint,
)
from emu.emulation.network.tuning import tune_socket
from emu.emulation.wire.decoding import MessageReader
from emu.emulation.wire.encoding import encode_message
from emu.emulation.wire.frame_layout import Fields, Kind, Seal, WireLimits
from emu.errors import DeadlineExceeded, EmulatorError, NodeLost, NodeMisbehaved
from emu.host.this_host import this_host
from emu.names import printable

#: Takes a message; returns whether it wants more.
Follower: TypeAlias = Callable[[Fields], bool]
#: Takes a message of a connection that is followed; the end of following.
_Following: TypeAlias = tuple[Callable[[Fields], None], asyncio.Future[None]]

#: Messages that may wait before the peer is not read any more.
QUEUE = 4096
_PONGS = 64
#: Bytes the peer may leave unread before it counts as stuck.
UNREAD = 64 << 20
#: Wall seconds that closing waits for the peer to take what is queued.
_LINGER = 5.0
_LIMITS = WireLimits(message=4096)  # of strangers
#: Who accepts control connections, for messages.
_PEER = "the coordinator"


class ControlConnection(asyncio.BufferedProtocol):
    """One control connection, either side; by `connect_control` and `ControlServer`."""

    _transport: asyncio.Transport  # from `connection_made` on

    def __init__(
        self,
        *,
        limits: WireLimits | None = None,
        owner: str = "this process",
        peer: str = "",
        on_made: Callable[[ControlConnection], None] | None = None,
    ) -> None:
        self.owner = owner
        self.peer = peer
        self._on_made = on_made
        self._reader = MessageReader(kinds={Kind.CONTROL}, limits=limits)
        self._seal: Seal | None = None
        self._error: EmulatorError | None = None
        self._gone = asyncio.Event()

        self._queue: deque[Fields] = deque()
        self._arrived = asyncio.Event()
        self._following: _Following | None = None
        self._paused = False
        #: What the newest pings said, until it is taken.
        self.pongs: deque[ClockLine] = deque(maxlen=_PONGS)

        self.sent = 0  # messages

    @property
    def closed(self) -> bool:
        """True where nothing can be sent any more."""
        return self._error is not None

    @property
    def local_address(self) -> str:
        """Address of this host by which the peer is reached."""
        return self._address("sockname")

    @property
    def peer_address(self) -> str:
        """Address of the peer's host."""
        return self._address("peername")

    def _address(self, end: str) -> str:
        address = self._transport.get_extra_info(end)
        return str(address[0]) if address else ""

    def seal(
        self,
        challenge: Challenge,
        side: Side,
        limits: WireLimits | None = None,
    ) -> None:
        """Exchange nothing but sealed messages from now on.

        Raises NodeMisbehaved if more has come than the handshake asked for: it may be
        anybody's.
        """
        if self._queue or self._reader.inside:
            raise NodeMisbehaved(f"{self.peer} said more than it was asked")
        peer: Side = "server" if side == "client" else "client"
        self._reader.trust(seal=Seal(challenge.seal_key(peer)), limits=limits)
        self._seal = Seal(challenge.seal_key(side))

    async def encrypt(self, context: ssl.SSLContext, *, server: bool) -> ssl.SSLObject:
        """Speak TLS from now on; raises NodeMisbehaved if the peer does not."""
        loop = asyncio.get_running_loop()
        try:
            transport = await loop.start_tls(
                self._transport,
                self,
                context,
                server_side=server,
            )
        except OSError as error:
            self._gone.set()
            self.give_up(NodeMisbehaved(f"no TLS with {self.peer}: {error}"))
            raise cast("EmulatorError", self._error) from error
        self._transport = cast("asyncio.Transport", transport)
        return cast("ssl.SSLObject", self._transport.get_extra_info("ssl_object"))

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message, in order, without waiting.

        Raises NodeLost if the connection has ended, NodeMisbehaved if the peer has not
        read its last 64 MB, and TypeError if a value is not of a type that msgpack
        knows.
        """
        if self._error is not None:
            raise NodeLost(f"{self.peer} has gone: {self._error}")

        frame = encode_message(Kind.CONTROL, message, self._seal)
        if self._transport.get_write_buffer_size() > UNREAD:
            error = NodeMisbehaved(f"{self.peer} does not read its messages")
            self.give_up(error)
            raise error

        self.sent += 1
        if not self._transport.is_closing():
            self._transport.write(frame)

    async def receive(
        self,
        within: float | None = None,
        *,
        waiting_for: str = "a message",
    ) -> Fields:
        """Return the peer's next message.

        It comes ``within`` wall seconds; None waits without end. Raises
        DeadlineExceeded if none came in time, NodeLost if the peer has gone and all it
        sent was received, and WireError if it sent what is no message.
        """
        # Without a deadline no timer is made and none cancelled: 20 us per message.
        limit = contextlib.nullcontext() if within is None else awake_timeout(within)
        try:
            async with limit:
                while not self._queue:
                    if self._error is not None:
                        raise self._error
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise DeadlineExceeded(
                f"{self.owner} waited {within:g} s for {waiting_for} from {self.peer}"
            ) from None

        message = self._queue.popleft()
        self._read_on()
        return message

    async def follow(self, follower: Follower) -> None:
        """Hand over the peer's messages until the follower has enough.

        It is called where a message is read, without a turn of the loop in between.
        Raises NodeLost if the peer has gone and all it sent was handed over, WireError
        if it sent what is no message, and what the follower raises.
        """
        while self._queue:
            message = self._queue.popleft()
            self._read_on()
            if not follower(message):
                return
        if self._error is not None:
            raise self._error

        enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def hand_over(message: Fields) -> None:
            try:
                if follower(message):
                    return
            except Exception as error:  # noqa: BLE001 -- `enough` raises it
                if not enough.done():
                    enough.set_exception(error)
            if not enough.done():
                enough.set_result(None)
            self._following = None

        self._following = (hand_over, enough)
        try:
            await enough
        finally:
            self._following = None

    def _read_on(self) -> None:
        # At half: at the limit itself every message would stop the reading anew.
        if self._paused and len(self._queue) < QUEUE // 2:
            self._paused = False
            self._transport.resume_reading()

    def ping(self) -> None:
        """Ask for the peer's clock: ``pongs`` gets our readings around its own.

        Raises NodeLost or NodeMisbehaved as `send`.
        """
        self.send({"_ping": this_host.monotonic()})

    def give_up(self, error: EmulatorError, *, clean: bool = False) -> None:
        """Take the peer for gone: whoever waits for it gets this error.

        A ``clean`` end lets it have what is queued.
        """
        if self._error is None:
            self._error = error
            self._arrived.set()
            if self._following is not None:
                _, enough = self._following
                if not enough.done():
                    enough.set_exception(error)
        if not self._transport.is_closing():
            if clean:
                self._transport.close()
            else:
                self._transport.abort()

    def turn_away(self, reason: str) -> None:
        """Close on a stranger; one that has got nothing yet gets the cause."""
        if not (self.closed or self.sent):
            self.send({"refused": reason})
        self.give_up(NodeMisbehaved(reason), clean=True)

    async def aclose(self) -> None:
        """Send what is queued and close; who does not take it within 5 s is cut off."""
        self.give_up(NodeLost(f"the connection to {self.peer} was closed"), clean=True)
        try:
            async with asyncio.timeout(_LINGER):
                await self._gone.wait()
        except TimeoutError:
            self._transport.abort()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        tune_socket(transport.get_extra_info("socket"))
        self.peer = self.peer or name_of(transport.get_extra_info("peername"))
        if self._on_made is not None:
            self._on_made(self)

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    @override
    def buffer_updated(self, nbytes: int) -> None:
        wall = this_host.monotonic()
        self._reader.on_bytes(nbytes)
        try:
            while (message := self._reader.take()) is not None:
                self._message(message.fields, wall)
        except EmulatorError as error:
            self.give_up(error)

    @override
    def eof_received(self) -> bool:
        return False  # the transport closes then

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        try:
            self._reader.end()
        except EmulatorError as error:
            self.give_up(error)
        cause = f": {exc}" if exc is not None else ""
        self.give_up(NodeLost(f"{self.peer} closed its connection{cause}"))
        self._gone.set()

    def _message(self, fields: Fields, wall: float) -> None:
        is_known = self._seal is not None  # strangers get no answers
        if is_known and "_ping" in fields:
            if not self.closed:
                self.send({"_pong": wall, "to": fields["_ping"]})
        elif is_known and "_pong" in fields:
            ping = fields.get("to")
            reading = fields["_pong"]
            if isinstance(ping, float) and isinstance(reading, float):
                self.pongs.append(line_of_ping(ping, reading, wall))
        elif self._following is not None:
            hand_over, _ = self._following
            hand_over(fields)
        else:
            self._queue.append(fields)
            self._arrived.set()

        if len(self._queue) >= QUEUE and not self._paused:
            self._paused = True
            self._transport.pause_reading()


async def connect_control(
    address: tuple[str, int],
    *,
    identity: Identity,
    limits: WireLimits | None = None,
    within: float = 10.0,
) -> ControlConnection:
    """Return a control connection that the other side has accepted.

    Connected and answered ``within`` wall seconds.

    Raises DeadlineExceeded if there was no answer in time, NodeLost if nothing listens
    there or the connection ended without an answer, and NodeMisbehaved if we were
    refused, with the reason, or who answers cannot prove that it knows the token: it
    gets nothing then.
    """
    return await enter_port(partial(_connect, address, identity, limits), within)


async def _connect(
    address: tuple[str, int],
    identity: Identity,
    limits: WireLimits | None,
    within: float,
) -> ControlConnection:
    loop = asyncio.get_running_loop()
    name = identity.name
    server = f"{_PEER} at {format_address(*address)}"
    make = partial(ControlConnection, limits=limits, owner=name, peer=_PEER)
    connection: ControlConnection | None = None
    try:
        async with asyncio.timeout(within):
            _, connection = await loop.create_connection(make, *address)
            await _prove(connection, identity, server)
            return connection
    except (OSError, EmulatorError, asyncio.CancelledError) as error:
        if connection is not None:
            await connection.aclose()
        if isinstance(error, TimeoutError):
            goal = server if connection is None else f"the handshake from {_PEER}"
            raise DeadlineExceeded(f"{name} waited {within:g} s for {goal}") from None
        if isinstance(error, OSError):
            raise NodeLost(f"{name} cannot reach {server}: {error}") from error
        raise


async def _prove(
    connection: ControlConnection,
    identity: Identity,
    server: str,
) -> None:
    """Be accepted by the other side, once it has proved that it knows our key."""
    name = identity.name
    nonce = fresh_nonce()
    binding = b""
    hello = {"role": identity.role, "name": name, "nonce": nonce}
    connection.send(hello)
    answer = await connection.receive()
    if "refused" in answer:
        reason = printable(str(answer["refused"]))
        raise NodeMisbehaved(f"{server} refused {name}: {reason}")

    try:
        if answer.get("tls") is True:
            # Who strips this away gets no proof: a port that wants TLS gives none
            # without.
            tls = await connection.encrypt(client_context(), server=False)
            binding = peer_fingerprint(tls)
            connection.send(hello)
            answer = await connection.receive()
        try:
            challenge = Challenge(
                key=identity.key,
                subject=(identity.role, name),
                client=nonce,
                server=answer.get("nonce", b""),
                binding=binding,
            )
            challenge.check(answer, "server")
        except NodeMisbehaved as error:
            raise NodeMisbehaved(f"{name} does not trust {server}: {error}") from None

        connection.send({"proof": challenge.proof("client")})
        connection.seal(challenge, "client")
        verdict = await connection.receive()
        if verdict.get("accepted") is not True:
            raise NodeMisbehaved(f"{server} did not accept {name}")
    except NodeLost as error:  # amid the handshake: it has made room for another
        raise NodeLost(f"{error}; {AGAIN}") from None


#: Takes over a connection whose handshake is done: (connection, who it is).
OnConnection: TypeAlias = Callable[[ControlConnection, Identity], Awaitable[None]]


class ControlServer:
    """Accepts control connections.

    Parameters
    ----------
    token
        Of the run; who cannot prove the key of its role and name is refused, and
        remembered in ``rejections``.
    on_connection
        Coroutine that serves one connection until it returns; then it is closed.
        What it raises is raised by `aclose`.
    encrypted
        Whether whoever connects must speak TLS; the greeting says so.
    notify
        Called with a line on each of the first hundred refusals.
    """

    def __init__(
        self,
        *,
        token: str,
        on_connection: OnConnection,
        encrypted: bool = False,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        self._tls = ServerTls(draw_certificate()) if encrypted else None
        self._token = token
        self._on_connection = on_connection
        self._server: asyncio.Server | None = None
        self._handles: dict[asyncio.Task[None], None] = {}  # a set has no order
        self._strangers = Strangers()
        self.rejections = Rejections(notify)

    async def start(
        self,
        host: str,
        port: int = 0,
        ports: Sequence[int] | None = None,
        listening: socket.socket | None = None,
    ) -> tuple[str, int]:
        """Listen; return the address, with the port that port 0 became: one of a range.

        A socket that listens already, maybe in another network, counts alone.

        Raises OSError if the port is in use or the address is not of this host.
        """
        make = partial(
            ControlConnection,
            limits=_LIMITS,
            owner=_PEER,
            on_made=self._on_made,
        )
        serve = partial(asyncio.get_running_loop().create_server, make, backlog=1024)
        if listening is not None:
            self._server = await serve(sock=listening)
        else:
            self._server = await listen_within(port, ports, partial(serve, host))
        address = self._server.sockets[0].getsockname()
        return cast("tuple[str, int]", address[:2])

    async def aclose(self) -> None:
        """Stop listening, cancel whoever serves a connection and wait for them."""
        if self._server is not None:
            self._server.close()
        for handle in self._handles:
            handle.cancel()
        results = await asyncio.gather(*self._handles, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None
        for result in results:
            if isinstance(result, Exception):
                raise result

    def _on_made(self, connection: ControlConnection) -> None:
        def forget(handle: asyncio.Task[None]) -> None:
            # A failed one stays until aclose raises what it raised.
            if handle.cancelled() or handle.exception() is None:
                self._handles.pop(handle, None)

        handle = asyncio.get_running_loop().create_task(self._serve(connection))
        self._handles[handle] = None
        handle.add_done_callback(forget)

    async def _serve(self, connection: ControlConnection) -> None:
        patience = self._strangers.patience
        identity: Identity | None = None
        refusal = ""
        try:
            self._strangers.enter(connection)
            try:
                async with asyncio.timeout(patience):
                    identity = await self._challenge(connection)
            except TimeoutError:
                refusal = f"{_PEER} waited {patience:g} s for a handshake"
            except EmulatorError as error:
                refusal = str(error)
            finally:
                self._strangers.leave(connection)

            if identity is not None:
                await self._on_connection(connection, identity)
                return
            self.rejections.note(connection.peer, refusal)
            if not connection.closed:
                connection.send({"refused": refusal})
        finally:
            await connection.aclose()

    async def _challenge(self, connection: ControlConnection) -> Identity:
        """Prove to a stranger that we know its key, have it prove the same."""
        hello = await connection.receive()
        binding = b""
        if self._tls is not None:
            connection.send({"tls": True})
            await connection.encrypt(self._tls.context, server=True)
            hello = await connection.receive()
            binding = self._tls.fingerprint

        role = hello.get("role")
        name = hello.get("name")
        if not (isinstance(role, str) and isinstance(name, str)):
            raise NodeMisbehaved("the handshake does not say who it is")
        if role not in ("agent", "process"):
            raise NodeMisbehaved(f"role {role!r:.80} has no place here")

        identity = Identity.of(self._token, role, name)
        nonce = fresh_nonce()
        challenge = Challenge(
            key=identity.key,
            subject=(role, name),
            client=hello.get("nonce", b""),
            server=nonce,
            binding=binding,
        )
        connection.send({"nonce": nonce, "proof": challenge.proof("server")})
        try:
            proof = await connection.receive()
        except NodeLost:
            raise NodeMisbehaved(
                f"{role} {name!r:.80} left at our proof: its token is another run's"
            ) from None

        challenge.check(proof, "client")
        connection.seal(challenge, "server", WireLimits())
        connection.peer = name
        connection.send({"accepted": True})
        return identity
