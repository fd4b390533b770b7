"""Slots that the tasks of one machine share, and the pools that hold them.

A process that one of its own tasks takes as a pool is a *server*: it has one slot, and
those of its tasks that take it run one at a time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from emu.problem.cluster import Cluster
    from emu.problem.job import Job
    from emu.problem.machine import Machine


@dataclass(frozen=True)
class Pool:
    """The slots of one name on one machine, limited in number."""

    machine: int
    """Position of the machine."""
    name: str
    """Of the pool, such as ``gpu``."""
    slots: int
    """How many there are, at least 1."""
    takers: tuple[int, ...]
    freers: tuple[int, ...]
    """Tasks of this machine that take a slot before they start, and that give one back
    when they end."""


def slots_on(machine: Machine, job: Job) -> dict[str, int]:
    """Return the slots of every pool that is limited on a machine."""
    return {**dict.fromkeys(job.servers, 1), **machine.slots}


def pools_of(cluster: Cluster, job: Job, machine_of: Sequence[int]) -> tuple[Pool, ...]:
    """Return the pools that tasks of a placed job take slots of.

    A pool that a machine lacks is unlimited there, as resources are.
    """
    found = []
    sharing: dict[int, list[int]] = {}
    for j, task in enumerate(job.tasks):
        if task.takes or task.gives_back:
            sharing.setdefault(machine_of[j], []).append(j)
    for m, machine in enumerate(cluster.machines):
        here = sharing.get(m, [])
        for name, slots in slots_on(machine, job).items():
            takers = tuple(j for j in here if job.tasks[j].takes == name)
            freers = tuple(j for j in here if job.tasks[j].gives_back == name)
            if takers or freers:
                found.append(Pool(m, name, slots, takers, freers))
    return tuple(found)


def slot_violations(cluster: Cluster, job: Job, machine_of: Sequence[int]) -> list[str]:
    """Return one sentence per pool of which more slots are given back than taken."""
    found = []
    for pool in pools_of(cluster, job, machine_of):
        taken = sum(job.rounds[j] for j in pool.takers)
        freed = sum(job.rounds[j] for j in pool.freers)
        if freed > taken:
            name = cluster.machines[pool.machine].name
            by = ", ".join(job.tasks[j].name for j in pool.freers[:4])
            found.append(
                f"pool {pool.name} of machine {name} gets {freed} slots back from "
                f"{by}, but {taken} are taken there"
            )
    return found


def slot_names(job: Job) -> tuple[str, ...]:
    """Return the names of all pools that tasks take or free, sorted."""
    names = Counter(name for t in job.tasks for name in (t.takes, t.gives_back) if name)
    return tuple(sorted(names))
