"""Training in virtual time: the steps of a schedule, taken in one process.

Systems whose weights depend on nothing but the data take the steps of the reference;
an asynchronous one follows the reads of the schedule (`System.follow`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.errors import ScenarioError
from emu.graph_data import open_for
from emu.problem import Job, Schedule
from emu.problem.workloads import CHECKPOINT
from emu.scenario.realize import build_job
from emu.systems.system import system_of

if TYPE_CHECKING:
    from emu.scenario.scenario import Scenario

#: Looks at the validation vertices; each is a pass over the whole graph.
LOOKS = 10


class Progress(NamedTuple):
    """Training of a run, step by step, float64, shape (steps,)."""

    loss: NDArray[np.float64]
    """Mean over the workers."""
    accuracy: NDArray[np.float64]
    """Accuracy on validation vertices after the step; NaN where it was not measured."""


def trains(job: Job) -> bool:
    """Return True for one job that trains a model; of several jobs each has its own."""
    return "model" in job.settings


def steps_of(job: Job) -> int:
    """Return the steps of the optimizer: of a pipeline fewer than cycles."""
    return job.iterations - max(task.behind for task in job.tasks)


def step_ends(schedule: Schedule, step_kinds: Sequence[str]) -> NDArray[np.float64]:
    """Return when the weights of every step were there, seconds, shape (steps,).

    Parameters
    ----------
    step_kinds
        `System.step_kinds`: the last task of the first kind that the job has ends a
        step; without any, the last task that works on the mini-batch.
    """
    job = schedule.problem.job
    kinds = {task.kind for task in job.tasks}
    ending = [kind for kind in step_kinds if kind in kinds]
    steps = steps_of(job)
    ends = np.zeros(steps)
    for position, task in enumerate(job.tasks):
        last_of_all = not (ending or task.gate or task.kind == CHECKPOINT)
        if task.kind in ending[:1] or last_of_all:
            last = min(steps, job.rounds[position] - task.behind)
            own = schedule.task_end[position, task.behind : task.behind + last]
            ends[:last] = np.fmax(ends[:last], own)
    return ends


def train_along(
    scenario: Scenario,
    schedule: Schedule,
    watch: Callable[[int, NDArray[Any]], None] = lambda *_: None,
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Train in one process as a schedule, simulated or emulated, has.

    Parameters
    ----------
    watch
        Called after every step with its number, from 0, and all parameters, flat.

    Returns
    -------
    weights, losses
        Flat, after the last step; mean loss of every step.

    Raises
    ------
    ScenarioError
        When the scenario trains nothing, or has several jobs.
    DataError
        When the data set is missing or damaged.
    """
    from emu.training import reference_training  # noqa: PLC0415 - torch, a second

    job = build_job(scenario)
    settings, system = job.settings, system_of(job.settings)
    if system is None or not trains(job):
        raise ScenarioError("trains no model of one job, so nothing can be trained")
    if system.asynchronous(settings):
        weights, losses = system.follow(
            scenario.job, scenario.build_context(), schedule, watch
        )
    else:
        steps = steps_of(job)
        misses = system.updates_missed(settings)
        weights, losses = reference_training(settings, steps, misses, watch)
    return weights, np.array(losses)


def progress_along(
    scenario: Scenario,
    schedule: Schedule,
    watch: Callable[[int, int], None] = lambda *_: None,
    looks: int = LOOKS,
) -> tuple[Progress, NDArray[Any]]:
    """Return the training of a schedule, and the last weights, flat.

    Parameters
    ----------
    watch
        Called with steps so far and in all.
    looks
        Times that the validation vertices are looked at, evenly spaced.

    Raises
    ------
    ScenarioError, DataError
        As `train_along`.
    """
    from emu.training import evaluate  # noqa: PLC0415 - torch

    job = build_job(scenario)
    settings, steps = job.settings, steps_of(job)
    at = set(np.linspace(0, steps, min(looks, steps) + 1, dtype=int)[1:] - 1)
    accuracy = np.full(steps, np.nan)

    def look(step: int, parameters: NDArray[Any]) -> None:
        if step in at:
            accuracy[step] = evaluate(settings, parameters).get("valid", np.nan)
        watch(step + 1, steps)

    weights, losses = train_along(scenario, schedule, look)
    return Progress(losses, accuracy), weights


def curve_until_divergence(
    curve: Sequence[Mapping[str, float]], weights: NDArray[Any] | None = None
) -> dict[str, Any]:
    """Return ``training`` of result.json, and ``diverged`` where it has.

    Parameters
    ----------
    curve
        ``iteration`` and ``loss`` of every step, and more.
    weights
        Flat, after the last step, where they are known.

    Returns
    -------
    dict
        ``training`` holds the steps before the first whose loss is no number, which
        ``diverged`` names; the number of steps where the weights after them are none.
    """
    for place, step in enumerate(curve):
        if not math.isfinite(step["loss"]):
            return {"training": [*curve[:place]], "diverged": int(step["iteration"])}
    if weights is None or np.isfinite(weights).all():
        return {"training": [*curve]}
    return {"training": [*curve], "diverged": len(curve)}


def virtual_training(scenario: Scenario, schedule: Schedule) -> dict[str, Any]:
    """Return ``training``, ``accuracy`` and ``diverged`` as result.json, simulated.

    Steps at which the validation vertices were looked at have their ``accuracy``.

    Raises
    ------
    ScenarioError, DataError
        As `train_along`.
    """
    from emu.training import evaluate  # noqa: PLC0415 - torch

    progress, weights = progress_along(scenario, schedule)
    settings = build_job(scenario).settings
    system = system_of(settings)
    ends = step_ends(schedule, system.step_kinds if system else ())
    curve = [
        {"iteration": n, "time": time, "loss": loss}
        | ({} if np.isnan(samples) else {"accuracy": samples})
        for n, (time, loss, samples) in enumerate(
            zip(
                ends.tolist(),
                progress.loss.tolist(),
                progress.accuracy.tolist(),
                strict=True,
            )
        )
    ]
    content = curve_until_divergence(curve, weights)
    if "diverged" not in content:
        content["accuracy"] = evaluate(settings, weights)
    return content


class _ReachedError(Exception):
    """Ends a training that is good enough, after so many steps."""

    def __init__(self, steps: int, accuracy: float) -> None:
        self.steps, self.accuracy = steps, accuracy


def steps_until(scenario: Scenario, schedule: Schedule) -> tuple[int, float]:
    """Return after how many steps of a schedule ``until`` is reached, and what is.

    Raises
    ------
    ScenarioError
        When it is not reached in all steps: the best that was; when it diverges.
    DataError
        As `train_along`.
    """
    from emu.training import evaluate  # noqa: PLC0415 - torch

    until = scenario.until
    if until is None:
        raise ValueError("the scenario has no until")
    settings = build_job(scenario).settings
    if not len(getattr(open_for(settings), until.split)):
        problem = f"the data set has no {until.split} vertices: write another split"
        raise ScenarioError(problem, key="until.split")
    best = 0.0, 0

    def look(step: int, parameters: NDArray[Any]) -> None:
        nonlocal best
        if not np.isfinite(parameters).all():
            problem = f"the training diverged after step {step}: lower its lr"
            raise ScenarioError(problem, key="job.optimizer")
        if (step + 1) % until.every == 0:
            figures = evaluate(settings, parameters)[until.split]
            best = max(best, (figures, -step - 1))  # of equal ones the first
            if figures >= until.accuracy:
                raise _ReachedError(step + 1, figures)

    try:
        train_along(scenario, schedule, look)
    except _ReachedError as reached:
        return reached.steps, reached.accuracy
    accuracy, after = best
    problem = (
        f"{until.accuracy:.2%} of the {until.split} vertices is not reached in "
        f"{scenario.job.length}: at best {accuracy:.2%}, after step {-after}; write "
        "more of them, or a lower accuracy"
    )
    raise ScenarioError(problem, key="until.accuracy")
