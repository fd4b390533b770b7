"""The two ends of a control connection's handshake."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, cast

from emu.errors import DeadlineExceeded, EmulatorError, NodeLost, NodeMisbehaved
from emu.network.authentication import Rejections, shows_token
from emu.network.control import ControlConnection, Fields
from emu.wire import WireLimits

_STRANGER_LIMITS = WireLimits(message=4096)


async def connect_control(
    address: tuple[str, int],
    *,
    token: str,
    name: str,
    details: Mapping[str, Any] | None = None,
    peer: str = "the coordinator",
    limits: WireLimits | None = None,
    within: float = 10.0,
) -> ControlConnection:
    """Return a control connection that the other side has accepted.

    Parameters
    ----------
    address
        Host and port of its `ControlServer`.
    token
        Of the run.
    name, details
        Who we are; the other side gets ``{"name": name, **details}``.
    peer
        Who is there, for messages.
    limits, within
        Size of messages; wall seconds for connecting and the answer.

    Raises
    ------
    DeadlineExceeded
        If there was no answer in time.
    NodeLost
        If nobody listens there, or the connection ended without an answer.
    NodeMisbehaved
        If we were refused, with the reason.
    """
    loop = asyncio.get_running_loop()
    where = f"{peer} at {address[0]}:{address[1]}"
    begun = time.monotonic()
    try:
        async with asyncio.timeout(within):
            _, connection = await loop.create_connection(
                lambda: ControlConnection(limits=limits, owner=name, peer=peer),
                *address,
            )
    except TimeoutError:
        raise DeadlineExceeded(f"{name} waited {within:g} s for {where}") from None
    except OSError as error:
        raise NodeLost(f"{name} cannot reach {where}: {error}") from error
    connection.send({"token": token, "name": name, **(details or {})})
    left = max(0.0, within - (time.monotonic() - begun))
    try:
        answer = await connection.receive(left, waiting_for="the handshake")
        if answer.get("accepted") is not True:
            reason = str(answer.get("refused", "no reason"))[:300]
            raise NodeMisbehaved(f"{where} refused {name}: {reason}")
    except (EmulatorError, asyncio.CancelledError):
        await connection.aclose()
        raise
    return connection


#: Takes over a connection whose handshake is done: (connection, who it is).
OnConnection: TypeAlias = Callable[[ControlConnection, Fields], Awaitable[None]]


class ControlServer:
    """Accepts control connections.

    Parameters
    ----------
    token
        Of the run; who does not show it is refused and remembered in ``rejections``.
    on_connection
        Coroutine that serves one connection until it returns; then it is closed.
        What it raises is raised by `aclose`.
    owner
        Who we are, for messages.
    limits
        Size of messages, after the handshake.
    hello_timeout
        Wall seconds a stranger has to show the token.
    """

    def __init__(
        self,
        *,
        token: str,
        on_connection: OnConnection,
        owner: str = "the coordinator",
        limits: WireLimits | None = None,
        hello_timeout: float = 10.0,
    ) -> None:
        self._token, self._on_connection = token, on_connection
        self._owner, self._limits = owner, limits or WireLimits()
        self._hello_timeout = hello_timeout
        self._server: asyncio.Server | None = None
        self._handles: set[asyncio.Task[None]] = set()
        self.rejections = Rejections()

    async def start(self, host: str, port: int = 0) -> tuple[str, int]:
        """Listen; return the address, with the port that port 0 became.

        Raises
        ------
        OSError
            If the port is in use or the address is not of this host.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: ControlConnection(
                limits=_STRANGER_LIMITS, owner=self._owner, on_made=self._made
            ),
            host,
            port,
            backlog=1024,
        )
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

    def _made(self, connection: ControlConnection) -> None:
        handle = asyncio.get_running_loop().create_task(self._serve(connection))
        self._handles.add(handle)
        handle.add_done_callback(self._ended)

    def _ended(self, handle: asyncio.Task[None]) -> None:
        # A failed one stays until aclose raises what it raised.
        if handle.cancelled() or handle.exception() is None:
            self._handles.discard(handle)

    async def _serve(self, connection: ControlConnection) -> None:
        try:
            try:
                who = await self._handshake(connection)
            except EmulatorError as error:
                self.rejections.note(connection.peer, str(error))
                if not connection.closed:
                    connection.send({"refused": str(error)})
                return
            await self._on_connection(connection, who)
        finally:
            await connection.aclose()

    async def _handshake(self, connection: ControlConnection) -> Fields:
        who = await connection.receive(self._hello_timeout, waiting_for="a handshake")
        name = who.get("name")
        if not shows_token(who.pop("token", None), self._token):
            raise NodeMisbehaved("the handshake does not carry the token of this run")
        if not isinstance(name, str):
            raise NodeMisbehaved("the handshake does not say who it is")
        connection.peer = name
        connection.raise_limits(self._limits)
        connection.send({"accepted": True})
        return who
