"""What a run has learnt: losses and accuracy, and the times of each of several jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.analysis.pace import job_times
from emu.graph_data import open_for
from emu.problem import Job
from emu.runs.result import training_curve
from emu.scenario.realize import measured_models
from emu.training import ColumnSplit, evaluate
from emu.workloads import PIPELINES, column_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from emu.coordinator.outcome import EmulatedRun
    from emu.scenario import Experiment

    Reports = list[tuple[float, str, int, dict[str, float]]]
    Results = Mapping[str, Mapping[str, NDArray[Any]]]


def learnt(experiment: Experiment, run: EmulatedRun, policy: str) -> dict[str, Any]:
    """Return ``models``, ``training``, ``accuracy`` of result.json, or its ``jobs``.

    Parameters
    ----------
    policy
        Rate policy, for how long each of several jobs takes alone.
    """
    models = {"models": measured_models(experiment.scenario)}
    times = job_times(run.schedule, run.realization, policy)
    if not times:
        return models | _figures(experiment.problem.job, run, "")
    jobs = [
        one.to_json() | _figures(experiment.problem.job, run, one.job) for one in times
    ]
    return models | {"training": [], "jobs": jobs}


def by_mini_batch(job: Job, reports: Reports) -> Reports:
    """Return what tasks reported, numbered by mini-batch.

    An iteration of P3 is a cycle, in which each phase is at another mini-batch.
    """
    pipelines = {
        task.name: PIPELINES[job.settings_of(task.job_name).get("pipeline", "none")]
        for task in job.tasks
    }
    kinds = {task.name: task.kind for task in job.tasks}
    return [
        (when, task, cycle - pipelines[task].behind_of(kinds[task]), figures)
        for when, task, cycle, figures in reports
    ]


def _figures(job: Job, run: EmulatedRun, name: str) -> dict[str, Any]:
    prefix = f"{name}/" if name else ""
    own = {t.name: t.name.removeprefix(prefix) for t in job.tasks if t.job_name == name}
    reports = [report for report in by_mini_batch(job, run.reports) if report[1] in own]
    results = {own[task]: left for task, left in run.results.items() if task in own}
    tasks = tuple(
        replace(task, name=own[task.name], process="")
        for task in job.tasks
        if task.name in own
    )
    alone = Job(tasks, (), job.iterations, settings=job.settings_of(name))
    accuracy = _evaluate_accuracy(alone, results)
    figures: dict[str, Any] = {"training": training_curve(reports)}
    return figures | ({"accuracy": accuracy} if accuracy else {})


def _evaluate_accuracy(job: Job, results: Results) -> dict[str, float]:
    """Return the accuracy of what was trained, by split; empty when nothing was."""
    settings = job.settings
    if settings["compute"] == "timed" or "model" not in settings:
        return {}
    return evaluate(settings, trained_parameters(job, results))


def trained_parameters(job: Job, results: Results) -> NDArray[Any]:
    """Return all parameters, flat.

    Servers hold shards of them, machines of P3 the first layer's weights of their
    columns beside all others, and of workers that sum gradients each holds all.
    """
    if "pipeline" in job.settings:
        return _joined_columns(job.settings, results)
    names = {
        kind: [task.name for task in job.tasks if task.kind == kind]
        for kind in ("parameter_server", "worker")
    }
    holders = names["parameter_server"] or names["worker"][:1]
    return np.concatenate([results[name]["parameters"] for name in holders])


def _joined_columns(settings: Mapping[str, Any], results: Results) -> NDArray[Any]:
    members = settings["workers"] // settings["groups"]
    dataset = open_for(settings)
    blocks = column_blocks(settings["columns"], dataset.feature_length, members)
    owned = [results[f"Mf{rank}"]["own"] for rank in range(members)]
    split = ColumnSplit(settings, dataset, blocks, 0)
    return split.joined(owned, results["Mf0"]["upper"])
