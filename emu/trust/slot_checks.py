"""Checks of an audit on slots of pools, and on edges that read the newest.

A ``tolerance`` is the seconds by which a time may be off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from emu.array_types import Floats, Ints
from emu.trust.audit_checks import ROUNDING, allowance, known_ends, landings
from emu.trust.violation import Findings, Violation, task_name

if TYPE_CHECKING:
    from emu.problem import Pool, Schedule


def slot_faults(schedule: Schedule, tolerance: float) -> Findings:
    """Return every misuse of a slot.

    No more tasks hold slots than there are, no task gets one before a task of the same
    pool that came earlier, and quotas change as tuners may change them. The direction
    of a change follows from the tasks that waited then, and is not computed again.
    """
    pools = schedule.problem.pools
    violations: list[Violation] = []
    if pools:
        arrivals = _arrivals_at_slot(schedule)
        for pool in pools:
            violations += _overdrawn(schedule, pool, tolerance)
            violations += _overtaken(
                schedule,
                pool,
                arrivals=arrivals,
                tolerance=tolerance,
            )
    violations += _quota_faults(schedule, tolerance)
    looks = 0
    if schedule.quotas is not None:
        looks = schedule.quotas.size
    return len(pools) + looks, violations


def _arrivals_at_slot(schedule: Schedule) -> Floats:
    """Return when every (task, iteration) had all that it needs but a slot, seconds."""
    job = schedule.problem.job
    task_ends, flow_landings = known_ends(schedule)
    arrivals = np.zeros_like(task_ends)
    # A task needs its own iteration before, as much as any input.
    arrivals[:, 1:] = task_ends[:, :-1]

    for position, edge in enumerate(job.edges):
        count = job.flow_counts[position]
        landed = flow_landings[position, :count]
        turns = slice(edge.lag, edge.lag + count)
        # A view: the maximum is written into `arrivals`.
        inputs = arrivals[edge.destination, turns]
        np.maximum(inputs, landed, out=inputs)
    return arrivals


def _overdrawn(
    schedule: Schedule,
    pool: Pool,
    tolerance: float,
) -> Iterator[Violation]:
    """Yield the instant at which most slots are taken beyond the quota of a pool.

    Slots that are held when the quota falls are beyond it by right: only those that
    take one are compared.
    """
    times, counts = _counts_when_taken(schedule, pool, tolerance)
    if not times.size:
        return
    slots = _most_slots(schedule, pool, times, tolerance)
    excess = counts - slots
    worst = int(excess.argmax())
    quota = int(slots[worst])
    over = int(excess[worst])
    if over > 0:
        machine = schedule.problem.cluster.machines[pool.machine]
        name = f"{pool.name} of {machine.name}"
        instant = float(times[worst])
        sentence = f"pool {name} of {quota} slots is overdrawn at {instant:g} s"
        yield Violation(
            constraint="slots",
            subject=name,
            amount=over,
            unit="slots",
            sentence=sentence,
        )


def _most_slots(
    schedule: Schedule,
    pool: Pool,
    times: Floats,
    tolerance: float,
) -> Ints:
    """Return the largest quota that a pool may have had at each time."""
    changes, quotas = schedule.slots_of(pool)
    # A change of quota within the tolerance may be before or after.
    slack = allowance(times, tolerance)
    first = np.searchsorted(changes, times - slack, side="right") - 1
    end = np.searchsorted(changes, times + slack, side="right")
    # Before time 0, which the check of task times refuses, the first quota holds.
    first = np.maximum(first, 0)
    end = np.maximum(end, 1)
    spans = zip(first, end, strict=True)
    most = [quotas[low:high].max() for low, high in spans]
    return np.array(most, dtype=np.int64)


def _counts_when_taken(
    schedule: Schedule,
    pool: Pool,
    tolerance: float,
) -> tuple[Floats, Ints]:
    """Return when slots of a pool are taken, and how many are taken from then on."""
    takers = list(pool.takers)
    freers = list(pool.freers)
    starts = schedule.task_start[takers].ravel()
    # A slot may be free a tolerance before it is said to be.
    frees = schedule.task_end[freers].ravel() - tolerance
    times = np.concatenate([starts, frees])
    changes = np.repeat([1, -1], [starts.size, frees.size])
    # What ends never is named as a task that did not run.
    took_place = np.isfinite(times)
    times = times[took_place]
    changes = changes[took_place]

    # Who frees a slot in the instant in which another takes it goes first.
    order = np.lexsort((changes, times))
    takes = changes[order] > 0
    counts = np.cumsum(changes[order])
    return times[order][takes], counts[takes]


def _overtaken(
    schedule: Schedule,
    pool: Pool,
    arrivals: Floats,
    tolerance: float,
) -> Iterator[Violation]:
    """Yield the tasks that got a slot before one that came earlier."""
    takers = np.array(pool.takers, dtype=np.int64)
    starts = schedule.task_start[takers]
    row, n = np.nonzero(~np.isnan(starts))
    order = np.argsort(starts[row, n], kind="stable")
    task = takers[row[order]]
    n = n[order]
    start = schedule.task_start[task, n]
    arrival = arrivals[task, n]

    # The earliest arrival among all that start later than each.
    last_first = np.minimum.accumulate(arrival[::-1])
    earliest = np.append(last_first[::-1], np.inf)
    # Starts within a tolerance of each other may have been in either order.
    later = np.searchsorted(start, start + tolerance, side="right")
    earliest_later = earliest[later]
    is_ahead = earliest_later < arrival - tolerance
    for position in np.flatnonzero(is_ahead).tolist():
        name = task_name(
            schedule.problem.job,
            task=task[position],
            iteration=n[position],
        )
        seconds = arrival[position] - earliest_later[position]
        sentence = f"{name} got a slot of {pool.name} before a task that came earlier"
        yield Violation(
            constraint="slots",
            subject=name,
            amount=float(seconds),
            unit="s",
            sentence=sentence,
        )


def _quota_faults(schedule: Schedule, tolerance: float) -> Iterator[Violation]:
    """Yield the looks that tuners missed, and steps that they may not take."""
    cluster = schedule.problem.cluster
    tuners = zip(
        cluster.tuners,
        cluster.paths_of(schedule.quotas),
        cluster.tuned_names,
        strict=True,
    )
    for tuner, path, name in tuners:
        # A look in the instant of the end may be missing: rounding decides on it.
        last_look = schedule.length * (1 - ROUNDING) - tolerance
        # A run without an end, which the check of task times names, has no last look.
        due = 0
        if math.isfinite(last_look):
            due = int(last_look / tuner.period)
        looks = len(path)
        if looks < due:
            yield Violation(
                constraint="slots",
                subject=name,
                amount=float(due - looks),
                unit="looks",
                sentence=f"the quota of {name} was looked at {looks} of {due} times",
            )

        machine = cluster.machines[tuner.machine]
        quota_before = machine.slots[tuner.pool]
        for number, quota in enumerate(path, 1):
            if quota not in tuner.steps(quota_before):
                step = quota - quota_before
                time = tuner.period * number
                sentence = (
                    f"the quota of {name} went from {quota_before} to {quota} "
                    f"at {time:g} s"
                )
                yield Violation(
                    constraint="slots",
                    subject=name,
                    amount=float(abs(step)),
                    unit="slots",
                    sentence=sentence,
                )
            quota_before = quota


def newest_reads(schedule: Schedule, tolerance: float) -> Findings:
    """Return the wrong reads of edges that read the newest.

    An iteration older than the lag allows, one that had not arrived, or one where a
    newer had.
    """
    job = schedule.problem.job
    violations: list[Violation] = []
    landed = landings(schedule)
    _, noticed = known_ends(schedule)
    latest = [position for position, edge in enumerate(job.edges) if edge.latest]
    for position in latest:
        edge = job.edges[position]
        reader = edge.destination
        count = job.flow_counts[position]
        for n in range(job.rounds[reader]):
            start = schedule.task_start[reader, n]
            # -1: nothing was read, which the lag allows before its first iteration.
            read = -1
            if schedule.reads is not None:
                read = int(schedule.reads[position, n])
            # A source with fewer iterations has no newer one to read than its last.
            least = min(n - edge.lag, count - 1)
            # The scheduler hears of a flow after it landed: it may not know of the
            # newest of those that are there.
            is_known = noticed[position, :count] < start - tolerance
            newest = int(is_known.sum()) - 1

            if read < least:
                fault = f"iteration {read}, the lag allows {least} and newer"
            elif read >= count or (
                read >= 0 and landed[position, read] > start + tolerance
            ):
                fault = f"iteration {read} before it arrived"
            elif read < newest:
                fault = f"iteration {read} where {newest} had arrived"
            else:
                continue
            name = task_name(job, reader, n)
            sentence = f"{name} read of {job.edge_names[position]} {fault}"
            amount = float(abs(newest - read))
            violations.append(
                Violation(
                    constraint="reads",
                    subject=name,
                    amount=amount,
                    unit="iterations",
                    sentence=sentence,
                )
            )
    return len(latest) * job.iterations, violations
