"""Costs of tasks and flows, by real computation.

Rates of operations follow from them: every kind of task takes the sum of its operations
times their rates, and several sizes of the job tell the rates of a task apart. Nothing
is measured while others load this host: CPU time does not count what they do, but their
work shares caches, memory and the clock rate. A profile taken beside them was 50 % too
long, without a word of it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from emu.array_types import Floats
from emu.emulation.coordinator import Observer, emulate
from emu.emulation.launch.host_report import usable_cores
from emu.errors import RunUntrusted, ScenarioError
from emu.experiment.run_experiment import emulation_settings
from emu.experiment.run_files import manifest
from emu.graph_data import open_for
from emu.host.this_host import host_cpu
from emu.prediction.placement.baselines import place_ifs
from emu.problem import Problem, Profile, Realization
from emu.problem.workloads.operations import OPERATIONS
from emu.runs.problem_json import problem_to_json
from emu.runs.run_directory import RunDirectory
from emu.scenario import Experiment, Scenario, build_job, load
from emu.scenario.realize import open_data, realize
from emu.systems import Edit, Keys
from emu.systems.rates_section import RatesSection
from emu.systems.training_section import TrainingSection
from emu.systems.whole_graph_section import WholeGraphSection
from emu.units import DURATION

#: Sizes of the job that are measured, over the stated one.
SIZES = (0.25, 0.5, 1.0)
#: Tasks that take less of the job's CPU time than this share tell nothing: they are
#: begun more than they compute.
_LEAST_SHARE = 0.01
#: Shares above which load is a warning, and above which nothing is measured.
WARNED = 0.05
REFUSED = 0.20
#: Wall seconds of a measurement.
_LENGTH = 0.25
#: Steps of a loop that takes some 2 ms: long against the clock's resolution, short
#: against a scheduler's slice.
_STEPS = 20_000


def prepare_profile(scenario: Scenario) -> Experiment:
    """Return the experiment that measures the job of a scenario.

    It stands where IFS puts it: neither CPU times nor volumes depend on that. What
    takes no profile has ``1 s`` at every key of ``job.times`` that will be measured.
    Raises ScenarioError when the tasks of the job compute nothing that could be
    measured; DataError, InfeasiblePlacement as `emu.scenario.build_job` and
    `emu.prediction.placement.baselines.place_ifs`.
    """
    for _, _, section in scenario.each_job():
        if section.unmeasured or scenario.jobs:
            problem = section.unmeasured or "write each job into a file of its own"
            raise ScenarioError(problem, key="job.system")

    job = build_job(scenario)
    if scenario.job.unprofiled:
        kinds = {task.kind for task in job.tasks}
        keys = scenario.job.keys_of_kinds(kinds)
        placeholders = {f"job.times.{key}": "1 s" for key in keys}
        scenario = load(scenario, placeholders)
    open_data(job)
    cluster = scenario.to_cluster()
    placement = place_ifs(job, cluster, np.random.default_rng(scenario.seed))
    nothing = Realization(
        times=np.zeros((len(job.tasks), job.iterations)),
        volumes=np.zeros((len(job.edges), job.iterations)),
    )
    placed_job = Problem(cluster, job, placement)
    return Experiment(scenario, placed_job, nothing)


def of_length(scenario: Scenario, iterations: int) -> Scenario:
    """Return the scenario with so many iterations, or epochs where it counts these."""
    if scenario.jobs:
        return scenario  # which `prepare_profile` refuses
    edit: Edit = {"job.epochs": iterations}
    if "iterations" in type(scenario.job).model_fields:
        edit = {"job.iterations": iterations, "job.epochs": None}
    return load(scenario, edit, timed=False)


def measure_profile(
    experiment: Experiment, directory: RunDirectory, observer: Observer | None = None
) -> Profile:
    """Run the job and return its CPU times and volumes.

    Raises RunError, DataError as `emu.experiment.run_experiment.carry_out`.
    """
    settings = emulation_settings(experiment.scenario, compute="real", host_of={})
    directory.write_json("manifest.json", manifest(experiment.scenario, settings))
    directory.write_json("problem.json", problem_to_json(experiment.problem))
    run = emulate(
        experiment.problem,
        # Any rule does: neither CPU times nor volumes depend on it.
        "none",
        settings,
        experiment.realization,
        log=directory.path / "agent.log",
        observer=observer,
    )
    return Profile(run.cpu, run.realization.volumes)


def times_by_kind(
    experiment: Experiment, measured: Floats
) -> tuple[Keys, dict[str, float]]:
    """Return ``job.times``, and mean seconds of a task of the kinds that have no key.

    A key gets the time by which all tasks of its kinds together take the median, over
    iterations, of what they took: the first ones, which warm up, do not count. All of a
    kind take the same then: where parts differed by 9 % and the first of 5 epochs was
    12 ms longer, real DGCL took 17 % longer than this predicts. The experiment is that
    of `prepare_profile`; ``measured`` is CPU seconds, tasks x iterations.
    """
    scenario = experiment.scenario
    job = experiment.problem.job
    kinds = {task.name: task.kind for task in job.tasks}
    file_times = np.asarray(realize(scenario, job).times)
    names_left = set(kinds)
    # Kinds that share a key have none of their own: all that are left come last.
    all_kinds = dict.fromkeys(kinds.values())
    groups = [{kind} for kind in all_kinds]
    groups.append(set(all_kinds))
    for group in groups:
        names = {name for name in names_left if kinds[name] in group}
        rows = [name in names for name in kinds]
        stated_seconds = file_times[rows].sum(axis=0)
        measured_seconds = measured[rows].sum(axis=0)
        if not stated_seconds.any():
            continue
        has_time = stated_seconds > 0
        ratios = measured_seconds[has_time] / stated_seconds[has_time]
        ratio = float(np.median(ratios))
        scale = partial(_scale, ratio)
        edit, keys = scenario.job.scale_times(kinds, names, scale)
        scenario = load(scenario, edit)
        names_left -= keys

    rest = defaultdict(list)
    for task, row in zip(job.tasks, measured, strict=True):
        if task.name in names_left:
            mean = float(row.mean())
            rest[task.kind].append(mean)
    times = scenario.job.times.model_dump(mode="json", exclude_none=True)
    means = {}
    for kind, row in rest.items():
        means[kind] = float(np.mean(row))
    return times, means


def _scale(ratio: float, time: float) -> str:
    rounded_time = float(f"{time * ratio:.4g}")
    return DURATION.exact(rounded_time)


@dataclass(frozen=True)
class Sample:
    """Operations and time of all tasks of one kind, in a job of one size."""

    kind: str
    operations: Floats
    """Number of each of `OPERATIONS`."""
    seconds: float


@dataclass(frozen=True)
class FittedRates:
    """Rates that come nearest to what was measured."""

    rates: dict[str, float]
    """Operation -> seconds; what no task of the job does is not there. Also CPU seconds
    per edge of what is computed before time 0, ``partition`` and ``plan``."""
    residuals: dict[str, float]
    """Kind of task -> the furthest that a time by these rates is from a measured one,
    over the latter."""


def list_sizes(scenario: Scenario) -> list[Scenario]:
    """Return the scenario in three sizes: of mini-batches, or of hidden layers.

    Raises ScenarioError when its system counts no operations, or it has several
    jobs.
    """
    counts_operations = "rates" in type(scenario.job).model_fields
    if scenario.jobs or not counts_operations:
        problem = "operations are counted of one job that trains, write its section job"
        raise ScenarioError(problem, key="job.system")
    plain = load(scenario, {"job.rates": None}, timed=False)
    job = plain.job
    if isinstance(job, TrainingSection):
        key = "job.batch_size"
        size = job.batch_size
        # The samplers of a worker share its batch evenly:
        # sizes are multiples of their number.
        step = job.batch_size // job.sampler_batch
    else:
        assert isinstance(job, WholeGraphSection)  # noqa: S101 - for mypy
        key = "job.model.hidden"
        size = job.model.hidden
        step = 1

    sizes = set()
    for part in SIZES:
        steps = round(size * part / step)
        sizes.add(max(step, steps * step))
    return [load(plain, {key: value}, timed=False) for value in sorted(sizes)]


def sample_tasks(experiment: Experiment, profile: Profile) -> list[Sample]:
    """Return what each kind of task took, in all iterations but the first.

    That one warms up. Counts are of the bytes that were sent, times are CPU seconds.
    """
    section = experiment.scenario.job
    job = experiment.problem.job
    context = experiment.scenario.build_context()
    counts = section.count_operations(job, context, profile.volumes).counts
    rows_of = defaultdict(list)
    for row, task in enumerate(job.tasks):
        rows_of[task.kind].append(row)

    samples = []
    for kind, rows in rows_of.items():
        operations = counts[:, rows, 1:].sum(axis=(1, 2))
        if operations.any():
            times = profile.times[rows, 1:]
            sample = Sample(
                kind=kind,
                operations=operations,
                seconds=float(times.sum()),
            )
            samples.append(sample)
    least = _LEAST_SHARE * sum(sample.seconds for sample in samples)
    return [sample for sample in samples if sample.seconds > least]


def fit_rates(samples: Sequence[Sample]) -> FittedRates:
    """Return the rates, none negative, with the least squares of relative errors.

    Raises ValueError when no task took any time.
    """
    if not samples:
        raise ValueError("no task took a time that could be measured")
    # Over the time, so that errors are relative: a long task would outweigh all others.
    rows = np.array([sample.operations / sample.seconds for sample in samples])
    factors = _fit_positive(rows)
    errors = rows @ factors - 1

    residuals: dict[str, float] = {}
    for sample, error in zip(samples, errors, strict=True):
        kind = sample.kind
        furthest = max(residuals.get(kind, 0.0), error, key=abs)
        residuals[kind] = float(furthest)
    rates: dict[str, float] = {}
    columns = np.flatnonzero(rows.max(axis=0))
    for column in columns.tolist():
        operation = OPERATIONS[column]
        rates[operation] = float(factors[column])
    return FittedRates(rates, residuals)


def _fit_positive(rows: Floats) -> Floats:
    """Return the factors of columns, none negative, whose sums come nearest to 1."""
    # Operations are counted by thousands or by billions: unscaled, least squares
    # would lose the rare ones to rounding.
    scale = rows.max(axis=0)
    columns = np.flatnonzero(scale).tolist()
    ones = np.ones(len(rows))
    best = np.zeros(len(scale))
    least = np.inf
    # With six rates it is exact to try every set of those that are above 0.
    for count in range(1, len(columns) + 1):
        for subset in map(list, combinations(columns, count)):
            part = rows[:, subset] / scale[subset]
            solution, *_ = np.linalg.lstsq(part, ones, rcond=None)
            errors = part @ solution - 1
            error = float((errors**2).sum())
            is_positive = (solution >= 0).all()
            # Of equal fits the one with fewer rates, which was tried before.
            if is_positive and error < least - 1e-12:
                least = error
                best = np.zeros(len(scale))
                best[subset] = solution / scale[subset]

    return best


def measure_rates(
    scenario: Scenario, measure: Callable[[Scenario], tuple[Experiment, Profile]]
) -> FittedRates:
    """Return the rates of a scenario's job on this computer.

    ``measure`` runs a scenario and returns it with CPU times and volumes. Raises
    ScenarioError as `list_sizes`; ValueError as `fit_rates`.
    """
    samples = []
    planning = {}
    for size in list_sizes(scenario):
        experiment, profile = measure(size)
        samples += sample_tasks(experiment, profile)
        # Parts and plans are the same at every size: the last measurement stands.
        planning = measure_planning(experiment)
    fitted = fit_rates(samples)
    return replace(fitted, rates=fitted.rates | planning)


def measure_planning(experiment: Experiment) -> dict[str, float]:
    """Return CPU seconds per edge of what its job computes before time 0, by rate.

    Raises DataError when the data set is missing or damaged.
    """
    settings = experiment.problem.job.settings
    rates = {}
    planning = experiment.scenario.job.planning(settings)
    for name, compute in planning.items():
        start = time.process_time()
        compute()
        seconds = time.process_time() - start
        edges = open_for(settings).edges
        rates[name] = seconds / edges
    return rates


def rates_keys(fitted: FittedRates, stated: Any) -> Keys:
    """Return ``job.rates``: fitted ones, others as stated.

    A rate of 0 that was fitted is written as what no time comes from. Raises
    ScenarioError when a rate is neither fitted nor stated.
    """
    keys = {}
    if stated is not None:
        keys = stated.model_dump(mode="json", exclude_none=True)
    for name, rate in fitted.rates.items():
        rounded_rate = float(f"{rate or 1e-18:.4g}")
        keys[name] = DURATION.exact(rounded_rate)

    for name in OPERATIONS:
        if name not in keys:
            problem = (
                "no task of this job tells it: state job.rates, of which those that "
                "are measured are replaced"
            )
            raise ScenarioError(problem, key=f"job.rates.{name}")
    return {name: keys[name] for name in RatesSection.model_fields if name in keys}


@dataclass(frozen=True)
class HostLoad:
    """Load of a host, as shares."""

    others: float
    """Cores that other programs had, of all."""
    waits: float
    """Wall time in which a loop that only computes had no core."""
    steal: float
    """Time of the cores that a hypervisor kept."""
    clock: float
    """CPU time by which the same work took longer than at its best, at the median."""

    @property
    def worst(self) -> float:
        """The largest of the shares."""
        return max(self.others, self.waits, self.steal, self.clock)

    def causes(self) -> list[str]:
        """Return what is above the limit of warnings, the worst first."""
        shares = [
            (self.others, "other programs had {:.0%} of the cores"),
            (self.waits, "work waited for a core {:.0%} of the time"),
            (self.steal, "the hypervisor kept {:.0%} of the cores' time"),
            (self.clock, "the same work took {:.0%} longer than at its best"),
        ]
        shares.sort(key=lambda item: -item[0])
        return [text.format(share) for share, text in shares if share > WARNED]


def host_load(length: float = _LENGTH) -> HostLoad:
    """Measure the load of this host for some wall seconds, with one busy loop."""
    before = host_cpu()
    cpu_start = time.process_time()
    wall_start = time.monotonic()
    thread_start = time.thread_time()
    loops = []
    while time.monotonic() < wall_start + length:
        # CPU time of this thread: a loop that is interrupted takes no more of it, one
        # on a core whose clock or caches are shared does.
        loop_start = time.thread_time()
        total = 0
        for number in range(_STEPS):
            total += number
        loop_seconds = time.thread_time() - loop_start
        loops.append(loop_seconds)

    thread_seconds = time.thread_time() - thread_start
    seconds = time.monotonic() - wall_start
    after = host_cpu()
    core_seconds = seconds * usable_cores()
    cpu = time.process_time() - cpu_start
    steal = after["steal"] - before["steal"]
    # What this loop took itself is no load of others.
    busy = after["busy"] - before["busy"] - cpu
    best_loop = min(loops)
    median_loop = float(np.median(loops))
    busy_share = max(busy, 0.0) / core_seconds
    stolen_share = max(steal, 0.0) / core_seconds
    return HostLoad(
        others=min(busy_share, 1.0),
        waits=max(1.0 - thread_seconds / seconds, 0.0),
        steal=min(stolen_share, 1.0),
        clock=median_loop / best_loop - 1.0,
    )


def check_load(load: HostLoad, warn: Callable[[str], None], *, force: bool) -> None:
    """Say that measured times will be too long, or refuse to measure them.

    Raises RunUntrusted when a share is above 20 % and ``force`` is not stated.
    """
    causes = "; ".join(load.causes())
    line = f"this host is under load: {causes}"
    if load.worst > REFUSED and not force:
        raise RunUntrusted(
            f"{line}: measured times would be too long; end what else runs on it, or "
            "write --force"
        )
    if load.worst > WARNED:
        warn(f"{line}; measured times are too long")
