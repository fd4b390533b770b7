"""Who held the slots of a pool, and who came first: for any Schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from emu.problem import Pool, Schedule


def came_to_wait(schedule: Schedule) -> NDArray[np.float64]:
    """Return when every (task, iteration) had all that it needs but a slot, seconds."""
    job = schedule.problem.job
    came = np.zeros_like(schedule.task_end)
    came[:, 1:] = schedule.task_end[:, :-1]
    for e, edge in enumerate(job.edges):
        count = job.flow_counts[e]
        into = came[edge.destination, edge.lag : edge.lag + count]
        np.maximum(into, schedule.flow_end[e, :count], out=into)
    return came


def slot_faults(
    schedule: Schedule, tolerance: float
) -> Iterator[tuple[str, float, str, str]]:
    """Yield pool or task, amount, unit and sentence of every misuse of a slot.

    No more tasks hold slots than there are, and nobody gets one before a task of the
    same pool that came earlier.

    Parameters
    ----------
    tolerance
        Seconds by which a time may be off.
    """
    came = came_to_wait(schedule) if schedule.problem.pools else np.empty((0, 0))
    for pool in schedule.problem.pools:
        machine = schedule.problem.cluster.machines[pool.machine].name
        name = f"{pool.name} of {machine}"
        most, time = _most_held(schedule, pool, tolerance)
        if most > pool.slots:
            sentence = f"pool {name} of {pool.slots} slots is overdrawn at {time:g} s"
            yield name, float(most - pool.slots), "slots", sentence
        yield from _overtaken(schedule, pool, came, tolerance)


def _most_held(schedule: Schedule, pool: Pool, tolerance: float) -> tuple[int, float]:
    """Return the most slots held at a time, and when that was."""
    taken = schedule.task_start[list(pool.takers)].ravel()
    freed = schedule.task_end[list(pool.freers)].ravel() - tolerance
    times = np.concatenate([taken, freed])
    change = np.repeat([1, -1], [taken.size, freed.size])
    there = ~np.isnan(times)
    times, change = times[there], change[there]
    order = np.lexsort((change, times))
    held = np.cumsum(change[order])
    at = int(held.argmax()) if held.size else 0
    return (int(held[at]), float(times[order][at])) if held.size else (0, 0.0)


def _overtaken(
    schedule: Schedule, pool: Pool, came: NDArray[np.float64], tolerance: float
) -> Iterator[tuple[str, float, str, str]]:
    takers = np.array(pool.takers, dtype=np.int64)
    row, n = np.nonzero(~np.isnan(schedule.task_start[takers]))
    order = np.argsort(schedule.task_start[takers[row], n], kind="stable")
    task, n = takers[row[order]], n[order]
    start, since = schedule.task_start[task, n], came[task, n]
    # The earliest arrival among all that start later than each.
    earliest = np.append(np.minimum.accumulate(since[::-1])[::-1], np.inf)
    later = np.searchsorted(start, start + tolerance, side="right")
    for i in np.flatnonzero(earliest[later] < since - tolerance).tolist():
        who = f"{schedule.problem.job.tasks[task[i]].name}[{n[i]}]"
        sentence = f"{who} got a slot of {pool.name} before a task that came earlier"
        yield who, float(since[i] - earliest[later[i]]), "s", sentence
