"""Measures this host with the project's own transport, in some ten seconds."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import uvloop

from emu.calibration.available import available, usable_cores
from emu.calibration.host import HostProfile
from emu.calibration.peer import cpu_seconds
from emu.errors import NodeLost
from emu.network import (
    Alarm,
    ControlServer,
    Pacer,
    RateBoard,
    RunClock,
    derive_key,
    open_edge,
    tune_process,
)

if TYPE_CHECKING:
    from emu.network import ControlConnection, Identity, OutEdge

_MB = 1_000_000
_PATIENCE = 20.0  # wall seconds for the peer's answer on a busy host
_ROUNDS = 200
_FRESH = 4  # payloads that fall on memory not touched before: 80 ms late, once


def measure_host() -> HostProfile:
    """Measure this host now, and return its figures.

    Raises
    ------
    RunError
        When the other process cannot be started or does not answer.
    """
    return uvloop.run(_measure())


async def _measure() -> HostProfile:
    tune_process()
    token = secrets.token_hex(16)
    came: asyncio.Future[ControlConnection] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def joined(connection: ControlConnection, _: Identity) -> None:
        came.set_result(connection)
        await over.wait()

    server = ControlServer(token=token, on_connection=joined, owner="doctor")
    host, port = await server.start("127.0.0.1")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "emu.calibration", f"{host}:{port}",
        env={**os.environ, "EMU_TOKEN": token}, stdin=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_PATIENCE):
            control = await came
        return await _Measurement(Peer(control), token).run()
    except TimeoutError as error:
        raise NodeLost("the measuring process did not answer") from error
    finally:
        over.set()
        if process.returncode is None:
            process.kill()
        await process.wait()
        await server.aclose()


class Peer:
    """The other process, as seen by the measuring one."""

    def __init__(self, control: ControlConnection) -> None:
        self._control = control
        self.arrived: dict[tuple[int, int], float] = {}

    async def ask(self, what: str) -> Any:
        """Return its answer to an order; arrivals before it are noted."""
        self._control.send({"do": what})
        while what not in (message := await self._control.receive(_PATIENCE)):
            self._note(message)
        return message[what]

    async def arrival(self, edge: int, n: int) -> float:
        """Return the wall time of a payload's last byte, waiting for it."""
        while (edge, n) not in self.arrived:
            self._note(await self._control.receive(_PATIENCE))
        return self.arrived.pop((edge, n))

    def _note(self, message: dict[str, Any]) -> None:
        if "arrived" in message:
            edge, n, wall = message["arrived"]
            self.arrived[edge, n] = wall


class _Measurement:
    def __init__(self, peer: Peer, token: str) -> None:
        self._peer, self._token = peer, token
        self._address = ("", 0)
        self._body = np.ones(64 * _MB, dtype=np.uint8)

    async def run(self) -> HostProfile:
        peer = self._peer
        self._address = tuple(await peer.ask("listen"))
        overshoot = await timer_overshoot()
        idle, event_cpu = await self._round_trips()
        throughput, per_byte = await self._throughput()
        finish, wake_cpu, loaded = await self._paced(throughput, per_byte, event_cpu)
        seconds, memory = await peer.ask("fork")
        return HostProfile(
            name=platform.node(),
            measured=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            cores=usable_cores(),
            memory=float(psutil.virtual_memory().total),
            throughput=throughput,
            cpu_per_byte=per_byte,
            wake_cpu=wake_cpu,
            event_cpu=event_cpu,
            timer_overshoot=overshoot,
            finish_error=finish,
            round_trip=idle,
            loaded_round_trip=loaded,
            process_seconds=seconds,
            process_memory=memory,
            available=available(),
        )

    async def _cpu(self) -> float:
        return cpu_seconds() + float(await self._peer.ask("cpu"))

    async def _round_trips(self) -> tuple[tuple[float, float], float]:
        """Return round trips while nothing else happens, and CPU time per message."""
        before = await self._cpu()
        took = [await self._round_trip() for _ in range(_ROUNDS)]
        cpu = (await self._cpu() - before) / (2 * _ROUNDS)
        return spread(took), cpu

    async def _round_trip(self) -> float:
        await asyncio.sleep(0.002)
        began = time.monotonic()
        await self._peer.ask("echo")
        return time.monotonic() - began

    async def _edge(self, edge: int, pacer: Pacer | None = None) -> OutEdge:
        key = derive_key(self._token, "edge", edge)
        return await open_edge(self._address, edge, key=key, pacer=pacer)

    async def _throughput(self) -> tuple[float, float]:
        """Return bytes per second of unshaped 16 MB payloads, and CPU time per byte."""
        edge = await self._edge(0)
        payload = {"x": self._body[: 16 * _MB]}
        took, sent, before = [], 0, 0.0
        for n in range(34):
            if n == _FRESH:
                before = await self._cpu()
            began = time.monotonic()
            _ = edge.send(n, payload, shaped=False)
            ended = await self._peer.arrival(0, n)
            if n >= _FRESH:
                took.append(ended - began)
                sent += 16 * _MB
        cpu = await self._cpu() - before
        await edge.aclose()
        return 16 * _MB / float(np.median(took)), cpu / sent

    async def _paced(
        self, throughput: float, per_byte: float, event_cpu: float
    ) -> tuple[tuple[float, float], float, tuple[float, float]]:
        """Pace one flow at 4 Gbit/s, or a quarter of what the host can do.

        Returns finish errors, CPU time per look, and round trips beside it.
        """
        rate, count, seconds = min(5e8, throughput / 4), 40, 0.05
        board = RateBoard.create(2)
        pacer = Pacer(board)
        pacer.start(RunClock(0.0, 1.0))
        edge = await self._edge(1, pacer)
        size = round(rate * seconds)
        before, late, beside = await self._cpu(), [], []
        for n in range(count):
            _ = edge.send(n, {"x": self._body[:size]}, shaped=True)
            since = time.monotonic()
            board.publish([1], [n], [0.0], [rate], since)
            edge.notify(since)
            while time.monotonic() < since + 0.7 * seconds:
                beside.append(await self._round_trip())
            ended = await self._peer.arrival(1, n)
            if n >= _FRESH:
                late.append(ended - since - size / rate + pacer.depth.lead_time)
        cpu = await self._cpu() - before
        looks = pacer.statistics().wakes
        await edge.aclose()
        pacer.close()
        board.close()
        # What neither the bytes nor the messages account for is the price of waking.
        known = count * size * per_byte + 2 * len(beside) * event_cpu
        cpu = max(cpu - known, 0.1 * cpu)
        return spread(late), cpu / max(looks, 1), spread(beside)


async def timer_overshoot(count: int = 200) -> tuple[float, float]:
    """Return the lateness of alarms of 2 ms, wall seconds (median, 99th percentile)."""
    loop = asyncio.get_running_loop()
    late: list[float] = []
    for _ in range(count):
        rang: asyncio.Future[float] = loop.create_future()

        def ring(rang: asyncio.Future[float] = rang) -> None:
            rang.set_result(time.monotonic())

        alarm = Alarm(loop, ring)
        due = time.monotonic() + 0.002
        alarm.set(due)
        late.append(await rang - due)
        alarm.close()
    return spread(late)


def spread(values: list[float]) -> tuple[float, float]:
    """Return median and 99th percentile, not negative."""
    median, high = np.percentile(values, [50, 99])
    return max(float(median), 0.0), max(float(high), 0.0)
