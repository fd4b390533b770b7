"""Lines on a DGCL schedule: t(S) of every gather, its times, and a bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from emu.prediction.simulation import makespan
from emu.problem import Job, Realization, Schedule
from emu.systems import Floats
from emu.systems.dgcl import plans
from emu.systems.dgcl.job import CARRIES
from emu.systems.dgcl.spst import lower_bound
from emu.units import format_duration

_WORDS = {"gather": "forward", "scatter": "backward"}


def gather_lines(
    schedules: Mapping[str, Schedule],
    policy: str,
) -> Iterator[str]:
    """Yield a line per gather: t(S), its simulated time alone, a bound on t(S).

    And the mean time in every schedule, where stages wait for computation: from when
    the last device begins its first stage to when the last one ends its last. Before
    them stands what `plan_lines` yields.
    """
    first = next(iter(schedules.values()))
    job = first.problem.job
    settings = job.settings
    by_layer = plans.open_plans(settings)
    topology = plans.read_topology(settings["topology"])
    needs = plans.needs_of_settings(settings)
    is_atomic = settings["backward"] == "atomic"
    if "emulated" not in schedules:  # else it was said before the run
        yield from plans.plan_lines(settings)

    for kind, layer in _list_gathers(job):
        plan = by_layer[layer - 1]
        # No part needs a row of another.
        if not plan.stages:
            continue
        if kind == "scatter":
            plan = plans.gradient_plan(plan, atomic=is_atomic)

        sizes = _bytes_of(first, kind, layer)
        # t(S) is per row; a row's bytes depend on the layer.
        sent_once = int(plan.counts.sum())
        rows = max(sent_once, 1)
        sent_rows = rows * job.iterations
        row_bytes = float(sizes.sum()) / sent_rows
        bound = ""
        # The bound is of rows on their way from owners; gradients go the other way.
        if kind == "gather":
            needs_of_layer = needs[0]
            if len(needs) > 1:
                needs_of_layer = needs[layer - 1]
            least = row_bytes * lower_bound(needs_of_layer, topology)
            bound = f"; no plan's t(S) is below {format_duration(least)}"

        seconds_of_plan = row_bytes * plan.cost(topology)
        cost = format_duration(seconds_of_plan)
        seconds_alone = _time_alone(first, sizes, policy)
        alone = format_duration(seconds_alone)
        waits = list(_list_waits(schedules, kind, layer))
        with_waits = ", ".join(waits)
        yield (
            f"gather of layer {layer}, {_WORDS[kind]}: t(S) {cost}, "
            f"simulated {alone}; with waits {with_waits}{bound}"
        )


def _list_gathers(job: Job) -> list[tuple[str, int]]:
    """Return kind and layer of every gather, those of embeddings first."""
    gathers = set()
    for task in job.tasks:
        if task.kind in _WORDS:
            gather = (task.kind, task.settings["layer"])
            gathers.add(gather)
    return sorted(gathers)


def _list_waits(
    schedules: Mapping[str, Schedule],
    kind: str,
    layer: int,
) -> Iterator[str]:
    """Yield the mean time of a gather in every schedule, in words."""
    for name, schedule in schedules.items():
        seconds = _mean_time(schedule, kind, layer)
        yield f"{name} {format_duration(seconds)}"


def _mean_time(schedule: Schedule, kind: str, layer: int) -> float:
    """Return the seconds of a gather, the mean of the epochs."""
    stages = defaultdict[str, list[int]](list)
    job = schedule.problem.job
    for position, task in enumerate(job.tasks):
        is_of_kind = task.kind == kind
        if is_of_kind and task.settings["layer"] == layer:
            positions = stages[task.process_name]
            positions.append(position)

    starts = []
    ends = []
    # The stages of a device, one process each.
    for stage_tasks in stages.values():
        task_starts = schedule.task_start[stage_tasks]
        task_ends = schedule.task_end[stage_tasks]
        starts.append(task_starts.min(axis=0))
        ends.append(task_ends.max(axis=0))
    last_end = np.max(ends, axis=0)
    last_start = np.max(starts, axis=0)
    seconds = last_end - last_start
    return float(np.mean(seconds))


def _time_alone(schedule: Schedule, sizes: Floats, policy: str) -> float:
    """Return the seconds of a gather that has cores and links for itself."""
    problem = schedule.problem
    # Alone means on links as they are stated, without what happens to them in a run.
    cluster = replace(
        problem.cluster,
        changes=(),
        speed_changes=(),
    )
    job = replace(problem.job, iterations=1)
    problem = replace(problem, cluster=cluster, job=job)

    # Tasks take no time, and all epochs have the same bytes: one tells all.
    shape = (len(job.tasks), 1)
    times = np.zeros(shape)
    first_epoch = sizes[:, :1]
    flows = Realization(times, volumes=first_epoch)
    return makespan(problem, flows, policy)


def _bytes_of(schedule: Schedule, kind: str, layer: int) -> Floats:
    """Return the bytes of a gather by edge and iteration, 0 of all other flows."""
    job = schedule.problem.job
    belongs = []
    for edge in job.edges:
        source, destination = job.ends(edge)
        kinds = (source.kind, destination.kind)
        is_of_kind = source.kind == kind and kinds in CARRIES
        is_of_layer = is_of_kind and source.settings["layer"] == layer
        belongs.append(is_of_layer)

    is_of_gather = np.array(belongs)
    # Flows within a machine have no bytes on record.
    sizes = np.nan_to_num(schedule.flow_bytes)
    column = is_of_gather[:, None]
    return np.where(column, sizes, 0.0)
