"""Run directories made without a run: two simulations, one taken as the emulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from emu.prediction.analysis.bounds import optimality
from emu.prediction.analysis.throughput import pace
from emu.prediction.simulation import simulate
from emu.problem import Problem, Realization
from emu.runs.array_files import REALIZATION
from emu.runs.problem_json import problem_to_json
from emu.runs.result import (
    VERSION,
    flow_error,
    flow_rows,
    port_rows,
    relative_error,
    task_rows,
)
from emu.runs.run_directory import RunDirectory
from emu.testing import two_machine_example


def write_run(
    parent: Path, iterations: int = 4, **options: Any
) -> tuple[Path, dict[str, Any]]:
    """Write a run directory and return its path and the content of result.json.

    The "emulated" run has volumes that are 3 % larger than the simulation's.
    """
    problem, realization = two_machine_example(iterations, **options)
    return write_run_of(parent, problem, realization)


def write_run_of(
    parent: Path, problem: Problem, realization: Realization
) -> tuple[Path, dict[str, Any]]:
    """Write the run directory of any problem; only the example trains something."""
    iterations = problem.job.iterations
    slower = Realization(realization.times, realization.volumes * 1.03)
    emulated = simulate(problem, slower, record_rates=True)
    simulated = simulate(problem, realization)
    late = np.zeros_like(realization.times)
    result = {
        "version": VERSION,
        "scenario": "two <machines> & more",
        "policy": "oes",
        "placement": "fixed",
        "iterations": iterations,
        "processes": len(problem.job.processes),
        "replayed_makespan": simulated.makespan,
        "replay_error": relative_error(emulated.makespan, simulated.makespan),
        "predicted_makespan": simulated.makespan,
        "makespan_error": relative_error(emulated.makespan, simulated.makespan),
        "wall_seconds": 1.5,
        "verdict": {
            "trust": "degraded",
            "shift": 0.034,
            "error": 0.031,
            "max_error": 0.02,
            "reasons": ["the processors were busy"],
            "remedies": ["set emulation.time_scale to 5"],
        },
        "flow_end_apart": flow_error(emulated, simulated),
        "kinds": task_rows(emulated, late),
        "edges": flow_rows(emulated, simulated),
        "ports": port_rows(emulated),
        "training": [],
        "pace": pace(emulated, None).to_json(),
        "startup": {"seconds": 1.0, "memory": 0.0},
        **optimality(emulated, slower, "oes"),
        **emulated.to_json(),
    }
    directory = RunDirectory.create("recorded", parent)
    directory.write_json("manifest.json", {"version": VERSION})
    directory.write_json("problem.json", problem_to_json(problem))
    directory.write_json("simulated.json", simulated.to_json())
    directory.write_arrays(REALIZATION, **vars(slower))
    assert emulated.rates is not None
    directory.write_arrays("rates.npz", **vars(emulated.rates))
    lines = ["time,task,iteration,figure,value"]
    for n in range(iterations if problem.job.processes.get("w0") else 0):
        end = emulated.task_end[problem.job.index("w0"), n]
        lines.append(f"{end:.6f},w0,{n},loss,{2.0 / (n + 1):.6f}")
        lines.append(f"{end:.6f},w0,{n},accuracy,{0.2 * n:.6f}")
        lines.append(f"{end:.6f},g0,{n},rows,120")
    directory.write_lines("training.csv", lines)
    directory.write_json("result.json", result)
    return directory.path, result
