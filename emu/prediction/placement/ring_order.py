"""The order of a ring after placement: few neighbours cross a NIC, none a slow link."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from emu.problem import Job, Links, Problem, Task
from emu.problem.workloads.all_reduce import ALL_REDUCE

#: Its bound, minus its length, true where it has just moved, and the ring so far.
_Partial: TypeAlias = "tuple[RingCost, int, bool, tuple[int, ...]]"
#: Steps of the search, as ranks times machines of each: any ring of eight is exact.
STEPS = 1_000_000


class RingCost(NamedTuple):
    """Cost of a ring: its fields are compared in this order."""

    crossings: int
    """Neighbours whose flow crosses a NIC."""
    slowest: float
    """Seconds per byte of the fullest link, while every rank sends to the next."""
    links: float
    """Seconds per byte of the links that are crossed, summed."""


def ring_cost(links: Links, machines: Sequence[int]) -> RingCost:
    """Return the cost of a ring whose ranks stand on ``machines``, in its order."""
    return _cost(links, [links.route(*p) for p in pairwise([*machines, machines[0]])])


def _cost(links: Links, ways: Sequence[tuple[int, ...]]) -> RingCost:
    uses = Counter(port for way in ways for port in way)
    seconds = [count / links[port].capacity for port, count in uses.items()]
    crossings = sum(_crosses_nic(links, way) for way in ways)
    return RingCost(crossings, max(seconds, default=0.0), _round_cost(sum(seconds)))


def _round_cost(seconds: float) -> float:
    """Return a sum rounded such that two equal rings have the same."""
    return float(f"{seconds:.10e}")


def _crosses_nic(links: Links, way: tuple[int, ...]) -> bool:
    return any(links[port].machine >= 0 for port in way)


def ring_order(links: Links, machines: Sequence[int]) -> tuple[int, ...]:
    """Return the ranks, which stand on ``machines``, as the cheapest ring has them.

    The first is rank 0. Best first, by a lower bound: the first ring that is complete
    is the cheapest. Where that takes too long (rings of more than eight machines that
    are all unlike), the last part is the nearest neighbour each time.
    """
    search = _Search(links, machines)
    waiting: dict[int, list[int]] = {}
    for rank in range(len(machines) - 1, -1, -1):
        waiting.setdefault(machines[rank], []).append(rank)
    return tuple(waiting[machine].pop() for machine in search.cheapest())


class _Search:
    """Partial rings as tuples of machines; ranks on one machine are alike."""

    def __init__(self, links: Links, machines: Sequence[int]) -> None:
        self._links = links
        self._ranks = machines
        self._used = sorted(set(machines))
        apart = [(a, b) for a in self._used for b in self._used if a != b]
        self._way = {pair: links.route(*pair) for pair in apart}
        self._way |= {(a, a): () for a in self._used}
        pace = {
            pair: [1 / links[port].capacity for port in way]
            for pair, way in self._way.items()
        }
        # Whoever is entered is so by some way: the least of each measure.
        self._enter = {
            b: (
                min(_crosses_nic(links, self._way[a, b]) for a in self._used if a != b),
                min(sum(pace[a, b]) for a in self._used if a != b),
            )
            for b in self._used
            if apart
        }
        sides = [(machine, side) for machine in self._used for side in (0, 1) if apart]
        slowest = (
            min(max(pace[pair]) for pair in apart if pair[side] == machine)
            for machine, side in sides
        )
        self._slowest = max(slowest, default=0.0)

    def cheapest(self) -> tuple[int, ...]:
        """Return the machines of the ranks in the order of the ring."""
        start = (self._ranks[0],)
        heap: list[_Partial] = [(RingCost(0, 0.0, 0.0), 0, False, start)]
        steps = STEPS // (len(self._ranks) * len(self._used))
        while True:
            *_, ring = heapq.heappop(heap)
            if len(ring) == len(self._ranks):
                return ring
            steps -= 1
            if steps < 0:
                heap.clear()
            counts = Counter(self._ranks)
            counts.subtract(ring)
            for machine in self._used:
                if counts[machine]:
                    further = (*ring, machine)
                    counts[machine] -= 1
                    bound = self._bound(further, counts)
                    counts[machine] += 1
                    item = (bound, -len(further), machine != ring[-1], further)
                    heapq.heappush(heap, item)

    def _bound(self, ring: tuple[int, ...], left: Counter[int]) -> RingCost:
        """Return a lower bound on the cost of every completion of ``ring``."""
        if len(ring) == len(self._ranks):
            return ring_cost(self._links, ring)
        cost = _cost(self._links, [self._way[pair] for pair in pairwise(ring)])
        first = ring[0]
        last = ring[-1]
        machines = [m for m, ranks in left.items() if ranks and m != last]
        if not left[first] and (machines or last != first):
            machines.append(first)
        return RingCost(
            cost.crossings + sum(self._enter[m][0] for m in machines),
            max(cost.slowest, self._slowest),
            _round_cost(cost.links + sum(self._enter[m][1] for m in machines)),
        )


def with_placed_ring(problem: Problem, name: str = "") -> Problem:
    """Return the problem with the ring of its workers in the order of `ring_order`.

    Tasks and edges keep their places, and with them their times and volumes: a worker
    takes over the steps of another rank.
    """
    job = problem.job
    machine_of = problem.placement.machine_of
    steps = {
        t: task
        for t, task in enumerate(job.tasks)
        if task.kind == ALL_REDUCE and task.job_name == name
    }
    rank_of = _ranks(job, steps)
    at = {task.process_name: machine_of[t] for t, task in steps.items()}
    if not rank_of:
        return problem
    workers = [*rank_of]
    order = ring_order(problem.links, [at[worker] for worker in workers])
    new_rank = {workers[w]: rank for rank, w in enumerate(order)}
    worker_of = {rank: worker for worker, rank in new_rank.items()}
    by_name = {task.name: t for t, task in steps.items()}

    def successor_of(t: int) -> int:
        process = job.tasks[t].process_name
        by = worker_of[rank_of[process]]
        return by_name[by + job.tasks[t].name.removeprefix(process)]

    tasks = list(job.tasks)
    for t, task in steps.items():
        settings = {**task.settings, "rank": new_rank[task.process_name]}
        tasks[t] = replace(task, settings=settings)
    edges = list(job.edges)
    for position, edge in enumerate(edges):
        ends = edge.source, edge.destination
        if steps.keys() >= {*ends}:
            source, destination = map(successor_of, ends)
            edges[position] = replace(edge, source=source, destination=destination)
    return replace(problem, job=replace(job, tasks=tuple(tasks), edges=tuple(edges)))


def _ranks(job: Job, steps: Mapping[int, Task]) -> dict[str, int]:
    """Return process -> rank; none where the steps make no ring.

    The job of a recorded run has no settings. Each rank sends to the next one there;
    which is first matters to nothing but the rounding of chunks.
    """
    names = dict.fromkeys(task.process_name for task in steps.values())
    tasks = [task for task in steps.values() if task.settings.get("rank") is not None]
    ranks = {task.process_name: task.settings["rank"] for task in tasks}
    if len(ranks) == len(names):
        return ranks
    pairs = (
        (steps[edge.source].process_name, steps[edge.destination].process_name)
        for edge in job.edges
        if edge.source in steps and edge.destination in steps and not edge.credit
    )
    following = {source: to for source, to in pairs if source != to}
    ring = [next(iter(names))]
    for _ in range(len(names) - 1):
        ring.append(following.get(ring[-1], ""))
    return {name: n for n, name in enumerate(ring)} if {*ring} == {*names} else {}
