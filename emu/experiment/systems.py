"""One scenario as several systems: the same training, in the keys of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, cast

import numpy as np

from emu.errors import DataError, PlacementError, ScenarioError
from emu.graph_data import BatchPlan, count_samples, open_for
from emu.names import file_part
from emu.prediction.analysis.throughput import seeds_per_iteration
from emu.prediction.placement.machine_sets import machine_sets
from emu.problem.workloads.operations import count_layers
from emu.scenario import (
    Scenario,
    build_job,
    load,
    prepare,
    read_profile,
    write_scenario,
)
from emu.scenario.experiment import WORTHWHILE
from emu.systems.system import systems
from emu.systems.training_section import PHASES, ReplicaSection, TrainingSection
from emu.systems.translation import SAME_KEYS, CommonJob, Translation
from emu.units import DURATION


def list_translatable() -> list[str]:
    """Return the systems that a scenario can be turned into."""
    return [name for name, one in systems().items() if one.translation is not None]


def as_system(
    scenario: Scenario, system: str, overrides: Mapping[str, object] | None = None
) -> Scenario:
    """Return a scenario as another system, with as many seeds per iteration.

    ``overrides`` are keys before it is translated, as for `load`.

    Raises
    ------
    ScenarioError
        When either is no system of mini-batches, times are those of a profile, or the
        changed scenario is wrong.
    DataError
        When the data set is needed (for epochs, or the phases of P3) and is missing, or
        the profile is, or is of another job.
    """
    origin = scenario.origin  # with the lines of the file, which changes lose
    scenario = load(scenario, {**(overrides or {}), "expect": None})
    if scenario.jobs:
        problem = "several jobs cannot be compared as systems, write one: job"
        raise origin.error(("jobs",), problem)
    for name in (scenario.job.system, system):
        if name not in list_translatable():
            problem = (
                f"{name!r} is not among the systems that can be compared, those of "
                f"mini-batches: {', '.join(list_translatable())}"
            )
            if name == system:
                raise ScenarioError(problem)
            raise origin.error(("job", "system"), problem)
    if scenario.job.system == system:
        return scenario
    if scenario.profile is not None:
        problem = "is of one system, to compare several write its means instead: "
        means = _mean_times(scenario)
        raise origin.error(("profile",), f"{problem}job.times={means}")
    target = _translation(system)
    job = target.write(_common(scenario, split=target.splits_first_layer))
    changes: dict[str, object] = {"job": {"system": system, **job}}
    if scenario.placement.tasks:  # by names that the other system's tasks do not have
        changes["placement"] = None
    return load(scenario, changes)


def chosen_system(
    scenario: Scenario,
    system: str,
    overrides: Mapping[str, object] | None = None,
    machines: Sequence[str] | None = None,
) -> Scenario:
    """Return a scenario as another system, on machines that are chosen for it.

    Seeds per iteration are the same on any number of machines. What the file states of
    machines holds for every system, and ``machines`` before it. Else ``best`` chooses:
    of dgtp when it is placed (`emu.scenario.prepare`), of systems with a worker per
    machine here, among sets of machines with room for one, by simulation.

    Raises
    ------
    ScenarioError, DataError
        As `as_system`; also when ``machines`` cannot take part.
    """
    plain = as_system(scenario, system, overrides)
    stated = load(scenario, {**(overrides or {}), "expect": None})
    free = getattr(stated.job, "machines", None) is None
    if machines is not None:
        return _on(stated, plain, machines)
    is_chosen = free and plain.placed_by == "best"
    if not (is_chosen and isinstance(plain.job, ReplicaSection)):
        return plain
    cluster = plain.cluster.build().only(_roomy(stated))
    sets = machine_sets(build_job(plain), cluster, _MOST_SETS)
    best, least = plain, inf
    for names in sets:
        try:
            other = _on(stated, plain, names)
            ready = prepare(other)
            # By seed: those of an iteration are rounded to whole ones per worker.
            seeds = seeds_per_iteration(ready.problem.job.settings) or 1
            took = ready.simulate().makespan / seeds
        except (ScenarioError, PlacementError):  # p3's columns do not fit, say
            continue
        if took < least * (1 - WORTHWHILE):
            best, least = other, took
    return best


#: Sets of machines that are tried of a system with a worker per machine.
_MOST_SETS = 16


def _roomy(scenario: Scenario) -> tuple[str, ...]:
    """Return the machines with room for a worker that samples as well."""
    job = scenario.job
    if "workers" in type(job).model_fields:  # as many as there are machines
        workers = len(scenario.cluster.names_and_positions())
        job = job.model_copy(update={"workers": workers})
    read = _translation(job.system).read
    names: tuple[str, ...] = read(job, scenario.cluster)["machines"]
    return names


def _on(stated: Scenario, plain: Scenario, machines: Sequence[str]) -> Scenario:
    """Return ``plain``, a translation of ``stated``, on some machines alone."""
    count, job = len(plain.cluster.names_and_positions()), plain.job
    if not isinstance(job, ReplicaSection):
        fewer = job.on_machines(machines, count)
        if fewer is None or len(machines) == count:
            return plain
        return load(plain, fewer.machine_keys())
    if without := [name for name in machines if name not in _roomy(stated)]:
        problem = f"{', '.join(without)} has no room for a worker with its samplers"
        raise ScenarioError(problem, key="job.machines")
    # As many stores as machines, each of which takes what the file states of one.
    fewer = stated.job.on_machines(machines, count)
    stated = load(stated, {} if fewer is None else fewer.machine_keys())
    target = _translation(job.system)
    common = _common(stated, split=target.splits_first_layer)
    keys_of_system = target.write(replace(common, machines=tuple(machines)))
    keys = ("machines", "batch_size", "times")
    return load(plain, {f"job.{key}": keys_of_system.get(key) for key in keys})


def _translation(system: str) -> Translation:
    translation = systems()[system].translation
    if translation is None:
        raise ValueError(f"{system} has no translation")
    return translation()


def _mean_times(scenario: Scenario) -> str:
    """Return the mean times of a scenario's profile by kind, as ``job.times``."""
    job = build_job(scenario)
    profile = read_profile(scenario.profile or "").profile(job)
    rows: dict[str, list[float]] = {}
    for task, times in zip(job.tasks, profile.times, strict=True):
        rows.setdefault(task.kind, []).append(times.mean())
    share = cast("TrainingSection", scenario.job).share
    means = (
        f"{kind}: {DURATION.format(float(np.mean(times)) / share(kind))}"
        for kind, times in sorted(rows.items())
    )
    return f"{{{', '.join(means)}}}"


def _common(scenario: Scenario, *, split: bool) -> CommonJob:
    """Return the job of a scenario in common words."""
    job = cast("TrainingSection", scenario.job)
    fields = job.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    same = {key: fields[key] for key in SAME_KEYS if key in fields}
    batches = job.iterations
    if batches is None:
        built = build_job(scenario)
        batches = built.settings.get("batches", built.iterations)
    times = job.times.by_kind()
    by_phase = all(phase in times for phase in PHASES)
    # P3 takes no program, and says so itself.
    split &= not by_phase and "worker" in times and "hidden" in fields["model"]
    share = 0.0
    if split:  # of layer 1 in a forward pass, of one sampled mini-batch
        settings = scenario.to_job(train_vertices=1, pins=False).settings
        dataset = open_for(settings)
        plan = replace(BatchPlan.from_settings(settings), samplers=1)
        (counts,) = count_samples(dataset, plan, 1)
        sizes = dataset.feature_length, dataset.classes, counts
        layers = count_layers(settings["model"], *sizes)
        # A multiplication and an addition each.
        passes = [layer.forward for layer in layers]
        works = [float((2 * p["multiply"] + p["aggregate"])[0]) for p in passes]
        share = works[0] / sum(works)
    return CommonJob(
        same={**same, "iterations": batches},
        batch_size=job.batch_size,
        everywhere=tuple(name for name, _ in scenario.cluster.names_and_positions()),
        stated=getattr(job, "machines", None),
        partitioner=getattr(job, "partitioner", "hash"),
        times=times,
        first_layer=share,
        **_translation(job.system).read(job, scenario.cluster),
    )


def edits(scenario: Scenario, translated: Scenario) -> dict[str, tuple[Any, Any]]:
    """Return key -> (what it was, what it is) of what a translation states otherwise.

    None where there is no such key, or the default.
    """
    what: Any = {"mode": "json", "include": {"job", "placement"}}
    what |= {"exclude_none": True, "exclude_defaults": True}
    before, after = (_flat(one.model_dump(**what)) for one in (scenario, translated))
    both = {key: (before.get(key), after.get(key)) for key in {**before, **after}}
    return {key: (was, now) for key, (was, now) in both.items() if was != now}


def _flat(found: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in found.items():
        name = f"{prefix}{key}"
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def write_rows(
    folder: Path, name: str, rows: Iterable[tuple[str, Mapping[int, Scenario]]]
) -> list[list[str]]:
    """Write the scenarios of a comparison, for ``emu simulate``; makes the folder.

    ``name`` is that of the scenario that they vary; a row has a name, and scenarios by
    seed. Returns the files of every row: those of further seeds end in ``-seedN``.

    Raises
    ------
    DataError
        When they cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot be made: {error.strerror}"
        raise DataError(problem, path=str(folder)) from error
    files: list[list[str]] = []
    stems = Counter[str]()
    for row, scenarios in rows:
        stem = f"{file_part(name)}-{file_part(row.replace(', ', '-'))}"
        stems[stem] += 1
        stem += f"-{stems[stem]}" if stems[stem] > 1 else ""
        files.append([])
        for count, (seed, scenario) in enumerate(scenarios.items()):
            file = folder / f"{stem}{f'-seed{seed}' if count else ''}.yaml"
            write_scenario(file, scenario)
            files[-1].append(str(file))
    return files
