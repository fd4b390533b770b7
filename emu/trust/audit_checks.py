"""Checks of an audit that stand alone: stated values, times, rates, channels.

A ``tolerance`` is the seconds by which a time may be off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from emu.array_types import Floats, Ints, Mask
from emu.trust.violation import (
    Findings,
    Violation,
    Writer,
    flow_name,
    list_beyond,
    list_where,
    name_flows,
    task_name,
)

if TYPE_CHECKING:
    from emu.problem import Job, Problem, RateHistory, Schedule
    from emu.problem.changes import SpeedChange


#: Share of a time that rounding may take: times are sums of many.
ROUNDING = 1e-12


def allowance(times: Floats, tolerance: float) -> Floats:
    """Return the seconds by which each of ``times`` may be off."""
    return tolerance + ROUNDING * np.abs(times)


def is_remote(problem: Problem) -> Mask:
    """Return for every edge whether its flows cross a link."""
    crosses_link = [bool(hops) for hops in problem.hops]
    return np.array(crosses_link, dtype=bool)


def impossible_values(schedule: Schedule) -> Iterator[Findings]:
    """(7), (12): times and bytes of flows are numbers, of flows that are sent only."""
    job = schedule.problem.job
    name = partial(flow_name, job)
    counts = np.array(job.flow_counts, dtype=np.int64)
    # A source may have fewer iterations than the job: the others are never sent.
    is_sent = np.arange(job.iterations) < counts[:, None]
    crosses = is_sent & is_remote(schedule.problem)[:, None]

    for column in ("ready", "start", "end", "bytes"):
        constraint = "(12)" if column == "bytes" else "(7)"
        values: Floats = getattr(schedule, f"flow_{column}")
        is_number = np.isfinite(values)
        is_right = is_number & (values >= 0)
        is_wrong = crosses & ~is_right
        if column == "end":  # a flow without an end is named by its own sentence
            is_wrong &= ~np.isnan(values)
        yield list_where(
            constraint,
            is_wrong,
            name=name,
            words=f"has {{}} as its {column}",
            unit="values",
            values=[values],
        )

        is_extra = ~is_sent & is_number
        words = f"is not to be sent and has a {column}"
        _, extra = list_where(
            constraint,
            is_extra,
            name=name,
            words=words,
            unit="iterations",
        )
        # Counted above: these are the same values.
        yield 0, extra


def work_of(problem: Problem, start: Floats, end: Floats) -> Floats:
    """Return the seconds that tasks worked at the full speed of their machines.

    ``start`` and ``end``: seconds of (task, iteration); gates stand on no machine.
    """
    cluster = problem.cluster
    # Work where the speed never changes; what slower spells cost is taken off below.
    work = end - start
    for task, machine in enumerate(problem.placement.machine_of):
        name = cluster.machines[machine].name
        changes = [c for c in cluster.speed_changes if c.machine == name]
        if not changes or problem.job.tasks[task].gate:
            continue

        changes.sort(key=attrgetter("time"))
        work[task] -= _seconds_lost(changes, end[task])
        work[task] += _seconds_lost(changes, start[task])
    return work


def _seconds_lost(changes: list[SpeedChange], instants: Floats) -> Floats:
    """Return the seconds that were lost to a lower speed by each of ``instants``.

    ``changes``: of one machine, by time.
    """
    losses = [0.0]
    times = [0.0]
    share = 1.0
    for change in changes:
        length = change.time - times[-1]
        losses.append(losses[-1] + (1.0 - share) * length)
        times.append(change.time)
        share = change.share

    # After the last change its share holds for good.
    seconds_since = np.maximum(instants - times[-1], 0.0)
    since_last = seconds_since * (1.0 - share)
    return np.interp(instants, times, losses) + since_last


def task_times(
    schedule: Schedule,
    tolerance: float,
    *,
    exact: Floats | None,
    least: Floats | None,
) -> Iterator[Findings]:
    """(6): every task takes the time that was measured, and what was stated at least.

    ``exact`` and ``least``: seconds of (task, iteration); None is not compared.
    """
    name = partial(task_name, schedule.problem.job)
    work = work_of(schedule.problem, schedule.task_start, schedule.task_end)
    slack = allowance(schedule.task_end, tolerance)

    if exact is not None:
        yield list_beyond(
            "(6)",
            np.abs(work - exact),
            limit=slack,
            name=name,
            words="takes {:g} of {:g} s",
            values=[work, exact],
        )
    if least is not None:
        yield list_beyond(
            "(6)",
            least - work,
            limit=slack,
            name=name,
            words="takes less than its time: {:g} of {:g} s",
            values=[work, least],
        )


def readiness(schedule: Schedule, tolerance: float) -> Iterator[Findings]:
    """(7): a flow is ready when its source ended, and starts no earlier."""
    job = schedule.problem.job
    name = partial(flow_name, job)
    source_ends = schedule.task_end[[edge.source for edge in job.edges]]
    slack = allowance(source_ends, tolerance)

    distance = np.abs(schedule.flow_ready - source_ends)
    yield list_beyond(
        "(7)",
        distance,
        limit=slack,
        name=name,
        words="is not ready when its source ended",
    )
    early = schedule.flow_ready - schedule.flow_start
    yield list_beyond(
        "(7)",
        early,
        limit=slack,
        name=name,
        words="started before it was ready",
    )


def settled_ends(schedule: Schedule, tolerance: float) -> Iterator[Findings]:
    """(6), (7): no end is known before it is there."""
    job = schedule.problem.job
    words = "was known to have ended before it did"
    if schedule.task_settled is not None:
        yield list_beyond(
            "(6)",
            schedule.task_end - schedule.task_settled,
            limit=allowance(schedule.task_end, tolerance),
            name=partial(task_name, job),
            words=words,
        )
    if schedule.flow_settled is not None:
        yield list_beyond(
            "(7)",
            schedule.flow_end - schedule.flow_settled,
            limit=allowance(schedule.flow_end, tolerance),
            name=partial(flow_name, job),
            words=words,
        )


def rate_rows(
    schedule: Schedule,
    rates: RateHistory | None,
    tolerance: float,
) -> Iterator[Findings]:
    """(12): rates are numbers, in the order of time, of flows that are under way.

    ``rates``: as they were written; the schedule holds those of them that are `sound`.
    """
    if rates is None or schedule.rates is None:
        return
    # As written, so that rows which `sound` leaves out are named.
    yield _rate_values(schedule.problem.job, rates)
    yield from _rates_under_way(schedule, schedule.rates, tolerance)


def _rate_values(job: Job, rates: RateHistory) -> Findings:
    return list_where(
        "(12)",
        ~_sound(job, rates),
        name="rate {}".format,
        words="is {:g} B/s at {:g} s of edge {}, iteration {}",
        unit="values",
        values=[rates.rate, rates.time, rates.edge, rates.iteration],
    )


def _rates_under_way(
    schedule: Schedule,
    rates: RateHistory,
    tolerance: float,
) -> Iterator[Findings]:
    flow = (rates.edge, rates.iteration)
    time = rates.time
    start = schedule.flow_start[flow]
    end = schedule.flow_end[flow]
    # A rate of 0 may be stated at any time: it takes nothing from a link.
    carries = rates.rate > 0
    crosses = is_remote(schedule.problem)[rates.edge]
    is_sent = crosses & ~np.isnan(end)
    latest = np.maximum.accumulate(time)
    back = np.zeros(time.size)
    back[1:] = latest[:-1] - time[1:]

    offs = {
        "before it started": np.where(carries, start - time, 0.0),
        "after it ended": np.where(carries, time - end, 0.0),
        "and is not sent": np.where(is_sent, 0.0, np.inf),
        "in a row that is not in the order of time": back,
    }
    slack = allowance(time, tolerance)
    name = name_flows(schedule.problem.job, rates.edge, rates.iteration)
    for words, excess in offs.items():
        yield list_beyond(
            "(12)",
            excess,
            limit=slack,
            name=name,
            words=f"has a rate {words}, at {{:g}} s",
            values=[time],
        )


def sound(schedule: Schedule) -> Schedule:
    """Return the schedule without the rows of its history that are no rates of it."""
    rates = schedule.rates
    if rates is None:
        return schedule
    is_sound = _sound(schedule.problem.job, rates)
    # Nothing to leave out: a history of millions of rows is not copied.
    if is_sound.all():
        return schedule
    return replace(schedule, rates=rates.rows(is_sound))


def _sound(job: Job, rates: RateHistory) -> Mask:
    edge = rates.edge
    iteration = rates.iteration
    is_number = np.isfinite(rates.rate) & np.isfinite(rates.time)
    has_edge = (edge >= 0) & (edge < len(job.edges))
    has_iteration = (iteration >= 0) & (iteration < job.iterations)
    return is_number & (rates.rate >= 0) & has_edge & has_iteration


def first_stores(schedule: Schedule, tolerance: float) -> Iterator[Findings]:
    """(5): graph stores that wait for no task, nor for a slot, begin with the run."""
    job = schedule.problem.job
    # An edge with lag lets its first iteration begin without an input.
    waiting = {edge.destination for edge in job.edges if edge.lag == 0}
    stores = []
    for position, task in enumerate(job.tasks):
        may_wait = task.takes or position in waiting
        if task.kind == "graph_store" and not may_wait:
            stores.append(position)

    violations = []
    for store in stores:
        late = float(schedule.task_start[store, 0])
        if late > tolerance:
            name = task_name(job, store, 0)
            sentence = f"{name} started after the run began"
            violations.append(
                Violation(
                    constraint="(5)",
                    subject=name,
                    amount=late,
                    unit="s",
                    sentence=sentence,
                )
            )
    yield len(stores), violations


def makespan_of(
    schedule: Schedule,
    stated: float | None,
    tolerance: float,
) -> Iterator[Findings]:
    """(15): the makespan is the end of the last task, and what deaths add."""
    if stated is None:
        return
    # Tasks with fewer iterations leave NaN behind them.
    last = float(np.nanmax(schedule.task_end)) + schedule.outages.seconds
    distance = abs(stated - last)
    is_right = distance <= tolerance + ROUNDING * abs(last)  # NaN is wrong

    violations = []
    if not is_right:
        text = f"is said to be {stated:g} s, the last task ends at {last:g} s"
        violations.append(
            Violation(
                constraint="(15)",
                subject="the makespan",
                # NaN as an amount would say nothing.
                amount=distance if np.isfinite(distance) else last,
                unit="s",
                sentence=f"the makespan {text}",
            )
        )
    yield 1, violations


def channel_faults(schedule: Schedule, tolerance: float) -> Findings:
    """Return the number of channels, and every turn on one that was not kept.

    No flow starts before the one ends that went before it on its channel, and none
    before a flow that got ready earlier.
    """
    job = schedule.problem.job
    task_ends, _ = known_ends(schedule)
    sources = [edge.source for edge in job.edges]
    source_of = np.array(sources, dtype=np.int64)
    violations: list[Violation] = []
    for channel, edges, iterations in _channel_flows(schedule):
        flow = (edges, iterations)
        source_ends = task_ends[source_of[edges], iterations]
        # A flow is known to be ready when the end of its source is known.
        ready = np.maximum(schedule.flow_ready[flow], source_ends)
        start = schedule.flow_start[flow]
        end = schedule.flow_end[flow]

        # Of equal starts those without bytes went first: times of readiness that are
        # equal but for rounding do not say which stood before which.
        order = np.lexsort((ready, end, start))
        violations += _turns_not_kept(
            channel,
            ready=ready[order],
            start=start[order],
            end=end[order],
            name=name_flows(job, edges[order], iterations[order]),
            tolerance=tolerance,
        )
    return len(job.channels), violations


def _turns_not_kept(
    channel: str,
    ready: Floats,
    start: Floats,
    end: Floats,
    name: Writer,
    tolerance: float,
) -> list[Violation]:
    """Return the flows of a channel, by their starts, that took others' turns."""
    slack = allowance(start[1:], tolerance)
    # The latest end of all before, not of the last alone: one that began early may end
    # late.
    latest_end = np.maximum.accumulate(end)
    _, early = list_beyond(
        "channels",
        latest_end[:-1] - start[1:],
        limit=slack,
        # The first has none before it: rows begin with the second.
        name=lambda row: name(row + 1),
        words=f"started while another flow was under way on channel {channel}",
    )

    # The least readiness among all that start later than each.
    last_first = np.minimum.accumulate(ready[::-1])
    least = last_first[::-1][1:]
    _, overtaking = list_beyond(
        "channels",
        ready[:-1] - least,
        limit=slack,
        name=name,
        words=f"started before one that got ready earlier on channel {channel}",
    )
    return [*early, *overtaking]


def _channel_flows(schedule: Schedule) -> Iterator[tuple[str, Ints, Ints]]:
    """Yield every channel, and edge and iteration of its flows that got ready."""
    job = schedule.problem.job
    channel_of = np.array([edge.channel for edge in job.edges])
    crosses = is_remote(schedule.problem)
    got_ready = ~np.isnan(schedule.flow_ready)  # NaN where nothing is sent

    for channel in job.channels:
        uses = crosses & (channel_of == channel)
        edge, n = np.nonzero(uses[:, None] & got_ready)
        yield channel, edge, n


def landings(schedule: Schedule, ends: Floats | None = None) -> Floats:
    """Return when every (edge, iteration) is at its destination, seconds.

    A latency after its end: the latter, or ``ends``.
    """
    if ends is None:
        ends = schedule.flow_end
    return ends + schedule.problem.latencies[:, None]


def known_ends(schedule: Schedule) -> tuple[Floats, Floats]:
    """Return when the scheduler knew of each task's end and of each flow's landing.

    With the ends themselves 1 of 69,386 comparisons failed on two busy cores: an
    arrival that was reported after the decision which did not know of it.
    """
    task_ends = schedule.task_settled
    if task_ends is None:
        task_ends = schedule.task_end
    return task_ends, landings(schedule, schedule.flow_settled)
