"""Faults of a section that a package brings, before any file is read by it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, get_args

from emu.errors import EmulatorError
from emu.problem import Job
from emu.problem.fields.cluster_section import ClusterSection
from emu.systems import Problems
from emu.systems.job_section import BuildContext, JobSection

#: Methods that every system states, and how many values emu hands each.
_STATED = {"build": 1, "realize": 4}
#: Keys that every section has, as fields or as properties.
_KEYS = ("iterations", "credit_window")


def section_problem(section: object, name: str) -> str:
    """Return why a class is no section of the system ``name``; empty where it is one.

    Raises what pydantic does where a type of a key is not known.
    """
    if not (isinstance(section, type) and issubclass(section, JobSection)):
        found = getattr(section, "__name__", repr(section))
        return f"{found} is no subclass of emu.systems.job_section.JobSection"
    # Types that were not known when the class was made may be so by now.
    section.model_rebuild()

    remedy = f"write system: Literal[{name!r}]"
    field = section.model_fields.get("system")
    if field is None:
        return f"has no key system: {remedy}"
    if name not in get_args(field.annotation):
        return f"is of another system: {remedy}"
    for key in _KEYS:
        if key not in section.model_fields and not hasattr(section, key):
            return f"has no key {key}: write one, or a property"
    for method, count in _STATED.items():
        problem = _method_problem(section, method, count)
        if problem:
            return problem
    return ""


def build_by(section: JobSection, context: BuildContext) -> Job:
    """Return the job that a section builds; raise EmulatorError where it is none."""
    job: object = section.build(context)
    if not isinstance(job, Job):
        found = type(job).__name__
        raise EmulatorError(f"system {section.system} builds a {found}, no Job")
    # By these its programs, guards and words are found, of a run long over as well.
    found_system = job.settings.get("system")
    if found_system != section.system:
        raise EmulatorError(
            f"system {section.system} builds a Job whose settings name the system "
            f"{found_system!r}: write settings={{'system': self.system, ...}}"
        )
    return job


def problems_of(section: JobSection, cluster: ClusterSection) -> Problems:
    """Yield the problems that a section finds; EmulatorError where it yields others."""
    system = section.system
    problems: Any = section.problems(cluster)
    if not isinstance(problems, Iterable):
        found = type(problems).__name__
        raise EmulatorError(f"system {system}: problems returns a {found}: yield none")
    for problem in problems:
        match problem:
            case (tuple() as trail, str() as text):
                yield trail, text
            case _:
                raise EmulatorError(
                    f"system {system}: problems yields {problem!r}: write a tuple of "
                    "keys, and what is wrong"
                )


def _method_problem(section: type[JobSection], name: str, count: int) -> str:
    method = getattr(section, name)
    if method is getattr(JobSection, name):
        return f"has no method {name}"
    found = inspect.signature(method)
    values = [None] * count
    # A method of the class, or a static one, has no self to be handed.
    if inspect.isfunction(inspect.getattr_static(section, name)):
        values.append(None)
    try:
        found.bind(*values)
    except TypeError:
        return f"has {name}{found}, which does not take the values of JobSection.{name}"
    return ""
