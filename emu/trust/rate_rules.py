"""The rules for rates once more, slow and plain: what a schedule is held against.

Nothing here knows groups, clocks or heaps. Every question is answered by looking at all
active flows, as the rules are worded in the papers; tests hold the simulator against a
slow simulator on these, and `emu audit --policy` a schedule. Imports of scheduling or
simulation are forbidden here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from operator import attrgetter
from typing import TypeAlias

from emu.problem import ActiveFlow, Job, Problem, Realization
from emu.trust.coflow_rules import (
    aalo,
    omcoflow,
    omcoflow_gamma,
    omcoflow_wc,
    sebf_madd,
    sincronia,
)
from emu.trust.guards.evidence import list_capacities, list_hops, list_latencies
from emu.trust.rated_flows import (
    Capacities,
    Flow,
    Flows,
    Rank,
    Rule,
    find_settled,
    in_order,
    over,
    ports_of,
    water_fill,
)

Event = tuple[int, int]  # (task, iteration) or (edge, iteration)
Rates: TypeAlias = "Callable[[list[ActiveFlow], Capacities], list[float]]"


def rounds_of(problem: Problem, task: int) -> int:
    """Return the number of iterations of a task."""
    job = problem.job
    rounds = job.tasks[task].iterations
    if rounds is None:
        return job.iterations
    return rounds


def is_needed(problem: Problem, position: int, iteration: int) -> bool:
    """Return True where a flow of an edge has a source, and a task that needs it."""
    edge = problem.job.edges[position]
    rounds = rounds_of(problem, edge.source)
    if not 0 <= iteration < rounds:
        return False
    turn = iteration + edge.lag
    return turn < rounds_of(problem, edge.destination)


def _means_of(
    problem: Problem,
    realization: Realization,
) -> tuple[list[float], list[float]]:
    """Return mean times of tasks, and volumes of flows that are needed, by edge."""
    times = []
    for number, row in enumerate(realization.times):
        times_of_task = row[: rounds_of(problem, number)]
        times.append(float(times_of_task.mean()))
    volumes = []
    for position, row in enumerate(realization.volumes):
        sizes = [
            float(size)
            for iteration, size in enumerate(row)
            if is_needed(problem, position, iteration)
        ]
        mean = sum(sizes) / len(sizes) if sizes else 0.0
        volumes.append(mean)
    return times, volumes


def remaining_paths(problem: Problem, realization: Realization) -> dict[Event, float]:
    """Return the expected longest path from the end of each flow, by the means."""
    job = problem.job
    times, volumes = _means_of(problem, realization)
    capacity = list_capacities(problem)
    hops = list_hops(problem)
    latency = list_latencies(problem)

    def time_alone(position: int) -> float:
        ports = hops[position]
        if not ports:
            return 0.0
        narrowest = min(capacity[port] for port in ports)
        return volumes[position] / narrowest

    @cache
    def task(number: int, iteration: int) -> float:
        if iteration >= rounds_of(problem, number):
            return 0.0
        paths = [task(number, iteration + 1)]
        for position, edge in enumerate(job.edges):
            if edge.source == number and is_needed(problem, position, iteration):
                path = time_alone(position) + flow(position, iteration)
                paths.append(path)
        return times[number] + max(paths)

    @cache
    def flow(position: int, iteration: int) -> float:
        edge = job.edges[position]
        turn = iteration + edge.lag
        path = task(edge.destination, turn) + latency[position]
        following = iteration + 1
        if hops[position] and is_needed(problem, position, following):
            path_of_next = time_alone(position) + flow(position, following)
            path = max(path, path_of_next)
        return path

    return {
        (position, iteration): flow(position, iteration)
        for iteration in reversed(range(job.iterations))  # recursion stays shallow
        for position in range(len(job.edges))
        if is_needed(problem, position, iteration)
    }


def oes(flows: Flows, capacity: Capacities) -> None:
    """Give each flow the least, over its links, of capacity over the flows there."""
    for flow in flows:
        shares = []
        for port in flow.hops:
            rivals = over(port, flows)
            share = capacity[port] / len(rivals)
            shares.append(share)
        flow.rate = min(shares)


def maxmin(flows: Flows, capacity: Capacities) -> None:
    """Fill with equal weights."""
    water_fill(flows, capacity, lambda _: 1.0)


def oes_by_job(flows: Flows, capacity: Capacities) -> None:
    """Give each flow the least, over its links, of its equal part of its job's."""
    for flow in flows:
        parts = []
        for port in flow.hops:
            rivals = over(port, flows)
            jobs = [rival.job for rival in rivals]
            part_of_job = capacity[port] / len(set(jobs))
            part = part_of_job / jobs.count(flow.job)
            parts.append(part)
        flow.rate = min(parts)


def maxmin_by_job(flows: Flows, capacity: Capacities) -> None:
    """Raise all rates together until a job's part of a link is full.

    Jobs with rising flows have equal parts of what the others there do not use.
    """
    rising = list(flows)
    while rising:
        levels = {}
        for port in ports_of(rising):
            crossing = over(port, rising)
            for job in {flow.job for flow in crossing}:
                levels[port, job] = _level_of_job(
                    port,
                    job,
                    flows=flows,
                    rising=rising,
                    capacity=capacity[port],
                )

        lowest = min(levels.values())
        full = {part for part, level in levels.items() if level <= lowest}
        still_rising = []
        for flow in rising:
            parts = {(port, flow.job) for port in flow.hops}
            if parts & full:
                flow.rate = lowest
            else:
                still_rising.append(flow)
        rising = still_rising


def _level_of_job(
    port: str,
    job: str,
    flows: Flows,
    rising: Flows,
    capacity: float,
) -> float:
    """Return the rate of each rising flow of a job with which its part is full."""
    rising_jobs = [flow.job for flow in over(port, rising)]
    settled_flows = find_settled(port, flows, rising)
    others = [flow for flow in settled_flows if flow.job not in rising_jobs]
    members = [flow for flow in settled_flows if flow.job == job]
    used_by_others = sum(flow.rate for flow in others)
    used_by_job = sum(flow.rate for flow in members)

    part = (capacity - used_by_others) / len(set(rising_jobs))
    free = max(part - used_by_job, 0.0)
    return free / rising_jobs.count(job)


def natural(name: str) -> str:
    """Return a name whose numbers sort as numbers: w2 before w10."""

    def pad(number: re.Match[str]) -> str:
        return number[0].zfill(9)

    return re.sub(r"\d+", pad, name)


def rank_of(job: Job, position: int) -> Rank:
    """Return what breaks ties between flows of one turn."""
    edge = job.edges[position]
    source_task, reader = job.ends(edge)
    # Names before positions: the order of tasks in a file must decide nothing.
    destination = natural(reader.name)
    source = natural(source_task.name)
    return destination, source, edge.lag, position


def fifo(flows: Flows, capacity: Capacities) -> None:
    """Fill with the first flow of every source alone: by readiness, then by turn."""
    queues: defaultdict[str, Flows] = defaultdict(list)
    for flow in flows:
        first_port = flow.hops[0]
        queues[first_port].append(flow)
    by_turn = attrgetter("ready", "turn", "rank")
    heads = [min(queue, key=by_turn) for queue in queues.values()]
    water_fill(heads, capacity, lambda _: 1.0)


def remaining_path(flow: Flow) -> float:
    """Return the seconds from now to the end of the job behind this flow."""
    return flow.time_alone + flow.path_after


def oes_cp(flows: Flows, capacity: Capacities) -> None:
    """Give what equal shares leave over to the longest remaining path first."""
    oes(flows, capacity)
    in_order(flows, capacity, lambda flow: flow.key(-remaining_path(flow)))


def share_by_weight(flows: Flows, capacity: Capacities) -> None:
    """Fill by how little slack a flow has against the longest path of those that go."""
    paths = [remaining_path(flow) for flow in flows if flow.alone]
    longest = max(paths, default=0.0)

    def weight(flow: Flow) -> float:
        if not flow.alone:
            return 0.0
        slack = longest - remaining_path(flow)
        # At least a hundredth: the longest path has no slack, and weights differ by at
        # most 100.
        return 1 / max(slack, 0.01 * longest)

    water_fill(flows, capacity, weight)


def mrtf(flows: Flows, capacity: Capacities) -> None:
    """Serve the flow first that would be done first if it were alone."""
    in_order(flows, capacity, lambda flow: flow.key(flow.time_alone))


def mrtf_exclusive(flows: Flows, capacity: Capacities) -> None:
    """Do likewise, and let no two flows share a link."""
    del capacity
    busy = set[str]()

    def turn(flow: Flow) -> tuple[float, int, Rank]:
        return flow.key(flow.time_alone)

    for flow in sorted(flows, key=turn):
        if busy.isdisjoint(flow.hops):
            flow.rate = flow.alone
            busy.update(flow.hops)


def ask_rule(problem: Problem, rates: Rates) -> Rule:
    """Return a rule of one's own as those above are."""
    job = problem.job

    def as_asked(flow: Flow) -> ActiveFlow:
        edge = job.edges[flow.edge]
        source, destination = job.ends(edge)
        return ActiveFlow(
            edge=job.edge_names[flow.edge],
            source=source.name,
            destination=destination.name,
            iteration=flow.turn - edge.lag,
            serves=flow.turn,
            volume=flow.volume,
            links=flow.hops,
            job=flow.job,
            left=flow.left,
            coflow=flow.coflow or destination.name,
        )

    def rule(flows: Flows, capacity: Capacities) -> None:
        uncut = [flow for flow in flows if flow.alone]  # a rule knows no cut
        uncut.sort(key=attrgetter("turn", "rank"))
        asked = [as_asked(flow) for flow in uncut]
        answer = rates(asked, capacity)
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
