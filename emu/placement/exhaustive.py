"""Every placement that matters, where a space is small enough to list them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.placement.candidates import Candidates, expand, lower_bound
from emu.placement.space import TOLERANCE
from emu.placement.symmetry import Symmetry, canonicalise
from emu.scheduling.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.scheduling.compiled_problem import Floats


class Listing(NamedTuple):
    """Feasible placements up to symmetry, by ascending lower bound."""

    machines: NDArray[np.int16]
    """Shape (placements, units)."""
    bound: Floats
    """Seconds, shape (placements,)."""


@compiled
def _list(
    c: Candidates, symmetry: Symmetry, most: int, most_steps: int
) -> tuple[NDArray[np.int16], Floats, int]:
    """Return canonical feasible placements, their bounds, and how many; -1: too many.

    Depth-first over the units: a unit that does not fit ends its branch.
    """
    demand = c.units.demand
    units, machines_count = demand.shape[0], c.units.used.shape[0]
    found = np.empty((most, units), np.int16)
    bound = np.empty(most)
    count = 0
    machines = np.full(units, -1, np.int64)
    canonical = np.empty(units, np.int64)
    room = c.units.capacity * (1.0 + TOLERANCE) - c.units.used
    unit = 0
    for _ in range(most_steps):
        if unit < 0:
            return found, bound, count
        now = machines[unit]
        if now >= 0:
            room[now] += demand[unit]
        now += 1
        while now < machines_count and (demand[unit] > room[now]).any():
            now += 1
        if now == machines_count:
            machines[unit] = -1
            unit -= 1
            continue
        machines[unit] = now
        room[now] -= demand[unit]
        if unit < units - 1:
            unit += 1
            continue
        canonical[:] = machines
        canonicalise(symmetry, canonical)
        if (canonical == machines).all():
            if count == most:
                return found, bound, -1
            found[count] = machines
            bound[count] = lower_bound(c.transfers, c.costs, expand(c.units, machines))
            count += 1
    return found, bound, -1


def list_placements(
    c: Candidates, symmetry: Symmetry, *, most: int, most_steps: int
) -> Listing | None:
    """Return all feasible placements up to symmetry, or None when there are too many.

    At least one unit must be movable.

    Parameters
    ----------
    most
        Placements that may be listed.
    most_steps
        Steps that listing them may take; one is about 0.1 us.
    """
    found, bound, count = _list(c, symmetry, most, most_steps)
    if count < 0:
        return None
    order = np.argsort(bound[:count], kind="stable")
    return Listing(found[:count][order], bound[:count][order])
