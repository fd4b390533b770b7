"""Measuring what tasks and flows cost, by running the job with real computation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.coordinator import Observer, emulate
from emu.errors import ScenarioError
from emu.experiment.run_experiment import emulation_settings, manifest
from emu.placement import place_ifs
from emu.problem import Problem, Profile, Realization
from emu.scenario import Experiment, ProfileFile, build_job, open_data

if TYPE_CHECKING:
    from emu.runs.run_directory import RunDirectory
    from emu.scenario import Scenario


def prepare_profile(scenario: Scenario) -> Experiment:
    """Return the experiment that measures the job of a scenario.

    It stands where IFS puts it: neither CPU times nor volumes depend on that.

    Raises
    ------
    ScenarioError
        When the tasks of the job compute nothing that could be measured.
    DataError, InfeasiblePlacement
        As `emu.scenario.build_job` and `emu.placement.place_ifs`.
    """
    if scenario.job.system in ("custom", "several"):
        raise ScenarioError(
            "custom tasks state their times, there is nothing to measure",
            key="job.system",
        )
    if scenario.job.system == "p3":
        problem = "cycles of a pipeline cannot be profiled, write job.times"
        raise ScenarioError(problem, key="job.system")
    job = build_job(scenario)
    open_data(job)
    cluster = scenario.to_cluster()
    placement = place_ifs(job, cluster, np.random.default_rng(scenario.seed))
    nothing = Realization(
        np.zeros((len(job.tasks), job.iterations)),
        np.zeros((len(job.edges), job.iterations)),
    )
    return Experiment(scenario, Problem(cluster, job, placement), nothing)


def measure_profile(
    experiment: Experiment, directory: RunDirectory, observer: Observer | None = None
) -> ProfileFile:
    """Run the job and return its CPU times and volumes per task and edge.

    Raises
    ------
    RunError, DataError
        As `emu.coordinator.carry_out`.
    """
    settings = emulation_settings(experiment.scenario, compute="real", host_of={})
    directory.write_json("manifest.json", manifest(experiment.scenario, settings))
    directory.write_problem(experiment.problem)
    run = emulate(
        experiment.problem,
        "none",
        settings,
        experiment.realization,
        log=directory.path / "agent.log",
        observer=observer,
    )
    profile = Profile(run.cpu, run.realization.volumes)
    return ProfileFile.of(experiment.problem.job, profile)
