"""What a run has learnt: losses and accuracy, and the times of each of several jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from emu.analysis.job_times import job_times
from emu.experiment.trained import evaluate_accuracy
from emu.problem import Job
from emu.runs.result import training_curve

if TYPE_CHECKING:
    from emu.coordinator.outcome import EmulatedRun
    from emu.scenario import Experiment


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


def _figures(job: Job, run: EmulatedRun, name: str) -> dict[str, Any]:
    prefix = f"{name}/" if name else ""
    own = {t.name: t.name.removeprefix(prefix) for t in job.tasks if t.job_name == name}
    reports = [report for report in run.reports if report[1] in own]
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
