"""The order of a ring after placement: few neighbours cross a NIC, none a slow link."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
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
    neighbours = pairwise([*machines, machines[0]])
    routes = [links.route(*pair) for pair in neighbours]
    return _cost(links, routes)


def _cost(links: Links, routes: Sequence[_Route]) -> RingCost:
    # A link carries the flows of all neighbours whose route crosses it.
    uses = Counter(chain.from_iterable(routes))
    seconds = []
    for port, flows in uses.items():
        capacity = links[port].capacity
        seconds.append(flows / capacity)
    crossings = [_crosses_nic(links, route) for route in routes]
    return RingCost(
        crossings=sum(crossings),
        slowest=max(seconds, default=0.0),
        links=_round_cost(sum(seconds)),
    )


def _round_cost(seconds: float) -> float:
    """Return a sum rounded such that two equal rings have the same."""
    return float(f"{seconds:.10e}")


def _crosses_nic(links: Links, route: _Route) -> bool:
    return any(links[port].machine >= 0 for port in route)


def _measure_route(links: Links, pair: tuple[int, int]) -> _MeasuredRoute:
    route = links.route(*pair)
    seconds = [1 / links[port].capacity for port in route]
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
    waiting: dict[int, list[int]] = defaultdict(list)
    # Taken from the end below: ranks on one machine keep their order.
    for rank in reversed(range(len(machines))):
        machine = machines[rank]
        waiting[machine].append(rank)
    return tuple(waiting[machine].pop() for machine in ring)


class _Search:
    """Partial rings as tuples of machines; ranks on one machine are alike."""

    def __init__(self, links: Links, machines: Sequence[int]) -> None:
        self._links = links
        self._ranks = machines
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
        routes = {}
        for pair in permutations(self._used, 2):
            route = _measure_route(self._links, pair)
            routes[pair] = route
            self._routes[pair] = route.ports

        for machine in self._used:
            entries = [route for pair, route in routes.items() if pair[1] == machine]
            exits = [route for pair, route in routes.items() if pair[0] == machine]
            self._least_crossings[machine] = min(route.crosses_nic for route in entries)
            self._least_seconds[machine] = min(route.seconds for route in entries)
            # The ring leaves and enters each machine: the one whose best way is worst
            # bounds the slowest link.
            for choices in (exits, entries):
                fastest = min(route.slowest for route in choices)
                self._slowest = max(self._slowest, fastest)

    def cheapest(self) -> tuple[int, ...]:
        """Return the machines of the ranks in the order of the ring."""
        start = _Partial(
            bound=RingCost(crossings=0, slowest=0.0, links=0.0),
            minus_length=0,
            has_moved=False,
            ring=(self._ranks[0],),
        )
        heap = [start]
        continuations = len(self._ranks) * len(self._used)
        steps = STEPS // continuations

        while True:
            ring = heapq.heappop(heap).ring
            if len(ring) == len(self._ranks):
                return ring
            steps -= 1
            if steps < 0:
                # From here on only the best continuation of this ring is kept: the
                # nearest neighbour.
                heap.clear()
            for item in self._longer_by_one(ring):
                heapq.heappush(heap, item)

    def _longer_by_one(self, ring: tuple[int, ...]) -> Iterator[_Partial]:
        rest = Counter(self._ranks)
        rest.subtract(ring)
        for machine in self._used:
            if rest[machine]:
                longer = (*ring, machine)
                rest[machine] -= 1
                bound = self._bound(longer, rest)
                rest[machine] += 1

                yield _Partial(
                    bound=bound,
                    minus_length=-len(longer),
                    has_moved=machine != ring[-1],
                    ring=longer,
                )

    def _bound(self, ring: tuple[int, ...], left: Counter[int]) -> RingCost:
        """Return a lower bound on the cost of every completion of ``ring``."""
        if len(ring) == len(self._ranks):
            return ring_cost(self._links, ring)
        routes = [self._routes[pair] for pair in pairwise(ring)]
        cost = _cost(self._links, routes)

        # Machines that the rest of the ring enters at least once.
        first = ring[0]
        last = ring[-1]
        entered = [m for m, ranks in left.items() if ranks and m != last]
        # The ring closes: its first machine is entered once more in the end.
        comes_back = bool(entered) or last != first
        if comes_back and not left[first]:
            entered.append(first)

        crossings = sum(self._least_crossings[machine] for machine in entered)
        seconds = sum(self._least_seconds[machine] for machine in entered)
        return RingCost(
            crossings=cost.crossings + crossings,
            slowest=max(cost.slowest, self._slowest),
            links=_round_cost(cost.links + seconds),
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
    for position, task in steps.items():
        machine_of[task.process_name] = problem.placement.machine_of[position]
    workers = [*rank_of]
    machines = [machine_of[worker] for worker in workers]
    order = ring_order(problem.links, machines)
    ring = [workers[number] for number in order]
    new_rank = {worker: rank for rank, worker in enumerate(ring)}

    tasks = list(job.tasks)
    position_of = {task.name: position for position, task in steps.items()}
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
    job = replace(job, tasks=tuple(tasks), edges=tuple(edges))
    return replace(problem, job=job)


def _joins_steps(edge: Edge, steps: Mapping[int, Task]) -> bool:
    """Return True where both ends of an edge are steps of the ring."""
    return edge.source in steps and edge.destination in steps


def _ranks(job: Job, steps: Mapping[int, Task]) -> dict[str, int]:
    """Return process -> rank; none where the steps make no ring.

    The job of a recorded run has no settings. Each rank sends to the next one there;
    which is first matters to nothing but the rounding of chunks.
    """
    names = [task.process_name for task in steps.values()]
    ranks = {}
    for task in steps.values():
        rank = task.settings.get("rank")
        if rank is not None:
            ranks[task.process_name] = rank
    unique_names = set(names)
    if len(ranks) == len(unique_names):
        return ranks

    successors = {}
    for edge in job.edges:
        if _joins_steps(edge, steps) and not edge.credit:
            source = steps[edge.source].process_name
            destination = steps[edge.destination].process_name
            if source != destination:
                successors[source] = destination

    ring = [names[0]]
    for _ in range(len(unique_names) - 1):
        successor = successors.get(ring[-1], "")
        ring.append(successor)
    if set(ring) != unique_names:
        return {}
    return {name: rank for rank, name in enumerate(ring)}
