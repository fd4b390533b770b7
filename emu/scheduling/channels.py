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
from emu.scheduling.state import CALLING, TIE, WAITING, Lines, State

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Ints, Layout

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
