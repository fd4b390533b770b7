"""Limits of a schedule, the share that is trained, and what decides its weights."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TypeAlias

import numpy as np

from emu.array_types import Floats
from emu.prediction.analysis.critical_path import (
    MOVING,
    Cause,
    ChainLink,
    critical_path,
)
from emu.prediction.analysis.throughput import pace
from emu.problem import Problem, Schedule
from emu.problem.fields.quantities import DEFAULT_DEVICE
from emu.problem.workloads.operations import OPERATIONS
from emu.scenario import Experiment, Scenario
from emu.systems import Keys
from emu.systems.system import system_of
from emu.training.kept import weight_settings

#: Name of a cause -> its share.
Shares: TypeAlias = dict[str, float]


def busy_of(schedule: Schedule) -> float | None:
    """Return the share of the makespan that processes which train compute, the mean.

    Where no task is called so, as of Dorylus, of machines: when one of its layers does.
    None where nothing trains.
    """
    problem = schedule.problem
    job = problem.job
    system = system_of(job.settings)
    busy = pace(schedule, None).busy
    if busy is not None or system is None:
        return busy

    rows_of = defaultdict(list)
    for row, task in enumerate(job.tasks):
        is_layer = "layer" in task.settings
        if is_layer and task.kind not in system.parameter_kinds:
            machine = problem.placement.machine_of[row]
            rows_of[machine].append(row)
    if not rows_of or not schedule.length:
        return None

    total = 0.0
    for rows in rows_of.values():
        starts = schedule.task_start[rows].ravel()
        ends = schedule.task_end[rows].ravel()
        total += _covered(starts, ends)
    mean = total / len(rows_of)
    return mean / schedule.length


def _covered(starts: Floats, ends: Floats) -> float:
    """Return the seconds that spans cover together."""
    order = np.argsort(starts)
    starts = starts[order]
    ends = ends[order]
    latest = np.maximum.accumulate(ends)
    # A span adds what is beyond the latest end of those that began before it.
    latest_before = np.zeros_like(latest)
    latest_before[1:] = latest[:-1]
    begins = np.maximum(starts, latest_before)
    gains = latest - begins
    # NaN sorts last: a task of a pipeline has no mini-batch in some cycles.
    return float(np.nansum(gains))


def weights_of(scenario: Scenario) -> str:
    """Return what decides the weights of a training, but its length, as text."""
    causes = weight_causes(scenario)
    return json.dumps(causes, sort_keys=True, default=str)


def weight_causes(scenario: Scenario) -> Keys:
    """Return what decides the weights of a training, but its length, by name."""
    job = scenario.to_job(train_vertices=1, pins=False)
    settings = job.settings
    system = system_of(settings)
    causes: Keys = weight_settings(settings, opens=False)
    if system is not None:
        causes["missed"] = system.updates_missed(settings)
        if system.trainer is None:  # it may train in any way
            causes["system"] = system.name
        if system.asynchronous(settings):  # by what was read when
            causes["job"] = scenario.job.model_dump(mode="json")
    return causes


def limits_of(experiment: Experiment, schedule: Schedule) -> Shares:
    """Return what the critical path is spent on, as shares of it, the most first.

    A ``link``, the ``latency`` of messages, a ``slot`` that others held, a ``rate`` of
    operations; where times are stated the ``path`` of tasks on a machine.
    """
    length = schedule.length or 1.0
    operations = RowOperations(experiment)
    shares = defaultdict[str, float](float)
    for link in critical_path(schedule).links:
        seconds = float(link.end - link.start)
        share = seconds / length
        causes = operations.name_causes(link, schedule)
        for name, part in causes.items():
            shares[name] += share * part

    most_first = sorted(shares.items(), key=lambda item: -item[1])
    return {name: share for name, share in most_first if share > 0}


class RowOperations:
    """Operations of a row's tasks, and what a link of its path is spent on.

    Attributes
    ----------
    counts
        By operation, task and iteration; None where times are stated.
    """

    def __init__(self, experiment: Experiment) -> None:
        scenario = experiment.scenario
        job = experiment.problem.job
        self._cluster = scenario.cluster
        self._section = scenario.job
        self.counts: Floats | None = None
        if self._section.operation_rates is not None:
            context = scenario.build_context()
            # Operations are counted in real bytes, as they are in memory.
            volumes = experiment.realization.volumes * context.byte_scale
            operations = self._section.count_operations(job, context, volumes)
            self.counts = operations.counts

    def rates_on(self, problem: Problem, task: int) -> dict[str, float]:
        """Return operation -> seconds of a task on the device of its machine."""
        machine = problem.placement.machine_of[task]
        name = problem.cluster.machines[machine].name
        settings = self._cluster.by_name[name]
        device = settings.device or DEFAULT_DEVICE
        stated_task = problem.job.tasks[task]
        return self._section.rates_of(stated_task, device)

    def name_causes(self, link: ChainLink, schedule: Schedule) -> Shares:
        """Return the share of a link by its causes."""
        problem = schedule.problem
        if link.cause in MOVING or link.task < 0:
            name = "gap"
            if link.cause is Cause.LATENCY:
                name = "latency"
            elif link.port >= 0:
                port_name = problem.links[link.port].name
                name = f"link {port_name}"
            return {name: 1.0}

        machine = problem.placement.machine_of[link.task]
        name = problem.cluster.machines[machine].name
        if link.cause in (Cause.SLOT, Cause.CREDIT):
            return {f"slot {name}": 1.0}
        if self.counts is None:
            return {f"path {name}": 1.0}

        # By the rates of the device that the machine has, as its time was counted.
        rates = self.rates_on(problem, link.task)
        counts = self.counts[:, link.task, link.iteration]
        seconds_of_one = [rates[operation] for operation in OPERATIONS]
        seconds = counts * seconds_of_one
        total = seconds.sum() or 1.0
        shares = (seconds / total).tolist()
        names = [f"rate {operation}" for operation in OPERATIONS]
        return dict(zip(names, shares, strict=True))
