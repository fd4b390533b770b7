"""The two ends of a control connection's handshake."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias, cast

from emu.emulation.network.authentication import (
    AGAIN,
    Challenge,
    Identity,
    Rejections,
    Strangers,
    format_address,
    fresh_nonce,
)
from emu.emulation.network.control import ControlConnection
from emu.emulation.network.ports import enter_port, listen_within
from emu.emulation.network.tls import (
    ServerTls,
    client_context,
    draw_certificate,
    peer_fingerprint,
)
from emu.emulation.wire.frame_layout import WireLimits
from emu.errors import DeadlineExceeded, EmulatorError, NodeLost, NodeMisbehaved
from emu.host.this_host import this_host
from emu.names import printable

_STRANGER_LIMITS = WireLimits(message=4096)
#: Who accepts control connections, for messages.
_PEER = "the coordinator"


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
    loop, name = asyncio.get_running_loop(), identity.name
    where = f"{_PEER} at {format_address(*address)}"
    start = this_host.monotonic()
    try:
        async with asyncio.timeout(within):
            _, connection = await loop.create_connection(
                lambda: ControlConnection(limits=limits, owner=name, peer=_PEER),
                *address,
            )
    except TimeoutError:
        raise DeadlineExceeded(f"{name} waited {within:g} s for {where}") from None
    except OSError as error:
        raise NodeLost(f"{name} cannot reach {where}: {error}") from error
    try:
        async with asyncio.timeout(max(0.0, within - (this_host.monotonic() - start))):
            await _prove(connection, identity, where)
    except (TimeoutError, EmulatorError, asyncio.CancelledError) as error:
        await connection.aclose()
        if isinstance(error, TimeoutError):
            waited = f"{name} waited {within:g} s for the handshake from {_PEER}"
            raise DeadlineExceeded(waited) from None
        raise
    return connection


async def _prove(connection: ControlConnection, identity: Identity, where: str) -> None:
    """Be accepted by the other side, once it has proved that it knows our key."""
    name, nonce, binding = identity.name, fresh_nonce(), b""
    hello = {"role": identity.role, "name": name, "nonce": nonce}
    connection.send(hello)
    answer = await connection.receive()
    if "refused" in answer:
        reason = printable(str(answer["refused"]))
        raise NodeMisbehaved(f"{where} refused {name}: {reason}")
    try:
        if answer.get("tls") is True:
            # Who strips this away gets no proof: a port that wants TLS gives none
            # without.
            tls = await connection.encrypt(client_context(), server=False)
            binding = peer_fingerprint(tls)
            connection.send(hello)
            answer = await connection.receive()
        subject, theirs = (identity.role, name), cast("bytes", answer.get("nonce"))
        try:
            challenge = Challenge(identity.key, subject, nonce, theirs, binding)
            challenge.check(answer, "server")
        except NodeMisbehaved as error:
            raise NodeMisbehaved(f"{name} does not trust {where}: {error}") from None
        connection.send({"proof": challenge.proof("client")})
        connection.seal(challenge, "client")
        if (await connection.receive()).get("accepted") is not True:
            raise NodeMisbehaved(f"{where} did not accept {name}")
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
        self._token, self._on_connection = token, on_connection
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
            limits=_STRANGER_LIMITS,
            owner=_PEER,
            on_made=self._on_made,
        )
        serve = partial(asyncio.get_running_loop().create_server, make, backlog=1024)
        if listening is not None:
            self._server = await serve(sock=listening)
        else:
            self._server = await listen_within(port, ports, partial(serve, host))
        return cast("tuple[str, int]", self._server.sockets[0].getsockname()[:2])

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
        try:
            self._strangers.enter(connection)
            within, refusal, who = self._strangers.patience, "", None
            try:
                async with asyncio.timeout(within):
                    who = await self._challenge(connection)
            except TimeoutError:
                refusal = f"{_PEER} waited {within:g} s for a handshake"
            except EmulatorError as error:
                refusal = str(error)
            finally:
                self._strangers.leave(connection)
            if who is not None:
                await self._on_connection(connection, who)
                return
            self.rejections.note(connection.peer, refusal)
            if not connection.closed:
                connection.send({"refused": refusal})
        finally:
            await connection.aclose()

    async def _challenge(self, connection: ControlConnection) -> Identity:
        """Prove to a stranger that we know its key, have it prove the same."""
        hello, binding = await connection.receive(), b""
        if self._tls is not None:
            connection.send({"tls": True})
            await connection.encrypt(self._tls.context, server=True)
            hello, binding = await connection.receive(), self._tls.fingerprint
        role, name = hello.get("role"), hello.get("name")
        if not (isinstance(role, str) and isinstance(name, str)):
            raise NodeMisbehaved("the handshake does not say who it is")
        if role not in ("agent", "process"):
            raise NodeMisbehaved(f"role {role!r:.80} has no place here")
        who, ours = Identity.of(self._token, role, name), fresh_nonce()
        theirs = cast("bytes", hello.get("nonce"))
        challenge = Challenge(who.key, (role, name), theirs, ours, binding)
        connection.send({"nonce": ours, "proof": challenge.proof("server")})
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
        return who
