"""Measure the control round trip between two processes, idle and beside payload.

    python tools/bench_control.py [--seconds S] [--json OUT]

One process asks and the other answers over a control connection, 1 to 5 ms after the
last answer. Quiet seconds and seconds in which a flow of 4 Gbit/s is paced between two
other processes take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import uvloop

from emu.errors import NodeLost
from emu.network import ControlServer, connect_control, tune_process
from tools.timings.aims import Figure, as_json, show_figures
from tools.timings.flows import Flows
from tools.timings.processes import TOKEN, forked

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from emu.network import ControlConnection

RATE = 4e9 / 8
#: Seconds of each turn.
TURN = 1.0
QUIET, BESIDE = "idle", "beside 4 Gbit/s"
AIMS = {50: 60.0, 99: 300.0}


def answering(pipe: Connection) -> None:
    """Send every message back, until the other end closes."""

    async def run() -> None:
        tune_process()
        control = await connect_control(pipe.recv(), token=TOKEN, name="peer")
        while True:
            try:
                control.send(await control.receive())
            except NodeLost:
                return

    uvloop.run(run())


async def round_trips(
    control: ControlConnection, until: float, rng: np.random.Generator
) -> list[float]:
    """Return round trips until a wall time, seconds."""
    took = []
    # As long as the message that tells of a task's end.
    message = {"n": 0, "text": 100 * "x"}
    while time.monotonic() < until:
        await asyncio.sleep(rng.uniform(0.001, 0.005))
        began = time.monotonic()
        control.send(message)
        await control.receive()
        took.append(time.monotonic() - began)
    return took


async def measure(seconds: float, flows: Flows) -> dict[str, list[float]]:
    """Return round trips, seconds, by what else went on."""
    tune_process()
    loop = asyncio.get_running_loop()
    came: asyncio.Future[ControlConnection] = loop.create_future()
    over = asyncio.Event()

    async def joined(connection: ControlConnection, _: dict[str, Any]) -> None:
        came.set_result(connection)
        await over.wait()

    server = ControlServer(token=TOKEN, on_connection=joined, owner="bench")
    address = await server.start("127.0.0.1")
    process, pipe = forked(answering)
    pipe.send(address)
    control, rng = await came, np.random.default_rng(0)
    await round_trips(control, time.monotonic() + 0.2, rng)
    found: defaultdict[str, list[float]] = defaultdict(list)
    for n in range(max(2, round(seconds / TURN / 2))):
        found[QUIET] += await round_trips(control, time.monotonic() + TURN, rng)
        flows.send(0, n, round(RATE * TURN))
        flows.board.publish([0], [n], [0.0], [RATE], flows.now())
        until = time.monotonic() + 0.95 * TURN
        found[BESIDE] += await round_trips(control, until, rng)
        await asyncio.to_thread(flows.receivers[0].recv)
    over.set()
    await server.aclose()
    process.join(5.0)
    return found


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    flows = Flows(1, 1, reserved=[round(RATE * TURN)])
    found = uvloop.run(measure(options.seconds, flows))
    flows.close()
    figures = [
        Figure(
            f"control round trip, {name}, p{share} of {len(took)}",
            float(np.percentile(took, share)) * 1e6,
            "us",
            aim,
        )
        for name, took in found.items()
        for share, aim in AIMS.items()
    ]
    show_figures("control", figures)
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": as_json(figures)}, indent=1))


if __name__ == "__main__":
    main()
