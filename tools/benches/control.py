"""The control round trip between two processes, idle and beside payload.

One process asks and the other answers over a control connection, 1 to 5 ms after the
last answer. Quiet seconds and seconds in which a flow of 4 Gbit/s is paced between two
other processes take turns. So do the control connection and a raw pair of blocking
sockets with the same bytes: what is above the raw pair is ours.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import uvloop

from emu.errors import NodeLost
from emu.network import (
    ControlServer,
    Identity,
    connect_control,
    tune_process,
    tune_socket,
)
from tools.benches.figures import Figure
from tools.benches.flows import Flows
from tools.benches.processes import TOKEN, forked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from emu.network import ControlConnection

RATE = 4e9 / 8
#: Seconds of each turn.
TURN = 1.0
QUIET, BESIDE = "idle", "beside 4 Gbit/s"
OURS = "control"
#: As long as the message of a task's end, and as its frame.
BODY = 100 * "x"
RAW = bytes(128)
AIMS = {50: 60.0, 99: 300.0}


def answering(pipe: Connection) -> None:
    """Send every message back, until the other end closes."""

    async def run() -> None:
        tune_process()
        control = await connect_control(
            pipe.recv(), identity=Identity.of(TOKEN, "process", "peer")
        )
        while True:
            try:
                control.send(await control.receive())
            except NodeLost:
                return

    uvloop.run(run())


def raw_answering(pipe: Connection) -> None:
    """Send every byte back over a blocking socket, until the other end closes."""
    tune_process()
    with socket.create_connection(pipe.recv()) as sock:
        tune_socket(sock)
        while data := sock.recv(4096):
            sock.sendall(data)


class RoundTrips:
    """Takes round trips over a control connection and a raw socket by turns."""

    def __init__(self, control: ControlConnection, raw: socket.socket) -> None:
        self._control, self._raw = control, raw
        self._rng = np.random.default_rng(0)
        self.took: defaultdict[tuple[str, str], list[float]] = defaultdict(list)

    async def take(self, name: str, seconds: float) -> None:
        """Take round trips for so many seconds and file them under a name."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(self._rng.uniform(0.001, 0.005))
            began = time.monotonic()
            self._control.send({"text": BODY})
            await self._control.receive()
            self.took[name, OURS].append(time.monotonic() - began)
            await asyncio.sleep(self._rng.uniform(0.001, 0.005))
            began = time.monotonic()
            self._raw.sendall(RAW)
            self._raw.recv(4096)
            self.took[name, "raw"].append(time.monotonic() - began)


async def measure(seconds: float, flows: Flows) -> dict[tuple[str, str], list[float]]:
    """Return round trips, seconds, by what else went on and what was asked."""
    tune_process()
    loop = asyncio.get_running_loop()
    came: asyncio.Future[ControlConnection] = loop.create_future()
    over = asyncio.Event()

    async def joined(connection: ControlConnection, _: Identity) -> None:
        came.set_result(connection)
        await over.wait()

    server = ControlServer(token=TOKEN, on_connection=joined, owner="bench")
    address = await server.start("127.0.0.1")
    process, pipe = forked(answering)
    pipe.send(address)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        raw_process, pipe = forked(raw_answering)
        pipe.send(listening.getsockname())
        raw, _ = listening.accept()
    tune_socket(raw)
    control = await came
    await RoundTrips(control, raw).take("", 0.2)
    trips = RoundTrips(control, raw)
    for n in range(max(2, round(seconds / TURN / 2))):
        await trips.take(QUIET, TURN)
        flows.send(0, n, round(RATE * TURN))
        flows.board.publish([0], [n], [0.0], [RATE], flows.now())
        flows.notify([0])
        await trips.take(BESIDE, 0.95 * TURN)
        await asyncio.to_thread(flows.receivers[0].recv)
    raw.close()
    over.set()
    await server.aclose()
    for answerer in (process, raw_process):
        answerer.join(5.0)
    return trips.took


def control(seconds: float) -> Iterator[Figure]:
    """Yield quantiles of round trips, by what else went on and what was asked."""
    flows = Flows(1, 1, reserved=[round(RATE * TURN)])
    found = uvloop.run(measure(seconds, flows))
    flows.close()
    for (name, what), took in found.items():
        for share, aim in AIMS.items():
            yield Figure(
                f"{what} round trip, {name}, p{share} of {len(took)}",
                float(np.percentile(took, share)) * 1e6,
                "us",
                aim if what == OURS else None,
            )
