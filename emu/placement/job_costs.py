"""Cost of a placement of several jobs: the longest of their times, or their sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.scheduling.compiled import compiled
from emu.workloads import RELEASE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu.problem import Job
    from emu.scheduling.compiled_problem import Floats, Ints


@dataclass(frozen=True)
class JobsCost:
    """Cost that a search minimises in place of the makespan."""

    total: bool = False
    """True where it is the sum of the times of the jobs, each from its release to its
    end; else the longest of them."""
    weights: Mapping[str, float] | None = None
    """Factor on the time of a job, positive; 1 of those not named."""


class JobCosts(NamedTuple):
    """The same as flat arrays, without any job where the makespan is what counts."""

    job: Ints
    """Job of every task."""
    weight: Floats
    release: Floats
    """Release of every job, seconds."""
    total: bool
    """As in `JobsCost`."""


def job_costs(job: Job, times: Floats, cost: JobsCost | None) -> JobCosts:
    """Return the arrays; ``times`` hold the releases of jobs."""
    if cost is None:
        return JobCosts(np.empty(0, np.int64), np.ones(1), np.zeros(1), False)
    names = {name: i for i, name in enumerate(job.job_names)}
    weight = np.array([(cost.weights or {}).get(name, 1.0) for name in names])
    release = np.zeros(len(names))
    for t, task in enumerate(job.tasks):
        if task.kind == RELEASE:
            release[names[task.job_name]] = times[t, 0]
    of_task = np.array([names[task.job_name] for task in job.tasks], dtype=np.int64)
    return JobCosts(of_task, weight, release, cost.total)


@compiled
def cost_of_ends(costs: JobCosts, ends: Floats) -> float:
    """Return the cost of a schedule from the end of every task."""
    last = costs.release.copy()
    for task in range(ends.size):
        last[costs.job[task]] = max(last[costs.job[task]], ends[task])
    times = costs.weight * (last - costs.release)
    return float(times.sum() if costs.total else times.max())


@compiled
def least_cost(costs: JobCosts, makespan: float) -> float:
    """Return a lower bound on the cost of a schedule of at least this makespan.

    The job that ends last costs its weight times all that comes after its release.
    """
    return float(costs.weight.min() * (makespan - costs.release.max()))


@compiled
def longest_makespan(costs: JobCosts, cost: float) -> float:
    """Return the makespan beyond which every schedule costs more than ``cost``."""
    return float(cost / costs.weight.min() + costs.release.max())
