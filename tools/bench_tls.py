"""What TLS costs: CPU per GB of data, and round trips of control messages.

Both ends are in this process, with and without TLS in turn. ``--json`` writes the
figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import uvloop

from emu.network import (
    BufferPool,
    ControlServer,
    DataServer,
    Identity,
    Inbox,
    connect_control,
    draw_certificate,
    edge_keys,
    open_edge,
)
from tools.benchmarks.targets import Figure, as_json, show_figures

if TYPE_CHECKING:
    from emu.network import ControlConnection

TOKEN = "of-this-benchmark"  # noqa: S105
NAMES = {False: "plain", True: "TLS"}
FRAME, FRAMES, TRIPS = 16 << 20, 8, 200


async def data_cost(encrypted: bool) -> tuple[float, float]:  # noqa: FBT001
    """Return CPU seconds and wall seconds per GB, of both ends together."""
    keys = edge_keys(TOKEN, [0])
    inbox, pool = Inbox(), BufferPool()
    certificate = draw_certificate() if encrypted else b""
    server = DataServer(keys=keys, inbox=inbox, pool=pool, certificate=certificate)
    address = await server.start("127.0.0.1")
    edge = await open_edge(address, 0, key=keys[0], encrypted=encrypted)
    payload = {"x": np.arange(FRAME, dtype=np.uint8)}
    cpu, wall = time.process_time(), time.monotonic()
    for n in range(FRAMES):
        left = edge.send(n, payload, shaped=False)
        (await inbox.get(0, n, within=60.0)).release()
        await left
    gigabytes = FRAME * FRAMES / 1e9
    took = time.process_time() - cpu, time.monotonic() - wall
    await edge.aclose()
    await server.aclose()
    return took[0] / gigabytes, took[1] / gigabytes


async def round_trip(encrypted: bool) -> float:  # noqa: FBT001
    """Return the median round trip of a small message, seconds."""

    async def echo(connection: ControlConnection, _: Identity) -> None:
        for _n in range(TRIPS):
            connection.send(await connection.receive())

    server = ControlServer(token=TOKEN, on_connection=echo, encrypted=encrypted)
    address = await server.start("127.0.0.1")
    control = await connect_control(
        address, identity=Identity.of(TOKEN, "process", "bench")
    )
    took = []
    for n in range(TRIPS):
        began = time.monotonic()
        control.send({"task": n})
        await control.receive(10.0)
        took.append(time.monotonic() - began)
    await control.aclose()
    await server.aclose()
    return statistics.median(took)


async def measure(seconds: float) -> list[Figure]:
    """Return the medians of as many rounds as fit."""
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(found) == 0:
        for encrypted, name in NAMES.items():
            cpu, wall = await data_cost(encrypted)
            found["CPU of both ends per GB", name].append(cpu)
            found["wall time per GB", name].append(wall)
            found["round trip", name].append(1e6 * await round_trip(encrypted))
    return [
        Figure(
            f"{what}, {name}, median of {len(values)}",
            statistics.median(values),
            "us" if what == "round trip" else "s",
        )
        for (what, name), values in found.items()
    ]


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    figures = uvloop.run(measure(options.seconds))
    show_figures("TLS", figures)
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": as_json(figures)}, indent=1))


if __name__ == "__main__":
    main()
