"""Check what a scenario states of tasks: their times, and the credit window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.trust.audit_checks import stated_work
from emu.trust.violation import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.problem import Job
    from emu.trust.guards.evidence import Evidence

TIMES, WINDOW = "task times", "window"
#: Share of its time by which a task may seem to be shorter, and of the run's end:
#: rounding, as nominal times are kept exactly.
_ROUNDING = 1e-6


def task_times(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first task that took less than its stated time, relative to the task.

    However many tasks are on the way, and however short each is.
    """
    if evidence.times is None:
        return
    schedule = evidence.schedule
    took = stated_work(schedule.problem, schedule.task_start, schedule.task_end)
    slack = _ROUNDING * evidence.times + 1e-12 * np.abs(schedule.task_end)
    where = np.argwhere(evidence.times - took > slack)
    if not where.size:
        return
    ends = schedule.task_end[tuple(where.T)]
    task, n = where[int(np.argmin(ends))]
    name, least = schedule.problem.job.tasks[task].name, evidence.times[task, n]
    yield Finding(
        TIMES,
        float(ends.min()),
        f"{name}[{n}] took {took[task, n]:.6g} s of the {least:.6g} s that are stated "
        f"(and {len(where) - 1} others)",
    )


def window(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first start that the credit window of a scenario does not allow.

    With window K, iteration n of what begins a mini-batch starts only after iteration
    n - K of every worker that it reaches. Which edges a job has for that does not
    enter: they may be the mistake.
    """
    schedule, job = evidence.schedule, evidence.schedule.problem.job
    for prefix, most in evidence.windows:
        for first, last in _begins_and_ends(job, prefix):
            rounds = min(job.rounds[first], job.iterations)
            for n in range(most, rounds):
                if n - most >= job.rounds[last]:
                    break
                start, end = schedule.task_start[first, n], schedule.task_end[last]
                before = end[n - most]
                if start < before - _ROUNDING * before:
                    names = job.tasks[first].name, job.tasks[last].name
                    yield Finding(
                        WINDOW,
                        float(start),
                        f"{names[0]}[{n}] started at {start:.6g} s, before "
                        f"{names[1]}[{n - most}] ended at {before:.6g} s: the credit "
                        f"window is {most}",
                    )
                    return


def _begins_and_ends(job: Job, prefix: str) -> Iterator[tuple[int, int]]:
    """Yield the tasks that begin a mini-batch of a job, each with a worker it feeds."""
    own = {
        t
        for t, task in enumerate(job.tasks)
        if task.name.startswith(prefix) and task.name != f"{prefix}release"
    }
    feeds: dict[int, set[int]] = {t: set() for t in own}
    fed: set[int] = set()
    for edge in job.edges:
        if edge.lag == 0 and edge.source in own and edge.destination in own:
            feeds[edge.source].add(edge.destination)
            fed.add(edge.destination)
    begins = [t for t in sorted(own) if t not in fed]
    stores = [t for t in begins if job.tasks[t].kind == "graph_store"]
    workers = {t for t in own if job.tasks[t].kind == "worker"}
    ends = workers or {t for t in own if not feeds[t]}
    for first in stores or begins:
        seen, left = {first}, [first]
        while left:
            further = feeds[left.pop()] - seen
            seen |= further
            left += further
        for last in sorted((seen & ends) - {first}):
            yield first, last
