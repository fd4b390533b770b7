"""Figures 4 and 5 of the DGTP paper, to the accuracy that it trains to.

    tools/study training_over_time OUT [--scenario NAME] [--steps N] [--target X]

The weights after a step do not depend on the schedule, so one process takes the steps,
off the clock, and looks at the validation vertices every ten. The time of each step is
that of a simulation of all steps: DGTP's placement with OES, and DistDGL's with each of
two rules. Writes OUT/NAME.svg, and simulated runs for `emu plot --compare`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from emu.report.plot_progress import TARGET, time_to
from emu.report.plots import plot
from emu.runs.problem_json import problem_to_json
from emu.runs.recorded_run import load_run
from emu.runs.result import VERSION
from emu.runs.run_directory import RunDirectory
from emu.runs.validation import progress_of
from emu.scenario import load, prepare
from tools.runner import Study

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from tools.runner import Work

#: Each with its placement and its rate policy.
SYSTEMS = {
    "dgtp": ("etp", "oes"),
    "distdgl-fifo": ("distdgl", "fifo"),
    "distdgl-maxmin": ("distdgl", "maxmin"),
}
STRIDE = 10


@dataclass(frozen=True)
class Simulated:
    """A system whose run directory is written, and the makespan of all its steps."""

    case: str
    makespan: float


def options(parser: ArgumentParser) -> None:
    """Add what is trained, and how long."""
    parser.add_argument("--scenario", default="testbed_products")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--target", type=float, default=TARGET, help="accuracy")


def work(options: Namespace) -> Iterator[Work[Simulated]]:
    """Yield every system."""
    for system in SYSTEMS:
        yield system, partial(simulated, options, system)


def simulated(options: Namespace, system: str) -> list[Simulated]:
    """Write a run directory of a simulation of all steps."""
    placement, policy = SYSTEMS[system]
    changes = {
        "job.iterations": options.steps,
        "placement.policy": placement,
        "schedule.policy": policy,
    }
    experiment = prepare(load(options.scenario, changes))
    folder = options.out / system
    folder.mkdir(parents=True, exist_ok=True)
    directory, schedule = RunDirectory(folder), experiment.simulate()
    scenario = json.loads(json.dumps(experiment.scenario.to_json()))
    directory.write_json("manifest.json", {"version": VERSION, "scenario": scenario})
    directory.write_json("problem.json", problem_to_json(experiment.problem))
    directory.write_json("simulated.json", schedule.to_json())
    return [Simulated(system, schedule.makespan)]


def table(rows: list[Simulated], options: Namespace) -> Iterator[str]:
    """Train once, draw the figure, and yield when each system is there."""
    runs = [load_run(options.out / row.case) for row in rows]
    progress = progress_of(runs, looks=max(1, options.steps // STRIDE))
    for run, made in zip(runs, progress, strict=True):
        at = time_to(options.target, run, made)
        reached = "not reached" if math.isnan(at) else f"{at:.2f} s"
        there = f"{options.target:.0%}: {reached}"
        yield f"{run.name:15} {run.makespan:8.2f} s in all, {there}"
    figure = options.out / f"{Path(options.scenario).stem}.svg"
    plot(runs, "progress", figure, progress=progress)


STUDY = Study(
    row=Simulated,
    work=work,
    table=table,
    options=options,
    settled=("scenario", "steps"),
)
