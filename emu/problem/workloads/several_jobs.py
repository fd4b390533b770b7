"""Several jobs as one: names begin with the job's, and a job may begin later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from emu.array_types import Floats, Ints
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

    def tasks(self) -> Iterator[Task]:
        """Yield its tasks by their names among several jobs."""
        job = self.job
        tasks = zip(job.tasks, job.rounds, strict=True)
        for task, rounds in tasks:
            yield replace(
                task,
                name=self._rename(task.name),
                process=self._rename(task.process_name),
                # Stated, as the job of all parts may have more.
                iterations=rounds,
                takes=self._pool(task.takes),
                frees=self._pool(task.gives_back),
            )

    def edges(self, first: int) -> Iterator[Edge]:
        """Yield its edges among several jobs, where its ``first`` task stands there."""
        for edge in self.job.edges:
            # A channel or coflow is of its job: equal names of two are two.
            yield replace(
                edge,
                source=first + edge.source,
                destination=first + edge.destination,
                channel=self._rename(edge.channel),
                coflow=self._rename(edge.coflow),
            )

    def gate(self) -> Task:
        """Return the task that lasts until it may begin, beside its first one."""
        neighbour = self.job.tasks[0]
        return Task(
            name=f"{self.name}/release",
            kind=RELEASE,
            # A gate needs a place, though nothing runs there.
            pinned=neighbour.pinned,
            process=self._rename(neighbour.process_name),
            iterations=1,
            gate=True,
        )

    def sources(self) -> list[int]:
        """Return its tasks that wait for nothing in their first iteration."""
        job = self.job
        # With a lag an edge is waited for from a later iteration on.
        waiting = {edge.destination for edge in job.edges if edge.lag == 0}
        return [task for task in range(len(job.tasks)) if task not in waiting]

    def _rename(self, name: str) -> str:
        if not name:
            return ""
        return f"{self.name}/{name}"

    def _pool(self, name: str) -> str:
        """Return a pool by its name among several jobs: each has servers of its own."""
        if name in self.job.servers:
            return self._rename(name)
        return name


def several_jobs(parts: Sequence[JobPart]) -> Job:
    """Return the job whose tasks are called ``a/w0``: those of every part, in order.

    Then come, of parts that begin later, a gate ``a/release``, which lasts until then
    and is waited for by whatever could start at once. It stands beside the part's first
    task.

    Raises ValueError as `Job`, or when two parts have one name.
    """
    names = [part.name for part in parts]
    if len(names) > len(set(names)):
        words = ", ".join(names)
        raise ValueError(f"two jobs of one name: {words}")

    tasks: list[Task] = []
    edges: list[Edge] = []
    firsts: list[int] = []
    for part in parts:
        first = len(tasks)
        firsts.append(first)
        tasks += part.tasks()
        edges += part.edges(first)

    # Behind the tasks of all parts, as their edges count on the positions of these.
    for part, first in zip(parts, firsts, strict=True):
        if not part.release:
            continue
        gate = len(tasks)
        tasks.append(part.gate())
        for task in part.sources():
            edge = Edge(gate, first + task)
            edges.append(edge)

    settings = {part.name: part.job.settings for part in parts}
    return Job(
        tasks=tuple(tasks),
        edges=tuple(edges),
        # Each task states its own number, which may be smaller.
        iterations=max(part.job.iterations for part in parts),
        settings={"jobs": settings},
    )


def several_realizations(
    parts: Sequence[JobPart], realizations: Sequence[Realization]
) -> Realization:
    """Return the times and volumes of `several_jobs`, 0 beyond a part's iterations."""
    longest = max(part.job.iterations for part in parts)
    times = [_widen(part.times, longest) for part in realizations]
    volumes = [_widen(part.volumes, longest) for part in realizations]

    # In the order of `several_jobs`, whose gates stand behind all parts.
    for part in parts:
        if part.release:  # its gate, and the edges from there
            gate = np.array([[part.release]])
            gate_times = _widen(gate, longest)
            times.append(gate_times)
            edges = len(part.sources())
            gate_volumes = np.zeros((edges, longest))
            volumes.append(gate_volumes)

    return Realization(
        times=np.vstack(times),
        volumes=np.vstack(volumes),
    )


def _widen(rows: Floats, columns: int) -> Floats:
    missing = columns - rows.shape[1]
    no_rows = (0, 0)
    return np.pad(rows, (no_rows, (0, missing)))


def repeat(job: Job, realization: Realization) -> Profile:
    """Return a profile in which every task has its own iterations over and over.

    Searches draw iterations from it: beyond its last one a task of a short job would
    take no time.
    """
    rounds = np.array(job.rounds)
    # Mostly none is shorter, and 33,000 edges of 64 machines need no copy.
    if rounds.min() >= realization.times.shape[1]:
        return Profile(realization.times, realization.volumes)
    rounds_of_edges = rounds[job.columns.source]
    return Profile(
        times=_repeat_rows(realization.times, counts=rounds),
        volumes=_repeat_rows(realization.volumes, counts=rounds_of_edges),
    )


def _repeat_rows(rows: Floats, counts: Ints) -> Floats:
    """Return rows of the same length, in each its first columns over and over."""
    lengths = np.maximum(counts, 1)  # a row without any keeps its first column
    columns = np.arange(rows.shape[1]) % lengths[:, None]
    return np.take_along_axis(rows, columns, axis=1)
