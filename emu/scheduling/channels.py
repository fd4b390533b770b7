"""Channels: flows that go one after the other, as over one TCP connection.

A flow stands in the line of its channel from when it is ready. Its turn comes when all
before it have ended. Of those that got ready at one instant the first is the one that
serves the lowest iteration, then the one whose edge is first by `JobArrays.rank`. So
turns are given when nothing else happens at an instant any more, as slots are.

What is handed over within a machine stands in no line, and a flow without bytes does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emu.scheduling.compiled import apart, inlined
from emu.scheduling.state import CALLING, TIE, WAITING, State

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Layout

# Columns of Lines.place and of Lines.tally.
EDGE, TURN = range(2)
FIRST, JOINED, ADMITTED, LEFT = range(4)


@inlined
def has_channel(layout: Layout, edge: int) -> bool:
    """Tell whether the flows of ``edge`` between machines go over a channel."""
    return layout.channel.size > 0 and layout.channel[edge] >= 0


@inlined
def _call(state: State, channel: int) -> None:
    state.lines.calling[state.length[CALLING]] = channel
    state.length[CALLING] += 1


@apart
def join(layout: Layout, state: State, edge: int, iteration: int, now: float) -> None:
    """Let a flow stand in line that is ready now."""
    lines, channel = state.lines, layout.channel[edge]
    tally = lines.tally[channel]
    turn = iteration + layout.lag[edge]
    hole = tally[FIRST] + tally[JOINED]
    while hole > tally[FIRST] + tally[ADMITTED]:
        other, its_turn = lines.place[hole - 1]
        if now - lines.came[hole - 1] > TIE * now or its_turn < turn:
            break
        if its_turn == turn and layout.rank[other] < layout.rank[edge]:
            break
        lines.place[hole, EDGE], lines.place[hole, TURN] = other, its_turn
        lines.came[hole] = lines.came[hole - 1]
        hole -= 1
    lines.place[hole, EDGE], lines.place[hole, TURN] = edge, turn
    lines.came[hole] = now
    if tally[JOINED] == tally[LEFT]:  # nobody stood there
        _call(state, channel)
    tally[JOINED] += 1


@apart
def leave(layout: Layout, state: State, edge: int) -> None:
    """Take in that the flow of ``edge`` whose turn it was has ended."""
    channel = layout.channel[edge]
    tally = state.lines.tally[channel]
    tally[LEFT] += 1
    if tally[JOINED] > tally[LEFT]:
        _call(state, channel)


@apart
def give_turns(state: State) -> None:
    """Let the first flow in the line of every free channel become active.

    To be called when nothing else happens at this instant any more.
    """
    for i in range(state.length[CALLING]):
        tally = state.lines.tally[state.lines.calling[i]]
        place = tally[FIRST] + tally[ADMITTED]
        state.waiting[state.length[WAITING]] = state.lines.place[place, EDGE]
        state.length[WAITING] += 1
        tally[ADMITTED] += 1
    state.length[CALLING] = 0
