"""A few shaped frames to oneself, before the run: whatever is slow only once is over.

A process just forked copies each page that it writes to, runs every line of Python for
the first time and has no memory for payloads. Without this the first 60 ms of a run of
15 processes were up to 20 ms late, flow by flow, and 117 processes on two cores were
untrusted, with tasks 4 % late in one iteration.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.network import (
    BufferPool,
    DataServer,
    Inbox,
    Pacer,
    RateBoard,
    RunClock,
    edge_keys,
    open_edge,
)
from emu.this_host import this_host
from emu.wire.messages import FlowEnded, pack
from emu_nodes.task_runner import WallClockTimer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from concurrent.futures import Executor

    from emu.network import OutEdge

_ROUNDS = 8
_BYTES = 1 << 18
_RATE = 1e9  # bytes per second: a round takes 0.3 ms
_WITHIN = (
    30.0  # wall seconds, on a host where a hundred processes warm_up_process at once
)


async def warm_up_process(compute: Executor) -> None:
    """Do what the run will do: compute, hold, send by a board, receive, report.

    Raises
    ------
    EmulatorError
        When this host has no loopback address that can be connected to.
    """
    timer = WallClockTimer()
    inbox, pool = Inbox("warm-up"), BufferPool()
    board = RateBoard.create(1)
    pacer = Pacer(board)
    payload = {"x": np.zeros(_BYTES, dtype=np.uint8)}
    try:
        async with _edge_to_itself(inbox, pool, pacer) as edge:
            clock = RunClock(this_host.monotonic(), 1.0)
            pacer.start(clock)
            for n in range(_ROUNDS):
                await asyncio.get_running_loop().run_in_executor(compute, int)
                await timer.until(this_host.monotonic() + 1e-4)
                left = edge.send(n, payload, shaped=n % 4 > 0)
                board.publish([0], [n], [0.0], [_RATE], clock.now())
                edge.notify(0.0)
                (await inbox.get(0, n, within=_WITHIN)).release()
                await left
    finally:
        timer.close()
        pacer.close()
        board.close()


@contextlib.asynccontextmanager
async def _edge_to_itself(
    inbox: Inbox, pool: BufferPool, pacer: Pacer
) -> AsyncIterator[OutEdge]:
    keys = edge_keys(secrets.token_hex(8), [0])

    def arrived(edge: int, n: int, wall: float, size: int, *_: Any) -> None:
        pack(FlowEnded(edge, n, wall, float(size)))

    server = DataServer(keys=keys, inbox=inbox, pool=pool, on_arrival=arrived)
    address = await server.start("127.0.0.1")
    try:
        edge = await open_edge(address, 0, key=keys[0], pacer=pacer, within=_WITHIN)
        try:
            yield edge
        finally:
            await edge.aclose()
    finally:
        await server.aclose()
