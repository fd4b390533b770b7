"""Checks of an audit that stand alone: stated values, slots, channels, latest reads.

A ``tolerance`` is the seconds by which a time may be off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emu.trust.violation import Findings, Violation, flow_name, list_beyond, task_name

if TYPE_CHECKING:
    from emu.problem import Job, Pool, Problem, RateHistory, Schedule

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

#: Share of a time that rounding may take: times are sums of many.
_ROUNDING = 1e-12


def impossible_values(schedule: Schedule) -> Iterator[Findings]:
    """(7), (12): times and bytes of flows are numbers, of flows that are sent only."""
    job = schedule.problem.job
    count = np.array(job.flow_counts, dtype=np.int64)
    # A source may have fewer iterations than the job: what is beyond is never sent.
    exists = np.arange(job.iterations) < count[:, None]
    remote = np.array([bool(hops) for hops in schedule.problem.hops], dtype=bool)
    name = partial(flow_name, job)
    for column in ("ready", "start", "end", "bytes"):
        values = getattr(schedule, f"flow_{column}")
        constraint = "(12)" if column == "bytes" else "(7)"
        bad = exists & remote[:, None] & ~(np.isfinite(values) & (values >= 0))
        if column == "end":  # what was not sent is named by its own sentence
            bad &= ~np.isnan(values)

        def write(e: int, n: int, of: Floats = values, column: str = column) -> str:
            return f"has {of[e, n]} as its {column}"

        yield list_beyond(constraint, 1 * bad, 0, name, write, "values")
        extra = 1 * (~exists & np.isfinite(values))
        words = f"is not to be sent and has a {column}"
        yield 0, list_beyond(constraint, extra, 0, name, words, "iterations")[1]


def work_of(problem: Problem, start: Floats, end: Floats) -> Floats:
    """Return the seconds that tasks worked at the full speed of their machines.

    ``start`` and ``end``: seconds of (task, iteration); gates stand on no machine.
    """
    cluster = problem.cluster
    work = end - start
    for task, machine in enumerate(problem.placement.machine_of):
        name = cluster.machines[machine].name
        changes = [c for c in cluster.speed_changes if c.machine == name]
        if not changes or problem.job.tasks[task].gate:
            continue
        losses = [0.0]
        share = 1.0
        since = [0.0]
        for change in sorted(changes, key=lambda change: change.time):
            losses.append(losses[-1] + (1.0 - share) * (change.time - since[-1]))
            since.append(change.time)
            share = change.share
        for times, sign in ((end[task], -1), (start[task], 1)):
            # After the last change its share holds for good.
            beyond = np.maximum(times - since[-1], 0.0) * (1.0 - share)
            work[task] += sign * (np.interp(times, since, losses) + beyond)
    return work


def task_times(
    schedule: Schedule, tolerance: float, *, exact: Floats | None, least: Floats | None
) -> Iterator[Findings]:
    """(6): every task takes the time that was measured, and what was stated at least.

    ``exact`` and ``least``: seconds of (task, iteration); None is not compared.
    """
    job = schedule.problem.job
    took = work_of(schedule.problem, schedule.task_start, schedule.task_end)
    slack = tolerance + _ROUNDING * np.abs(schedule.task_end)
    for times, words in ((exact, "takes"), (least, "takes less than its time:")):
        if times is None:
            continue
        off = np.abs(took - times) if times is exact else times - took

        def write(j: int, n: int, of: Floats = times, words: str = words) -> str:
            return f"{words} {took[j, n]:g} of {of[j, n]:g} s"

        yield list_beyond("(6)", off, slack, partial(task_name, job), write)


def readiness(schedule: Schedule, tolerance: float) -> Iterator[Findings]:
    """(7): a flow is ready when its source ended, and starts no earlier."""
    job = schedule.problem.job
    if not job.edges:
        return
    ends = schedule.task_end[[edge.source for edge in job.edges]]
    ready = schedule.flow_ready
    start = schedule.flow_start
    slack = tolerance + _ROUNDING * np.abs(ends)
    for off, words in (
        (np.abs(ready - ends), "is not ready when its source ended"),
        (ready - start, "started before it was ready"),
    ):
        yield list_beyond("(7)", off, slack, partial(flow_name, job), words)


def rate_rows(
    schedule: Schedule, rates: RateHistory | None, tolerance: float
) -> Iterator[Findings]:
    """(12): rates are numbers, in the order of time, of flows that are under way.

    ``rates``: as they were written; the schedule holds those of them that are `sound`.
    """
    job = schedule.problem.job
    rows = schedule.rates
    if rates is None or rows is None:
        return

    def write_value(i: int) -> str:
        at = f"at {rates.time[i]:g} s of edge {rates.edge[i]}"
        return f"is {rates.rate[i]:g} B/s {at}, iteration {rates.iteration[i]}"

    bad = 1 * ~_sound(job, rates)
    yield list_beyond("(12)", bad, 0, "rate {}".format, write_value, "values")
    time = rows.time
    edge = rows.edge
    iteration = rows.iteration
    rate = rows.rate
    flow = edge * job.iterations + iteration
    end = schedule.flow_end.ravel()[flow]
    remote = np.array([bool(hops) for hops in schedule.problem.hops], dtype=bool)
    back = np.zeros(time.size)
    back[1:] = np.maximum.accumulate(time)[:-1] - time[1:]
    slack = tolerance + _ROUNDING * np.abs(time)

    def name(i: int) -> str:
        return flow_name(job, int(edge[i]), int(iteration[i]))

    for off, words in (
        ((schedule.flow_start.ravel()[flow] - time) * (rate > 0), "before it started"),
        ((time - end) * (rate > 0), "after it ended"),
        (np.where(remote[edge] & ~np.isnan(end), 0.0, np.inf), "and is not sent"),
        (back, "in a row that is not in the order of time"),
    ):

        def write(i: int, words: str = words) -> str:
            return f"has a rate {words}, at {time[i]:g} s"

        yield list_beyond("(12)", off, slack, name, write)


def sound(schedule: Schedule) -> Schedule:
    """Return the schedule without the rows of its history that are no rates of it."""
    rates = schedule.rates
    if rates is None or (is_sound := _sound(schedule.problem.job, rates)).all():
        return schedule
    return replace(schedule, rates=rates.rows(is_sound))


def _sound(job: Job, rates: RateHistory) -> NDArray[np.bool_]:
    is_sound = np.isfinite(rates.rate) & (rates.rate >= 0) & np.isfinite(rates.time)
    is_sound &= (rates.edge >= 0) & (rates.edge < len(job.edges))
    is_sound &= (rates.iteration >= 0) & (rates.iteration < job.iterations)
    return is_sound


def first_stores(schedule: Schedule, tolerance: float) -> Iterator[Findings]:
    """(5): graph stores that wait for no task, nor for a slot, begin with the run."""
    job = schedule.problem.job
    waiting = {edge.destination for edge in job.edges if edge.lag == 0}
    stores = [
        j
        for j, task in enumerate(job.tasks)
        if task.kind == "graph_store" and not task.takes and j not in waiting
    ]
    violations = []
    for j in stores:
        late = float(schedule.task_start[j, 0])
        name = task_name(job, j, 0)
        if late > tolerance:
            sentence = f"{name} started after the run began"
            violations.append(Violation("(5)", name, late, "s", sentence))
    yield len(stores), violations


def makespan_of(
    schedule: Schedule, stated: float | None, tolerance: float
) -> Iterator[Findings]:
    """(15): the makespan is the end of the last task, and what deaths add."""
    if stated is None:
        return
    last = float(np.nanmax(schedule.task_end)) + schedule.outages.seconds
    off = abs(stated - last)
    broken = not off <= tolerance + _ROUNDING * abs(last)  # NaN is broken too
    sentence = (
        f"the makespan is said to be {stated:g} s, the last task ends at {last:g} s"
    )
    amount = off if np.isfinite(off) else last
    violations = [Violation("(15)", "the makespan", amount, "s", sentence)]
    yield 1, violations if broken else []


def lines(problem: Problem, ready: Floats) -> Iterator[tuple[str, Ints, Ints]]:
    """Yield every channel, and edge and iteration of its flows as they got ready.

    Those that got ready together are sorted by what they serve, then by name.
    ``ready``: when (edge, iteration) did, seconds; NaN where nothing is sent.
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
        yield channel, edge[order], n[order]


def channel_faults(schedule: Schedule, tolerance: float) -> Iterator[Violation]:
    """Yield every turn on a channel that was not kept.

    No flow starts before the one ends that went before it on its channel, and none
    before a flow that got ready earlier.
    """
    job = schedule.problem.job
    ends, _ = _ends_as_known(schedule)
    sources = np.array([edge.source for edge in job.edges], dtype=np.int64)
    for channel, edges, iterations in lines(schedule.problem, schedule.flow_ready):
        ready = schedule.flow_ready[edges, iterations]
        ready = np.maximum(ready, ends[sources[edges], iterations])
        start = schedule.flow_start[edges, iterations]
        end = schedule.flow_end[edges, iterations]
        # Of equal starts those without bytes went first: times of readiness that are
        # equal but for rounding do not say which stood before which.
        order = np.lexsort((ready, end, start))
        edge = edges[order]
        n = iterations[order]
        ready, start, end = ready[order], start[order], end[order]
        busy = np.maximum.accumulate(end)[:-1] - start[1:]
        # The least readiness among all that start later than each.
        least = np.minimum.accumulate(ready[::-1])[::-1][1:]
        for off, first, words in (
            (busy, 1, "started while another flow was under way"),
            (ready[:-1] - least, 0, "started before one that got ready earlier"),
        ):
            slack = tolerance + _ROUNDING * np.abs(start[1:])
            late = edge[first:], n[first:]

            def name(i: int, of: tuple[Ints, Ints] = late) -> str:
                return flow_name(job, int(of[0][i]), int(of[1][i]))

            sentence = f"{words} on channel {channel}"
            yield from list_beyond("channels", off, slack, name, sentence)[1]


def arrival_at_slot(schedule: Schedule) -> NDArray[np.float64]:
    """Return when every (task, iteration) had all that it needs but a slot, seconds."""
    job = schedule.problem.job
    task_end, flow_end = _ends_as_known(schedule)
    arrivals = np.zeros_like(task_end)
    arrivals[:, 1:] = task_end[:, :-1]
    for e, edge in enumerate(job.edges):
        count = job.flow_counts[e]
        into = arrivals[edge.destination, edge.lag : edge.lag + count]
        np.maximum(into, flow_end[e, :count], out=into)
    return arrivals


def landings(schedule: Schedule, ends: Floats | None = None) -> Floats:
    """Return when every (edge, iteration) is at its destination, seconds.

    A latency after its end: the latter, or ``ends``.
    """
    ends = schedule.flow_end if ends is None else ends
    return ends + schedule.problem.latencies[:, None]


def _ends_as_known(schedule: Schedule) -> tuple[Floats, Floats]:
    """Return when the scheduler knew of each task's end and of each flow's landing.

    With the ends themselves 1 of 69,386 comparisons failed on two busy cores: an
    arrival that was reported after the decision which did not know of it.
    """
    task = schedule.task_settled
    flow = schedule.flow_settled
    return schedule.task_end if task is None else task, landings(schedule, flow)


def slot_faults(schedule: Schedule, tolerance: float) -> Findings:
    """Return every misuse of a slot.

    No more tasks hold slots than there are, no task gets one before a task of the same
    pool that came earlier, and quotas change as tuners may change them. Whether one was
    to rise or to fall, by what waited then, is not computed again.
    """
    violations: list[Violation] = []
    cluster = schedule.problem.cluster
    pools = schedule.problem.pools

    def report(subject: str, off: float, unit: str, sentence: str) -> None:
        violations.append(Violation("slots", subject, off, unit, sentence))

    arrivals = arrival_at_slot(schedule) if pools else np.empty((0, 0))
    for pool in pools:
        name = f"{pool.name} of {cluster.machines[pool.machine].name}"
        over, slots, time = _most_over(schedule, pool, tolerance)
        if over > 0:
            sentence = f"pool {name} of {slots} slots is overdrawn at {time:g} s"
            report(name, over, "slots", sentence)
        violations += _overtaken(schedule, pool, arrivals, tolerance)
    paths = cluster.paths_of(schedule.quotas)
    for tuner, path, name in zip(
        cluster.tuners, paths, cluster.tuned_names, strict=True
    ):
        # A look in the instant of the end may be missing: rounding decides on it.
        due = int((schedule.length * (1 - 1e-12) - tolerance) / tuner.period)
        if len(path) < due:
            sentence = f"the quota of {name} was looked at {len(path)} of {due} times"
            report(name, float(due - len(path)), "looks", sentence)
        before = cluster.machines[tuner.machine].slots[tuner.pool]
        for number, quota in enumerate(path):
            if quota not in tuner.steps(before):
                at = tuner.period * (number + 1)
                off = float(abs(quota - before))
                went = f"went from {before} to {quota} at {at:g} s"
                report(name, off, "slots", f"the quota of {name} {went}")
            before = quota
    looks = 0 if schedule.quotas is None else schedule.quotas.size
    return len(pools) + looks, violations


def _most_over(
    schedule: Schedule, pool: Pool, tolerance: float
) -> tuple[int, int, float]:
    """Return the most slots taken beyond the quota, that quota, and when it was.

    Slots that are held when the quota falls are beyond it by right.
    """
    starts = schedule.task_start[list(pool.takers)].ravel()
    frees = schedule.task_end[list(pool.freers)].ravel() - tolerance
    times = np.concatenate([starts, frees])
    change = np.repeat([1, -1], [starts.size, frees.size])
    there = ~np.isnan(times)
    times, change = times[there], change[there]
    # Who frees a slot in the instant in which another takes it goes first.
    order = np.lexsort((change, times))
    counts, times, takes = np.cumsum(change[order]), times[order], change[order] > 0
    if not takes.any():
        return 0, pool.slots, 0.0
    counts, times = counts[takes], times[takes]
    since, quotas = schedule.slots_of(pool)
    slack = tolerance + 1e-12 * times
    first = np.maximum(np.searchsorted(since, times - slack, side="right") - 1, 0)
    last = np.searchsorted(since, times + slack, side="right")
    slots = [int(quotas[a:b].max()) for a, b in zip(first, last, strict=True)]
    at = int((counts - slots).argmax())
    return int(counts[at]) - slots[at], slots[at], float(times[at])


def _overtaken(
    schedule: Schedule, pool: Pool, came: NDArray[np.float64], tolerance: float
) -> Iterator[Violation]:
    takers = np.array(pool.takers, dtype=np.int64)
    row, n = np.nonzero(~np.isnan(schedule.task_start[takers]))
    order = np.argsort(schedule.task_start[takers[row], n], kind="stable")
    task, n = takers[row[order]], n[order]
    start = schedule.task_start[task, n]
    since = came[task, n]
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
    """
    job = schedule.problem.job
    violations = []
    latest = [e for e, edge in enumerate(job.edges) if edge.latest]
    ends = landings(schedule)
    notices = _ends_as_known(schedule)[1]
    for e in latest:
        edge = job.edges[e]
        count = job.flow_counts[e]
        for n in range(job.rounds[edge.destination]):
            start = schedule.task_start[edge.destination, n]
            read = -1 if schedule.reads is None else int(schedule.reads[e, n])
            least = min(n - edge.lag, count - 1)
            # By when the scheduler heard of each flow, which is after it landed.
            newest = int((notices[e, :count] < start - tolerance).sum()) - 1
            if read < least:
                how = f"iteration {read}, the lag allows {least} and newer"
            elif read >= count or (read >= 0 and ends[e, read] > start + tolerance):
                how = f"iteration {read} before it arrived"
            elif read < newest:
                how = f"iteration {read} where {newest} had arrived"
            else:
                continue
            who = task_name(job, edge.destination, n)
            off = float(abs(newest - read))
            sentence = f"{who} read of {job.edge_names[e]} {how}"
            violations.append(Violation("reads", who, off, "iterations", sentence))
    return len(latest) * job.iterations, violations
