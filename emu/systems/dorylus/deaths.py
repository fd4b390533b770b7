"""Lambdas that die or do not answer in time, decided before the run; what all cost.

A lambda ends in one of three ways. It answers; it dies in the middle of its work and
sends nothing; or it does all of its work, sends its gradient, and answers too late.
Their server notices at its timeout and launches another, which may end so as well.

The timeout follows from times that are known before the run, so that simulation and
sockets agree: of what a lambda computes, without what it pulls and returns. A lambda
that is slow, and answers, is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emu.problem import Schedule
from emu.systems.dorylus.steps import TENSORS

if TYPE_CHECKING:
    from emu.systems.dorylus.sections import DyingLambdasSection

Array = NDArray[np.float64]

#: Ends of a lambda, by epoch in ``Task.settings["ends"]``; idle where none is launched.
IDLE = "idle"
ANSWERS = "answers"
DIES = "dies"
LATE = "late"
#: Weight of what was smoothed so far beside the next time (released code).
_KEEP = 0.95
#: Which lambda: its job, its interval, its tensor task, and its attempt from 1 on.
_Key = tuple[str, int, int, int]


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
        return {"ends": [*self.ends], "done": [*self.done]}


def draw_attempts(
    dying: DyingLambdasSection, seed: int, shape: tuple[int, int, int]
) -> dict[tuple[int, int], list[Attempt]]:
    """Return the attempts of each (interval, number of tensor task).

    Those alone are among them that need more than one in an epoch. Epochs that follow
    change none before.

    ``shape``: epochs, intervals, tensor tasks of an interval. Raises UnansweredLambda
    when as many as may be launched end without an answer.
    """
    if not dying.share:
        return {}
    draws = np.random.default_rng([seed, 8]).random((*shape, dying.attempts, 3))
    dies = draws[..., 0] < dying.share
    deaths = np.cumprod(dies, axis=-1).sum(axis=-1)
    if (deaths == dying.attempts).any():
        n, i, k = np.argwhere(deaths == dying.attempts)[0]
        raise UnansweredLambda(
            f"{dying.attempts} lambdas in a row do not answer, the first time for "
            f"tensor task {k} of interval {i} in epoch {n}: lower share, or raise "
            "attempts"
        )
    attempts_by_key: dict[tuple[int, int], list[Attempt]] = {}
    for i, k in np.argwhere(deaths.any(axis=0)).tolist():
        failures = deaths[:, i, k]
        attempts_by_key[i, k] = []
        for number in range(failures.max() + 1):
            _, late, part = draws[:, i, k, number].T
            fates = [number > failures, number == failures, late < dying.late]
            ends = np.select(fates, [IDLE, ANSWERS, LATE], DIES).tolist()
            shares = np.select(fates, [0.0, 1.0, 1.0], part).tolist()
            attempts_by_key[i, k].append(Attempt(tuple(ends), tuple(shares)))
    return attempts_by_key


def timeouts(dying: DyingLambdasSection, work: Array) -> Array:
    """Return how long a server waits for an answer, shape (epochs, servers, steps).

    It is ``ratio`` times the smoothed time of that step on that server, in epochs that
    have ended, interval by interval: 0.95 of what it was and 0.05 of the next time.
    ``work``: seconds of the lambda that answers, shape (epochs, servers, intervals of
    each, steps).
    """
    seconds = np.full((len(work), work.shape[1], work.shape[3]), dying.timeout)
    mean = work[0, :, 0]
    for n in range(1, len(work)):
        for each in np.moveaxis(work[n - 1], 1, 0):
            mean = _KEEP * mean + (1 - _KEEP) * each
        seconds[n] = np.maximum(dying.timeout, dying.ratio * mean)
    return seconds


def function_times(
    schedule: Schedule,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the seconds of every lambda that answers, and of every other one.

    From the end of its launch to its answer, to its death, or to when its server has
    launched another and it has sent its own answer.
    """
    job = schedule.problem.job
    ends = schedule.task_end
    roles = {
        "launch": "begins",
        "call": "begins",
        "recall": "begins",
        "answer": "answers",
        "held": "late",
        **dict.fromkeys(TENSORS, "works"),
    }
    tasks: dict[str, dict[_Key, int]] = {role: {} for role in roles.values()}
    for position, task in enumerate(job.tasks):
        if task.kind in roles and "tensor" in task.settings:
            own = task.settings
            key = task.job_name, own["interval"], own["tensor"], own.get("attempt", 1)
            # The launch where there is one, else the call.
            tasks[roles[task.kind]].setdefault(key, position)
    answers = [np.zeros(0)]
    losses = [np.zeros(0)]
    for key, first in tasks["begins"].items():
        work = tasks["works"].get(key)
        answer = tasks["answers"].get((*key[:3], 1))
        if answer is None or work is None:
            continue
        fates = np.array(job.tasks[work].settings.get("ends", [ANSWERS]))
        fates = np.resize(fates, job.iterations)
        for fate, last in (
            (ANSWERS, answer),
            (DIES, work),
            (LATE, tasks["late"].get(key, work)),
        ):
            ran = (ends[last] - ends[first])[fates == fate]
            (answers if fate == ANSWERS else losses).append(ran[~np.isnan(ran)])
    return np.concatenate(answers), np.concatenate(losses)
