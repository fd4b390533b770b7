"""Peers that do not play by the rules: raw connections, and somebody in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from emu.emulation.network.authentication import Challenge, Identity
from emu.emulation.network.connect import open_edge
from emu.emulation.network.control import ControlConnection
from emu.emulation.network.out_edge import OutEdge
from emu.emulation.network.pacer import Pacer
from emu.emulation.network.send_log import FrameLog
from emu.emulation.wire.decoding import MessageReader
from emu.emulation.wire.encoding import encode_message
from emu.emulation.wire.frame_layout import PREFIX, PREFIX_BYTES, Kind
from emu.errors import NodeLost
from emu.prediction.core import ffi

NONCE = bytes(32)


class Unpaced:
    """Stands for the pacer of edges that send nothing at a rate."""

    busy = False

    def __init__(self) -> None:
        self.departures = FrameLog()
        self.core = ffi.new("Pacing *", {"departures": self.departures.core})
        self.board = SimpleNamespace(count_missed=lambda _: 0)

    def deactivate(self, edge: OutEdge) -> None:
        """Do nothing."""


async def open_unpaced(
    address: tuple[str, int], edge: int, key: bytes, **how: Any
) -> OutEdge:
    """Open an edge that sends nothing at a rate."""
    pacer = cast("Pacer", Unpaced())
    return await open_edge(address, edge, key=key, pacer=pacer, **how)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes of the next message frame, sealed or not."""
    prefix = await reader.readexactly(PREFIX_BYTES)
    _, _, _, header, body = PREFIX.unpack_from(prefix)
    return prefix + await reader.readexactly(header + body)


async def read_message(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Return the next message that is not sealed."""
    frame = await read_frame(reader)
    decoder = MessageReader(kinds=set(Kind))
    decoder.get_buffer()[: len(frame)] = frame
    decoder.on_bytes(len(frame))
    message = decoder.take()
    assert message is not None
    return message.fields


async def until(condition: Callable[[], object]) -> None:
    """Wait until something holds that other callbacks bring about."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came true")


def said(**fields: Any) -> bytes:
    """Return the frame of a control message without a seal."""
    return encode_message(Kind.CONTROL, fields)


async def messages(connection: ControlConnection) -> AsyncIterator[dict[str, Any]]:
    """Yield what the peer says until it closes."""
    with contextlib.suppress(NodeLost):
        while True:
            yield await connection.receive()


async def pong(connection: ControlConnection, within: float = 10.0) -> float:
    """Ping the peer and return its clock minus ours, seconds."""
    before = len(connection.pongs)
    connection.ping()
    async with asyncio.timeout(within):
        while len(connection.pongs) == before:  # noqa: ASYNC110 -- nobody tells
            await asyncio.sleep(0.0005)
    return connection.pongs[-1].offset


async def introduced(
    address: tuple[str, int], who: Identity
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a raw control connection that was accepted; nothing is sealed on it."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(said(role=who.role, name=who.name, nonce=NONCE))
    asked = await read_message(reader)
    challenge = Challenge(who.key, (who.role, who.name), NONCE, asked["nonce"])
    challenge.check(asked, "server")
    writer.write(said(proof=challenge.proof("client")))
    await read_frame(reader)
    return reader, writer


@dataclass
class Between:
    """A man in the middle: passes frames on, as altered, and keeps what it saw.

    ``alter`` gets the direction (``up`` is to the server), the number of the frame in
    it and its bytes, and returns what to pass on.
    """

    address: tuple[str, int]
    seen: dict[str, list[bytes]] = field(default_factory=lambda: {"up": [], "down": []})


@contextlib.asynccontextmanager
async def between(
    server: tuple[str, int],
    alter: Callable[[str, int, bytes], bytes] = lambda _way, _number, frame: frame,
) -> AsyncIterator[Between]:
    """Listen for clients and pass on what they and the server say, frame by frame."""
    middle = Between(("", 0))
    passing: set[asyncio.Task[None]] = set()
    ends: set[asyncio.StreamWriter] = set()

    async def carry(
        way: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await read_frame(source)
                middle.seen[way].append(frame)
                sink.write(alter(way, len(middle.seen[way]) - 1, frame))
        sink.close()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection(*server)
        ends.update((writer, onward))
        for way, source, sink in (("up", reader, onward), ("down", there, writer)):
            passing.add(asyncio.ensure_future(carry(way, source, sink)))

    listener = await asyncio.start_server(meet, "127.0.0.1")
    middle.address = listener.sockets[0].getsockname()
    try:
        yield middle
    finally:
        listener.close()
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)
        for end in ends:
            end.close()
        await asyncio.gather(
            *(end.wait_closed() for end in ends), return_exceptions=True
        )
        await listener.wait_closed()


@contextlib.asynccontextmanager
async def rogue(*answers: bytes) -> AsyncIterator[tuple[tuple[str, int], list[bytes]]]:
    """Listen as who has the address but not the token; answer each frame as told.

    Gives the address, and what came; ends when its only client has left.
    """
    got: list[bytes] = []
    over = asyncio.Event()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            got.append(await read_frame(reader))
            writer.write(answer)
        with contextlib.suppress(ConnectionResetError):
            got.append(await reader.read())
        writer.close()
        over.set()

    listener = await asyncio.start_server(meet, "127.0.0.1")
    try:
        yield listener.sockets[0].getsockname(), got
        await asyncio.wait_for(over.wait(), 10)
    finally:
        listener.close()
        await listener.wait_closed()
