"""The rules for rates once more, slow and plain: what a schedule is held against.

Nothing here knows groups, clocks or heaps. Every question is answered by looking at all
active flows, as the rules are worded in the papers; tests hold the simulator against a
slow simulator on these, and `emu audit --policy` a schedule. Imports of scheduling or
simulation are forbidden here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, groupby
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


def rounds_of(problem: Problem, task: int) -> int:
    """Return the number of iterations of a task."""
    rounds = problem.job.tasks[task].iterations
    return problem.job.iterations if rounds is None else rounds


def is_needed(problem: Problem, position: int, iteration: int) -> bool:
    """Return True where a flow of an edge has a source, and a task that needs it."""
    edge = problem.job.edges[position]
    is_sent = 0 <= iteration < rounds_of(problem, edge.source)
    return is_sent and iteration + edge.lag < rounds_of(problem, edge.destination)


def remaining_paths(problem: Problem, realization: Realization) -> dict[Event, float]:
    """Return the expected longest path from the end of each flow, by the means."""
    job = problem.job
    times = [float(row.mean()) for row in realization.times]
    volumes = [float(row.mean()) for row in realization.volumes]
    capacity = list_capacities(problem)
    hops = list_hops(problem)
    latency = list_latencies(problem)

    def time_alone(position: int) -> float:
        if not hops[position]:
            return 0.0
        return volumes[position] / min(capacity[port] for port in hops[position])

    @cache
    def task(number: int, iteration: int) -> float:
        if iteration >= rounds_of(problem, number):
            return 0.0
        paths = [task(number, iteration + 1)]
        for position, edge in enumerate(job.edges):
            if edge.source == number and is_needed(problem, position, iteration):
                paths.append(time_alone(position) + flow(position, iteration))
        return times[number] + max(paths)

    @cache
    def flow(position: int, iteration: int) -> float:
        edge = job.edges[position]
        path = task(edge.destination, iteration + edge.lag) + latency[position]
        if hops[position] and is_needed(problem, position, iteration + 1):
            path = max(path, time_alone(position) + flow(position, iteration + 1))
        return path

    return {
        (position, iteration): flow(position, iteration)
        for iteration in reversed(range(job.iterations))  # recursion stays shallow
        for position in range(len(job.edges))
        if is_needed(problem, position, iteration)
    }


def over(port: str, flows: Iterable[Flow]) -> list[Flow]:
    """Return those of some flows that cross a port."""
    return [flow for flow in flows if port in flow.hops]


def ports_of(flows: Iterable[Flow]) -> set[str]:
    """Return the ports that some flows cross."""
    return {port for flow in flows for port in flow.hops}


def oes(flows: list[Flow], capacity: Capacities) -> None:
    """Give each flow the least, over its links, of capacity over the flows there."""
    for flow in flows:
        flow.rate = min(capacity[port] / len(over(port, flows)) for port in flow.hops)


def water_fill(
    flows: list[Flow],
    capacity: Capacities,
    weight: Callable[[Flow], float],
) -> None:
    """Raise all rates together, by weight, until a link of theirs is full."""
    weights = {id(flow): weight(flow) for flow in flows}
    rising = [flow for flow in flows if weights[id(flow)] > 0]
    while rising:
        steps = []
        for port in ports_of(rising):
            settled_flows = [flow for flow in over(port, flows) if flow not in rising]
            free = capacity[port] - sum(flow.rate for flow in settled_flows)
            total = sum(weights[id(flow)] for flow in over(port, rising))
            # What is settled may exceed a full port by rounding.
            steps.append((max(free, 0.0) / total, port))

        # The link that is full first; of equal ones the first by name.
        level, full_port = min(steps)
        for flow in over(full_port, rising):
            flow.rate = level * weights[id(flow)]
        rising = [flow for flow in rising if full_port not in flow.hops]


def maxmin(flows: list[Flow], capacity: Capacities) -> None:
    """Fill with equal weights."""
    water_fill(flows, capacity, lambda _: 1.0)


def oes_by_job(flows: list[Flow], capacity: Capacities) -> None:
    """Give each flow the least, over its links, of its equal part of its job's."""
    for flow in flows:
        parts = []
        for port in flow.hops:
            jobs = [rival.job for rival in over(port, flows)]
            parts.append(capacity[port] / len(set(jobs)) / jobs.count(flow.job))
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
        levels = {}
        for port, job in {(port, flow.job) for flow in rising for port in flow.hops}:
            rising_jobs = [flow.job for flow in over(port, rising)]
            settled_flows = [flow for flow in over(port, flows) if flow not in rising]
            used_by_others = sum(
                f.rate for f in settled_flows if f.job not in rising_jobs
            )
            used_by_job = sum(flow.rate for flow in settled_flows if flow.job == job)
            part = (capacity[port] - used_by_others) / len(set(rising_jobs))
            levels[port, job] = max(part - used_by_job, 0.0) / rising_jobs.count(job)

        level = min(levels.values())
        full = {key for key in levels if levels[key] <= level * (1 + _SAME)}
        still_rising = []
        for flow in rising:
            if any((port, flow.job) in full for port in flow.hops):
                flow.rate = level
            else:
                still_rising.append(flow)
        rising = still_rising


def natural(name: str) -> str:
    """Return a name whose numbers sort as numbers: w2 before w10."""
    return re.sub(r"\d+", lambda number: number[0].zfill(9), name)


def rank_of(job: Job, position: int) -> Rank:
    """Return what breaks ties between flows of one turn."""
    edge = job.edges[position]
    # Names before positions: the order of tasks in a file must decide nothing.
    destination = natural(job.tasks[edge.destination].name)
    source = natural(job.tasks[edge.source].name)
    return destination, source, edge.lag, position


def fifo(flows: list[Flow], capacity: Capacities) -> None:
    """Fill with the first flow of every source alone: by readiness, then by turn."""
    queues: dict[str, list[Flow]] = {}
    for flow in flows:
        queues.setdefault(flow.hops[0], []).append(flow)
    by_turn = attrgetter("ready", "turn", "rank")
    heads = [min(queue, key=by_turn) for queue in queues.values()]
    water_fill(heads, capacity, lambda _: 1.0)


def capacity_left(port: str, flows: list[Flow], capacity: Capacities) -> float:
    """Return the bytes per second of a port that no flow has; rounding is nothing."""
    rest = capacity[port] - sum(flow.rate for flow in over(port, flows))
    return 0.0 if rest < 1e-9 * capacity[port] else rest


def in_order(
    flows: list[Flow],
    capacity: Capacities,
    order: Callable[[Flow], object],
) -> None:
    """Give the flows what is left of their links, one after the other."""
    for flow in sorted(flows, key=order):  # type: ignore[arg-type]
        flow.rate += min(capacity_left(port, flows, capacity) for port in flow.hops)


def remaining_path(flow: Flow) -> float:
    """Return the seconds from now to the end of the job behind this flow."""
    return flow.time_alone + flow.path_after


def oes_cp(flows: list[Flow], capacity: Capacities) -> None:
    """Give what equal shares leave over to the longest remaining path first."""
    oes(flows, capacity)
    in_order(flows, capacity, lambda flow: flow.key(-remaining_path(flow)))


def share_by_weight(flows: list[Flow], capacity: Capacities) -> None:
    """Fill by how little slack a flow has against the longest path of those that go."""
    paths = [remaining_path(flow) for flow in flows if flow.alone]
    longest = max(paths, default=0.0)

    def weight(flow: Flow) -> float:
        # At least a hundredth: the longest path has no slack, and weights differ by at
        # most 100.
        slack = max(longest - remaining_path(flow), 0.01 * longest)
        return 1 / slack if flow.alone else 0.0

    water_fill(flows, capacity, weight)


def mrtf(flows: list[Flow], capacity: Capacities) -> None:
    """Serve the flow first that would be done first if it were alone."""
    in_order(flows, capacity, lambda flow: flow.key(flow.time_alone))


def mrtf_exclusive(flows: list[Flow], capacity: Capacities) -> None:
    """Do likewise, and let no two flows share a link."""
    del capacity
    busy: set[str] = set()
    for flow in sorted(flows, key=lambda flow: flow.key(flow.time_alone)):
        if not busy & {*flow.hops}:
            flow.rate = flow.alone
            busy |= {*flow.hops}


def coflows(flows: list[Flow]) -> list[list[Flow]]:
    """Return the flows by what they are needed for: turn, and name or destination."""
    by_purpose = attrgetter("purpose")
    sequence = sorted(flows, key=by_purpose)
    return [list(members) for _, members in groupby(sequence, by_purpose)]


def note_coflows(before: list[Flow], flows: list[Flow], now: float) -> None:
    """Set when coflows came, and the bytes of their flows that have ended since.

    Both count from when a coflow last had no active flow. ``before``: the flows of the
    last instant.
    """
    active = {id(flow) for flow in flows}
    histories = {f.purpose: (f.came, f.carried) for f in before if id(f) in active}
    for flow in before:
        if id(flow) not in active and flow.purpose in histories:
            arrival, volume = histories[flow.purpose]
            histories[flow.purpose] = arrival, volume + flow.volume
    for flow in flows:
        flow.came, flow.carried = histories.get(flow.purpose, (now, 0.0))


def foreseen(flow: Flow) -> float:
    """Return the bytes left, or a hundredth of the flow: 1 / time has no bound."""
    return max(flow.left, 0.01 * flow.volume)


def finish_weights(
    flows: list[Flow], capacity: Capacities, *, whole: bool = False
) -> dict[int, float]:
    """Return the inverse of each flow's time within its coflow, 0 where it is cut.

    ``whole``: the time of all its bytes, not of those that are left.
    """
    weights = {}
    for coflow in coflows(flows):
        for flow in coflow:
            rate = min(capacity[p] / len(over(p, coflow)) for p in flow.hops)
            size = flow.volume if whole else foreseen(flow)
            weights[id(flow)] = 1 / (size / rate) if rate else 0.0
    return weights


def omcoflow(flows: list[Flow], capacity: Capacities, *, whole: bool = False) -> None:
    """Share every link by the inverse of each flow's time within its coflow."""
    weights = finish_weights(flows, capacity, whole=whole)
    for flow in flows:
        weight = weights[id(flow)]
        if not weight:
            continue
        shares = []
        for port in flow.hops:
            total = sum(weights[id(rival)] for rival in over(port, flows))
            shares.append(capacity[port] * weight / total)
        flow.rate = min(shares)


def omcoflow_wc(flows: list[Flow], capacity: Capacities) -> None:
    """Fill by the same weights: what one flow cannot use goes to the others."""
    weights = finish_weights(flows, capacity)
    water_fill(flows, capacity, lambda flow: weights[id(flow)])


def bottleneck(coflow: list[Flow], free: Mapping[str, float]) -> float:
    """Return the seconds that a coflow needs at the link that it needs longest.

    Of links that are not cut; 0 where all are.
    """
    ports = [port for port in ports_of(coflow) if free[port] > 0]
    return max((bytes_over(port, coflow) / free[port] for port in ports), default=0.0)


def first_rank(coflow: list[Flow]) -> tuple[int, Rank]:
    """Return what breaks ties between coflows: turn, and rank of the first flow."""
    return coflow[0].turn, min(flow.rank for flow in coflow)


def omcoflow_gamma(flows: list[Flow], capacity: Capacities) -> None:
    """Fill by bytes over the square of the coflow's bottleneck: its flows end together.

    Bytes are those that are foreseen.
    """
    weights: dict[int, float] = {}
    for coflow in coflows(flows):
        sizes = {id(flow): foreseen(flow) for flow in coflow}
        times = [
            sum(sizes[id(flow)] for flow in over(port, coflow)) / capacity[port]
            for port in ports_of(coflow)
            if capacity[port] > 0
        ]
        gamma = max(times, default=0.0)
        for flow in coflow:
            weights[id(flow)] = sizes[id(flow)] / gamma**2 if flow.alone else 0.0
    water_fill(flows, capacity, lambda flow: weights[id(flow)])


def sebf_madd(flows: list[Flow], capacity: Capacities) -> None:
    """Serve the coflow with the shortest bottleneck first, all its flows to its end."""
    gamma: dict[int, float] = {}
    for coflow in coflows(flows):
        gamma |= dict.fromkeys(map(id, coflow), bottleneck(coflow, capacity))

    def turn(coflow: list[Flow]) -> tuple[float, int, Rank]:
        return round_to_32_bits(gamma[id(coflow[0])]), *first_rank(coflow)

    for coflow in sorted(coflows(flows), key=turn):
        rest = {p: capacity_left(p, flows, capacity) for p in ports_of(coflow)}
        # With one link full some of its flows would stand still: all wait for what is
        # left.
        if all(room > 0 for room in rest.values()):
            # MADD: none of its flows ends before the one that takes longest.
            slowest = bottleneck(coflow, rest)
            for flow in coflow:
                flow.rate = flow.left / slowest
    # What MADD leaves idle goes to the flows in the same order, as Varys backfills.
    in_order(flows, capacity, lambda flow: flow.key(gamma[id(flow)]))


def bytes_over(port: str, flows: Iterable[Flow]) -> float:
    """Return the bytes left of those of some flows that cross a port."""
    return sum(flow.left for flow in over(port, flows))


def sincronia(flows: list[Flow], capacity: Capacities) -> None:
    """Find the coflow that goes last, then the last of the others, and so on."""
    rest = sorted(coflows(flows), key=first_rank)
    weights = {id(coflow): 1.0 for coflow in rest}
    place: dict[int, float] = {}
    while rest:
        needs = {}
        for port, room in capacity.items():
            if room > 0:
                size = bytes_over(port, chain.from_iterable(rest))
                needs[port] = round_to_32_bits(size / room)
        port = max(needs, key=needs.__getitem__, default="")

        # Select: of those on the fullest port the one of least weight per byte.
        candidates = []
        if needs.get(port):
            candidates = [coflow for coflow in rest if bytes_over(port, coflow) > 0]
        # Of equal ones the last: they are in the order in which ties are broken.
        last = rest[-1]
        if candidates:
            ratios = [weights[id(c)] / bytes_over(port, c) for c in candidates]
            rounded_ratios = [*map(round_to_32_bits, ratios)]
            least = min(rounded_ratios)
            pairs = zip(candidates, rounded_ratios, strict=True)
            *_, last = [coflow for coflow, ratio in pairs if ratio == least]
        # Scale: the others there weigh less by their part of what it has there.
        for coflow in candidates:
            part = bytes_over(port, coflow) / bytes_over(port, last)
            weight = weights[id(coflow)] - weights[id(last)] * part
            if coflow is not last:
                weights[id(coflow)] = weight if weight > _NO_WEIGHT else 0.0
        rest.remove(last)
        place |= dict.fromkeys(map(id, last), float(len(rest)))
    in_order(flows, capacity, lambda flow: flow.key(place[id(flow)]))


#: Bytes with which a coflow leaves each queue of Aalo for the next.
#: 10 MB and tenfold from queue to queue, ten in all, are the paper's settings.
QUEUE_ENDS = [1e7 * 10**number for number in range(9)]


def bytes_sent(coflow: list[Flow]) -> float:
    """Return what a coflow has sent since it last had no active flow."""
    # `note_coflows` has given all flows of a coflow the same bytes of those that ended.
    return coflow[0].carried + sum(flow.volume - flow.left for flow in coflow)


def aalo(flows: list[Flow], capacity: Capacities) -> None:
    """Serve those first that have sent least, as orders of magnitude go."""

    def turn(coflow: list[Flow]) -> tuple[int, float, int, Rank]:
        volume = round_to_32_bits(bytes_sent(coflow))
        queue = sum(end <= volume for end in QUEUE_ENDS)
        return queue, round_to_32_bits(coflow[0].came), *first_rank(coflow)

    place = {}
    for number, coflow in enumerate(sorted(coflows(flows), key=turn)):
        rest = {p: capacity_left(p, flows, capacity) for p in ports_of(coflow)}
        for flow in coflow:
            place[id(flow)] = number
            flow.rate = min(rest[port] / len(over(port, coflow)) for port in flow.hops)
    in_order(flows, capacity, lambda flow: (place[id(flow)], flow.rank))


def time_in_queue(flows: list[Flow]) -> float:
    """Return the seconds until a coflow leaves its queue of Aalo at these rates."""
    times = [math.inf]
    for coflow in coflows(flows):
        volume = bytes_sent(coflow)
        speed = sum(flow.rate for flow in coflow)
        ends_ahead = [end for end in QUEUE_ENDS if end > round_to_32_bits(volume)]
        if speed and ends_ahead:
            times.append(max(ends_ahead[0] - volume, 0.0) / speed)
    return min(times)


def ask_rule(problem: Problem, rates: Rates) -> Rule:
    """Return a rule of one's own as those above are."""
    job = problem.job

    def as_asked(flow: Flow) -> ActiveFlow:
        edge = job.edges[flow.edge]
        destination = job.tasks[edge.destination].name
        return ActiveFlow(
            edge=job.edge_names[flow.edge],
            source=job.tasks[edge.source].name,
            destination=destination,
            iteration=flow.turn - edge.lag,
            serves=flow.turn,
            volume=flow.volume,
            links=flow.hops,
            job=flow.job,
            left=flow.left,
            coflow=flow.coflow or destination,
        )

    def rule(flows: list[Flow], capacity: Capacities) -> None:
        uncut = [flow for flow in flows if flow.alone]  # a rule knows no cut
        uncut.sort(key=attrgetter("turn", "rank"))
        answer = rates([*map(as_asked, uncut)], capacity)
        for flow, rate in zip(uncut, answer, strict=True):
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
    "mrtf_exclusive": mrtf_exclusive,
    "omcoflow": omcoflow,
    "omcoflow_frozen": partial(omcoflow, whole=True),
    "omcoflow_wc": omcoflow_wc,
    "omcoflow_gamma": omcoflow_gamma,
    "sebf_madd": sebf_madd,
    "sincronia": sincronia,
    "aalo": aalo,
}
