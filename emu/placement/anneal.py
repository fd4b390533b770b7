"""Simulated annealing over feasible placements, compiled whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.placement.candidates import Candidates, Units, excess, usage
from emu.placement.chain import (
    ACCEPTED,
    PROPOSED,
    Chain,
    makespan_within,
)
from emu.placement.moves import SHARES, RandomState, TeamArrays, propose, uniform
from emu.placement.symmetry import Symmetry, canonicalise
from emu.scheduling.compiled import compiled

if TYPE_CHECKING:
    from emu.scheduling.compiled_problem import Floats, Ints

ATTEMPTS = 50  # moves tried for one proposal; most fail in a tight cluster


@compiled
def _feasible_neighbour(
    units: Units,
    symmetry: Symmetry,
    teams: TeamArrays,
    state: RandomState,
    machines: Ints,
    candidate: Ints,
) -> bool:
    """Fill ``candidate`` with a feasible placement unlike ``machines``, if one is met.

    Both in canonical form.
    """
    for _ in range(ATTEMPTS):
        candidate[:] = machines
        draw = uniform(state)
        kind = 0
        while kind < SHARES.size - 1 and draw >= SHARES[kind]:
            draw -= SHARES[kind]
            kind += 1
        propose(units, teams, state, candidate, kind)
        canonicalise(symmetry, candidate)
        changed = False
        for unit in range(machines.size):
            changed = changed or candidate[unit] != machines[unit]
        if changed and excess(units.capacity, usage(units, candidate)) == 0.0:
            return True
    return False


@compiled
def anneal(
    c: Candidates,
    symmetry: Symmetry,
    teams: TeamArrays,
    state: RandomState,
    chain: Chain,
    temperatures: Floats,
    best: Floats,
) -> None:
    """Carry ``chain`` on by one proposal per temperature.

    Parameters
    ----------
    state
        Of the random numbers, carried on in place.
    temperatures
        Seconds: a placement that takes t longer is accepted with probability
        exp(-t / temperature). Infinite accepts anything.
    best
        Filled with the best makespan after every proposal.
    """
    candidate = np.empty_like(chain.machines)
    canonicalise(symmetry, chain.machines)
    for step in range(temperatures.size):
        chain.tally[PROPOSED] += 1
        found = _feasible_neighbour(
            c.units, symmetry, teams, state, chain.machines, candidate
        )
        limit = chain.cost[0] - np.log(uniform(state)) * temperatures[step]
        if found:
            makespan = makespan_within(
                c, candidate, limit, False, chain.memory, chain.tally
            )
            if makespan <= limit:
                chain.tally[ACCEPTED] += 1
                chain.machines[:] = candidate
                chain.cost[0] = makespan
                if makespan < chain.cost[1]:
                    chain.cost[1] = makespan
                    chain.best_machines[:] = candidate
        best[step] = chain.cost[1]
