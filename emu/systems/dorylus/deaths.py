"""Lambdas that die or do not answer in time, decided before the run; what all cost.

A lambda ends in one of three ways. It answers; it dies in the middle of its work and
sends nothing; or it does all of its work, sends its gradient, and answers too late.
Their server notices at its timeout and launches another, which may end so as well.
`emu.systems.dorylus.job` has the tasks that follow.

The timeout follows from times that are known before the run, so that simulation and
sockets agree: of what a lambda computes, without what it pulls and returns. A lambda
that is slow, and answers, is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from emu.array_types import Ints, Mask
from emu.problem import Job, Schedule
from emu.systems import Floats
from emu.systems.dorylus.steps import TENSORS

if TYPE_CHECKING:
    from emu.systems.dorylus.sections import DyingLambdasSection

#: Ends of a lambda, by epoch in ``Task.settings["ends"]``; idle where none is launched.
IDLE = "idle"
ANSWERS = "answers"
DIES = "dies"
LATE = "late"
#: Weight of what was smoothed so far beside the next time (released code).
_KEEP = 0.95
#: Which lambda: its job, its interval, its tensor task, and its attempt from 1 on.
_Key: TypeAlias = tuple[str, int, int, int]
#: Interval, and number of its tensor task.
TensorTask: TypeAlias = tuple[int, int]


class UnansweredLambda(ValueError):
    """As many lambdas as may be launched for one answer end without it."""


@dataclass(frozen=True)
class Attempt:
    """One lambda of a step of an interval, or one launched instead, by epoch."""

    ends: tuple[str, ...]
    done: tuple[float, ...]
    """Part of its work that is done, 0 where it is idle."""

    @property
    def settings(self) -> dict[str, list[str] | list[float]]:
        """Return it as settings of a task, which travel as lists."""
        return {
            "ends": list(self.ends),
            "done": list(self.done),
        }


def draw_attempts(
    dying: DyingLambdasSection,
    seed: int,
    shape: tuple[int, int, int],
) -> dict[TensorTask, list[Attempt]]:
    """Return the attempts of each (interval, number of tensor task).

    Those alone are among them that need more than one in an epoch. Epochs that follow
    change none before.

    ``shape``: epochs, intervals, tensor tasks of an interval. Raises UnansweredLambda
    when as many as may be launched end without an answer.
    """
    if not dying.share:
        return {}

    # Drawn for the most attempts: fewer epochs or a smaller share change no draw.
    rng = np.random.default_rng([seed, 8])
    # Of three numbers per attempt: whether it fails, whether late, after which part.
    draws = rng.random((*shape, dying.attempts, 3))
    fails = draws[..., 0] < dying.share
    fails_with_all_before = np.cumprod(fails, axis=-1)
    failures = fails_with_all_before.sum(axis=-1)  # before the first answer

    is_silent = failures == dying.attempts
    silent_tasks = np.argwhere(is_silent)
    if len(silent_tasks):
        epoch, interval, tensor = silent_tasks[0]
        raise UnansweredLambda(
            f"{dying.attempts} lambdas in a row do not answer, the first time for "
            f"tensor task {tensor} of interval {interval} in epoch {epoch}: lower "
            "share, or raise attempts"
        )

    attempts: dict[TensorTask, list[Attempt]] = {}
    fails_ever = failures.any(axis=0)
    tensor_tasks = np.argwhere(fails_ever)
    for interval, tensor in tensor_tasks.tolist():
        attempts[interval, tensor] = _attempts_of_task(
            dying,
            counts=failures[:, interval, tensor],
            draws=draws[:, interval, tensor],
        )
    return attempts


def _attempts_of_task(
    dying: DyingLambdasSection,
    counts: Ints,
    draws: Floats,
) -> list[Attempt]:
    """Return the attempts of a tensor task of an interval.

    ``counts``: failures before the first answer, by epoch; ``draws``: three numbers of
    every attempt, shape (epochs, attempts, 3).
    """
    attempts = []
    most = counts.max()
    for number in range(most + 1):
        _, late, part = draws[:, number].T
        # The first that holds decides, and a lambda of which none holds dies.
        fates = [
            number > counts,
            number == counts,
            late < dying.late,
        ]

        ends = np.select(fates, [IDLE, ANSWERS, LATE], DIES)
        shares = np.select(fates, [0.0, 1.0, 1.0], part)
        attempt = Attempt(
            ends=tuple(ends.tolist()),
            done=tuple(shares.tolist()),
        )
        attempts.append(attempt)
    return attempts


def first_attempts(job: Job) -> list[int]:
    """Return the tensor tasks that no lambda has been launched for before."""
    positions = []
    for position, task in enumerate(job.tasks):
        attempt = task.settings.get("attempt", 1)
        if task.kind in TENSORS and attempt == 1:
            positions.append(position)
    return positions


def timeouts(dying: DyingLambdasSection, work: Floats) -> Floats:
    """Return how long a server waits for an answer, shape (epochs, servers, steps).

    It is ``ratio`` times the smoothed time of that step on that server, in epochs that
    have ended, interval by interval: 0.95 of what it was and 0.05 of the next time.
    ``work``: seconds of the lambda that answers, shape (epochs, servers, intervals of
    each, steps).
    """
    epochs, servers, intervals, steps = work.shape
    shape = (epochs, servers, steps)
    seconds = np.full(shape, dying.timeout)
    mean = work[0, :, 0]
    for epoch in range(1, epochs):
        ended_epoch = work[epoch - 1]
        for interval in range(intervals):
            next_time = ended_epoch[:, interval]
            mean = _KEEP * mean + (1 - _KEEP) * next_time
        seconds[epoch] = np.maximum(dying.timeout, dying.ratio * mean)
    return seconds


def end_early(
    dying: DyingLambdasSection,
    job: Job,
    seconds: Floats,
    usual: Floats,
    shape: tuple[int, int],
) -> None:
    """Let lambdas do the part of their work that they do, and servers wait for it.

    ``seconds`` has those of every (task, epoch) if all did all of it, changed in place;
    ``usual`` those of the first lambdas where none is slow, as of those launched later;
    ``shape``: servers, and intervals of each.
    """
    first = first_attempts(job)
    work = seconds[first]
    for row, position in enumerate(first):
        is_relaunched = _ends_of(job, position) != ANSWERS
        work[row] = np.where(is_relaunched, usual[row], work[row])

    # Tasks stand interval by interval, and step by step in each.
    by_step = work.reshape(*shape, -1, job.iterations)
    by_epoch = np.moveaxis(by_step, -1, 0)
    waits = timeouts(dying, by_epoch)
    for position, task in enumerate(job.tasks):
        settings = task.settings
        if task.kind == "recall":
            server = settings["server"]
            tensor = settings["tensor"]
            seconds[position] += waits[:, server, tensor]
        if "done" in settings:
            done = settings["done"]
            seconds[position] *= done[: job.iterations]


def _ends_of(job: Job, position: int) -> NDArray[np.str_]:
    """Return how a lambda's task ends in every epoch; without a word it answers."""
    settings = job.tasks[position].settings
    names = settings.get("ends", [ANSWERS])
    ends = np.array(names)
    return np.resize(ends, job.iterations)


def epochs_of_edge(job: Job, edge: int) -> Mask:
    """Return in which epochs an edge carries what it does, of lambdas that may die.

    A lambda that dies sends nothing, one that is too late its gradient alone.
    """
    ends_of_edge = job.edges[edge]
    source, destination = job.ends(ends_of_edge)
    task = destination
    fates = {ANSWERS, DIES, LATE}
    if source.kind == "held":
        task = source
        fates = {LATE}
    elif source.kind in TENSORS:
        task = source
        fates = {ANSWERS, LATE}
        if destination.kind == "answer":
            fates = {ANSWERS}

    # The first states the version of its weights, however it ends.
    is_stash = destination.kind == "stash"
    if is_stash or "ends" not in task.settings:
        return np.ones(job.iterations, np.bool_)
    ends = task.settings["ends"][: job.iterations]
    carries = [end in fates for end in ends]
    return np.array(carries)


def function_times(schedule: Schedule) -> tuple[Floats, Floats]:
    """Return the seconds of every lambda that answers, and of every other one.

    From the end of its launch to its answer, to its death, or to when its server has
    launched another and it has sent its own answer.
    """
    job = schedule.problem.job
    lambdas = _tasks_of_lambdas(job)
    answer_times = [np.zeros(0)]
    other_times = [np.zeros(0)]
    for key, tasks in lambdas.items():
        name, interval, tensor, _ = key
        first_key = (name, interval, tensor, 1)
        answer = lambdas[first_key]["answer"]  # one of all attempts
        work = tasks["work"]
        launched = schedule.task_end[tasks["launch"]]
        ends = _ends_of(job, work)
        # The end of the task up to which each kind of end is paid for.
        last_tasks = {
            ANSWERS: answer,
            DIES: work,
            LATE: tasks.get("held", work),
        }
        for end, last in last_tasks.items():
            seconds = schedule.task_end[last] - launched
            has_ended = ~np.isnan(seconds)
            is_paid = (ends == end) & has_ended
            group = answer_times if end == ANSWERS else other_times
            group.append(seconds[is_paid])
    return np.concatenate(answer_times), np.concatenate(other_times)


def _tasks_of_lambdas(job: Job) -> dict[_Key, dict[str, int]]:
    """Return by lambda its tasks: ``launch``, ``work``, ``answer``, ``held``."""
    words = dict.fromkeys(TENSORS, "work")
    words["call"] = "launch"
    words["recall"] = "launch"
    lambdas: dict[_Key, dict[str, int]] = {}
    for position, task in enumerate(job.tasks):
        settings = task.settings
        if "tensor" not in settings:
            continue
        key = (
            task.job_name,
            settings["interval"],
            settings["tensor"],
            settings.get("attempt", 1),
        )

        word = words.get(task.kind, task.kind)
        tasks = lambdas.setdefault(key, {})
        # The launch where there is one, else the call.
        tasks.setdefault(word, position)
    return lambdas


class Relaunches(TypedDict):
    """Lambdas that were launched again, as result.json has them."""

    count: int
    late: int
    """Lambdas before them that answered after all, and were dropped."""
    seconds: float
    """Timeouts and launches of all intervals."""


def relaunches(schedule: Schedule) -> Relaunches | None:
    """Return how many lambdas were launched again, None where none may die."""
    count = 0
    late = 0
    seconds = 0.0
    tasks = schedule.problem.job.tasks
    for position, task in enumerate(tasks):
        if task.kind not in {"recall", "held"}:
            continue
        starts = schedule.task_start[position]
        ends_of_task = task.settings["ends"]
        ends = np.array(ends_of_task[: len(starts)])
        if task.kind == "held":
            is_late = ends == LATE
            late += int(np.count_nonzero(is_late))
            continue

        epochs = np.flatnonzero(ends != IDLE)
        count += len(epochs)
        task_ends = schedule.task_end[position]
        waits = task_ends[epochs] - starts[epochs]
        seconds += float(waits.sum())
    if not count:
        return None
    return {
        "count": count,
        "late": late,
        "seconds": seconds,
    }
