"""``placement.tasks`` as pins: tasks that no placement policy may move."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emu.fields.suggestion import nearest
from emu.placement.packing import overload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from emu.fields.section import Trail
    from emu.problem import Cluster, Job, Task


def pinned(job: Job, stated: Mapping[str, str]) -> Job:
    """Return ``job`` with the processes of the ``stated`` tasks pinned.

    Parameters
    ----------
    stated
        Machine name by task name, or by process name.

    Raises
    ------
    ValueError
        When there is no such task, or its process is pinned elsewhere.
    """
    if not stated:
        return job
    tasks = list(job.tasks)
    for name, machine in stated.items():
        for position in job.units[process_of(job, name)]:
            there = tasks[position].pinned
            if there not in {None, machine}:
                raise ValueError(f"{name} must stand on {there}, not {machine}")
            tasks[position] = replace(tasks[position], pinned=machine)
    return replace(job, tasks=tuple(tasks))


def process_of(job: Job, name: str) -> str:
    """Return the process that ``name`` is, or that the task ``name`` belongs to.

    Raises
    ------
    ValueError
        When there is neither.
    """
    if name in job.units:
        return name
    return job.tasks[job.index(name)].process_name


def pin_errors(
    job: Job, machines: Sequence[str], stated: Mapping[str, str]
) -> Iterator[tuple[Trail, str]]:
    """Yield errors in the names of ``placement.tasks``, and their places.

    Parameters
    ----------
    job
        Without them.
    """
    placed: dict[str, tuple[str, str]] = {}
    for name, machine in stated.items():
        trail: Trail = ("placement", "tasks", name)
        if machine not in machines:
            yield trail, f"no machine {machine!r}, {nearest(machine, machines)}"
        try:
            process = process_of(job, name)
        except ValueError:
            yield trail, f"no task {name!r}, {nearest(name, job.units)}"
            continue
        pins = {job.tasks[t].pinned for t in job.units[process]} - {machine}
        for pin in pins.intersection(machines):
            yield trail, f"found {machine!r}, but {name} must stand on {pin}"
        said, there = placed.setdefault(process, (name, machine))
        if there != machine:
            problem = f"found {machine!r}, but {said} of the same process is on {there}"
            yield trail, problem


def pins_too_large(job: Job, cluster: Cluster) -> Iterator[tuple[Task, str, str]]:
    """Yield (task, resource, problem): the last task pinned where it has no room.

    Parameters
    ----------
    job
        With its pins.
    """
    for machine, resource, problem in overload(job, cluster):
        pinned_there = [
            task
            for task in job.tasks
            if task.pinned == machine and task.demands.get(resource, 0.0) > 0
        ]
        yield pinned_there[-1], resource, problem
