"""Descriptions of all node processes, cut out of the problem.

Pure: descriptions are msgpack-able maps, decided before anything is started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from emu.coordinator.settings import EmulationSettings
    from emu.problem import Problem, Realization

#: Where NICs limit what crosses, edge e is sent from this port plus e: so every edge
#: has a leaf of its own in every NIC.
FIRST_PORT = 8192
#: Bytes that all processes together touch ahead of the run, at most.
_RESERVED = 3e9


def describe_edge(problem: Problem, edge: int, *, incoming: bool) -> dict[str, Any]:
    """Return one edge as the process at its destination or source sees it."""
    job = problem.job
    there, most = job.edges[edge], problem.cluster.links.steps.most
    peer = job.tasks[there.source if incoming else there.destination]
    return {
        "edge": edge,
        "name": job.edge_names[edge],
        "peer": peer.name,
        "peer_kind": peer.kind,
        "peer_process": peer.process_name,
        "lag": there.lag,
        "latest": there.latest,
        "sent": job.flow_counts[edge],
        "shaped": bool(problem.hops[edge]),
        "capacity": min((float(most[hop]) for hop in problem.hops[edge]), default=0.0),
    }


def describe_task(
    problem: Problem, task: int, times: NDArray[Any] | None
) -> dict[str, Any]:
    """Return one task as its process needs it.

    Parameters
    ----------
    times
        Profiled seconds per (task, iteration), or None when tasks take what their
        work does.
    """
    job = problem.job
    subject = job.tasks[task]
    edges = {
        incoming: [
            describe_edge(problem, e, incoming=incoming)
            for e in (job.in_edges(task) if incoming else job.out_edges(task))
            if not job.control[e]
        ]
        for incoming in (True, False)
    }
    return {
        "task": task,
        "name": subject.name,
        "kind": subject.kind,
        "program": subject.program,
        "settings": dict(subject.settings),
        "iterations": job.rounds[task],
        "speed": float(problem.speeds[task]),
        "times": None if times is None else [float(t) for t in times[task]],
        "inputs": edges[True],
        "outputs": edges[False],
    }


def receive_sizes(
    problem: Problem,
    members: Sequence[int],
    volumes: NDArray[np.float64],
    settings: EmulationSettings,
) -> list[int]:
    """Return the buffers that a process takes before the run, real bytes each.

    Those that its first two iterations bring, as far as its share of `_RESERVED` goes:
    memory touched for the first time during the run stalls the loop for 1 ms per 4 MB.
    """
    job = problem.job
    room = min(_RESERVED / len(job.processes), settings.memory_limit / 2)
    edges = [
        e
        for t in members
        for e in job.in_edges(t)
        if not job.control[e] and job.edges[e].source not in members
    ]
    sizes = np.ceil(volumes[edges, :2] * settings.byte_scale).T.ravel()
    sizes = sizes[sizes > 0]
    return [int(size) for size in sizes[np.cumsum(sizes) < room]]


def describe_processes(
    problem: Problem,
    settings: EmulationSettings,
    expected: Realization,
) -> list[dict[str, Any]]:
    """Return the description of every node process, in the order of the tasks.

    The agent completes each with what only its host knows (addresses, rate board).

    Parameters
    ----------
    expected
        Times that tasks hold unless compute is ``real``, and volumes.
    """
    times = None if settings.compute == "real" else expected.times
    job = problem.job
    beside = {"compute": settings.compute, "byte_scale": settings.byte_scale}
    return [
        {
            "process": process,
            "machine": problem.placement.machine_of[members[0]],
            "job_settings": {
                **job.settings_of(job.tasks[members[0]].job_name),
                **beside,
            },
            "time_scale": settings.time_scale,
            "byte_scale": settings.byte_scale,
            "source_port": None if settings.kernel_nics is None else FIRST_PORT,
            "flow_ends": settings.flow_ends,
            "catch_up": settings.catch_up,
            "encrypted": settings.tls == "all",
            "deadline": settings.deadline,
            "memory_limit": settings.memory_limit,
            "reserved": receive_sizes(problem, members, expected.volumes, settings),
            "tasks": [describe_task(problem, task, times) for task in members],
        }
        for process, members in problem.job.processes.items()
    ]
