"""Simulated annealing over feasible placements, compiled whole.

Before a simulation an estimate is asked, which costs a hundredth of one: a chain whose
proposals have passed a cheap model first (Christen and Fox, "MCMC using an
approximation", 2005), here without their correction, since it is a search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.placement.candidates import Candidates, Units, estimate, excess, expand, usage
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
#: Neighbours that an estimate may refuse for one proposal, and its temperature there,
#: as part of the estimate now.
SCREENED, SCREEN = 50, 0.01
#: Part of the proposals that an estimate may refuse: it is blind to what waits, and of
#: 200 small clusters 1,000 candidates met the optimum of 180 where all were screened.
PART = 0.5


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
def _promising_neighbour(
    c: Candidates,
    symmetry: Symmetry,
    teams: TeamArrays,
    state: RandomState,
    machines: Ints,
    candidate: Ints,
    now: float,
) -> float:
    """Fill ``candidate`` likewise and return its estimate; infinity where none is met.

    Most that are estimated worse than ``now``, seconds, are passed over: by a chain of
    plain makespans alone, since an estimate knows neither slots nor several jobs.
    """
    plain = c.arrays.slots.size == 0 and c.costs.job.size == 0
    guess = np.inf
    for _ in range(SCREENED if plain and uniform(state) < PART else 1):
        if not _feasible_neighbour(
            c.units, symmetry, teams, state, machines, candidate
        ):
            return np.inf
        guess = estimate(c, expand(c.units, candidate))
        if guess <= now * (1.0 - SCREEN * np.log(uniform(state))):
            break
    return guess


@compiled
def sketch(
    c: Candidates,
    symmetry: Symmetry,
    teams: TeamArrays,
    state: RandomState,
    machines: Ints,
    temperatures: Floats,
) -> Ints:
    """Return what annealing under `estimate` alone makes of a feasible placement.

    Parameters
    ----------
    temperatures
        One per proposal, as parts of the first estimate.
    """
    now, best = machines.copy(), machines.copy()
    canonicalise(symmetry, now)
    candidate = np.empty_like(now)
    first = cost = least = estimate(c, expand(c.units, now))
    for temperature in temperatures:
        if not _feasible_neighbour(c.units, symmetry, teams, state, now, candidate):
            continue
        guess = estimate(c, expand(c.units, candidate))
        if guess <= cost - np.log(uniform(state)) * temperature * first:
            now[:], cost = candidate, guess
            if cost < least:
                best[:], least = now, cost
    return best


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
    now = estimate(c, expand(c.units, chain.machines))
    for step in range(temperatures.size):
        chain.tally[PROPOSED] += 1
        guess = _promising_neighbour(
            c, symmetry, teams, state, chain.machines, candidate, now
        )
        limit = chain.cost[0] - np.log(uniform(state)) * temperatures[step]
        if guess < np.inf:
            makespan = makespan_within(
                c, candidate, limit, False, chain.memory, chain.tally
            )
            if makespan <= limit:
                chain.tally[ACCEPTED] += 1
                chain.machines[:] = candidate
                chain.cost[0], now = makespan, guess
                if makespan < chain.cost[1]:
                    chain.cost[1] = makespan
                    chain.best_machines[:] = candidate
        best[step] = chain.cost[1]
