"""Moves of the improved search, and the random numbers that choose them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.placement.space import TOLERANCE
from emu.scheduling.compiled import compiled

if TYPE_CHECKING:
    from emu.placement.candidates import Units
    from emu.scheduling.compiled_problem import Floats, Ints

RandomState = NDArray[np.uint64]

#: The moves, and the part of all proposals that each of them takes.
MOVE, SWAP, MOVE_TEAM, SWAP_TEAMS, RESPLIT = range(5)
SHARES = np.array([0.35, 0.35, 0.10, 0.10, 0.10])


class TeamArrays(NamedTuple):
    """Hubs with their followers: team t is ``unit[start[t]:start[t+1]]``, hub first."""

    start: Ints
    unit: Ints


@compiled
def uniform(state: RandomState) -> float:
    """Return the next number in [0, 1) of a SplitMix64 generator with one word."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return float(z >> np.uint64(11)) * 2.0**-53


@compiled
def below(state: RandomState, bound: int) -> int:
    """Return a random integer in [0, bound)."""
    return int(uniform(state) * bound)


@compiled
def propose(
    u: Units, teams: TeamArrays, state: RandomState, machines: Ints, kind: int
) -> None:
    """Change ``machines`` in place by one random move of a kind."""
    units, count = machines.size, u.used.shape[0]
    if kind == RESPLIT:
        _resplit(u, state, machines)
    elif kind == MOVE:
        machines[below(state, units)] = below(state, count)
    elif kind == SWAP:
        a, b = below(state, units), below(state, units)
        machines[a], machines[b] = machines[b], machines[a]
    elif kind == MOVE_TEAM:
        team = below(state, teams.start.size - 1)
        target = below(state, count)
        for i in range(teams.start[team], teams.start[team + 1]):
            machines[teams.unit[i]] = target
    elif kind == SWAP_TEAMS:
        _swap_teams(teams, state, machines)


@compiled
def _swap_teams(teams: TeamArrays, state: RandomState, machines: Ints) -> None:
    """Let two teams of equal size change places, member by member."""
    a, b = below(state, teams.start.size - 1), below(state, teams.start.size - 1)
    size = teams.start[a + 1] - teams.start[a]
    if teams.start[b + 1] - teams.start[b] != size:
        return
    for i in range(size):
        ours, theirs = teams.unit[teams.start[a] + i], teams.unit[teams.start[b] + i]
        machines[ours], machines[theirs] = machines[theirs], machines[ours]


@compiled
def _resplit(u: Units, state: RandomState, machines: Ints) -> None:
    """Deal the units of two machines out anew between them, as far as they fit.

    Connects packings between which no chain of feasible moves and swaps leads.
    """
    count = u.used.shape[0]
    a, b = below(state, count), below(state, count)
    if a == b:
        return
    chosen = np.empty(machines.size, np.int64)
    size = 0
    for unit in range(machines.size):
        if machines[unit] == a or machines[unit] == b:
            chosen[size] = unit
            size += 1
    left = np.empty((2, u.used.shape[1]))
    left[0], left[1] = u.capacity[a] - u.used[a], u.capacity[b] - u.used[b]
    for i in range(size):
        j = i + below(state, size - i)
        chosen[i], chosen[j] = chosen[j], chosen[i]
        unit = chosen[i]
        side = below(state, 2)
        if not _fits(u.demand[unit], left[side]):
            side = 1 - side
        machines[unit] = b if side else a  # may not fit either: then it is refused
        left[side] -= u.demand[unit]


@compiled
def _fits(demand: Floats, left: Floats) -> bool:
    for r in range(left.size):
        if demand[r] > left[r] + abs(left[r]) * TOLERANCE:
            return False
    return True
