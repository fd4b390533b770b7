"""Cost of a placement of several jobs: the longest of their times, or their sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

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
