#!/usr/bin/env python3
"""What the kernel's NICs carry: finishes of single flows, shares of many, start times.

    python tools/bench_machines.py [--only start,single,shares] [--seconds S]

Needs what `emu lab` needs. The flows are plain TCP by programs that know nothing of
emu; the expectation is bytes over rate, and max-min fairness by filling.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from emu.machines import Lab, LabMachine, Sharing

FLOWS = Path(__file__).with_name("benchmarks") / "kernel_flows.py"
Plan = list[tuple[str, str, float, float]]  # source, destination, start, bytes
Seen = list[tuple[float, float, int]]  # first, last, bytes, by flow


def carry(lab: Lab, plan: Plan, until: float) -> Seen:
    """Carry out a plan in a lab; return what each flow's receiver saw."""
    begin = time.monotonic() + 2.0
    lines = [
        f"{source} {there} {lab.address(there)} {5000 + number} {start} {volume}"
        for number, (source, there, start, volume) in enumerate(plan)
    ]
    seen: dict[int, tuple[float, float, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "plan").write_text("\n".join(lines) + "\n")
        programs = []
        for machine in lab.machines:
            command = [sys.executable, str(FLOWS), machine.name, str(begin), str(until)]
            with (
                (path / "plan").open() as stdin,
                (path / machine.name).open("w") as out,
            ):
                programs.append(
                    lab.start(
                        machine.name, command, stdin=stdin.fileno(), output=out.fileno()
                    )
                )
        while any(program.code is None for program in programs):
            lab.wait(1.0)
        for machine in lab.machines:
            for line in (path / machine.name).read_text().splitlines():
                port, first, last, got = line.split()
                seen[int(port) - 5000] = float(first), float(last), int(got)
    return [seen[number] for number in range(len(plan))]


def max_min(lab: Lab, plan: Plan) -> list[float]:
    """Return bytes per second of flows that all go on at once, by filling."""
    left = {("out", m.name): m.nic_out for m in lab.machines}
    left |= {("in", m.name): m.nic_in for m in lab.machines}
    crossed = [(("out", source), ("in", there)) for source, there, *_ in plan]
    rates: dict[int, float] = {}
    while len(rates) < len(plan):
        share = {
            port: room / count
            for port, room in left.items()
            if (
                count := sum(
                    port in ends for i, ends in enumerate(crossed) if i not in rates
                )
            )
        }
        full = min(share, key=lambda port: share[port])
        for number, ends in enumerate(crossed):
            if number not in rates and full in ends:
                rates[number] = share[full]
                for port in ends:
                    left[port] -= share[full]
    return [rates[number] for number in range(len(plan))]


def star(rates: list[float]) -> list[LabMachine]:
    """Return machines with these NICs, bits per second."""
    return [LabMachine(f"m{i}", rate / 8, rate / 8) for i, rate in enumerate(rates)]


def show_start() -> None:
    """Print how long labs take to start and to end."""
    print("start of a lab, wall seconds, median of 5: up, with its end")
    for count in (4, 16):
        for sharing in Sharing:
            ups, all_of_it = [], []
            for _ in range(5):
                began = time.monotonic()
                with Lab(star([1e8] * count), sharing=sharing) as lab:
                    ups.append(lab.startup_seconds)
                all_of_it.append(time.monotonic() - began)
            up, whole = statistics.median(ups), statistics.median(all_of_it)
            print(f"  {count:3} machines, {sharing:5}  {up:.3f}  {whole:.3f}")


def show_single(repeats: int) -> None:
    """Print how far finishes of single flows are from bytes over rate."""
    sizes = (0.01, 0.05, 0.2, 1.0)
    print(f"one flow: finish against bytes / rate, ms, median of {repeats}")
    print("  Mbit/s   " + "".join(f"{1000 * size:>7.0f} ms" for size in sizes))
    for rate in (50e6, 200e6, 1e9):
        apart: list[list[float]] = [[] for _ in sizes]
        for _ in range(repeats):
            plan, at = [], 0.1
            for size in sizes:
                plan.append(("m0", "m1", at, rate / 8 * size))
                at += size + 0.15
            with Lab(star([rate, rate])) as lab:
                for i, (_, last, _) in enumerate(carry(lab, plan, at + 0.5)):
                    apart[i].append(1000 * (last - plan[i][2] - sizes[i]))
        shown = "".join(f"{statistics.median(each):>+10.2f}" for each in apart)
        print(f"  {rate / 1e6:6.0f}   {shown}")


def show_shares(seconds: float) -> None:
    """Print shares of many flows over unequal NICs against max-min."""
    print("flows at once over NICs of 100, 100, 20, 20 Mbit/s: bytes against max-min")
    pairs = [(f"m{a}", f"m{b}") for a in range(4) for b in range(4) if a != b]
    for count in (12, 40):
        for tcp in ("reno", "bbr"):
            for sharing in Sharing:
                plan = [
                    (*pairs[i % len(pairs)], 0.0, 1e10 / 8 * seconds)
                    for i in range(count)
                ]
                nics = star([100e6, 100e6, 20e6, 20e6])
                with Lab(nics, sharing=sharing, congestion_control=tcp) as lab:
                    rates = max_min(lab, plan)
                    seen = carry(lab, plan, seconds)
                part = sorted(
                    got / rate / seconds
                    for (_, _, got), rate in zip(seen, rates, strict=True)
                )
                middle = statistics.median(part)
                print(
                    f"  {count:3} flows, {tcp:5} {sharing:5} least {part[0]:.3f} "
                    f"median {middle:.3f} most {part[-1]:.3f}"
                )


def main() -> None:
    """Print the chosen tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="start,single,shares")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"load of this computer {load:.1f}, {os.cpu_count()} cores")
    if "start" in options.only:
        show_start()
    if "single" in options.only:
        show_single(options.repeats)
    if "shares" in options.only:
        show_shares(options.seconds)


if __name__ == "__main__":
    main()
