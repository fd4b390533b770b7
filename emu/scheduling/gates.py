"""Gates: tasks without a process, whose ends no process reports.

A gate takes no time or a stated one, and no bytes come to it or leave it. So the
scheduler computes its end: at an instant gates end before slots are granted, as the
tasks of a simulation do.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.scheduling import dependencies, heap
from emu.scheduling.compiled import inlined
from emu.scheduling.compiled_problem import Floats, Ints, plain
from emu.scheduling.state import BEGUN, GATES, State

if TYPE_CHECKING:
    from emu.problem import Job
    from emu.scheduling.compiled_problem import Layout


class Gates(NamedTuple):
    """The gates of a job, and those that have ended since they were last looked at.

    The running ones are in the heap `State.due`.

    Parameters
    ----------
    times
        Seconds of (task, iteration), NaN in the rows of tasks that are no gates; no
        columns where no task is.
    since
        When the running iteration of every task began.
    task, iteration, start
        Gates that have ended; there is room for every iteration of every gate.
    ended
        Number of them, one entry.
    """

    times: Floats
    since: Floats
    task: Ints
    iteration: Ints
    start: Floats
    ended: Ints


def gates_of(job: Job, times: Floats | None) -> Gates:
    """Return the gates of ``job``, none of which has begun.

    Raises
    ------
    ValueError
        When there are gates and no times.
    """
    gates = np.array([task.gate for task in job.tasks], dtype=np.bool_)
    if not gates.any():
        times = np.empty((len(job.tasks), 0))
    elif times is None:
        raise ValueError("the job has gates: how long they take must be stated")
    else:
        times = np.where(gates[:, None], times, np.nan)
    room = sum(n for n, gate in zip(job.rounds, gates, strict=True) if gate)
    return Gates(
        times=plain(times),
        since=np.zeros(len(job.tasks)),
        task=np.zeros(room, np.int64),
        iteration=np.zeros(room, np.int64),
        start=np.zeros(room),
        ended=np.zeros(1, np.int64),
    )


@inlined
def start_gates(state: State, gates: Gates, now: float) -> None:
    """Take the gates that begin now out of the tasks to announce to processes."""
    if gates.times.shape[1] == 0:
        return
    others = 0
    for i in range(state.length[BEGUN]):
        task = state.begun[i]
        seconds = gates.times[task, state.started[task] - 1]
        if math.isnan(seconds):
            state.begun[others] = task
            others += 1
            continue
        gates.since[task] = now
        running = state.length[GATES]
        heap.push(state.due, state.due_task, 0, running, now + seconds, task)
        state.length[GATES] += 1
    state.length[BEGUN] = others


@inlined
def next_gate(state: State) -> float:
    """Return when the next gate ends, infinity if none runs."""
    return state.due[0] if state.length[GATES] > 0 else math.inf


@inlined
def end_gates(
    layout: Layout, state: State, gates: Gates, instant: float, now: float
) -> bool:
    """Take in that gates ended by ``instant``; return True where any did."""
    ended = False
    while state.length[GATES] > 0 and state.due[0] <= instant:
        task, place = state.due_task[0], gates.ended[0]
        heap.pop(state.due, state.due_task, 0, state.length[GATES])
        state.length[GATES] -= 1
        gates.task[place] = task
        gates.iteration[place] = state.ended[task]
        gates.start[place] = gates.since[task]
        gates.ended[0] += 1
        dependencies.end_task(layout, state, task, now)
        ended = True
    return ended
