"""Which task starts and which flow becomes active: constraints (5)-(11) of the paper.

- (j, n) starts when (j, n - 1) ended and every in-edge delivered iteration n - lag.
- A flow is ready when its source iteration ends, and active when the flow before it on
  its edge has ended too.
- Within a machine, and on a credit edge, delivery is instant. A flow without bytes
  ends the moment it would become active and never counts in a degree.
- What nobody would receive is not sent: iteration n goes over an edge only if
  n + lag < N.

Ends are taken in by `end_task` and `end_flow`, in any order; `settle` then draws the
consequences of all events of one instant. Rates come after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.scheduling.compiled import inlined
from emu.scheduling.fluid import close_flow, open_flow
from emu.scheduling.state import BEGUN, OPENED, WAITING, WOKEN, State

if TYPE_CHECKING:
    from emu.scheduling.layout import Floats, Layout


@inlined
def _wake(state: State, task: int) -> None:
    state.woken[state.length[WOKEN]] = task
    state.length[WOKEN] += 1


@inlined
def _queue(state: State, edge: int) -> None:
    state.waiting[state.length[WAITING]] = edge
    state.length[WAITING] += 1


@inlined
def _await_inputs(layout: Layout, state: State, task: int) -> None:
    """Count what the next iteration of ``task`` still needs."""
    iteration = state.started[task]
    missing = 0
    for i in range(layout.in_start[task], layout.in_start[task + 1]):
        edge = layout.in_edge[i]
        if state.delivered[edge] + layout.lag[edge] <= iteration:
            missing += 1
    state.missing[task] = missing


@inlined
def begin(layout: Layout, state: State) -> None:
    """Wake every task whose first iteration needs nothing."""
    for task in range(state.started.size):
        _await_inputs(layout, state, task)
        if state.missing[task] == 0:
            _wake(state, task)


@inlined
def _deliver(layout: Layout, state: State, edge: int) -> None:
    """Hand the next iteration of ``edge`` to its destination."""
    state.delivered[edge] += 1
    task = layout.destination[edge]
    if state.delivered[edge] + layout.lag[edge] == state.started[task] + 1:
        state.missing[task] -= 1
        if state.missing[task] == 0 and state.started[task] == state.ended[task]:
            _wake(state, task)


@inlined
def end_task(layout: Layout, state: State, task: int, now: float) -> None:
    """Take in that the running iteration of ``task`` ended."""
    iteration = state.ended[task]
    state.ended[task] += 1
    logged = state.log.task_end.shape[1] > 0
    if logged:
        state.log.task_end[task, iteration] = now
    if state.started[task] < layout.iterations and state.missing[task] == 0:
        _wake(state, task)
    for i in range(layout.out_start[task], layout.out_start[task + 1]):
        edge = layout.out_edge[i]
        if iteration + layout.lag[edge] >= layout.iterations:
            continue
        state.ready[edge] += 1
        if state.log.flow_ready.shape[1] > 0:
            state.log.flow_ready[edge, iteration] = now
        if layout.group[edge] < 0:
            if logged:
                state.log.flow_start[edge, iteration] = now
                state.log.flow_end[edge, iteration] = now
            _deliver(layout, state, edge)
        elif state.ready[edge] == state.delivered[edge] + 1:
            _queue(state, edge)


@inlined
def _arrive(layout: Layout, state: State, edge: int, now: float) -> None:
    """Take in that the last byte of the present flow of ``edge`` is there."""
    if state.log.flow_end.shape[1] > 0:
        state.log.flow_end[edge, state.delivered[edge]] = now
    _deliver(layout, state, edge)
    if state.ready[edge] > state.delivered[edge]:
        _queue(state, edge)


@inlined
def end_flow_at(
    layout: Layout, state: State, group: int, place: int, now: float
) -> None:
    """Take in that the flow at ``place`` of the heap of ``group`` ended."""
    edge = state.mark_edge[layout.slot[group] + place]
    close_flow(layout, state, group, place, now)
    _arrive(layout, state, edge, now)


@inlined
def end_flow(layout: Layout, state: State, edge: int, now: float) -> None:
    """Take in that the flow of ``edge`` ended, wherever its fluid stands."""
    group = layout.group[edge]
    for place in range(state.active[group]):
        if state.mark_edge[layout.slot[group] + place] == edge:
            end_flow_at(layout, state, group, place, now)
            return
    _arrive(layout, state, edge, now)  # its fluid was drained before


@inlined
def drain_flow(layout: Layout, state: State, now: float) -> int:
    """Take one flow whose fluid is at its end out of the network; return its edge.

    It has not arrived: its destination waits, and so does the next flow of its edge.
    -1 when there is none. Rates must be set before the next call.
    """
    for group in range(state.active.size):
        if state.active[group] > 0 and 0.0 <= state.finish[group] <= now:
            edge = int(state.mark_edge[layout.slot[group]])
            close_flow(layout, state, group, 0, now)
            return edge
    return -1


@inlined
def _open_waiting(layout: Layout, state: State, volumes: Floats, now: float) -> None:
    """Make the next flow of every waiting edge active; end those without bytes."""
    logged = state.log.flow_start.shape[1] > 0
    for i in range(state.length[WAITING]):
        edge = state.waiting[i]
        while state.ready[edge] > state.delivered[edge]:
            iteration = state.delivered[edge]
            if logged:
                state.log.flow_start[edge, iteration] = now
            if volumes[edge, iteration] > 0.0:
                open_flow(layout, state, edge, volumes[edge, iteration], now)
                state.opened[state.length[OPENED]] = edge
                state.length[OPENED] += 1
                break
            if logged:
                state.log.flow_end[edge, iteration] = now
            _deliver(layout, state, edge)
    state.length[WAITING] = 0


@inlined
def settle(layout: Layout, state: State, volumes: Floats, now: float) -> None:
    """Open the flows and start the tasks that the ends of this instant allow.

    They are appended to ``state.opened`` and ``state.begun``, which the caller empties.
    """
    _open_waiting(layout, state, volumes, now)
    for i in range(state.length[WOKEN]):
        task = state.woken[i]
        if state.log.task_start.shape[1] > 0:
            state.log.task_start[task, state.started[task]] = now
        state.started[task] += 1
        _await_inputs(layout, state, task)
        state.begun[state.length[BEGUN]] = task
        state.length[BEGUN] += 1
    state.length[WOKEN] = 0
