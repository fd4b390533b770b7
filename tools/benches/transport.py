"""The transport's throughput beside a raw blocking socket pair.

It is quoted as a ratio to a raw blocking socket pair in the same run, since absolute
figures drift by a factor of two on shared machines. Sender and receiver are separate
processes; all pairs stay alive and their bursts are interleaved. "plain" frames are not
shaped. "full" ones are shaped by a line of 10^15 bytes per second, counted per window
at both ends, and go when the payload before the last one was released, which the
receiver reports over a control connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import uvloop

from emu.emulation.network.authentication import Identity, derive_key, edge_keys
from emu.emulation.network.clock import RunClock
from emu.emulation.network.connect import open_edge
from emu.emulation.network.control import (
    ControlConnection,
    ControlServer,
    connect_control,
)
from emu.emulation.network.data_server import DataServer
from emu.emulation.network.inbox import BufferPool, Inbox
from emu.emulation.network.pacer import Pacer
from emu.emulation.network.rate_board import RateBoard
from emu.emulation.network.tuning import tune_process, tune_socket
from tools.benches.figures import Figure
from tools.benches.flows import MB, TOKEN, ask_of, cpu_seconds, forked

#: As long as our header of one tensor, so that both carry the same bytes.
RAW_HEADER = 85
SIZES = (MB, 16 * MB, 64 * MB)
BURST = 64 * MB
UNLIMITED = 1e15
#: Payloads that may be under way, the one being sent included.
CREDIT = 2
#: Most that CPU time per byte may be above that of the raw pair.
CPU_AIM = 1.15


def raw_receiver(pipe: Connection) -> None:
    """Serve bursts over a blocking socket: receive into touched memory, report."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        pipe.send(listening.getsockname())
        sock, _ = listening.accept()
    memory = memoryview(bytearray(64 * MB + 4096))
    while (order := pipe.recv()) is not None:
        size, count = order[0] + RAW_HEADER, order[1]
        begun = cpu_seconds()
        for _ in range(count):
            filled = 0
            while filled < size:
                filled += sock.recv_into(memory[filled:size])
        pipe.send((time.monotonic(), cpu_seconds() - begun))


def raw_sender(pipe: Connection) -> None:
    """Send bursts over a blocking socket."""
    sock = socket.create_connection(pipe.recv())
    tune_socket(sock)
    body = np.ones(64 * MB, dtype=np.uint8).data
    header = bytes(RAW_HEADER)
    while (order := pipe.recv()) is not None:
        size, count = order
        begun, started = cpu_seconds(), time.monotonic()
        for _ in range(count):
            sock.sendall(header)
            sock.sendall(body[:size])
        pipe.send((started, cpu_seconds() - begun))


def emu_receiver(pipe: Connection, full: bool) -> None:  # noqa: FBT001 -- a process's
    """Serve bursts over our own transport; if full, give credit."""

    async def main() -> None:
        tune_process()
        loop, pool, inbox = asyncio.get_running_loop(), BufferPool(), Inbox()
        for size in SIZES:
            pool.reserve(size)
            pool.reserve(size)
        came: asyncio.Future[ControlConnection] = loop.create_future()
        over = asyncio.Event()

        async def joined(connection: ControlConnection, _: Identity) -> None:
            came.set_result(connection)
            await over.wait()

        server = DataServer(keys=edge_keys(TOKEN, [0]), inbox=inbox, pool=pool)
        messages = ControlServer(token=TOKEN, on_connection=joined)
        address = await messages.start("127.0.0.1")
        pipe.send((await server.start("127.0.0.1"), address))
        control, ask, iteration = await came, ask_of(loop, pipe), 0
        while (order := await ask()) is not None:
            begun, arrived = cpu_seconds(), 0.0
            for _ in range(order[1]):
                delivery = await inbox.get(0, iteration)
                arrived = delivery.arrived
                iteration += 1
                delivery.release()
                if full:
                    control.send({"released": iteration})
            pipe.send((arrived, cpu_seconds() - begun))
        over.set()
        await server.aclose()
        await messages.aclose()

    uvloop.run(main())


def emu_sender(pipe: Connection, full: bool) -> None:  # noqa: FBT001 -- a process's
    """Send bursts over our own transport; if full, shaped and within the credit."""

    async def main() -> None:
        tune_process()
        loop, address = asyncio.get_running_loop(), pipe.recv()
        board = RateBoard.create(1)
        pacer, clock = Pacer(board), RunClock(time.monotonic(), 1.0)
        pacer.start(clock)
        control = await connect_control(
            address[1], identity=Identity.of(TOKEN, "process", "sender")
        )
        edge = await open_edge(
            address[0], 0, key=derive_key(TOKEN, "edge", 0), pacer=pacer
        )
        body = np.ones(BURST, dtype=np.uint8)
        iteration = released = 0
        ask = ask_of(loop, pipe)
        while (order := await ask()) is not None:
            size, count = order
            payload = {"x": body[:size]}
            begun, started = cpu_seconds(), time.monotonic()
            for k in range(iteration, iteration + count):
                while full and released <= k - CREDIT:
                    released = (await control.receive())["released"]
                if full:
                    board.publish([0], [k], [0.0], [UNLIMITED], clock.now())
                left = edge.send(k, payload, shaped=full)
                if full or k + 1 == iteration + count:
                    await left
            iteration += count
            pipe.send((started, cpu_seconds() - begun))
        await edge.aclose()
        await control.aclose()

    uvloop.run(main())


class Pair:
    """A receiving and a sending process, each on its core or both on one."""

    def __init__(
        self, receiver: Any, sender: Any, cores: tuple[int, int], *inputs: Any
    ) -> None:
        self.pipes, self.processes = [], []
        for target, core in zip((receiver, sender), cores, strict=True):
            process, pipe = forked(target, *inputs)
            os.sched_setaffinity(process.pid or 0, {core})
            self.pipes.append(pipe)
            self.processes.append(process)
        self.pipes[1].send(self.pipes[0].recv())

    def burst(self, size: int, count: int) -> tuple[float, float, float]:
        """Return wall time, the sender's and the receiver's CPU time of a burst."""
        self.pipes[0].send((size, count))
        time.sleep(0.002)
        self.pipes[1].send((size, count))
        ended, received = self.pipes[0].recv()
        started, sent = self.pipes[1].recv()
        return ended - started, sent, received

    def close(self) -> None:
        """End both processes."""
        for pipe in self.pipes[::-1]:
            pipe.send(None)
        for process in self.processes:
            process.join(5)


def throughput(seconds: float, cores: tuple[int, int]) -> Iterator[Figure]:
    """Compare our transport with a raw pair, bursts interleaved in random order.

    Left alone, the kernel puts a pair on one core or on two and keeps it there for
    long: pinned pairs compare like with like.
    """
    rng = np.random.default_rng(0)
    pairs = {
        "raw": Pair(raw_receiver, raw_sender, cores),
        "plain": Pair(emu_receiver, emu_sender, cores, False),
        "full": Pair(emu_receiver, emu_sender, cores, True),
    }
    for size in SIZES:
        count = BURST // size
        found: dict[str, list[tuple[float, float, float]]] = {
            name: [] for name in pairs
        }
        for pair in [*pairs.values()] * 2:
            pair.burst(size, count)
        until = time.monotonic() + seconds / 3
        while time.monotonic() < until:
            for name in rng.permutation(list(pairs)):
                found[name].append(pairs[name].burst(size, count))
        on = len(set(cores))
        what = f"{size // MB} MB on {on} core{'s' * (on > 1)}: "
        yield from _figures(what, size, count, found)
    for pair in pairs.values():
        pair.close()


def _figures(
    what: str, size: int, count: int, found: dict[str, list[tuple[float, float, float]]]
) -> Iterator[Figure]:
    """Yield ratios to the raw pair: of wall times (medians), of CPU times (means)."""
    walls = {name: float(np.median([b[0] for b in v])) for name, v in found.items()}
    # Some kernels count CPU time in ticks, which only a mean averages out.
    means = {name: np.mean(np.array(v), axis=0) for name, v in found.items()}
    rate = size * count / walls["raw"] / 1e9
    yield Figure(f"{what}raw", rate, "GB/s", note=f"{len(found['raw'])} bursts")
    small = size <= MB
    for name in ("plain", "full"):
        ratio, aim = walls["raw"] / walls[name], None if small else 0.95
        yield Figure(f"{what}{name}/raw", ratio, "", aim, at_least=True)
    for end, word in ((1, "sender"), (2, "receiver")):
        ours, raw = (float(means[name][end]) for name in ("full", "raw"))
        note = f"{ours / size / count * 1e9:.3f} s per GB"
        aim = None if small else CPU_AIM
        yield Figure(f"{what}CPU of the {word}, x raw", ours / raw, "", aim, note=note)


def transport(seconds: float) -> Iterator[Figure]:
    """Yield the throughput of pairs on one core, and on two."""
    allowed = sorted(os.sched_getaffinity(0))
    for last in (allowed[0], allowed[-1]):
        yield from throughput(seconds / 2, (allowed[0], last))
