"""A job whose flows wait before they send, while their links carry others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from emu.array_types import Floats
from emu.problem import Edge, Placement, Problem, Realization, Task


def let_flows_wait(
    problem: Problem,
    realization: Realization,
    waits: Floats,
) -> tuple[Problem, Realization]:
    """Return the job, its times and volumes, with flows that begin later.

    Between a task and its flow stands a task of its own on the same machine, which
    takes as long as the flow waits: links are free for others meanwhile, as they are
    while a sender waits for its retransmission timeout (RFC 6298). A flow that waits
    keeps those behind it on its edge waiting, too, as a connection does.

    ``waits``: seconds of (edge, iteration), 0 or more; shape as the volumes.
    """
    job = problem.job
    tasks = [*job.tasks]
    edges = [*job.edges]
    machines = [*problem.placement.machine_of]
    waiting = np.flatnonzero(waits.any(axis=1)).tolist()
    for position in waiting:
        edge = edges[position]
        source = job.tasks[edge.source]
        edges[position] = replace(edge, source=len(tasks))
        edges.append(Edge(edge.source, len(tasks)))
        wait = Task(
            name=f"{source.name} waits to send {position}",
            kind="wait",
            iterations=source.iterations,
        )
        tasks.append(wait)
        machines.append(machines[edge.source])

    changed_job = replace(job, tasks=tuple(tasks), edges=tuple(edges))
    changed_problem = replace(
        problem,
        job=changed_job,
        placement=Placement(tuple(machines)),
    )
    handoffs = np.zeros((len(waiting), job.iterations))
    changed_realization = Realization(
        times=np.vstack([realization.times, waits[waiting]]),
        volumes=np.vstack([realization.volumes, handoffs]),
    )
    return changed_problem, changed_realization
