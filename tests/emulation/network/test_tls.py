"""TLS between hosts: what an ear hears, and who in between is noticed."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Collection

import numpy as np
import pytest
from cryptography import x509

from emu.emulation.network.authentication import Identity, edge_keys
from emu.emulation.network.control import (
    ControlConnection,
    ControlServer,
    connect_control,
)
from emu.emulation.network.data_server import DataServer
from emu.emulation.network.inbox import BufferPool, Inbox
from emu.emulation.network.tls import (
    ServerTls,
    client_context,
    draw_certificate,
    is_loopback,
)
from emu.errors import EmulatorError, NodeLost, NodeMisbehaved
from tests.emulation.network.strangers import (
    NONCE,
    messages,
    open_unpaced,
    pong,
    read_message,
    said,
    until,
)

TOKEN = "of-this-run"  # noqa: S105
W0 = Identity.of(TOKEN, "process", "w0")
KEYS = edge_keys(TOKEN, [0])
SECRET = b"gradient of the last layer"


@contextlib.asynccontextmanager
async def control() -> AsyncIterator[tuple[tuple[str, int], list[str]]]:
    """Yield the address of an echoing port that wants TLS, and its log."""
    log: list[str] = []

    async def echo(connection: ControlConnection, _: Identity) -> None:
        async for message in messages(connection):
            connection.send(message)

    server = ControlServer(
        token=TOKEN, on_connection=echo, encrypted=True, notify=log.append
    )
    try:
        yield await server.start("127.0.0.1"), log
    finally:
        await server.aclose()


@contextlib.asynccontextmanager
async def data() -> AsyncIterator[tuple[tuple[str, int], DataServer, list[str]]]:
    """Yield the address of a receiver that wants TLS, the receiver, and its log."""
    log: list[str] = []
    server = DataServer(
        keys=KEYS,
        inbox=Inbox(),
        pool=BufferPool(),
        certificate=draw_certificate(),
        notify=log.append,
    )
    try:
        yield await server.start("127.0.0.1"), server, log
    finally:
        await server.aclose()


@contextlib.asynccontextmanager
async def passed_on(
    server: tuple[str, int],
    *,
    ends_tls: Collection[str] = (),
    prelude: bool = False,
    heard: bytearray,
) -> AsyncIterator[tuple[str, int]]:
    """Pass bytes on, and listen; a man in the middle, where there is a side to end.

    Parameters
    ----------
    ends_tls
        Sides, ``client`` and ``server``, with which to speak TLS oneself.
    prelude
        Whether a hello and the order to speak TLS come first, as on control links.
    heard
        Takes what passes, as far as it can be read.
    """
    own, passing = ServerTls(draw_certificate()), list[asyncio.Future[None]]()
    ends: list[asyncio.StreamWriter] = []

    async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while came := await source.read(1 << 16):
                heard.extend(came)
                sink.write(came)
            sink.close()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at_once = client_context() if "server" in ends_tls and not prelude else None
        there, onward = await asyncio.open_connection(*server, ssl=at_once)
        ends.extend((writer, onward))
        with contextlib.suppress(OSError):
            if prelude and "server" in ends_tls:
                onward.write(said(role=W0.role, name=W0.name, nonce=NONCE))
                await read_message(there)
                await onward.start_tls(client_context())
            if prelude and "client" in ends_tls:
                await read_message(reader)
                writer.write(said(tls=True))
                await writer.start_tls(own.context)
        passing.extend(
            asyncio.ensure_future(carry(*way))
            for way in ((reader, onward), (there, writer))
        )

    at_once = own.context if "client" in ends_tls and not prelude else None
    listener = await asyncio.start_server(meet, "127.0.0.1", ssl=at_once)
    try:
        yield listener.sockets[0].getsockname()
    finally:
        listener.close()
        for task in passing:
            task.cancel()
        for end in ends:
            end.close()
        await asyncio.gather(
            *passing, *(end.wait_closed() for end in ends), return_exceptions=True
        )
        await listener.wait_closed()


async def test_ear_on_a_control_link_hears_no_secret() -> None:
    heard = bytearray()
    async with control() as (server, log), passed_on(server, heard=heard) as address:
        connection = await connect_control(address, identity=W0)
        for message in ({"x": SECRET}, {"x": SECRET * 20_000}):
            connection.send(message)
            assert await connection.receive(10) == message
        assert abs(await pong(connection)) < 1
        await connection.aclose()

        assert not log
    assert len(heard) > 2 * len(SECRET) * 20_000
    for secret in (SECRET, TOKEN.encode(), W0.key):
        assert secret not in heard


async def test_ear_on_a_data_link_hears_no_secret() -> None:
    heard = bytearray()
    payload = np.frombuffer(SECRET * 200_000, np.uint8)  # records by the hundred
    async with (
        data() as (server, receiver, log),
        passed_on(server, heard=heard) as address,
    ):
        edge = await open_unpaced(address, 0, KEYS[0], encrypted=True)
        left = [edge.send(n, {"x": payload}, shaped=False) for n in range(2)]
        for n in range(2):
            delivery = await receiver.inbox.get(0, n, within=10)
            assert np.array_equal(delivery.payload["x"], payload)
            delivery.release()
        await asyncio.gather(*left)
        await edge.aclose()

        assert not log
    assert len(heard) > 2 * payload.nbytes
    for secret in (SECRET, TOKEN.encode(), KEYS[0]):
        assert secret not in heard


@pytest.mark.parametrize(
    "ends_tls", [("client", "server"), ("server",), ("client",)], ids=str
)
async def test_man_in_the_middle_of_a_control_link_is_refused(
    ends_tls: tuple[str, ...],
) -> None:
    heard = bytearray()
    async with (
        control() as (server, log),
        passed_on(server, ends_tls=ends_tls, prelude=True, heard=heard) as address,
    ):
        with pytest.raises(EmulatorError, match="w0"):
            await connect_control(address, identity=W0, within=5.0)
        await until(lambda: log)

        assert log[0].startswith("refused a connection from 127.0.0.1:")
    assert TOKEN.encode() not in heard


@pytest.mark.parametrize("ends_tls", [("client", "server"), ("client",)], ids=str)
async def test_man_in_the_middle_of_a_data_link_is_refused(
    ends_tls: tuple[str, ...],
) -> None:
    async with (
        data() as (server, _, log),
        passed_on(server, ends_tls=ends_tls, heard=bytearray()) as address,
    ):
        with pytest.raises((NodeMisbehaved, NodeLost), match="edge 0"):
            await open_unpaced(address, 0, KEYS[0], encrypted=True)
        await until(lambda: log)

        assert log[0].startswith("refused a connection from 127.0.0.1:")


async def test_plain_client_of_a_control_port_is_refused() -> None:
    async with control() as (server, log):
        reader, writer = await asyncio.open_connection(*server)
        hello = said(role="process", name="w0", nonce=NONCE)
        writer.write(hello)
        assert await read_message(reader) == {"tls": True}
        writer.write(hello)
        assert await reader.read() == b""
        writer.close()
        await until(lambda: log)

        assert "no TLS with" in log[0]


async def test_plain_sender_is_refused() -> None:
    async with data() as (server, _, log):
        with pytest.raises(NodeLost):
            await open_unpaced(server, 0, KEYS[0])
        await until(lambda: log)

        assert "without a hello ([SSL" in log[0]


def test_certificates_are_new_every_time() -> None:
    first, second = ServerTls(draw_certificate()), ServerTls(draw_certificate())

    assert first.fingerprint != second.fingerprint


def test_a_certificate_holds_for_clocks_that_are_weeks_apart() -> None:
    certificate = x509.load_pem_x509_certificate(draw_certificate())
    now = dt.datetime.now(dt.UTC)
    weeks = dt.timedelta(weeks=3)

    assert certificate.not_valid_before_utc < now - weeks
    assert certificate.not_valid_after_utc > now + weeks


def test_only_loopback_needs_no_tls() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.8.0.1", "::1", "localhost"]))
    # The second is listened on, and reached from elsewhere.
    assert not any(map(is_loopback, ["10.0.0.1", "0.0.0.0", "::", "coordinator"]))  # noqa: S104
