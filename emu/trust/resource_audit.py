"""Audit slots, channels and latest-value reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.trust.violation import Findings, Violation, flow_name, task_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from emu.problem import Pool, Problem, Schedule

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


class Line(NamedTuple):
    """The flows of a channel between machines, in the order in which they got ready."""

    channel: str
    """Its name."""
    edge: Ints
    iteration: Ints
    """Each flow; those ready together sorted by what they serve, then by name."""


def lines(problem: Problem, ready: Floats) -> Iterator[Line]:
    """Yield the line of every channel.

    Parameters
    ----------
    ready
        When (edge, iteration) got ready, seconds; NaN where nothing is sent.
    """
    job = problem.job
    ranks = np.array(job.edge_ranks, dtype=np.int64)
    lags = np.array([edge.lag for edge in job.edges], dtype=np.int64)
    for channel in job.channels:
        over = [
            bool(hops) and edge.channel == channel
            for edge, hops in zip(job.edges, problem.hops, strict=True)
        ]
        edge, n = np.nonzero(np.array(over)[:, None] & ~np.isnan(ready))
        order = np.lexsort((ranks[edge], n + lags[edge], ready[edge, n]))
        yield Line(channel, edge[order], n[order])


def channel_faults(schedule: Schedule, tolerance: float) -> Iterator[Violation]:
    """Yield every turn on a channel that was not kept.

    No flow starts before the one ends that went before it on its channel, and none
    before a flow that got ready earlier.

    Parameters
    ----------
    tolerance
        Seconds by which a time may be off.
    """
    job = schedule.problem.job
    known, _ = _known_ends(schedule)
    sources = np.array([edge.source for edge in job.edges], dtype=np.int64)
    for channel, edges, iterations in lines(schedule.problem, schedule.flow_ready):
        ready = schedule.flow_ready[edges, iterations]
        ready = np.maximum(ready, known[sources[edges], iterations])
        start = schedule.flow_start[edges, iterations]
        end = schedule.flow_end[edges, iterations]
        # Of equal starts those without bytes went first: times of readiness that are
        # equal but for rounding do not say which stood before which.
        order = np.lexsort((ready, end, start))
        edge, n = edges[order], iterations[order]
        ready, start, end = ready[order], start[order], end[order]
        busy = np.maximum.accumulate(end)[:-1] - start[1:]
        # The least readiness among all that start later than each.
        least = np.minimum.accumulate(ready[::-1])[::-1][1:]
        for off, first, words in (
            (busy, 1, "started while another flow was under way"),
            (ready[:-1] - least, 0, "started before one that got ready earlier"),
        ):
            slack = tolerance + 1e-12 * np.abs(start[1:])
            for i in np.flatnonzero(off > slack).tolist():
                name = flow_name(job, int(edge[i + first]), int(n[i + first]))
                sentence = f"{name} {words} on channel {channel}"
                yield Violation("channels", name, float(off[i]), "s", sentence)


def came_to_wait(schedule: Schedule) -> NDArray[np.float64]:
    """Return when every (task, iteration) had all that it needs but a slot, seconds."""
    job = schedule.problem.job
    task_end, flow_end = _known_ends(schedule)
    came = np.zeros_like(task_end)
    came[:, 1:] = task_end[:, :-1]
    for e, edge in enumerate(job.edges):
        count = job.flow_counts[e]
        into = came[edge.destination, edge.lag : edge.lag + count]
        np.maximum(into, flow_end[e, :count], out=into)
    return came


def _known_ends(schedule: Schedule) -> tuple[Floats, Floats]:
    """Return when the scheduler knew of the end of each task and of each flow.

    With the ends themselves 1 of 69,386 comparisons failed on two busy cores: an
    arrival that was reported after the decision which did not know of it.
    """
    task, flow = schedule.task_settled, schedule.flow_settled
    return (
        schedule.task_end if task is None else task,
        schedule.flow_end if flow is None else flow,
    )


def slot_faults(schedule: Schedule, tolerance: float) -> Findings:
    """Return every misuse of a slot.

    No more tasks hold slots than there are, no task gets one before a task of the same
    pool that came earlier, and quotas change as tuners may change them.

    Parameters
    ----------
    tolerance
        Seconds by which a time may be off.
    """
    found = [*_misused(schedule, tolerance), *_mistuned(schedule, tolerance)]
    looks = 0 if schedule.quotas is None else schedule.quotas.size
    return len(schedule.problem.pools) + looks, found


def _misused(schedule: Schedule, tolerance: float) -> Iterator[Violation]:
    came = came_to_wait(schedule) if schedule.problem.pools else np.empty((0, 0))
    for pool in schedule.problem.pools:
        machine = schedule.problem.cluster.machines[pool.machine].name
        name = f"{pool.name} of {machine}"
        over, slots, time = _most_over(schedule, pool, tolerance)
        if over > 0:
            sentence = f"pool {name} of {slots} slots is overdrawn at {time:g} s"
            yield Violation("slots", name, over, "slots", sentence)
        yield from _overtaken(schedule, pool, came, tolerance)


def _mistuned(schedule: Schedule, tolerance: float) -> Iterator[Violation]:
    """Yield every look that a tuner missed, and every step that its rule never takes.

    Whether a quota was to rise or to fall, by what waited then, is not computed again.
    """
    cluster = schedule.problem.cluster
    paths = cluster.paths_of(schedule.quotas)
    for tuner, path, name in zip(
        cluster.tuners, paths, cluster.tuned_names, strict=True
    ):
        due = int((schedule.makespan * (1 - 1e-12) - tolerance) / tuner.period)
        if len(path) < due:
            sentence = f"the quota of {name} was looked at {len(path)} of {due} times"
            off = float(due - len(path))
            yield Violation("slots", name, off, "looks", sentence)
        before = cluster.machines[tuner.machine].slots[tuner.pool]
        for number, quota in enumerate(path):
            if quota not in tuner.steps(before):
                at = tuner.period * (number + 1)
                sentence = (
                    f"the quota of {name} went from {before} to {quota} at {at:g} s"
                )
                off = float(abs(quota - before))
                yield Violation("slots", name, off, "slots", sentence)
            before = quota


def _most_over(
    schedule: Schedule, pool: Pool, tolerance: float
) -> tuple[int, int, float]:
    """Return the most slots taken beyond the quota, that quota, and when it was.

    Slots that are held when the quota falls are beyond it by right.
    """
    taken = schedule.task_start[list(pool.takers)].ravel()
    freed = schedule.task_end[list(pool.freers)].ravel() - tolerance
    times = np.concatenate([taken, freed])
    change = np.repeat([1, -1], [taken.size, freed.size])
    there = ~np.isnan(times)
    times, change = times[there], change[there]
    order = np.lexsort((change, times))
    held, times, takes = np.cumsum(change[order]), times[order], change[order] > 0
    if not takes.any():
        return 0, pool.slots, 0.0
    held, times = held[takes], times[takes]
    since, quotas = schedule.slots_of(pool)
    slack = tolerance + 1e-12 * times
    first = np.maximum(np.searchsorted(since, times - slack, side="right") - 1, 0)
    last = np.searchsorted(since, times + slack, side="right")
    slots = [int(quotas[a:b].max()) for a, b in zip(first, last, strict=True)]
    at = int((held - slots).argmax())
    return int(held[at]) - slots[at], slots[at], float(times[at])


def _overtaken(
    schedule: Schedule, pool: Pool, came: NDArray[np.float64], tolerance: float
) -> Iterator[Violation]:
    takers = np.array(pool.takers, dtype=np.int64)
    row, n = np.nonzero(~np.isnan(schedule.task_start[takers]))
    order = np.argsort(schedule.task_start[takers[row], n], kind="stable")
    task, n = takers[row[order]], n[order]
    start, since = schedule.task_start[task, n], came[task, n]
    # The earliest arrival among all that start later than each.
    earliest = np.append(np.minimum.accumulate(since[::-1])[::-1], np.inf)
    later = np.searchsorted(start, start + tolerance, side="right")
    for i in np.flatnonzero(earliest[later] < since - tolerance).tolist():
        who = task_name(schedule.problem.job, task[i], n[i])
        sentence = f"{who} got a slot of {pool.name} before a task that came earlier"
        ahead = float(since[i] - earliest[later[i]])
        yield Violation("slots", who, ahead, "s", sentence)


def newest_reads(schedule: Schedule, tolerance: float) -> Findings:
    """Return the wrong reads of edges that read the newest.

    An iteration older than the lag allows, one that had not arrived, or one where a
    newer had.

    Parameters
    ----------
    tolerance
        Seconds by which a time may be off.
    """
    latest = [e for e, edge in enumerate(schedule.problem.job.edges) if edge.latest]
    found = [fault for e in latest for fault in _faults(schedule, e, tolerance)]
    return len(latest) * schedule.problem.job.iterations, found


def _faults(schedule: Schedule, e: int, tolerance: float) -> Iterator[Violation]:
    job = schedule.problem.job
    edge, sent = job.edges[e], job.flow_counts[e]
    arrived, known = schedule.flow_end[e, :sent], _known_ends(schedule)[1][e, :sent]
    for n in range(job.rounds[edge.destination]):
        who = task_name(job, edge.destination, n)
        start = schedule.task_start[edge.destination, n]
        read = -1 if schedule.reads is None else int(schedule.reads[e, n])
        least = min(n - edge.lag, sent - 1)
        newest = int((known < start - tolerance).sum()) - 1
        if read < least:
            how = f"iteration {read}, the lag allows {least} and newer"
        elif read >= sent or (read >= 0 and arrived[read] > start + tolerance):
            how = f"iteration {read} before it arrived"
        elif read < newest:
            how = f"iteration {read} where {newest} had arrived"
        else:
            continue
        sentence = f"{who} read of {job.edge_names[e]} {how}"
        yield Violation("reads", who, float(abs(newest - read)), "iterations", sentence)
