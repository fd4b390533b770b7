"""What a run has learnt: losses and accuracy, and the times of each of several jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from emu.analysis.job_times import job_times
from emu.experiment.trained import evaluate_accuracy
from emu.problem import Job
from emu.runs.result import training_curve
from emu.workloads import PIPELINES

if TYPE_CHECKING:
    from emu.coordinator.outcome import EmulatedRun
    from emu.scenario import Experiment

    Reports = list[tuple[float, str, int, dict[str, float]]]


def learnt(experiment: Experiment, run: EmulatedRun, policy: str) -> dict[str, Any]:
    """Return ``training`` and ``accuracy`` of result.json; of several jobs ``jobs``.

    Parameters
    ----------
    policy
        Rate policy, for how long each of several jobs takes alone.
    """
    times = job_times(run.schedule, run.realization, policy)
    if not times:
        return _figures(experiment.problem.job, run, "")
    jobs = [
        one.to_json() | _figures(experiment.problem.job, run, one.job) for one in times
    ]
    return {"training": [], "jobs": jobs}


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
    accuracy = evaluate_accuracy(alone, results)
    figures: dict[str, Any] = {"training": training_curve(reports)}
    return figures | ({"accuracy": accuracy} if accuracy else {})
