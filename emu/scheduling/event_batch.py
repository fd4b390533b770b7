"""Ends that come from outside, taken in at their times: many instants in one call.

Every call from Python hands over the hundred arrays of layout and state, 10 to 20 us,
and an online run has two instants per event: for 1,027 flows in 8 s the coordinator
took 0.25 s of CPU with a call for each end and each instant, and takes 0.20.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.scheduling import dependencies
from emu.scheduling import dependencies as progress
from emu.scheduling.compiled import hot, inlined, spliced
from emu.scheduling.compiled_problem import Floats, Ints, plain
from emu.scheduling.dependencies import give_turns
from emu.scheduling.rate_changes import (
    RateChanges,
    change_capacities,
    changed_segments,
    next_change,
)
from emu.scheduling.rates import set_rates
from emu.scheduling.service_clocks import heap_pop, heap_push, next_end
from emu.scheduling.state import BEGUN, CALLING, GATES, GONE, OPENED, QUEUED, TIE, State

if TYPE_CHECKING:
    from emu.problem import Job
    from emu.scheduling.compiled_problem import Layout

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
        heap_push(state.due, state.due_task, 0, running, now + seconds, task)
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
        heap_pop(state.due, state.due_task, 0, state.length[GATES])
        state.length[GATES] -= 1
        gates.task[place] = task
        gates.iteration[place] = state.ended[task]
        gates.start[place] = gates.since[task]
        gates.ended[0] += 1
        dependencies.end_task(layout, state, task, now)
        ended = True
    return ended


#: Instants that one call has room for.
ROOM = 64
#: Outcomes of a call: all is taken in, there is no room left, an end cannot be.
DONE, FULL, IMPOSSIBLE = range(3)


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


@inlined
def _is_full(state: State, found: Instants, count: int) -> bool:
    """Return True where no room is left for an instant at which everything happens."""
    return bool(
        count == found.time.size
        or found.tasks[count] + state.started.size > found.task.size
        or found.flows[count] + state.delivered.size > found.flow.size
        or found.lines[count] + 2 * state.delivered.size > found.edge.size
    )


@inlined
def _can_end(state: State, board: RateChanges, ends: Ends, place: int) -> bool:
    """Return True where the task of an end is running, or its flow on its way."""
    task, edge, iteration = ends.task[place], ends.edge[place], ends.iteration[place]
    if task >= 0:
        return bool(state.ended[task] == iteration < state.started[task])
    return bool(
        state.delivered[edge] == iteration == board.iteration[edge]
        and state.ready[edge] > iteration >= state.arrived[edge]
    )


@inlined
def _take_in(layout: Layout, state: State, ends: Ends, place: int, now: float) -> bool:
    """Take an end in; return True where anything may follow from it."""
    if ends.task[place] < 0:
        return bool(progress.arrive(layout, state, ends.edge[place], now))
    progress.end_task(layout, state, ends.task[place], now)
    return True


@inlined
def _add_line(
    found: Instants, row: int, edge: int, iteration: int, amount: float, rate: float,
    now: float,
) -> None:  # fmt: skip
    found.edge[row], found.iteration[row] = edge, iteration
    found.amount[row], found.rate[row], found.since[row] = amount, rate, now


@spliced
def _decide(
    layout: Layout, state: State, volumes: Floats, gates: Gates, board: RateChanges,
    now: float,
) -> int:  # fmt: skip
    """Draw the consequences of an instant; return how many lines changed."""
    state.length[BEGUN] = 0
    state.length[OPENED] = 0
    more = True
    while more:
        progress.settle(layout, state, volumes, now)
        start_gates(state, gates, now)
        more = end_gates(layout, state, gates, now * (1.0 + TIE), now)
        if not more and state.length[CALLING] > 0:
            give_turns(state)
            more = True
        if not more and state.length[QUEUED] > 0:
            more = progress.grant_slots(layout, state, now)
            start_gates(state, gates, now)
    set_rates(layout, state, now)
    return changed_segments(layout, state, board, now)


@inlined
def _note(
    state: State, volumes: Floats, gates: Gates, board: RateChanges, changed: int,
    found: Instants, count: int, now: float,
) -> None:  # fmt: skip
    """Append what was begun, opened and changed to the part of instant ``count``."""
    tasks, flows, lines = found.tasks[count], found.flows[count], found.lines[count]
    for i in range(state.length[BEGUN]):
        found.task[tasks] = state.begun[i]
        found.task_iteration[tasks] = state.started[state.begun[i]] - 1
        tasks += 1
    for i in range(state.length[OPENED]):
        found.flow[flows] = state.opened[i]
        found.flow_iteration[flows] = state.delivered[state.opened[i]]
        flows += 1
    for i in range(state.length[GONE]):
        edge = state.gone[i]
        iteration = state.served[edge] - 1
        _add_line(found, lines, edge, iteration, volumes[edge, iteration], 0.0, now)
        lines += 1
    found.served[count] = state.length[GONE]
    for i in range(changed):
        edge = board.edge[i]
        rate, iteration = board.rate[edge], board.iteration[edge]
        _add_line(found, lines, edge, iteration, board.served[i], rate, now)
        lines += 1
    found.time[count] = now
    found.tasks[count + 1] = tasks
    found.flows[count + 1] = flows
    found.lines[count + 1] = lines
    found.gates[count + 1] = gates.ended[0]


@inlined
def _least_end(state: State, holds: Floats, ahead: float, now: float) -> float:
    """Return ``ahead``, or before it when a task that began may end."""
    for i in range(state.length[BEGUN]):
        if holds.shape[1] == 0:
            return -math.inf
        task = state.begun[i]
        ahead = min(ahead, now + holds[task, state.started[task] - 1])
    return ahead


@inlined
def _next(layout: Layout, state: State) -> float:
    """Return the time of the next internal event, which no process reports."""
    return min(next_end(layout, state), next_gate(state), next_change(layout, state))


@hot
def pass_instants(
    layout: Layout,
    state: State,
    volumes: Floats,
    holds: Floats,
    gates: Gates,
    board: RateChanges,
    ends: Ends,
    taken: int,
    now: float,
    until: float,
    ahead: float,
    found: Instants,
) -> tuple[int, int, float, float, float, int]:
    """Take in ends from ``taken`` on, each at its time, while there is room.

    Ends, of fluids and gates too, and changes of capacities are taken in by ``until``,
    and before ``ahead`` as long as nothing unknown can come before them: every fluid
    that ended has arrived, and no task began that may have ended by then. An end older
    than ``now`` counts as now; what has one time is of one instant, and a flow that
    arrives before its fluid's end makes none. With a negative ``taken`` the schedule
    begins.

    Parameters
    ----------
    holds
        The least that every iteration of every task takes, seconds; without columns
        nothing is known of it.

    Returns
    -------
    taken, count
        Ends taken in by now, and instants in ``found``.
    now, next
        Time of the last instant, and of the next end of a fluid or a gate, or change.
    ahead
        Rest of it.
    how
        `DONE`; `FULL`: to be called again; `IMPOSSIBLE`: the end at ``taken`` is.
    """
    count, begins = 0, taken < 0
    gates.ended[0] = 0
    if begins:
        progress.begin(layout, state)
        taken = 0
    while not _is_full(state, found, count):
        end = next_end(layout, state)
        reported = ends.time[taken] if taken < ends.time.size else math.inf
        state.length[GONE] = 0
        if begins:
            begins = False
        else:
            change = next_change(layout, state)
            at = min(end, reported, next_gate(state), change)
            if at == math.inf or not (
                at <= until
                or (at < ahead and progress.all_known(layout, state, at * (1.0 + TIE)))
            ):
                return taken, count, now, _next(layout, state), ahead, DONE
            at = max(now, at)
            instant = at * (1.0 + TIE)
            happens = end <= instant or change <= instant
            while taken < ends.time.size and ends.time[taken] <= instant:
                if not _can_end(state, board, ends, taken):
                    return taken, count, now, end, ahead, IMPOSSIBLE
                happens |= _take_in(layout, state, ends, taken, at)
                taken += 1
            happens |= end_gates(layout, state, gates, instant, at)
            if not happens:
                continue
            now = at
            if end <= instant:
                progress.end_fluids(layout, state, instant, now, 0.0)
            change_capacities(layout, state, instant)
        changed = _decide(layout, state, volumes, gates, board, now)
        ahead = _least_end(state, holds, ahead, now)
        _note(state, volumes, gates, board, changed, found, count, now)
        count += 1
    return taken, count, now, _next(layout, state), ahead, FULL
