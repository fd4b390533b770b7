"""Control connections, both sides."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from emu.emulation.network.authentication import (
    AGAIN,
    Challenge,
    Identity,
    Strangers,
)
from emu.emulation.network.control import (
    ControlConnection,
    ControlServer,
    _connect,
    connect_control,
)
from emu.emulation.wire.encoding import encode_message
from emu.emulation.wire.frame_layout import Kind, Seal, WireLimits
from emu.errors import (
    DeadlineExceeded,
    FrameTooLarge,
    MalformedFrame,
    NodeLost,
    NodeMisbehaved,
    TruncatedFrame,
    WireError,
)
from tests.emulation.network.strangers import (
    introduced,
    messages,
    pong,
    read_message,
    until,
)
from tests.emulation.wire.prefix import prefix_of

Serve = Callable[[ControlConnection, Identity], Awaitable[None]]
TOKEN = "secret"  # noqa: S105
NONCE = bytes(32)
HELLO = encode_message(Kind.CONTROL, {"role": "process", "name": "w0", "nonce": NONCE})


async def echo(connection: ControlConnection, who: Identity) -> None:
    with contextlib.suppress(FrameTooLarge):
        async for message in messages(connection):
            connection.send({"to": who.name, "echo": message})


@contextlib.asynccontextmanager
async def serving(
    serve: Serve = echo,
) -> AsyncIterator[tuple[ControlServer, tuple[str, int]]]:
    server = ControlServer(token=TOKEN, on_connection=serve)
    address = await server.start("127.0.0.1")
    try:
        yield server, address
    finally:
        await server.aclose()


def connect(
    address: tuple[str, int],
    *,
    token: str = TOKEN,
    role: str = "process",
    name: str = "w0",
    **more: Any,
) -> Awaitable[ControlConnection]:
    return connect_control(address, identity=Identity.of(token, role, name), **more)


async def test_messages_both_ways_in_order() -> None:
    async with serving() as (server, address):
        connection = await connect(address)
        said = [{"n": n, "text": "é" * n, "list": [1.5, None, b"x"]} for n in range(50)]
        for message in said:
            connection.send(message)
        heard = [await connection.receive(10) for _ in said]
        await connection.aclose()

        assert heard == [{"to": "w0", "echo": message} for message in said]
        assert connection.sent == 52
        assert not server.rejections


async def test_the_handshake_says_who() -> None:
    seen: list[Identity] = []

    async def note(_: ControlConnection, who: Identity) -> None:
        seen.append(who)

    async with serving(note) as (_, address):
        connection = await connect(address, role="agent")
        with pytest.raises(NodeLost, match="the coordinator closed its connection"):
            await connection.receive(10)
        await connection.aclose()

    assert seen == [Identity.of(TOKEN, "agent", "w0")]


async def test_iteration_ends_with_the_peer() -> None:
    async def count(connection: ControlConnection, _: Identity) -> None:
        for n in range(3):
            connection.send({"n": n})

    async with serving(count) as (_, address):
        connection = await connect(address)
        heard = [message async for message in messages(connection)]
        await connection.aclose()

        assert heard == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert connection.closed
        with pytest.raises(NodeLost):
            connection.send({})


BAD = {
    "random": (bytes(range(3, 90)), "starts with"),
    "wrong version": (prefix_of(kind=3, header=0, body=9, version=1), "version 1"),
    "data": (prefix_of(kind=2, header=10, body=10), "kind 2"),
    "oversized": (prefix_of(kind=3, header=0, body=1 << 31), "at most 4096"),
    "not a map": (
        prefix_of(kind=3, header=0, body=1) + b"\x01",
        "not a msgpack map",
    ),
    "truncated": (HELLO[:-1], "ended inside a frame"),
    "silent": (b"", "closed its connection"),
}


@pytest.mark.parametrize("name", list(BAD))
async def test_bad_bytes_into_the_port_are_recorded_and_the_rest_lives_on(
    name: str,
) -> None:
    data, reason = BAD[name]
    async with serving() as (server, address):
        good = await connect(address)
        _, writer = await asyncio.open_connection(*address)
        writer.write(data)
        writer.close()
        await until(lambda: server.rejections)
        good.send({"still": "here"})
        answer = await good.receive(10)
        await good.aclose()

        assert [why for _, why in server.rejections if reason in why]
        assert answer["echo"] == {"still": "here"}


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"x" * 20, MalformedFrame),
        (prefix_of(kind=3, header=16, body=1 << 31), FrameTooLarge),
        (prefix_of(kind=3, header=16, body=9), TruncatedFrame),
    ],
    ids=["random", "oversized", "truncated"],
)
async def test_bad_bytes_after_the_handshake_reach_who_listens(
    data: bytes, kind: type[WireError]
) -> None:
    caught: list[WireError] = []

    async def listen(connection: ControlConnection, _: Identity) -> None:
        try:
            async for message in messages(connection):
                raise AssertionError(message)
        except WireError as error:
            caught.append(error)

    async with serving(listen) as (_, address):
        _, writer = await introduced(address, Identity.of(TOKEN, "process", "w0"))
        writer.write(data)
        writer.close()
        await until(lambda: caught)

    assert [type(error) for error in caught] == [kind]


async def test_larger_messages_are_for_those_who_know_the_token() -> None:
    most = WireLimits().message
    async with serving() as (_, address):
        connection = await connect(address, limits=WireLimits(message=most + 100))
        connection.send({"x": b"y" * (most - 100)})
        assert (await connection.receive(10))["echo"] == {"x": b"y" * (most - 100)}
        connection.send({"x": b"y" * most})
        with pytest.raises(NodeLost):
            await connection.receive(10)
        await connection.aclose()


async def test_a_deadline_names_who_waits_for_whom() -> None:
    async with serving() as (_, address):
        connection = await connect(address)
        with pytest.raises(
            DeadlineExceeded,
            match=r"w0 waited 0.01 s for the start of task s0 from the coordinator",
        ):
            await connection.receive(0.01, waiting_for="the start of task s0")
        connection.send({"alive": 1})
        assert await connection.receive(10)
        await connection.aclose()


async def test_a_silent_stranger_has_a_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Strangers, "patience", 0.01)
    async with serving() as (server, address):
        reader, writer = await asyncio.open_connection(*address)
        await asyncio.wait_for(reader.read(), 10)
        writer.close()

        assert "waited 0.01 s for a handshake" in server.rejections[0][1]


async def test_a_server_that_never_answers_has_a_deadline() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(
            DeadlineExceeded,
            match=r"w0 waited 0\.02 s for the handshake from the coordinator$",
        ),
    ):
        await connect(silent.getsockname(), within=0.02)


async def test_who_is_left_amid_the_handshake_is_to_try_again() -> None:
    """The coordinator proves itself, reads the proof of the other, and closes."""
    identity = Identity.of(TOKEN, "process", "w0")

    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = await read_message(reader)
        challenge = Challenge(identity.key, ("process", "w0"), hello["nonce"], NONCE)
        proof = {"nonce": NONCE, "proof": challenge.proof("server")}
        writer.write(encode_message(Kind.CONTROL, proof))
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(leave, "127.0.0.1", 0)
    async with server:
        address = server.sockets[0].getsockname()
        with pytest.raises(NodeLost, match=f"; {AGAIN}$"):
            await _connect(address, identity, None, 10.0)


async def test_a_coordinator_that_does_not_accept_is_not_served() -> None:
    identity = Identity.of(TOKEN, "process", "w0")

    async def refuse(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        hello = await read_message(reader)
        challenge = Challenge(identity.key, ("process", "w0"), hello["nonce"], NONCE)
        proof = {"nonce": NONCE, "proof": challenge.proof("server")}
        writer.write(encode_message(Kind.CONTROL, proof))
        await read_message(reader)
        seal = Seal(challenge.seal_key("server"))
        writer.write(encode_message(Kind.CONTROL, {"accepted": 1}, seal))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        address = server.sockets[0].getsockname()
        with pytest.raises(NodeMisbehaved, match="did not accept w0"):
            await connect(address)


@pytest.mark.parametrize(
    "fields",
    [
        {"_ping": 1.0},
        {"_pong": 1.0, "to": 1.0},
        {"role": 5, "name": "w0"},
        {"role": "process", "name": 5},
    ],
)
async def test_a_stranger_says_who_it_is_before_all_else(
    fields: dict[str, object],
) -> None:
    async with serving() as (_, address):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(encode_message(Kind.CONTROL, fields))
        answer = await asyncio.wait_for(read_message(reader), 5)
        writer.close()

    assert answer == {"refused": "the handshake does not say who it is"}


async def test_each_side_knows_its_address_and_that_of_the_other() -> None:
    """The client connects from 127.0.0.1 to 127.0.0.2."""
    seen: list[tuple[str, str]] = []

    async def note(connection: ControlConnection, _: Identity) -> None:
        seen.append((connection.local_address, connection.peer_address))

    server = ControlServer(token=TOKEN, on_connection=note)
    address = await server.start("127.0.0.2")
    connection = await connect(address)
    seen.append((connection.local_address, connection.peer_address))
    await until(lambda: len(seen) == 2)
    await connection.aclose()
    await server.aclose()

    assert {*seen} == {("127.0.0.2", "127.0.0.1"), ("127.0.0.1", "127.0.0.2")}


async def test_nobody_listens() -> None:
    async with serving() as (_, address):
        pass
    with pytest.raises(NodeLost, match="w0 cannot reach the coordinator"):
        await connect(address)


async def test_the_offset_of_a_clock_to_itself_is_within_what_pings_say() -> None:
    async with serving() as (_, address):
        connection = await connect(address)
        for _ in range(8):
            await pong(connection)
        said = list(connection.pongs)
        await connection.aclose()

        assert len(said) == 8
        assert all(abs(line.offset) <= line.uncertainty for line in said)


async def test_pings_do_not_disturb_messages() -> None:
    async with serving() as (_, address):
        connection = await connect(address)
        connection.send({"before": 1})
        await pong(connection)
        connection.send({"after": 2})
        heard = [await connection.receive(10) for _ in range(2)]
        await connection.aclose()

        assert [m["echo"] for m in heard] == [{"before": 1}, {"after": 2}]


async def test_a_follower_gets_what_waits_and_what_comes_until_it_has_enough() -> None:
    async with serving() as (_, address):
        connection = await connect(address)
        heard: list[int] = []

        def follower(message: dict[str, Any]) -> bool:
            heard.append(message["echo"]["n"])
            return heard[-1] != 7

        for n in range(5):
            connection.send({"n": n})
        await connection.receive(10)
        await until(lambda: len(connection._queue) >= 1)
        following = asyncio.ensure_future(connection.follow(follower))
        for n in range(5, 10):
            connection.send({"n": n})
        await following
        rest = [(await connection.receive(10))["echo"]["n"] for _ in range(2)]
        await connection.aclose()

    assert heard == list(range(1, 8))
    assert rest == [8, 9]


async def test_following_raises_what_the_follower_raised_or_how_the_peer_went() -> None:
    async with serving() as (_, address):
        connection = await connect(address)

        def refuse(message: dict[str, Any]) -> bool:
            raise MalformedFrame(f"no {message['echo']['n']}")

        following = asyncio.ensure_future(connection.follow(refuse))
        await asyncio.sleep(0)
        connection.send({"n": 3})
        with pytest.raises(MalformedFrame, match="no 3"):
            await following
        following = asyncio.ensure_future(connection.follow(lambda _: True))
        await asyncio.sleep(0)
        await connection.aclose()
        with pytest.raises(NodeLost):
            await following
        with pytest.raises(NodeLost):
            await connection.follow(lambda _: True)


async def test_a_slow_reader_slows_the_sender_and_loses_nothing() -> None:
    """The queue is bounded: what does not fit waits in the socket."""
    count = 20_000
    released = asyncio.Event()
    heard: list[int] = []
    highest: list[int] = []

    async def slow(connection: ControlConnection, _: Identity) -> None:
        await released.wait()
        async for message in messages(connection):
            heard.append(message["n"])
            highest.append(len(connection._queue))

    async with serving(slow) as (_, address):
        connection = await connect(address)
        for n in range(count):
            connection.send({"n": n, "ballast": b"x" * 500})
        await asyncio.sleep(0.05)
        released.set()
        await until(lambda: len(heard) == count)
        await connection.aclose()

    assert heard == list(range(count))
    assert max(highest) < 6000


async def test_what_serving_raises_is_raised_at_the_end() -> None:
    async def fail(_: ControlConnection, who: Identity) -> None:
        raise RuntimeError(who.name)

    server = ControlServer(token=TOKEN, on_connection=fail)
    connection = await connect(await server.start("127.0.0.1"))
    with pytest.raises(NodeLost):
        await connection.receive(10)
    await connection.aclose()

    with pytest.raises(RuntimeError, match="w0"):
        await server.aclose()


async def test_closing_sends_what_is_queued_first() -> None:
    heard: list[int] = []

    async def listen(connection: ControlConnection, _: Identity) -> None:
        heard.extend([len(message["x"]) async for message in messages(connection)])

    async with serving(listen) as (_, address):
        connection = await connect(address)
        for _ in range(20):
            connection.send({"x": b"y" * 900_000})
        await connection.aclose()
        await until(lambda: len(heard) == 20)

    assert heard == [900_000] * 20
