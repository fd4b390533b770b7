"""How long each of several jobs took, and how long it takes alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.problem import Job, Placement, Problem, Profile, Realization
from emu.simulation import makespan
from emu.workloads import RELEASE

if TYPE_CHECKING:
    from emu.problem import Schedule


@dataclass(frozen=True)
class JobTime:
    """One of several jobs; seconds.

    Parameters
    ----------
    release, end
        Run times: before it nothing of the job starts, and its last task ends.
    seconds
        From one to the other.
    alone
        The same in a simulation without the other jobs, every task where it stands.
    slowdown
        ``seconds`` over ``alone``; 1 where neither takes any time.
    """

    job: str
    release: float
    end: float
    seconds: float
    alone: float
    slowdown: float

    def to_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self)


def job_times(
    schedule: Schedule, realization: Realization, policy: str
) -> list[JobTime]:
    """Return the times of every job, in order; none where there is but one.

    Parameters
    ----------
    realization
        Times and volumes that the schedule has, and the jobs alone.
    policy
        Rate policy.
    """
    job = schedule.problem.job
    return [
        _time(schedule, realization, policy, name) for name in job.job_names if name
    ]


def _time(
    schedule: Schedule, realization: Realization, policy: str, name: str
) -> JobTime:
    problem, times = only(schedule.problem, realization, name)
    own = [task.job_name == name for task in schedule.problem.job.tasks]
    released = [t for t, task in enumerate(problem.job.tasks) if task.kind == RELEASE]
    release = float(times.times[released, 0].sum())
    end = float(np.nanmax(schedule.task_end[own]))
    expected = Profile(times.times, times.volumes)
    alone = makespan(problem, times, policy, profile=expected) - release
    seconds = end - release
    slowdown = seconds / alone if alone > 0 else 1.0
    return JobTime(name, release, end, seconds, alone, slowdown)


def only(
    problem: Problem, realization: Realization, name: str
) -> tuple[Problem, Realization]:
    """Return one of several jobs without the others, where it stands."""
    job = problem.job
    tasks = [t for t, task in enumerate(job.tasks) if task.job_name == name]
    place = {task: position for position, task in enumerate(tasks)}
    edges = [e for e, edge in enumerate(job.edges) if edge.source in place]
    longest = max(job.rounds[t] for t in tasks)
    part = Job(
        tuple(job.tasks[t] for t in tasks),
        tuple(
            replace(
                job.edges[e],
                source=place[job.edges[e].source],
                destination=place[job.edges[e].destination],
            )
            for e in edges
        ),
        longest,
        settings=job.settings_of(name),
    )
    standing = Placement(tuple(problem.placement.machine_of[t] for t in tasks))
    return Problem(problem.cluster, part, standing), Realization(
        realization.times[tasks, :longest], realization.volumes[edges, :longest]
    )
