"""Simulate a placed job: its Schedule, or its makespan alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from emu.schedule import Schedule
from emu.scheduling.layout import job_arrays, lay_out
from emu.scheduling.policies import policy_named
from emu.scheduling.state import State, new_state
from emu.simulation.events import run

if TYPE_CHECKING:
    from emu.problem import Problem, Realization


def _run(
    problem: Problem, realization: Realization, policy: str, *, logged: bool
) -> tuple[float, State]:
    realization.check_shapes(problem.job)
    code = policy_named(policy).code
    arrays = job_arrays(problem.job, problem.cluster, code, per_flow=False)
    layout = lay_out(arrays, np.array(problem.placement.machine_of, dtype=np.int64))
    state = new_state(layout, problem.job.iterations if logged else 0)
    end = run(layout, state, realization.times, realization.volumes, math.inf)
    return float(end), state


def simulate(
    problem: Problem, realization: Realization, policy: str = "oes"
) -> Schedule:
    """Return the Schedule of ``problem`` under ``policy``."""
    _, state = _run(problem, realization, policy, logged=True)
    return Schedule(
        problem=problem,
        task_start=state.task_start,
        task_end=state.task_end,
        flow_ready=state.flow_ready,
        flow_start=state.flow_start,
        flow_end=state.flow_end,
        flow_bytes=np.where(np.isnan(state.flow_ready), np.nan, realization.volumes),
    )


def makespan(problem: Problem, realization: Realization, policy: str = "oes") -> float:
    """Return the makespan in seconds; faster than `simulate`."""
    return _run(problem, realization, policy, logged=False)[0]
