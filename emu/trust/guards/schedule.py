"""Check that a reported schedule keeps constraints and bounds, and what it states.

Stated are times of tasks, the credit window, and the headline: makespans, their errors,
bound and gap. Nothing here is shared with what writes result.json: makespans come from
schedules, errors from these, the bound from a longest path and what ports must carry.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emu.prediction.analysis.link_load import fluid_bytes, pieces
from emu.trust.audit import PUNCTUALITY, audit
from emu.trust.audit_checks import sound, work_of
from emu.trust.guards.evidence import (
    CLOCKS,
    Evidence,
    fitting,
    list_capacities,
    list_hops,
    list_latencies,
    most_stated,
)
from emu.trust.violation import Finding, Findings, Violation

if TYPE_CHECKING:
    from emu.problem import Job, Problem, Realization, Schedule

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
    counts = Counter(violation.constraint for violation in report.violations)
    # One mistake often breaks hundreds of flows: the first of each kind names it.
    for violation in report.violations:
        if count := counts.pop(violation.constraint, 0):
            others = f" (and {count - 1} others)" if count > 1 else ""
            yield Finding(CONSTRAINTS, np.nan, f"{violation}{others}")


def lower_bounds(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first task that ended earlier than any schedule allows.

    A task ends no sooner than the longest chain that leads to it, of stated times and
    of flows that have every link for themselves, with the most that it ever has, and
    of latencies. That holds for every prefix of a run, and of the last task for its
    makespan.
    """
    if evidence.times is None:
        return
    schedule = evidence.schedule
    sizes = schedule.flow_bytes if evidence.volumes is None else evidence.volumes
    # A flow that never came takes no time here: another guard names it.
    volumes = np.where(np.isnan(schedule.flow_bytes), 0.0, sizes)
    least = earliest_ends(
        schedule.problem, evidence.times, volumes, at_once=evidence.at_once
    )
    early = least - schedule.task_end > _tolerance(evidence) + 1e-9 * least
    if (first := _find_first(early, schedule.task_end)) is None:
        return
    task, n, at, others = first
    yield Finding(
        BOUNDS,
        at,
        f"task {schedule.problem.job.tasks[task].name}[{n}] ended at {at:.6g} s, "
        f"before {least[task, n]:.6g} s, which is the least whatever the schedule (and "
        f"{others} others)",
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

    ``times`` and ``volumes``: seconds of (task, iteration), bytes of (edge, iteration).
    ``at_once``: bytes that a link of some capacity lets go at once after a pause.
    """
    job = problem.job
    capacities = most_stated(problem)
    narrowest = [
        min((capacities[link] for link in hops), default=np.inf)
        for hops in list_hops(problem)
    ]
    # What a link lets go at once takes no time: a bound must hold for that, too.
    free = np.array([at_once(c) if c < np.inf else 0.0 for c in narrowest])
    waits = np.maximum(volumes - free.reshape(-1, 1), 0.0)
    alone = (waits / np.array(narrowest).reshape(-1, 1)).tolist()
    ends = np.zeros((len(job.tasks), job.iterations)).tolist()
    there = np.zeros((len(job.edges), job.iterations)).tolist()
    incoming = [job.in_edges(task) for task in range(len(job.tasks))]
    outgoing = [job.out_edges(task) for task in range(len(job.tasks))]
    order = job.order
    lags = [edge.lag for edge in job.edges]
    latency = list_latencies(problem)
    counts = job.flow_counts  # a source may have fewer iterations than its destination
    took = times.tolist()
    # Edges without lag run along this order: every input is known when it is needed.
    for n in range(job.iterations):
        for task in order:
            start = ends[task][n - 1] if n else 0.0
            for e in incoming[task]:
                if 0 <= n - lags[e] < counts[e]:
                    start = max(start, there[e][n - lags[e]] + latency[e])
            ends[task][n] = end = start + took[task][n]
            for e in outgoing[task]:
                before = there[e][n - 1] if n else 0.0
                there[e][n] = max(end, before) + alone[e][n]
    return np.array(ends)


# Check that every frame came once, whole, in order, and not before it was sent.

ORDER = "order"
CAUSE = "cause"


def order(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first frame of each kind that is missing, doubled, short or early.

    Every frame of an edge must come once, with the bytes that its task announced, after
    the frame before it.
    """
    schedule = evidence.schedule
    in_rows = evidence.received
    job = schedule.problem.job
    # Within a machine frames carry no bytes, and come all the same; credits have none.
    frames = [
        0 if control else sent
        for control, sent in zip(job.control, job.flow_counts, strict=True)
    ]
    due = np.arange(job.iterations) < np.array(frames, dtype=np.int64)[:, None]
    count = np.zeros(due.shape, dtype=np.int64)
    is_due = (in_rows["edge"] < due.shape[0]) & (in_rows["iteration"] < due.shape[1])
    rows = in_rows[is_due]
    np.add.at(count, (rows["edge"], rows["iteration"]), 1)
    last = evidence.grid(in_rows, "last")
    arrivals = evidence.grid(in_rows, "bytes")
    sizes = np.where(due, schedule.flow_bytes, np.nan) * evidence.byte_scale
    is_shaped = _mark_shaped(evidence)
    end = schedule.task_end[[edge.source for edge in job.edges]] if job.edges else last
    # Real bytes are whole numbers, scaled ones are not: they differ by one at most.
    off = is_shaped & (np.abs(arrivals - sizes) > 1 + 1e-9 * sizes)
    backwards = np.zeros_like(due)
    backwards[:, 1:] = last[:, 1:] < last[:, :-1]
    for broken, words in (
        (due & (count == 0), "never came"),
        (count > due, "came twice, or was not to be sent"),
        (off, "came with other bytes than its task announced"),
        (backwards, "came before the one before it"),
    ):
        yield from _first(evidence, ORDER, broken, end, words)


def cause(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first frame that came before it was sent, or left before its time.

    No byte may be at the receiver's kernel before its sender hands it to its own, nor
    leave before the task that makes it has ended, but for the lead.
    """
    schedule = evidence.schedule
    job = evidence.schedule.problem.job
    is_shaped = _mark_shaped(evidence)
    if not job.edges:
        return
    clocks = CLOCKS / evidence.time_scale
    ready = schedule.task_end[[edge.source for edge in job.edges]]
    (sends, last_sends), (firsts, arrivals) = (
        [evidence.grid(rows, end) for end in ("first", "last")]
        for rows in (evidence.sent, evidence.received)
    )
    early = ready - evidence.lead / evidence.time_scale - clocks
    notices = arrivals if evidence.notified is None else evidence.notified
    # Ends are made of what was notified: only rounding is between the two.
    later = clocks if evidence.notified is None else 1e-9 * (1 + schedule.flow_end)
    too_soon = arrivals < last_sends - clocks
    too_late = is_shaped & (notices > schedule.flow_end + later)
    apart = np.abs(notices - arrivals) > clocks
    for broken, at, words in (
        (too_soon, arrivals, "came before its last byte was sent"),
        (_outrun(evidence, arrivals), arrivals, "came before its rates allow"),
        (is_shaped & (firsts < early), firsts, "came before its task ended"),
        (is_shaped & (sends < early), sends, "left before its task ended"),
        (too_late, notices, "counts as ended before its last byte came"),
        (apart, arrivals, "was notified to have come at another time"),
    ):
        yield from _first(evidence, CAUSE, broken, at, words)


def _outrun(evidence: Evidence, there: Floats) -> NDArray[np.bool_]:
    """Return which (edge, iteration) came before the assigned rates had carried it.

    Links may have room for it. What a sender did not know excuses less than half of all
    flows, for so long on the narrowest link. NICs of the kernel keep to rates alone.
    """
    schedule = sound(evidence.schedule)
    if schedule.rates is None or any(evidence.burst):
        return np.zeros_like(there, dtype=np.bool_)
    of = pieces(schedule, schedule.rates)
    most = most_stated(schedule.problem)
    late = np.clip(there[of.rates.edge, of.rates.iteration], of.rates.time, of.end)
    rest = fluid_bytes(of._replace(rates=replace(of.rates, time=late)))
    paths = list_hops(schedule.problem)
    width = [min((most[link] for link in hops), default=np.inf) for hops in paths]
    slack = evidence.lead + CLOCKS
    ahead = schedule.flow_end - there
    early = (ahead * evidence.time_scale > slack)[_mark_shaped(evidence)]
    slack += evidence.stale * bool(2 * early.sum() < early.size)
    return rest * evidence.time_scale > slack * np.reshape(width, (-1, 1))


LATENCY = "latency"
#: Share of a latency that may be missing, as clocks are slewed meanwhile, and wall
#: seconds: readings of one clock are rounded.
_SLEWED = 0.01
_READ = 1e-6


def latency(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first task that had an input before its latency was over.

    Between two notes that nobody paces: when the last byte was at the receiver's
    kernel, and when the task began to compute, by the clock of the same process.
    """
    schedule = evidence.schedule
    job = evidence.schedule.problem.job
    there = evidence.grid(evidence.received, "last")
    for e, delay in enumerate(list_latencies(schedule.problem)):
        if not delay:
            continue
        task = job.edges[e].destination
        n = np.arange(job.iterations)
        reads = n - job.edges[e].lag
        if job.edges[e].latest:
            reads = np.full_like(n, -1) if schedule.reads is None else schedule.reads[e]
        arrival = np.where(reads < 0, np.nan, there[e, np.maximum(reads, 0)])
        wait = evidence.began[task] - arrival
        least = (1 - _SLEWED) * delay - _READ / evidence.time_scale
        # Who ended and does not say when it began has not waited, either.
        early = ~(wait >= least) & ~np.isnan(arrival + schedule.task_end[task])
        if early.any():
            first = int(np.argmax(early))
            others = int(early.sum()) - 1
            yield Finding(
                LATENCY,
                float(schedule.task_start[task, first]),
                f"task {job.tasks[task].name}[{first}] had {job.edge_names[e]} "
                f"{wait[first]:.4g} s after its last byte came: its latency is "
                f"{delay:g} s (and {others} others)",
            )
            return


def _mark_shaped(evidence: Evidence) -> NDArray[np.bool_]:
    """Return which (edge, iteration) are flows of some bytes between machines."""
    schedule = evidence.schedule
    is_shaped = np.zeros(schedule.flow_end.shape, dtype=bool)
    is_shaped[tuple(schedule.flows().T)] = True
    return is_shaped & (schedule.flow_bytes > 0)


def _first(
    evidence: Evidence,
    guard: str,
    broken: NDArray[np.bool_],
    at: NDArray[np.float64],
    words: str,
) -> Iterator[Finding]:
    if (first := _find_first(broken, at)) is None:
        return
    e, n, time, count = first
    others = f" (and {count} others)" if count else ""
    name = evidence.schedule.problem.job.edge_names[e]
    yield Finding(guard, time, f"frame {name}[{n}] {words}{others}")


def _find_first(
    broken: NDArray[np.bool_], at: Floats
) -> tuple[int, int, float, int] | None:
    """Return row and iteration of the first that is broken, when, and how many more."""
    where = np.argwhere(broken)
    if not where.size:
        return None
    times = at[tuple(where.T)]
    first = int(np.argmin(np.where(np.isnan(times), np.inf, times)))
    row, n = where[first].tolist()
    return row, n, float(times[first]), len(where) - 1


TIMES = "task times"
WINDOW = "window"
#: Share of its time by which a task may seem to be shorter, and of the run's end:
#: rounding, as nominal times are kept exactly.
_ROUNDING = 1e-6


def task_times(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first task that took less than its stated time, or more but for delays.

    However many tasks are on the way, and however short each is.
    """
    if evidence.times is None:
        return
    schedule = evidence.schedule
    took = work_of(schedule.problem, schedule.task_start, schedule.task_end)
    slack = _ROUNDING * evidence.times + 1e-12 * np.abs(schedule.task_end)
    longer = took - evidence.times
    off = (longer < -slack) | (longer > evidence.late + slack)
    if (first := _find_first(off, schedule.task_end)) is None:
        return
    task, n, at, others = first
    name = schedule.problem.job.tasks[task].name
    least = evidence.times[task, n]
    yield Finding(
        TIMES,
        at,
        f"{name}[{n}] took {took[task, n]:.6g} s of the {least:.6g} s that are stated "
        f"(and {others} others)",
    )


def window(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first start that the credit window of a scenario does not allow.

    With window K, iteration n of what begins a mini-batch starts only after iteration
    n - K of every worker that it reaches. Which edges a job has for that does not
    enter: they may be the mistake.
    """
    schedule = evidence.schedule
    job = evidence.schedule.problem.job
    for prefix, most in evidence.windows:
        for first, last in _first_and_last_tasks(job, prefix):
            rounds = min(job.rounds[first], job.iterations, most + job.rounds[last])
            for n in range(most, rounds):
                start = schedule.task_start[first, n]
                end = schedule.task_end[last]
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


def _first_and_last_tasks(job: Job, prefix: str) -> Iterator[tuple[int, int]]:
    """Yield the tasks that begin a mini-batch of a job, each with a worker it feeds."""
    names = {task.name: t for t, task in enumerate(job.tasks)}
    names.pop(f"{prefix}release", None)
    own = {t for name, t in names.items() if name.startswith(prefix)}
    inner = [e for e in job.edges if e.lag == 0 and {e.source, e.destination} <= own]
    feeds = {t: {t} for t in own}
    place = {t: position for position, t in enumerate(job.order)}
    for edge in sorted(inner, key=lambda edge: -place[edge.source]):
        feeds[edge.source] |= feeds[edge.destination]
    first_tasks = sorted(own - {edge.destination for edge in inner})
    stores = [t for t in first_tasks if job.tasks[t].kind == "graph_store"]
    workers = {t for t in own if job.tasks[t].kind == "worker"}
    ends = workers or own - {edge.source for edge in inner}
    for first in stores or first_tasks:
        yield from ((first, last) for last in sorted((feeds[first] & ends) - {first}))


#: Share by which a number may be off: sums in another order.
_EXACT = 1e-9


def headline_faults(
    result: Mapping[str, Any],
    emulated: Schedule,
    predicted: Schedule,
    replayed: Schedule,
    measured: Realization,
) -> Findings:
    """Return how many numbers of a headline were compared, and the wrong ones.

    Parameters
    ----------
    result
        Content of result.json.
    emulated, predicted, replayed
        The run, and the simulations of what was expected and of what was measured.
    measured
        Times and volumes of the run, which ``bound`` is of.
    """
    length, before, again = (
        float(np.nanmax(schedule.task_end)) + schedule.outages.seconds
        for schedule in (emulated, predicted, replayed)
    )
    # The time in which a job is down is as stated: no share of it is an error.
    down = [one.outages.recovery for one in (predicted, replayed)]
    figures: dict[str, float | None] = {
        "makespan": length,
        "predicted_makespan": before,
        "makespan_error": _over(length - down[0], before - down[0]),
        "replayed_makespan": again,
        "replay_error": _over(length - down[1], again - down[1]),
    }
    bound = result.get("bound")
    dies = emulated.outages.seconds > 0
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        bound = math.nan
    else:
        figures["gap"] = _over(length, bound) if bound else None
    faults = []
    for key, number in figures.items():
        value = result.get(key)
        if not _alike(value, number):
            sentence = f"{key} is {value!r}, {number!r} by itself"
            faults.append(
                Violation(
                    constraint="headline",
                    subject=key,
                    amount=1,
                    unit="values",
                    sentence=sentence,
                )
            )
    least = 0.0 if dies else least_makespan(emulated.problem, measured)
    # Of a job that died there is none; else NaN is wrong, too.
    if dies is not math.isnan(bound) or bound < least * (1 - _EXACT):
        sentence = f"bound is {bound!r}, the run cannot be shorter than {least!r} s"
        faults.append(
            Violation(
                constraint="headline",
                subject="bound",
                amount=1,
                unit="values",
                sentence=sentence,
            )
        )
    return len(figures) + 1, faults


def least_makespan(problem: Problem, measured: Realization) -> float:
    """Return a length that no run of these times and volumes is below, seconds.

    The longest path, of flows that have every link for themselves, or the time that the
    busiest link takes for all its bytes.
    """
    ends = earliest_ends(problem, measured.times, measured.volumes)
    rounds = np.array(problem.job.rounds)
    ran = np.arange(problem.job.iterations) < rounds[:, None]
    longest = float(ends[ran].max(initial=0.0))
    counts = np.array(problem.job.flow_counts, dtype=np.int64)
    exists = np.arange(problem.job.iterations) < counts[:, None]
    totals = np.where(exists, measured.volumes, 0.0).sum(axis=1)
    loads: defaultdict[str, float] = defaultdict(float)
    for hops, volume in zip(list_hops(problem), totals.tolist(), strict=True):
        for link in hops:
            loads[link] += volume
    return max([longest, *(_time(problem, *one) for one in loads.items())])


def _time(problem: Problem, link: str, volume: float) -> float:
    """Return when a link has carried so many bytes at the earliest, seconds."""
    changes = sorted(c.time for c in problem.cluster.changes if c.link == link)
    since = np.array([0.0, *changes])
    room = fitting(problem, link, since)
    last = max(int(np.searchsorted(room, volume)) - 1, 0)
    capacity = list_capacities(problem, float(since[last]))[link]
    rest = volume - float(room[last])
    whole = rest / capacity if capacity else math.inf  # cut for good
    return float(since[last]) + (whole if rest > 0 else 0.0)


def _over(found: float, expected: float) -> float:
    return found / expected - 1 if expected else float(found > _ROUNDING)


def _alike(said: Any, number: float | None) -> bool:
    if number is None or said is None:
        return said is number
    if isinstance(said, bool) or not isinstance(said, int | float):
        return False
    return math.isclose(said, number, rel_tol=_EXACT, abs_tol=_EXACT)
