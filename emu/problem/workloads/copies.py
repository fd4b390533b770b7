"""Copies of state on other machines: checkpoints that travel as flows of the job.

A task with state sends it to its copy, a task that takes no time on the next machine
(Gemini, SOSP 2023, keeps checkpoints in the memory of other machines). Nothing waits
for a copy but the one after it: a task begins the iteration that sends the next only
when the last has arrived (CheckFreq, FAST 2021, has one checkpoint under way at most).

A copy dies with its machine. Where a task and its copy both die, a restart begins at
iteration 0; to fetch a copy is part of ``recovery``, no flow. What a job goes on from
is sent to copies anew: until it has come, those that died lack it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from emu.array_types import Floats
from emu.problem import Cluster, Edge, Job, Placement, Task

#: Kind and program of the tasks that take copies.
CHECKPOINT = "checkpoint"
COPY = "emu_nodes.program:Copy"


def with_copies(job: Job, owners: Iterable[str], every: int, missed: int) -> Job:
    """Return a job with a copy of some tasks, each behind all that it has.

    A copy ends with the last cut: nothing comes after it. ``every``: iterations between
    two copies; ``missed``: from the one that a state is of until all of it is there.
    """
    tasks = list(job.tasks)
    edges = list(job.edges)
    for owner in owners:
        source = job.index(owner)
        copy = len(tasks)
        later_iterations = job.rounds[source] - 1 - missed
        cuts = max(later_iterations, 0) // every
        # A task has one iteration at the least, also where no cut fits.
        iterations = 1
        if cuts:
            iterations = cuts * every + missed + 1
        task = Task(
            name=f"{owner}.copy",
            kind=CHECKPOINT,
            program=COPY,
            settings={"of": owner, "missed": missed},
            iterations=iterations,
            behind=missed,
        )
        tasks.append(task)
        # In every iteration, but without bytes where nothing is cut: such flows end at
        # once.
        state = Edge(source, copy)
        edges.append(state)
        # One copy at a time is on its way.
        edges.append(Edge(copy, source, lag=every, credit=True))

    return replace(job, tasks=tuple(tasks), edges=tuple(edges))


def copies_of(job: Job) -> dict[str, int]:
    """Return the position of the copy of every task that has one, by its name."""
    copies = {}
    for edge in job.edges:
        destination = job.tasks[edge.destination]
        if destination.kind == CHECKPOINT:
            owner = job.tasks[edge.source].name
            copies[owner] = edge.destination
    return copies


def copy_names(job: Job) -> set[str]:
    """Return the names of all copies."""
    return {task.name for task in job.tasks if task.kind == CHECKPOINT}


def without_copies(job: Job) -> Job:
    """Return a job as it was before `with_copies`."""
    tasks = tuple(task for task in job.tasks if task.kind != CHECKPOINT)
    first = len(tasks)
    if first == len(job.tasks):
        return job  # to build an equal one took 12 ms of a job of 700 tasks
    edges = [
        edge for edge in job.edges if edge.source < first and edge.destination < first
    ]
    return replace(job, tasks=tasks, edges=tuple(edges))


def count_copy_bytes(
    job: Job,
    sizes: Mapping[str, Floats],
    every: int,
) -> Floats:
    """Return bytes of (copies' edge, iteration), by ``sizes`` of states before it."""
    first = len(without_copies(job).edges)
    edges = job.edges[first:]
    shape = (len(edges), job.iterations)
    volumes = np.zeros(shape)
    for row, edge in zip(volumes, edges, strict=True):
        if edge.credit:
            continue

        copy = job.tasks[edge.destination]
        owner = copy.settings["of"]
        arrivals = job.iterations - copy.behind
        sizes_of_task = sizes[owner][:arrivals]
        # A copy is of the state before an iteration: of the first there is none.
        row[copy.behind + every :: every] = sizes_of_task[every::every]
    return volumes


def with_peers(
    job: Job,
    cluster: Cluster,
    placement: Placement,
    stated: Mapping[str, str],
    count: int,
) -> Placement:
    """Return ``placement`` with every copy on another machine than its task.

    On the one ``stated`` for its name, unless it is the task's, or on the next machine
    in order, round. Only the first ``count`` machines are next to others: those behind
    them are functions, which go.

    Raises ValueError when there is no other machine.
    """
    originals = len(without_copies(job).tasks)
    machine_of = list(placement.machine_of[:originals])
    for owner, copy in copies_of(job).items():
        home = machine_of[job.index(owner)]
        following = range(home + 1, home + count)
        candidates = [machine % count for machine in following]
        copy_name = job.tasks[copy].name
        stated_name = stated.get(copy_name)
        if stated_name:
            stated_machine = cluster.index(stated_name)
            candidates.insert(0, stated_machine)

        for machine in candidates:
            # No route leads to the task's own machine.
            if cluster.links.route(home, machine):
                machine_of.append(machine)
                break
        else:
            name = cluster.machines[home].name
            raise ValueError(f"{owner} stands on {name}, and no machine is next to it")
    return Placement(tuple(machine_of))
