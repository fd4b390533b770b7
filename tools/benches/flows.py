"""Paced flows between processes, for the network benchmarks, and their pipes."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import resource
import socket
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, ClassVar

import numpy as np
import uvloop
from numpy.typing import NDArray
from typing_extensions import override

from emu.emulation.network import data_server
from emu.emulation.network.authentication import derive_key, edge_keys
from emu.emulation.network.clock import RunClock
from emu.emulation.network.connect import open_edge
from emu.emulation.network.data_server import DataServer
from emu.emulation.network.inbox import BufferPool, Inbox, size_class
from emu.emulation.network.pacer import Pacer
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.network.rx_timestamps import ArrivalReader
from emu.emulation.network.tuning import tune_process
from emu.emulation.shaping import QUANTUM, pace_at

MB = 1_000_000
TOKEN = "bench"  # noqa: S105 -- both ends are ours, on loopback
FORK = multiprocessing.get_context("fork")
#: Seconds of one turn of the load: a share of them busy, the rest asleep.
TURN = 0.01


def forked(target: Any, *inputs: Any) -> tuple[BaseProcess, Connection]:
    """Start a process that calls ``target(pipe, *inputs)``; return it and our end."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=target, args=(theirs, *inputs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def ask_of(loop: asyncio.AbstractEventLoop, pipe: Connection) -> Any:
    """Return a coroutine function that reads the pipe without a thread."""

    async def ask() -> Any:
        future: asyncio.Future[Any] = loop.create_future()

        def readable() -> None:
            if not future.done():
                future.set_result(pipe.recv())

        loop.add_reader(pipe.fileno(), readable)
        try:
            return await future
        finally:
            loop.remove_reader(pipe.fileno())

    return ask


def cpu_seconds() -> float:
    """Return user and system time of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _spin(core: int, share: float) -> None:
    """Be busy for a share of every turn, on one core, until killed."""
    os.sched_setaffinity(0, {core})
    while True:
        busy = time.monotonic() + share * TURN
        while time.monotonic() < busy:
            pass
        time.sleep((1 - share) * TURN)


@contextlib.contextmanager
def cpu_load(share: float) -> Iterator[None]:
    """Keep every core busy for a share of the time, at normal priority."""
    hogs = []
    if share:
        for core in sorted(os.sched_getaffinity(0)):
            hog = FORK.Process(target=_spin, args=(core, share), daemon=True)
            hog.start()
            hogs.append(hog)
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.join()


_PIECE = 64 * MB
#: Bytes that a noting reader takes at once.
_NOTED = 1 << 16
#: What receivers hold ready, bytes: two of every size class from 2 to 12 MB, as a run
#: holds what it expects. One met for the first time is 10 ms of page faults.
RESERVED = 2 * tuple(sorted({size_class(n * MB // 4) for n in range(8, 49)}))


class NotingReader(ArrivalReader):
    """Notes when the bytes of each receive call came, headers included.

    A call reads little, since the kernel's note is of the newest bytes: of what a late
    reader finds, each portion has its own time so. It hides its descriptor: the core
    would receive from it, and note frames alone.
    """

    times: ClassVar[list[float]] = []
    sizes: ClassVar[list[int]] = []

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._descriptor = self.fd
        self.fd = -1

    @override
    def receive(self, view: memoryview) -> tuple[int, float]:
        self.fd = self._descriptor
        try:
            count, wall = super().receive(view[:_NOTED])
        finally:
            self.fd = -1
        self.times.append(wall)
        self.sizes.append(count)
        return count, wall


def payload_of(body: NDArray[np.uint8], size: int) -> dict[str, NDArray[np.uint8]]:
    """Return a payload of any size whose tensors view the same memory."""
    return {
        f"x{begin}": body[: min(_PIECE, size - begin)]
        for begin in range(0, size, _PIECE)
    }


def sending(pipe: Connection, board_path: str, quantum: float) -> None:
    """Send what the pipe orders, paced, until it orders the end."""

    async def run() -> None:
        tune_process()
        pacer = Pacer(RateBoard.open(board_path), quantum=quantum)
        address, mine = pipe.recv()
        out = {
            e: await open_edge(
                address, e, key=derive_key(TOKEN, "edge", e), pacer=pacer
            )
            for e in mine
        }
        body = np.ones(_PIECE, dtype=np.uint8)
        pipe.send("ready")
        pacer.start(RunClock(pipe.recv(), 1.0))
        ask = ask_of(asyncio.get_running_loop(), pipe)
        begun = cpu_seconds()
        while (order := await ask()) is not None:
            if isinstance(order, list):
                for edge in order:
                    out[edge].notify(0.0)
                continue
            edge, iteration, size = order
            _ = out[edge].send(iteration, payload_of(body, size), shaped=True)
        pipe.send({"cpu": cpu_seconds() - begun, "wakes": pacer.statistics().wakes})
        for edge in out.values():
            await edge.aclose()
        pacer.close()

    uvloop.run(run())


def receiving(
    pipe: Connection, edges: int, reserved: Sequence[int], chunked: int
) -> None:
    """Report every arrival, and at the end the chunks if they are noted."""
    if chunked:  # in this process alone
        data_server.ArrivalReader = NotingReader  # type: ignore[attr-defined]

    async def run() -> None:
        tune_process()
        pool, inbox = BufferPool(1 << 33), Inbox()
        for size in reserved:
            pool.reserve(size)

        async def watch(edge: int) -> None:
            for iteration in range(1_000_000):
                delivery = await inbox.get(edge, iteration)
                pipe.send((edge, iteration, delivery.arrived))
                delivery.release()

        server = DataServer(
            keys=edge_keys(TOKEN, range(edges)),
            inbox=inbox,
            pool=pool,
        )
        pipe.send(await server.start("127.0.0.1"))
        watching = [asyncio.ensure_future(watch(edge)) for edge in range(edges)]
        ask = ask_of(asyncio.get_running_loop(), pipe)
        begun = cpu_seconds()
        while await ask() is not None:
            pass
        for handle in watching:
            handle.cancel()
        # The loop read it, and left it so that it does not block; chunks are many.
        os.set_blocking(pipe.fileno(), True)
        pipe.send(
            {
                "cpu": cpu_seconds() - begun,
                "wakes": 0,
                "times": np.array(NotingReader.times),
                "sizes": np.array(NotingReader.sizes, dtype=np.int64),
            }
        )
        await server.aclose()

    uvloop.run(run())


class Flows:
    """Sending processes, each with some edges to a receiving process of its own.

    Parameters
    ----------
    processes, per_process
        Senders, and edges of each.
    quantum
        Of the pacers, wall seconds.
    reserved
        Payload sizes for which receivers hold touched memory, bytes.
    chunked
        Whether receivers note when the bytes of each receive call came.
    """

    def __init__(
        self,
        processes: int,
        per_process: int,
        *,
        quantum: float = QUANTUM,
        reserved: Sequence[int] = RESERVED,
        chunked: bool = False,
    ) -> None:
        edges = self.edges = processes * per_process
        #: Seconds before its fluid's end from which a flow's last bytes may leave.
        self.lead = pace_at(1.0, quantum=quantum).lead_time
        self.board = RateBoard.create(edges)
        self._processes, self.receivers, self.senders = [], [], []
        for _ in range(processes):
            process, pipe = forked(receiving, edges, reserved, chunked)
            self._processes.append(process)
            self.receivers.append(pipe)
        for p in range(processes):
            process, pipe = forked(sending, self.board.path, quantum)
            self._processes.append(process)
            self.senders.append(pipe)
            mine = list(range(p * per_process, (p + 1) * per_process))
            pipe.send((self.receivers[p].recv(), mine))
        for sender in self.senders:
            sender.recv()
        self.sent, self.begun = 0, time.monotonic()
        for sender in self.senders:
            sender.send(self.begun)

    def now(self) -> float:
        """Return the run time, seconds."""
        return time.monotonic() - self.begun

    def send(self, edge: int, iteration: int, size: int) -> None:
        """Have one flow queued at its sender."""
        sender = self.senders[edge * len(self.senders) // self.edges]
        sender.send((edge, iteration, size))
        self.sent += size

    def notify(self, edges: Sequence[int]) -> None:
        """Notify the senders of these edges that these have a rate."""
        per_sender = self.edges // len(self.senders)
        for number in sorted({edge // per_sender for edge in edges}):
            mine = [edge for edge in edges if edge // per_sender == number]
            self.senders[number].send(mine)

    def arrivals(self) -> list[tuple[int, float]]:
        """Return (edge, run time of the last byte) of what was reported by now."""
        found = []
        for pipe in self.receivers:
            while pipe.poll():
                edge, _, wall = pipe.recv()
                found.append((edge, wall - self.begun))
        return found

    def close(self) -> dict[str, Any]:
        """End all processes; return cost, and the chunks of the first receiver.

        ``times`` are run time in seconds.
        """
        wall = self.now()
        reports = []
        for pipe in [*self.senders, *self.receivers]:
            pipe.send(None)
            while not isinstance(found := pipe.recv(), dict):
                pass  # an arrival after the last that counts
            reports.append(found)
        for process in self._processes:
            process.join(5.0)
        self.board.close()
        cpu = sum(report["cpu"] for report in reports)
        first = reports[len(self.senders)]
        return {
            "cpu_s_gb": cpu / self.sent * 1e9,
            "core_pct": 100 * cpu / wall,
            "wakes_s": sum(report["wakes"] for report in reports) / wall,
            "times": first["times"] - self.begun,
            "sizes": first["sizes"],
        }
