"""Training results of a run: losses, accuracy, and times of each of several jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.emulation.coordinator.outcome import EmulatedRun
from emu.errors import DataError
from emu.graph_data import open_for
from emu.host.foreign_code import CodeWithheld
from emu.host.input_file import one_error, read_json
from emu.prediction.analysis.throughput import job_times
from emu.problem import Job
from emu.runs.array_files import NAME as WEIGHTS
from emu.runs.array_files import read_weights
from emu.runs.result import training_curve
from emu.runs.retraining import list_training
from emu.scenario import Experiment, Scenario, build_job
from emu.scenario.realize import list_model_figures
from emu.scenario.virtual_training import curve_until_divergence
from emu.systems.system import system_of
from emu.training import evaluate, parameter_shapes, split_parts

Parts = dict[str, NDArray[Any]]
Reports = list[tuple[float, str, int, dict[str, float]]]


def learnt(
    experiment: Experiment, run: EmulatedRun, policy: str, weights: Parts | None = None
) -> tuple[dict[str, Any], Parts]:
    """Return ``models``, ``training``, ``accuracy`` of result.json, or its ``jobs``.

    Beside them the named parts of all weights, of which there are none where nothing
    was trained; those of several jobs begin with ``JOB/``. ``policy`` is for how long
    each of several jobs takes alone; ``weights`` are such parts, by default of the
    run's results. Raises KeyError when they lack one.
    """
    job = experiment.problem.job
    models = {"models": list_model_figures(experiment.scenario)}
    times = job_times(run.schedule, run.realization, policy)
    if not times:
        figures, parts = _figures(job, run, "", weights)
        return models | figures, parts
    jobs: list[dict[str, Any]] = []
    found: Parts = {}
    for one in times:
        figures, parts = _figures(job, run, one.job, weights)
        jobs.append(one.to_json() | figures)
        found |= {f"{one.job}/{name}": part for name, part in parts.items()}
    return models | {"training": [], "jobs": jobs}, found


def evaluate_run(path: Path) -> dict[str, dict[str, float]]:
    """Return the accuracy of a run's weights by job and split; one job has no name.

    Raises DataError when the directory, its weights or the data set cannot be used.
    """
    manifest = path / "manifest.json"
    with one_error(manifest):  # problem.json holds no settings
        scenario = Scenario.model_validate(read_json(manifest)["scenario"])
        jobs = [*list_training(build_job(scenario))]
    if not jobs:
        problem = "has no weights: only compute: real and compute: padded train a model"
        raise DataError(problem, path=str(path))
    parts = read_weights(path)
    figures = {}
    for prefix, settings in jobs:
        shapes = parameter_shapes(settings, open_for(settings))
        own = [parts.get(prefix + part) for part in shapes]
        if [p.shape for p in own if p is not None] != [*shapes.values()]:
            problem = "holds the parts of another model than the run's"
            raise DataError(problem, path=str(path / WEIGHTS))
        flat = np.concatenate([part.ravel() for part in own if part is not None])
        if not np.isfinite(flat).all():
            problem = "holds what is no number: its training diverged"
            raise DataError(problem, path=str(path / WEIGHTS))
        figures[prefix.removesuffix("/")] = evaluate(settings, flat)
    return figures


def by_mini_batch(job: Job, reports: Reports) -> Reports:
    """Return the reports of tasks, numbered by mini-batch.

    An iteration of a pipeline is a cycle, in which phases are at other mini-batches.
    """
    behind = {task.name: task.behind for task in job.tasks}
    return [(at, task, n - behind[task], rest) for at, task, n, rest in reports]


def _figures(
    job: Job, run: EmulatedRun, name: str, weights: Parts | None
) -> tuple[dict[str, Any], Parts]:
    prefix = f"{name}/" if name else ""
    own = {t.name: t.name.removeprefix(prefix) for t in job.tasks if t.job_name == name}
    reports = [report for report in by_mini_batch(job, run.reports) if report[1] in own]
    results = {own[task]: left for task, left in run.results.items() if task in own}
    some = (task for task in job.tasks if task.name in own)
    tasks = tuple(replace(task, name=own[task.name], process="") for task in some)
    alone = Job(tasks, (), job.iterations, settings=job.settings_of(name))
    curve = training_curve(reports)
    figures, system = curve_until_divergence(curve), system_of(alone.settings)
    if system is None or not [*list_training(alone)]:
        return figures, {}
    try:
        shapes = parameter_shapes(alone.settings, open_for(alone.settings))
        if weights is None:
            flat = system.trained(alone, results)
        else:
            flat = np.concatenate([weights[prefix + part].ravel() for part in shapes])
        ends_well = bool(np.isfinite(flat).all())
        figures = curve_until_divergence(curve, ends_well=ends_well)
        if "diverged" not in figures:
            figures["accuracy"] = evaluate(alone.settings, flat)
    except CodeWithheld:
        return figures, {}
    return figures, split_parts(flat, shapes)
