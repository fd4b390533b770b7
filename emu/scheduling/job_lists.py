"""A job as lists of numbers, where it takes more than to look a value up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.problem.slots import slot_names, slots_on

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import Cluster, Job

    Ints = NDArray[np.int64]


def listed_by_owner(owner: Ints, owners: int) -> tuple[Ints, Ints]:
    """Return ``start, entry`` of the positions in ``owner``, listed by owner."""
    start = np.zeros(owners + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=owners), out=start[1:])
    return start, np.argsort(owner, kind="stable").astype(np.int64)


def topological(job: Job) -> Ints:
    """Return the tasks, each behind the sources of its in-edges without lag."""
    waiting = np.zeros(len(job.tasks), dtype=np.int64)
    followers: list[list[int]] = [[] for _ in job.tasks]
    for edge in job.edges:
        if edge.lag == 0:
            waiting[edge.destination] += 1
            followers[edge.source].append(edge.destination)
    order = [task for task, count in enumerate(waiting) if count == 0]
    for task in order:  # grows while it is walked
        for follower in followers[task]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                order.append(follower)
    return np.array(order, dtype=np.int64)


def pools_by_name(job: Job, cluster: Cluster) -> tuple[Ints, Ints, Ints]:
    """Return ``taken, freed, slots`` of `JobArrays`."""
    names = {name: i for i, name in enumerate(slot_names(job))}
    taken = [names.get(task.takes, -1) for task in job.tasks]
    freed = [names.get(task.gives_back, -1) for task in job.tasks]
    slots = np.full((len(cluster.machines), len(names)), -1, dtype=np.int64)
    for m, machine in enumerate(cluster.machines):
        for name, number in slots_on(machine, job).items():
            if name in names:
                slots[m, names[name]] = number
    return np.array(taken, np.int64), np.array(freed, np.int64), slots


def channels_of(job: Job) -> Ints:
    """Return the channel of every edge, -1 for none; empty without channels."""
    known = {name: i for i, name in enumerate(job.channels)}
    channel = [known.get(edge.channel, -1) for edge in job.edges if known]
    return np.array(channel, dtype=np.int64)


def owners_of(job: Job) -> Ints:
    """Return the job of every edge, by its place in `Job.job_names`."""
    places = {name: place for place, name in enumerate(job.job_names)}
    sources = (job.tasks[edge.source] for edge in job.edges)
    return np.array([places[task.job_name] for task in sources], dtype=np.int64)
