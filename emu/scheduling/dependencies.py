"""Start tasks and make flows active: constraints (5)-(11) of the paper.

- (j, n) may start when (j, n - 1) ended and every in-edge delivered iteration n - lag.
  It does so at once or, where it takes a slot, when its turn comes in the pool.
- On an edge that reads the newest, that is the least: the task reads the newest that
  has arrived when it starts, and it starts when nothing else happens at its instant.
- A flow is ready when its source iteration ends, and active when the flow before it on
  its edge has ended too; on a channel, when its turn comes there.
- Within a machine, and on an edge of control (a credit, or to or from a gate),
  delivery is instant. A flow without bytes ends the moment it would become active and
  never counts in a degree.
- What no task would receive is not sent, and what no task sends is not waited for:
  (j, n) needs (j', n - lag) if both have such an iteration.

- A flow ends when its fluid has and its last byte is there. Where nothing is sent that
  is one, see `all_arrived`.

What happens is taken in by `end_task`, `arrive` and `end_fluids`, in any order;
`settle` then draws the consequences of all events of one instant. Rates come after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.scheduling.compiled import apart, inlined
from emu.scheduling.service_clocks import advance, close_first, open_flow
from emu.scheduling.state import (
    BEGUN,
    CALLING,
    GONE,
    OPENED,
    QUEUED,
    TIE,
    WAITING,
    WOKEN,
    Lines,
    State,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from emu.scheduling.compiled_problem import Floats, Ints, Layout

# Slots: tasks of a machine that share a pool, first come first served.
#
# Of those that came at one instant the lower iteration is first, then the task that
# stands first in the job.


@inlined
def queue_up(layout: Layout, state: State, now: float) -> None:
    """Keep of the woken tasks those that start at once; see `Layout.last`."""
    _queue_up(layout.last, state.woken, state.queued, state.came, state.length, now)


@apart
def _queue_up(
    last: NDArray[np.bool_],
    woken: Ints,
    queued: Ints,
    came: Floats,
    length: Ints,
    now: float,
) -> None:
    kept = 0
    for i in range(length[WOKEN]):
        task = woken[i]
        if not last[task]:
            woken[kept] = task
            kept += 1
        else:
            queued[length[QUEUED]] = task
            length[QUEUED] += 1
            came[task] = now
    length[WOKEN] = kept


@inlined
def _is_before(came: Floats, started: Ints, task: int, other: int) -> bool:
    """Return True where ``task`` has come to wait for a slot before ``other``."""
    if abs(came[task] - came[other]) > TIE * came[other]:
        return bool(came[task] < came[other])
    if started[task] != started[other]:
        return bool(started[task] < started[other])
    return task < other


@inlined
def grant(layout: Layout, state: State) -> None:
    """Wake the waiting tasks that get a slot or need none, to read the newest."""
    _grant(
        layout.takes,
        state.free,
        state.queued,
        state.came,
        state.started,
        state.woken,
        state.length,
    )


@apart
def _grant(
    takes: Ints,
    free: Ints,
    queued: Ints,
    came: Floats,
    started: Ints,
    woken: Ints,
    length: Ints,
) -> None:
    while True:
        place = -1
        for i in range(length[QUEUED]):
            task = queued[i]
            pool = takes[task]
            if (pool < 0 or free[pool] > 0) and (
                place < 0 or _is_before(came, started, task, queued[place])
            ):
                place = i
        if place < 0:
            return
        task = queued[place]
        length[QUEUED] -= 1
        queued[place] = queued[length[QUEUED]]
        if takes[task] >= 0:
            free[takes[task]] -= 1
        woken[length[WOKEN]] = task
        length[WOKEN] += 1


# Channels: flows that go one after the other, as over one TCP connection.
#
# A flow stands in the line of its channel from when it is ready. Its turn comes when
# all before it have ended. Of those that got ready at one instant the first is the one
# that serves the lowest iteration, then the one whose edge is first by
# `JobArrays.rank`. So turns are given when nothing else happens at an instant any
# more, as slots are.
#
# What is handed over within a machine stands in no line, and a flow without bytes
# does.

# Columns of Lines.place and of Lines.tally.
EDGE, TURN = range(2)
FIRST, JOINED, ADMITTED, LEFT = range(4)


@inlined
def has_channel(layout: Layout, edge: int) -> bool:
    """Return True where the flows of ``edge`` between machines go over a channel."""
    return layout.channel.size > 0 and layout.channel[edge] >= 0


@inlined
def _call(lines: Lines, length: Ints, channel: int) -> None:
    lines.calling[length[CALLING]] = channel
    length[CALLING] += 1


@inlined
def join(layout: Layout, state: State, edge: int, iteration: int, now: float) -> None:
    """Let a flow stand in line that is ready now."""
    turn = iteration + layout.lag[edge]
    channel = layout.channel[edge]
    _join(state.lines, state.length, layout.rank, channel, edge, turn, now)


@apart
def _join(
    lines: Lines,
    length: Ints,
    rank: Ints,
    channel: int,
    edge: int,
    turn: int,
    now: float,
) -> None:
    tally = lines.tally[channel]
    hole = tally[FIRST] + tally[JOINED]
    while hole > tally[FIRST] + tally[ADMITTED]:
        other, its_turn = lines.place[hole - 1]
        if now - lines.came[hole - 1] > TIE * now or its_turn < turn:
            break
        if its_turn == turn and rank[other] < rank[edge]:
            break
        lines.place[hole, EDGE], lines.place[hole, TURN] = other, its_turn
        lines.came[hole] = lines.came[hole - 1]
        hole -= 1
    lines.place[hole, EDGE], lines.place[hole, TURN] = edge, turn
    lines.came[hole] = now
    if tally[JOINED] == tally[LEFT]:  # the line was empty
        _call(lines, length, channel)
    tally[JOINED] += 1


@inlined
def leave(layout: Layout, state: State, edge: int) -> None:
    """Take in that the flow of ``edge`` whose turn it was has ended."""
    _leave(state.lines, state.length, layout.channel[edge])


@apart
def _leave(lines: Lines, length: Ints, channel: int) -> None:
    tally = lines.tally[channel]
    tally[LEFT] += 1
    if tally[JOINED] > tally[LEFT]:
        _call(lines, length, channel)


@inlined
def give_turns(state: State) -> None:
    """Let the first flow in the line of every free channel become active.

    To be called when nothing else happens at this instant any more.
    """
    _give_turns(state.lines, state.waiting, state.length)


@apart
def _give_turns(lines: Lines, waiting: Ints, length: Ints) -> None:
    for i in range(length[CALLING]):
        tally = lines.tally[lines.calling[i]]
        waiting[length[WAITING]] = lines.place[tally[FIRST] + tally[ADMITTED], EDGE]
        length[WAITING] += 1
        tally[ADMITTED] += 1
    length[CALLING] = 0


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
        if state.allowed[layout.in_edge[i]] <= iteration:
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
    state.allowed[edge] += 1
    task = layout.destination[edge]
    if state.allowed[edge] == state.started[task] + 1:
        state.missing[task] -= 1
        if state.missing[task] == 0 and state.started[task] == state.ended[task]:
            _wake(state, task)
    if state.delivered[edge] == layout.sent[edge]:
        state.allowed[edge] = layout.iterations


@inlined
def end_task(layout: Layout, state: State, task: int, now: float) -> None:
    """Take in that the running iteration of ``task`` ended."""
    iteration = state.ended[task]
    state.ended[task] += 1
    logged = state.log.task_end.shape[1] > 0
    if logged:
        state.log.task_end[task, iteration] = now
    if layout.pool_slots.size > 0 and layout.frees[task] >= 0:
        state.free[layout.frees[task]] += 1
    if state.started[task] < layout.rounds[task] and state.missing[task] == 0:
        _wake(state, task)
    for i in range(layout.out_start[task], layout.out_start[task + 1]):
        edge = layout.out_edge[i]
        if iteration >= layout.sent[edge]:
            continue
        state.ready[edge] += 1
        if state.log.flow_ready.shape[1] > 0:
            state.log.flow_ready[edge, iteration] = now
        if layout.group[edge] < 0:
            if logged:
                state.log.flow_start[edge, iteration] = now
                state.log.flow_end[edge, iteration] = now
            _deliver(layout, state, edge)
        else:
            _await_turn(layout, state, edge, iteration, now)


@inlined
def _await_turn(
    layout: Layout, state: State, edge: int, iteration: int, now: float
) -> None:
    """Let a flow that is ready wait for those before it, on its channel or its edge."""
    if has_channel(layout, edge):
        join(layout, state, edge, iteration, now)
    elif state.ready[edge] == state.delivered[edge] + 1:
        _queue(state, edge)


@inlined
def _end_flow(layout: Layout, state: State, edge: int, now: float) -> None:
    """Take in that the present flow of ``edge`` ended."""
    if state.log.flow_end.shape[1] > 0:
        state.log.flow_end[edge, state.delivered[edge]] = now
    _deliver(layout, state, edge)
    if has_channel(layout, edge):
        leave(layout, state, edge)
    elif state.ready[edge] > state.delivered[edge]:
        _queue(state, edge)


@inlined
def all_arrived(layout: Layout, state: State) -> None:
    """Have every byte there as soon as the fluid has served it, from now on."""
    for edge in range(state.arrived.size):
        state.arrived[edge] = layout.iterations


@inlined
def arrive(layout: Layout, state: State, edge: int, now: float) -> bool:
    """Take in that the last byte of the present flow of ``edge`` is there.

    Returns True where that ends the flow: its fluid has ended before.
    """
    state.arrived[edge] = state.delivered[edge] + 1
    if state.served[edge] <= state.delivered[edge]:
        return False
    _end_flow(layout, state, edge, now)
    return True


@inlined
def end_fluids(
    layout: Layout, state: State, instant: float, now: float, step: float
) -> None:
    """Take flows whose mark is reached by ``instant`` out of the network, and ties.

    Their edges are appended to ``state.gone``, which the caller empties. Those that
    have not arrived keep their destination waiting, and the next flow of their edge.
    With a ``step`` above 0 the mark may have been passed since the step before.
    """
    for block in range(state.soonest.size):
        if state.soonest[block] > instant:
            continue
        first, end = block << layout.block_bits, (block + 1) << layout.block_bits
        for group in range(first, min(end, state.finish.size)):
            if state.finish[group] <= instant:
                _end_first_fluids(layout, state, group, now, step)


@inlined
def all_known(layout: Layout, state: State, instant: float) -> bool:
    """Return True where all flows have arrived whose fluids end by that instant."""
    for edge in range(state.served.size):
        if state.served[edge] > state.delivered[edge]:
            return False
    for group in range(state.finish.size):
        if not 0.0 <= state.finish[group] <= instant:
            continue
        first = layout.slot[group]
        ties = state.mark[first] * (1.0 + TIE)
        for place in range(first, first + state.active[group]):
            edge = state.mark_edge[place]
            if state.mark[place] <= ties and (
                state.arrived[edge] <= state.delivered[edge]
            ):
                return False
    return True


@inlined
def _end_first_fluids(
    layout: Layout, state: State, group: int, now: float, step: float
) -> None:
    first = layout.slot[group]
    mark = state.mark[first]
    if step > 0.0:
        advance(state, group, now)
        mark = max(mark, state.service[group])
    state.service[group] = mark
    state.since[group] = now
    while state.active[group] > 0 and state.mark[first] <= mark * (1.0 + TIE):
        edge = close_first(layout, state, group, now)
        state.gone[state.length[GONE]] = edge
        state.length[GONE] += 1
        state.served[edge] = state.delivered[edge] + 1
        if state.arrived[edge] > state.delivered[edge]:
            _end_flow(layout, state, edge, now)


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
            if has_channel(layout, edge):
                leave(layout, state, edge)
                break
    state.length[WAITING] = 0


@inlined
def settle(layout: Layout, state: State, volumes: Floats, now: float) -> None:
    """Open the flows and start the tasks that the ends of this instant allow.

    They are appended to ``state.opened`` and ``state.begun``, which the caller empties.
    """
    _open_waiting(layout, state, volumes, now)
    if layout.last.size > 0:
        queue_up(layout, state, now)
    _start_woken(layout, state, now)


@inlined
def _start_woken(layout: Layout, state: State, now: float) -> None:
    for i in range(state.length[WOKEN]):
        _start(layout, state, state.woken[i], now)
    state.length[WOKEN] = 0


@inlined
def _read_newest(layout: Layout, state: State, task: int) -> None:
    """Decide what ``task`` reads in the iteration that starts now."""
    iteration = state.started[task]
    for i in range(layout.in_start[task], layout.in_start[task + 1]):
        edge = layout.in_edge[i]
        if layout.latest[edge]:
            state.log.reads[edge, iteration] = state.delivered[edge] - 1


@inlined
def _start(layout: Layout, state: State, task: int, now: float) -> None:
    if state.log.task_start.shape[1] > 0:
        state.log.task_start[task, state.started[task]] = now
    if layout.latest.size > 0:
        _read_newest(layout, state, task)
    state.started[task] += 1
    _await_inputs(layout, state, task)
    state.begun[state.length[BEGUN]] = task
    state.length[BEGUN] += 1


@inlined
def grant_slots(layout: Layout, state: State, now: float) -> bool:
    """Start the tasks that get a slot; return True where there are any.

    To be called when nothing else happens at this instant any more: all that come at
    one instant are known then. Those that waited for that alone, to read the newest,
    start as well.
    """
    grant(layout, state)
    granted = bool(state.length[WOKEN] > 0)
    _start_woken(layout, state, now)
    return granted
