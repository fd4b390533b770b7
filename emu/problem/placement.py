"""Placement of the tasks of a job, slots that they share, and a problem to schedule.

A process that one of its own tasks takes as a pool is a *server*: it has one slot, and
those of its tasks that take it run one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from typing_extensions import override

from emu.array_types import Floats
from emu.errors import PlacementError
from emu.problem.job import Job, Positions, Realization
from emu.problem.links import NO_ROUTE
from emu.problem.machine import format_amount, name_amount

if TYPE_CHECKING:
    from emu.problem.cluster import Cluster
    from emu.problem.links import Links
    from emu.problem.machine import Machine
    from emu.problem.schedule import Schedule

#: Resource -> amount.
Amounts: TypeAlias = dict[str, float]


#: Positions that a placement shows of itself, and names or problems in an error.
_SHOWN = 24
_NAMED = 4


@dataclass(frozen=True)
class Pool:
    """The slots of one name on one machine, limited in number."""

    machine: int
    """Position of the machine."""
    name: str
    """Name of the pool, such as ``gpu``."""
    slots: int
    """Number of slots, at least 1; where it is tuned at the start."""
    takers: Positions
    freers: Positions
    """Tasks of this machine that take a slot before they start, and that give one back
    when they end."""
    most: int
    """Number of slots at most, other than ``slots`` where it is tuned."""


def slots_on(machine: Machine, job: Job) -> dict[str, int]:
    """Return the slots of every pool that is limited on a machine."""
    # A pool that the machine states wins over the one slot of a server.
    return {**dict.fromkeys(job.servers, 1), **machine.slots}


def pools_of(cluster: Cluster, job: Job, machine_of: Sequence[int]) -> tuple[Pool, ...]:
    """Return the limited pools, those that machines state, of tasks of a placed job."""
    tasks = job.tasks
    sharing: dict[int, list[int]] = {}
    for j, task in enumerate(tasks):
        if task.takes or task.gives_back:
            sharers = sharing.setdefault(machine_of[j], [])
            sharers.append(j)

    limits = {}
    for tuner in cluster.tuners:
        limits[tuner.machine, tuner.pool] = tuner.most

    pools = []
    for position, machine in enumerate(cluster.machines):
        candidates = sharing.get(position, [])
        slots_by_pool = slots_on(machine, job)
        for name, slots in slots_by_pool.items():
            takers = [j for j in candidates if tasks[j].takes == name]
            freers = [j for j in candidates if tasks[j].gives_back == name]
            if not takers and not freers:
                continue
            limit = limits.get((position, name), slots)
            pool = Pool(
                machine=position,
                name=name,
                slots=slots,
                takers=tuple(takers),
                freers=tuple(freers),
                # A machine may begin with more slots than its tuner would give.
                most=max(slots, limit),
            )
            pools.append(pool)
    return tuple(pools)


def slot_teams(job: Job) -> tuple[tuple[str, ...], ...]:
    """Return the processes that share slots: one takes what another one gives back.

    A pool gets back no more slots than tasks of its machine took, so these stand on one
    machine wherever the pool is limited. Of several that take, the one nearest
    upstream of a task that gives back is meant, until it gave as many as that one took.
    """
    # Slots that each task takes and others have yet to give back.
    open_slots = []
    rounds_of_tasks = zip(job.tasks, job.rounds, strict=True)
    for task, rounds in rounds_of_tasks:
        is_open = task.takes and task.gives_back != task.takes
        count = rounds if is_open else 0
        open_slots.append(count)

    # Process -> all that have to stand where it does.
    team: dict[str, set[str]] = {}
    for j, task in enumerate(job.tasks):
        if not task.gives_back or task.gives_back == task.takes:
            continue
        count = job.rounds[j]
        freer = task.process_name
        for position in _upstream(job, j):
            taking = job.tasks[position]
            if open_slots[position] and taking.takes == task.gives_back:
                pairs = min(count, open_slots[position])
                count -= pairs
                open_slots[position] -= pairs
                taker = taking.process_name
                freer_team = team.get(freer, {freer})
                taker_team = team.get(taker, {taker})
                union = freer_team | taker_team
                # One set for all, so that teams that meet later become one.
                team.update(dict.fromkeys(union, union))
            if not count:  # the rest of 20,000 tasks, for each of 2,000, took 40 s
                break

    # Teams are one set under several names: its least name tells it once.
    teams = {}
    for members in team.values():
        names = sorted(members)
        least = names[0]
        teams[least] = tuple(names)
    return tuple(names for names in teams.values() if len(names) > 1)


def _upstream(job: Job, start: int) -> Iterator[int]:
    """Yield all tasks by their distance before ``start``, those not before it last."""
    level = [start]
    tasks = {start}

    while level:
        # A taker is two steps away: to look behind a parameter server beside it, which
        # has edges from 3,200 tasks, took 40 of 60 s.
        yield from level
        next_level = []
        for task in level:
            for edge in job.in_edges(task):
                source = job.edges[edge].source
                if source not in tasks:
                    tasks.add(source)
                    next_level.append(source)
        level = next_level
    for task in range(len(job.tasks)):
        if task not in tasks:
            yield task


def slowness(job: Job, cluster: Cluster) -> Floats:
    """Return the factors on reference times, p_j^m over p_j, shape (tasks, machines).

    Searches and bounds have the times of no machine in particular (*reference* times),
    and multiply. A `Realization` of a placed job holds what its machines take.

    No rows where all are 1: of 45,000 tasks on 3,200 machines they would take 1.2 GB.
    """
    rows = 0
    if any(task.slowness for task in job.tasks):
        rows = len(job.tasks)
    shape = (rows, len(cluster.machines))
    factors = np.ones(shape)

    names = cluster.names
    for row, task in enumerate(job.tasks):
        slowness_on = task.slowness
        if slowness_on:
            factors[row] = [slowness_on.get(name, 1.0) for name in names]
    return factors


@dataclass(frozen=True)
class Placement:
    """The machine of every task, y of the paper."""

    machine_of: Positions
    """Position in ``Cluster.machines`` for each task of the job, in order."""

    @override
    def __repr__(self) -> str:
        """Return the positions of the first machines."""
        count = len(self.machine_of)
        first = self.machine_of[:_SHOWN]
        machines = ", ".join(map(str, first))
        rest = ", ..." if count > _SHOWN else ""
        return f"<Placement of {count} tasks: {machines}{rest}>"

    def usage(self, job: Job, cluster: Cluster) -> list[Amounts]:
        """Return, per machine, the summed demand on each resource that is demanded."""
        usage: list[Amounts] = [{} for _ in cluster.machines]
        placed_tasks = zip(job.tasks, self.machine_of, strict=True)
        for task, machine in placed_tasks:
            amounts = usage[machine]
            for resource, demand in task.demands.items():
                amount = amounts.get(resource, 0.0)
                amounts[resource] = amount + demand
        return usage

    def violations(self, job: Job, cluster: Cluster) -> list[str]:
        """Return one sentence per broken constraint of (1)-(3), none if it is feasible.

        Checked are the capacities, the pins, that a process stands in one place, and
        that no more slots are given back on a machine than are taken there.
        """
        return [
            *self._overloads(job, cluster),
            *self._misplacements(job, cluster),
            *self.missing_routes(job, cluster),
            *self._excess_slots(job, cluster),
        ]

    def _overloads(self, job: Job, cluster: Cluster) -> Iterator[str]:
        """Yield the machines whose tasks demand more than they have, constraint (1)."""
        usage = self.usage(job, cluster)
        loads = zip(cluster.machines, usage, strict=True)
        for machine, amounts in loads:
            for resource, amount in amounts.items():
                capacity = machine.resources.get(resource, np.inf)
                allowed = capacity * (1 + 1e-12)  # sums of demands are rounded
                if amount > allowed:
                    stock = name_amount(capacity, resource)
                    demand = format_amount(amount, resource)
                    yield f"machine {machine.name} has {stock}, its tasks need {demand}"

    def _misplacements(self, job: Job, cluster: Cluster) -> Iterator[str]:
        """Yield the pins that are not kept, and processes on several machines."""
        names = [cluster.machines[machine].name for machine in self.machine_of]
        # Units, as gates stand on machines as well though nothing runs there.
        for process, members in job.units.items():
            kind = "process" if len(members) > 1 else "task"
            homes = {names[member] for member in members}
            wrong: set[tuple[str, str]] = set()
            for member in members:
                pin = job.tasks[member].pinned
                home = names[member]
                if pin is not None and pin != home:
                    wrong.add((pin, home))

            # A set has no order, and errors should.
            for pin, name in sorted(wrong):
                yield f"{kind} {process} must stand on {pin}, not {name}"
            if len(homes) > 1:
                yield f"process {process} stands on several machines"

    def _excess_slots(self, job: Job, cluster: Cluster) -> Iterator[str]:
        """Yield the pools that get more slots back than tasks take there."""
        # Pools without a limit are none of these: they may get back anything.
        rounds = job.rounds
        for pool in pools_of(cluster, job, self.machine_of):
            takes = sum(rounds[j] for j in pool.takers)
            frees = sum(rounds[j] for j in pool.freers)
            if frees <= takes:
                continue

            first_freers = pool.freers[:_NAMED]
            names = ", ".join(job.tasks[j].name for j in first_freers)
            machine = cluster.machines[pool.machine]
            yield (
                f"pool {pool.name} of machine {machine.name} gets {frees} slots back "
                f"from {names}, but {takes} are taken there"
            )

    def missing_routes(self, job: Job, cluster: Cluster) -> list[str]:
        """Return the flows that go where no route leads."""
        # Most clusters join all machines: then no flow has to be looked at.
        shared_names = [link.name for link in cluster.shared_links]
        if NO_ROUTE not in shared_names:
            return []

        problems = []
        edges = zip(job.edges, job.control, strict=True)
        for edge, control in edges:
            # Over edges of order alone nothing is sent, so they need no way.
            if control:
                continue
            source = self.machine_of[edge.source]
            destination = self.machine_of[edge.destination]
            ports = cluster.links.route(source, destination)
            names = [cluster.links[port].name for port in ports]
            if NO_ROUTE in names:
                sender = job.tasks[edge.source].name
                receiver = job.tasks[edge.destination].name
                sender_machine = cluster.machines[source].name
                receiver_machine = cluster.machines[destination].name
                problems.append(
                    f"{sender} sends to {receiver}, and no route leads from "
                    f"{sender_machine} to {receiver_machine}"
                )
        return problems

    def check(self, job: Job, cluster: Cluster) -> None:
        """Raise PlacementError with the first violations, if there are any."""
        problems = self.violations(job, cluster)
        if problems:
            words = "; ".join(problems[:_NAMED])
            raise PlacementError(f"this placement cannot be: {words}")


@dataclass(frozen=True)
class Problem:
    """A job placed on a cluster: what a scheduler needs besides times and volumes.

    Raises ValueError when the placement does not name a machine of the cluster for
    every task.
    """

    cluster: Cluster
    job: Job
    placement: Placement

    def __post_init__(self) -> None:
        machine_of = self.placement.machine_of
        tasks = self.job.tasks
        if len(machine_of) != len(tasks):
            raise ValueError(
                f"the placement names {len(machine_of)} machines for {len(tasks)} tasks"
            )

        placed_tasks = zip(tasks, machine_of, strict=True)
        for task, machine in placed_tasks:
            if not 0 <= machine < len(self.cluster.machines):
                raise ValueError(f"task {task.name} is on machine number {machine}")

    def following(self, schedule: Schedule) -> Problem:
        """Return the problem whose tuners do what those of ``schedule`` did."""
        cluster = self.cluster.following(schedule.quotas)
        return replace(self, cluster=cluster)

    def beginning_at(self, first: int, began: float = 0.0) -> Problem:
        """Return the problem from an iteration on, as `Job` and `Cluster` do."""
        return replace(
            self,
            cluster=self.cluster.beginning_at(began),
            job=self.job.beginning_at(first),
        )

    @property
    def links(self) -> Links:
        """The links of the cluster; a *port* is a position among them."""
        return self.cluster.links

    @property
    def speeds(self) -> Floats:
        """Speed of the machine of every task, shape (tasks,)."""
        machines = self.cluster.machines
        machine_of = self.placement.machine_of
        speeds = [machines[position].speed for position in machine_of]
        return np.array(speeds)

    def work(self, start: Floats, end: Floats) -> Floats:
        """Return the seconds that tasks worked from ``start`` to ``end``.

        At the full speed of their machines: what is slower for a time does less. Gates
        stand on no machine. All are seconds of (task, iteration).
        """
        steps = self.cluster.speed_steps
        seconds = end - start
        for task, machine in enumerate(self.placement.machine_of):
            if self.job.tasks[task].gate:
                continue
            step_times, _ = steps.of(machine)
            # Of most machines nothing changes: what has passed is what was worked.
            if len(step_times) > 1:
                seconds[task] = steps.work(machine, start[task], end[task])
        return seconds

    @cached_property
    def slowness(self) -> Floats:
        """Factor on the reference times of every task, shape (tasks,)."""
        factors = slowness(self.job, self.cluster)  # on every machine
        tasks = len(self.job.tasks)
        if not len(factors):
            return np.ones(tasks)
        rows = np.arange(tasks)
        return factors[rows, self.placement.machine_of]

    def stretch(self, reference: Realization) -> Realization:
        """Return the run on the machines of this placement, from reference times."""
        # Bytes are the same wherever a task stands.
        factors = self.slowness[:, None]
        times = reference.times * factors
        return Realization(times, reference.volumes)

    def reference(self, taken: Realization) -> Realization:
        """Return the reference times of what the machines of this placement take."""
        factors = self.slowness[:, None]
        times = taken.times / factors
        return Realization(times, taken.volumes)

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The pools that tasks share slots of."""
        return pools_of(self.cluster, self.job, self.placement.machine_of)

    @property
    def capacities(self) -> Floats:
        """Capacity of every link, bytes per second."""
        return self.links.capacities

    @cached_property
    def hops(self) -> tuple[Positions, ...]:
        """The ports that a flow of each edge crosses; empty for a local handoff."""
        machine_of = self.placement.machine_of
        route = cache(self.links.route)  # edges are many, pairs of machines few
        hops: list[Positions] = []
        edges = zip(self.job.edges, self.job.control, strict=True)
        for edge, control in edges:
            source = machine_of[edge.source]
            destination = machine_of[edge.destination]
            ports = () if control else route(source, destination)
            hops.append(ports)
        return tuple(hops)

    @cached_property
    def latencies(self) -> Floats:
        """Seconds from when a flow of each edge ends to when it has landed."""
        of_link = self.links.latencies
        if not of_link.size:
            return np.zeros(len(self.hops))
        latencies = [of_link[list(hops)].sum() for hops in self.hops]
        return np.array(latencies)

    @cached_property
    def machine_of_task(self) -> dict[str, str]:
        """Name of the machine of every task, by the task's name."""
        tasks = [task.name for task in self.job.tasks]
        machines = self.cluster.machines
        machine_of = self.placement.machine_of
        names = [machines[position].name for position in machine_of]
        return dict(zip(tasks, names, strict=True))

    @override
    def __repr__(self) -> str:
        """Return the sizes of job and cluster."""
        machines = len(self.cluster.machines)
        return f"<Problem: {self.job!r} on {machines} machines>"
