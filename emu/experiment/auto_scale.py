"""Scenarios that leave their scales to emu: ``auto`` for time or byte scale."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable

import numpy as np

from emu.emulation.coordinator.run import emulate
from emu.emulation.launch.host_report import usable_cores
from emu.experiment.kernel_scale import KernelCosts, kernel_time_scale
from emu.experiment.run_experiment import emulation_settings, replay
from emu.experiment.scale_search import ScaleChoice, ScaleSearch, ScaleTrial
from emu.host.files import scratch_folder
from emu.lab.machines.nic import Sharing
from emu.problem import Problem, Realization
from emu.scenario import Experiment, Scenario, build_job, open_data, prepare, realize
from emu.scenario.run_sections import AUTO
from emu.trust.lateness import flow_completion, host_effect, sensitivity

#: Wall seconds of a trial's iterations, about: a start takes 0.7 s, and a standstill of
#: 10 ms is to be half of a percent.
_LENGTH = 2.0
#: Iterations of a trial at least, where there is time for them: the first starts empty.
_USUAL = 2


def with_byte_scale(scenario: Scenario) -> Experiment:
    """Prepare a scenario for emulation, with a number where its byte scale is ``auto``.

    Raises EmulatorError: what `emu.scenario.prepare` raises.
    """
    if scenario.emulation.byte_scale == AUTO:
        volumes: list[float] = []  # of real payloads, which have their size
        if not (scenario.jobs or scenario.job.trains):
            volumes = np.unique(realize(scenario, build_job(scenario)).volumes).tolist()
        scenario = stating(scenario, byte_scale=choose_byte_scale(volumes))
    experiment = prepare(scenario)
    open_data(experiment.problem.job)
    return experiment


def with_scales(
    scenario: Scenario,
    notify: Callable[[ScaleTrial], None] = lambda _: None,
    *,
    allow: tuple[str, ...] = (),
    check: Callable[[Experiment], object] = lambda _: None,
) -> tuple[Experiment, ScaleChoice | None]:
    """Prepare a scenario for emulation, with numbers where it says ``auto``.

    ``notify`` is called after every trial, ``check`` before the first: what it raises
    ends the search. Trials may start the programs in ``allow``, as `RunSettings`.

    Returns
    -------
    tuple
        The experiment with its scales stated, and how its time scale was chosen: None
        where it is stated, or the job takes no time, which is as exact at any scale.

    Raises
    ------
    ScenarioError
        When kernel NICs have no time scale, see `kernel_time_scale`.
    EmulatorError
        What `emu.scenario.prepare` and `emu.emulation.coordinator.emulate` raise.
    """
    check(experiment := with_byte_scale(scenario))
    schedule, scale = experiment.simulate(), scenario.emulation.stated_time_scale
    is_explicit = scenario.emulation.time_scale != AUTO
    if schedule.makespan <= 0 or is_explicit:
        return _at(experiment, scale), None
    emulation, cores = experiment.scenario.emulation, usable_cores()
    if emulation.network == "kernel":
        costs = KernelCosts(
            schedule,
            byte_scale=emulation.stated_byte_scale,
            cores=cores,
            sharing=Sharing(emulation.sharing),
        )
        scale = kernel_time_scale(costs, emulation.max_error)
        return _at(experiment, scale), ScaleChoice(
            (), scale, None, costs.forecast(scale)
        )
    policy, expected = experiment.choose_policy(), experiment.expected
    shift = sensitivity(experiment.realization, policy, expected, schedule)
    search = ScaleSearch(
        makespan=schedule.makespan,
        max_error=math.inf if shift > emulation.max_error else emulation.max_error,
        max_late_flows=emulation.max_late_flows,
    )
    ends = schedule.task_end.size + len(schedule.flows())
    scale = search.first(ends, cores)
    choice = search.choice(_trials(experiment, search, scale, notify, allow))
    return _at(experiment, choice.time_scale), choice


def _trials(
    experiment: Experiment,
    search: ScaleSearch,
    scale: float | None,
    notify: Callable[[ScaleTrial], None],
    allow: tuple[str, ...],
) -> list[ScaleTrial]:
    """Return trials until one is found, or the time for them is over."""
    budget = experiment.scenario.emulation.trial_budget
    until = math.inf  # what is slow but once, compilation say, is in the first trial
    iteration = search.makespan / experiment.problem.job.iterations
    trials: list[ScaleTrial] = []
    while scale is not None:
        count = max(math.ceil(_LENGTH / (iteration * scale)), _USUAL)
        if trials:
            until = min(until, time.monotonic() + budget)
            start = trials[-1].cost - trials[-1].wall
            rest = until - time.monotonic() - start
            count = min(count, math.floor(rest / (iteration * scale)))
            if count < 1:
                break
        trials.append(try_out(shorten(_at(experiment, scale), count), allow))
        notify(trials[-1])
        scale = search.next(trials)
    return trials


def try_out(experiment: Experiment, allow: tuple[str, ...] = ()) -> ScaleTrial:
    """Emulate an experiment and return how late this host was.

    Raises RunError when the run could not be finished.
    """
    settings = emulation_settings(experiment.scenario, allow=allow, host_of={})
    policy = experiment.choose_policy()
    began = time.monotonic()
    with scratch_folder("trial") as folder:
        what = experiment.problem, policy, settings, experiment.realization
        run = emulate(*what, log=folder / "agent.log")
    cost = time.monotonic() - began
    replay_run = replay(experiment, run, policy)
    effect = host_effect(
        experiment.problem.following(run.schedule),
        policy,
        experiment.expected,
        emulated=run.schedule.makespan,
        simulated=replay_run.makespan,
        measured=run.realization,
        perturbed=run.perturbed,
        late=run.late_work,
    )
    excess = flow_completion(run.schedule, settings.time_scale).excess
    hosts = [figures["host_metrics"]["host"] for figures in run.statistics.values()]
    return ScaleTrial(
        time_scale=settings.time_scale,
        iterations=experiment.problem.job.iterations,
        cost=cost,
        wall=run.wall,
        cpu_busy=max(h["busy"] / max(sum(h.values()), 1e-9) for h in hosts),
        error=max(effect.error, effect.uncertainty),
        late_flows=int((excess > 1).sum()),
        flows=len(excess),
    )


def shorten(experiment: Experiment, iterations: int) -> Experiment:
    """Return the experiment with its first iterations alone, all if there are fewer."""
    problem, realization = experiment.problem, experiment.realization
    count = min(iterations, problem.job.iterations)
    job = dataclasses.replace(problem.job, iterations=count)
    return Experiment(
        experiment.scenario,
        Problem(problem.cluster, job, problem.placement),
        Realization(realization.times[:, :count], realization.volumes[:, :count]),
    )


def _at(experiment: Experiment, time_scale: float) -> Experiment:
    scenario = stating(experiment.scenario, time_scale=time_scale)
    return dataclasses.replace(experiment, scenario=scenario)


def choose_byte_scale(volumes: list[float]) -> float:
    """Return real bytes per emulated byte for flows of these volumes, emulated bytes.

    A payload of 1 MB is long against the 16 KB by which a sender may lead, and costs
    0.2 ms of CPU; so the median flow becomes that, and none more than 32 MB.
    """
    sizes = sorted(volume for volume in volumes if volume > 0)
    if not sizes:
        return 1.0
    scale = min(1e6 / sizes[len(sizes) // 2], 32e6 / sizes[-1])
    return float(f"{scale:.2g}")


def stating(scenario: Scenario, **scales: float | str) -> Scenario:
    """Return the scenario with these keys of ``emulation`` stated."""
    emulation = scenario.emulation.model_copy(update=scales)
    return scenario.model_copy(update={"emulation": emulation})
