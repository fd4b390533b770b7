"""Measure how exactly flows are paced over real sockets, and what it costs.

    python tools/bench_pacing.py [--seconds S] [--quantum Q] [--json OUT]

Two tables: one flow at several rates, and 16 flows in 8 sending processes whose rates
are redrawn every 20 ms (0 in 15 % of the draws). The error of a finish is the time of
the receiver's last byte minus the end of the fluid. CPU counts both ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import uvloop

from emu.network import (
    BufferPool,
    DataServer,
    Inbox,
    Pacer,
    RateBoard,
    RunClock,
    open_edge,
    tune_process,
)
from emu.network.pacer import QUANTUM
from tools.bench_transport import FORK, MB, TOKEN, ask_of, cpu_seconds, show

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

#: Bytes per second around which the rates of the second table are drawn.
MEAN_RATE = 44e6
CHANGE = 0.02


def sending(pipe: Connection, board_path: str, quantum: float) -> None:
    """Send what the pipe orders, paced, until told to end."""

    async def run() -> None:
        tune_process()
        pacer = Pacer(RateBoard.open(board_path), quantum=quantum)
        address, mine = pipe.recv()
        out = {e: await open_edge(address, e, token=TOKEN, pacer=pacer) for e in mine}
        body = np.ones(64 * MB, dtype=np.uint8)
        pipe.send("ready")
        pacer.start(RunClock(pipe.recv(), 1.0))
        ask = ask_of(asyncio.get_running_loop(), pipe)
        begun = cpu_seconds()
        while (order := await ask()) is not None:
            edge, iteration, size = order
            _ = out[edge].send(iteration, {"x": body[:size]}, shaped=True)
        pipe.send({"cpu": cpu_seconds() - begun, "wakes": pacer.statistics().wakes})
        for edge in out.values():
            await edge.aclose()
        pacer.close()

    uvloop.run(run())


def receiving(pipe: Connection, edges: int) -> None:
    """Report every arrival, until told to end."""

    async def run() -> None:
        tune_process()
        pool, inbox = BufferPool(), Inbox()
        for size in (1, 2, 4, 8, 12, 16, 32, 50):
            pool.reserve(size * MB, count=2)

        async def watch(edge: int) -> None:
            for iteration in range(1_000_000):
                delivery = await inbox.get(edge, iteration)
                pipe.send((edge, iteration, delivery.arrived))
                delivery.release()

        server = DataServer(token=TOKEN, edges=range(edges), inbox=inbox, pool=pool)
        pipe.send(await server.start("127.0.0.1"))
        watching = [asyncio.ensure_future(watch(edge)) for edge in range(edges)]
        ask = ask_of(asyncio.get_running_loop(), pipe)
        begun = cpu_seconds()
        while await ask() is not None:
            pass
        for handle in watching:
            handle.cancel()
        pipe.send({"cpu": cpu_seconds() - begun, "wakes": 0})
        await server.aclose()

    uvloop.run(run())


class Flows:
    """Sending processes, each with some edges to a receiving process of its own."""

    def __init__(self, processes: int, per_process: int, quantum: float) -> None:
        self.edges = processes * per_process
        self.board = RateBoard.create(self.edges)
        path = self.board.path
        self.receivers = [self._fork(receiving, self.edges) for _ in range(processes)]
        self.senders = [self._fork(sending, path, quantum) for _ in range(processes)]
        for p, sender in enumerate(self.senders):
            mine = list(range(p * per_process, (p + 1) * per_process))
            sender.send((self.receivers[p].recv(), mine))
        for sender in self.senders:
            sender.recv()
        self.sent, self.begun = 0, time.monotonic()
        for sender in self.senders:
            sender.send(self.begun)

    @staticmethod
    def _fork(target: Any, *inputs: Any) -> Connection:
        ours: Connection
        ours, theirs = FORK.Pipe()
        FORK.Process(target=target, args=(theirs, *inputs), daemon=True).start()
        theirs.close()
        return ours

    def now(self) -> float:
        """Return the run time, seconds."""
        return time.monotonic() - self.begun

    def send(self, edge: int, iteration: int, size: int) -> None:
        """Have one flow queued at its sender."""
        sender = self.senders[edge * len(self.senders) // self.edges]
        sender.send((edge, iteration, size))
        self.sent += size

    def arrivals(self) -> list[tuple[int, float]]:
        """Return (edge, run time of the last byte) of what was reported by now."""
        found = []
        for pipe in self.receivers:
            while pipe.poll():
                edge, _, wall = pipe.recv()
                found.append((edge, wall - self.begun))
        return found

    def close(self, errors: list[float]) -> dict[str, Any]:
        """End all processes; return the figures of the table, errors in ms."""
        wall = self.now()
        cpu, wakes = 0.0, 0
        for pipe in [*self.senders, *self.receivers]:
            pipe.send(None)
            while not isinstance(found := pipe.recv(), dict):
                pass  # an arrival that nobody waits for any more
            cpu, wakes = cpu + found["cpu"], wakes + found["wakes"]
        self.board.close()
        late = np.array([error for error in errors if np.isfinite(error)]) * 1e3
        p50, p90, p99 = (float(v) for v in np.percentile(late, [50, 90, 99]))
        return {
            "flows": late.size,
            "min_ms": float(late.min()),
            "p50_ms": p50,
            "p90_ms": p90,
            "p99_ms": p99,
            "max_ms": float(late.max()),
            "cpu_s_gb": cpu / self.sent * 1e9,
            "core_pct": 100 * cpu / wall,
            "wakes_s": wakes / wall,
        }


def single(seconds: float, quantum: float) -> list[dict[str, Any]]:
    """Return the finish error of one flow of 10, 50 and 100 ms at several rates."""
    rows = []
    for megabits in (100, 1000, 4000):
        rate = megabits * 1e6 / 8
        flows = Flows(1, 1, quantum)
        errors: list[float] = []
        while flows.now() < seconds / 3:
            n = len(errors)
            size = round(rate * (0.01, 0.05, 0.1)[n % 3])
            flows.send(0, n, size)
            since = flows.now()
            flows.board.publish([0], [n], [0.0], [rate], since)
            _, _, wall = flows.receivers[0].recv()
            errors.append(wall - flows.begun - since - size / rate)
        rows.append({"mbit_s": megabits, **flows.close(errors[3:])})
    return rows


class RandomRates:
    """What a scheduler would know of flows whose rates change all the time."""

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        self._rng = np.random.default_rng(1)
        count = flows.edges
        self._iteration = np.full(count, -1)
        self._volume, self._served, self._rate = np.zeros((3, count))
        self._end = np.full(count, np.inf)
        self._active = np.zeros(count, dtype=bool)
        self._since = 0.0
        self.errors: list[float] = []

    def change(self) -> None:
        """Note what has ended, start what is idle, draw and publish every rate."""
        flows, rng = self._flows, self._rng
        for edge, arrived in flows.arrivals():
            self.errors.append(arrived - self._end[edge])
            self._active[edge] = False
        now = flows.now()
        served = self._served + self._rate * (now - self._since)
        idle = ~self._active
        for edge in np.flatnonzero(idle).tolist():
            self._iteration[edge] += 1
            self._volume[edge] = round(MEAN_RATE * rng.uniform(0.05, 0.2))
            flows.send(edge, int(self._iteration[edge]), int(self._volume[edge]))
        # Over, or over before a new line is on the board: keeps its line.
        kept = self._active & (self._end < now + 0.001)
        drawn = rng.uniform(0.2, 1.8, flows.edges) * MEAN_RATE
        drawn[rng.random(flows.edges) < 0.15] = 0.0
        self._rate = np.where(kept, self._rate, drawn)
        self._served = np.where(idle, 0.0, np.minimum(served, self._volume))
        self._since, self._active[:] = now, True
        new = np.flatnonzero(~kept)
        flows.board.publish(
            new, self._iteration[new], self._served[new], self._rate[new], now
        )
        with np.errstate(divide="ignore"):
            end = now + (self._volume - self._served) / self._rate
        # A flow that ended by its old line while the new one was being published is
        # neither early nor late: not counted.
        raced = ~idle & (self._end < flows.now())
        self._end = np.where(kept, self._end, np.where(raced, np.nan, end))


def many(seconds: float, quantum: float) -> list[dict[str, Any]]:
    """Return the finish error of 16 flows in 8 processes, rates redrawn each 20 ms."""
    flows = Flows(8, 2, quantum)
    rates = RandomRates(flows)
    while flows.now() < seconds:
        rates.change()
        time.sleep(CHANGE - flows.now() % CHANGE)
    gigabits = flows.sent * 8 / flows.now() / 1e9
    return [{"gbit_s": gigabits, **flows.close(rates.errors[32:])}]


def main() -> None:
    """Measure, print two tables, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--quantum", type=float, default=QUANTUM)
    options = parser.parse_args()
    found = {
        "single": single(options.seconds, options.quantum),
        "many": many(options.seconds, options.quantum),
    }
    for name, rows in found.items():
        show(f"{name} (load average {os.getloadavg()[0]:.1f})", rows)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
