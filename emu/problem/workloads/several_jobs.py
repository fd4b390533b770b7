"""Several jobs as one: names begin with the job's, and a job may begin later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from emu.problem import Edge, Job, Profile, Realization, Task

#: Kind of the gate that lasts until its job may begin.
RELEASE = "release"


@dataclass(frozen=True)
class JobPart:
    """One of several jobs."""

    name: str
    job: Job
    release: float = 0.0
    """When its first tasks may start, seconds."""


def several_jobs(parts: Sequence[JobPart]) -> Job:
    """Return the job whose tasks are called ``a/w0``: those of every part, in order.

    Then come, of parts that begin later, a gate ``a/release``, which lasts until then
    and is waited for by whatever could start at once. It stands beside the part's first
    task.

    Raises ValueError as `Job`, or when two parts have one name.
    """
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        raise ValueError(f"two jobs of one name: {', '.join(names)}")
    tasks: list[Task] = []
    edges: list[Edge] = []
    for part in parts:
        first = len(tasks)
        for task, rounds in zip(part.job.tasks, part.job.rounds, strict=True):
            own = replace(
                task,
                name=f"{part.name}/{task.name}",
                process=f"{part.name}/{task.process_name}",
                iterations=rounds,
                takes=_own(part, task.takes),
                frees=_own(part, task.gives_back),
            )
            tasks.append(own)
        edges += [
            replace(
                e,
                source=e.source + first,
                destination=e.destination + first,
                channel=f"{part.name}/{e.channel}" if e.channel else "",
                coflow=f"{part.name}/{e.coflow}" if e.coflow else "",
            )
            for e in part.job.edges
        ]
    first = 0
    for part in parts:
        if part.release:
            edges += [Edge(len(tasks), first + task) for task in _sources(part.job)]
            beside = part.job.tasks[0]
            process = f"{part.name}/{beside.process_name}"
            gate = Task(f"{part.name}/release", RELEASE, process=process, gate=True)
            tasks.append(replace(gate, pinned=beside.pinned, iterations=1))
        first += len(part.job.tasks)
    longest = max(part.job.iterations for part in parts)
    settings = {"jobs": {part.name: part.job.settings for part in parts}}
    return Job(tuple(tasks), tuple(edges), longest, settings=settings)


def _own(part: JobPart, pool: str) -> str:
    """Return a pool by its name among several jobs: each has servers of its own."""
    return f"{part.name}/{pool}" if pool in part.job.servers else pool


def _sources(job: Job) -> list[int]:
    """Return the tasks that wait for nothing in their first iteration."""
    waiting = {edge.destination for edge in job.edges if edge.lag == 0}
    return [task for task in range(len(job.tasks)) if task not in waiting]


def several_realizations(
    parts: Sequence[JobPart], realizations: Sequence[Realization]
) -> Realization:
    """Return the times and volumes of `several_jobs`, 0 beyond a part's iterations."""
    longest = max(part.job.iterations for part in parts)
    late = [part for part in parts if part.release]
    times = [_wide(r.times, longest) for r in realizations]
    volumes = [_wide(r.volumes, longest) for r in realizations]
    for part in late:
        times.append(_wide(np.array([[part.release]]), longest))
        volumes.append(np.zeros((len(_sources(part.job)), longest)))
    return Realization(np.vstack(times), np.vstack(volumes))


def _wide(rows: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    return np.pad(rows, ((0, 0), (0, columns - rows.shape[1])))


def repeat(job: Job, realization: Realization) -> Profile:
    """Return a profile in which every task has its own iterations over and over.

    Searches draw iterations from it: beyond its last one a task of a short job would
    take no time.
    """
    columns = np.arange(job.iterations)

    def rows(values: NDArray[np.float64], counts: Sequence[int]) -> NDArray[np.float64]:
        at = columns % np.maximum(np.array(counts, dtype=np.int64), 1)[:, None]
        return np.take_along_axis(values, at, axis=1)

    sent = [job.rounds[edge.source] for edge in job.edges]
    return Profile(rows(realization.times, job.rounds), rows(realization.volumes, sent))
