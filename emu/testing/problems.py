"""Problems with known answers, and a check of what a scheduler keeps of one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from emu.host.input_file import read_json
from emu.prediction.scheduling import Scheduler
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

#: First letter of a task's name -> its kind.
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


def bench_directory() -> Path | None:
    """Return the directory that ``EMU_BENCH`` names, None unless it is there."""
    folder = os.environ.get("EMU_BENCH", "")
    # The benchmark is no part of this package: where it is not there, tests are
    # skipped.
    return Path(folder) if folder and Path(folder).is_dir() else None


def load_workload(name: str) -> tuple[Problem, Realization, dict[str, float]]:
    """Return a workload of the peer benchmark and its makespans by policy, seconds.

    ``name``: ``workload_a`` (4 machines, 916 flows) or ``workload_b`` (16, 24,942).
    Raises FileNotFoundError when ``EMU_BENCH`` does not name a directory that holds it.
    """
    directory = bench_directory()
    if directory is None:
        raise FileNotFoundError("EMU_BENCH does not name a directory")
    text = read_json(directory / f"{name}.json")

    names = text["tasks"]
    iterations = text["n_iterations"]
    machines = [Machine(f"m{m}", *nic) for m, nic in enumerate(text["machines"])]
    cluster = Cluster(tuple(machines))

    position = {name: number for number, name in enumerate(names)}
    edges = [
        Edge(position[source], position[destination], lag)
        for source, destination, lag in text["edges"]
    ]
    tasks = [Task(name, _KINDS[name[0]]) for name in names]
    job = Job(tuple(tasks), tuple(edges), iterations)

    placement = Placement(tuple(text["placement"][task] for task in names))
    # It states one time per task, but the volumes of every iteration.
    times = np.array([[text["exec_times"][task]] * iterations for task in names])
    realization = Realization(times, np.array(text["volumes"]))
    return Problem(cluster, job, placement), realization, text["expected_makespan_s"]


def validate_state(scheduler: Scheduler) -> None:
    """Raise AssertionError where something does not hold of a scheduler's state.

    Every count, list and rate that the core keeps up to date is compared with what it
    follows from: call it after `Scheduler.settle`, once per event. A simulation checks
    the same at its events where the core is built with ``SANITIZE``.
    """
    sentence = scheduler.broken
    if sentence:
        # Raised, not asserted: python -O leaves assertions out.
        raise AssertionError(f"this does not hold: {sentence}")
