"""Measure how exactly flows are paced over real sockets, and what it costs.

    python tools/bench_pacing.py [--seconds S] [--quantum Q] [--json OUT]

A run has flows end with their fluid, or with their last byte if that is later: how late
that is, is the error of a finish. The last byte may leave a lead (6 ms) before the end
of the fluid; how long after that the receiver has it, is what keeps the time, and what
the tables hold. CPU counts both ends. Four tables:
one flow of 10, 50 and 100 ms at several rates, and some of 1 s, whose rate is their
volume over the time they took; one long flow, its rate over every window that begins on
a multiple of 10 ms, by the bytes that the receive calls returned by then, first 20 ms
left out; 16 flows in 8 processes, 4 that send and 4 that receive, whose rates are
redrawn every 20 ms (0 in 15 % of the draws), idle and with every core busy for 60 % of
the time; and a port that 4 flows always fill, bytes that arrived in any 10 ms beyond
what the port carries.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.network import tune_process
from emu.network.pacer import QUANTUM
from tools.benchmarks.arrivals import window_errors
from tools.benchmarks.flows import Flows
from tools.benchmarks.processes import cpu_load
from tools.benchmarks.rate_churn import RandomRates, SharedPort
from tools.benchmarks.targets import Figure, as_json, show, show_figures

if TYPE_CHECKING:
    from collections.abc import Sequence

MEGABITS = (10, 100, 1000, 4000, 10_000, 16_000)
LENGTHS = (0.01, 0.05, 0.1)
#: Seconds of the flows whose finish is not among the quantiles, and how many there are.
LONG, LONGS = 1.0, 3
#: Bytes per second around which rates are drawn: 16 flows then ask for 5.6 Gbit/s.
MEAN_RATE = 59e6
CHANGE = 0.02
#: Seconds -> share by which a rate may be off: of flows so long, and in windows.
RATES = {1.0: 0.0005, 0.05: 0.005, 0.01: 0.03}
#: Of how late flows ended.
ENDS = ("end_p50_ms", "end_p90_ms", "end_p99_ms", "end_max_ms")
PORT = 125e6
FRESH = 0.02


def quantiles(errors: Sequence[float]) -> dict[str, float]:
    """Return the figures of a table, ms; flows that raced a new line are left out."""
    late = np.array([error for error in errors if np.isfinite(error)]) * 1e3
    p50, p90, p99 = (float(v) for v in np.percentile(late, [50, 90, 99]))
    return {
        "flows": late.size,
        "min_ms": float(late.min()),
        "p50_ms": p50,
        "p90_ms": p90,
        "p99_ms": p99,
        "max_ms": float(late.max()),
    }


def ends(finishes: Sequence[float]) -> dict[str, float]:
    """Return how late flows ended, ms, of last bytes' times after their fluids."""
    late = np.array([after for after in finishes if np.isfinite(after)]) * 1e3
    found = np.percentile(np.maximum(late, 0.0), [50, 90, 99, 100]).tolist()
    return dict(zip(ENDS, found, strict=True))


def cost(closed: dict[str, Any]) -> dict[str, float]:
    """Return what the processes took, of what `Flows.close` returned."""
    return {key: closed[key] for key in ("cpu_s_gb", "core_pct", "wakes_s")}


def single(seconds: float, quantum: float) -> list[dict[str, Any]]:
    """Return the finish error of one flow at a time at several rates."""
    rows = []
    for megabits in MEGABITS:
        rate = megabits * 1e6 / 8
        sizes = [round(rate * length) for length in (*LENGTHS, LONG)]
        flows = Flows(1, 1, quantum=quantum, reserved=sizes)
        errors: list[float] = []
        while flows.now() < seconds / len(MEGABITS) or len(errors) < 12:
            n = len(errors)
            errors.append(one(flows, n, sizes[n % 3], rate))
        count = len(errors)
        long = [one(flows, n, sizes[-1], rate) for n in range(count, count + LONGS)]
        shares = {LONG: long} | {
            length: errors[3 + k :: 3] for k, length in enumerate(LENGTHS)
        }
        found = quantiles(errors[3:])
        found |= ends([error - flows.lead for error in errors[3:]])
        found |= {
            f"rate_{length * 1e3:g}ms": 100
            * abs(float(np.median(shares[length])))
            / length
            for length in RATES
        }
        rows.append({"mbit_s": megabits, **found, **cost(flows.close())})
    return rows


def one(flows: Flows, n: int, size: int, rate: float) -> float:
    """Send one flow and return how late its last byte came for when it might leave."""
    flows.send(0, n, size)
    since = flows.now()
    flows.board.publish([0], [n], [0.0], [rate], since)
    flows.tell([0])
    _, _, wall = flows.receivers[0].recv()
    return float(wall - flows.begun - since - max(size / rate - flows.lead, 0.0))


def steady(quantum: float) -> list[dict[str, Any]]:
    """Return how far windows of one long flow are from the assigned rate, percent."""
    rows = []
    for megabits in MEGABITS:
        rate = megabits * 1e6 / 8
        length = 2.2 if rate <= 1e9 else 1.2
        size = round(rate * length)
        flows = Flows(1, 1, quantum=quantum, reserved=[size], chunked=True)
        flows.send(0, 0, size)
        since = flows.now()
        flows.board.publish([0], [0], [0.0], [rate], since)
        flows.tell([0])
        flows.receivers[0].recv()
        closed = flows.close()
        row: dict[str, Any] = {"mbit_s": megabits, "chunks": closed["times"].size}
        for width in RATES:
            off = 100 * np.abs(
                window_errors(
                    closed["times"],
                    closed["sizes"],
                    rate=rate,
                    span=(since + FRESH, since + length - FRESH),
                    width=width,
                    step=0.01,
                )
            )
            name = f"{width * 1e3:g}ms"
            row[f"p50_{name}"] = float(np.median(off))
            row[f"p99_{name}"] = float(np.percentile(off, 99))
        rows.append({**row, **cost(closed)})
    return rows


def many(seconds: float, quantum: float, load: float) -> dict[str, Any]:
    """Return the finish error of 16 flows in 8 processes, rates redrawn each 20 ms."""
    with cpu_load(load):
        flows = Flows(4, 4, quantum=quantum)
        rates = RandomRates(flows, MEAN_RATE)
        while flows.now() < seconds:
            rates.change()
            time.sleep(CHANGE - flows.now() % CHANGE)
        gigabits = flows.sent * 8 / flows.now() / 1e9
        row = {"load_pct": round(100 * load), "gbit_s": gigabits}
        row |= quantiles(rates.errors[32:]) | ends(rates.finishes[32:])
        return row | cost(flows.close())


def port(seconds: float, quantum: float) -> dict[str, Any]:
    """Return bytes that a full port's 4 flows brought beyond it in 10 ms, percent."""
    volume = round(PORT * seconds)
    flows = Flows(1, 4, quantum=quantum, reserved=[volume] * 4, chunked=True)
    shared = SharedPort(flows, PORT, volume)
    begun = flows.now()
    while flows.now() < begun + 0.9 * seconds:
        shared.change()
        time.sleep(CHANGE - flows.now() % CHANGE)
    last = flows.now()
    closed = flows.close()
    over = 100 * window_errors(
        closed["times"],
        closed["sizes"],
        rate=PORT,
        span=(begun + 2 * CHANGE, last),
        width=0.01,
        step=0.001,
    )
    return {
        "mbit_s": PORT * 8 / 1e6,
        "windows": over.size,
        "mean_pct": float(over.mean()),
        "p50_pct": float(np.median(over)),
        "p99_pct": float(np.percentile(over, 99)),
        "max_pct": float(over.max()),
        "beyond_1_pct": float(100 * np.mean(over > 1.0)),
    }


def figures(found: dict[str, list[dict[str, Any]]]) -> list[Figure]:
    """Return what was promised beside what was found."""
    rows = []
    for row in found["single"]:
        what = f"one flow at {row['mbit_s']} Mbit/s: "
        for name, aim in (("p50", 0.2), ("p90", 0.4)):
            rows += _finish(what, row, name, aim)
    for width, aim in RATES.items():
        name = f"{width * 1e3:g}ms"
        rows += [
            Figure(
                f"flows of {name} at {row['mbit_s']} Mbit/s: rate, median",
                row[f"rate_{name}"],
                "%",
                100 * aim,
            )
            for row in found["single"]
        ]
        rows += [
            Figure(
                f"one flow at {row['mbit_s']} Mbit/s: rate over {name}, median",
                row[f"p50_{name}"],
                "%",
                100 * aim,
            )
            for row in found["steady"]
        ]
    aims = {
        0: {"p90": 0.3, "p99": 0.6, "max": 1.0},
        60: {"p90": 0.4, "p99": 1.5},
    }
    for row in found["many"]:
        what = f"16 flows, load {row['load_pct']} %: "
        rows.append(Figure(what + "throughput", row["gbit_s"], "Gbit/s"))
        for name, aim in aims[row["load_pct"]].items():
            rows += _finish(what, row, name, aim)
        rows.append(Figure(what + "CPU", row["cpu_s_gb"], "s/GB", 0.8))
    for row in found["port"]:
        rows.append(Figure("full port, any 10 ms: beyond", row["max_pct"], "%", 1.0))
    return rows


def _finish(what: str, row: dict[str, Any], name: str, aim: float) -> list[Figure]:
    """Return a quantile of the finish, and of the last byte after it might leave."""
    return [
        Figure(f"{what}finish, {name}", row[f"end_{name}_ms"], "ms", aim),
        Figure(f"{what}last byte, {name}", row[f"{name}_ms"], "ms", aim),
    ]


def main() -> None:
    """Measure, print the tables, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each table")
    parser.add_argument("--quantum", type=float, default=QUANTUM)
    parser.add_argument(
        "--only", choices=["single", "steady", "many", "port"], action="append"
    )
    options = parser.parse_args()
    tune_process()  # who draws the rates must be as punctual as who sends
    seconds, quantum = options.seconds, options.quantum
    tables = {
        "single": lambda: single(seconds, quantum),
        "steady": lambda: steady(quantum),
        "many": lambda: [many(seconds / 2, quantum, load) for load in (0.0, 0.6)],
        "port": lambda: [port(2.0, quantum)],
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in tables}
    for name in options.only or tables:
        found[name] = tables[name]()
        show(name, found[name])
    aims = figures(found)
    show_figures("pacing", aims)
    if options.json is not None:
        content = {**found, "figures": as_json(aims)}
        options.json.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
