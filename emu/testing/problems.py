"""A problem with known answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from emu.problem import (
    Cluster,
    Edge,
    Job,
    Link,
    Machine,
    Placement,
    Problem,
    Realization,
    Route,
    Task,
)
from emu.problem.workloads.all_reduce import phase_of

#: Kind of a task by the first letter of its name.
_KINDS = {
    "g": "graph_store",
    "s": "sampler",
    "w": "worker",
    "p": "parameter_server",
}


#: Flows of the example: source, destination, lag, bytes.
_FLOWS = [
    ("g0", "s0", 0, 40.0),
    ("g0", "s1", 0, 40.0),
    ("g1", "s0", 0, 40.0),
    ("g1", "s1", 0, 40.0),
    ("s0", "w0", 0, 60.0),
    ("s1", "w0", 0, 60.0),
    ("w0", "p0", 0, 10.0),
    ("p0", "w0", 1, 10.0),
]


def two_machine_example(
    iterations: int,
    *,
    second_nic: float = 10.0,
    together: bool = False,
    credit: int | None = None,
    shared_link: float | None = None,
) -> tuple[Problem, Realization]:
    """Return a DGTP job of six tasks on two machines, small enough to do by hand.

    m0 holds store g0, sampler s0, worker w0; m1 holds g1, s1 and parameter server p0.
    Stores send 40 bytes to each sampler, samplers 60 to the worker, worker and
    parameter server exchange 10; g, s and p take 1 s, w takes 3 s. NICs carry 10 bytes
    per second.

    Parameters
    ----------
    second_nic
        Both directions of the NIC of m1, bytes per second.
    together
        True puts all tasks but g1 on m0.
    credit
        The stores wait for the end of the worker's iteration n - credit.
    shared_link
        Bytes per second of a link called ``core`` between the NICs, both ways.
    """
    names = ["g0", "g1", "s0", "s1", "w0", "p0"]
    edges = []
    volumes = []
    for source, destination, lag, volume in _FLOWS:
        edge = Edge(
            source=names.index(source),
            destination=names.index(destination),
            lag=lag,
        )
        edges.append(edge)
        volumes.append(volume)
    if credit is not None:
        worker = names.index("w0")
        for store in (0, 1):
            # The lag of a credit is the window: so far may a store run ahead.
            edge = Edge(worker, store, lag=credit, credit=True)
            edges.append(edge)
            # A credit is a permission, not a message: it has no bytes.
            volumes.append(0.0)
    tasks = map(_task, names)
    job = Job(tuple(tasks), tuple(edges), iterations)

    first = Machine("m0", 10.0, 10.0)
    second = Machine("m1", second_nic, second_nic)
    cluster = Cluster((first, second))
    if shared_link is not None:
        cluster = _with_core(cluster, shared_link)
    machine_of = (0, 1, 0, 1, 0, 1)
    if together:
        machine_of = (0, 1, 0, 0, 0, 0)
    placement = Placement(machine_of)

    times = [1.0, 1.0, 1.0, 1.0, 3.0, 1.0]
    task_times = np.array(times).reshape(-1, 1)
    flow_bytes = np.array(volumes).reshape(-1, 1)
    realization = Realization(
        times=np.repeat(task_times, iterations, axis=1),
        volumes=np.repeat(flow_bytes, iterations, axis=1),
    )
    return Problem(cluster, job, placement), realization


def _task(name: str) -> Task:
    kind = _KINDS[name[0]]
    return Task(name, kind, phase=phase_of(kind))


def _with_core(cluster: Cluster, capacity: float) -> Cluster:
    """Return two machines joined by one link: flows in both directions share it."""
    link = Link("core", capacity)
    machines = (0, 1)
    route = Route(
        sources=machines,
        destinations=machines,
        through=("out", "core", "in"),
    )
    return replace(cluster, shared_links=(link,), routes=(route,))
