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
_KINDS = {"g": "graph_store", "s": "sampler", "w": "worker", "p": "parameter_server"}


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
        edges.append(Edge(names.index(source), names.index(destination), lag))
        volumes.append(volume)
    if credit is not None:
        worker = names.index("w0")
        for store in (0, 1):
            # The lag of a credit is the window: so far may a store run ahead.
            edges.append(Edge(worker, store, credit, credit=True))
            # A credit is a permission, not a message: it has no bytes.
            volumes.append(0.0)
    tasks = []
    for name in names:
        kind = _KINDS[name[0]]
        tasks.append(Task(name, kind, phase=phase_of(kind)))
    job = Job(tuple(tasks), tuple(edges), iterations)

    first = Machine("m0", 10.0, 10.0)
    second = Machine("m1", second_nic, second_nic)
    cluster = Cluster((first, second))
    if shared_link is not None:
        cluster = replace(
            cluster,
            shared_links=(Link("core", shared_link),),
            # One route both ways: flows in both directions share the link.
            routes=(Route((0, 1), (0, 1), ("out", "core", "in")),),
        )
    machine_of = (0, 1, 0, 0, 0, 0) if together else (0, 1, 0, 1, 0, 1)
    times = [1.0, 1.0, 1.0, 1.0, 3.0, 1.0]
    realization = Realization(
        times=np.repeat(np.array(times)[:, None], iterations, axis=1),
        volumes=np.repeat(np.array(volumes)[:, None], iterations, axis=1),
    )
    return Problem(cluster, job, Placement(machine_of)), realization
