"""Random problems for property tests.

`random_problem` draws from a numpy generator, for seeded loops; `problems` is the
same as a Hypothesis strategy. Numbers come from small sets, so that ties, zero times
and zero volumes are common.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from itertools import permutations, product

import numpy as np
from hypothesis import strategies as st

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
    rng: np.random.Generator,
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
    machines = int(rng.integers(1, most_machines + 1))
    tasks = int(rng.integers(1, 9))
    iterations = int(rng.integers(1, 7))
    edges = _edges(tasks, rng, channels=channels, latest=latest, coflows=coflows)
    drawn_tasks = []
    for number in range(tasks):
        most = iterations if own else None
        drawn_tasks.append(_task(number, rng, jobs=jobs, most=most, slots=slots))
    job = Job(tuple(drawn_tasks), tuple(edges), iterations)

    cluster = _cluster(machines, rng, slots=slots)
    if links:
        cluster = _with_links(cluster, rng)
    if changes or cuts:
        cluster = _with_changes(cluster, rng, cuts=cuts)
    if tuned:
        cluster = _with_tuners(cluster, rng)
    if speeds:
        cluster = with_faults(cluster, _slow_machines(cluster, rng))
    if latencies:
        cluster = _with_latencies(cluster, rng)
    machine_of = rng.integers(0, machines, tasks).tolist()
    placement = Placement(tuple(machine_of))

    if ties:
        times = rng.choice(_TIMES, (tasks, iterations))
        volumes = rng.choice(_VOLUMES, (len(edges), iterations))
    else:
        times = rng.uniform(0, 3, (tasks, iterations))
        volumes = rng.uniform(0, 40, (len(edges), iterations))
    return Problem(cluster, job, placement), Realization(times, volumes)


def _task(
    number: int,
    rng: np.random.Generator,
    *,
    jobs: bool,
    most: int | None,
    slots: bool,
) -> Task:
    """Return a task, of up to ``most`` iterations of its own where that is stated."""
    task = Task(f"t{number}", f"kind{number % 3}")
    if jobs:
        task = replace(task, name=f"{'ab'[number % 2]}/{task.name}")
    if most is not None:
        task = replace(task, iterations=int(rng.integers(1, most + 1)))
    if slots:
        task = replace(task, takes=str(rng.choice(["", "gpu", "cpu"])))
    return task


def _edges(
    tasks: int,
    rng: np.random.Generator,
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
        if source >= destination:
            lag = max(lag, 1)  # edges without lag run forward: no cycle
        channel = str(rng.choice(["", "a", "a", "b"])) if channels else ""
        credit = bool(rng.random() < 0.1)
        is_newest = latest and not credit and bool(rng.random() < 0.4)
        coflow = str(rng.choice(["", "a", "b", "b"])) if coflows else ""

        edge = Edge(
            source,
            destination,
            lag,
            credit=credit,
            channel=channel,
            latest=is_newest,
            coflow=coflow,
        )
        edges.append(edge)
    return edges


def _cluster(machines: int, rng: np.random.Generator, *, slots: bool) -> Cluster:
    drawn_machines = []
    for number in range(machines):
        bandwidth_in, bandwidth_out = rng.choice(_RATES, 2).tolist()
        machine = Machine(f"m{number}", bandwidth_in, bandwidth_out)
        if slots:
            count = int(rng.integers(1, 3))
            machine = replace(machine, slots={"gpu": count})
        drawn_machines.append(machine)
    return Cluster(tuple(drawn_machines))


def _with_links(cluster: Cluster, rng: np.random.Generator) -> Cluster:
    """Return the cluster with up to three shared links that some routes cross."""
    count = int(rng.integers(1, 4))
    links = [Link(f"l{number}", float(rng.choice(_RATES))) for number in range(count)]
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
        link_numbers = order[: int(rng.integers(1, count + 1))]
        through = [f"l{number}" for number in link_numbers]
        if source.has_nic and rng.random() < 0.7:
            through.insert(0, "out")
        if destination.has_nic and rng.random() < 0.7:
            through.append("in")
        route = Route((source_number,), (destination_number,), tuple(through))
        routes.append(route)
    return Cluster(tuple(machines), tuple(links), tuple(routes))


def _with_latencies(cluster: Cluster, rng: np.random.Generator) -> Cluster:
    machines = list(cluster.machines)
    for number, machine in enumerate(machines):
        if machine.has_nic:
            latency_in, latency_out = rng.choice(_LATENCIES, 2).tolist()
            machines[number] = replace(
                machine,
                latency_in=latency_in,
                latency_out=latency_out,
            )
    links = [
        replace(link, latency=float(rng.choice(_LATENCIES)))
        for link in cluster.shared_links
    ]
    return replace(cluster, machines=tuple(machines), shared_links=tuple(links))


def _with_changes(cluster: Cluster, rng: np.random.Generator, *, cuts: bool) -> Cluster:
    """Return the cluster with up to six changes of its links, some at one time.

    With ``cuts`` some of them are cut, until a later change or the last.
    """
    names = [link.name for link in cluster.links]
    if not names:  # no machine has a NIC, and nothing joins them
        return replace(cluster, changes=())
    # A set: two changes of one link at one time would leave open which one counts.
    pairs = set[tuple[float, str]]()
    for _ in range(6):
        moment = float(rng.choice(_CHANGES))
        pairs.add((moment, str(rng.choice(names))))

    def change(time: float, name: str) -> CapacityChange:
        return CapacityChange(time, name, float(rng.choice(_RATES)))

    # Sorted: a set of names has another order in every process, a seed has not.
    changes = [change(time, name) for time, name in sorted(pairs)]
    if cuts:
        for place, event in enumerate(changes):
            if rng.random() < 0.5:
                changes[place] = replace(event, capacity=0.0)
        # In the end all links carry something again, or flows would wait for ever.
        later = max(time for time, _ in pairs) + 1.0
        changed_links = {name for _, name in pairs}
        changes += [change(later, name) for name in sorted(changed_links)]
    return replace(cluster, changes=tuple(changes))


def _slow_machines(cluster: Cluster, rng: np.random.Generator) -> list[Fault]:
    """Return up to eight faults of machines, some at one time, some at once."""
    names = [machine.name for machine in cluster.machines]
    faults = []
    for _ in range(int(rng.integers(1, 9))):
        start = float(rng.choice(_CHANGES))
        length = float(rng.uniform(0.1, 4.0))
        if rng.random() < 0.5:
            length = float(rng.choice([0.5, 1.0, 3.0]))
        # 1 / 3 has no exact double: work that is stretched by it leaves rounding.
        factor = float(rng.choice([0.0, 0.0, 0.5, 1 / 3]))
        # Only who is slow may stay so: a machine that stands still for good ends no
        # job.
        end = math.inf if factor and rng.random() < 0.2 else start + length
        name = str(rng.choice(names))
        faults.append(Fault(name, start, end, factor, of_machine=True))
    return faults


def _with_tuners(cluster: Cluster, rng: np.random.Generator) -> Cluster:
    """Return the cluster with two limited pools per machine, of which one is tuned."""
    machines = []
    tuners = []
    for number, machine in enumerate(cluster.machines):
        pool, watched_pool = rng.permutation(["gpu", "cpu"]).tolist()
        slots = {pool: int(rng.integers(1, 4)), watched_pool: 1}
        machines.append(replace(machine, slots=slots))
        if rng.random() >= 0.5:
            watched_pool = pool
        # A quota begins with the slots that are stated, which its bound must allow.
        most = max(int(rng.integers(2, 7)), slots[pool])
        period = float(rng.choice([0.125, 0.25, 0.3]))
        if rng.random() < 0.8:
            tuners.append(Tuner(number, pool, watched_pool, most, period))

    return replace(cluster, machines=tuple(machines), tuners=tuple(tuners))


def problems(**shape: bool) -> st.SearchStrategy[tuple[Problem, Realization]]:
    """Return a strategy for `random_problem`, with and without ties.

    ``shape``: its other parameters. Problems are kept by their seed: a test with a
    parameter draws the same ones for every value of it, and drawing one takes half as
    long as the slow simulator does.
    """

    @lru_cache(maxsize=256)
    def draw(seed: int, ties: bool) -> tuple[Problem, Realization]:  # noqa: FBT001
        return random_problem(np.random.default_rng(seed), ties=ties, **shape)

    return st.builds(draw, st.integers(0, 2**32 - 1), st.booleans())
