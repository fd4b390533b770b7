"""Factors by which tasks take longer on each machine: speeds, and times of devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from emu.problem import Job
from emu.problem.fields.cluster_section import ClusterSection, MachineSection
from emu.problem.fields.quantities import DEFAULT_DEVICE
from emu.systems import Times

if TYPE_CHECKING:
    from emu.systems.job_section import JobSection


def with_slowness(
    job: Job,
    section: JobSection,
    cluster: ClusterSection,
    *,
    profiled: bool,
) -> Job:
    """Return ``job`` with what each task's times are multiplied with on each machine.

    CPU seconds of a profile, of a program's model, and of a job that says so a machine
    takes over its speed. Other stated times are those of its device.
    """
    machines = cluster.by_name
    slower = {}
    for name, row in machines.items():
        if row.speed != 1:
            slower[name] = 1 / row.speed

    factors: dict[str, dict[str, float]] = {}
    if profiled or section.goes_by_speed:
        factors = {task.name: slower for task in job.tasks}
    else:
        for _, name, times in section.device_times():
            factors[name] = _over_default(times, machines)
    if not profiled and section.measures_worker:
        factors["worker"] = slower
    # The same job, not a copy: a cluster of equal machines changes nothing.
    if not any(factors.values()):
        return job

    # Stated times of a training are by kind of task, all others by its name.
    has_kinds = not profiled and section.trains
    tasks = []
    for task in job.tasks:
        key = task.kind if has_kinds else task.name
        factor = factors.get(key)
        slower_task = task
        if factor:
            slower_task = replace(task, slowness=factor)
        tasks.append(slower_task)
    return replace(job, tasks=tuple(tasks))


def _over_default(
    times: Times,
    machines: Mapping[str, MachineSection],
) -> dict[str, float]:
    """Return times of machines' devices over the default one, for which others are."""
    factors = {}
    for name, machine in machines.items():
        device = machine.device
        if device is not None and device in times:
            factors[name] = times[device] / times[DEFAULT_DEVICE]
    return factors
