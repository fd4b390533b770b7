"""Times that differ by machine: by the device that a scenario states, or by speed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emu.fields.quantities import DEFAULT_DEVICE
from emu.fields.suggestion import nearest
from emu.systems.training_section import TrainingSection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emu.fields.cluster_section import ClusterSection
    from emu.fields.section import Trail
    from emu.problem import Job
    from emu.systems.job_section import JobSection


def device_errors(
    job: JobSection, cluster: ClusterSection
) -> Iterator[tuple[Trail, str]]:
    """Yield devices with times that no machine has, and what would be right."""
    known = sorted({m.device for m in cluster.machines if m.device})
    for trail, _, times in job.device_times():
        for device in times:
            if device != DEFAULT_DEVICE and device not in known:
                hint = nearest(device, known) if known else "no machine has a device"
                yield (*trail, device), f"no machine has device {device!r}, {hint}"


def with_slowness(
    job: Job, section: JobSection, cluster: ClusterSection, *, profiled: bool
) -> Job:
    """Return ``job`` with what each task's times are multiplied with on each machine.

    A profile holds CPU seconds of the computer that measured it, and so does what is
    measured of a program's model: a machine takes them over its speed, as it does with
    times of a job that says so. Other stated times are those of its device.
    """
    machines = {name: cluster.machines[place] for name, place in cluster.named()}
    slower = {name: 1 / m.speed for name, m in machines.items() if m.speed != 1}
    if profiled or section.goes_by_speed:
        factors = dict.fromkeys([task.name for task in job.tasks], slower)
    else:
        factors = {
            of: {
                name: times[m.device] / times[DEFAULT_DEVICE]
                for name, m in machines.items()
                if m.device is not None and m.device in times
            }
            for _, of, times in section.device_times()
        }
    by_kind = not profiled and section.devices_by_kind
    measured = isinstance(section, TrainingSection) and section.measures_worker
    if not profiled and measured:
        factors["worker"] = slower
    tasks = (
        replace(task, slowness=factors.get(task.kind if by_kind else task.name, {}))
        for task in job.tasks
    )
    return replace(job, tasks=tuple(tasks)) if any(factors.values()) else job
