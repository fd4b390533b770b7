"""The systems that are installed here, by name."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from emu.errors import EmulatorError
from emu.systems.system import System

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu.problem import Job, Schedule
    from emu.systems.job_section import JobSection
    from emu.systems.system import Guard

#: Entry points of this group are `System` records.
GROUP = "emu.systems"


@cache
def systems() -> Mapping[str, System]:
    """Return the installed systems by name, in the order of their names.

    Raises
    ------
    EmulatorError
        When an entry point cannot be imported, is no `System`, or two have one name.
    """
    found: dict[str, System] = {}
    for point in sorted(entry_points(group=GROUP)):
        where = f"entry point {point.name} = {point.value} of group {GROUP}"
        try:
            system = point.load()
        except Exception as error:  # of another package: anything
            raise EmulatorError(f"{where} cannot be imported: {error}") from error
        if not isinstance(system, System) or system.name != point.name:
            raise EmulatorError(f"{where} is no System called {point.name!r}")
        if system.name in found:
            raise EmulatorError(f"{where}: there is another system of that name")
        found[system.name] = system
    if not found:
        raise EmulatorError(
            f"no entry points of group {GROUP}: install emu again (pip install -e .)"
        )
    return found


def section_types() -> tuple[type[JobSection], ...]:
    """Return the ``job`` sections of all systems."""
    return tuple(system.section() for system in systems().values())


def system_guards() -> list[Guard]:
    """Return the guards of all systems; each looks at the tasks of its own kinds."""
    return [guard for system in systems().values() for guard in system.guards]


def system_of(settings: Mapping[str, object]) -> System | None:
    """Return the system that built a job, from ``Job.settings``; None without one."""
    return systems().get(str(settings.get("system")))


def held_by(job: Job) -> Mapping[str, tuple[str, ...]]:
    """Return the tasks with whose state a task begins after a cut; see `System.cuts`.

    Nothing where a job of its system takes none.
    """
    system = system_of(job.settings)
    return {} if system is None or system.cuts is None else system.cuts(job)


def updates_missed(job: Job) -> int:
    """Return how many updates weights lack; see `System.updates_missed`."""
    system = system_of(job.settings)
    return 0 if system is None else system.updates_missed(job.settings)


def remarks_on(schedules: Mapping[str, Schedule]) -> list[str]:
    """Return the remarks of a job's system on its schedules; see `System.remarks`."""
    job = next(iter(schedules.values())).problem.job
    system = system_of(job.settings)
    return [] if system is None else [*system.remarks(schedules)]


def figures_on(schedule: Schedule) -> dict[str, Any]:
    """Return what only a job's system knows of its schedule; see `System.figures`."""
    system = system_of(schedule.problem.job.settings)
    return {} if system is None else {**system.figures(schedule)}


def outlook_on(settings: Mapping[str, object]) -> list[str]:
    """Return the lines of a job's system before a run; see `System.outlook`."""
    system = system_of(settings)
    return [] if system is None else [*system.outlook(settings)]


def content_of(name: str, kinds: tuple[str, str]) -> str:
    """Return the content of flows between two kinds of task, a plural.

    Parameters
    ----------
    name
        System of the job, asked first: custom and several jobs have kinds of others.
    """
    known = systems()
    for system in sorted(known.values(), key=lambda system: system.name != name):
        if kinds in system.carries:
            return system.carries[kinds]
    return f"bytes of {kinds[0]} -> {kinds[1]}"
