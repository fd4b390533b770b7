"""Check that a schedule's values are numbers, and are those that were stated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from emu.trust.violation import Findings, Violation, flow_name, task_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from emu.problem import Job, Problem, RateHistory, Schedule

    Floats = NDArray[np.float64]

#: Share of a time that rounding may take: times are sums of many.
_ROUNDING = 1e-12


def impossible_values(schedule: Schedule) -> Iterator[Findings]:
    """(7), (12): times and bytes of flows are numbers, of flows that are sent only."""
    job = schedule.problem.job
    count = np.array(job.flow_counts, dtype=np.int64)
    sent = np.arange(job.iterations) < count[:, None]
    remote = np.array([bool(hops) for hops in schedule.problem.hops], dtype=bool)
    columns = {
        "ready": schedule.flow_ready,
        "start": schedule.flow_start,
        "end": schedule.flow_end,
        "bytes": schedule.flow_bytes,
    }
    for column, values in columns.items():
        constraint = "(12)" if column == "bytes" else "(7)"
        bad = sent & remote[:, None] & ~(np.isfinite(values) & (values >= 0))
        if column == "end":  # what was not sent is named by its own sentence
            bad &= ~np.isnan(values)
        found = []
        for e, n in np.argwhere(bad).tolist():
            name = flow_name(job, e, n)
            sentence = f"{name} has {values[e, n]} as its {column}"
            found.append(Violation(constraint, name, 1, "values", sentence))
        for e, n in np.argwhere(~sent & np.isfinite(values)).tolist():
            name = flow_name(job, e, n)
            sentence = f"{name} is not to be sent and has a {column}"
            found.append(Violation(constraint, name, 1, "iterations", sentence))
        yield values.size, found


def stated_work(problem: Problem, start: Floats, end: Floats) -> Floats:
    """Return the seconds that tasks worked at the full speed of their machines.

    Parameters
    ----------
    start, end
        Seconds of (task, iteration); gates stand on no machine.
    """
    cluster, worked = problem.cluster, end - start
    for task, machine in enumerate(problem.placement.machine_of):
        name = cluster.machines[machine].name
        changes = [c for c in cluster.speed_changes if c.machine == name]
        if not changes or problem.job.tasks[task].gate:
            continue
        lost, share, since = [0.0], 1.0, [0.0]
        for change in sorted(changes, key=lambda change: change.time):
            lost.append(lost[-1] + (1.0 - share) * (change.time - since[-1]))
            since.append(change.time)
            share = change.share
        for times, sign in ((end[task], -1), (start[task], 1)):
            beyond = np.maximum(times - since[-1], 0.0) * (1.0 - share)
            worked[task] += sign * (np.interp(times, since, lost) + beyond)
    return worked


def task_times(
    schedule: Schedule,
    tolerance: float,
    *,
    exact: Floats | None,
    least: Floats | None,
) -> Iterator[Findings]:
    """(6): every task takes the time that was measured, and what was stated at least.

    Parameters
    ----------
    tolerance
        Seconds by which a time may be off.
    exact, least
        Seconds of (task, iteration); None is not compared.
    """
    job = schedule.problem.job
    took = stated_work(schedule.problem, schedule.task_start, schedule.task_end)
    slack = tolerance + _ROUNDING * np.abs(schedule.task_end)
    for stated, words in ((exact, "takes"), (least, "takes less than its time:")):
        if stated is None:
            continue
        off = np.abs(took - stated) if stated is exact else stated - took
        found = []
        for j, n in np.argwhere(off > slack).tolist():
            name = task_name(job, j, n)
            sentence = f"{name} {words} {took[j, n]:g} of {stated[j, n]:g} s"
            found.append(Violation("(6)", name, float(off[j, n]), "s", sentence))
        yield took.size, found


def readiness(schedule: Schedule, tolerance: float) -> Iterator[Findings]:
    """(7): a flow is ready when its source ended, and starts no earlier."""
    job = schedule.problem.job
    if not job.edges:
        return
    ended = schedule.task_end[[edge.source for edge in job.edges]]
    ready, start = schedule.flow_ready, schedule.flow_start
    slack = tolerance + _ROUNDING * np.abs(ended)
    for off, words in (
        (np.abs(ready - ended), "is not ready when its source ended"),
        (ready - start, "started before it was ready"),
    ):
        found = []
        for e, n in np.argwhere(off > slack).tolist():
            name = flow_name(job, e, n)
            found.append(
                Violation("(7)", name, float(off[e, n]), "s", f"{name} {words}")
            )
        yield ready.size, found


def rate_rows(
    schedule: Schedule, rates: RateHistory | None, tolerance: float
) -> Iterator[Findings]:
    """(12): rates are numbers, in the order of time, of flows that are under way.

    Parameters
    ----------
    rates
        As they were written; the schedule holds those of them that are `sound`.
    """
    if rates is None or schedule.rates is None:
        return
    job = schedule.problem.job
    edge, iteration, rate = rates.edge, rates.iteration, rates.rate
    found = []
    for i in np.flatnonzero(~_sound(job, rates)).tolist():
        sentence = (
            f"rate {i} is {rate[i]:g} B/s at {rates.time[i]:g} s of edge {edge[i]}, "
            f"iteration {iteration[i]}"
        )
        found.append(Violation("(12)", f"rate {i}", 1, "values", sentence))
    yield rate.size, found
    yield from _misplaced(schedule, schedule.rates, tolerance)


def _misplaced(
    schedule: Schedule, rates: RateHistory, tolerance: float
) -> Iterator[Findings]:
    """(12): rates belong to flows that are sent, while these are under way."""
    job, time = schedule.problem.job, rates.time
    edge, iteration, rate = rates.edge, rates.iteration, rates.rate
    flow = edge * job.iterations + iteration
    end = schedule.flow_end.ravel()[flow]
    remote = np.array([bool(hops) for hops in schedule.problem.hops], dtype=bool)
    back = np.zeros(time.size)
    back[1:] = np.maximum.accumulate(time)[:-1] - time[1:]
    slack = tolerance + _ROUNDING * np.abs(time)
    for off, words in (
        ((schedule.flow_start.ravel()[flow] - time) * (rate > 0), "before it started"),
        ((time - end) * (rate > 0), "after it ended"),
        (np.where(remote[edge] & ~np.isnan(end), 0.0, np.inf), "and is not sent"),
        (back, "in a row that is not in the order of time"),
    ):
        found = []
        for i in np.flatnonzero(off > slack).tolist():
            name = flow_name(job, int(edge[i]), int(iteration[i]))
            sentence = f"{name} has a rate {words}, at {time[i]:g} s"
            found.append(Violation("(12)", name, float(off[i]), "s", sentence))
        yield time.size, found


def sound(schedule: Schedule) -> Schedule:
    """Return the schedule without the rows of its history that are no rates of it."""
    rates = schedule.rates
    if rates is None or (kept := _sound(schedule.problem.job, rates)).all():
        return schedule
    return replace(schedule, rates=rates.rows(kept))


def _sound(job: Job, rates: RateHistory) -> NDArray[np.bool_]:
    kept = np.isfinite(rates.rate) & (rates.rate >= 0) & np.isfinite(rates.time)
    kept &= (rates.edge >= 0) & (rates.edge < len(job.edges))
    kept &= (rates.iteration >= 0) & (rates.iteration < job.iterations)
    return kept


def first_stores(schedule: Schedule, tolerance: float) -> Iterator[Findings]:
    """(5): graph stores that wait for no task begin with the run."""
    job = schedule.problem.job
    waiting = {edge.destination for edge in job.edges if edge.lag == 0}
    stores = [
        j
        for j, task in enumerate(job.tasks)
        if task.kind == "graph_store" and j not in waiting
    ]
    found = []
    for j in stores:
        late, name = float(schedule.task_start[j, 0]), task_name(job, j, 0)
        if late > tolerance:
            sentence = f"{name} started after the run began"
            found.append(Violation("(5)", name, late, "s", sentence))
    yield len(stores), found


def makespan_of(
    schedule: Schedule, stated: float | None, tolerance: float
) -> Iterator[Findings]:
    """(15): the makespan is the end of the last task."""
    if stated is None:
        return
    last = float(np.nanmax(schedule.task_end))
    off = abs(stated - last)
    broken = not off <= tolerance + _ROUNDING * abs(last)  # NaN is broken too
    sentence = (
        f"the makespan is said to be {stated:g} s, the last task ends at {last:g} s"
    )
    amount = off if np.isfinite(off) else last
    found = [Violation("(15)", "the makespan", amount, "s", sentence)]
    yield 1, found if broken else []
