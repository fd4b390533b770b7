"""Kill runs that keep checkpoints; print which of them end with the same weights.

    tools/hostile recovery OUT [SCENARIO] [--count 20] [--seed 0] [--set KEY=VALUE]

COUNT times one process is killed and the run restarts; COUNT times all are killed at
once, and ``emu run --resume`` goes on. Victim and moment, while tasks have
processes, are drawn from the seed. A row is as it should be when the run ends
by itself, with the weights of the run to which nothing happened, has named the culprit,
and nothing is left of it. Rows go to OUT/rows.jsonl; those that are there already are
not carried out again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from emu.runs.array_files import read_weights
from tools.attacks.chaos import Trial, family, gone, roles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

SCENARIO = Path(__file__).parents[2] / "scenarios" / "demo.yaml"
#: A run of some seconds and 8 processes, on as much of this host as it needs.
QUICK = ("workers=2", "samplers_per_worker=1", "iterations=60")
KEPT = ("checkpoint={every: 3 iterations}", "emulation.compute=padded", "expect=null")
_GOES_ON = re.compile(r"(.*)goes on at iteration (\d+)")
_HOST = ("agent", "fork server")
_POLL = 0.01
_PATIENCE = 10.0


@dataclass(frozen=True)
class Calm:
    """A run to which nothing happens."""

    weights: Mapping[str, NDArray[Any]]
    lasted: float
    """Wall seconds in which tasks have processes."""


def tasks_run(trial: Trial, *, wanted: bool) -> bool:
    """Wait until tasks have processes, or have none; return False if the run ends."""
    while trial.command.poll() is None:
        if bool({*roles(trial.mark)} - {"command", *_HOST}) == wanted:
            return True
        time.sleep(_POLL)
    return False


def run_of(folder: Path) -> Path:
    """Return the one run directory of a trial."""
    (run,) = (folder / "runs").iterdir()
    return run


def calm(folder: Path, words: Sequence[str]) -> Calm:
    """Carry out the run to which nothing happens."""
    trial = Trial(folder, "calm", _PATIENCE, words)
    try:
        tasks_run(trial, wanted=True)
        began = time.monotonic()
        tasks_run(trial, wanted=False)
        lasted = time.monotonic() - began
        printed = trial.end()
        if code := trial.command.returncode:
            sys.exit(f"a run to which nothing happens ends with {code}:\n{printed}")
        return Calm(read_weights(run_of(folder)), lasted)
    finally:
        trial.close()


def drawn(there: Sequence[str], chance: np.random.Generator) -> str:
    """Return the process that is killed: one of a task, four times of six."""
    kind = str(chance.choice(["task", *_HOST], p=[4 / 6, 1 / 6, 1 / 6]))
    if kind in there:
        return kind
    tasks = [name for name in there if name not in _HOST]
    return tasks[int(chance.integers(len(tasks)))] if tasks else ""


def restarted(trial: Trial, chance: np.random.Generator) -> Iterator[tuple[str, Any]]:
    """Kill one process; yield what is known once the run has gone on."""
    there = roles(trial.mark)
    victim = drawn(sorted({*there} - {"command"}), chance)
    yield "victim", victim
    if not victim:
        return
    _kill(there[victim])
    killed = time.monotonic()
    while trial.command.poll() is None:
        if found := _GOES_ON.search(trial.printed()):
            yield "noticed", time.monotonic() - killed
            yield "first", int(found[2])
            yield "named", named(victim, found[1])
            return
        time.sleep(_POLL)


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended by itself
        process.kill()


def resumed(trial: Trial, folder: Path) -> Iterator[tuple[str, Any]]:
    """Kill everything at once, and resume the run; yield what is known then."""
    if not {*roles(trial.mark)} - {"command", *_HOST}:
        return  # all tasks have ended: the report is being written
    yield "victim", "everything"
    killed = time.monotonic()
    for process in family(trial.mark):
        _kill(process)
    trial.end()
    yield "noticed", time.monotonic() - killed
    yield "orphans", [each.name() for each in gone(trial.mark, set(), _PATIENCE)]
    run = run_of(folder)
    if not (run / "result.json").exists():
        trial.start(["--resume", str(run)])
        found = _GOES_ON.search(trial.end())
        yield "first", int(found[2]) if found else None


def named(victim: str, message: str) -> bool:
    """Return whether a message names the process that was killed."""
    here = re.search(rf"\b{re.escape(victim)}\b", message)
    return bool(here) or (victim in _HOST and "agent" in message)


def carry_out(
    kind: str, number: int, seed: int, before: Calm, folder: Path, words: Sequence[str]
) -> dict[str, Any]:
    """Return the row of a trial."""
    chance = np.random.default_rng([seed, number, kind == "resume"])
    moment = float(chance.uniform())
    row: dict[str, Any] = {"kind": kind, "number": number, "seed": seed}
    row |= {"moment": moment, "victim": "", "orphans": []}
    row |= {"noticed": None, "first": None, "named": True}
    restart = ["--set", "on_failure=restart"] if kind == "restart" else []
    mark = f"{kind}.{seed}.{number}.{time.time_ns()}"
    trial = Trial(folder, mark, _PATIENCE, [*words, *restart])
    try:
        if tasks_run(trial, wanted=True):
            time.sleep(moment * before.lasted)
            went_on = resumed(trial, folder)
            row |= restarted(trial, chance) if restart else went_on
        printed = trial.end()
        row["code"], row["message"] = trial.command.returncode, printed[-600:]
        row["traceback"] = "Traceback (most recent" in printed
        row["left"] = trial.left()
        row["identical"] = not row["code"] and same(folder, before.weights)
    finally:
        trial.close()
    return row | {"complaint": complaint(row)}


def same(folder: Path, weights: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether a trial's weights are these, bit by bit."""
    found = read_weights(run_of(folder))
    return found.keys() == weights.keys() and all(
        np.array_equal(found[name], part) for name, part in weights.items()
    )


def complaint(row: Mapping[str, Any]) -> str:
    """Return what is wrong with a trial, nothing if it is as it should be."""
    wrong = {
        f"exit code {row['code']}": row["code"] != 0,
        "a traceback": row["traceback"],
        "other weights": row["code"] == 0 and not row["identical"],
        "the culprit is not named": not row["named"],
        f"not ended: {', '.join(row['orphans'])}": row["orphans"],
        f"left {', '.join(row['left'])}": row["left"],
    }
    return "; ".join(words for words, is_so in wrong.items() if is_so)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a line per kind of trial."""
    form = "{:8} {:>6} {:>9} {:>9} {:>8} {:>6} {:>6} {:>5} {:>6}"
    head = ["kind", "trials", "went on", "identical", "from cut"]
    lines = [form.format(*head, "median", "most", "left", "wrong")]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        group = [row for row in rows if row["kind"] == kind]
        firsts = [row["first"] for row in group if row["first"] is not None]
        times = [row["noticed"] for row in group if row["noticed"] is not None]
        counts = (
            sum(row["identical"] for row in group),
            sum(first > 0 for first in firsts),
            f"{statistics.median(times or [0]):.2f}",
            f"{max(times or [0]):.2f}",
            sum(bool(row["left"] or row["orphans"]) for row in group),
            sum(bool(row["complaint"]) for row in group),
        )
        lines.append(form.format(kind, len(group), len(firsts), *counts))
    return "\n".join(lines)


def main() -> int:
    """Carry out what is missing, and print the table; return 1 where one is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("scenario", nargs="?")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", dest="edits", action="append", default=[])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    quick = [*(f"job.{each}" for each in QUICK), "emulation.time_scale=1"]
    edits = [*([] if options.scenario else quick), *KEPT, *options.edits]
    words = [options.scenario or str(SCENARIO)]
    words += [part for edit in edits for part in ("--set", edit)]
    kept, folder = options.out / "rows.jsonl", options.out / "trial"
    lines = kept.read_text().splitlines() if kept.exists() else []
    rows = [json.loads(line) for line in lines]
    done = {(row["kind"], row["number"], row["seed"]) for row in rows}
    before = calm(folder, words)
    for kind in ("restart", "resume"):
        for number in range(options.count):
            if (kind, number, options.seed) in done:
                continue
            row = carry_out(kind, number, options.seed, before, folder, words)
            rows.append(row)
            with kept.open("a") as file:
                file.write(json.dumps(row) + "\n")
            told = f"{row['victim']:12} from {row['first']} {row['complaint']}"
            print(f"{kind:8} {number:4} at {row['moment']:.2f} {told}", flush=True)
    print(table(rows))
    return int(any(row["complaint"] for row in rows))
