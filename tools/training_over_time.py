#!/usr/bin/env python3
"""Draw figures 4 and 5 of the DGTP paper to the accuracy that it trains to.

    python tools/training_over_time.py [NAME] [--steps N] [--target X] --out DIRECTORY

The weights after a step do not depend on the schedule, so one process takes the steps,
off the clock, and looks at the validation vertices every ten. The time of each step is
that of a simulation of all steps: DGTP's placement with OES, and DistDGL's with each of
two rules. Writes NAME.svg, and simulated runs for `emu plot --compare`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from emu.report.plot_progress import TARGET, time_to
from emu.report.plots import plot
from emu.runs.problem_json import problem_to_json
from emu.runs.recorded_run import RecordedRun, load_run
from emu.runs.result import VERSION
from emu.runs.run_directory import RunDirectory
from emu.runs.validation import progress_of
from emu.scenario import load, prepare

#: Each with its placement and its rate policy.
SYSTEMS = {
    "dgtp": ("etp", "oes"),
    "distdgl-fifo": ("distdgl", "fifo"),
    "distdgl-maxmin": ("distdgl", "maxmin"),
}
STRIDE = 10


def simulated(name: str, system: str, steps: int, folder: Path) -> RecordedRun:
    """Write a run directory of a simulation of ``steps`` steps, and read it back."""
    placement, policy = SYSTEMS[system]
    changes = {
        "job.iterations": steps,
        "placement.policy": placement,
        "schedule.policy": policy,
    }
    experiment = prepare(load(name, changes))
    folder.mkdir(parents=True, exist_ok=True)
    directory = RunDirectory(folder)
    scenario = json.loads(json.dumps(experiment.scenario.to_json()))
    directory.write_json("manifest.json", {"version": VERSION, "scenario": scenario})
    directory.write_json("problem.json", problem_to_json(experiment.problem))
    directory.write_json("simulated.json", experiment.simulate().to_json())
    return load_run(folder)


def main(arguments: list[str] | None = None) -> int:
    """Draw one scenario."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", nargs="?", default="testbed_products")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--target", type=float, default=TARGET)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    runs = [
        simulated(options.name, system, options.steps, options.out / system)
        for system in SYSTEMS
    ]
    progress = progress_of(runs, looks=max(1, options.steps // STRIDE))
    for run, made in zip(runs, progress, strict=True):
        at = time_to(options.target, run.best, made)
        reached = "not reached" if math.isnan(at) else f"{at:.2f} s"
        said = f"{options.target:.0%}: {reached}"
        print(f"{run.name:15} {run.makespan:8.2f} s in all, {said}")
    plot(
        runs,
        "progress",
        options.out / f"{Path(options.name).stem}.svg",
        progress=progress,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
