"""Pins: tasks of a built job whose machine a placement states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from emu.problem import Job
from emu.problem.fields.section import Trail
from emu.problem.fields.suggestion import nearest
from emu.systems import Problems


def pin(job: Job, stated: Mapping[str, str]) -> Job:
    """Return ``job`` with the processes of the ``stated`` tasks pinned.

    ``stated``: machine name by task name, or by process name. Raises ValueError when
    there is no such task, or its process is pinned elsewhere.
    """
    if not stated:
        return job

    machines: dict[str, str] = {}
    for name, machine in stated.items():
        process = process_of(job, name)
        # Tasks of a process stand together: the first that is stated binds the others.
        pin_machine = machines.get(process)
        if not pin_machine:
            pin_machine = job.pins.get(process, machine)
        if pin_machine != machine:
            raise ValueError(f"{name} must stand on {pin_machine}, not {machine}")
        machines[process] = machine

    tasks = list(job.tasks)
    for process, machine in machines.items():
        # Units and not processes: a gate stands where its process does.
        for member in job.units[process]:
            task = tasks[member]
            tasks[member] = replace(task, pinned=machine)
    return replace(job, tasks=tuple(tasks))


def process_of(job: Job, name: str) -> str:
    """Return the process that ``name`` is, or that the task ``name`` belongs to.

    Raises ValueError when there is neither.
    """
    if name in job.units:
        return name
    position = job.index(name)
    return job.tasks[position].process_name


def pin_errors(
    job: Job,
    machines: Sequence[str],
    stated: Mapping[str, str],
) -> Problems:
    """Yield errors in the names of ``placement.tasks``, and their places.

    ``job``: without them.
    """
    places: dict[str, tuple[str, str]] = {}
    names = set(machines)
    for name, machine in stated.items():
        trail: Trail = ("placement", "tasks", name)
        # The name of the task is looked at all the same: both may be wrong.
        if machine not in names:
            yield trail, f"no machine {machine!r}, {nearest(machine, machines)}"
        try:
            process = process_of(job, name)
        except ValueError:
            yield trail, f"no task {name!r}, {nearest(name, job.units)}"
            continue

        pin_machine = job.pins.get(process, machine)
        # A pin to no machine of the cluster is an error where the job states it.
        if pin_machine != machine and pin_machine in names:
            yield trail, f"found {machine!r}, but {name} must stand on {pin_machine}"
        # The task that is listed first decides where its process stands.
        first, home = places.setdefault(process, (name, machine))
        if home != machine:
            words = f"{first} of the same process is on {home}"
            yield trail, f"found {machine!r}, but {words}"
