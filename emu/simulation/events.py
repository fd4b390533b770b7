"""The event loop: virtual time drives the scheduler."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from emu.scheduling import heap, progress
from emu.scheduling.compiled import hot, inlined
from emu.scheduling.rates import set_rates
from emu.scheduling.state import BEGUN, OPENED, TIE, State

if TYPE_CHECKING:
    from emu.scheduling.layout import Floats, Ints, Layout


@inlined
def _end_flows(layout: Layout, state: State, group: int, now: float) -> None:
    """End the flows of ``group`` whose mark is reached, and those tied with them."""
    first = layout.slot[group]
    mark = state.mark[first]
    state.service[group] = mark
    state.since[group] = now
    while state.active[group] > 0 and state.mark[first] <= mark * (1.0 + TIE):
        progress.end_flow_at(layout, state, group, 0, now)


@inlined
def _next_flow_end(finish: Floats) -> float:
    time = math.inf
    for group in range(finish.size):
        time = min(time, finish[group])
    return time


@hot
def run(
    layout: Layout, state: State, times: Floats, volumes: Floats, limit: float
) -> float:
    """Run the schedule to its end; return the time of the last task's end.

    Returns infinity as soon as the next event lies beyond ``limit``, and NaN when
    tasks are left that nothing would ever start.
    """
    end_time, end_task = state.due, state.due_task
    running = 0
    makespan = 0.0
    now = 0.0
    progress.begin(layout, state)
    while True:
        progress.settle(layout, state, volumes, now)
        for i in range(state.length[BEGUN]):
            task = state.begun[i]
            end = now + times[task, state.started[task] - 1]
            heap.push(end_time, end_task, 0, running, end, task)
            running += 1
        state.length[BEGUN] = 0
        state.length[OPENED] = 0
        instant = now * (1.0 + TIE)
        if running == 0 or end_time[0] > instant:
            set_rates(layout, state, now)
            flow_end = _next_flow_end(state.finish)
            now = min(flow_end, end_time[0]) if running > 0 else flow_end
            if now == math.inf:
                break
            if now > limit:
                return math.inf
            instant = now * (1.0 + TIE)
            if flow_end <= instant:
                for group in range(state.finish.size):
                    if state.finish[group] <= instant:
                        _end_flows(layout, state, group, now)
        while running > 0 and end_time[0] <= instant:
            task = end_task[0]
            heap.remove(end_time, end_task, 0, running, 0)
            running -= 1
            progress.end_task(layout, state, task, now)
            makespan = now
    return _checked(layout, state.ended, makespan)


@inlined
def _checked(layout: Layout, ended: Ints, makespan: float) -> float:
    for task in range(ended.size):
        if ended[task] < layout.iterations:
            return math.nan
    return makespan
