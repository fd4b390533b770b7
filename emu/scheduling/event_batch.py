"""Ends that come from outside, taken in at their times: many instants in one call.

An online run has two instants per event, and a call has its price: for 1,027 flows in
8 s the coordinator took 0.25 s of CPU with a call for each end and each instant, and
0.20 with this one. The core takes them in (event_batch.c).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.core import lib
from emu.scheduling.compiled_problem import Floats, Ints, plain

if TYPE_CHECKING:
    from emu.problem import Job

# Gates: tasks without a process, whose ends no process reports.
#
# A gate takes no time or a stated one, and no bytes come to it or leave it. So the
# scheduler computes its end: at an instant gates end before slots are granted, as the
# tasks of a simulation do.


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
    """

    times: Floats
    since: Floats
    task: Ints
    iteration: Ints
    start: Floats


def gates_of(job: Job, times: Floats | None) -> Gates:
    """Return the gates of ``job``, none of which has begun.

    Raises
    ------
    ValueError
        When there are gates and no times.
    """
    gates = np.array([task.gate for task in job.tasks], dtype=np.bool_)
    if not gates.any():
        times = np.empty((0, 0))
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
    )


#: Instants that one call has room for.
ROOM = 64
#: Outcomes of a call: all is taken in, there is no room left, an end cannot be.
DONE, FULL, IMPOSSIBLE = lib.DONE, lib.FULL, lib.IMPOSSIBLE


class Ends(NamedTuple):
    """Ends of tasks and arrivals of flows, in the order of their times, shape (ends,).

    Parameters
    ----------
    time
        Seconds.
    task, edge
        Task that ended or edge whose flow arrived; the other is -1.
    iteration
        Iteration of it.
    """

    time: Floats
    task: Ints
    edge: Ints
    iteration: Ints


class Instants(NamedTuple):
    """Decisions at some instants, in lists of which each has a part.

    Parameters
    ----------
    time
        Time of every instant, seconds.
    served
        Flows whose fluid ended; their lines are the first of the instant.
    tasks, flows, lines, gates
        Beginning of the part of every instant; the last ends where the next would
        begin. Those of ``gates`` are parts of the lists in `Gates`.
    task, task_iteration, flow, flow_iteration
        Tasks that started, and flows that became active.
    edge, iteration, amount, rate, since
        The lines that changed: which flow, bytes served by ``since``, bytes per second
        from then on.
    """

    time: Floats
    served: Ints
    tasks: Ints
    flows: Ints
    lines: Ints
    gates: Ints
    task: Ints
    task_iteration: Ints
    flow: Ints
    flow_iteration: Ints
    edge: Ints
    iteration: Ints
    amount: Floats
    rate: Floats
    since: Floats


def room_for(tasks: int, edges: int) -> Instants:
    """Return room for `ROOM` usual instants, and one at which everything happens."""
    few, some, more = tasks + ROOM, edges + ROOM, 2 * edges + 8 * ROOM

    def numbers(size: int) -> Ints:
        return np.zeros(size, np.int64)

    return Instants(
        time=np.empty(ROOM),
        served=numbers(ROOM),
        tasks=numbers(ROOM + 1),
        flows=numbers(ROOM + 1),
        lines=numbers(ROOM + 1),
        gates=numbers(ROOM + 1),
        task=numbers(few),
        task_iteration=numbers(few),
        flow=numbers(some),
        flow_iteration=numbers(some),
        edge=numbers(more),
        iteration=numbers(more),
        amount=np.empty(more),
        rate=np.empty(more),
        since=np.empty(more),
    )
