"""Opening a data connection: connect, say hello, wait until the receiver accepts."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from emu.emulation.network.authentication import (
    AGAIN,
    Challenge,
    enter_port,
    format_address,
    fresh_nonce,
)
from emu.emulation.network.out_edge import OutEdge
from emu.emulation.network.pacer import Pacer
from emu.emulation.network.tls import TlsSocket, client_context, peer_fingerprint
from emu.emulation.network.tuning import tune_socket
from emu.emulation.wire.decoding import MessageReader
from emu.emulation.wire.encoding import encode_message
from emu.emulation.wire.frame_layout import Fields, Kind
from emu.errors import DeadlineExceeded, EmulatorError, NodeLost, NodeMisbehaved
from emu.host.this_host import this_host
from emu.names import printable

T = TypeVar("T")
P = ParamSpec("P")


async def open_edge(
    address: tuple[str, int],
    edge: int,
    *,
    key: bytes,
    pacer: Pacer,
    capacity: float = math.inf,
    source_port: int = 0,
    encrypted: bool = False,
    within: float = 10.0,
) -> OutEdge:
    """Return the connection of one edge, accepted by its receiver.

    Encrypted, where the receiver wants that; answered ``within`` wall seconds.

    Raises DeadlineExceeded if the receiver did not answer in time, NodeLost if nothing
    listens there or the connection ended without an answer, and NodeMisbehaved if the
    receiver refused, with its reason, or cannot prove that it knows the key.
    """
    enter = partial(_open, address, edge, key, source_port, encrypted=encrypted)
    sock = await enter_port(enter, within)
    return OutEdge(sock, edge, pacer, capacity)


async def _open(
    address: tuple[str, int],
    edge: int,
    key: bytes,
    source_port: int,
    within: float,
    *,
    encrypted: bool,
) -> socket.socket | TlsSocket:
    loop = asyncio.get_running_loop()
    receiver = format_address(*address)
    sock: socket.socket | None = None
    try:
        async with asyncio.timeout(within):
            addresses = await loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
            family, *_, target = addresses[0]
            sock = this_host.open_socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            tune_socket(sock)
            if source_port:
                # A run just before may have left the port in TIME_WAIT.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(("", source_port))
            await loop.sock_connect(sock, target)

            channel: socket.socket | TlsSocket = sock
            if encrypted:
                channel = TlsSocket(sock, client_context(), server=False)
            await _prove(channel, edge, key, receiver)
            return channel
    except (OSError, EmulatorError, asyncio.CancelledError) as error:
        if sock is not None:
            sock.close()
        if isinstance(error, TimeoutError):
            raise DeadlineExceeded(
                f"the sender of edge {edge} waited {within:g} s for {receiver} to "
                "accept it"
            ) from None
        if isinstance(error, OSError):
            raise NodeLost(f"edge {edge} cannot reach {receiver}: {error}") from error
        raise


async def _prove(
    sock: socket.socket | TlsSocket,
    edge: int,
    key: bytes,
    receiver: str,
) -> None:
    """Be accepted by the receiver, once it has proved that it knows our key."""
    nonce = fresh_nonce()
    binding = b""  # without TLS there is no certificate that proofs could cover
    if isinstance(sock, TlsSocket):
        await _when_readable(sock, sock.meet)
        binding = peer_fingerprint(sock.tls)

    reader = MessageReader(kinds={Kind.HELLO})
    answer = await _ask(sock, {"edge": edge, "nonce": nonce}, reader)
    if "refused" not in answer:
        try:
            challenge = Challenge(
                key=key,
                subject=(edge,),
                client=nonce,
                server=answer.get("nonce", b""),
                binding=binding,
            )
            challenge.check(answer, "server")
        except NodeMisbehaved as error:
            raise NodeMisbehaved(
                f"edge {edge} does not trust {receiver}: {error}"
            ) from None
        try:
            answer = await _ask(sock, {"proof": challenge.proof("client")}, reader)
        except OSError as error:  # amid the handshake: it has made room for another
            raise NodeMisbehaved(f"edge {edge}: {error}; {AGAIN}") from None

    if answer.get("accepted") != edge:
        reason = printable(str(answer.get("refused", "no reason")))
        raise NodeMisbehaved(f"{receiver} refused edge {edge}: {reason}")
    if reader.inside:  # nothing but frames of ours to it passes from here on
        raise NodeMisbehaved("the receiver said more than its answer")


async def _ask(
    sock: socket.socket | TlsSocket,
    fields: Fields,
    reader: MessageReader,
) -> Fields:
    """Send a message and return the receiver's next one.

    A receiver that makes room for others may refuse in the same segment as its
    challenge: ``reader`` keeps what came beyond one message.
    """
    # A refusal that came before the connection was reset is read all the same.
    with contextlib.suppress(ConnectionError):
        sock.send(encode_message(Kind.HELLO, fields))  # the kernel has room for it
    while (answer := reader.take()) is None:
        count = await _when_readable(sock, sock.recv_into, reader.get_buffer())
        if count == 0:
            raise ConnectionError("the connection ended without an answer")
        reader.on_bytes(count)
    return answer.fields


async def _when_readable(
    sock: socket.socket | TlsSocket,
    call: Callable[P, T],
    *args: P.args,
    **options: P.kwargs,
) -> T:
    """Return the result of the call, as soon as there is enough to read for it."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return call(*args, **options)
        except BlockingIOError:
            readable = asyncio.Event()
            loop.add_reader(sock.fileno(), readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(sock.fileno())
