"""A slow simulator written from the constraints, to compare the fast one with.

No counters, heaps, groups or clocks: the whole history is kept as times of (task, n)
and (edge, n), every question is answered by looking at it, and every active flow
carries the bytes it has left. Rates are recomputed for all flows whenever the set of
active flows has changed, or a link that one of them crosses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor, inf

from emu.problem import Edge, Problem, Realization
from emu.trust.guards.evidence import list_capacities, list_hops, list_latencies
from emu.trust.rate_rules import (
    POLICIES,
    Event,
    Flow,
    Rank,
    is_needed,
    note_coflows,
    oes,
    rank_of,
    remaining_paths,
    rounds_of,
    time_in_queue,
)

__all__ = ["Flow", "oes", "run"]


@dataclass
class Outcome:
    """Times of everything that happened, and the rates from each time on.

    Worked out once: the links that every edge crosses, the seconds that these add, the
    edges into every task. A flow has landed so long after its end.
    """

    hops: list[tuple[str, ...]]
    latency: list[float]
    into: list[list[tuple[int, Edge]]]
    task_start: dict[Event, float] = field(default_factory=dict)
    task_end: dict[Event, float] = field(default_factory=dict)
    flow_ready: dict[Event, float] = field(default_factory=dict)
    flow_start: dict[Event, float] = field(default_factory=dict)
    flow_end: dict[Event, float] = field(default_factory=dict)
    rates: list[tuple[float, dict[Event, float]]] = field(default_factory=list)
    came: dict[Event, float] = field(default_factory=dict)
    turns: list[Event] = field(default_factory=list)
    reads: dict[Event, int] = field(default_factory=dict)
    waited: dict[int, list[int]] = field(default_factory=dict)
    quotas: dict[int, list[int]] = field(default_factory=dict)


def run(problem: Problem, realization: Realization, policy: str) -> Outcome:
    job = problem.job
    changes = sorted({change.time for change in problem.cluster.changes})
    idle = all_flows(problem, realization)
    edges = [*enumerate(job.edges)]
    into = [
        [(e, edge) for e, edge in edges if edge.destination == j]
        for j in range(len(job.tasks))
    ]
    out = Outcome(list_hops(problem), list_latencies(problem), into)
    active: dict[Event, Flow] = {}
    rated: list[Flow] = []
    now, demotion = 0.0, inf
    while True:
        while (
            _one_step(problem, realization, out, active, idle, now)
            or _some_get_their_turn(problem, out)
            or _some_get_slots(problem, out, now)
            or _a_quota_is_looked_at(problem, out, now)
        ):
            pass
        if len(out.task_end) == sum(
            rounds_of(problem, j) for j in range(len(job.tasks))
        ):
            break
        flows, capacity = list(active.values()), list_capacities(problem, now)
        crossed = {link for flow in flows for link in flow.hops}
        changed = [c for c in problem.cluster.changes if c.time == now]
        if (
            not out.rates
            or set(active) != set(out.rates[-1][1])
            or {change.link for change in changed} & crossed
            or now >= demotion
        ):
            note_coflows(rated, flows, now)
            rated = flows
            for flow in flows:
                flow.rate = 0.0
                flow.alone = min(capacity[p] for p in flow.hops)
            POLICIES[policy](flows, capacity)
            out.rates.append((now, {key: flow.rate for key, flow in active.items()}))
            demotion = now + time_in_queue(flows) if policy == "aalo" else inf
        ends = [
            work_done(problem, event[0], start, realization.times[event])
            for event, start in out.task_start.items()
            if event not in out.task_end
        ]
        ends += [now + f.left / f.rate for f in flows if f.rate > 0]
        ends += [landing for landing in landings(out).values() if landing > now]
        ends += [demotion] if demotion < inf else []
        assert ends or max(changes, default=0.0) > now, "nothing would ever end"
        later = min(*ends, *_looks(problem, out), *(t for t in changes if t > now), inf)
        for flow in flows:
            flow.left -= flow.rate * (later - now)
        now = later
    assert not active
    return out


def landings(out: Outcome) -> dict[Event, float]:
    """Return when each flow that has ended is at its destination."""
    return {(e, n): end + out.latency[e] for (e, n), end in out.flow_end.items()}


def all_flows(problem: Problem, realization: Realization) -> dict[Event, Flow]:
    """Return every flow as it is before it starts, by edge and iteration."""
    job, hops = problem.job, list_hops(problem)
    found = {}
    for (e, n), path_after in sorted(remaining_paths(problem, realization).items()):
        edge, volume = job.edges[e], float(realization.volumes[e, n])
        flow = Flow(e, n + edge.lag, rank_of(job, e), hops[e], volume, volume)
        flow.path_after, flow.job = path_after, job.tasks[edge.source].job_name
        flow.coflow = edge.coflow
        found[e, n] = flow
    return found


def _one_step(
    problem: Problem,
    realization: Realization,
    out: Outcome,
    active: dict[Event, Flow],
    idle: dict[Event, Flow],
    now: float,
) -> bool:
    """Let one thing happen that is due by ``now``; tell whether there was one."""
    return (
        _something_ends(problem, realization, out, active, now)
        or _something_is_sent(problem, out, active, idle, now)
        or _something_starts(problem, out, now)
    )


def speed_at(problem: Problem, task: int, time: float) -> float:
    """Return the share of its speed that the machine of a task has just then."""
    if problem.job.tasks[task].gate:
        return 1.0
    name = problem.cluster.machines[problem.placement.machine_of[task]].name
    share = 1.0
    for change in sorted(problem.cluster.speed_changes, key=lambda c: c.time):
        if change.machine == name and change.time <= time:
            share = change.share
    return share


def work_done(problem: Problem, task: int, start: float, work: float) -> float:
    """Return when a task has worked so long, as all of its speed goes on or is lost."""
    now, left = start, work
    times = {change.time for change in problem.cluster.speed_changes}
    for later in sorted(time for time in times if time > start):
        could = speed_at(problem, task, now) * (later - now)
        if left <= could * (1 + 1e-12):
            break
        now, left = later, left - could
    if left <= 1e-12:
        return now
    share = speed_at(problem, task, now)
    return now + left / share if share else inf


def _something_ends(
    problem: Problem,
    realization: Realization,
    out: Outcome,
    active: dict[Event, Flow],
    now: float,
) -> bool:
    for event, flow in active.items():
        if flow.left <= 1e-11 * flow.volume:
            del active[event]
            out.flow_end[event] = now
            return True
    for event, start in out.task_start.items():
        if event in out.task_end:
            continue
        end = work_done(problem, event[0], start, realization.times[event])
        if end <= now * (1 + 1e-12):
            out.task_end[event] = now
            return True
    return False


def _something_is_sent(
    problem: Problem,
    out: Outcome,
    active: dict[Event, Flow],
    idle: dict[Event, Flow],
    now: float,
) -> bool:
    for (e, n), flow in idle.items():
        if (problem.job.edges[e].source, n) not in out.task_end:
            continue
        if (e, n) not in out.flow_ready:
            out.flow_ready[e, n] = now
            flow.ready = round(now, 10)  # what is equal on paper may part by rounding
            return True
        if n > 0 and (e, n - 1) not in out.flow_end:
            continue
        if _waits_for_its_turn(problem, out, (e, n)):
            continue
        del idle[e, n]
        out.flow_start[e, n] = now
        if flow.hops and flow.volume > 0:
            active[e, n] = flow
        else:
            out.flow_end[e, n] = now
        return True
    return False


def _something_starts(problem: Problem, out: Outcome, now: float) -> bool:
    job = problem.job
    iterations = (
        (j, n) for j in range(len(job.tasks)) for n in range(rounds_of(problem, j))
    )
    landed = {f for f, at in landings(out).items() if at <= now * (1 + 1e-12)}
    for j, n in iterations:
        if (j, n) in out.task_start or (j, n) in out.came:
            continue
        if n > 0 and (j, n - 1) not in out.task_end:
            continue
        if not all(
            (e, n - edge.lag) in landed
            for e, edge in out.into[j]
            if is_needed(problem, e, n - edge.lag)
        ):
            continue
        newest = any(edge.latest for _, edge in out.into[j])
        if slots_of(problem, out, j, job.tasks[j].takes) is None and not newest:
            out.task_start[j, n] = now
        else:
            out.came[j, n] = now
        return True
    return False


def channel_of(problem: Problem, out: Outcome, e: int) -> str:
    """Return the channel of an edge between two machines, empty for none."""
    return problem.job.edges[e].channel if out.hops[e] else ""


def _waits_for_its_turn(problem: Problem, out: Outcome, flow: Event) -> bool:
    return channel_of(problem, out, flow[0]) != "" and flow not in out.turns


def _some_get_their_turn(problem: Problem, out: Outcome) -> bool:
    """Call the first flow of every channel that is free, when nothing else happens."""
    job = problem.job

    def place(flow: Event) -> tuple[float, int, Rank]:
        e, n = flow
        # Times that are equal on paper may part by rounding here.
        return round(out.flow_ready[flow], 10), n + job.edges[e].lag, rank_of(job, e)

    called = False
    for channel in {edge.channel for edge in job.edges} - {""}:
        flows = [f for f in out.flow_ready if channel_of(problem, out, f[0]) == channel]
        waiting = [flow for flow in flows if flow not in out.turns]
        if waiting and all(f in out.flow_end for f in flows if f in out.turns):
            out.turns.append(min(waiting, key=place))
            called = True
    return called


def slots_of(problem: Problem, out: Outcome, task: int, pool: str) -> int | None:
    """Return how many slots the pool has on a task's machine, None for no limit."""
    machine = problem.placement.machine_of[task]
    for t, tuner in enumerate(problem.cluster.tuners):
        if (tuner.machine, tuner.pool) == (machine, pool) and out.quotas.get(t):
            return out.quotas[t][-1]
    return problem.cluster.machines[machine].slots.get(pool)


def _looks(problem: Problem, out: Outcome) -> list[float]:
    """Return when each quota is looked at next."""
    return [
        tuner.period * (len(out.quotas.get(t, ())) + 1)
        for t, tuner in enumerate(problem.cluster.tuners)
    ]


def _a_quota_is_looked_at(problem: Problem, out: Outcome, now: float) -> bool:
    """Change the quotas that are due by the slopes of their last five queues."""
    job, machine_of = problem.job, problem.placement.machine_of
    due = [t for t, at in enumerate(_looks(problem, out)) if at <= now * (1 + 1e-12)]
    for t in due:
        tuner = problem.cluster.tuners[t]
        waited = out.waited.setdefault(t, [])
        waited.append(
            sum(
                job.tasks[j].takes == tuner.watched and machine_of[j] == tuner.machine
                for j, n in out.came
                if (j, n) not in out.task_start
            )
        )
        quotas = out.quotas.setdefault(t, [])
        start = problem.cluster.machines[tuner.machine].slots[tuner.pool]
        quota, last = quotas[-1] if quotas else start, waited[-5:]
        mean = Fraction(sum(last), len(last))
        rise = sum((x - 2) * (y - mean) for x, y in enumerate(last))
        if len(last) == 5 and rise > 0:
            quota = max(1, floor(Fraction(9, 10) * quota))
        elif len(last) == 5 and rise < 0:
            quota = min(tuner.most, ceil(Fraction(11, 10) * quota))
        quotas.append(quota)
    return bool(due)


def _some_get_slots(problem: Problem, out: Outcome, now: float) -> bool:
    """Start all whose turn it is, when nothing else happens at this time any more."""
    job, machine_of = problem.job, problem.placement.machine_of
    waiting = [event for event in out.came if event not in out.task_start]
    landed = [f for f, at in landings(out).items() if at <= now * (1 + 1e-12)]
    granted = False
    for j, n in sorted(waiting, key=lambda event: (out.came[event], event[::-1])):
        pool = job.tasks[j].takes
        slots = slots_of(problem, out, j, pool)

        def here(task: int, name: str, j: int = j, pool: str = pool) -> bool:
            return name == pool and machine_of[task] == machine_of[j]

        taken = sum(here(t, job.tasks[t].takes) for t, _ in out.task_start)
        freed = sum(here(t, job.tasks[t].gives_back) for t, _ in out.task_end)
        if slots is None or taken - freed < slots:
            out.task_start[j, n] = now
            granted = True
            for e, edge in enumerate(job.edges):
                if edge.latest and edge.destination == j:
                    there = [m for other, m in landed if other == e]
                    out.reads[e, n] = max(there, default=-1)
    return granted
