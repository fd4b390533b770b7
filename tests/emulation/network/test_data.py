"""Data connections: what arrives, and what is refused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest

from emu.emulation.network.authentication import Challenge, Strangers, edge_keys
from emu.emulation.network.clock import RunClock
from emu.emulation.network.data_server import BurstSize, DataServer
from emu.emulation.network.inbox import BufferPool, Inbox
from emu.emulation.network.out_edge import OutEdge
from emu.emulation.wire.encoding import encode_data, encode_message
from emu.emulation.wire.frame_layout import (
    FRAME_ROWS,
    PREFIX,
    PREFIX_BYTES,
    WAIT_ROWS,
    Kind,
)
from emu.errors import (
    DeadlineExceeded,
    EmulatorError,
    FrameTooLarge,
    MalformedFrame,
    NodeLost,
    NodeMisbehaved,
    RunError,
    TruncatedFrame,
)
from emu.prediction.core import lib
from tests.emulation.network.strangers import NONCE, open_unpaced, read_message, until
from tests.emulation.wire.prefix import prefix_of

KEYS = edge_keys("secret", range(3))

Address = tuple[str, int]


@dataclass
class Receiver:
    """A data server for edges 0 to 2 that remembers what it was told."""

    address: Address
    server: DataServer
    arrivals: list[tuple[int, int, float, int, bool]]
    failures: list[tuple[int, EmulatorError]]
    edges: list[OutEdge] = field(default_factory=list)

    async def open(self, edge: int) -> OutEdge:
        """Return a connected edge that is closed with the receiver."""
        self.edges.append(await open_unpaced(self.address, edge, KEYS[edge]))
        return self.edges[-1]


@asynccontextmanager
async def receiving(pool: BufferPool | None = None) -> AsyncIterator[Receiver]:
    arrivals: list[tuple[int, int, float, int, bool]] = []
    failures: list[tuple[int, EmulatorError]] = []
    server = DataServer(
        keys=KEYS,
        inbox=Inbox("w0"),
        pool=pool or BufferPool(),
        on_arrival=lambda *seen: arrivals.append(seen),
        on_failure=lambda *seen: failures.append(seen),
    )
    address = await server.start("127.0.0.1")
    receiver = Receiver(address, server, arrivals, failures)
    try:
        yield receiver
    finally:
        for edge in receiver.edges:
            await edge.aclose()
        await server.aclose()
    assert not server.connections
    assert server.pool.statistics.in_use == 0


class Waited:
    """Arrivals of a connection whose waits are made up."""

    def __init__(self, arrivals: Any, waits: Iterator[tuple[float, float]]) -> None:
        self._arrivals = arrivals
        self._waits = waits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._arrivals, name)

    def take_waits(self) -> tuple[float, float]:
        """Return the next waits that were made up."""
        return next(self._waits)


async def say(address: Address, data: bytes) -> bytes:
    """Return what the port answers to raw bytes, until it closes."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    if not data:
        writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def introduced(
    address: Address, edge: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a raw connection that was accepted for an edge."""
    reader, writer = await asyncio.open_connection(*address)
    challenge = await challenged(reader, writer, edge)
    writer.write(encode_message(Kind.HELLO, {"proof": challenge.proof("client")}))
    answer = encode_message(Kind.HELLO, {"accepted": edge})
    assert await reader.readexactly(len(answer)) == answer
    return reader, writer


async def challenged(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, edge: int
) -> Challenge:
    """Return what a raw connection is asked to prove."""
    writer.write(encode_message(Kind.HELLO, {"edge": edge, "nonce": NONCE}))
    asked = await read_message(reader)
    challenge = Challenge(KEYS[edge], (edge,), NONCE, asked["nonce"])
    challenge.check(asked, "server")
    return challenge


async def test_a_wait_is_noted_where_there_was_any_of_the_two() -> None:
    async with receiving() as receiver:
        edge = await receiver.open(1)
        connection = receiver.server.connected[1]
        waits = iter([(0.0, 0.0), (0.5, 0.0), (0.0, 0.25)])
        arrivals = cast("Any", connection._arrivals)
        connection._arrivals = cast("Any", Waited(arrivals, waits))
        for iteration in range(3):
            await edge.send(iteration, {"x": np.zeros(4)}, shaped=False)
            (await receiver.server.inbox.get(1, iteration, within=10)).release()

        rows = b"".join(receiver.server.waits.pieces())
        found = np.frombuffer(rows, WAIT_ROWS).tolist()
        assert found == [(1, 1, 0.5, 0.0), (1, 2, 0.0, 0.25)]


async def test_an_edge_is_sent_from_the_port_that_it_has(
    unused_tcp_port: int,
) -> None:
    async with receiving() as receiver:
        edge = await open_unpaced(
            receiver.address, 1, KEYS[1], source_port=unused_tcp_port
        )
        receiver.edges.append(edge)
        sock = cast("socket.socket", edge._sock)

        assert sock.getsockname()[1] == unused_tcp_port


async def test_tensors_of_one_kind_are_counted_together() -> None:
    payload = {name: np.zeros(4) for name in ("source", "vertices", "labels")}
    async with receiving() as receiver:
        edge = await receiver.open(1)
        await edge.send(0, payload, shaped=False)
        (await receiver.server.inbox.get(1, 0, within=10)).release()
        counts = receiver.server.statistics().payloads

        found = {(count.edge, count.kind, count.bytes) for count in counts}
        assert found == {(1, "structure", 64), (1, "labels", 32)}


async def test_an_arrival_is_told_of_when_its_payload_is_there() -> None:
    async with receiving() as receiver:
        inbox = receiver.server.inbox
        waiting: list[int] = []
        receiver.server.on_arrival = lambda *_: waiting.append(inbox.statistics.waiting)
        edge = await receiver.open(1)
        await edge.send(0, {"x": np.zeros(4)}, shaped=False)
        await until(lambda: waiting)
        (await inbox.get(1, 0)).release()

        assert waiting == [1]


async def test_who_waits_for_an_edge_gets_its_failure_and_no_other() -> None:
    async with receiving() as receiver:
        broken, sound = [await receiver.open(edge) for edge in (1, 2)]
        inbox = receiver.server.inbox
        await broken.aclose()
        with pytest.raises(NodeLost, match="the sender of edge 1 has gone"):
            await inbox.get(1, 0, within=10)
        for edge in (0, 2):
            with pytest.raises(DeadlineExceeded):
                await inbox.get(edge, 0, within=0.01)
        assert sound.statistics.frames == 0


async def test_a_payload_arrives_whole() -> None:
    rng = np.random.default_rng(1)
    payload: dict[str, Any] = {
        "features": rng.standard_normal((300_000, 8)).astype(np.float32),
        "vertices": rng.integers(0, 1 << 31, 100),
        "mask": rng.integers(0, 2, 33).astype(bool),
    }
    async with receiving() as receiver:
        edge = await receiver.open(1)
        left = edge.send(4, payload, shaped=False)
        delivery = await receiver.server.inbox.get(1, 4, within=10)
        await left

        for name, array in payload.items():
            np.testing.assert_array_equal(delivery.payload[name], array)
        assert delivery.nbytes == 9_600_000 + 800 + 33
        assert receiver.arrivals == [(1, 4, delivery.arrived, delivery.nbytes, False)]
        statistics = receiver.server.statistics()
        assert statistics.payload_bytes == delivery.nbytes
        assert edge.statistics.payload_bytes == delivery.nbytes
        assert statistics.header_bytes == edge.statistics.header_bytes > 20
        assert receiver.server.pool.statistics.in_use >= delivery.nbytes
        delivery.release()


async def test_bursts_are_of_edges_that_are_watched() -> None:
    """Nothing came at once over edge 0, and edge 2 is not watched."""
    watched = DataServer(keys=KEYS, inbox=Inbox(), pool=BufferPool(), rates={1: 1.0})
    assert watched.rates == {1: 1.0}
    async with receiving() as receiver:
        server = receiver.server
        for edge in range(3):
            await receiver.open(edge)
        for edge, size in ((0, 0.0), (1, 9.5)):
            frames = server.connected[edge]._end.frames
            assert frames is not None
            frames.core.burst = size

        counts = server.statistics()
        assert counts.bursts == [BurstSize(0, 0.0), BurstSize(1, 9.5)]
        assert server.connected[2].largest_burst == -1.0
        assert server.connected[1].is_plain
        assert (counts.connections, counts.frames, counts.rejections) == (3, 0, 0)


async def test_a_frame_is_noted_from_its_first_byte_to_its_last() -> None:
    head, body = encode_data(1, 0, {"x": np.ones(1000)})
    async with receiving() as receiver:
        _, writer = await introduced(receiver.address, 1)
        writer.write(bytes(head))
        (connection,) = receiver.server.connections
        frames = connection._end.frames
        assert frames is not None
        await until(lambda: frames.core.part == lib.IN_BODY)
        writer.write(bytes(body))
        delivery = await receiver.server.inbox.get(1, 0, within=10)
        delivery.release()
        writer.close()

        (piece,) = receiver.server.log.pieces(RunClock(0.0, 1.0))
        (row,) = np.frombuffer(piece, FRAME_ROWS)
        assert row["first"] < row["last"] == delivery.arrived


async def test_frames_keep_their_order_and_their_edge() -> None:
    sizes = [5, 3_000_000, 0, 1, 200_000]
    async with receiving() as receiver:
        edges = [await receiver.open(e) for e in range(3)]
        left = [
            edge.send(n, {"x": np.full(size, n, dtype=np.uint8)}, shaped=False)
            for n, size in enumerate(sizes)
            for edge in edges
        ]
        await asyncio.gather(*left)
        await until(lambda: len(receiver.arrivals) == 15)

        for edge in range(3):
            mine = [seen[1:4:2] for seen in receiver.arrivals if seen[0] == edge]
            assert mine == list(enumerate(sizes))
            for n, size in enumerate(sizes):
                delivery = await receiver.server.inbox.get(edge, n)
                assert delivery.payload["x"].tolist() == [n] * size
                delivery.release()


STRANGERS = {
    "nothing": (b"", "ended without a hello"),
    "random": (bytes(range(7, 200)), "starts with"),
    "http": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "starts with b'GET '"),
    "wrong version": (
        prefix_of(kind=1, header=0, body=5, version=9) + b"hello",
        "version 9",
    ),
    "oversized": (prefix_of(kind=1, header=0, body=1 << 31), "at most 4096"),
    "data first": (b"".join(encode_data(0, 0, {"x": np.zeros(3)})), "kind 2"),
    "no challenge": (encode_message(Kind.HELLO, {"edge": 0}), "no challenge"),
    "short challenge": (
        encode_message(Kind.HELLO, {"edge": 0, "nonce": b"x"}),
        "no challenge",
    ),
    "wrong proof": (
        encode_message(Kind.HELLO, {"edge": 0, "nonce": NONCE})
        + encode_message(Kind.HELLO, {"proof": NONCE}),
        "does not know the token",
    ),
    "no proof": (
        encode_message(Kind.HELLO, {"edge": 0, "nonce": NONCE})
        + encode_message(Kind.HELLO, {"proof": "text"}),
        "does not know the token",
    ),
    "unknown edge": (
        encode_message(Kind.HELLO, {"edge": 7, "nonce": NONCE}),
        "edge 7 does not end here",
    ),
    "edge of no type": (
        encode_message(Kind.HELLO, {"edge": [0], "nonce": NONCE}),
        "does not end here",
    ),
}


@pytest.mark.parametrize("name", list(STRANGERS))
async def test_a_stranger_is_dropped_and_the_rest_lives_on(name: str) -> None:
    data, reason = STRANGERS[name]
    async with receiving() as receiver:
        edge = await receiver.open(0)
        await say(receiver.address, data)
        await until(lambda: receiver.server.rejections)
        _ = edge.send(0, {"x": np.zeros(3)}, shaped=False)
        (await receiver.server.inbox.get(0, 0, within=10)).release()

        ((peer, why),) = receiver.server.rejections
        assert reason in why
        assert peer.startswith("127.0.0.1:")
        assert receiver.failures == []
        assert receiver.server.pool.statistics.high_water <= 4096


async def test_a_truncated_hello_is_recorded() -> None:
    async with receiving() as receiver:
        _, writer = await asyncio.open_connection(*receiver.address)
        writer.write(encode_message(Kind.HELLO, {"edge": 0, "nonce": NONCE})[:-3])
        writer.close()
        await until(lambda: receiver.server.rejections)

        assert "ended inside a frame" in receiver.server.rejections[0][1]


async def test_a_silent_stranger_has_a_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Strangers, "patience", 0.01)
    async with receiving() as receiver:
        reader, writer = await asyncio.open_connection(*receiver.address)
        await asyncio.wait_for(reader.read(), 10)
        writer.close()

        assert [why for _, why in receiver.server.rejections] == ["no hello in 0.01 s"]


GOOD = b"".join(encode_data(0, 0, {"x": np.arange(1000)}))
_, _, KIND, HEADER, LENGTH = PREFIX.unpack_from(GOOD)
SHAPES_DISAGREE = (
    prefix_of(kind=KIND, header=HEADER, body=LENGTH + 8) + GOOD[PREFIX_BYTES:]
)

BROKEN = {
    "truncated": (GOOD[:-1], TruncatedFrame, "7999 of 8000 bytes of its body"),
    "random": (bytes(range(100)), MalformedFrame, "starts with"),
    "oversized": (
        prefix_of(kind=2, header=10, body=1 << 31),
        FrameTooLarge,
        "at most 1073741824",
    ),
    "shapes disagree": (SHAPES_DISAGREE, MalformedFrame, "the body has 8008"),
    "another edge": (
        b"".join(encode_data(1, 0, {})),
        NodeMisbehaved,
        "edge 1 on the connection of edge 0",
    ),
    "backwards": (GOOD + GOOD, NodeMisbehaved, "iteration 0 after 0"),
    "second hello": (
        encode_message(Kind.HELLO, {"edge": 2, "nonce": NONCE}),
        NodeMisbehaved,
        "second hello",
    ),
}


@pytest.mark.parametrize("name", list(BROKEN))
async def test_a_broken_sender_fails_its_edge_only(name: str) -> None:
    data, kind, reason = BROKEN[name]
    async with receiving() as receiver:
        other = await receiver.open(1)
        _, writer = await introduced(receiver.address, 0)
        waiter = asyncio.ensure_future(receiver.server.inbox.get(0, 5, within=10))
        writer.write(data)
        writer.close()
        with pytest.raises(kind, match=reason):
            await waiter
        _ = other.send(0, {"x": np.zeros(3)}, shaped=False)
        (await receiver.server.inbox.get(1, 0, within=10)).release()
        if name == "backwards":
            (await receiver.server.inbox.get(0, 0)).release()

        assert [(edge, type(error)) for edge, error in receiver.failures] == [(0, kind)]


async def test_a_full_pool_fails_the_edge_with_a_clear_error() -> None:
    async with receiving(BufferPool(1 << 16)) as receiver:
        edge = await receiver.open(0)
        left = edge.send(0, {"x": np.zeros(1 << 17, dtype=np.uint8)}, shaped=False)
        with pytest.raises(RunError, match="receive memory are in use"):
            await receiver.server.inbox.get(0, 0, within=10)
        await asyncio.wait([left])

        assert len(receiver.failures) == 1


async def test_a_sender_that_ends_between_frames_is_missed() -> None:
    async with receiving() as receiver:
        _, writer = await introduced(receiver.address, 0)
        writer.write(GOOD)
        writer.close()
        (await receiver.server.inbox.get(0, 0, within=10)).release()
        with pytest.raises(NodeLost, match="the sender of edge 0 has gone"):
            await receiver.server.inbox.get(0, 1, within=10)

        assert [edge for edge, _ in receiver.failures] == [0]


async def test_an_edge_connects_once() -> None:
    async with receiving() as receiver:
        await receiver.open(2)
        with pytest.raises(NodeMisbehaved, match=r"refused edge 2: .* already"):
            await receiver.open(2)


async def test_nobody_listens() -> None:
    async with receiving() as receiver:
        address = receiver.address
    with pytest.raises(NodeLost, match=r"edge 0 cannot reach 127\.0\.0\.1"):
        await open_unpaced(address, 0, KEYS[0])


async def test_a_receiver_that_never_answers_has_a_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = silent.getsockname()
        with pytest.raises(
            DeadlineExceeded, match=r"the sender of edge 3 waited 0\.01 s for 127"
        ):
            await open_unpaced(address, 3, NONCE, within=0.01)


async def test_all_senders_are_waited_for() -> None:
    async with receiving() as receiver:
        await receiver.open(1)
        with pytest.raises(TimeoutError):
            await receiver.server.wait_connected(within=0.01)
        await receiver.open(0)
        await receiver.open(2)
        await receiver.server.wait_connected(within=10)


async def test_a_lost_receiver_fails_what_is_queued_and_what_follows() -> None:
    async with receiving() as receiver:
        edge = await receiver.open(0)
        failures: list[EmulatorError] = []
        edge.on_failure = failures.append
        blocked = edge.send(0, {"x": np.zeros(1 << 26, dtype=np.uint8)}, shaped=False)
        queued = edge.send(1, {}, shaped=False)
        await receiver.server.aclose()
        for left in (blocked, queued):
            with pytest.raises(NodeLost, match="the receiver of edge 0"):
                await left
        assert len(failures) == 1
        assert "the receiver of edge 0" in str(failures[0])
        with pytest.raises(NodeLost):
            _ = edge.send(2, {}, shaped=False)


async def test_only_who_loses_frames_fails() -> None:
    """Nothing is lost with a receiver that has all, or by an edge that is closed."""
    failures: list[EmulatorError] = []
    async with receiving() as receiver:
        done, stuck = await receiver.open(0), await receiver.open(1)
        for edge in (done, stuck):
            edge.on_failure = failures.append
        await done.send(0, {}, shaped=False)
        lost = stuck.send(0, {"x": np.zeros(1 << 26, dtype=np.uint8)}, shaped=False)
        await stuck.aclose()
        with pytest.raises(NodeLost, match="edge 1 was closed"):
            await lost
        await receiver.server.aclose()
        await until(lambda: done._error is not None)

    assert failures == []
