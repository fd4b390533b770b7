"""A slow simulator written from the constraints, to compare the fast one with.

No counters, heaps, groups or clocks: the whole history is kept as times of (task, n)
and (edge, n), every question is answered by looking at it, and every active flow
carries the bytes it has left. Rates are recomputed for all flows whenever the set of
active flows has changed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from emu.problem import Problem, Realization

Event = tuple[int, int]  # (task, iteration) or (edge, iteration)


@dataclass
class Flow:
    """One active flow: what is left, and everything a policy may ask."""

    edge: int
    turn: int
    rank: tuple[str, str]
    hops: tuple[int, ...]
    volume: float
    left: float
    ready: float = 0.0
    path_after: float = 0.0
    rate: float = 0.0
    alone: float = 0.0

    def key(self, first: float) -> tuple[float, int, tuple[str, str]]:
        """Return what flows are sorted by."""
        return (rounded(first), self.turn, self.rank)


@dataclass
class Outcome:
    """Times of everything that happened, and the rates from each time on."""

    task_start: dict[Event, float] = field(default_factory=dict)
    task_end: dict[Event, float] = field(default_factory=dict)
    flow_ready: dict[Event, float] = field(default_factory=dict)
    flow_start: dict[Event, float] = field(default_factory=dict)
    flow_end: dict[Event, float] = field(default_factory=dict)
    rates: list[tuple[float, dict[Event, float]]] = field(default_factory=list)
    came: dict[Event, float] = field(default_factory=dict)


def rounded(value: float) -> float:
    """To 32 bits: what is equal but for rounding must tie."""
    if value == 0 or math.isinf(value):
        return value
    mantissa, exponent = math.frexp(value)
    return math.ldexp(math.floor(mantissa * 2**32 + 0.5), exponent - 32)


def links(problem: Problem) -> dict[str, float]:
    """Return the capacity of every NIC direction and shared link, by name."""
    found = {}
    for machine in problem.cluster.machines:
        if machine.bandwidth_out:
            found[f"{machine.name} out"] = machine.bandwidth_out
            found[f"{machine.name} in"] = machine.bandwidth_in
    return found | {link.name: link.capacity for link in problem.cluster.shared_links}


def hops_of(problem: Problem) -> list[tuple[int, ...]]:
    """Return the positions in `links` of what every edge crosses."""
    names = [*links(problem)]
    found: list[tuple[int, ...]] = []
    for edge in problem.job.edges:
        a, b = (
            problem.placement.machine_of[t] for t in (edge.source, edge.destination)
        )
        if a == b or edge.credit:
            found.append(())
            continue
        through: tuple[str, ...] = ("out", "in")
        for route in problem.cluster.routes:
            if a in route.sources and b in route.destinations:
                through = route.through
        machines = problem.cluster.machines
        own = {"out": f"{machines[a].name} out", "in": f"{machines[b].name} in"}
        found.append(tuple(names.index(own.get(name, name)) for name in through))
    return found


def own(problem: Problem, task: int) -> int:
    """Return how many iterations a task has."""
    stated = problem.job.tasks[task].iterations
    return problem.job.iterations if stated is None else stated


def needed(problem: Problem, e: int, n: int) -> bool:
    """Tell whether iteration n of an edge's source is there, and needed by somebody."""
    edge = problem.job.edges[e]
    return 0 <= n < own(problem, edge.source) and n + edge.lag < own(
        problem, edge.destination
    )


def run(problem: Problem, realization: Realization, policy: str) -> Outcome:
    job = problem.job
    capacity = [*links(problem).values()]
    path_after = remaining_paths(problem, realization)
    out = Outcome()
    active: dict[Event, Flow] = {}
    now = 0.0
    while True:
        while _one_step(
            problem, realization, out, active, path_after, now
        ) or _some_get_slots(problem, out, now):
            pass
        if len(out.task_end) == sum(own(problem, j) for j in range(len(job.tasks))):
            break
        flows = list(active.values())
        if not out.rates or set(active) != set(out.rates[-1][1]):
            for flow in flows:
                flow.rate = 0.0
            POLICIES[policy](flows, capacity)
            out.rates.append((now, {key: flow.rate for key, flow in active.items()}))
        ends = [
            start + realization.times[event]
            for event, start in out.task_start.items()
            if event not in out.task_end
        ]
        ends += [now + f.left / f.rate for f in flows if f.rate > 0]
        later = min(ends)
        for flow in flows:
            flow.left -= flow.rate * (later - now)
        now = later
    assert not active
    return out


def _one_step(
    problem: Problem,
    realization: Realization,
    out: Outcome,
    active: dict[Event, Flow],
    path_after: dict[Event, float],
    now: float,
) -> bool:
    """Let one thing happen that is due by ``now``; tell whether there was one."""
    return (
        _something_ends(realization, out, active, now)
        or _something_is_sent(problem, realization, out, active, path_after, now)
        or _something_starts(problem, out, now)
    )


def _something_ends(
    realization: Realization, out: Outcome, active: dict[Event, Flow], now: float
) -> bool:
    for event, flow in active.items():
        if flow.left <= 1e-11 * flow.volume:
            del active[event]
            out.flow_end[event] = now
            return True
    for event, start in out.task_start.items():
        end = start + realization.times[event]
        if event not in out.task_end and end <= now * (1 + 1e-12):
            out.task_end[event] = now
            return True
    return False


def _something_is_sent(
    problem: Problem,
    realization: Realization,
    out: Outcome,
    active: dict[Event, Flow],
    path_after: dict[Event, float],
    now: float,
) -> bool:
    flows = [
        (e, n)
        for e, edge in enumerate(problem.job.edges)
        for n in range(problem.job.iterations)
        if needed(problem, e, n) and (edge.source, n) in out.task_end
    ]
    names = [task.name for task in problem.job.tasks]
    for e, n in flows:
        if (e, n) not in out.flow_ready:
            out.flow_ready[e, n] = now
            return True
        if (e, n) in out.flow_start or (n > 0 and (e, n - 1) not in out.flow_end):
            continue
        out.flow_start[e, n] = now
        edge, hops = problem.job.edges[e], hops_of(problem)[e]
        volume = float(realization.volumes[e, n])
        if hops and volume > 0:
            # Names of one digit each: their order is that of the letters.
            rank = natural(names[edge.destination]), natural(names[edge.source])
            active[e, n] = Flow(e, n + edge.lag, rank, hops, volume, volume)
            active[e, n].ready = out.flow_ready[e, n]
            active[e, n].path_after = path_after[e, n]
            capacity = [*links(problem).values()]
            active[e, n].alone = min(capacity[p] for p in hops)
        else:
            out.flow_end[e, n] = now
        return True
    return False


def _something_starts(problem: Problem, out: Outcome, now: float) -> bool:
    job = problem.job
    iterations = [(j, n) for j in range(len(job.tasks)) for n in range(own(problem, j))]
    for j, n in iterations:
        if (j, n) in out.task_start or (n > 0 and (j, n - 1) not in out.task_end):
            continue
        inputs = [
            (e, n - edge.lag)
            for e, edge in enumerate(job.edges)
            if edge.destination == j and needed(problem, e, n - edge.lag)
        ]
        if (j, n) in out.came or not all(event in out.flow_end for event in inputs):
            continue
        if slots_of(problem, j, job.tasks[j].takes) is None:
            out.task_start[j, n] = now
        else:
            out.came[j, n] = now
        return True
    return False


def slots_of(problem: Problem, task: int, pool: str) -> int | None:
    """Return how many slots the pool has on a task's machine, None for no limit."""
    machine = problem.cluster.machines[problem.placement.machine_of[task]]
    return machine.slots.get(pool)


def _some_get_slots(problem: Problem, out: Outcome, now: float) -> bool:
    """Start all whose turn it is, when nothing else happens at this time any more."""
    job, machine_of = problem.job, problem.placement.machine_of
    waiting = [event for event in out.came if event not in out.task_start]
    granted = False
    for j, n in sorted(waiting, key=lambda event: (out.came[event], event[::-1])):
        pool = job.tasks[j].takes
        slots = slots_of(problem, j, pool)

        def here(task: int, name: str, j: int = j, pool: str = pool) -> bool:
            return name == pool and machine_of[task] == machine_of[j]

        taken = sum(here(t, job.tasks[t].takes) for t, _ in out.task_start)
        freed = sum(here(t, job.tasks[t].gives_back) for t, _ in out.task_end)
        if slots is not None and taken - freed < slots:
            out.task_start[j, n] = now
            granted = True
    return granted


def remaining_paths(problem: Problem, realization: Realization) -> dict[Event, float]:
    """Return the expected longest path from the end of each flow, by the means."""
    job = problem.job
    times = [float(row.mean()) for row in realization.times]
    volumes = [float(row.mean()) for row in realization.volumes]
    capacity, hops = [*links(problem).values()], hops_of(problem)

    def alone(e: int) -> float:
        return volumes[e] / min(capacity[p] for p in hops[e]) if hops[e] else 0.0

    @cache
    def task(j: int, n: int) -> float:
        if n >= own(problem, j):
            return 0.0
        paths = [task(j, n + 1)]
        for e, edge in enumerate(job.edges):
            if edge.source == j and needed(problem, e, n):
                paths.append(alone(e) + flow(e, n))
        return times[j] + max(paths)

    @cache
    def flow(e: int, n: int) -> float:
        arrival = n + job.edges[e].lag
        path = task(job.edges[e].destination, arrival)
        if hops[e] and needed(problem, e, n + 1):
            path = max(path, alone(e) + flow(e, n + 1))
        return path

    return {
        (e, n): flow(e, n)
        for e in range(len(job.edges))
        for n in range(job.iterations)
        if needed(problem, e, n)
    }


# --- policies -----------------------------------------------------------------------


def oes(flows: list[Flow], capacity: list[float]) -> None:
    for flow in flows:
        flow.rate = min(
            capacity[p] / sum(p in other.hops for other in flows) for p in flow.hops
        )


def water_fill(
    flows: list[Flow], capacity: list[float], weight: Callable[[Flow], float]
) -> None:
    weights = {id(flow): weight(flow) for flow in flows}
    rising = list(flows)
    while rising:
        steps = []
        for p in {p for flow in rising for p in flow.hops}:
            free = capacity[p] - sum(
                f.rate for f in flows if p in f.hops and f not in rising
            )
            total = sum(weights[id(f)] for f in rising if p in f.hops)
            steps.append((max(free, 0.0) / total, p))
        level, port = min(steps)
        for flow in [f for f in rising if port in f.hops]:
            flow.rate = level * weights[id(flow)]
            rising = [f for f in rising if f is not flow]


def maxmin(flows: list[Flow], capacity: list[float]) -> None:
    water_fill(flows, capacity, lambda _: 1.0)


def natural(name: str) -> str:
    """Return a name whose numbers sort as numbers: w2 before w10."""
    return re.sub(r"\d+", lambda number: number[0].zfill(9), name)


def fifo(flows: list[Flow], capacity: list[float]) -> None:
    queues: dict[int, list[Flow]] = {}
    for flow in flows:
        queues.setdefault(flow.hops[0], []).append(flow)
    heads = [
        # Times that are equal on paper may part by rounding here.
        min(queue, key=lambda f: (round(f.ready, 10), f.turn, f.rank))
        for queue in queues.values()
    ]
    water_fill(heads, capacity, lambda _: 1.0)


def _left_at(port: int, flows: Iterable[Flow], capacity: list[float]) -> float:
    left = capacity[port] - sum(f.rate for f in flows if port in f.hops)
    return 0.0 if left < 1e-9 * capacity[port] else left


def in_order(
    flows: list[Flow], capacity: list[float], order: Callable[[Flow], object]
) -> None:
    for flow in sorted(flows, key=order):  # type: ignore[arg-type]
        flow.rate += min(_left_at(p, flows, capacity) for p in flow.hops)


def remaining_path(flow: Flow) -> float:
    return flow.left / flow.alone + flow.path_after


def oes_cp(flows: list[Flow], capacity: list[float]) -> None:
    oes(flows, capacity)
    in_order(flows, capacity, lambda f: f.key(-remaining_path(f)))


def weighted_maxmin(flows: list[Flow], capacity: list[float]) -> None:
    longest = max((remaining_path(f) for f in flows), default=0.0)
    water_fill(
        flows,
        capacity,
        lambda f: 1 / max(longest - remaining_path(f), 0.01 * longest),
    )


def mrtf(flows: list[Flow], capacity: list[float]) -> None:
    in_order(flows, capacity, lambda f: f.key(f.left / f.alone))


def mrtf_exclusive(flows: list[Flow], capacity: list[float]) -> None:
    del capacity
    busy: set[int] = set()
    for flow in sorted(flows, key=lambda f: f.key(f.left / f.alone)):
        if not busy & set(flow.hops):
            flow.rate = flow.alone
            busy |= set(flow.hops)


def coflows(flows: list[Flow]) -> list[list[Flow]]:
    def name(flow: Flow) -> tuple[int, str]:
        return flow.turn, flow.rank[0]

    return [list(members) for _, members in groupby(sorted(flows, key=name), key=name)]


def foreseen(flow: Flow) -> float:
    return max(flow.left, 0.01 * flow.volume)


def finish_weights(
    flows: list[Flow], capacity: list[float], *, whole: bool = False
) -> dict[int, float]:
    weights = {}
    for coflow in coflows(flows):
        for f in coflow:
            rate = min(capacity[p] / sum(p in o.hops for o in coflow) for p in f.hops)
            weights[id(f)] = 1 / ((f.volume if whole else foreseen(f)) / rate)
    return weights


def omcoflow(flows: list[Flow], capacity: list[float], *, whole: bool = False) -> None:
    weights = finish_weights(flows, capacity, whole=whole)
    for f in flows:
        f.rate = min(
            capacity[p]
            * weights[id(f)]
            / sum(weights[id(o)] for o in flows if p in o.hops)
            for p in f.hops
        )


def omcoflow_frozen(flows: list[Flow], capacity: list[float]) -> None:
    omcoflow(flows, capacity, whole=True)


def omcoflow_wc(flows: list[Flow], capacity: list[float]) -> None:
    weights = finish_weights(flows, capacity)
    water_fill(flows, capacity, lambda f: weights[id(f)])


def bottleneck(
    coflow: list[Flow],
    free: Callable[[int], float],
    left: Callable[[Flow], float] = lambda f: f.left,
) -> float:
    return max(
        sum(left(f) for f in coflow if p in f.hops) / free(p)
        for p in {p for f in coflow for p in f.hops}
    )


def omcoflow_gamma(flows: list[Flow], capacity: list[float]) -> None:
    weights: dict[int, float] = {}
    for coflow in coflows(flows):
        gamma = bottleneck(coflow, lambda p: capacity[p], foreseen)
        weights |= {id(f): foreseen(f) / gamma**2 for f in coflow}
    water_fill(flows, capacity, lambda f: weights[id(f)])


def sebf_madd(flows: list[Flow], capacity: list[float]) -> None:
    gamma: dict[int, float] = {}
    for coflow in coflows(flows):
        g = bottleneck(coflow, lambda p: capacity[p])
        gamma |= {id(f): g for f in coflow}
    ordered = sorted(
        coflows(flows),
        key=lambda c: (rounded(gamma[id(c[0])]), c[0].turn, c[0].rank[0]),
    )
    for coflow in ordered:
        left = {p: _left_at(p, flows, capacity) for p in range(len(capacity))}
        if all(left[p] > 0 for f in coflow for p in f.hops):
            slowest = bottleneck(coflow, left.__getitem__)
            for f in coflow:
                f.rate = f.left / slowest
    in_order(flows, capacity, lambda f: f.key(gamma[id(f)]))


POLICIES: dict[str, Callable[[list[Flow], list[float]], None]] = {
    "oes": oes,
    "maxmin": maxmin,
    "none": maxmin,
    "fifo": fifo,
    "oes_cp": oes_cp,
    "weighted_maxmin": weighted_maxmin,
    "mrtf": mrtf,
    "mrtf_exclusive": mrtf_exclusive,
    "omcoflow": omcoflow,
    "omcoflow_frozen": omcoflow_frozen,
    "omcoflow_wc": omcoflow_wc,
    "omcoflow_gamma": omcoflow_gamma,
    "sebf_madd": sebf_madd,
}
