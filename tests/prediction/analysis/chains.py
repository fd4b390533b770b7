"""Schedules to explain: the worked examples, random ones, and distorted ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from emu.prediction.simulation import simulate
from emu.problem import Problem, Realization, Schedule
from emu.testing import two_machine_example
from emu.testing.strategies import random_problem

GOLDEN: tuple[dict[str, Any], ...] = (
    {"iterations": 1},
    {"iterations": 3},
    {"iterations": 10},
    {"iterations": 10, "second_nic": 5.0},
    {"iterations": 10, "together": True},
    {"iterations": 10, "together": True, "second_nic": 2.0},
    {"iterations": 10, "credit": 1},
    {"iterations": 10, "credit": 2},
)


def cases() -> list[tuple[Problem, Realization]]:
    """Return the worked examples and 30 random problems."""
    rng = np.random.default_rng(5)
    golden = [two_machine_example(**options) for options in GOLDEN]
    return golden + [random_problem(rng, ties=bool(i % 2)) for i in range(30)]


def distorted(schedule: Schedule, seed: int = 0) -> Schedule:
    """Return a schedule as an emulation might measure it.

    Time runs 1 % slow, and every task and flow begins up to a tenth of its length late.
    """
    rng = np.random.default_rng(seed)
    times = {
        name: 1.01 * getattr(schedule, name)
        for name in ("task_start", "task_end", "flow_ready", "flow_start", "flow_end")
    }
    for what in ("task", "flow"):
        length = times[f"{what}_end"] - times[f"{what}_start"]
        late = rng.uniform(0, 0.1, length.shape) * length
        times[f"{what}_start"] = times[f"{what}_start"] + late
    return replace(schedule, **times)


def emulated_case(seed: int = 0) -> tuple[Schedule, Schedule, Realization]:
    """Return an emulated-like schedule, its simulation, and their realization."""
    problem, realization = two_machine_example(3, credit=2)
    simulated = simulate(problem, realization)
    return distorted(simulated, seed), simulated, realization
