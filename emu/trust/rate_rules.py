"""The rules for rates once more, slow and plain: what a schedule is held against.

Nothing here knows groups, clocks or heaps. Every question is answered by looking at all
active flows, as the rules are worded in the papers; tests hold the simulator against a
slow simulator on these, and `emu audit --policy` a schedule. Imports of scheduling or
simulation are forbidden here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

from emu.problem import ActiveFlow, Job, Problem, Realization
from emu.trust.guards.evidence import list_capacities, list_hops, list_latencies

Rank = tuple[str, str, int, int]  # names of destination and source; lag; edge
Event = tuple[int, int]  # (task, iteration) or (edge, iteration)
Capacities = dict[str, float]  # of links, bytes per second
Rates: TypeAlias = "Callable[[list[ActiveFlow], Capacities], list[float]]"
Rule: TypeAlias = "Callable[[list[Flow], Capacities], None]"  # sets Flow.rate


@dataclass(eq=False)
class Flow:
    """One active flow: what is left, and everything a policy may ask."""

    edge: int
    turn: int
    rank: Rank
    hops: tuple[str, ...]
    volume: float
    left: float
    ready: float = 0.0
    path_after: float = 0.0
    rate: float = 0.0
    alone: float = 0.0
    job: str = ""
    coflow: str = ""
    came: float = 0.0
    carried: float = 0.0

    @property
    def purpose(self) -> tuple[int, str, str]:
        """Turn, and name or destination, of its coflow."""
        return self.turn, self.coflow, "" if self.coflow else self.rank[0]

    @property
    def time_alone(self) -> float:
        """Seconds that it would still need alone, infinite over a link that is cut."""
        return self.left / self.alone if self.alone else math.inf

    def key(self, first: float) -> tuple[float, int, Rank]:
        """Return the key that flows are sorted by."""
        return (round_to_32_bits(first), self.turn, self.rank)


def round_to_32_bits(value: float) -> float:
    """Round to 32 bits: values equal but for rounding must tie."""
    if value == 0 or math.isinf(value):
        return value
    mantissa, exponent = math.frexp(value)
    return math.ldexp(math.floor(mantissa * 2**32 + 0.5), exponent - 32)


def own(problem: Problem, task: int) -> int:
    """Return the number of iterations of a task."""
    rounds = problem.job.tasks[task].iterations
    return problem.job.iterations if rounds is None else rounds


def is_needed(problem: Problem, e: int, n: int) -> bool:
    """Return True where iteration n of an edge's source exists and a task needs it."""
    edge = problem.job.edges[e]
    return 0 <= n < own(problem, edge.source) and n + edge.lag < own(
        problem, edge.destination
    )


def remaining_paths(problem: Problem, realization: Realization) -> dict[Event, float]:
    """Return the expected longest path from the end of each flow, by the means."""
    job = problem.job
    times = [float(row.mean()) for row in realization.times]
    volumes = [float(row.mean()) for row in realization.volumes]
    capacity = list_capacities(problem)
    hops = list_hops(problem)
    latency = list_latencies(problem)

    def alone(e: int) -> float:
        return volumes[e] / min(capacity[p] for p in hops[e]) if hops[e] else 0.0

    @cache
    def task(j: int, n: int) -> float:
        if n >= own(problem, j):
            return 0.0
        paths = [task(j, n + 1)]
        for e, edge in enumerate(job.edges):
            if edge.source == j and is_needed(problem, e, n):
                paths.append(alone(e) + flow(e, n))
        return times[j] + max(paths)

    @cache
    def flow(e: int, n: int) -> float:
        arrival = n + job.edges[e].lag
        path = task(job.edges[e].destination, arrival) + latency[e]
        if hops[e] and is_needed(problem, e, n + 1):
            path = max(path, alone(e) + flow(e, n + 1))
        return path

    return {
        (e, n): flow(e, n)
        for n in reversed(range(job.iterations))  # so that recursion stays shallow
        for e in range(len(job.edges))
        if is_needed(problem, e, n)
    }


def oes(flows: list[Flow], capacity: Capacities) -> None:
    """Give each flow the least, over its links, of capacity over the flows there."""
    for flow in flows:
        flow.rate = min(
            capacity[p] / sum(p in other.hops for other in flows) for p in flow.hops
        )


def water_fill(
    flows: list[Flow], capacity: Capacities, weight: Callable[[Flow], float]
) -> None:
    """Raise all rates together, by weight, until a link of theirs is full."""
    weights = {id(flow): weight(flow) for flow in flows}
    rising = [flow for flow in flows if weights[id(flow)] > 0]
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


def maxmin(flows: list[Flow], capacity: Capacities) -> None:
    """Fill with equal weights."""
    water_fill(flows, capacity, lambda _: 1.0)


def oes_by_job(flows: list[Flow], capacity: Capacities) -> None:
    """Give each flow the least, over its links, of its equal part of its job's."""
    for flow in flows:
        parts = []
        for p in flow.hops:
            there = [other for other in flows if p in other.hops]
            jobs = {f.job for f in there}
            own = [f for f in there if f.job == flow.job]
            parts.append(capacity[p] / len(jobs) / len(own))
        flow.rate = min(parts)


#: A weight below this, of 1 at first, is what rounding left.
_NO_WEIGHT = 1e-9
#: Levels that are apart by less, as a share, are one.
_SAME = 1e-12


def maxmin_by_job(flows: list[Flow], capacity: Capacities) -> None:
    """Raise all rates together until a job's part of a link is full.

    Jobs with rising flows have equal parts of what the others there do not use. Parts
    that are full at one level freeze together.
    """
    rising = list(flows)
    while rising:
        steps = []
        for p, job in {(p, f.job) for f in rising for p in f.hops}:
            jobs = {f.job for f in rising if p in f.hops}
            still = [f for f in flows if p in f.hops and f not in rising]
            others = sum(f.rate for f in still if f.job not in jobs)
            own = sum(f.rate for f in still if f.job == job)
            part = (capacity[p] - others) / len(jobs)
            count = sum(p in f.hops and f.job == job for f in rising)
            steps.append((max(part - own, 0.0) / count, p, job))
        level = min(steps)[0]
        full = {(p, job) for each, p, job in steps if each <= level * (1 + _SAME)}
        for flow in rising:
            if any((p, flow.job) in full for p in flow.hops):
                flow.rate = level
        rising = [f for f in rising if not any((p, f.job) in full for p in f.hops)]


def natural(name: str) -> str:
    """Return a name whose numbers sort as numbers: w2 before w10."""
    return re.sub(r"\d+", lambda number: number[0].zfill(9), name)


def rank_of(job: Job, e: int) -> Rank:
    """Return what breaks ties between flows of one turn."""
    edge = job.edges[e]
    tasks = job.tasks
    names = natural(tasks[edge.destination].name), natural(tasks[edge.source].name)
    return (*names, edge.lag, e)


def fifo(flows: list[Flow], capacity: Capacities) -> None:
    """Fill with the first flow of every source alone: by readiness, then by turn."""
    queues: dict[str, list[Flow]] = {}
    for flow in flows:
        queues.setdefault(flow.hops[0], []).append(flow)
    by_turn = attrgetter("ready", "turn", "rank")
    heads = [min(queue, key=by_turn) for queue in queues.values()]
    water_fill(heads, capacity, lambda _: 1.0)


def _capacity_left(port: str, flows: Iterable[Flow], capacity: Capacities) -> float:
    rest = capacity[port] - sum(f.rate for f in flows if port in f.hops)
    return 0.0 if rest < 1e-9 * capacity[port] else rest


def in_order(
    flows: list[Flow], capacity: Capacities, order: Callable[[Flow], object]
) -> None:
    """Give the flows what is left of their links, one after the other."""
    for flow in sorted(flows, key=order):  # type: ignore[arg-type]
        flow.rate += min(_capacity_left(p, flows, capacity) for p in flow.hops)


def remaining_path(flow: Flow) -> float:
    """Return the seconds from now to the end of the job behind this flow."""
    return flow.time_alone + flow.path_after


def oes_cp(flows: list[Flow], capacity: Capacities) -> None:
    """Give what equal shares leave over to the longest remaining path first."""
    oes(flows, capacity)
    in_order(flows, capacity, lambda f: f.key(-remaining_path(f)))


def share_by_weight(flows: list[Flow], capacity: Capacities) -> None:
    """Fill by how little slack a flow has against the longest path of those that go."""
    going = [remaining_path(f) for f in flows if f.alone]
    longest = max(going, default=0.0)

    def weight(flow: Flow) -> float:
        slack = max(longest - remaining_path(flow), 0.01 * longest)
        return 1 / slack if flow.alone else 0.0

    water_fill(flows, capacity, weight)


def mrtf(flows: list[Flow], capacity: Capacities) -> None:
    """Serve the flow first that would be done first if it were alone."""
    in_order(flows, capacity, lambda f: f.key(f.time_alone))


def coflows(flows: list[Flow]) -> list[list[Flow]]:
    """Return the flows by what they are needed for: turn, and name or destination."""
    ordered = sorted(flows, key=lambda flow: flow.purpose)
    return [list(members) for _, members in groupby(ordered, lambda flow: flow.purpose)]


def note_coflows(before: list[Flow], flows: list[Flow], now: float) -> None:
    """Set when coflows came, and the bytes of their flows that have ended since.

    Both count from when a coflow last had no active flow. ``before``: the flows of the
    last instant.
    """
    still = {id(flow) for flow in flows}
    known = {f.purpose: (f.came, f.carried) for f in before if id(f) in still}
    for flow in before:
        if id(flow) not in still and flow.purpose in known:
            came, carried = known[flow.purpose]
            known[flow.purpose] = came, carried + flow.volume
    for flow in flows:
        flow.came, flow.carried = known.get(flow.purpose, (now, 0.0))


def foreseen(flow: Flow) -> float:
    """Return the bytes left, bounded by a hundredth of the flow."""
    return max(flow.left, 0.01 * flow.volume)


def finish_weights(flows: list[Flow], capacity: Capacities) -> dict[int, float]:
    """Return the inverse of each flow's time within its coflow, 0 where it is cut."""
    weights = {}
    for coflow in coflows(flows):
        for f in coflow:
            rate = min(capacity[p] / sum(p in o.hops for o in coflow) for p in f.hops)
            weights[id(f)] = 1 / (foreseen(f) / rate) if rate else 0.0
    return weights


def omcoflow(flows: list[Flow], capacity: Capacities) -> None:
    """Share every link by those weights."""
    weights = finish_weights(flows, capacity)
    for f in flows:
        if not weights[id(f)]:
            continue
        f.rate = min(
            capacity[p]
            * weights[id(f)]
            / sum(weights[id(o)] for o in flows if p in o.hops)
            for p in f.hops
        )


def bottleneck(coflow: list[Flow], free: Callable[[str], float]) -> float:
    """Return the seconds that a coflow needs at the link that it needs longest.

    Of links that are not cut; 0 where all are.
    """
    return max(
        (
            sum(f.left for f in coflow if p in f.hops) / free(p)
            for p in {p for f in coflow for p in f.hops}
            if free(p) > 0
        ),
        default=0.0,
    )


def sebf_madd(flows: list[Flow], capacity: Capacities) -> None:
    """Serve the coflow with the shortest bottleneck first, all its flows to its end."""
    gamma: dict[int, float] = {}
    for coflow in coflows(flows):
        g = bottleneck(coflow, lambda p: capacity[p])
        gamma |= {id(f): g for f in coflow}

    def turn(coflow: list[Flow]) -> tuple[float, int, Rank]:
        first = coflow[0]
        gamma_here = round_to_32_bits(gamma[id(first)])
        return gamma_here, first.turn, min(f.rank for f in coflow)

    for coflow in sorted(coflows(flows), key=turn):
        rest = {p: _capacity_left(p, flows, capacity) for f in coflow for p in f.hops}
        if all(rest[p] > 0 for f in coflow for p in f.hops):
            slowest = bottleneck(coflow, rest.__getitem__)
            for f in coflow:
                f.rate = f.left / slowest
    in_order(flows, capacity, lambda f: f.key(gamma[id(f)]))


def sincronia(flows: list[Flow], capacity: Capacities) -> None:
    """Find the coflow that goes last, then the last of the others, and so on."""
    left = sorted(coflows(flows), key=lambda c: (c[0].turn, min(f.rank for f in c)))
    weights = {id(coflow): 1.0 for coflow in left}
    place: dict[int, float] = {}

    def bytes_on(port: str, of: Iterable[Flow]) -> float:
        return sum(f.left for f in of if port in f.hops)

    while left:
        needs = {
            p: round_to_32_bits(bytes_on(p, (f for c in left for f in c)) / room)
            for p, room in capacity.items()
            if room > 0
        }
        port = max(needs, key=needs.__getitem__, default="")
        there = [c for c in left if needs.get(port) and bytes_on(port, c) > 0]
        # Of equal ones the last: they are in the order in which ties are broken.
        last = min(
            reversed(there or left[-1:]),
            key=lambda c: round_to_32_bits(
                weights[id(c)] / bytes_on(port, c) if there else 0.0
            ),
        )
        for coflow in there:
            part = bytes_on(port, coflow) / bytes_on(port, last)
            weight = weights[id(coflow)] - weights[id(last)] * part
            if coflow is not last:
                weights[id(coflow)] = weight if weight > _NO_WEIGHT else 0.0
        left.remove(last)
        place |= {id(flow): float(len(left)) for flow in last}
    in_order(flows, capacity, lambda f: f.key(place[id(f)]))


def aalo(flows: list[Flow], capacity: Capacities) -> None:
    """Serve those first that have sent least, as orders of magnitude go."""
    queue: dict[int, tuple[int, float]] = {}
    for coflow in coflows(flows):
        sent = coflow[0].carried + sum(f.volume - f.left for f in coflow)
        ends = [1e7 * 10**k <= round_to_32_bits(sent) for k in range(9)]
        came = round_to_32_bits(coflow[0].came)
        queue |= {id(flow): (sum(ends), came) for flow in coflow}
    ordered = sorted(
        coflows(flows),
        key=lambda c: (queue[id(c[0])], c[0].turn, min(f.rank for f in c)),
    )
    place = {}
    for number, coflow in enumerate(ordered):
        rest = {p: _capacity_left(p, flows, capacity) for f in coflow for p in f.hops}
        for f in coflow:
            place[id(f)] = number
            f.rate = min(rest[p] / sum(p in o.hops for o in coflow) for p in f.hops)
    in_order(flows, capacity, lambda f: (place[id(f)], f.rank))


def time_in_queue(flows: list[Flow]) -> float:
    """Return the seconds until a coflow leaves its queue of Aalo at these rates."""
    times = [math.inf]
    for coflow in coflows(flows):
        sent = coflow[0].carried + sum(f.volume - f.left for f in coflow)
        speed = sum(f.rate for f in coflow)
        queue_ends = [1e7 * 10**k for k in range(9)]
        next_end = next(
            (end for end in queue_ends if end > round_to_32_bits(sent)), None
        )
        if speed and next_end is not None:
            times.append(max(next_end - sent, 0.0) / speed)
    return min(times)


def ask_rule(problem: Problem, own: Rates) -> Rule:
    """Return a rule of one's own as those above are."""
    job = problem.job

    def rule(flows: list[Flow], capacity: Capacities) -> None:
        going = [flow for flow in flows if flow.alone]  # a rule knows no cut
        flows = sorted(going, key=lambda flow: (flow.turn, flow.rank))
        flows_seen = []
        for flow in flows:
            edge = job.edges[flow.edge]
            ends = job.tasks[edge.source].name, job.tasks[edge.destination].name
            known = flow.volume, flow.hops, flow.job, flow.left, flow.coflow or ends[1]
            begun = flow.turn - edge.lag, flow.turn
            name = job.edge_names[flow.edge]
            flows_seen.append(ActiveFlow._make((name, *ends, *begun, *known)))
        for flow, rate in zip(flows, own(flows_seen, capacity), strict=True):
            flow.rate = rate

    return rule


#: The rules by their names.
POLICIES: dict[str, Rule] = {
    "oes": oes,
    "maxmin": maxmin,
    "none": maxmin,
    "oes_by_job": oes_by_job,
    "maxmin_by_job": maxmin_by_job,
    "fifo": fifo,
    "oes_cp": oes_cp,
    "weighted_maxmin": share_by_weight,
    "mrtf": mrtf,
    "omcoflow": omcoflow,
    "sebf_madd": sebf_madd,
    "sincronia": sincronia,
    "aalo": aalo,
}
