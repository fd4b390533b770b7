"""Times and volumes of a scenario's job: stated, profiled, or counted in its graph.

The seam to `emu.graph_data`: whatever a simulation needs of a data set goes through
this file, and a data set is opened only where its numbers are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.errors import DataError, EmulatorError, ScenarioError
from emu.problem import Job, Realization
from emu.problem.fields.section import Section
from emu.problem.workloads import JobPart, several_jobs, without_copies
from emu.problem.workloads.copies import count_copy_bytes
from emu.problem.workloads.several_jobs import several_realizations
from emu.scenario.run_sections import pin
from emu.scenario.workload_file import read_profile
from emu.systems.cache_section import CachedSection
from emu.systems.system import state_bytes, system_of, tasks_with_state_of
from emu.systems.training_section import (
    FiguresSection,
    ModelProgramSection,
    TrainingSection,
)

if TYPE_CHECKING:
    from emu.scenario.scenario import Scenario

#: Random stream of the scenario's seed; placement has another.
_DRAW_STREAM = 1


def build_job(scenario: Scenario) -> Job:
    """Return the job; its data set is opened where it counts in epochs.

    It is opened, and the model tried out, where that is a program as well: the job's
    settings then hold the number of its ``parameters``. Raises DataError when the data
    set is missing or damaged; ScenarioError as `model_figures`.
    """
    section = scenario.job
    if scenario.jobs:
        whole = several_jobs(_parts(scenario))
        if scenario.place_jobs == "sequential":
            return whole
        places = {
            f"{item.name}/{name}": machine
            for item in scenario.jobs
            for name, machine in item.placement.tasks.items()
        }
        return pin(whole, {**places, **scenario.pins})
    context = scenario.build_context()
    cluster = scenario.to_cluster()
    if not isinstance(section, TrainingSection):
        job = scenario.to_job(train_vertices=1, opened=section.shaped_by_data)
        return section.reserve_devices(job, context, cluster)
    job = scenario.to_job(train_vertices=1)
    if section.epochs is not None:
        from emu.graph_data import open_for  # noqa: PLC0415 - 0.1 s

        job = scenario.to_job(train_vertices=open_for(job.settings).train_count)
    if isinstance(section, CachedSection):
        job = section.reserve(job, cluster)
    job = _with_rated_devices(scenario, job)
    if (figures := model_figures(scenario)) is not None:
        model = {**job.settings["model"], "parameters": figures.parameters}
        job = replace(job, settings={**job.settings, "model": model})
    return section.reserve_devices(job, context, cluster)


def _with_rated_devices(scenario: Scenario, job: Job) -> Job:
    """Return the job with slowness of its movable tasks, where rates differ by device.

    A task takes longer on a device by one factor in all iterations, that of their sum.
    """
    section = scenario.job
    rates = scenario.job.operation_rates
    movable = [task for task in job.tasks if task.pinned is None and not task.gate]
    if rates is None or not movable or not [*rates.device_rates()]:
        return job
    context = scenario.build_context()
    plain = without_copies(job)
    realization = section.realize(plain, context, scenario.to_cluster(), {})
    volumes = realization.volumes * context.byte_scale
    totals = {}
    operations = section.count_operations(plain, context, volumes)
    for device in {*context.devices.values()}:
        every = [section.rates_of(task, device) for task in plain.tasks]
        totals[device] = operations.seconds(every).sum(axis=1)
    whole = realization.times.sum(axis=1)
    tasks = {task.name: task for task in job.tasks}
    devices = context.devices.items()
    for t, task in enumerate(plain.tasks):
        if task in movable and whole[t] > 0:
            slowness = {
                at: float(totals[device][t] / whole[t]) for at, device in devices
            }
            tasks[task.name] = replace(tasks[task.name], slowness=slowness)
    return replace(job, tasks=tuple(tasks.values()))


def model_programs(scenario: Scenario) -> list[ModelProgramSection]:
    """Return the models of a scenario that are programs."""
    sections: list[Section] = [item.job for item in scenario.jobs] or [scenario.job]
    models = [one.model for one in sections if isinstance(one, TrainingSection)]
    return [model for model in models if isinstance(model, ModelProgramSection)]


def list_model_figures(scenario: Scenario) -> list[dict[str, Any]]:
    """Return ``program``, ``parameters``, ``flops``, ``seconds`` of each program.

    ``seconds_used`` is false where a time of workers is stated, or in a profile. Raises
    ScenarioError, DataError as `model_figures`.
    """
    return [
        {
            "program": job.model.name,
            **job.model.measured.model_dump(),
            "seconds_used": not (scenario.profile or "worker" in job.times.by_kind()),
        }
        for _, _, job in with_figures(scenario).each_job()
        if isinstance(job, TrainingSection)
        and isinstance(job.model, ModelProgramSection)
        and job.model.measured is not None
    ]


def with_figures(scenario: Scenario) -> Scenario:
    """Return the scenario with what was measured of its models' programs.

    So a run's manifest says all that an audit needs, which then runs no program. Raises
    ScenarioError, DataError as `model_figures`.
    """
    if parts := scenario.parts():
        jobs = (i.model_copy(update={"job": with_figures(s).job}) for i, s in parts)
        return scenario.model_copy(update={"jobs": tuple(jobs)})
    figures = model_figures(scenario)
    job = scenario.job
    if figures is None or not isinstance(job, TrainingSection):
        return scenario
    model = job.model.model_copy(update={"measured": figures})
    return scenario.model_copy(update={"job": job.model_copy(update={"model": model})})


def model_figures(scenario: Scenario) -> FiguresSection | None:
    """Return noted or measured figures of a program's model, None of another.

    Raises ScenarioError when the program does not do as `emu.training.try_out` expects;
    DataError when the data set is missing or damaged.
    """
    section = scenario.job
    model = section.model if isinstance(section, TrainingSection) else None
    if not isinstance(model, ModelProgramSection):
        return None
    if model.measured is not None:
        return model.measured
    from emu.graph_data import open_for  # noqa: PLC0415 - 0.1 s
    from emu.training import try_out  # noqa: PLC0415 - 0.1 s

    settings = scenario.to_job(train_vertices=1).settings
    open_for(settings)  # its errors are the data set's
    try:
        return FiguresSection(**vars(try_out(settings)))
    except DataError as error:
        trail = ("job", "model", "program")
        raise scenario.origin.error(trail, error.problem) from error


def _parts(scenario: Scenario) -> list[JobPart]:
    jobs = [_of_job(n, build_job, one) for n, (_, one) in enumerate(scenario.parts())]
    each = zip(scenario.jobs, jobs, strict=True)
    return [JobPart(item.name, job, item.release) for item, job in each]


def _of_job(number: int, make: Callable[..., Any], *what: Any) -> Any:
    try:
        return make(*what)
    except ScenarioError as error:
        raise ScenarioError(error.problem, key=f"jobs.{number}.{error.key}") from error


def open_data(job: Job) -> None:
    """Open the data set that the processes of ``job`` will open, if there is one.

    A data set that is damaged, or takes a minute to prepare, is then none of their
    trouble. Raises ScenarioError when a mini-batch has more seeds than there are
    training vertices; DataError when the data set is missing or damaged.
    """
    for name in job.job_names:
        settings = job.settings_of(name)
        if system := system_of(settings):
            system.open_data(settings)


def realize(scenario: Scenario, job: Job) -> Realization:
    """Return the volumes and reference times that ``job`` is predicted to have.

    Those stated in a custom job; else drawn from the profile, with the scenario's seed;
    else the stated time of each kind of task, and the volumes of what its samplers will
    really sample: sampling is a function of the seed, so those are exact.

    Raises ScenarioError when a kind of task has no time and there is no profile, or a
    mini-batch has more seeds than there are training vertices; DataError when the
    profile or the data set is missing, damaged, or of another job.
    """
    section = scenario.checkpoint
    if section is None:
        return _realize_one(scenario, job)
    realization = _realize_one(scenario, without_copies(job))
    copies = np.zeros((len(job.tasks) - len(realization.times), job.iterations))
    times = np.vstack([realization.times, copies])
    if section.takes:
        teams = tasks_with_state_of(job).values()
        keepers = {job.index(name) for names in teams for name in names}
        times[[*keepers], section.every :: section.every] += section.takes
    scale = scenario.emulation.stated_byte_scale
    real = state_bytes(job) if section.to == "peer" else {}
    sizes = {name: size / scale for name, size in real.items()}
    copied = count_copy_bytes(job, sizes, section.every)
    return Realization(times, np.vstack([realization.volumes, copied]))


def _realize_one(scenario: Scenario, job: Job) -> Realization:
    section = scenario.job
    if scenario.jobs:
        parts = _parts(scenario)
        realizations = []
        for number, (item, alone) in enumerate(scenario.parts()):
            # With its caches where they stand.
            part = replace(parts[number].job, settings=job.settings_of(item.name))
            realizations.append(_of_job(number, realize, alone, part))
        return several_realizations(parts, realizations)
    if scenario.profile is not None:
        rng = np.random.default_rng([scenario.seed, _DRAW_STREAM])
        return read_profile(scenario.profile).profile(job).draw(rng, job.iterations)
    figures = model_figures(scenario)
    seconds = {} if figures is None else {"worker": figures.seconds}
    context = scenario.build_context()
    cluster = scenario.to_cluster()
    realization = section.realize(job, context, cluster, seconds)
    for what, owner in (("times", "tasks"), ("volumes", "edges")):
        shape = getattr(realization, what).shape
        right = len(getattr(job, owner)), job.iterations
        if shape != right:  # a system of another package
            raise EmulatorError(
                f"system {section.system} realizes {what} of shape {shape}, not "
                f"{right}: a row for each of its {owner}, a column per iteration"
            )
    return realization
