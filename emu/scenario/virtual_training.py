"""Training in virtual time: the steps of a schedule, taken in one process.

Systems whose weights depend on nothing but the data take the steps of the reference;
an asynchronous one follows the reads of the schedule (`System.follow`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from emu.array_types import Array, Floats, Ints
from emu.errors import DataError, ScenarioError
from emu.graph_data import open_for
from emu.problem import Job, Schedule
from emu.problem.workloads import CHECKPOINT
from emu.scenario.realize import build_job
from emu.systems import Problems
from emu.systems.system import System, system_of, trainer_of
from emu.training import evaluate
from emu.training import looks as training_looks
from emu.training.kept import Extent, train_once, train_until, weight_settings
from emu.training.looks import HELD, Look, Progress, count_seeds, space_looks
from emu.training.reference import Watch, WholeGraphModel
from emu.units import format_duration

if TYPE_CHECKING:
    from emu.scenario.run_sections import UntilSection
    from emu.scenario.scenario import Scenario

#: Keys of result.json.
Content: TypeAlias = dict[str, Any]
#: Iteration, time and loss of a step, and its accuracy where that was looked at.
_Step: TypeAlias = dict[str, float]
#: Called with steps so far and in all.
_Tell: TypeAlias = Callable[[int, int], None]


def trains(job: Job) -> bool:
    """Return True for one job that trains a model; of several jobs each has its own."""
    return "model" in job.settings


def steps_of(job: Job) -> int:
    """Return the steps of the optimizer: of a pipeline fewer than cycles."""
    # The first cycles fill the pipeline: K mini-batches take K + 2 in P3's order A.
    delay = max(task.behind for task in job.tasks)
    return job.iterations - delay


def seeds_seen(job: Job) -> int | None:
    """Return the training vertices that all steps see; None of a job that trains none.

    Raises DataError when the data set is missing or damaged.
    """
    if not trains(job):
        return None
    dataset = open_for(job.settings)
    steps = steps_of(job)
    seeds = count_seeds(job.settings, dataset.train_count, steps)
    return int(seeds[-1])


def step_ends(schedule: Schedule, step_kinds: Sequence[str]) -> Floats:
    """Return when the weights of every step were there, seconds, shape (steps,).

    ``step_kinds``: `System.step_kinds`: the last task of the first kind that the
    job has ends a step; without any, the last task that works on the mini-batch.
    """
    job = schedule.problem.job
    kinds = {task.kind for task in job.tasks}
    known_kinds = [kind for kind in step_kinds if kind in kinds]
    ending_kind = None
    if known_kinds:
        ending_kind = known_kinds[0]
    steps = steps_of(job)
    ends = np.zeros(steps)

    for position, task in enumerate(job.tasks):
        # Nothing that trains waits for a copy of state, which may end much later.
        may_end = not task.gate and task.kind != CHECKPOINT
        if ending_kind is not None:
            may_end = task.kind == ending_kind
        if not may_end:
            continue

        # In cycle c a task works on mini-batch c - behind, see `Task.behind`.
        first = task.behind
        rounds = job.rounds[position]
        count = min(steps, rounds - first)
        last = first + count
        task_ends = schedule.task_end[position, first:last]
        # The slowest of equal tasks; fmax passes over what a schedule lacks.
        ends[:count] = np.fmax(ends[:count], task_ends)
    return ends


def train_along(
    scenario: Scenario,
    schedule: Callable[[], Schedule],
    watch: Watch = lambda *_: None,
) -> tuple[Array, Floats]:
    """Train in one process as a schedule, simulated or emulated, has.

    ``schedule`` returns it, and is called where its reads decide the weights alone.
    Returns the flat weights after the last step, and the mean loss of every step.
    Raises ScenarioError when the scenario trains nothing, or has several jobs;
    DataError when the data set is missing or damaged.
    """
    job = build_job(scenario)
    settings = job.settings
    system = _system_of_training(job)
    # Synchronous weights depend on data and settings alone: nothing is simulated.
    if not system.asynchronous(settings):
        train = trainer_of(settings)
        settings_of_weights = weight_settings(settings, opens=True)
        missed = system.updates_missed(settings)
        weights, losses = train(settings_of_weights, steps_of(job), missed, watch)
        return weights, np.array(losses)

    dataset = open_for(settings)
    model: WholeGraphModel | None = None
    if training_looks.trains_whole_graph(settings):
        model = WholeGraphModel(settings, dataset)

    # Not evaluated yet: only some of the steps are looked at.
    def look(step: int, parameters: Array) -> bool | None:
        accuracy = partial(
            evaluate,
            settings=settings,
            parameters=parameters,
            dataset=dataset,
            whole=model,
        )
        return watch(step, parameters, accuracy)

    weights, losses = system.follow(
        scenario.job,
        scenario.build_context(),
        schedule(),
        look,
    )
    return weights, np.array(losses)


def _system_of_training(job: Job) -> System:
    system = system_of(job.settings)
    if system is None or not trains(job):
        raise ScenarioError("trains no model of one job, so nothing can be trained")
    return system


def _list_looks(job: Job, until: UntilSection | None, *, stops: bool = True) -> Ints:
    """Return the steps, from 1, after which to look; without ``until`` every epoch.

    Raises ScenarioError when a step sees more seeds than are between two looks;
    where it ``stops``, when the split has no vertices, or fewer looks fit than have
    to hold the accuracy.
    """
    dataset = open_for(job.settings)
    train = dataset.train_count
    steps = steps_of(job)
    seeds = count_seeds(job.settings, train, steps)
    if until is None:
        return space_looks(seeds, train)

    spacing = until.seeds or train
    # Looks are after whole steps: between two of these there is nothing to see.
    if until.seeds and spacing < seeds[0]:
        problem = f"found {spacing}, but a step sees {seeds[0]}: write as many, or more"
        raise ScenarioError(problem, key="until.seeds")
    looks = space_looks(seeds, spacing)
    if until.every:
        end = steps + 1
        looks = np.arange(until.every, end, until.every)
    if not stops:
        return looks

    vertices = getattr(dataset, until.split)
    if not len(vertices):
        problem = f"the data set has no {until.split} vertices: write another split"
        raise ScenarioError(problem, key="until.split")
    if len(looks) < HELD:
        problem = (
            f"{HELD} looks in a row have to hold the accuracy, and {steps} steps have "
            f"{len(looks)}"
        )
        remedy = "write a smaller number, or a longer job"
        if until.every:
            key = "until.every"
        elif until.seeds:
            key = "until.seeds"
        else:
            key = "until"
            remedy = (
                f"looks are an epoch apart, {spacing} seeds, of which a step sees "
                f"{seeds[0]}: write until.seeds, or a longer job"
            )
        raise ScenarioError(f"{problem}: {remedy}", key=key)
    return looks


def look_errors(scenario: Scenario) -> Problems:
    """Yield what is wrong with ``until`` before anything is trained."""
    try:
        job = build_job(scenario)
        _list_looks(job, scenario.until)
    except ScenarioError as error:
        steps = error.key.split(".")
        yield tuple(steps), error.problem
    except DataError as error:
        yield ("job", "dataset"), str(error)


def progress_along(
    scenario: Scenario,
    schedule: Callable[[], Schedule],
    watch: _Tell = lambda *_: None,
    until: UntilSection | None = None,
    *,
    stops: bool = False,
) -> Progress:
    """Return the training of a schedule; those of equal weights are trained once.

    ``watch`` is called with steps so far and in all while something is trained;
    ``until`` spaces the looks, by default an epoch apart, and ends the training where
    it ``stops``. Raises ScenarioError or DataError as `train_along`; when ``until``
    cannot be followed: see `look_errors`.
    """
    job = build_job(scenario)
    settings = job.settings
    system = _system_of_training(job)
    looks = _list_looks(job, until, stops=stops)
    target = None
    if until and stops:
        target = (until.split, until.accuracy)
    # It is asked for its reads here, and by the training once more.
    schedule = cache(schedule)
    train = partial(
        _train,
        scenario=scenario,
        schedule=schedule,
        looks=looks,
        target=target,
        tell=watch,
    )
    if "program" in settings["model"]:  # it may import what no settings show
        return train()

    is_asynchronous = system.asynchronous(settings)
    if not is_asynchronous:
        trainer_of(settings)  # its error, before what others have trained is read
    # What decides the weights, and nothing else, is the name under which they are kept.
    causes = weight_settings(settings, opens=False)
    causes["missed"] = system.updates_missed(settings)
    if is_asynchronous:
        # Reads alone matter of it: another network with the same ones trains the same.
        causes["reads"] = _digest_of_reads(schedule())
        causes["job"] = scenario.job.model_dump(mode="json")
        context = scenario.build_context()
        causes["machines"] = context.machines
    steps = steps_of(job)
    if until is None or not stops:
        # What was asked belongs to the name, as only that was kept.
        causes["asked"] = [steps, looks.tolist(), target]
        return train_once(causes, train)

    # A longer training goes on from a shorter one of the same looks.
    causes["spacing"] = [until.seeds, until.every]
    extent = Extent(steps, split=until.split, accuracy=until.accuracy)
    return train_until(causes, extent, train)


def _digest_of_reads(schedule: Schedule) -> str:
    if schedule.reads is None:
        return ""
    content = schedule.reads.tobytes()
    return hashlib.sha256(content).hexdigest()


def _train(
    scenario: Scenario,
    schedule: Callable[[], Schedule],
    looks: Ints,
    target: tuple[str, float] | None,
    tell: _Tell,
) -> Progress:
    """Train until the target is reached, looking after the last step as well."""
    job = build_job(scenario)
    steps = steps_of(job)
    look_steps = np.union1d(looks, [steps])
    places = {int(step): place for place, step in enumerate(look_steps)}
    count = len(look_steps)
    accuracy = {split: np.full(count, np.nan) for split in ("train", "valid", "test")}
    run = Progress(
        loss=np.empty(0),
        looks=look_steps,
        accuracy=accuracy,
        spaced=len(looks),
    )

    def watch(
        step: int,
        parameters: Array,
        look: Callable[[], Mapping[str, float]],
    ) -> bool:
        nonlocal run
        # Of the weights, as the loss of a step is of those before it.
        is_finite = np.isfinite(parameters).all()
        if run.diverged is None and not is_finite:
            run = run._replace(diverged=step + 1)

        place = places.get(step + 1)
        if place is not None:
            shares = look()
            for split, share in shares.items():
                accuracy[split][place] = share
        tell(step + 1, steps)
        if target is None:
            return False
        return run.diverged is not None or run.reach(*target) is not None

    _, losses = train_along(scenario, schedule, watch)
    # It may have ended early: later looks were not taken.
    taken = int(np.searchsorted(look_steps, len(losses), "right"))
    return Progress(
        loss=losses,
        looks=look_steps[:taken],
        accuracy={split: shares[:taken] for split, shares in accuracy.items()},
        spaced=min(taken, len(looks)),
        diverged=run.diverged,
    )


def curve_until_divergence(
    curve: Sequence[Mapping[str, float]],
    *,
    ends_well: bool = True,
) -> Content:
    """Return ``training`` of result.json, and ``diverged`` where it has.

    ``training`` holds the steps of ``curve`` before the first whose loss is no number,
    which ``diverged`` names; the number of steps where only the weights after them are
    none (not ``ends_well``).
    """
    for place, step in enumerate(curve):
        if not math.isfinite(step["loss"]):
            return {
                "training": list(curve[:place]),
                "diverged": int(step["iteration"]),
            }
    content: Content = {"training": list(curve)}
    # Every loss is a number: it is of the weights before its step.
    if not ends_well:
        content["diverged"] = len(curve)
    return content


def virtual_training(
    scenario: Scenario,
    schedule: Schedule,
    until: UntilSection | None = None,
) -> Content:
    """Return ``training``, ``accuracy`` and ``diverged`` as result.json, simulated.

    Steps at which the validation vertices were looked at have their ``accuracy``.
    ``until`` and errors are those of `progress_along`.
    """
    progress = progress_along(scenario, lambda: schedule, until=until)
    ends = _ends(scenario, schedule).tolist()
    losses = progress.loss.tolist()
    curve: list[_Step] = []
    step: _Step
    for end, loss in zip(ends, losses, strict=True):
        step = {
            "iteration": len(curve),
            "time": end,
            "loss": loss,
        }
        curve.append(step)
    shares = progress.accuracy["valid"]
    for number, share in zip(progress.looks, shares, strict=True):
        if not np.isnan(share):
            step = curve[number - 1]
            step["accuracy"] = float(share)

    ends_well = progress.diverged is None
    content = curve_until_divergence(curve, ends_well=ends_well)
    if "diverged" not in content:
        accuracy = {}
        for split, shares in progress.accuracy.items():
            last = shares[-1]
            if not np.isnan(last):
                accuracy[split] = float(last)
        content["accuracy"] = accuracy
    return content


def _ends(scenario: Scenario, schedule: Schedule) -> Floats:
    job = build_job(scenario)
    system = system_of(job.settings)
    step_kinds = system.step_kinds if system else ()
    return step_ends(schedule, step_kinds)


#: (Seconds, accuracy) of looks.
Curve: TypeAlias = tuple[tuple[float, float], ...]


def time_looks(looks: Sequence[Look], scenario: Scenario, schedule: Schedule) -> Curve:
    """Return when the weights of looks were there in a schedule that is as long."""
    ends = _ends(scenario, schedule)
    curve = []
    for look in looks:
        seconds = float(ends[look.step - 1])
        curve.append((seconds, look.accuracy))
    return tuple(curve)


def accuracy_curve(scenario: Scenario, schedule: Callable[[], Schedule]) -> list[Look]:
    """Return the evenly spaced looks at a training in virtual time.

    Where the scenario has ``until`` it says of which vertices, and the curve ends where
    that is reached; else of ``valid`` ones, an epoch apart. Raises ScenarioError,
    DataError as `progress_along`; when the training diverges.
    """
    section = scenario.until
    settings = build_job(scenario).settings
    split = section.split if section else "valid"
    # No share is infinite: without a target the curve goes to the end.
    target = section.accuracy if section else np.inf
    progress = progress_along(scenario, schedule, until=section, stops=True)
    # What was reached before it diverged counts.
    if progress.diverged is not None and progress.reach(split, target) is None:
        problem = f"the training diverged after step {progress.diverged}: lower its lr"
        raise ScenarioError(problem, key="job.optimizer")

    train = open_for(settings).train_count
    step_count = len(progress.loss)
    seeds = count_seeds(settings, train, step_count).tolist()
    spaced = slice(progress.spaced)
    steps = progress.looks[spaced].tolist()
    shares = progress.accuracy[split][spaced].tolist()
    looks = []
    for step, accuracy in zip(steps, shares, strict=True):
        look = Look(step, seeds=seeds[step - 1], accuracy=accuracy)
        looks.append(look)
    return looks


class NotReached(ScenarioError):
    """An accuracy that no look of a training holds."""

    nearest = 0.0
    """Share that was held at best."""
    seconds = 0.0
    """When it was held."""
    curve: Curve = ()
    """Every look."""


def look_until(scenario: Scenario, schedule: Callable[[], Schedule]) -> list[Look]:
    """Return the looks up to that at which ``until`` is reached, the first to hold it.

    Raises NotReached when it is not in all steps: the nearest that was held, and when;
    ScenarioError, DataError as `accuracy_curve`.
    """
    section = scenario.until
    if section is None:
        raise ValueError("the scenario has no until")
    schedule = cache(schedule)
    curve = accuracy_curve(scenario, schedule)
    accuracy = np.array([look.accuracy for look in curve])
    place = training_looks.reach(accuracy, section.accuracy)
    if place is not None:
        return curve[: place + 1]

    # Of three looks in a row the worst: what a single lucky look shows is no accuracy.
    levels = training_looks.hold(accuracy)
    best = int(levels.argmax())  # of equal ones the first
    times = time_looks(curve, scenario, schedule())
    seconds, _ = times[best]
    level = levels[best]
    step = curve[best].step
    length = scenario.job.length
    problem = (
        f"{section.accuracy:.2%} of the {section.split} vertices is not reached in "
        f"{length}: at best {HELD} looks in a row hold {level:.2%}, from step {step} "
        f"on, after {format_duration(seconds)}; write more of them, or a lower accuracy"
    )
    error = NotReached(problem, key="until.accuracy")
    error.nearest = float(level)
    error.seconds = seconds
    error.curve = times
    raise error
