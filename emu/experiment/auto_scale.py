"""Scenarios that leave their scales to emu: ``auto`` for time or byte scale."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from emu.emulation.coordinator.run import emulate
from emu.emulation.launch.host_report import usable_cores
from emu.errors import ScenarioError
from emu.experiment import scale_search
from emu.experiment.run_experiment import emulation_settings, replay
from emu.experiment.scale_search import ScaleChoice, ScaleSearch, ScaleTrial
from emu.host.files import scratch_folder
from emu.lab.machines.nic import FASTEST, SLOWEST, Sharing, plan_nic
from emu.prediction.analysis.critical_path import critical_path
from emu.problem import Realization, Schedule
from emu.scenario import Experiment, Scenario, build_job, open_data, prepare, realize
from emu.scenario.run_sections import AUTO, EmulationSection
from emu.trust.lateness import effect_of_slight_delays, flow_completion, host_effect
from emu.trust.verdict import round_up

#: Wall seconds of a trial's iterations, about: a start takes 0.7 s, and a standstill of
#: 10 ms is to be half of a percent.
_LENGTH = 2.0
#: Iterations of a trial at least, where there is time for them: the first starts empty.
_USUAL = 2
#: On kernel NICs no flow has a time to keep to, so that no trial could be late: the
#: scale follows from what they cost, which is of wall time.
#:
#: Wall seconds from an end to the first bytes of the flow that waited for it: in the
#: mean of four scenarios 0.9 to 2.9 ms, on two cores that others kept busy.
HOP = 2.5e-3
#: CPU seconds of an end of a task or flow (0.91 ms of 2,000 in rings), and of a segment
#: from kernel to kernel: 8.6 s per GB where NICs of 12.5 MB/s make them 6.2 kB long.
END = 1e-3
SEGMENT = 5.4e-5
#: Share of ``max_error`` that delay before first bytes may be, and of the cores that
#: may be busy: in the mean of the run, and while the fastest NIC is.
MARGIN = 0.5
CORES = 0.5


def with_byte_scale(scenario: Scenario) -> Experiment:
    """Prepare a scenario for emulation, with a number where its byte scale is ``auto``.

    Raises EmulatorError: what `emu.scenario.prepare` raises.
    """
    if scenario.emulation.byte_scale == AUTO:
        volumes = []  # of real payloads, which have their size
        if not (scenario.jobs or scenario.job.trains):
            realization = realize(scenario, build_job(scenario))
            volumes = np.unique(realization.volumes).tolist()
        byte_scale = choose_byte_scale(volumes)
        scenario = stating(scenario, byte_scale=byte_scale)
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
    ends the search. Trials may start the programs in ``allow``, as `RunSettings`. The
    second value says how the time scale was chosen: None where it is stated, or the job
    takes no time, which is as exact at any scale.

    Raises ScenarioError when kernel NICs have no time scale, see `kernel_time_scale`;
    else as `emu.scenario.prepare` and `emu.emulation.coordinator.emulate`.
    """
    experiment = with_byte_scale(scenario)
    check(experiment)
    emulation = experiment.scenario.emulation
    schedule = experiment.simulate()
    is_stated = scenario.emulation.time_scale != AUTO
    if is_stated or schedule.makespan <= 0:
        return _at(experiment, scenario.emulation.stated_time_scale), None

    error = emulation.max_error
    cores = usable_cores()
    if emulation.network == "kernel":
        choice = _choose_for_kernel(emulation, schedule, cores)
        return _at(experiment, choice.time_scale), choice

    policy = experiment.choose_policy()
    spread = effect_of_slight_delays(
        experiment.realization,
        policy=policy,
        profile=experiment.expected,
        schedule=schedule,
    )
    # Chance moves it by more than is asked for: no scale could meet that aim.
    if spread > error:
        error = math.inf
    search = ScaleSearch(
        makespan=schedule.makespan,
        max_error=error,
        max_late_flows=emulation.max_late_flows,
    )
    ends = schedule.task_end.size + len(schedule.flows())
    first = search.first(ends, cores)
    trials = _trials(experiment, search, first, notify, allow)
    choice = search.choice(trials)
    return _at(experiment, choice.time_scale), choice


def _choose_for_kernel(
    emulation: EmulationSection, schedule: Schedule, cores: int
) -> ScaleChoice:
    """Return the time scale on kernel NICs, which follows from what a run costs."""
    costs = KernelCosts(
        schedule,
        byte_scale=emulation.stated_byte_scale,
        cores=cores,
        sharing=Sharing(emulation.sharing),
    )
    scale = kernel_time_scale(costs, emulation.max_error)

    return ScaleChoice(
        trials=(),
        time_scale=scale,
        taken=None,
        kernel=costs.forecast(scale),
    )


def _trials(
    experiment: Experiment,
    search: ScaleSearch,
    first: float,
    notify: Callable[[ScaleTrial], None],
    allow: tuple[str, ...],
) -> list[ScaleTrial]:
    """Return trials until one is found, or the time for them is over."""
    budget = experiment.scenario.emulation.trial_budget
    end = math.inf  # what is slow but once, compilation say, is in the first trial
    iteration = search.makespan / experiment.problem.job.iterations
    trials: list[ScaleTrial] = []
    scale: float | None = first
    while scale is not None:
        wall = iteration * scale
        least_count = math.ceil(_LENGTH / wall)
        count = max(least_count, _USUAL)
        if trials:
            end = min(end, time.monotonic() + budget)
            # As long as the start before: processes, connections, and the graph.
            last_trial = trials[-1]
            start = last_trial.cost - last_trial.wall
            rest = end - time.monotonic() - start
            most_count = math.floor(rest / wall)
            count = min(count, most_count)
            if count < 1:
                break
        part = shorten(_at(experiment, scale), count)
        trial = try_out(part, allow)
        trials.append(trial)
        notify(trial)
        scale = search.next(trials)

    return trials


def try_out(experiment: Experiment, allow: tuple[str, ...] = ()) -> ScaleTrial:
    """Emulate an experiment and return how late this host was.

    Raises RunError when the run could not be finished.
    """
    problem = experiment.problem
    settings = emulation_settings(experiment.scenario, allow=allow, host_of={})
    policy = experiment.choose_policy()
    began = time.monotonic()
    with scratch_folder("trial") as folder:
        run = emulate(
            problem,
            policy,
            settings,
            experiment.realization,
            log=folder / "agent.log",
        )
    cost = time.monotonic() - began

    simulation = replay(experiment, run, policy)
    effect = host_effect(
        problem.following(run.schedule),
        policy,
        experiment.expected,
        emulated=run.schedule.makespan,
        simulated=simulation.makespan,
        measured=run.realization,
        perturbed=run.perturbed,
        late=run.late_work,
    )
    excess = flow_completion(run.schedule, settings.time_scale).excess
    busy = []
    for figures in run.statistics.values():
        host = figures["host_metrics"]["host"]
        host_seconds = sum(host.values())
        busy.append(host["busy"] / max(host_seconds, 1e-9))
    return ScaleTrial(
        time_scale=settings.time_scale,
        iterations=problem.job.iterations,
        cost=cost,
        wall=run.wall,
        cpu_busy=max(busy),
        # By which the verdict of the run will decide, too.
        error=effect.shift,
        late_flows=int((excess > 1).sum()),
        flows=len(excess),
    )


def shorten(experiment: Experiment, iterations: int) -> Experiment:
    """Return the experiment with its first iterations alone, all if there are fewer."""
    problem = experiment.problem
    realization = experiment.realization
    count = min(iterations, problem.job.iterations)
    job = replace(problem.job, iterations=count)
    shortened_problem = replace(problem, job=job)
    part = Realization(
        times=realization.times[:, :count],
        volumes=realization.volumes[:, :count],
    )
    return Experiment(experiment.scenario, shortened_problem, part)


def _at(experiment: Experiment, time_scale: float) -> Experiment:
    scenario = stating(experiment.scenario, time_scale=time_scale)
    return replace(experiment, scenario=scenario)


def choose_byte_scale(volumes: list[float]) -> float:
    """Return real bytes per emulated byte for flows of these volumes, emulated bytes.

    A payload of 1 MB is long against the 16 KB by which a sender may lead, and costs
    0.2 ms of CPU; so the median flow becomes that, and none more than 32 MB.
    """
    sizes = sorted(volume for volume in volumes if volume > 0)
    if not sizes:
        return 1.0
    middle = len(sizes) // 2
    median = sizes[middle]
    largest = sizes[-1]
    scale = min(1e6 / median, 32e6 / largest)
    # Two digits do: it is an estimate, and somebody may write it into a file.
    return float(f"{scale:.2g}")


def stating(scenario: Scenario, **scales: float | str) -> Scenario:
    """Return the scenario with these keys of ``emulation`` stated."""
    emulation = scenario.emulation.model_copy(update=scales)
    return scenario.model_copy(update={"emulation": emulation})


class KernelCosts:
    """Cost of a simulated schedule on kernel NICs, by time scale.

    Its makespan is more than 0; ``byte_scale`` is real bytes per emulated byte; this
    host may use so many cores.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        byte_scale: float,
        cores: int,
        sharing: Sharing,
    ) -> None:
        problem = schedule.problem
        flows = schedule.flows()
        chain = critical_path(schedule).links
        capacities = np.array(problem.capacities) * byte_scale
        self.makespan = schedule.makespan
        chain_flows = set()
        for link in chain:
            if link.edge >= 0:
                chain_flows.add((link.edge, link.iteration))
        self.hops = len(chain_flows)
        self._cores = cores
        self._sharing = sharing
        self._ends = schedule.task_end.size + len(flows)
        self._nics: list[float] = sorted({*capacities.tolist()})
        self._sent = defaultdict[float, float](float)
        for edge, iteration in flows.tolist():
            # Segments are as long as the narrowest NIC on the way makes them.
            ports = [*problem.hops[edge]]
            narrowest = float(capacities[ports].min())
            flow_bytes = float(schedule.flow_bytes[edge, iteration])
            self._sent[narrowest] += byte_scale * flow_bytes

    def least(self, max_error: float) -> float:
        """Return a scale that no rule lets a run go below, before the cores' one."""
        delay = self.hops * HOP / (MARGIN * max_error)
        shortest = max(delay, scale_search.SHORTEST)
        fastest = self._nics[-1]
        # A scale slows NICs down: one that is too fast for the kernel needs that much.
        return max(shortest / self.makespan, fastest / FASTEST)

    @property
    def most(self) -> float:
        """Return the scale above which the slowest NIC is none of the kernel's."""
        return self._nics[0] / SLOWEST

    def holds(self, scale: float) -> bool:
        """Return True where the cores have time enough, in the mean and at most."""
        fastest = self._nics[-1]
        segment = self._segment(fastest, scale)
        peak = SEGMENT * fastest / scale / segment
        keeps_up = peak <= CORES * self._cores
        return keeps_up and self.busy(scale) <= CORES

    def busy(self, scale: float) -> float:
        """Return the share of the cores that a run keeps busy."""
        counts = []
        for nic, size in self._sent.items():
            segment = self._segment(nic, scale)
            counts.append(size / segment)
        segments = math.fsum(counts)
        work = self._ends * END + segments * SEGMENT
        core_seconds = self.makespan * scale * self._cores
        return work / core_seconds

    def _segment(self, nic: float, scale: float) -> float:
        return plan_nic(nic / scale, self._sharing).segment

    def forecast(self, scale: float) -> scale_search.KernelForecast:
        """Return what a scale makes of it."""
        delay = self.hops * HOP / (self.makespan * scale)
        return scale_search.KernelForecast(
            hops=self.hops,
            delay=delay,
            cpu_busy=self.busy(scale),
        )


def kernel_time_scale(costs: KernelCosts, max_error: float) -> float:
    """Return the least scale of two digits at which kernel NICs cost little enough.

    Raises ScenarioError when the slowest NIC would carry less than the kernel's least.
    """
    scale = round_up(costs.least(max_error))
    while scale <= costs.most and not costs.holds(scale):
        # To the next number of two digits, whatever its size.
        scale = round_up(scale * (1 + 1e-6))
    if scale > costs.most:
        raise ScenarioError(
            f"auto needs {scale:g} or more, where the slowest NIC would carry less "
            f"than the kernel's least, {SLOWEST:g} B/s: state a number, or an "
            f"emulation.byte_scale {scale / costs.most:.2g} times as large",
            key="emulation.time_scale",
        )
    return scale
