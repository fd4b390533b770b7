"""Measure the transport's throughput beside a raw blocking socket pair.

    python tools/bench_transport.py [--seconds S] [--json OUT]

It is quoted as a ratio to a raw blocking socket pair in the same run, since
absolute figures drift by a factor of two on shared machines. Sender and receiver are
separate processes; all pairs stay alive and their bursts are interleaved.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import uvloop

from emu.network import (
    BufferPool,
    DataServer,
    Inbox,
    open_edge,
    tune_process,
    tune_socket,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

MB = 1_000_000
#: As long as our header of one tensor, so that both carry the same bytes.
RAW_HEADER = 85
TOKEN = "bench"  # noqa: S105
FORK = multiprocessing.get_context("fork")


def cpu_seconds() -> float:
    """Return user and system time of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


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


def emu_receiver(pipe: Connection) -> None:
    """Serve bursts over our own transport."""

    async def main() -> None:
        tune_process()
        loop, pool, inbox = asyncio.get_running_loop(), BufferPool(), Inbox()
        for size in (MB, 16 * MB, 64 * MB):
            pool.reserve(size, count=2)
        server = DataServer(token=TOKEN, edges={0}, inbox=inbox, pool=pool)
        pipe.send(await server.start("127.0.0.1"))
        iteration = 0
        ask = ask_of(loop, pipe)
        while (order := await ask()) is not None:
            begun, arrived = cpu_seconds(), 0.0
            for _ in range(order[1]):
                delivery = await inbox.get(0, iteration)
                arrived = delivery.arrived
                iteration += 1
                delivery.release()
            pipe.send((arrived, cpu_seconds() - begun))
        await server.aclose()

    uvloop.run(main())


def emu_sender(pipe: Connection) -> None:
    """Send bursts over our own transport, unshaped."""

    async def main() -> None:
        tune_process()
        loop = asyncio.get_running_loop()
        edge = await open_edge(pipe.recv(), 0, token=TOKEN)
        body = np.ones(64 * MB, dtype=np.uint8)
        iteration = 0
        ask = ask_of(loop, pipe)
        while (order := await ask()) is not None:
            size, count = order
            begun, started = cpu_seconds(), time.monotonic()
            left = [
                edge.send(iteration + k, {"x": body[:size]}, shaped=False)
                for k in range(count)
            ]
            await left[-1]
            iteration += count
            pipe.send((started, cpu_seconds() - begun))
        await edge.aclose()

    uvloop.run(main())


def ask_of(loop: asyncio.AbstractEventLoop, pipe: Connection) -> Any:
    """Return a coroutine function that reads the pipe without a thread."""

    async def ask() -> Any:
        future: asyncio.Future[Any] = loop.create_future()
        loop.add_reader(pipe.fileno(), lambda: future.set_result(pipe.recv()))
        try:
            return await future
        finally:
            loop.remove_reader(pipe.fileno())

    return ask


class Pair:
    """A receiving and a sending process, each on its core or both on one."""

    def __init__(self, receiver: Any, sender: Any, cores: tuple[int, int]) -> None:
        self.pipes, self.processes = [], []
        for target, core in zip((receiver, sender), cores, strict=True):
            ours, theirs = FORK.Pipe()
            process = FORK.Process(target=target, args=(theirs,), daemon=True)
            process.start()
            os.sched_setaffinity(process.pid or 0, {core})
            self.pipes.append(ours)
            self.processes.append(process)
        self.pipes[1].send(self.pipes[0].recv())

    def burst(self, size: int, count: int) -> tuple[float, float]:
        """Return wall and CPU seconds of some payloads, one after the other."""
        self.pipes[0].send((size, count))
        time.sleep(0.002)
        self.pipes[1].send((size, count))
        ended, received = self.pipes[0].recv()
        started, sent = self.pipes[1].recv()
        return ended - started, received + sent

    def close(self) -> None:
        """End both processes."""
        for pipe in self.pipes[::-1]:
            pipe.send(None)
        for process in self.processes:
            process.join(5)


def throughput(seconds: float, cores: tuple[int, int]) -> list[dict[str, Any]]:
    """Compare our transport with a raw pair, bursts interleaved in random order.

    Left alone, the kernel puts a pair on one core or on two and keeps it there for
    long: pinned pairs compare like with like.
    """
    rng = np.random.default_rng(0)
    raw = Pair(raw_receiver, raw_sender, cores)
    emu = Pair(emu_receiver, emu_sender, cores)
    rows = []
    for size in (MB, 16 * MB, 64 * MB):
        found: dict[str, list[tuple[float, float]]] = {"raw": [], "emu": []}
        count = 64 * MB // size
        for pair in (raw, emu) * 2:
            pair.burst(size, count)
        until = time.monotonic() + seconds / 3
        while time.monotonic() < until:
            for name in rng.permutation(["raw", "emu"]):
                pair = raw if name == "raw" else emu
                found[name].append(pair.burst(size, count))
        volume = size * count
        wall = {k: np.array(v)[:, 0] for k, v in found.items()}
        cpu = {k: np.array(v)[:, 1].mean() / volume * 1e9 for k, v in found.items()}
        rows.append(
            {
                "cores": len(set(cores)),
                "payload_mb": size // MB,
                "bursts": len(found["emu"]),
                "raw_gb_s": float(volume / np.median(wall["raw"]) / 1e9),
                "emu_gb_s": float(volume / np.median(wall["emu"]) / 1e9),
                "ratio": float(np.median(wall["raw"]) / np.median(wall["emu"])),
                "raw_cpu_s_gb": float(cpu["raw"]),
                "emu_cpu_s_gb": float(cpu["emu"]),
            }
        )
    raw.close()
    emu.close()
    return rows


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print one table."""
    print(f"\n{title}")
    print("".join(f"{key:>{max(9, len(key) + 1)}}" for key in rows[0]))
    for row in rows:
        cells = [
            f"{value:>{max(9, len(key) + 1)}.3f}"
            if isinstance(value, float)
            else f"{value:>{max(9, len(key) + 1)}}"
            for key, value in row.items()
        ]
        print("".join(cells))


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    rows = throughput(options.seconds / 2, (allowed[0], allowed[0]))
    rows += throughput(options.seconds / 2, (allowed[0], allowed[-1]))
    show(f"throughput (load average {os.getloadavg()[0]:.1f})", rows)
    if options.json is not None:
        options.json.write_text(json.dumps({"throughput": rows}, indent=1))


if __name__ == "__main__":
    main()
