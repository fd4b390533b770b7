"""Pauses of one's own do not count in waits."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import numpy as np
import pytest

from emu.emulation.network.authentication import Identity
from emu.emulation.network.clock import awake_timeout
from emu.emulation.network.control import (
    ControlConnection,
    ControlServer,
    connect_control,
)
from emu.emulation.network.data_server import DataConnection, DataServer
from emu.emulation.network.inbox import BufferPool, Delivery, Inbox
from emu.errors import DeadlineExceeded


def paused() -> None:
    """Stand still, as a process that is stopped, for longer than anybody waits."""
    time.sleep(0.6)


async def test_payload_that_came_in_a_pause_is_taken() -> None:
    inbox = Inbox("w0")
    loop = asyncio.get_running_loop()
    loop.call_later(0.05, paused)
    late = Delivery(0, 0, {"x": np.zeros(1)}, 0.0)
    loop.call_later(0.75, inbox.deliver, late)

    assert await inbox.get(0, 0, within=0.4) is late


async def test_message_that_came_in_a_pause_is_taken() -> None:
    async def speak(connection: ControlConnection, _: Identity) -> None:
        await asyncio.sleep(0.75)
        connection.send({"go": "on"})
        await asyncio.sleep(0.2)

    server = ControlServer(token="t", on_connection=speak)  # noqa: S106
    address = await server.start("127.0.0.1")
    who = Identity.of("t", "process", "w0")
    connection = await connect_control(address, identity=who)
    asyncio.get_running_loop().call_later(0.05, paused)

    assert await connection.receive(0.4) == {"go": "on"}
    await connection.aclose()
    await server.aclose()


async def test_peers_that_connect_after_a_pause_are_in_time() -> None:
    server = DataServer(keys={0: b""}, inbox=Inbox(), pool=BufferPool())
    loop = asyncio.get_running_loop()
    loop.call_later(0.05, paused)

    def connect() -> None:
        server.connected[0] = cast("DataConnection", None)
        server.changed.set()

    loop.call_later(0.75, connect)

    await server.wait_connected(within=0.4)


async def test_a_wait_without_pauses_ends() -> None:
    with pytest.raises(DeadlineExceeded, match=r"w0 waited 0\.05 s for iteration 0"):
        await Inbox("w0").get(0, 0, within=0.05)
    with pytest.raises(TimeoutError):
        async with awake_timeout(0.0):
            await asyncio.sleep(10)
