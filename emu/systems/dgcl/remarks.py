"""Lines on the gathers of a schedule; node programs simulate nothing: not in plans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emu.prediction.simulation import makespan
from emu.problem import Realization, Schedule
from emu.systems.dgcl.job import CARRIES
from emu.systems.dgcl.plans import (
    gradient_plan,
    needs_of_settings,
    open_plans,
    plan_lines,
    read_topology,
)
from emu.systems.dgcl.spst import lower_bound
from emu.units import format_duration

_WORDS = {"gather": "forward", "scatter": "backward"}


def gather_lines(schedules: Mapping[str, Schedule], policy: str) -> Iterator[str]:
    """Yield a line per gather: t(S), its simulated time alone, a bound on t(S).

    And the mean time in every schedule, where stages wait for computation: from when
    the last device begins its first stage to when the last one ends its last. Before
    them stands what `plan_lines` yields.
    """
    first = next(iter(schedules.values()))
    job, settings = first.problem.job, first.problem.job.settings
    plans, topology = open_plans(settings), read_topology(settings["topology"])
    needs, atomic = needs_of_settings(settings), settings["backward"] == "atomic"
    if "emulated" not in schedules:  # else it was said before the run
        yield from plan_lines(settings)
    for kind, layer in sorted(
        {(t.kind, t.settings["layer"]) for t in job.tasks if t.kind in _WORDS}
    ):
        plan, least = plans[layer - 1], ""
        if not plan.stages:
            continue
        if kind == "scatter":
            plan = gradient_plan(plan, atomic=atomic)
        parts = [
            f"{how} {format_duration(_mean_time(schedule, kind, layer))}"
            for how, schedule in schedules.items()
        ]
        rows = max(int(plan.counts.sum()), 1) * job.iterations
        size = float(_bytes_of(first, kind, layer).sum()) / rows
        if kind == "gather":
            bound = lower_bound(needs[layer - 1 if len(needs) > 1 else 0], topology)
            least = f"; no plan's t(S) is below {format_duration(size * bound)}"
        where = f"gather of layer {layer}, {_WORDS[kind]}"
        cost = format_duration(size * plan.cost(topology))
        alone = format_duration(_time_alone(first, kind, layer, policy))
        waits = f"with waits {', '.join(parts)}"
        yield f"{where}: t(S) {cost}, simulated {alone}; {waits}{least}"


def _mean_time(schedule: Schedule, kind: str, layer: int) -> float:
    """Return the seconds of a gather, the mean of the epochs."""
    stages = defaultdict[str, list[int]](list)
    for position, task in enumerate(schedule.problem.job.tasks):
        if task.kind == kind and task.settings["layer"] == layer:
            stages[task.process_name].append(position)
    begin = [schedule.task_start[own].min(axis=0) for own in stages.values()]
    end = [schedule.task_end[own].max(axis=0) for own in stages.values()]
    return float(np.mean(np.max(end, axis=0) - np.max(begin, axis=0)))


def _time_alone(schedule: Schedule, kind: str, layer: int, policy: str) -> float:
    """Return the seconds of a gather that nobody else's work or bytes delay."""
    problem = schedule.problem
    cluster = replace(problem.cluster, changes=(), speed_changes=())
    job = replace(problem.job, iterations=1)
    sizes = _bytes_of(schedule, kind, layer)[:, :1]
    alone = Realization(np.zeros((len(job.tasks), 1)), sizes)
    return makespan(replace(problem, cluster=cluster, job=job), alone, policy)


def _bytes_of(schedule: Schedule, kind: str, layer: int) -> NDArray[np.float64]:
    """Return the bytes of a gather by edge and iteration, 0 of all other flows."""
    job = schedule.problem.job
    ends = [(job.tasks[e.source], job.tasks[e.destination]) for e in job.edges]
    own = [
        one.kind == kind and one.settings["layer"] == layer
        if (one.kind, other.kind) in CARRIES
        else False
        for one, other in ends
    ]
    return np.where(np.array(own)[:, None], np.nan_to_num(schedule.flow_bytes), 0.0)
