"""Times that the lambdas of a schedule are paid for, and those that gave no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.systems.dorylus.deaths import ANSWERS, DIES, LATE
from emu.systems.dorylus.steps import TENSORS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import Job, Schedule

#: Which lambda: its job, its interval, its tensor task, and its attempt from 1 on.
_Key = tuple[str, int, int, int]


def function_times(
    schedule: Schedule,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the seconds of every lambda that answers, and of every other one.

    From the end of its launch to its answer, to its death, or to when its server has
    launched another and it has sent its own answer.
    """
    job, ends = schedule.problem.job, schedule.task_end
    tasks = _by_key(job)
    answered, lost = [np.zeros(0)], [np.zeros(0)]
    for key, first in tasks["begins"].items():
        work, answer = tasks["works"].get(key), tasks["answers"].get((*key[:3], 1))
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
            (answered if fate == ANSWERS else lost).append(ran[~np.isnan(ran)])
    return np.concatenate(answered), np.concatenate(lost)


def _by_key(job: Job) -> dict[str, dict[_Key, int]]:
    """Return the tasks of every lambda by what they are to it."""
    found: dict[str, dict[_Key, int]] = {
        what: {} for what in ("begins", "works", "answers", "late")
    }
    roles = {
        "launch": "begins",
        "call": "begins",
        "recall": "begins",
        "answer": "answers",
        "held": "late",
        **dict.fromkeys(TENSORS, "works"),
    }
    for position, task in enumerate(job.tasks):
        if task.kind in roles and "tensor" in task.settings:
            own = task.settings
            attempt = own.get("attempt", 1)
            key = task.job_name, own["interval"], own["tensor"], attempt
            # The launch where there is one, else the call.
            found[roles[task.kind]].setdefault(key, position)
    return found
