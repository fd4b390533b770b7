"""Run iterations for a long time; print what memory, descriptors and lateness came to.

    tools/hostile soak OUT [--minutes 60] [--scenario golden] [--set KEY=VALUE]
        [--time-scale 0.02] [--kills SECONDS]

Looks at every process of the run every ten seconds: resident memory, descriptors, CPU
time; and at how busy the cores were since the last look. OUT/rows.jsonl has the looks;
the table has, per process, where it began and ended and the slope after the first
tenth. Lateness is what each iteration adds to the distance from the run's replay.

With ``--kills`` a process of the run that was drawn, any but the command, is killed
every so many wall seconds, and the run restarts. The scenario must keep checkpoints.
Another run beside it, to which nothing happens, eight times as fast, tells whether the
weights are the same.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import emu
from emu.runs.array_files import read_weights
from emu.runs.recorded_run import read_manifest
from tools.attacks.chaos import MARK, roles, settings
from tools.attacks.recovery import same

EVERY = 10.0  # wall seconds between two looks
SKIPPED = 0.1  # share of the looks that is warm-up
SETTINGS = ["emulation.byte_scale=5000", "emulation.deadline=600 s"]
# Without a window payloads of iterations far ahead fill the memory of those behind.
SETTINGS += ["emulation.silence=600 s", "job.credit_window=2"]
RESTARTING = ["on_failure=restart", "max_restarts=100000"]
FASTER = 8  # times, of the run to which nothing happens


def look(mark: str) -> dict[str, dict[str, float]]:
    """Return what each process of the run holds now."""
    found = {}
    for role, process in roles(mark).items():
        try:
            with process.oneshot():
                found[role] = {
                    "memory": process.memory_info().rss / 2**20,
                    "descriptors": process.num_fds(),
                    "cpu": sum(process.cpu_times()[:2]),
                }
        except psutil.Error:
            continue
    return found


def load(rows: list[dict[str, Any]]) -> str:
    """Return how busy all cores were between two looks, and by whom, in words."""
    busy = np.array([row["busy"] for row in rows[1:]])
    if not busy.size:
        return "too short to measure how busy the host was"
    first, last = rows[0], rows[-1]
    spent = sum(
        held["cpu"] - first["held"].get(name, {"cpu": 0.0})["cpu"]
        for name, held in last["held"].items()
    )
    wall = 60 * (last["minute"] - first["minute"]) * (os.cpu_count() or 1)
    low, high = np.percentile(busy, [5, 95])
    return (
        f"cores busy: mean {busy.mean():.0%}, 9 of 10 looks {low:.0%} to {high:.0%}; "
        f"{spent / wall:.0%} by the run itself"
    )


def slope(minutes: list[float], values: list[float]) -> float:
    """Return by how much values rise per minute, warm-up apart."""
    begin = int(SKIPPED * len(values))
    if len(values) - begin < 3:
        return float("nan")
    return float(np.polyfit(minutes[begin:], values[begin:], 1)[0])


def table(rows: list[dict[str, Any]]) -> str:
    """Return a line per process."""
    head = ("process", "MB first", "MB last", "MB/min", "fds", "fds/min", "CPU s")
    lines = ["{:12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}".format(*head)]
    for name in dict.fromkeys(name for row in rows for name in row["held"]):
        mine = [row for row in rows if name in row["held"]]
        held, at = [row["held"][name] for row in mine], [row["minute"] for row in mine]
        begin = int(SKIPPED * len(held))
        memory, files = ([each[k] for each in held] for k in ("memory", "descriptors"))
        lines.append(
            f"{name:12} {memory[begin]:9.1f} {memory[-1]:9.1f} "
            f"{slope(at, memory):9.3f} {files[begin]:4.0f}-{files[-1]:<4.0f} "
            f"{slope(at, files):9.3f} {held[-1]['cpu']:9.1f}"
        )
    return "\n".join(lines)


def kill_one(mark: str, chance: np.random.Generator) -> str:
    """Kill a process of the run, any but the command; return what it was."""
    there = roles(mark)
    there.pop("command", None)
    if not there:
        return ""
    role = str(chance.choice(sorted(there)))
    with contextlib.suppress(psutil.NoSuchProcess):
        there[role].kill()
    return role


def killed(rows: list[dict[str, Any]], run: Path, undisturbed: Path) -> str:
    """Return who was killed, and whether that shows in the weights, in words."""
    counts = Counter(row["killed"] for row in rows if row["killed"])
    who = ", ".join(f"{count} {role}" for role, count in counts.most_common())
    attempts = read_manifest(run / "manifest.json").get("attempts", [])
    weights = read_weights(undisturbed)
    agree = "identical" if same(run, weights) else "OTHER"
    return (
        f"{counts.total()} killed ({who}), {len(attempts)} restarts, "
        f"{agree} weights in {len(weights)} arrays"
    )


def lateness(run: Path, time_scale: float) -> str:
    """Return how much later than in the replay each iteration made the next, in words.

    A job waits for what is late, so that the ends themselves only grow apart.
    """
    recorded = emu.load_run(run)
    if recorded.emulated is None or recorded.simulated is None:
        return "; ".join(recorded.missing)
    ends = recorded.emulated.task_end.max(axis=0)
    behind = ends - recorded.simulated.task_end.max(axis=0)
    added = 1e3 * time_scale * np.diff(behind)
    tenth = max(1, len(added) // 10)
    at = list(ends[1:] * time_scale / 60)
    return (
        f"added by each of {len(ends)} iterations, wall ms, medians: "
        f"{np.median(added[tenth : 2 * tenth]):.3f} in the second tenth, "
        f"{np.median(added[-tenth:]):.3f} in the last; "
        f"mean {added.mean():.3f}, {slope(at, list(added)):+.4f} per minute"
    )


def watched(
    command: list[str], out: Path, kills: float
) -> tuple[int, list[dict[str, Any]]]:
    """Run a command and look at it until it ends; return its exit status, the looks.

    ``kills``: wall seconds from one kill to the next; infinite for none.
    """
    mark, begun = f"soak.{os.getpid()}", time.monotonic()
    due, chance = begun + kills, np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    with (out / "output").open("wb") as output:
        run = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, MARK: mark},
        )
        try:
            while run.poll() is None:
                minute = (time.monotonic() - begun) / 60
                busy = psutil.cpu_percent() / 100  # since the last look
                rows.append({"minute": minute, "busy": busy, "held": look(mark)})
                rows[-1]["killed"] = ""
                if time.monotonic() >= due:
                    rows[-1]["killed"] = kill_one(mark, chance)
                    due += kills
                with (out / "rows.jsonl").open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                time.sleep(EVERY)
        finally:
            run.terminate()
            run.wait()
    return run.returncode, rows


def newest(runs: Path) -> Path:
    """Return the last run directory."""
    return max(runs.iterdir(), key=lambda path: path.stat().st_mtime)


def main() -> int:
    """Run, look, print; return the command's exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--scenario", default="golden")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--time-scale", type=float, default=0.02)
    parser.add_argument("--kills", type=float, default=math.inf)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    runs, scale = options.out / "runs", options.time_scale
    changes = [*SETTINGS, *options.set]
    words = [sys.executable, "-P", "-m", "emu", "run", options.scenario]
    words += settings(options.scenario, changes, scale, 60 * options.minutes)
    command = [*words, "--runs", str(runs)]
    beside = None
    if options.kills < math.inf:
        command += [part for each in RESTARTING for part in ("--set", each)]
        calm, faster = options.out / "calm", f"emulation.time_scale={scale / FASTER}"
        words += ["--set", faster, "--runs", str(calm)]
        nothing = subprocess.DEVNULL
        beside = subprocess.Popen(words, stdin=nothing, stdout=nothing)
    code, rows = watched(command, options.out, options.kills)
    running = [row for row in rows if len(row["held"]) > 3]  # all are there
    print(f"{' '.join(words[3:])}, {rows[-1]['minute']:.1f} minutes")
    if running:
        print(load(running), table(running), sep="\n")
    print((options.out / "output").read_text())
    if not code:
        print(lateness(newest(runs), scale))
    if beside is not None:
        code = beside.wait() or code
        if not code:
            print(killed(rows, newest(runs), newest(options.out / "calm")))
    return code
