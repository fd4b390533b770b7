"""Check that a reported schedule keeps constraints and bounds, and what it states.

Stated are times of tasks, the credit window, and the headline: makespans, their errors,
bound and gap. Nothing here is shared with what writes result.json: makespans come from
schedules, errors from these, the bound from a longest path and what ports must carry.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from emu.array_types import Floats, Ints, Mask
from emu.prediction.analysis.link_load import fluid_bytes, pieces
from emu.trust.audit import PUNCTUALITY, audit
from emu.trust.audit_checks import sound, work_of
from emu.trust.guards.earliest_ends import earliest_ends, list_widths
from emu.trust.guards.evidence import (
    CLOCKS,
    ONE_CLOCK,
    Evidence,
    fitting,
    list_capacities,
    list_hops,
    list_latencies,
)
from emu.trust.violation import (
    Finding,
    Findings,
    Violation,
    flow_name,
    task_name,
)

if TYPE_CHECKING:
    from emu.problem import Problem, Realization, Schedule

    #: Which (edge, iteration) are broken, the times that order them, and words.
    _Fault: TypeAlias = tuple[Mask, Floats, str]

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
        count = counts.pop(violation.constraint, 0)
        if count:
            rest = f" (and {count - 1} others)" if count > 1 else ""
            yield Finding(CONSTRAINTS, np.nan, f"{violation}{rest}")


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
    sizes = schedule.flow_bytes
    # Stated bytes where they are exact: a count of the run may be what is wrong.
    if evidence.volumes is not None:
        sizes = evidence.volumes
    # A flow that never came takes no time here: another guard names it.
    never_came = np.isnan(schedule.flow_bytes)
    volumes = np.where(never_came, 0.0, sizes)
    least = earliest_ends(
        schedule.problem,
        times=evidence.times,
        volumes=volumes,
        at_once=evidence.at_once,
    )
    slack = _tolerance(evidence) + 1e-9 * least
    early = least - schedule.task_end > slack

    first = _find_first(early, schedule.task_end)
    if first is None:
        return
    job = schedule.problem.job
    name = task_name(job, first.row, first.iteration)
    bound = least[first.row, first.iteration]
    yield Finding(
        BOUNDS,
        first.time,
        f"task {name} ended at {first.time:.6g} s, before {bound:.6g} s, which is the "
        f"least whatever the schedule (and {first.others} others)",
    )


def _tolerance(evidence: Evidence) -> float:
    """Return by how many emulated seconds times may be off."""
    wall = PUNCTUALITY + evidence.lead + evidence.stale + evidence.stall
    return wall / evidence.time_scale


# Check that every frame came once, whole, in order, and not before it was sent.

ORDER = "order"
CAUSE = "cause"


def order(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first frame of each kind that is missing, doubled, short or early.

    Every frame of an edge must come once, with the bytes that its task announced, after
    the frame before it.
    """
    schedule = evidence.schedule
    job = schedule.problem.job
    # Within a machine frames carry no bytes, and come all the same; credits have none.
    frame_counts = np.array(job.flow_counts, dtype=np.int64)
    is_control = np.array(job.control, dtype=np.bool_)
    frame_counts[is_control] = 0
    is_due = np.arange(job.iterations) < frame_counts[:, None]
    counts = _count_frames(evidence)
    last = evidence.grid(evidence.received, "last")
    arrivals = evidence.grid(evidence.received, "bytes")
    announced = np.where(is_due, schedule.flow_bytes, np.nan)
    sizes = announced * evidence.byte_scale
    # Real bytes are whole numbers, scaled ones are not: they differ by one at most.
    is_off = np.abs(arrivals - sizes) > 1 + 1e-9 * sizes
    is_off &= _mark_shaped(evidence)
    is_early = np.zeros_like(is_due)
    # NaN compares as False: what never came is a fault of its own.
    is_early[:, 1:] = last[:, 1:] < last[:, :-1]

    faults = {
        "never came": is_due & (counts == 0),
        "came twice, or was not to be sent": counts > is_due,
        "came with other bytes than its task announced": is_off,
        "came before the one before it": is_early,
    }
    source_ends = last
    if job.edges:
        source_ends = _list_source_ends(schedule)
    for words, broken in faults.items():
        yield from _first_frame(evidence, ORDER, broken, times=source_ends, words=words)


def _list_source_ends(schedule: Schedule) -> Floats:
    """Return when the source of every (edge, iteration) ended, seconds."""
    sources = [edge.source for edge in schedule.problem.job.edges]
    ends: Floats = schedule.task_end[sources]
    return ends


def _count_frames(evidence: Evidence) -> Ints:
    """Return how many frames of each (edge, iteration) came; others are left out."""
    edges, iterations = evidence.schedule.flow_end.shape
    counts = np.zeros((edges, iterations), dtype=np.int64)
    rows = evidence.received
    has_edge = rows["edge"] < edges
    has_iteration = rows["iteration"] < iterations
    frames = rows[has_edge & has_iteration]
    # Unlike values[index] += 1, this counts a frame twice that came twice.
    np.add.at(counts, (frames["edge"], frames["iteration"]), 1)
    return counts


#: Wall seconds between two notes of one send: 4 ms at most beside seven busy programs.
_LOGGED = 0.025


def cause(evidence: Evidence) -> Iterator[Finding]:
    """Yield the first frame that came before it was sent, or left before its time.

    No byte may be at the receiver's kernel before its sender hands it to its own, nor
    leave before the task that makes it has ended, but for the lead.
    """
    if not evidence.schedule.problem.job.edges:
        return
    for list_faults in (_list_early_arrivals, _list_early_frames, _list_unequal_notes):
        for broken, times, words in list_faults(evidence):
            yield from _first_frame(evidence, CAUSE, broken, times=times, words=words)


def _list_early_arrivals(evidence: Evidence) -> Iterator[_Fault]:
    """Yield the frames that came before they were sent, or their rates allow."""
    arrivals = evidence.grid(evidence.received, "last")
    last_sends = evidence.grid(evidence.sent, "last")
    too_soon = arrivals < last_sends - _least_apart(evidence)
    yield too_soon, arrivals, "came before its last byte was sent"

    outrun = _outrun(evidence, arrivals)
    yield outrun, arrivals, "came before its rates allow"


def _least_apart(evidence: Evidence) -> float:
    """Return by how many emulated seconds notes of two processes may be apart.

    By less where all read one clock: the margin adds up at every hop of a chain.
    """
    wall = ONE_CLOCK if evidence.one_clock else CLOCKS
    return wall / evidence.time_scale


def _list_early_frames(evidence: Evidence) -> Iterator[_Fault]:
    """Yield the frames that came, or left, before the task that makes them ended."""
    scale = evidence.time_scale
    source_ends = _list_source_ends(evidence.schedule)
    soonest = source_ends - evidence.lead / scale - CLOCKS / scale
    is_shaped = _mark_shaped(evidence)

    firsts = evidence.grid(evidence.received, "first")
    too_early = is_shaped & (firsts < soonest)
    yield too_early, firsts, "came before its task ended"

    sends = evidence.grid(evidence.sent, "first")
    left_early = is_shaped & (sends < soonest)
    yield left_early, sends, "left before its task ended"


def _list_unequal_notes(evidence: Evidence) -> Iterator[_Fault]:
    """Yield the frames of which two notes of one moment are apart."""
    scale = evidence.time_scale
    flow_end = evidence.schedule.flow_end
    arrivals = evidence.grid(evidence.received, "last")
    notices = evidence.notified
    # Ends are made of what was notified: only rounding is between the two.
    slack: Floats | float = 1e-9 * (1 + flow_end)
    if notices is None:  # runs of an earlier emu did not note it
        notices = arrivals
        slack = CLOCKS / scale
    too_late = _mark_shaped(evidence) & (notices > flow_end + slack)
    yield too_late, notices, "counts as ended before its last byte came"

    # Both are of one note of one kernel: on one clock they are equal to the digit.
    is_apart = np.abs(notices - arrivals) > _least_apart(evidence)
    yield is_apart, arrivals, "was notified to have come at another time"

    # A sender notes the time before it hands the last byte over, and logs it after.
    last_sends = evidence.grid(evidence.sent, "last")
    logged_sends = evidence.logged_sends
    most_between = (_LOGGED + 2 * evidence.standstill) / scale
    is_logged_apart = np.abs(logged_sends - last_sends) > most_between
    yield is_logged_apart, logged_sends, "was sent at another time by its sender's log"


def _outrun(evidence: Evidence, arrivals: Floats) -> Mask:
    """Return which (edge, iteration) came before the assigned rates had carried it.

    Links may have room for it. What a sender did not know excuses less than half of all
    flows, for so long on the narrowest link. NICs of the kernel keep to rates alone.
    """
    schedule = sound(evidence.schedule)
    if schedule.rates is None or any(evidence.burst):
        return np.zeros_like(arrivals, dtype=np.bool_)
    parts = pieces(schedule, schedule.rates)
    rates = parts.rates
    arrival = arrivals[rates.edge, rates.iteration]
    time = np.clip(arrival, rates.time, parts.end)
    rates_from_arrival = replace(rates, time=time)
    rest = fluid_bytes(parts._replace(rates=rates_from_arrival))

    slack = evidence.lead + CLOCKS
    seconds_ahead = (schedule.flow_end - arrivals) * evidence.time_scale
    is_shaped = _mark_shaped(evidence)
    is_ahead = seconds_ahead[is_shaped] > slack
    if 2 * is_ahead.sum() < is_ahead.size:
        slack += evidence.stale
    widths = list_widths(schedule.problem)
    # Edges without links are infinitely wide: none is ever ahead.
    excused = slack * np.reshape(widths, (-1, 1))
    return rest * evidence.time_scale > excused


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
    job = schedule.problem.job
    arrivals = evidence.grid(evidence.received, "last")
    for position, delay in enumerate(list_latencies(schedule.problem)):
        if not delay:
            continue
        edge = job.edges[position]
        task = edge.destination
        reads = np.arange(job.iterations) - edge.lag
        if edge.latest and schedule.reads is not None:
            reads = schedule.reads[position]
        elif edge.latest:
            reads = np.full_like(reads, -1)
        # A task that read nothing waited for nothing.
        read_rows = np.maximum(reads, 0)
        read_arrival = arrivals[position, read_rows]
        arrival = np.where(reads < 0, np.nan, read_arrival)
        wait = evidence.began[task] - arrival
        rounding = _READ / evidence.time_scale
        least = (1 - _SLEWED) * delay - rounding
        took_place = ~np.isnan(arrival + schedule.task_end[task])
        # Who ended and does not say when it began has not waited, either.
        early = ~(wait >= least) & took_place

        if early.any():
            n = int(np.argmax(early))
            rest = int(early.sum()) - 1
            name = task_name(job, task, n)
            edge_name = job.edge_names[position]
            yield Finding(
                LATENCY,
                float(schedule.task_start[task, n]),
                f"task {name} had {edge_name} {wait[n]:.4g} s after its "
                f"last byte came: its latency is {delay:g} s (and {rest} others)",
            )
            return


def _mark_shaped(evidence: Evidence) -> Mask:
    """Return which (edge, iteration) are flows of some bytes between machines."""
    schedule = evidence.schedule
    edge, iteration = schedule.flows().T
    is_shaped = np.zeros(schedule.flow_end.shape, dtype=bool)
    is_shaped[edge, iteration] = True
    return is_shaped & (schedule.flow_bytes > 0)


def _first_frame(
    evidence: Evidence,
    guard: str,
    broken: Mask,
    times: Floats,
    words: str,
) -> Iterator[Finding]:
    """Yield the first frame that is broken by ``times``; NaN is last."""
    first = _find_first(broken, times)
    if first is not None:
        job = evidence.schedule.problem.job
        name = flow_name(job, first.row, first.iteration)
        rest = f" (and {first.others} others)" if first.others else ""
        yield Finding(guard, first.time, f"frame {name} {words}{rest}")


class _First(NamedTuple):
    row: int
    iteration: int
    time: float
    others: int


def _find_first(broken: Mask, times: Floats) -> _First | None:
    """Return row and iteration of the first that is broken, when, and how many more."""
    places = np.argwhere(broken)
    if not places.size:
        return None
    instants = times[broken]
    has_no_time = np.isnan(instants)
    # What has no time is named after all that have one.
    order = np.where(has_no_time, np.inf, instants)
    first = int(np.argmin(order))
    row, iteration = places[first].tolist()

    return _First(
        row=row,
        iteration=iteration,
        time=float(instants[first]),
        others=len(places) - 1,
    )


TIMES = "task times"
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
    work = work_of(
        schedule.problem,
        start=schedule.task_start,
        end=schedule.task_end,
    )
    rounding = 1e-12 * np.abs(schedule.task_end)
    slack = _ROUNDING * evidence.times + rounding
    excess = work - evidence.times
    is_short = excess < -slack
    is_long = excess > evidence.late + slack
    is_off = is_short | is_long

    first = _find_first(is_off, schedule.task_end)
    if first is None:
        return
    job = schedule.problem.job
    name = task_name(job, first.row, first.iteration)
    duration = work[first.row, first.iteration]
    stated = evidence.times[first.row, first.iteration]
    yield Finding(
        TIMES,
        first.time,
        f"{name} took {duration:.6g} s of the {stated:.6g} s that are "
        f"stated (and {first.others} others)",
    )


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
    makespan = _makespan_of(emulated)
    figures: dict[str, float | None] = {
        "makespan": makespan,
        "predicted_makespan": _makespan_of(predicted),
        "makespan_error": _error_over(makespan, predicted),
        "replayed_makespan": _makespan_of(replayed),
        "replay_error": _error_over(makespan, replayed),
    }
    bound = result.get("bound")
    # JSON's true is a number in Python; NaN fails every comparison below.
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        bound = math.nan
    else:
        figures["gap"] = _over(makespan, bound) if bound else None
    faults = {
        key: f"{key} is {result.get(key)!r}, {number!r} by itself"
        for key, number in figures.items()
        if not _alike(result.get(key), number)
    }

    dies = emulated.outages.seconds > 0
    least = 0.0
    if not dies:
        least = least_makespan(emulated.problem, measured)
    # Of a job that died there is none; else NaN is wrong, too.
    if dies is not math.isnan(bound) or bound < least * (1 - _EXACT):
        faults["bound"] = (
            f"bound is {bound!r}, the run cannot be shorter than {least!r} s"
        )
    violations = []
    for key, sentence in faults.items():
        violation = Violation(
            constraint="headline",
            subject=key,
            amount=1,
            unit="values",
            sentence=sentence,
        )
        violations.append(violation)
    return len(figures) + 1, violations


def _makespan_of(schedule: Schedule) -> float:
    last_end = float(np.nanmax(schedule.task_end))
    return last_end + schedule.outages.seconds


def _error_over(makespan: float, simulation: Schedule) -> float:
    """Return by what share a run is longer than a simulation.

    The time in which a job is down is as stated: no share of it is an error.
    """
    down_time = simulation.outages.recovery
    expected = _makespan_of(simulation) - down_time
    return _over(makespan - down_time, expected)


def least_makespan(problem: Problem, measured: Realization) -> float:
    """Return a length that no run of these times and volumes is below, seconds.

    The longest path, of flows that have every link for themselves, or the time that the
    busiest link takes for all its bytes.
    """
    ends = earliest_ends(problem, measured.times, measured.volumes)
    iteration = np.arange(problem.job.iterations)
    rounds = np.array(problem.job.rounds)
    ran = iteration < rounds[:, None]
    longest = float(ends[ran].max(initial=0.0))

    counts = np.array(problem.job.flow_counts, dtype=np.int64)
    is_sent = iteration < counts[:, None]
    sent_bytes = np.where(is_sent, measured.volumes, 0.0)
    totals = sent_bytes.sum(axis=1)
    loads: defaultdict[str, float] = defaultdict(float)
    hops = list_hops(problem)
    for links, volume in zip(hops, totals.tolist(), strict=True):
        for link in links:
            loads[link] += volume
    ends_of_links = []
    for link, volume in loads.items():
        end = _time(problem, link, volume)
        ends_of_links.append(end)
    return max([longest, *ends_of_links])


def _time(problem: Problem, link: str, volume: float) -> float:
    """Return when a link has carried so many bytes at the earliest, seconds."""
    changes = problem.cluster.changes
    times = [change.time for change in changes if change.link == link]
    times_of_change = np.array([0.0, *sorted(times)])
    room = fitting(problem, link, times_of_change)
    # The last change of the link before it has carried so much.
    changes_before = int(np.searchsorted(room, volume))
    last = max(changes_before - 1, 0)

    rest = volume - float(room[last])
    begin = float(times_of_change[last])
    capacity = list_capacities(problem, begin)[link]
    if not capacity:  # cut for good
        return math.inf
    return begin + rest / capacity


def _over(found: float, expected: float) -> float:
    if not expected:
        return float(found > _ROUNDING)
    return found / expected - 1


def _alike(said: Any, number: float | None) -> bool:
    if number is None or said is None:
        return said is number
    if isinstance(said, bool) or not isinstance(said, int | float):
        return False
    return math.isclose(said, number, rel_tol=_EXACT, abs_tol=_EXACT)
