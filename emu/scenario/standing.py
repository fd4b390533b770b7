"""Check where tasks of a built job stand: places that are there, and have room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from emu.prediction.placement.packing import overload
from emu.prediction.placement.space import Space
from emu.problem import Job, Task
from emu.problem.fields.section import Trail
from emu.problem.fields.suggestion import nearest
from emu.problem.workloads import CHECKPOINT
from emu.scenario.pins import pin, pin_errors
from emu.systems import Problems

if TYPE_CHECKING:
    from emu.scenario.scenario import Scenario


def overload_problems(scenario: Scenario, job: Job) -> Problems:
    """Yield the last pin, or the demand, that is more than a machine has."""
    homes = scenario.placement.tasks
    pinned_job = pin(job, homes)
    # Apart, as who shares slots may be where a pool is unlimited: only what is too much
    # in any case is an error.
    cluster = scenario.cluster.build()
    space = Space(pinned_job, cluster, apart=True)
    problems_at: dict[Trail, list[str]] = {}
    for machine, resource, _, problem in overload(space):
        task = _last_demanding(pinned_job, machine, resource)
        names = _names_of_process(job, task.process_name)
        stated_names = [name for name in homes if name in names]

        place = scenario.job.demands_at(task)
        trail: Trail = (*place, resource)
        if stated_names:
            name = stated_names[0]
            trail = ("placement", "tasks", name)
        problems_of_place = problems_at.setdefault(trail, [])
        problems_of_place.append(problem)

    for trail, problems in problems_at.items():
        problem = problems[0]
        further = len(problems) - 1
        if further:
            problem += f"; {further} more machines likewise"
        yield trail, scenario.advice(problem)


def _names_of_process(job: Job, process: str) -> set[str]:
    """Return the names by which a placement may call a process: its tasks', its own."""
    names = {process}
    for member in job.units[process]:
        task = job.tasks[member]
        names.add(task.name)
    return names


def _last_demanding(job: Job, machine: str, resource: str) -> Task:
    """Return the last task on a machine that demands a resource: it was too much."""
    demanding = []
    for task in job.tasks:
        if task.pinned != machine:
            continue
        demand = task.demands.get(resource, 0.0)
        if demand > 0:
            demanding.append(task)
    return demanding[-1]


def standing_problems(scenario: Scenario, job: Job) -> Problems:
    """Yield pins and placements to nowhere."""
    machines = scenario.cluster.names
    places = scenario.placement.tasks
    pins: list[tuple[Trail, str]] = []
    for trail, _, machine in scenario.job.list_pins():
        pins.append((trail, machine))
        if machine not in machines:
            suggestion = nearest(machine, machines)
            yield trail, f"no machine {machine!r}, {suggestion}"
    yield from pin_errors(job, machines, places)

    pool = scenario.job.movable_on or machines
    for name, machine in places.items():
        trail = ("placement", "tasks", name)
        pins.append((trail, machine))
    names_of_pool = ", ".join(pool)
    for trail, machine in pins:
        is_known = machine in machines
        if is_known and machine not in pool:
            problem = f"{machine!r} takes no part, job.machines: {names_of_pool}"
            yield trail, problem

    if not scenario.placement.is_explicit:
        return
    missing = _list_unplaced(job, places)
    if missing:
        trail = ("placement", "tasks")
        names = ", ".join(missing[:8])
        yield trail, f"no machine for {names}"


def _list_unplaced(job: Job, places: Mapping[str, str]) -> list[str]:
    """Return the processes that neither a pin nor an explicit placement places."""
    missing = []
    for process, members in job.units.items():
        first = job.tasks[members[0]]
        names = _names_of_process(job, process)
        is_pinned = first.pinned is not None
        is_placed = not names.isdisjoint(places)
        # A copy of state goes to a machine beside its task's by itself.
        is_copy = first.kind == CHECKPOINT
        if not is_pinned and not is_placed and not is_copy:
            missing.append(process)
    return missing
