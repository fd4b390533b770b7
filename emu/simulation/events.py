"""The event loop: virtual time drives the scheduler."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.scheduling import dependencies as progress
from emu.scheduling.compiled import compiled, hot, inlined
from emu.scheduling.dependencies import give_turns
from emu.scheduling.rate_changes import (
    RateChanges,
    change_capacities,
    changed_segments,
    new_rate_changes,
    next_change,
)
from emu.scheduling.rates import set_rates
from emu.scheduling.service_clocks import heap_pop, heap_push, next_end
from emu.scheduling.state import BEGUN, CALLING, GONE, OPENED, QUEUED, TIE, State

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Floats, Ints, Layout


class RateRecord(NamedTuple):
    """Room for a rate history, see `RateHistory`.

    Parameters
    ----------
    rows
        Number of rows so far, counted even where there is no room for them; its size
        is 0 when nothing is to be recorded.
    """

    rows: Ints
    board: RateChanges
    time: Floats
    edge: Ints
    iteration: Ints
    rate: Floats


@compiled
def new_recorder(edges: int, room: int) -> RateRecord:
    """Return a recorder with ``room`` for rows; -1 records and counts nothing."""
    if room < 0:
        none, nothing = np.empty(0), np.empty(0, np.int64)
        board = RateChanges(nothing, none, nothing, none)
        return RateRecord(nothing, board, none, nothing, nothing, none)
    return RateRecord(
        np.zeros(1, np.int64),
        new_rate_changes(edges),
        np.empty(room),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room),
    )


@inlined
def _record(layout: Layout, state: State, recorder: RateRecord, now: float) -> None:
    if recorder.rows.size == 0:
        return
    board = recorder.board
    for i in range(changed_segments(layout, state, board, now)):
        row = recorder.rows[0]
        if row < recorder.time.size:
            edge = board.edge[i]
            recorder.time[row] = now
            recorder.edge[row] = edge
            recorder.iteration[row] = board.iteration[edge]
            recorder.rate[row] = board.rate[edge]
        recorder.rows[0] += 1


@inlined
def _start_tasks(state: State, times: Floats, running: int, now: float) -> int:
    """Put the tasks that begin now on the heap; return how many then run."""
    for i in range(state.length[BEGUN]):
        task = state.begun[i]
        end = now + times[task, state.started[task] - 1]
        heap_push(state.due, state.due_task, 0, running, end, task)
        running += 1
    state.length[BEGUN] = 0
    state.length[OPENED] = 0
    return running


@hot
def run(
    layout: Layout,
    state: State,
    times: Floats,
    volumes: Floats,
    limit: float,
    step: float,
    recorder: RateRecord,
) -> float:
    """Run the schedule to its end; return the time of the last task's end.

    With a ``step`` above 0 things happen only at multiples of it.
    Returns infinity as soon as the next event lies beyond ``limit``, and NaN when
    tasks are left that nothing would ever start.

    Within an instant the order is no accident. Its ends may enable one another without
    time going on (gates, local handoffs, tasks of no length), so rates are set only
    once it is empty. Turns and slots go after all its ends, whichever came first in the
    arrays: who is served must not depend on the order in a file. Fluids end before
    capacities change, since what ended now had the old ones; and a change to come is
    looked at last, so that it never keeps a finished job going.
    """
    running = 0
    now = makespan = 0.0
    progress.begin(layout, state)
    progress.all_arrived(layout, state)
    while True:
        progress.settle(layout, state, volumes, now)
        running = _start_tasks(state, times, running, now)
        instant = now * (1.0 + TIE)
        if running == 0 or state.due[0] > instant:  # nothing more happens now
            if state.length[CALLING] > 0:
                give_turns(state)
                continue
            if state.length[QUEUED] > 0 and progress.grant_slots(layout, state, now):
                running = _start_tasks(state, times, running, now)
                continue
            set_rates(layout, state, now)
            _record(layout, state, recorder, now)
            flow_end = next_end(layout, state)
            now = min(flow_end, state.due[0]) if running > 0 else flow_end
            if now == math.inf:
                return _checked(layout, state.ended, makespan)
            now = min(now, next_change(layout, state))
            if step > 0.0:
                now = step * math.ceil(now / step * (1.0 - TIE))
            if now > limit:
                return math.inf
            instant = now * (1.0 + TIE)
            if flow_end <= instant:
                state.length[GONE] = 0
                progress.end_fluids(layout, state, instant, now, step)
            change_capacities(layout, state, instant)
        while running > 0 and state.due[0] <= instant:
            task = state.due_task[0]
            heap_pop(state.due, state.due_task, 0, running)
            running -= 1
            progress.end_task(layout, state, task, now)
            makespan = now


@inlined
def _checked(layout: Layout, ended: Ints, makespan: float) -> float:
    for task in range(ended.size):
        if ended[task] < layout.rounds[task]:
            return math.nan
    return makespan
