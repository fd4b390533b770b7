"""Times and volumes of a scenario's job: stated, profiled, or counted in its graph.

The seam to `emu.graph_data`: whatever a simulation needs of a data set goes through
this file, and a data set is opened only where its numbers are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from emu.array_types import Floats
from emu.errors import DataError, EmulatorError, ScenarioError
from emu.problem import Job, Profile, Realization, Task
from emu.problem.workloads import JobPart, several_jobs, without_copies
from emu.problem.workloads.copies import count_copy_bytes
from emu.problem.workloads.several_jobs import several_realizations
from emu.scenario.pins import pin
from emu.scenario.workload_file import read_profile
from emu.systems.cache_section import CachedSection
from emu.systems.model_section import FiguresSection, ModelProgramSection
from emu.systems.package_faults import name_package
from emu.systems.system import state_bytes, system_of, tasks_with_state_of
from emu.systems.training_section import TrainingSection

if TYPE_CHECKING:
    from emu.scenario.scenario import Scenario
    from emu.systems.job_section import JobSection

#: Random stream of the scenario's seed; placement has another.
_DRAW_STREAM = 1


def build_job(scenario: Scenario) -> Job:
    """Return the job; its data set is opened where it counts in epochs.

    It is opened, and the model tried out, where that is a program as well: the job's
    settings then hold the number of its ``parameters``. Raises DataError when the data
    set is missing or damaged; ScenarioError as `model_figures`.
    """
    if scenario.jobs:
        return _build_several(scenario)

    section = scenario.job
    context = scenario.build_context()
    cluster = scenario.to_cluster()
    is_shaped = section.shaped_by_data
    if not isinstance(section, TrainingSection):
        job = scenario.to_job(train_vertices=1, opened=is_shaped)
        return section.reserve_devices(job, context, cluster)

    job = scenario.to_job(train_vertices=1)
    # Settings name the data set whatever the number is, which then gives it.
    if section.epochs is not None or is_shaped:
        from emu.graph_data import open_for  # noqa: PLC0415 - 0.1 s

        dataset = open_for(job.settings)
        job = scenario.to_job(
            train_vertices=dataset.train_count,
            opened=is_shaped,
        )
    # Before any placement, as caches take memory from tasks.
    if isinstance(section, CachedSection):
        job = section.reserve(job, cluster)
    job = _with_rated_devices(scenario, job)
    figures = model_figures(scenario)
    if figures is not None:
        model = dict(job.settings["model"])
        model["parameters"] = figures.parameters
        settings = {**job.settings, "model": model}
        job = replace(job, settings=settings)
    return section.reserve_devices(job, context, cluster)


def _build_several(scenario: Scenario) -> Job:
    job = several_jobs(_parts(scenario))
    # Each part is placed by its own section, pins included.
    if scenario.place_jobs == "sequential":
        return job
    places: dict[str, str] = {}
    for item in scenario.jobs:
        for name, machine in item.placement.tasks.items():
            full_name = f"{item.name}/{name}"
            places[full_name] = machine
    places.update(scenario.pins)
    return pin(job, places)


def _may_move(task: Task) -> bool:
    return task.pinned is None and not task.gate


def _with_rated_devices(scenario: Scenario, job: Job) -> Job:
    """Return the job with slowness of its movable tasks, where rates differ by device.

    A task takes longer on a device by one factor in all iterations, that of their sum.
    """
    section = scenario.job
    rates = section.operation_rates
    # A pinned task has the rates of its one device.
    is_fixed = not any(map(_may_move, job.tasks))
    if rates is None or is_fixed:
        return job
    differing_rates = list(rates.device_rates())
    if not differing_rates:
        return job

    context = scenario.build_context()
    original = without_copies(job)
    cluster = scenario.to_cluster()
    realization = section.realize(original, context, cluster, {})
    # Operations are counted in real bytes; volumes are emulated ones.
    volumes = realization.volumes * context.byte_scale
    operations = section.count_operations(original, context, volumes)
    seconds_on = {}
    kinds_of_device = set(context.devices.values())
    for device in kinds_of_device:
        rates_of_tasks = [section.rates_of(task, device) for task in original.tasks]
        seconds_of_iterations = operations.seconds(rates_of_tasks)
        seconds_on[device] = seconds_of_iterations.sum(axis=1)

    seconds = realization.times.sum(axis=1)
    tasks = list(job.tasks)  # copies come last
    for position, task in enumerate(original.tasks):
        seconds_of_task = seconds[position]
        # What takes no time has no ratio to it.
        if not _may_move(task) or seconds_of_task <= 0:
            continue
        slowness = {}
        for machine, device in context.devices.items():
            seconds_on_device = seconds_on[device][position]
            ratio = seconds_on_device / seconds_of_task
            slowness[machine] = float(ratio)
        tasks[position] = replace(task, slowness=slowness)
    return replace(job, tasks=tuple(tasks))


def model_programs(scenario: Scenario) -> list[ModelProgramSection]:
    """Return the models of a scenario that are programs."""
    models = []
    for *_, job in scenario.each_job():
        model = _program_of(job)
        if model is not None:
            models.append(model)
    return models


def _program_of(section: JobSection) -> ModelProgramSection | None:
    """Return the model of a job that trains one, where that is a program."""
    if not isinstance(section, TrainingSection):
        return None
    model = section.model
    return model if isinstance(model, ModelProgramSection) else None


def list_model_figures(scenario: Scenario) -> list[dict[str, Any]]:
    """Return ``program``, ``parameters``, ``flops``, ``seconds`` of each program.

    ``seconds_used`` is false where a time of workers is stated, or in a profile. Raises
    ScenarioError, DataError as `model_figures`.
    """
    rows = []
    for *_, job in with_figures(scenario).each_job():
        model = _program_of(job)
        if model is None or model.measured is None:
            continue

        kinds = job.times.by_kind()
        is_stated = scenario.profile or "worker" in kinds
        figures = model.measured.model_dump()
        row = {
            "program": model.name,
            **figures,
            "seconds_used": not is_stated,
        }
        rows.append(row)
    return rows


def with_figures(scenario: Scenario) -> Scenario:
    """Return the scenario with what was measured of its models' programs.

    So a run's manifest says all that an audit needs, which then runs no program. Raises
    ScenarioError, DataError as `model_figures`.
    """
    if scenario.jobs:
        jobs = []
        for item, part in scenario.parts():
            changes = {"job": with_figures(part).job}
            measured_item = item.model_copy(update=changes)
            jobs.append(measured_item)
        return scenario.model_copy(update={"jobs": tuple(jobs)})

    figures = model_figures(scenario)
    job = scenario.job
    if figures is None or not isinstance(job, TrainingSection):
        return scenario
    model = job.model.model_copy(update={"measured": figures})
    measured_job = job.model_copy(update={"model": model})
    return scenario.model_copy(update={"job": measured_job})


def model_figures(scenario: Scenario) -> FiguresSection | None:
    """Return noted or measured figures of a program's model, None of another.

    Raises ScenarioError when the program does not do as `emu.training.try_out` expects;
    DataError when the data set is missing or damaged.
    """
    model = _program_of(scenario.job)
    if model is None:
        return None
    if model.measured is not None:
        return model.measured
    from emu.graph_data import open_for  # noqa: PLC0415 - 0.1 s
    from emu.training import try_out  # noqa: PLC0415 - 0.1 s

    settings = scenario.to_job(train_vertices=1).settings
    open_for(settings)  # its errors are the data set's
    try:
        figures = try_out(settings)
        return FiguresSection(**vars(figures))
    except DataError as error:
        trail = ("job", "model", "program")
        raise scenario.origin.error(trail, error.problem) from error


def _parts(scenario: Scenario) -> list[JobPart]:
    parts = []
    for position, (item, part) in enumerate(scenario.parts()):
        with _errors_of_job(position):
            job = build_job(part)
        part_of_job = JobPart(
            name=item.name,
            job=job,
            release=item.release,
        )
        parts.append(part_of_job)
    return parts


@contextmanager
def _errors_of_job(position: int) -> Iterator[None]:
    try:
        yield
    except ScenarioError as error:
        key = f"jobs.{position}.{error.key}"
        raise ScenarioError(error.problem, key=key) from error


def open_data(job: Job) -> None:
    """Open the data set that the processes of ``job`` will open, if there is one.

    A data set that is damaged, or takes a minute to prepare, is then none of their
    trouble. Raises ScenarioError when a mini-batch has more seeds than there are
    training vertices; DataError when the data set is missing or damaged.
    """
    for name in job.job_names:
        settings = job.settings_of(name)
        dataset = settings.get("dataset", {})
        if dataset.get("drawn"):
            problem = "a drawn graph has sizes alone: write false, and a scale"
            raise ScenarioError(problem, key="job.dataset.drawn")
        system = system_of(settings)
        if system:
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
        return _realize_without_copies(scenario, job)

    original = without_copies(job)
    realization = _realize_without_copies(scenario, original)
    # Copies come last, and take no time of their own.
    copies = len(job.tasks) - len(realization.times)
    shape = (copies, job.iterations)
    times_of_copies = np.zeros(shape)
    times = np.vstack([realization.times, times_of_copies])
    if section.takes:
        # A task may keep state of several teams: its iteration is longer once.
        keepers: set[int] = set()
        for names in tasks_with_state_of(job).values():
            keepers.update(map(job.index, names))
        # As iterations every, 2 every, ... begin: before the first there is nothing to
        # keep.
        rows = list(keepers)
        times[rows, section.every :: section.every] += section.takes

    sizes = {}
    if section.to == "peer":
        scale = scenario.emulation.stated_byte_scale
        # States are real arrays, volumes emulated bytes.
        state_sizes = state_bytes(job)
        sizes = {name: size / scale for name, size in state_sizes.items()}
    copy_volumes = count_copy_bytes(job, sizes, section.every)
    volumes = np.vstack([realization.volumes, copy_volumes])
    return Realization(times, volumes)


def _realize_several(scenario: Scenario, job: Job) -> Realization:
    parts = _parts(scenario)
    realizations = []
    for position, (item, scenario_of_part) in enumerate(scenario.parts()):
        settings = job.settings_of(item.name)  # with its caches where they stand
        part = replace(parts[position].job, settings=settings)
        with _errors_of_job(position):
            realization = realize(scenario_of_part, part)
        realizations.append(realization)
    return several_realizations(parts, realizations)


def _realize_without_copies(scenario: Scenario, job: Job) -> Realization:
    if scenario.jobs:
        return _realize_several(scenario, job)
    # A profile has been measured: it wins over all that is stated or counted.
    if scenario.profile is not None:
        seeds = [scenario.seed, _DRAW_STREAM]
        rng = np.random.default_rng(seeds)
        profile = read_job_profile(scenario, job)
        return profile.draw(rng, job.iterations)

    section = scenario.job
    figures = model_figures(scenario)
    measured: dict[str, float] = {}
    if figures is not None:
        measured["worker"] = figures.seconds
    with name_package():
        context = scenario.build_context()
        cluster = scenario.to_cluster()
        realization: object = section.realize(job, context, cluster, measured)
    # A system of another package may realize anything.
    if not isinstance(realization, Realization):
        found = type(realization).__name__
        problem = f"system {section.system} realizes a {found}, no Realization"
        raise EmulatorError(problem)
    _check_shape(
        system=section.system,
        name="times",
        values=realization.times,
        job=job,
        owners="tasks",
    )
    _check_shape(
        system=section.system,
        name="volumes",
        values=realization.volumes,
        job=job,
        owners="edges",
    )
    return realization


def read_job_profile(scenario: Scenario, job: Job) -> Profile:
    """Return the profile that a scenario names, in its own byte scale.

    Raises DataError when it is missing, damaged, or of another job or other settings.
    """
    # What cannot be measured has payloads that are made up, and a file by hand.
    scale = None
    if not scenario.job.unmeasured:
        scale = scenario.emulation.stated_byte_scale
    profile_file = read_profile(scenario.profile or "")
    return profile_file.profile(job, scale)


def _check_shape(
    system: str,
    name: str,
    values: Floats,
    job: Job,
    owners: str,
) -> None:
    rows = len(getattr(job, owners))
    shape = (rows, job.iterations)
    if values.shape != shape:
        raise EmulatorError(
            f"system {system} realizes {name} of shape {values.shape}, not "
            f"{shape}: a row for each of its {owners}, a column per iteration"
        )
