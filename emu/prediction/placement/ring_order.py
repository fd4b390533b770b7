"""The order of a ring after placement: few neighbours cross a NIC, none a slow link."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise, permutations
from typing import NamedTuple, TypeAlias

from emu.problem import Edge, Job, Links, Problem, Task
from emu.problem.workloads.all_reduce import ALL_REDUCE

_Route: TypeAlias = tuple[int, ...]
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


class _Partial(NamedTuple):
    """A ring so far: its fields are compared in this order.

    Of equal bounds the longer ring comes first, which ends the search sooner, and of
    these one that stays on its machine.
    """

    bound: RingCost
    minus_length: int
    has_moved: bool
    ring: tuple[int, ...]


class _MeasuredRoute(NamedTuple):
    """Route from one machine to another."""

    ports: _Route
    crosses_nic: bool
    seconds: float
    """Per byte, of all of its links."""
    slowest: float
    """Seconds per byte of the slowest of them."""


def ring_cost(links: Links, machines: Sequence[int]) -> RingCost:
    """Return the cost of a ring whose ranks stand on ``machines``, in its order."""
    closed_ring = [*machines, machines[0]]
    routes = []
    for machine, successor in pairwise(closed_ring):
        route = links.route(machine, successor)
        routes.append(route)
    return _cost(links, routes)


def _cost(links: Links, routes: Sequence[_Route]) -> RingCost:
    # A link carries the flows of all neighbours whose route crosses it.
    uses = Counter(chain.from_iterable(routes))
    seconds = []
    for port, flows in uses.items():
        capacity = links[port].capacity
        seconds.append(flows / capacity)
    crossings = 0
    for route in routes:
        crossings += _crosses_nic(links, route)
    return RingCost(
        crossings=crossings,
        slowest=max(seconds, default=0.0),
        links=_round_cost(sum(seconds)),
    )


def _round_cost(seconds: float) -> float:
    """Return a sum rounded such that two equal rings have the same."""
    return float(f"{seconds:.10e}")


def _crosses_nic(links: Links, route: _Route) -> bool:
    return any(links[port].machine >= 0 for port in route)


def _measure_route(links: Links, source: int, destination: int) -> _MeasuredRoute:
    route = links.route(source, destination)
    seconds = []
    for port in route:
        capacity = links[port].capacity
        seconds.append(1 / capacity)

    return _MeasuredRoute(
        ports=route,
        crosses_nic=_crosses_nic(links, route),
        seconds=sum(seconds),
        slowest=max(seconds),
    )


def ring_order(links: Links, machines: Sequence[int]) -> tuple[int, ...]:
    """Return the ranks, which stand on ``machines``, as the cheapest ring has them.

    The first is rank 0. Best first, by a lower bound: the first ring that is complete
    is the cheapest. Where that takes too long (rings of more than eight machines that
    are all unlike), the last part is the nearest neighbour each time.
    """
    search = _Search(links, machines)
    ring = search.cheapest()
    waiting: dict[int, deque[int]] = defaultdict(deque)
    # Ranks on one machine keep their order.
    for rank, machine in enumerate(machines):
        waiting[machine].append(rank)
    ranks = []
    for machine in ring:
        rank = waiting[machine].popleft()
        ranks.append(rank)
    return tuple(ranks)


class _Search:
    """Partial rings as tuples of machines; ranks on one machine are alike."""

    def __init__(self, links: Links, machines: Sequence[int]) -> None:
        self._links = links
        self._ranks = machines
        self._length = len(machines)
        self._used = sorted(set(machines))
        self._routes = dict[tuple[int, int], _Route]()
        for machine in self._used:
            self._routes[machine, machine] = ()

        # Whoever is entered is so by some route: the least of each measure.
        self._least_crossings = dict[int, int]()
        self._least_seconds = dict[int, float]()
        self._slowest = 0.0
        if len(self._used) > 1:
            self._measure_routes()

    def _measure_routes(self) -> None:
        exits: dict[int, list[_MeasuredRoute]] = defaultdict(list)
        entries: dict[int, list[_MeasuredRoute]] = defaultdict(list)
        for source, destination in permutations(self._used, 2):
            route = _measure_route(self._links, source, destination)
            self._routes[source, destination] = route.ports
            exits[source].append(route)
            entries[destination].append(route)

        for machine, routes in entries.items():
            crossings = [route.crosses_nic for route in routes]
            seconds = [route.seconds for route in routes]
            self._least_crossings[machine] = min(crossings)
            self._least_seconds[machine] = min(seconds)

        # The ring leaves and enters each machine: the one whose best way is worst
        # bounds the slowest link.
        for routes in (*exits.values(), *entries.values()):
            best_way = min(route.slowest for route in routes)
            self._slowest = max(self._slowest, best_way)

    def cheapest(self) -> tuple[int, ...]:
        """Return the machines of the ranks in the order of the ring."""
        first = self._ranks[0]
        start = _Partial(
            bound=RingCost(crossings=0, slowest=0.0, links=0.0),
            minus_length=0,
            has_moved=False,
            ring=(first,),
        )
        heap = [start]
        continuations = self._length * len(self._used)
        steps = STEPS // continuations

        while True:
            best = heapq.heappop(heap)
            ring = best.ring
            if len(ring) == self._length:
                return ring

            steps -= 1
            if steps < 0:
                # From here on only the best continuation of this ring is kept: the
                # nearest neighbour.
                heap.clear()
            for longer in self._longer_by_one(ring):
                heapq.heappush(heap, longer)

    def _longer_by_one(self, ring: tuple[int, ...]) -> Iterator[_Partial]:
        rest = Counter(self._ranks)
        rest.subtract(ring)
        last = ring[-1]
        for machine in self._used:
            if not rest[machine]:
                continue

            longer = (*ring, machine)
            rest[machine] -= 1
            bound = self._bound(longer, rest)
            rest[machine] += 1
            yield _Partial(
                bound=bound,
                minus_length=-len(longer),
                has_moved=machine != last,
                ring=longer,
            )

    def _bound(self, ring: tuple[int, ...], left: Counter[int]) -> RingCost:
        """Return a lower bound on the cost of every completion of ``ring``."""
        if len(ring) == self._length:
            return ring_cost(self._links, ring)

        routes = [self._routes[pair] for pair in pairwise(ring)]
        cost = _cost(self._links, routes)

        # Machines that the rest of the ring enters at least once.
        first = ring[0]
        last = ring[-1]
        entered = []
        for machine, ranks in left.items():
            if ranks and machine != last:
                entered.append(machine)
        # The ring closes: its first machine is entered once more in the end.
        if not left[first]:
            entered.append(first)

        crossings = map(self._least_crossings.__getitem__, entered)
        seconds = map(self._least_seconds.__getitem__, entered)
        return RingCost(
            crossings=cost.crossings + sum(crossings),
            slowest=max(cost.slowest, self._slowest),
            links=_round_cost(cost.links + sum(seconds)),
        )


def with_placed_ring(problem: Problem, name: str = "") -> Problem:
    """Return the problem with the ring of its workers in the order of `ring_order`.

    Tasks and edges keep their places, and with them their times and volumes: a worker
    takes over the steps of another rank. ``name`` is of the job whose ring it is.
    """
    job = problem.job
    steps = {
        position: task
        for position, task in enumerate(job.tasks)
        if task.kind == ALL_REDUCE and task.job_name == name
    }
    rank_of = _ranks(job, steps)
    if not rank_of:
        return problem

    machine_of = {}
    position_of = {}
    for position, task in steps.items():
        machine = problem.placement.machine_of[position]
        machine_of[task.process_name] = machine
        position_of[task.name] = position
    workers = [*rank_of]
    machines = [machine_of[worker] for worker in workers]
    order = ring_order(problem.links, machines)
    ring = [workers[number] for number in order]
    new_rank = {worker: rank for rank, worker in enumerate(ring)}

    tasks = list(job.tasks)
    successor_of = dict[int, int]()
    for position, task in steps.items():
        worker = task.process_name
        settings = {**task.settings, "rank": new_rank[worker]}
        tasks[position] = replace(task, settings=settings)
        # The worker that now has this one's old rank takes over its step.
        old_rank = rank_of[worker]
        successor = ring[old_rank]
        step_name = task.name.removeprefix(worker)
        successor_of[position] = position_of[successor + step_name]

    edges = list(job.edges)
    for position, edge in enumerate(edges):
        if _joins_steps(edge, steps):
            edges[position] = replace(
                edge,
                source=successor_of[edge.source],
                destination=successor_of[edge.destination],
            )
    job_with_ring = replace(job, tasks=tuple(tasks), edges=tuple(edges))
    return replace(problem, job=job_with_ring)


def _joins_steps(edge: Edge, steps: Mapping[int, Task]) -> bool:
    """Return True where both ends of an edge are steps of the ring."""
    return edge.source in steps and edge.destination in steps


def _ranks(job: Job, steps: Mapping[int, Task]) -> dict[str, int]:
    """Return process -> rank; none where the steps make no ring.

    The job of a recorded run has no settings. Each rank sends to the next one there;
    which is first matters to nothing but the rounding of chunks.
    """
    names = []
    ranks = {}
    for task in steps.values():
        names.append(task.process_name)
        rank = task.settings.get("rank")
        if rank is not None:
            ranks[task.process_name] = rank
    unique_names = set(names)
    if len(ranks) == len(unique_names):
        return ranks

    successors = {}
    for edge in job.edges:
        if edge.credit or not _joins_steps(edge, steps):
            continue
        source = steps[edge.source].process_name
        destination = steps[edge.destination].process_name
        if source != destination:
            successors[source] = destination

    ring = [names[0]]
    while len(ring) < len(unique_names):
        last = ring[-1]
        successor = successors.get(last, "")
        ring.append(successor)
    if set(ring) != unique_names:
        return {}
    return {name: rank for rank, name in enumerate(ring)}
