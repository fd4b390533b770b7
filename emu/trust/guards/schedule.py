"""Check that a reported schedule keeps the constraints and the lower bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.trust.audit import PUNCTUALITY, audit
from emu.trust.guards.stated import most_stated, stated_hops
from emu.trust.violation import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from emu.problem import Problem
    from emu.trust.guards.evidence import Evidence

    Floats = NDArray[np.float64]

CONSTRAINTS = "constraints"
BOUNDS = "lower bounds"
#: Share by which rates and bytes may be off: rounding.
_EXACTNESS = 1e-6


def constraints(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first violation of every constraint (5)-(14), as `emu audit` finds it.

    Tasks take their stated times at the least; ports carry no more than they can by
    the assigned rates; everything comes after what it waits for.
    """
    report = audit(
        evidence.schedule,
        tolerance=_tolerance(evidence),
        relative=_EXACTNESS,
        least_times=evidence.times,
        volumes=evidence.volumes,
        makespan=evidence.schedule.makespan,
        at_once=evidence.at_once,
    )
    seen = set()
    for violation in report.violations:
        if violation.constraint not in seen:
            seen.add(violation.constraint)
            count = sum(v.constraint == violation.constraint for v in report.violations)
            others = f" (and {count - 1} others)" if count > 1 else ""
            yield Finding(CONSTRAINTS, np.nan, f"{violation}{others}")


def lower_bounds(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first task that ended earlier than any schedule allows.

    A task ends no sooner than the longest chain that leads to it, of stated times and
    of flows that have every link for themselves, with the most that it ever has. That
    holds for every prefix of a run, and of the last task for its makespan.
    """
    if evidence.times is None:
        return
    schedule = evidence.schedule
    stated = schedule.flow_bytes if evidence.volumes is None else evidence.volumes
    volumes = np.where(np.isnan(schedule.flow_bytes), 0.0, stated)
    least = earliest_ends(
        schedule.problem, evidence.times, volumes, at_once=evidence.at_once
    )
    early = least - schedule.task_end
    where = np.argwhere(early > _tolerance(evidence) + 1e-9 * least)
    if not where.size:
        return
    times = schedule.task_end[tuple(where.T)]
    task, n = where[int(np.argmin(times))]
    yield Finding(
        BOUNDS,
        float(times.min()),
        f"task {schedule.problem.job.tasks[task].name}[{n}] ended at "
        f"{schedule.task_end[task, n]:.6g} s, before {least[task, n]:.6g} s, which is "
        f"the least whatever the schedule (and {len(where) - 1} others)",
    )


def _tolerance(evidence: Evidence) -> float:
    """Return by how many emulated seconds times may be off."""
    wall = PUNCTUALITY + evidence.lead + evidence.stale + evidence.stall
    return wall / evidence.time_scale


def earliest_ends(
    problem: Problem,
    times: Floats,
    volumes: Floats,
    *,
    at_once: Callable[[float], float] = lambda _: 0.0,
) -> Floats:
    """Return when every (task, iteration) can end at the earliest, seconds.

    Parameters
    ----------
    times, volumes
        Seconds of (task, iteration), bytes of (edge, iteration).
    at_once
        Bytes that a link of some capacity lets go at once after a pause.
    """
    job, stated = problem.job, most_stated(problem)
    narrowest = [
        min((stated[link] for link in hops), default=np.inf)
        for hops in stated_hops(problem)
    ]
    free = np.array([at_once(c) if c < np.inf else 0.0 for c in narrowest])
    waits = np.maximum(volumes - free.reshape(-1, 1), 0.0)
    alone = (waits / np.array(narrowest).reshape(-1, 1)).tolist()
    ends = np.zeros((len(job.tasks), job.iterations)).tolist()
    there = np.zeros((len(job.edges), job.iterations)).tolist()
    incoming = [job.in_edges(task) for task in range(len(job.tasks))]
    outgoing = [job.out_edges(task) for task in range(len(job.tasks))]
    order, lags = job.order, [edge.lag for edge in job.edges]
    took = times.tolist()
    for n in range(job.iterations):
        for task in order:
            start = ends[task][n - 1] if n else 0.0
            for e in incoming[task]:
                if n >= lags[e] and there[e][n - lags[e]] > start:
                    start = there[e][n - lags[e]]
            ends[task][n] = end = start + took[task][n]
            for e in outgoing[task]:
                before = there[e][n - 1] if n else 0.0
                there[e][n] = max(end, before) + alone[e][n]
    return np.array(ends)
