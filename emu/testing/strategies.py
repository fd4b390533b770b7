"""Random problems for property tests.

`random_problem` draws from a numpy generator, for seeded loops; `problems` is the
same as a Hypothesis strategy. Numbers come from small sets, so that ties, zero times
and zero volumes are common.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import permutations, product

import numpy as np
from hypothesis import strategies as st
from numpy.random import Generator

from emu.array_types import Floats
from emu.problem import (
    CapacityChange,
    Cluster,
    Edge,
    Fault,
    Job,
    Link,
    Machine,
    Placement,
    Problem,
    Realization,
    Route,
    Task,
    Tuner,
    with_faults,
)

#: Bytes per second. Few and round, so that shares of different ports tie.
_RATES = np.array([1.0, 2.0, 5.0, 10.0])
#: Seconds. What stands twice is drawn twice as often, so that more tasks end together.
_TIMES = np.array([0.0, 0.5, 1.0, 1.0, 2.0, 3.0])
#: Seconds at which links change and machines slow down; tasks end at some of them.
_CHANGES = np.array([0.25, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0])
#: Seconds. 1e-13 is less than instants are told apart by; 7 is longer than most flows.
_LATENCIES = np.array([0.0, 0.0, 1e-13, 0.3, 1.0, 7.0])
#: Bytes. Divided by rates they are as round as times: flows and tasks end together.
_VOLUMES = np.array([0.0, 1.0, 5.0, 10.0, 10.0, 40.0])


def random_problem(
    rng: Generator,
    *,
    ties: bool = True,
    links: bool = False,
    own: bool = False,
    slots: bool = False,
    channels: bool = False,
    latest: bool = False,
    jobs: bool = False,
    changes: bool = False,
    cuts: bool = False,
    speeds: bool = False,
    tuned: bool = False,
    latencies: bool = False,
    coflows: bool = False,
) -> tuple[Problem, Realization]:
    """Return a random problem of up to 4 machines, 8 tasks and 6 iterations.

    Parameters
    ----------
    ties
        True where times and volumes come from a few round numbers, some of them 0.
    links
        Machines are joined by shared links as well, and may have no NIC.
    own
        Tasks have numbers of iterations of their own.
    slots, channels, coflows
        Tasks of a machine share slots; edges share a channel, or a coflow.
    latest, jobs
        Some edges read the newest; there are two jobs.
    changes, cuts, speeds
        Capacities change; links are cut for a time; machines are slow, or stand still,
        for a time.
    tuned
        Quotas of slots are tuned, of use with ``slots``.
    latencies
        Links add latencies to the way of a flow.
    """
    # Few machines share few pools: tuners need tasks that wait.
    most_machines = 2 if tuned else 4
    machines = _pick_count(rng, most_machines)
    tasks = _pick_count(rng, 8)
    iterations = _pick_count(rng, 6)
    edges = _edges(tasks, rng, channels=channels, latest=latest, coflows=coflows)
    drawn_tasks = []
    for number in range(tasks):
        most = iterations if own else None
        task = _task(number, rng, jobs=jobs, most=most, slots=slots)
        drawn_tasks.append(task)
    job = Job(
        tasks=tuple(drawn_tasks),
        edges=tuple(edges),
        iterations=iterations,
    )

    cluster = _cluster(machines, rng, slots=slots)
    if links:
        cluster = _with_links(cluster, rng)
    if changes or cuts:
        cluster = _with_changes(cluster, rng, cuts=cuts)
    if tuned:
        cluster = _with_tuners(cluster, rng)
    if speeds:
        faults = _slow_machines(cluster, rng)
        cluster = with_faults(cluster, faults)
    if latencies:
        cluster = _with_latencies(cluster, rng)
    machine_of = rng.integers(0, machines, tasks).tolist()
    placement = Placement(tuple(machine_of))

    of_tasks = (tasks, iterations)
    of_edges = (len(edges), iterations)
    if ties:
        times = rng.choice(_TIMES, of_tasks)
        volumes = rng.choice(_VOLUMES, of_edges)
    else:
        times = rng.uniform(0, 3, of_tasks)
        volumes = rng.uniform(0, 40, of_edges)
    problem = Problem(cluster, job, placement)
    return problem, Realization(times, volumes)


def _pick(rng: Generator, numbers: Sequence[float] | Floats) -> float:
    """Return a number, each as likely as often it stands there."""
    return float(rng.choice(numbers))


def _pick_count(rng: Generator, most: int) -> int:
    """Return a number from 1 to ``most``, each as likely."""
    return int(rng.integers(1, most + 1))


def _pick_name(rng: Generator, names: Sequence[str]) -> str:
    """Return a name, likewise."""
    return str(rng.choice(names))


def _task(
    number: int,
    rng: Generator,
    *,
    jobs: bool,
    most: int | None,
    slots: bool,
) -> Task:
    """Return a task, of up to ``most`` iterations of its own where that is stated."""
    task = Task(f"t{number}", f"kind{number % 3}")
    if jobs:
        job = "ab"[number % 2]
        task = replace(task, name=f"{job}/{task.name}")
    if most is not None:
        iterations = _pick_count(rng, most)
        task = replace(task, iterations=iterations)
    if slots:
        pool = _pick_name(rng, ["", "gpu", "cpu"])
        task = replace(task, takes=pool)
    return task


def _edges(
    tasks: int,
    rng: Generator,
    *,
    channels: bool,
    latest: bool,
    coflows: bool,
) -> list[Edge]:
    edges = []
    for source, destination in product(range(tasks), range(tasks)):
        if rng.random() > 0.35:
            continue
        lag = int(rng.integers(0, 4))
        # Edges without lag run forward: no cycle.
        if source >= destination:
            lag = max(lag, 1)
        channel = ""
        if channels:
            channel = _pick_name(rng, ["", "a", "a", "b"])
        credit = bool(rng.random() < 0.1)
        is_newest = False
        if latest and not credit:
            is_newest = bool(rng.random() < 0.4)
        coflow = ""
        if coflows:
            coflow = _pick_name(rng, ["", "a", "b", "b"])

        edge = Edge(
            source=source,
            destination=destination,
            lag=lag,
            credit=credit,
            channel=channel,
            latest=is_newest,
            coflow=coflow,
        )
        edges.append(edge)
    return edges


def _cluster(machines: int, rng: Generator, *, slots: bool) -> Cluster:
    drawn_machines = []
    for number in range(machines):
        bandwidth_in, bandwidth_out = rng.choice(_RATES, 2).tolist()
        machine = Machine(f"m{number}", bandwidth_in, bandwidth_out)
        if slots:
            count = _pick_count(rng, 2)
            machine = replace(machine, slots={"gpu": count})
        drawn_machines.append(machine)
    return Cluster(tuple(drawn_machines))


def _with_links(cluster: Cluster, rng: Generator) -> Cluster:
    """Return the cluster with up to three shared links that some routes cross."""
    count = _pick_count(rng, 3)
    links = []
    for number in range(count):
        capacity = _pick(rng, _RATES)
        links.append(Link(f"l{number}", capacity))
    machines = list(cluster.machines)
    for number, machine in enumerate(machines):
        if rng.random() < 0.2:
            machines[number] = replace(machine, bandwidth_in=0.0, bandwidth_out=0.0)

    routes = []
    for first, second in permutations(enumerate(machines), 2):
        source_number, source = first
        destination_number, destination = second
        # Without a NIC at one end there is no way unless a route is stated.
        needs_link = not (source.has_nic and destination.has_nic)
        if not (needs_link or rng.random() < 0.6):
            continue
        order = rng.permutation(count)
        length = _pick_count(rng, count)
        through = [f"l{number}" for number in order[:length]]
        if source.has_nic and rng.random() < 0.7:
            through.insert(0, "out")
        if destination.has_nic and rng.random() < 0.7:
            through.append("in")
        route = Route(
            sources=(source_number,),
            destinations=(destination_number,),
            through=tuple(through),
        )
        routes.append(route)
    return Cluster(
        machines=tuple(machines),
        shared_links=tuple(links),
        routes=tuple(routes),
    )


def _with_latencies(cluster: Cluster, rng: Generator) -> Cluster:
    machines = list(cluster.machines)
    for number, machine in enumerate(machines):
        if machine.has_nic:
            latency_in, latency_out = rng.choice(_LATENCIES, 2).tolist()
            machines[number] = replace(
                machine,
                latency_in=latency_in,
                latency_out=latency_out,
            )

    links = []
    for link in cluster.shared_links:
        latency = _pick(rng, _LATENCIES)
        links.append(replace(link, latency=latency))
    return replace(
        cluster,
        machines=tuple(machines),
        shared_links=tuple(links),
    )


def _with_changes(cluster: Cluster, rng: Generator, *, cuts: bool) -> Cluster:
    """Return the cluster with up to six changes of its links, some at one time.

    With ``cuts`` some of them are cut, until a later change or the last.
    """
    names = [link.name for link in cluster.links]
    if not names:  # no machine has a NIC, and nothing joins them
        return replace(cluster, changes=())
    # A set: two changes of one link at one time would leave open which one counts.
    pairs = set[tuple[float, str]]()
    for _ in range(6):
        moment = _pick(rng, _CHANGES)
        name = _pick_name(rng, names)
        pairs.add((moment, name))

    def change(time: float, name: str) -> CapacityChange:
        capacity = _pick(rng, _RATES)
        return CapacityChange(time, name, capacity)

    changes = []
    # Sorted: a set of names has another order in every process, a seed has not.
    for time, name in sorted(pairs):
        changes.append(change(time, name))
    if cuts:
        for place, event in enumerate(changes):
            if rng.random() < 0.5:
                changes[place] = replace(event, capacity=0.0)
        # In the end all links carry something again, or flows would wait for ever.
        last = max(time for time, _ in pairs)
        later = last + 1.0
        changed_links = {name for _, name in pairs}
        for name in sorted(changed_links):
            restored = change(later, name)
            changes.append(restored)
    return replace(cluster, changes=tuple(changes))


def _slow_machines(cluster: Cluster, rng: Generator) -> list[Fault]:
    """Return up to eight faults of machines, some at one time, some at once."""
    names = cluster.names
    faults = []
    count = _pick_count(rng, 8)
    for _ in range(count):
        start = _pick(rng, _CHANGES)
        length = float(rng.uniform(0.1, 4.0))
        if rng.random() < 0.5:
            length = _pick(rng, [0.5, 1.0, 3.0])
        # 1 / 3 has no exact double: work that is stretched by it leaves rounding.
        factor = _pick(rng, [0.0, 0.0, 0.5, 1 / 3])
        end = start + length
        # Only who is slow may stay so: one that stands still for good ends no job.
        if factor and rng.random() < 0.2:
            end = math.inf
        name = _pick_name(rng, names)
        fault = Fault(
            name,
            since=start,
            until=end,
            factor=factor,
            of_machine=True,
        )
        faults.append(fault)
    return faults


def _with_tuners(cluster: Cluster, rng: Generator) -> Cluster:
    """Return the cluster with two limited pools per machine, of which one is tuned."""
    machines = []
    tuners = []
    for number, machine in enumerate(cluster.machines):
        pool, watched_pool = rng.permutation(["gpu", "cpu"]).tolist()
        count = _pick_count(rng, 3)
        slots = {pool: count, watched_pool: 1}
        machines.append(replace(machine, slots=slots))
        if rng.random() >= 0.5:
            watched_pool = pool
        # A quota begins with the slots that are stated, which its bound must allow.
        drawn_most = int(rng.integers(2, 7))
        most = max(drawn_most, count)
        period = _pick(rng, [0.125, 0.25, 0.3])
        if rng.random() < 0.8:
            tuner = Tuner(
                machine=number,
                pool=pool,
                watched=watched_pool,
                most=most,
                period=period,
            )
            tuners.append(tuner)

    return replace(
        cluster,
        machines=tuple(machines),
        tuners=tuple(tuners),
    )


def problems(**shape: bool) -> st.SearchStrategy[tuple[Problem, Realization]]:
    """Return a strategy for `random_problem`, with and without ties.

    ``shape``: its other parameters. Problems are kept by their seed: a test with a
    parameter draws the same ones for every value of it, and drawing one takes half as
    long as the slow simulator does.
    """

    @lru_cache(maxsize=256)
    def draw(seed: int, ties: bool) -> tuple[Problem, Realization]:  # noqa: FBT001
        rng = np.random.default_rng(seed)
        return random_problem(rng, ties=ties, **shape)

    seeds = st.integers(0, 2**32 - 1)
    return st.builds(draw, seeds, st.booleans())
