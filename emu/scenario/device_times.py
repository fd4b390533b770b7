"""Times that differ by machine: by the device that a scenario states, or by speed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emu.scenario.custom_section import CustomJobSection
from emu.scenario.dgtp_section import DgtpJobSection, TrainingSection
from emu.scenario.model_section import ModelProgramSection
from emu.scenario.p3_section import ReplicaSection
from emu.scenario.quantities import DEFAULT_DEVICE
from emu.scenario.suggestion import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from emu.problem import Job
    from emu.scenario.cluster_section import ClusterSection
    from emu.scenario.document import Trail
    from emu.scenario.section import Section

    Times = Mapping[str, float]


def _per_device(job: Section) -> Iterator[tuple[Trail, str, Times]]:
    """Yield (where, task or kind of task, device -> seconds) of what differs.

    A worker's time that follows from those of P3's phases is where it would be written.
    """
    if isinstance(job, CustomJobSection):
        for position, task in enumerate(job.tasks):
            if isinstance(task.time, dict):
                yield ("job", "tasks", position, "time"), task.name, task.time
    elif isinstance(job, TrainingSection):
        for kind, time in job.times.by_kind().items():
            if isinstance(time, dict):
                yield ("job", "times", kind), kind, time


def device_errors(job: Section, cluster: ClusterSection) -> Iterator[tuple[Trail, str]]:
    """Yield devices with times that no machine has, and what would be right."""
    known = sorted({m.device for m in cluster.machines if m.device})
    for trail, _, times in _per_device(job):
        for device in times:
            if device != DEFAULT_DEVICE and device not in known:
                hint = nearest(device, known) if known else "no machine has a device"
                yield (*trail, device), f"no machine has device {device!r}, {hint}"


def measures_worker(section: Section) -> bool:
    """Tell whether a worker's time is measured: a program's, where none is stated."""
    return (
        isinstance(section, DgtpJobSection | ReplicaSection)
        and isinstance(section.model, ModelProgramSection)
        and "worker" not in section.times.stated()
    )


def with_slowness(
    job: Job, section: Section, cluster: ClusterSection, *, profiled: bool
) -> Job:
    """Return ``job`` with what each task's times are multiplied with on each machine.

    A profile holds CPU seconds of the computer that measured it, and so does what is
    measured of a program's model: a machine takes them over its speed. Stated times are
    those of its device.
    """
    machines = {name: cluster.machines[place] for name, place in cluster.named()}
    slower = {name: 1 / m.speed for name, m in machines.items() if m.speed != 1}
    if profiled:
        factors = dict.fromkeys([task.name for task in job.tasks], slower)
    else:
        factors = {
            of: {
                name: times[m.device] / times[DEFAULT_DEVICE]
                for name, m in machines.items()
                if m.device is not None and m.device in times
            }
            for _, of, times in _per_device(section)
        }
    by_kind = not profiled and isinstance(section, TrainingSection)
    if not profiled and measures_worker(section):
        factors["worker"] = slower
    tasks = (
        replace(task, slowness=factors.get(task.kind if by_kind else task.name, {}))
        for task in job.tasks
    )
    return replace(job, tasks=tuple(tasks)) if any(factors.values()) else job
