"""Who gets in, and who is believed: both ends of the handshake, attacked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest

from emu.emulation.network import authentication
from emu.emulation.network.authentication import (
    AGAIN,
    Challenge,
    Identity,
    Rejections,
    Strangers,
    derive_key,
    edge_keys,
    enter_port,
)
from emu.emulation.network.control import (
    ControlConnection,
    ControlServer,
    connect_control,
)
from emu.emulation.network.data_server import DataServer
from emu.emulation.network.inbox import BufferPool, Inbox
from emu.emulation.wire.encoding import encode_message
from emu.emulation.wire.frame_layout import Kind
from emu.errors import EmulatorError, NodeLost, NodeMisbehaved
from tests.emulation.network.strangers import (
    NONCE,
    between,
    open_unpaced,
    pong,
    read_frame,
    read_message,
    rogue,
    said,
    until,
)

TOKEN = "of-this-run"  # noqa: S105
W0 = Identity.of(TOKEN, "process", "w0")


class Port:
    """A control port, what was said to it and what its log holds."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.heard: list[dict[str, Any]] = []
        self.lost: list[EmulatorError] = []
        self.address = ("", 0)

    async def serve(self, connection: ControlConnection, _: Identity) -> None:
        """Note and echo what is said."""
        try:
            while True:
                self.heard.append(await connection.receive())
                connection.send({"echo": self.heard[-1]})
        except EmulatorError as error:
            self.lost.append(error)

    async def unharmed(self) -> None:
        """Check that an honest client is still served."""
        connection = await connect_control(self.address, identity=W0)
        connection.send({"still": "here"})
        assert await connection.receive(10) == {"echo": {"still": "here"}}
        await connection.aclose()


@contextlib.asynccontextmanager
async def port() -> AsyncIterator[Port]:
    here = Port()
    server = ControlServer(
        token=TOKEN, on_connection=here.serve, notify=here.log.append
    )
    here.address = await server.start("127.0.0.1")
    try:
        yield here
        await here.unharmed()
    finally:
        await server.aclose()


@pytest.mark.parametrize(
    ("who", "reason"),
    [
        (Identity.of("stale", "process", "w0"), "its token is another run's"),
        (Identity("process", "w0", derive_key(TOKEN, "process", "w1")), "another run"),
        (Identity("agent", "w0", W0.key), "another run"),
        (Identity.of(TOKEN, "viewer", "w0"), "role 'viewer' has no place"),
    ],
    ids=["stale token", "another process", "another role", "unknown role"],
)
async def test_stranger_is_refused_and_logged_with_address_and_reason(
    who: Identity, reason: str
) -> None:
    async with port() as here:
        with pytest.raises(NodeMisbehaved):
            await connect_control(here.address, identity=who)
        await until(lambda: here.log)

        assert here.log[0].startswith("refused a connection from 127.0.0.1:")
        assert reason in here.log[0]
        assert not here.heard


async def test_rogue_server_learns_nothing_and_is_not_believed() -> None:
    """The hole of old: the token was sent in clear to whoever answered."""
    orders = said(accepted=True) + said(kind="Stop", reason="obey me")
    async with rogue(orders) as (address, got):
        with pytest.raises(NodeMisbehaved, match=r"w0 does not trust .*127\.0\.0\.1"):
            await connect_control(address, identity=W0)

    assert got[1] == b""
    assert TOKEN.encode() not in got[0]
    assert W0.key not in got[0]


async def test_recording_is_of_no_use_a_second_time() -> None:
    async with port() as here, between(here.address) as middle:
        connection = await connect_control(middle.address, identity=W0)
        connection.send({"transfer": 100})
        await connection.receive(10)
        await connection.aclose()
        reader, writer = await asyncio.open_connection(*here.address)
        writer.write(middle.seen["up"][0])
        await read_frame(reader)
        writer.write(b"".join(middle.seen["up"][1:]))
        await reader.read()
        writer.close()
        await until(lambda: here.log)

        assert "does not know the token" in here.log[0]
        assert here.heard == [{"transfer": 100}]


async def test_servers_proof_cannot_be_sent_back_to_it() -> None:
    async with port() as here:
        reader, writer = await asyncio.open_connection(*here.address)
        writer.write(said(role="process", name="w0", nonce=NONCE))
        asked = await read_message(reader)
        writer.write(said(proof=asked["proof"]))
        refused = await read_message(reader)
        writer.close()

        assert "does not know the token" in refused["refused"]


async def test_server_is_no_oracle_for_a_man_in_the_middle() -> None:
    """Its proof for one name is none for another; its nonce is never ours."""
    async with port() as here:
        reader, writer = await asyncio.open_connection(*here.address)
        writer.write(said(role="process", name="w1", nonce=NONCE))
        asked = await read_message(reader)
        writer.close()
        taken = Challenge(W0.key, ("process", "w0"), NONCE, asked["nonce"])
        with pytest.raises(NodeMisbehaved):
            taken.check(asked, "server")


def flipped(way: str, number: int) -> Callable[[str, int, bytes], bytes]:
    def alter(direction: str, count: int, frame: bytes) -> bytes:
        if (direction, count) != (way, number):
            return frame
        return frame[:-1] + bytes([frame[-1] ^ 1])

    return alter


def repeated(way: str, number: int) -> Callable[[str, int, bytes], bytes]:
    return lambda d, n, frame: frame * (2 if (d, n) == (way, number) else 1)


def dropped(way: str, number: int) -> Callable[[str, int, bytes], bytes]:
    return lambda d, n, frame: b"" if (d, n) == (way, number) else frame


def slipped_in(way: str, number: int) -> Callable[[str, int, bytes], bytes]:
    forged = said(accepted=True) + said(forged=True)
    return lambda d, n, frame: frame + (forged if (d, n) == (way, number) else b"")


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("how", [flipped, repeated, dropped, slipped_in])
async def test_altered_conversation_is_noticed(
    how: Callable[[str, int], Callable[[str, int, bytes], bytes]], way: str, number: int
) -> None:
    """Every message of handshake and talk, in each direction, altered in four ways."""
    honest = [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 3}]
    answers: list[Any] = []
    async with port() as here, between(here.address, how(way, number)) as middle:
        try:
            connection = await connect_control(middle.address, identity=W0, within=0.3)
        except EmulatorError:
            assert not here.heard
            return
        with contextlib.suppress(EmulatorError, TimeoutError):
            for message in honest:
                connection.send(message)
            while len(answers) < len(honest):
                answers.append(await connection.receive(0.3))
            await pong(connection, within=0.3)
        await connection.aclose()

        assert here.heard == honest[: len(here.heard)]
        assert answers == [{"echo": m} for m in honest[: len(answers)]]
        assert len(answers) < 4 or any(here.lost)


async def test_pings_of_strangers_are_not_answered() -> None:
    async with port() as here:
        reader, writer = await asyncio.open_connection(*here.address)
        writer.write(b"".join(said(_ping=1.0) for _ in range(1000)))
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            heard = await reader.read()
        writer.close()
        await until(lambda: here.log)

        assert b"_pong" not in heard
        assert len(here.log) == 1


async def test_data_goes_to_no_rogue_receiver() -> None:
    keys = edge_keys(TOKEN, [3])
    async with rogue(encode_message(Kind.HELLO, {"accepted": 3})) as (address, got):
        with pytest.raises(NodeMisbehaved, match="edge 3 does not trust"):
            await open_unpaced(address, 3, keys[3])

    assert got[1:] in ([], [b""])


async def test_key_of_one_edge_opens_no_other() -> None:
    keys, log = edge_keys(TOKEN, [0, 1]), list[str]()
    server = DataServer(
        keys=keys,
        inbox=Inbox(),
        pool=BufferPool(),
        notify=log.append,
    )
    address = await server.start("127.0.0.1")
    with pytest.raises(NodeMisbehaved, match="edge 1 does not trust"):
        await open_unpaced(address, 1, keys[0])
    await until(lambda: log)
    edge = await open_unpaced(address, 1, keys[1])
    await edge.aclose()
    await server.aclose()

    assert log[0].startswith("refused a connection from 127.0.0.1:")


async def test_data_recording_is_of_no_use_a_second_time() -> None:
    keys, log = edge_keys(TOKEN, [0]), list[str]()
    server = DataServer(
        keys=keys,
        inbox=Inbox(),
        pool=BufferPool(),
        notify=log.append,
    )
    address = await server.start("127.0.0.1")
    async with between(address) as middle:
        await (await open_unpaced(middle.address, 0, keys[0])).aclose()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(middle.seen["up"][0])
        await read_frame(reader)
        writer.write(b"".join(middle.seen["up"][1:]))
        await reader.read()
        writer.close()
    await server.aclose()

    assert "does not know the token" in log[0]


def test_log_of_refusals_is_bounded_and_fit_for_a_terminal() -> None:
    told: list[str] = []
    rejections = Rejections(told.append)
    for n in range(1000):
        rejections.note("10.0.0.1:5", f"\x1b[2J\n{n}")

    assert len(told) == 100
    assert rejections.total == 1000
    assert all(line.isprintable() for line in told)


async def silent(
    address: tuple[str, int], host: str = "127.0.0.1"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*address, local_addr=(host, 0))


@pytest.mark.parametrize("crowd", [1, 2, 3, 40])
async def test_idle_strangers_keep_nobody_out_of_a_control_port(
    monkeypatch: pytest.MonkeyPatch, crowd: int
) -> None:
    """The one that has been idle longest makes room, and is told why."""
    monkeypatch.setattr(Strangers, "most", 2)
    async with port() as here:
        idle = [await silent(here.address) for _ in range(crowd)]
        connection = await connect_control(here.address, identity=W0)
        # It has proved itself, and does not make room for anybody.
        later = [await silent(here.address) for _ in range(3)]
        refused = [await read_message(reader) for reader, _ in idle[: crowd - 1]]
        assert not connection.closed
        for _, writer in (*idle, *later):
            writer.close()
        await connection.aclose()
        assert refused == [{"refused": AGAIN}] * (crowd - 1)


async def test_who_was_refused_for_want_of_room_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A port with room for one, and twelve peers of a run that come at once."""
    monkeypatch.setattr(Strangers, "most", 1)
    async with port() as here:
        names = [Identity.of(TOKEN, "process", f"w{n}") for n in range(12)]
        found = await asyncio.gather(
            *(connect_control(here.address, identity=name) for name in names)
        )
        for connection in found:
            await connection.aclose()
        assert any(AGAIN in line for line in here.log)


@pytest.mark.parametrize("crowd", [1, 2, 3, 40])
async def test_idle_strangers_keep_nobody_out_of_a_data_port(
    monkeypatch: pytest.MonkeyPatch, crowd: int
) -> None:
    monkeypatch.setattr(Strangers, "most", 2)
    keys = edge_keys(TOKEN, range(4))
    server = DataServer(keys=keys, inbox=Inbox("w0"), pool=BufferPool())
    address = await server.start("127.0.0.1")
    idle = [await silent(address) for _ in range(crowd)]
    edges = await asyncio.gather(
        *(open_unpaced(address, e, key) for e, key in keys.items())
    )
    later = [await silent(address) for _ in range(3)]
    await until(lambda: len(server.connections) == len(edges) + 2)
    assert server.connected.keys() == keys.keys()
    assert server.rejections[0][1] == AGAIN
    for _, writer in (*idle, *later):
        writer.close()
    for edge in edges:
        await edge.aclose()
    await server.aclose()


@pytest.mark.parametrize(
    ("number", "extra", "refused"),
    [(0, {"refused": AGAIN}, None), (1, {"accepted": 0}, "more than its answer")],
    ids=["a refusal after the challenge", "a message after the last"],
)
async def test_two_messages_of_a_receiver_in_one_segment(
    number: int, extra: dict[str, Any], refused: str | None
) -> None:
    """As a receiver sends them that makes room between its challenge and the proof."""

    def alter(way: str, count: int, frame: bytes) -> bytes:
        if (way, count) == ("up", 1) and "refused" in extra:
            return b""  # who was refused proves itself to nobody
        return frame + encode_message(Kind.HELLO, extra) * (
            (way, count) == ("down", number)
        )

    key = edge_keys(TOKEN, [0])[0]
    server = DataServer(keys={0: key}, inbox=Inbox("w0"), pool=BufferPool())
    address = await server.start("127.0.0.1")
    try:
        async with between(address, alter) as middle:
            if refused is None:
                await (await open_unpaced(middle.address, 0, key)).aclose()
                assert len(middle.seen["down"]) == 3  # two challenges, one acceptance
            else:
                with pytest.raises(NodeMisbehaved, match=refused):
                    await open_unpaced(middle.address, 0, key)
    finally:
        await server.aclose()


async def test_who_tries_again_has_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(authentication, "_PAUSE", 0.01)
    rests: list[float] = []

    async def enter(rest: float) -> None:
        rests.append(rest)
        raise NodeLost(f"refused; {AGAIN}")

    with pytest.raises(NodeLost, match="refused"):
        await enter_port(enter, 0.1)

    assert rests[0] == 0.1
    assert len(rests) > 1
    assert all(later < earlier for earlier, later in pairwise(rests))


async def test_nobody_there_is_not_taken_for_a_stranger() -> None:
    async with port() as here:
        address = here.address
    with pytest.raises(NodeLost, match="cannot reach"):
        await connect_control(address, identity=W0)


@pytest.mark.parametrize("nonce", [None, "x" * 32, b"", b"x" * 31, b"x" * 33])
def test_a_challenge_has_32_bytes_of_either_side(nonce: Any) -> None:
    """They come from a stranger."""
    right = bytes(range(32))
    assert Challenge(b"key", ("process", "w0"), right, right[::-1]).proof("client")
    for client, server in ((nonce, right), (right, nonce)):
        with pytest.raises(NodeMisbehaved, match="no challenge of 32 bytes"):
            Challenge(b"key", ("process", "w0"), client, server)
