"""Rates of operations from measured times of tasks, for ``emu profile --rates``.

Every kind of task takes the sum of its operations times their rates; several sizes of
the job tell the rates of a task with several operations apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.errors import ScenarioError
from emu.problem import Profile
from emu.problem.workloads.operations import OPERATIONS
from emu.scenario import Experiment, Scenario, load
from emu.systems.training_section import TrainingSection
from emu.systems.whole_graph_section import WholeGraphSection
from emu.units import DURATION

#: Sizes of the job that are measured, over the stated one.
SIZES = (0.25, 0.5, 1.0)
#: Tasks that take less of the job's CPU time than this share tell nothing: they are
#: begun more than they compute.
_LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Sample:
    """Operations and time of all tasks of one kind, in a job of one size."""

    kind: str
    operations: NDArray[np.float64]
    """Number of each of `OPERATIONS`."""
    seconds: float


@dataclass(frozen=True)
class FittedRates:
    """Rates that come nearest to what was measured."""

    rates: dict[str, float]
    """Operation -> seconds; what no task of the job does is not there."""
    residuals: dict[str, float]
    """Kind of task -> the furthest that a time by these rates is from a measured one,
    over the latter."""


def list_sizes(scenario: Scenario) -> list[Scenario]:
    """Return the scenario in three sizes: of mini-batches, or of hidden layers.

    Raises ScenarioError when its system counts no operations, or it has several
    jobs.
    """
    if scenario.jobs or "rates" not in type(scenario.job).model_fields:
        problem = "operations are counted of one job that trains, write its section job"
        raise ScenarioError(problem, key="job.system")
    plain = load(scenario, {"job.rates": None}, timed=False)
    job = plain.job
    if isinstance(job, TrainingSection):
        key, size = "job.batch_size", job.batch_size
        step = job.batch_size // job.sampler_batch
    else:
        assert isinstance(job, WholeGraphSection)  # noqa: S101 - for mypy
        key, size, step = "job.model.hidden", job.model.hidden, 1
    sizes = {max(step, round(size * part / step) * step) for part in SIZES}
    return [load(plain, {key: each}, timed=False) for each in sorted(sizes)]


def sample_tasks(experiment: Experiment, profile: Profile) -> list[Sample]:
    """Return what each kind of task took, in all iterations but the first.

    That one warms up. Counts are of the bytes that were sent, times are CPU seconds.
    """
    scenario, job, times = experiment.scenario, experiment.problem.job, profile.times
    context, volumes = scenario.build_context(), profile.volumes
    counts = scenario.job.count_operations(job, context, volumes).counts
    samples = []
    for kind in dict.fromkeys(task.kind for task in job.tasks):
        rows = [task.kind == kind for task in job.tasks]
        operations = counts[:, rows, 1:].sum(axis=(1, 2))
        if operations.any():
            seconds = float(times[rows, 1:].sum())
            samples.append(Sample(kind, operations, seconds))
    whole = sum(one.seconds for one in samples)
    return [one for one in samples if one.seconds > _LEAST_SHARE * whole]


def fit_rates(samples: Sequence[Sample]) -> FittedRates:
    """Return the rates, none negative, with the least squares of relative errors.

    Raises ValueError when no task took any time.
    """
    if not samples:
        raise ValueError("no task took a time that could be measured")
    rows = np.array([one.operations / one.seconds for one in samples])
    scale = rows.max(axis=0)
    columns = [int(n) for n in np.flatnonzero(scale)]
    best, least = np.zeros(len(OPERATIONS)), np.inf
    # With six rates it is exact to try every set of those that are above 0.
    for count in range(1, len(columns) + 1):
        for some in map(list, combinations(columns, count)):
            part = rows[:, some] / scale[some]
            solution, *_ = np.linalg.lstsq(part, np.ones(len(rows)), rcond=None)
            error = float(((part @ solution - 1) ** 2).sum())
            if (solution >= 0).all() and error < least - 1e-12:
                best, least = np.zeros(len(OPERATIONS)), error
                best[some] = solution / scale[some]
    residuals: dict[str, float] = {}
    for one, error in zip(samples, rows @ best - 1, strict=True):
        further = max(residuals.get(one.kind, 0.0), error, key=abs)
        residuals[one.kind] = float(further)
    rates = {OPERATIONS[n]: float(best[n]) for n in columns}
    return FittedRates(rates, residuals)


def measure_rates(
    scenario: Scenario, measure: Callable[[Scenario], tuple[Experiment, Profile]]
) -> FittedRates:
    """Return the rates of a scenario's job on this computer.

    ``measure`` runs a scenario and returns it with CPU times and volumes.

    Raises ScenarioError as `list_sizes`; ValueError as `fit_rates`.
    """
    samples: list[Sample] = []
    for size in list_sizes(scenario):
        experiment, profile = measure(size)
        samples += sample_tasks(experiment, profile)
    return fit_rates(samples)


def rates_keys(fitted: FittedRates, stated: Any) -> dict[str, Any]:
    """Return ``job.rates``: fitted ones, others as stated.

    A rate of 0 that was fitted is written as what no time comes from.

    Raises ScenarioError when a rate is neither fitted nor stated.
    """
    keys = {} if stated is None else stated.model_dump(mode="json")
    for name, rate in fitted.rates.items():
        keys[name] = DURATION.exact(float(f"{rate or 1e-18:.4g}"))
    if missing := [name for name in OPERATIONS if name not in keys]:
        problem = (
            "no task of this job tells it: state job.rates, of which those that are "
            "measured are replaced"
        )
        raise ScenarioError(problem, key=f"job.rates.{missing[0]}")
    return {name: keys[name] for name in OPERATIONS}
