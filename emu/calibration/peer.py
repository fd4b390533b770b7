"""The other process of a measurement: echoes, receives payload, forks."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import sys
import time
from typing import TYPE_CHECKING, Any

import psutil
import uvloop

from emu.errors import EmulatorError
from emu.network import (
    BufferPool,
    DataServer,
    Identity,
    Inbox,
    connect_control,
    edge_keys,
    tune_process,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from emu.network import ControlConnection

#: Names one edge of each measurement, so that none inherits what another left.
EDGES = 8
_FORKED = 8
_PATIENCE = 60.0  # wall seconds without an order: whoever measured has gone


def cpu_seconds() -> float:
    """Return user and system time of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Serve whoever measures, at the address of the arguments, until it goes away."""
    host, _, port = sys.argv[1].partition(":")
    try:
        uvloop.run(_serve((host, int(port)), os.environ["EMU_TOKEN"]))
    except EmulatorError:
        return 1  # the other end knows, or is gone
    return 0


async def _serve(address: tuple[str, int], token: str) -> None:
    tune_process()
    control = await connect_control(
        address, identity=Identity.of(token, "process", "peer")
    )
    inbox, pool = Inbox(), BufferPool()

    def arrived(edge: int, n: int, wall: float, _size: int, _shaped: bool) -> None:  # noqa: FBT001 -- the transport's signature
        control.send({"arrived": [edge, n, wall]})

    server = DataServer(
        keys=edge_keys(token, range(EDGES)), inbox=inbox, pool=pool, on_arrival=arrived
    )
    try:
        await _obey(control, server, asyncio.create_task(_empty(inbox)))
    finally:
        await server.aclose()
        await control.aclose()


async def _obey(
    control: ControlConnection, server: DataServer, emptying: asyncio.Task[None]
) -> None:
    orders: dict[str, Any] = {
        "cpu": cpu_seconds,
        "fork": lambda: forked(_FORKED),
    }
    try:
        while True:
            order = (await control.receive(_PATIENCE)).get("do")
            if order == "stop":
                return
            if order == "listen":
                control.send({"listen": list(await server.start("127.0.0.1"))})
            elif order in orders:
                control.send({order: orders[order]()})
            else:
                control.send({"echo": 1})
    finally:
        emptying.cancel()


async def _empty(inbox: Inbox) -> None:
    """Give the memory of what arrives back at once."""

    async def empty(edge: int) -> None:
        for n in range(1 << 30):
            (await inbox.get(edge, n)).release()

    await asyncio.gather(*map(empty, range(EDGES)), return_exceptions=True)


def forked(count: int) -> list[float]:
    """Return seconds per forked process, and bytes that one holds privately."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["emu.calibration.peer"])
    ours, theirs = context.Pipe()
    first = context.Process(target=_joined, args=(theirs,))
    first.start()  # starts the server
    ours.recv()
    began = time.monotonic()
    others = [context.Process(target=_joined, args=(theirs,)) for _ in range(count)]
    for process in others:
        process.start()
    for _ in others:
        ours.recv()
    seconds = (time.monotonic() - began) / count
    try:
        private = float(psutil.Process(first.pid).memory_full_info().uss)
    except (psutil.Error, AttributeError):
        private = 0.0  # not known on this system
    for process in [first, *others]:
        process.kill()
        process.join(1.0)
    return [seconds, private]


def _joined(pipe: Connection) -> None:
    """Be a node process that has come up, until killed."""
    pipe.send(os.getpid())
    time.sleep(_PATIENCE)
