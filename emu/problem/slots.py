"""Slots that the tasks of one machine share, and the pools that hold them.

A process that one of its own tasks takes as a pool is a *server*: it has one slot, and
those of its tasks that take it run one at a time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from emu.problem.cluster import Cluster
    from emu.problem.job import Job, Task
    from emu.problem.machine import Machine


@dataclass(frozen=True)
class Pool:
    """The slots of one name on one machine, limited in number."""

    machine: int
    """Position of the machine."""
    name: str
    """Name of the pool, such as ``gpu``."""
    slots: int
    """Number of slots, at least 1; where it is tuned at the start."""
    takers: tuple[int, ...]
    freers: tuple[int, ...]
    """Tasks of this machine that take a slot before they start, and that give one back
    when they end."""
    most: int
    """Number of slots at most, other than ``slots`` where it is tuned."""


def slots_on(machine: Machine, job: Job) -> dict[str, int]:
    """Return the slots of every pool that is limited on a machine."""
    return {**dict.fromkeys(job.servers, 1), **machine.slots}


def pools_of(cluster: Cluster, job: Job, machine_of: Sequence[int]) -> tuple[Pool, ...]:
    """Return the pools that tasks of a placed job take slots of.

    A pool that a machine lacks is unlimited there, as resources are.
    """
    found = []
    tuned = {(t.machine, t.pool): t.most for t in cluster.tuners}
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
                most = max(slots, tuned.get((m, name), slots))
                found.append(Pool(m, name, slots, takers, freers, most))
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


def slot_teams(job: Job) -> tuple[tuple[str, ...], ...]:
    """Return the processes that share slots: one takes what another one gives back.

    A pool gets back no more slots than tasks of its machine took, so these stand on one
    machine wherever the pool is limited. Of several that take, the one nearest
    upstream of a task that gives back is meant, until it gave as many as that one took.
    """
    left = [job.rounds[j] if _keeps(task) else 0 for j, task in enumerate(job.tasks)]
    team: dict[str, set[str]] = {}
    for j, task in enumerate(job.tasks):
        if not task.gives_back or task.gives_back == task.takes:
            continue
        needed, mine = job.rounds[j], task.process_name
        for taker in _upstream(job, j):
            if left[taker] and job.tasks[taker].takes == task.gives_back:
                given = min(needed, left[taker])
                needed, left[taker] = needed - given, left[taker] - given
                other = job.tasks[taker].process_name
                both = team.get(mine, {mine}) | team.get(other, {other})
                team.update(dict.fromkeys(both, both))
            if not needed:  # the rest of 20,000 tasks, for each of 2,000, took 40 s
                break
    apart = {min(names): tuple(sorted(names)) for names in team.values()}
    return tuple(names for names in apart.values() if len(names) > 1)


def _keeps(task: Task) -> bool:
    return bool(task.takes) and task.gives_back != task.takes


def _upstream(job: Job, start: int) -> Iterator[int]:
    """Yield all tasks by their distance before ``start``, those not before it last."""
    level, seen = [start], {start}
    while level:
        # A taker is two steps away: to look behind a parameter server beside it, which
        # has edges from 3,200 tasks, took 40 of 60 s.
        yield from level
        nearer, level = level, []
        for task in nearer:
            for edge in job.in_edges(task):
                if (source := job.edges[edge].source) not in seen:
                    seen.add(source)
                    level.append(source)
    yield from (j for j in range(len(job.tasks)) if j not in seen)


def slot_names(job: Job) -> tuple[str, ...]:
    """Return the names of all pools that tasks take or free, sorted."""
    names = Counter(name for t in job.tasks for name in (t.takes, t.gives_back) if name)
    return tuple(sorted(names))
