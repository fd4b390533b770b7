"""One question by every command: each gives the number that the others give.

    tools/study questions OUT [--cases 300] [--first 0]

Files are drawn: systems, machines, walks, seeds, batches, deaths, prices, latencies. A
number of `emu simulate --set` is compared to the last digit with rows of compare,
points of sweep, what-ifs of explain, files of `--write`, Python, and both sides of
every third file's crossover with the rows and the winner of compare.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from typer.testing import CliRunner

import emu
from emu.cli import app
from emu.scenario import load
from tools.runner import Study, Work

SYSTEMS = ("dgtp", "data_parallel", "p3")
ROWS = ("dgtp", "distdgl", "data_parallel", "p3.none", "dgcl", "dorylus.pipe")
PLACEMENTS = ("ifs", "etp", "best", "distdgl")
RULES = ("oes", "fifo", "maxmin")
#: Keys whose crossovers are looked for, and ranges.
KEYS = {
    "job.model.hidden": "2,256",
    "job.dataset.feature_length": "4,400",
    "cluster.machines.m0.nic": "50 Mbit/s,50 Gbit/s",
}


@dataclass(frozen=True)
class Outcome:
    """Numbers of one drawn file that were compared."""

    case: str
    compared: int
    """Numbers that two commands gave."""
    apart: int
    """Numbers among them that differ."""
    crossings: int
    """Crossovers that were asked for."""
    found: int
    """Crossovers among them where the winner changes."""
    confirmed: int
    """Crossovers among these on both sides of which compare names the winner."""
    refused: int
    """Questions that could not be, with one line."""
    cpu: float
    """Seconds."""
    first: str = ""
    """The first number that differs, by whom."""


def draw_machines(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Return one to four drawn machines, with prices or without."""
    machines = []
    has_prices = rng.random() < 0.4
    for number in range(int(rng.integers(1, 5))):
        nic = {"in": f"{rng.choice([1, 5, 25])} Gbit/s", "out": "5 Gbit/s"}
        if rng.random() < 0.4:
            nic["latency"] = f"{rng.integers(1, 90)} us"
        machine = {"name": f"m{number}", "nic": nic}
        if has_prices:
            machine["price"] = f"{rng.integers(1, 40) / 10} $/h"
        machines.append(machine)
    return machines


def draw(rng: np.random.Generator) -> dict[str, Any]:
    """Return the content of a drawn scenario file."""
    machines = draw_machines(rng)
    system = str(rng.choice(SYSTEMS))
    job: dict[str, Any] = {
        "system": system,
        "dataset": {
            "name": "products-like",
            "scale": float(rng.choice([0.001, 0.002])),
            "feature_length": int(rng.integers(8, 40)),
        },
        "model": {"kind": "gcn", "hidden": int(rng.integers(4, 20)), "layers": 2},
        "fanouts": [int(rng.integers(2, 6)), int(rng.integers(2, 6))],
        "batch_size": int(rng.integers(8, 33)),
        "iterations": int(rng.integers(4, 12)),
        "rates": {
            "aggregate": "1 ns",
            "multiply": "10 ps",
            "sample": "200 ns",
            "collect": f"{rng.integers(1, 20)} ns",
            "step": "1 ns",
            "launch": f"{rng.integers(1, 60)} us",
        },
    }
    if system == "dgtp":
        job["workers"] = int(rng.integers(1, 4))
    if rng.random() < 0.5:
        job["epoch"] = str(rng.choice(["replicate", "shard", "local"]))
    content: dict[str, Any] = {
        "cluster": {"machines": machines},
        "job": job,
        "seed": int(rng.integers(9)),
        "schedule": {"policy": str(rng.choice(RULES))},
        "placement": {"policy": str(rng.choice(PLACEMENTS)), "iterations": 30},
    }
    if rng.random() < 0.3:
        content["events"] = [{"at": "1 ms", "kill": "m0"}]
        content |= {"on_failure": "restart", "recovery": "3 ms"}
    return content


@dataclass
class Case:
    """Commands on one drawn file, and what they said."""

    file: Path
    rng: np.random.Generator
    compared: int = 0
    apart: list[str] = field(default_factory=list)
    refused: int = 0
    crossings: int = 0
    found: int = 0
    confirmed: int = 0

    def say(self, command: str, *options: str, file: Path | None = None) -> Any:
        """Return what a command writes as JSON; None where it is refused."""
        arguments = [command, str(file or self.file), *options, "--json", "-"]
        result = CliRunner().invoke(app, arguments)
        if result.exit_code in (2, 3, 4, 5):
            self.refused += 1
            return None
        if result.exit_code != 0:
            raise RuntimeError(f"{arguments}: {result.output}") from result.exception
        return json.loads(result.stdout)

    def simulate(self, *edits: str, file: Path | None = None) -> float | None:
        """Return the makespan of `emu simulate`, with deaths."""
        options = [text for edit in edits for text in ("--set", edit)]
        found = self.say("simulate", *options, file=file)
        return None if found is None else float(found["makespan"])

    def same(self, whose: str, found: float | None, expected: float | None) -> None:
        """Compare two numbers, to the last digit."""
        self.compared += 1
        if found != expected:
            self.apart.append(f"{whose}: {found} for {expected}")

    def by_python(self) -> None:
        """Compare Python with the command."""
        expected = self.simulate()
        if expected is not None:
            schedule = emu.simulate(emu.load(self.file))
            self.same("emu.simulate", schedule.makespan, expected)

    def by_variants(self) -> None:
        """Compare placements and rules with `simulate --set`, and with their files."""
        placement = str(self.rng.choice(PLACEMENTS))
        rule = str(self.rng.choice(RULES))
        options = ["--placements", placement, "--policies", rule]
        with TemporaryDirectory() as folder:
            rows = self.say("compare", *options, "--write", f"{folder}/rows")
            for row in rows or ():
                if "refused" not in row:
                    again = self.simulate(file=Path(row["files"][0]))
                    self.same(f"--write of {row['policy']}", row["makespan"], again)
        if rows is None:
            return
        self.same("compare, first row", rows[0]["makespan"], self.simulate())
        for row in rows[1:]:
            if "refused" not in row and row["policy"] == rule:
                keys = f"placement.policy={placement}", f"schedule.policy={rule}"
                expected = self.simulate(*keys)
                self.same(f"compare, {placement}, {rule}", row["makespan"], expected)

    def by_sweep(self) -> None:
        """Compare points of a sweep with `simulate --set`."""
        values = {
            "placement.policy": list(PLACEMENTS),
            "job.epoch": ["replicate", "shard", "local"],
            "job.batch_size": ["8", "24"],
            "seed": ["3", "4"],
        }
        key = str(self.rng.choice([*values]))
        with TemporaryDirectory() as folder:
            vary = f"{key}={','.join(values[key])}"
            arguments = ["sweep", str(self.file), "--vary", vary, "--out", folder]
            result = CliRunner().invoke(app, [*arguments, "--jobs", "1"])
            points = Path(folder) / "points.jsonl"
            if not points.exists():
                if result.exit_code != 2:
                    raise RuntimeError(result.output) from result.exception
                self.refused += 1
                return
            lines = points.read_text().splitlines()
        for row in map(json.loads, lines):
            expected = self.simulate(f"{key}={row['values'][key]}")
            self.same(f"sweep, {key}", row["figures"]["makespan"], expected)

    def by_systems(self) -> None:
        """Compare rows of systems with the files that they leave, and with the file."""
        with TemporaryDirectory() as folder:
            options = ["--systems", ",".join(ROWS), "--write", f"{folder}/rows"]
            rows = self.say("compare", *options)
            for row in rows or ():
                if "refused" in row:
                    continue
                again = self.simulate(file=Path(row["files"][0]))
                self.same(f"row {row['system']}", row["makespan"], again)

    def by_explanation(self) -> None:
        """Compare the base and two what-ifs of an explanation with `simulate`."""
        found = self.say("explain")
        if found is None:
            return
        self.same("explain", found["makespan"], self.simulate())
        edits = [one for one in found["improvements"] if one["edit"]]
        for number in self.rng.permutation(len(edits))[:2]:
            change = edits[number]
            scenario = load(emu.load(self.file), change["edit"])
            makespan = emu.simulate(scenario).makespan
            self.same(f"explain, {change['what']}", change["makespan"], makespan)

    def by_crossover(self) -> None:
        """Compare both sides of a crossover with rows and winners of compare."""
        key = str(self.rng.choice([*KEYS]))
        first, second = self.rng.permutation(["data_parallel", "p3", "distdgl"])[:2]
        between = f"{first},{second}"
        options = ["--between", between, "--range", KEYS[key]]
        found = self.say("crossover", "--key", key, *options)
        if found is None:
            return
        self.crossings += 1
        self.found += found["found"]
        winners = []
        for side in found["sides"]:
            edit = f"{key}={side['value']}"
            rows = self.say("compare", "--systems", between, "--set", edit)
            for row, other in zip(side["systems"], rows, strict=True):
                whose = f"crossover, {row['system']} at {edit}"
                for figure in ("makespan", "samples_per_second"):
                    self.same(f"{whose}, {figure}", row[figure], other[figure])
                self.same(f"{whose}, machines", row["placing"], other["placing"])
            best = max(rows, key=lambda row: row["samples_per_second"])
            winners.append(best["system"] == side["best"])
        self.confirmed += all(winners)


DOORS: tuple[Callable[[Case], None], ...] = (
    Case.by_python,
    Case.by_variants,
    Case.by_sweep,
    Case.by_systems,
    Case.by_explanation,
)


def ask(number: int) -> list[Outcome]:
    """Return the row of a drawn file: two doors, and a crossover of every third."""
    start = time.process_time()
    rng = np.random.default_rng([number, 59])
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"drawn{number}.json"
        file.write_text(json.dumps(draw(rng)))
        case = Case(file, rng)
        for door in rng.permutation(len(DOORS))[:2]:
            DOORS[door](case)
        if number % 3 == 0:
            case.by_crossover()
    outcome = Outcome(
        case=str(number),
        compared=case.compared,
        apart=len(case.apart),
        crossings=case.crossings,
        found=case.found,
        confirmed=case.confirmed,
        refused=case.refused,
        cpu=round(time.process_time() - start, 2),
        first=case.apart[0] if case.apart else "",
    )
    return [outcome]


def options(parser: ArgumentParser) -> None:
    """Add how many files are drawn, and the number of the first."""
    parser.add_argument("--cases", type=int, default=300, help="files")
    parser.add_argument("--first", type=int, default=0, help="number of the first")


def work(options: Namespace) -> Iterator[Work[Outcome]]:
    """Yield every drawn file."""
    for number in range(options.first, options.first + options.cases):
        yield str(number), partial(ask, number)


def table(rows: list[Outcome], _: Namespace) -> Iterator[str]:
    """Yield how many numbers were compared, and which differ."""
    compared = sum(row.compared for row in rows)
    apart = sum(row.apart for row in rows)
    crossings = sum(row.crossings for row in rows)
    confirmed = sum(row.confirmed for row in rows)
    yield f"{len(rows)} files, {compared} numbers compared, {apart} apart"
    found = sum(row.found for row in rows)
    yield (
        f"{crossings} crossovers, {found} with a change: compare names the winners on "
        f"both sides of {confirmed}"
    )
    refused = sum(row.refused for row in rows)
    yield f"{refused} questions refused; {sum(row.cpu for row in rows):.0f} s of CPU"
    yield from (f"{row.case}: {row.first}" for row in rows if row.first)


STUDY = Study(
    row=Outcome,
    work=work,
    table=table,
    options=options,
    wrong=lambda rows: any(row.apart or row.confirmed < row.crossings for row in rows),
)
