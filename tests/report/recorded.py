"""A small run directory, as an emulated run leaves it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from emu.prediction.simulation import simulate
from emu.problem import RateHistory, Realization, Schedule
from emu.runs.array_files import REALIZATION
from emu.runs.problem_json import problem_to_json
from emu.runs.result import VERSION
from emu.runs.run_directory import RunDirectory
from emu.testing import two_machine_example
from tests.prediction.analysis.chains import distorted


def schedules() -> tuple[Schedule, Schedule]:
    """Return an emulated schedule of three iterations, and the simulation of it."""
    problem, realization = two_machine_example(3, credit=2)
    ideal = simulate(problem, realization, record_rates=True)
    run = distorted(ideal)
    replayed = simulate(problem, two_machine_realization(run))
    return replace(run, rates=slowed(ideal.rates)), replayed


def slowed(rates: RateHistory | None) -> RateHistory:
    """Return rates as of a clock that is 1 % slow, like `distorted`."""
    assert rates is not None
    return replace(rates, time=1.01 * rates.time, rate=rates.rate / 1.01)


def two_machine_realization(emulated: Schedule) -> Realization:
    """Return the times of ``emulated`` and the volumes of the example."""
    times = np.maximum(emulated.task_end - emulated.task_start, 0.0)
    return Realization(times, two_machine_example(3, credit=2)[1].volumes)


def write_run(path: Path, *, policy: str = "oes") -> Path:
    """Write the run directory ``path`` and return it."""
    emulated, simulated = schedules()
    path.mkdir()
    directory = RunDirectory(path)
    scenario = {"name": "golden", "schedule": {"policy": policy}}
    directory.write_json("manifest.json", {"version": VERSION, "scenario": scenario})
    directory.write_json("problem.json", problem_to_json(emulated.problem))
    directory.write_json("simulated.json", simulated.to_json())
    assert emulated.rates is not None
    directory.write_arrays("rates.npz", **vars(emulated.rates))
    directory.write_arrays(REALIZATION, **vars(two_machine_realization(emulated)))
    losses = [f"{10.0 * n + 20},w0,{n},loss,{2.0 - n / 4}" for n in range(3)]
    directory.write_lines("training.csv", ["time,task,iteration,figure,value", *losses])
    result = {
        "version": VERSION,
        "scenario": "golden",
        "policy": policy,
        "placement": "explicit",
        "predicted_makespan": 38.0,
        "replayed_makespan": simulated.makespan,
        **emulated.to_json(),
    }
    directory.write_json("result.json", result)
    return path


def with_deaths(run: Path) -> Path:
    """Write into a run that two attempts came before, and one death was foreseen."""
    result = json.loads((run / "result.json").read_text())
    first: dict[str, Any] = {"first_iteration": 0, "next_iteration": 4}
    first |= {"ran": 6.0, "again": 2.0, "recovery": 1.0, "error": "w0 died"}
    second = first | {"first_iteration": 4, "next_iteration": 4, "ran": 3.0}
    second |= {"again": 3.0, "recovery": 0.5}
    seen = [one | {"detection": 0.25} for one in (first, second)]
    result["recovery"] = {"attempts": seen, "predicted_attempts": [first]}
    (run / "result.json").write_text(json.dumps(result))
    return run
