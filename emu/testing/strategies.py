"""Random problems for property tests.

`random_problem` draws from a numpy generator, for seeded loops; `problems` is the
same as a Hypothesis strategy. Numbers come from small sets, so that ties, zero times
and zero volumes are common.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

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

_RATES = np.array([1.0, 2.0, 5.0, 10.0])
_TIMES = np.array([0.0, 0.5, 1.0, 1.0, 2.0, 3.0])
_CHANGES = np.array([0.25, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0])
_LATENCIES = np.array([0.0, 0.0, 1e-13, 0.3, 1.0, 7.0])
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
        Whether times and volumes come from a few round numbers, some of them 0.
    links, slots, channels, coflows
        Whether machines are joined by shared links as well, and may have no NIC;
        whether tasks of a machine share slots, and edges a channel, or a coflow.
    own, latest, jobs
        Whether tasks have numbers of iterations of their own; whether some edges read
        the newest; whether there are two jobs.
    changes, cuts, speeds
        Whether capacities change; links are cut for a time; machines are slow, or stand
        still, for a time.
    tuned, latencies
        Whether quotas of slots are tuned, of use with ``slots``; whether links add
        latencies to the way of a flow.
    """
    machines = int(rng.integers(1, 3 if tuned else 5))
    tasks = int(rng.integers(1, 9))
    iterations = int(rng.integers(1, 7))
    edges = _edges(tasks, rng, channels=channels, latest=latest, coflows=coflows)
    job = Job(
        tuple(
            Task(
                f"{'ab'[j % 2]}/t{j}" if jobs else f"t{j}",
                f"kind{j % 3}",
                iterations=int(rng.integers(1, iterations + 1)) if own else None,
                takes=str(rng.choice(["", "gpu", "cpu"])) if slots else "",
            )
            for j in range(tasks)
        ),
        tuple(edges),
        iterations,
    )
    cluster = _cluster(machines, rng, slots=slots)
    cluster = _with_links(cluster, rng) if links else cluster
    cluster = _with_changes(cluster, rng, cuts=cuts) if changes or cuts else cluster
    cluster = _with_tuners(cluster, rng) if tuned else cluster
    cluster = with_faults(cluster, _slow_machines(cluster, rng)) if speeds else cluster
    cluster = _with_latencies(cluster, rng) if latencies else cluster
    placement = Placement(tuple(map(int, rng.integers(0, machines, tasks))))
    shapes = (tasks, iterations), (len(edges), iterations)
    if ties:
        times = rng.choice(_TIMES, shapes[0])
        volumes = rng.choice(_VOLUMES, shapes[1])
    else:
        times = rng.uniform(0, 3, shapes[0])
        volumes = rng.uniform(0, 40, shapes[1])
    return Problem(cluster, job, placement), Realization(times, volumes)


def _edges(
    tasks: int, rng: np.random.Generator, *, channels: bool, latest: bool, coflows: bool
) -> list[Edge]:
    edges = []
    for source in range(tasks):
        for destination in range(tasks):
            if rng.random() > 0.35:
                continue
            lag = int(rng.integers(0, 4))
            if source >= destination:
                lag = max(lag, 1)  # edges without lag run forward: no cycle
            channel = str(rng.choice(["", "a", "a", "b"])) if channels else ""
            credit = bool(rng.random() < 0.1)
            newest = latest and not credit and bool(rng.random() < 0.4)
            coflow = str(rng.choice(["", "a", "b", "b"])) if coflows else ""
            more = credit, channel, newest, coflow
            edges.append(Edge(source, destination, lag, *more))
    return edges


def _cluster(machines: int, rng: np.random.Generator, *, slots: bool) -> Cluster:
    return Cluster(
        tuple(
            Machine(
                f"m{m}",
                float(rng.choice(_RATES)),
                float(rng.choice(_RATES)),
                slots={"gpu": int(rng.integers(1, 3))} if slots else {},
            )
            for m in range(machines)
        )
    )


def _with_links(cluster: Cluster, rng: np.random.Generator) -> Cluster:
    """Return the cluster with up to three shared links that some routes cross."""
    count = int(rng.integers(1, 4))
    links = tuple(Link(f"l{i}", float(rng.choice(_RATES))) for i in range(count))
    none: dict[str, Any] = {"bandwidth_in": 0.0, "bandwidth_out": 0.0}
    machines = [
        replace(machine, **none) if rng.random() < 0.2 else machine
        for machine in cluster.machines
    ]
    routes = []
    for a, source in enumerate(machines):
        for b, destination in enumerate(machines):
            by_link = not (source.has_nic and destination.has_nic)
            if a == b or not (by_link or rng.random() < 0.6):
                continue
            way = rng.permutation(count)[: int(rng.integers(1, count + 1))]
            through = [f"l{i}" for i in way]
            if source.has_nic and rng.random() < 0.7:
                through.insert(0, "out")
            if destination.has_nic and rng.random() < 0.7:
                through.append("in")
            routes.append(Route((a,), (b,), tuple(through)))
    return Cluster(tuple(machines), links, tuple(routes))


def _with_latencies(cluster: Cluster, rng: np.random.Generator) -> Cluster:
    def drawn() -> float:
        return float(rng.choice(_LATENCIES))

    machines = (
        replace(m, latency_in=drawn(), latency_out=drawn()) if m.has_nic else m
        for m in cluster.machines
    )
    links = (replace(link, latency=drawn()) for link in cluster.shared_links)
    return replace(cluster, machines=tuple(machines), shared_links=tuple(links))


def _with_changes(cluster: Cluster, rng: np.random.Generator, *, cuts: bool) -> Cluster:
    """Return the cluster with up to six changes of its links, some at one time.

    With ``cuts`` some of them are cut, until a later change or the last.
    """
    names = [link.name for link in cluster.links]
    pairs = {
        (float(rng.choice(_CHANGES)), str(rng.choice(names))) for _ in range(6) if names
    }

    def change(time: float, name: str) -> CapacityChange:
        return CapacityChange(time, name, float(rng.choice(_RATES)))

    changes = [change(time, name) for time, name in sorted(pairs)]
    if cuts and pairs:
        lasting = {link: time for time, link in sorted(pairs)}
        later = max(lasting.values()) + 1.0
        changes = [
            replace(c, capacity=0.0) if rng.random() < 0.5 else c for c in changes
        ]
        changes += [change(later, link) for link in sorted(lasting)]
    return replace(cluster, changes=tuple(changes))


def _slow_machines(cluster: Cluster, rng: np.random.Generator) -> list[Fault]:
    """Return up to eight faults of machines, some at one time, some at once."""
    names = [machine.name for machine in cluster.machines]
    faults = []
    for _ in range(int(rng.integers(1, 9))):
        since = float(rng.choice(_CHANGES))
        length = float(rng.uniform(0.1, 4.0))
        if rng.random() < 0.5:
            length = float(rng.choice([0.5, 1.0, 3.0]))
        factor = float(rng.choice([0.0, 0.0, 0.5, 1 / 3]))
        until = math.inf if factor and rng.random() < 0.2 else since + length
        name = str(rng.choice(names))
        faults.append(Fault(name, since, until, factor, of_machine=True))
    return faults


def _with_tuners(cluster: Cluster, rng: np.random.Generator) -> Cluster:
    """Return the cluster with two limited pools per machine, of which one is tuned."""
    machines = []
    tuners = []
    for m, machine in enumerate(cluster.machines):
        pool, pool_watched = rng.permutation(["gpu", "cpu"]).tolist()
        slots = {pool: int(rng.integers(1, 4)), pool_watched: 1}
        machines.append(replace(machine, slots=slots))
        pool_watched = pool_watched if rng.random() < 0.5 else pool
        most = int(rng.integers(2, 7))
        period = float(rng.choice([0.125, 0.25, 0.3]))
        if rng.random() < 0.8:
            tuners.append(Tuner(m, pool, pool_watched, max(most, slots[pool]), period))
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
