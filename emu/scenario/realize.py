"""Times and volumes of a scenario's job: stated, profiled, or counted in its graph.

The seam to `emu.graph_data`: whatever a simulation needs of a data set goes through
this file, and a data set is opened only where its numbers are needed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError, ScenarioError
from emu.graph_data import (
    BatchPlan,
    open_columns,
    open_for,
    realize_volumes,
    sampled_counts,
)
from emu.problem import Realization
from emu.scenario.custom_section import CustomJobSection
from emu.scenario.dgtp_section import TrainingSection
from emu.scenario.jobs_section import SeveralJobsSection
from emu.scenario.model_section import FiguresSection, ModelProgramSection
from emu.scenario.pins import pinned
from emu.scenario.profile_file import read_profile
from emu.training import try_out
from emu.units import SIZE
from emu.workloads import (
    DataParallelConfig,
    DgtpConfig,
    JobPart,
    P3Config,
    column_blocks,
    data_parallel_realization,
    dgtp_times,
    p3_realization,
    parameter_count,
    several_jobs,
    several_realizations,
    split_model,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from emu.graph_data import Dataset
    from emu.problem import Cluster, Job
    from emu.scenario.scenario import Scenario
    from emu.scenario.section import Section
    from emu.workloads import TrainingConfig


_FEATURE_BYTES = 4  # float32 in the prepared form, whatever the precision


def realize_training(
    config: TrainingConfig, job: Job, times: Mapping[str, float], dataset: Dataset
) -> Realization:
    """Return seconds and real bytes of ``job``, whose shape ``config`` is.

    Parameters
    ----------
    times
        Kind of task -> seconds.
    """
    if isinstance(config, DgtpConfig):
        return Realization(dgtp_times(job, times), realize_volumes(job, dataset))
    plan = BatchPlan.from_settings(job.settings)
    counts = sampled_counts(dataset, plan, config.batches)
    model, length = job.settings["model"], dataset.feature_length
    parameters = parameter_count(model, length, dataset.classes)
    itemsize = 8 if job.settings["precision"] == "float64" else 4
    if isinstance(config, DataParallelConfig):
        return data_parallel_realization(
            config,
            job,
            times,
            counts,
            feature_length=length,
            parameters=parameters,
            itemsize=itemsize,
        )
    split = split_model(model, length, dataset.classes, itemsize)
    return p3_realization(config, times, counts, split)


def _check_columns(config: P3Config, dataset: Dataset, cluster: Cluster) -> None:
    """Hold the columns of every machine against its memory."""
    length = dataset.feature_length
    if not config.columns and config.members > length:
        problem = (
            f"{config.members} machines cannot share {length} features, "
            f"write {length} or fewer of them, or shares of which some are 0"
        )
        raise ScenarioError(problem, key="job.columns")
    blocks = config.blocks(length)
    for rank, name in enumerate(config.machines):
        room = cluster.machines[cluster.index(name)].resources.get("memory", math.inf)
        columns = blocks[rank % config.members]
        needed = dataset.vertices * columns * _FEATURE_BYTES
        lacking = needed + config.demands.get("memory", 0.0) - room
        if lacking > 0:
            problem = (
                f"{columns} of {length} columns are {SIZE.format(needed)}, "
                f"{SIZE.format(lacking)} more than machine {name} has room for"
            )
            raise ScenarioError(problem, key="job.cache")


#: Random stream of the scenario's seed; placement has another.
_DRAW_STREAM = 1


def build_job(scenario: Scenario) -> Job:
    """Return the job; its data set is opened where it counts in epochs.

    It is opened, and the model tried out, where that is a program as well: the job's
    settings then hold the number of its ``parameters``.

    Raises
    ------
    DataError
        When the data set is missing or damaged.
    ScenarioError
        As `model_figures`.
    """
    section = scenario.job
    if scenario.jobs:
        return _pinned_together(scenario, several_jobs(_parts(scenario)))
    if not isinstance(section, TrainingSection):
        return scenario.to_job()
    job = scenario.to_job(train_vertices=1)
    if section.epochs is not None:
        job = scenario.to_job(train_vertices=open_for(job.settings).train_count)
    figures = model_figures(scenario)
    if figures is None:
        return job
    model = {**job.settings["model"], "parameters": figures.parameters}
    return replace(job, settings={**job.settings, "model": model})


def model_programs(scenario: Scenario) -> list[ModelProgramSection]:
    """Return the models of a scenario that are programs."""
    sections: list[Section] = [item.job for item in scenario.jobs] or [scenario.job]
    models = [one.model for one in sections if isinstance(one, TrainingSection)]
    return [model for model in models if isinstance(model, ModelProgramSection)]


def measured_models(scenario: Scenario) -> list[dict[str, Any]]:
    """Return ``program``, ``parameters``, ``flops``, ``seconds`` of each program.

    Raises
    ------
    ScenarioError, DataError
        As `model_figures`.
    """
    return [
        {"program": model.name, **model.measured.model_dump()}
        for model in model_programs(noted(scenario))
        if model.measured is not None
    ]


def noted(scenario: Scenario) -> Scenario:
    """Return the scenario with what was measured of its models' programs.

    So a run's manifest says all that an audit needs, which then runs no program.

    Raises
    ------
    ScenarioError, DataError
        As `model_figures`.
    """
    items = [
        item.model_copy(update={"job": noted(alone).job})
        for item, alone in scenario.parts()
    ]
    if items:
        return scenario.model_copy(update={"jobs": tuple(items)})
    figures = model_figures(scenario)
    if figures is None or not isinstance(scenario.job, TrainingSection):
        return scenario
    model = scenario.job.model.model_copy(update={"measured": figures})
    job = scenario.job.model_copy(update={"model": model})
    return scenario.model_copy(update={"job": job})


def model_figures(scenario: Scenario) -> FiguresSection | None:
    """Return what is noted or measured of a program's model, None of another.

    Raises
    ------
    ScenarioError
        When the program does not do as `emu.training.try_out` expects.
    DataError
        When the data set is missing or damaged.
    """
    section = scenario.job
    if not isinstance(section, TrainingSection):
        return None
    model = section.model
    if not isinstance(model, ModelProgramSection) or model.measured is not None:
        return None if not isinstance(model, ModelProgramSection) else model.measured
    settings = scenario.to_job(train_vertices=1).settings
    open_for(settings)  # its errors are the data set's
    try:
        return FiguresSection(**try_out(settings).to_json())
    except DataError as error:
        trail = ("job", "model", "program")
        raise scenario.origin.error(trail, error.problem) from error


def _parts(scenario: Scenario) -> list[JobPart]:
    return [
        JobPart(item.name, build_job(alone), item.release)
        for item, alone in scenario.parts()
    ]


def _pinned_together(scenario: Scenario, job: Job) -> Job:
    """Return several jobs with what is stated of their placement as pins."""
    if scenario.place_jobs == "sequential":
        return job
    stated = {
        f"{item.name}/{name}": machine
        for item in scenario.jobs
        for name, machine in item.placement.tasks.items()
    }
    together = scenario.pins
    return pinned(job, {**stated, **together})


def open_data(job: Job) -> None:
    """Open the data set that the processes of ``job`` will open, if there is one.

    A data set that is damaged, or takes a minute to prepare, is then none of their
    trouble.

    Raises
    ------
    ScenarioError
        When a mini-batch has more seeds than there are training vertices.
    DataError
        When the data set is missing or damaged.
    """
    for name in job.job_names:
        _open(job.settings_of(name))


def _open(settings: Mapping[str, Any]) -> None:
    if "dataset" not in settings:
        return
    dataset = _fitting(settings)
    if "columns" in settings:  # of P3
        members = settings["workers"] // settings["groups"]
        length = dataset.feature_length
        open_columns(dataset, column_blocks(settings["columns"], length, members))


def _fitting(settings: Mapping[str, Any]) -> Dataset:
    """Return the data set of a job, whose mini-batches its training set must hold."""
    dataset = open_for(settings)
    train, each = dataset.train_count, settings["samplers_per_worker"]
    most = train - train % each
    if settings["epoch"] == "shard":
        most = train // (settings["workers"] * each) * each
    if settings["batch_size"] > most:
        of_worker = "one worker's share of " if settings["epoch"] == "shard" else ""
        problem = (
            f"{settings['batch_size']:,} seeds are more than {of_worker}the {train:,} "
            f"training vertices: write {most:,} or fewer"
            if most
            else f"{train:,} training vertices are too few for so many samplers"
        )
        raise ScenarioError(problem, key="job.batch_size")
    return dataset


def realize(scenario: Scenario, job: Job) -> Realization:
    """Return the volumes and reference times that ``job`` is predicted to have.

    Those stated in a custom job; else drawn from the profile, with the scenario's seed;
    else the stated time of each kind of task, and the volumes of what its samplers will
    really sample: sampling is a function of the seed, so those are exact.

    Parameters
    ----------
    job
        From `build_job`.

    Raises
    ------
    ScenarioError
        When a kind of task has no time and there is no profile, or a mini-batch has
        more seeds than there are training vertices.
    DataError
        When the profile or the data set is missing, damaged, or of another job.
    """
    section = scenario.job
    if isinstance(section, SeveralJobsSection):
        return _realize_several(scenario)
    if scenario.profile is not None:
        rng = np.random.default_rng([scenario.seed, _DRAW_STREAM])
        return read_profile(scenario.profile).profile(job).draw(rng, job.iterations)
    if isinstance(section, CustomJobSection):
        return section.realize(job)
    times = section.times.stated()
    figures = model_figures(scenario)
    if figures is not None:
        times = {"worker": figures.seconds, **times}
    for task in job.tasks:
        if task.kind not in times:
            problem = "found neither this time nor a profile, write for example 20 ms"
            raise ScenarioError(problem, key=f"job.times.{task.kind}")
    times = {kind: time * section.share(kind) for kind, time in times.items()}
    config = scenario.to_config(job.settings.get("batches", job.iterations))
    dataset = _fitting(job.settings)
    if isinstance(config, P3Config):
        _check_columns(config, dataset, scenario.to_cluster())
    found = realize_training(config, job, times, dataset)
    return replace(found, volumes=found.volumes / scenario.emulation.stated_byte_scale)


def _realize_several(scenario: Scenario) -> Realization:
    parts, realized = _parts(scenario), []
    for number, (part, (_, alone)) in enumerate(
        zip(parts, scenario.parts(), strict=True)
    ):
        try:
            realized.append(realize(alone, part.job))
        except ScenarioError as error:
            key = f"jobs.{number}.{error.key}"
            raise ScenarioError(error.problem, key=key) from error
    return several_realizations(parts, realized)
