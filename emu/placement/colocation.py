"""Most (worker, sampler) pairs on one machine as an integer program.

For jobs whose workers or samplers are pinned or not alike; where they are, names do not
matter and `emu.placement.distdgl` counts instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.placement.integer_program import Row, minimise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from emu.placement.space import Space


def colocate(
    space: Space, pairs: Sequence[tuple[int, int]]
) -> NDArray[np.int64] | None:
    """Return the machine of every unit such that most pairs share one.

    Parameters
    ----------
    pairs
        (sampler, worker) as positions in ``Job.tasks``; either may be pinned.

    Returns
    -------
    ndarray or None
        Shape (units,); None when nothing fits. Among equals, units stand on early
        machines.
    """
    units, machines = len(space.units), len(space.free)
    if (space.free < -space.slack).any():
        return None
    if not units:
        return np.empty(0, dtype=np.int64)
    unit_of = {task: u for u, unit in enumerate(space.units) for task in unit.tasks}
    both = [(unit_of[s], unit_of[w]) for s, w in pairs if {s, w} <= unit_of.keys()]
    worth = np.concatenate([_single_worth(space, pairs), np.ones(len(both) * machines)])
    rows = [*_once(units, machines), *_together(both, units, machines), *_room(space)]
    found = minimise(-worth, np.ones(worth.size), np.ones(worth.size, dtype=bool), rows)
    if found.x is None:
        return None
    chosen = found.x[: units * machines].reshape(units, machines)
    return np.asarray(chosen.argmax(axis=1), dtype=np.int64)


def _single_worth(
    space: Space, pairs: Sequence[tuple[int, int]]
) -> NDArray[np.float64]:
    """Return what unit u on machine m is worth, at u * machines + m.

    One per pair whose other end is pinned there, less a little for late machines: all
    of it together is less than one pair.
    """
    units, machines = len(space.units), len(space.free)
    unit_of = {task: u for u, unit in enumerate(space.units) for task in unit.tasks}
    worth = -np.tile(np.arange(machines) / (2.0 * units * machines), units)
    for ends in pairs:
        movable = [unit_of[task] for task in ends if task in unit_of]
        if len(movable) == 1:
            (fixed,) = (int(space.fixed[task]) for task in ends if task not in unit_of)
            worth[movable[0] * machines + fixed] += 1.0
    return worth


def _once(units: int, machines: int) -> Iterator[Row]:
    for unit in range(units):
        at = [unit * machines + m for m in range(machines)]
        yield Row(at, [1.0] * machines, 1.0, 1.0)


def _together(
    both: Sequence[tuple[int, int]], units: int, machines: int
) -> Iterator[Row]:
    """Yield: a pair is on a machine only where both its ends are."""
    for p, ends in enumerate(both):
        for m in range(machines):
            pair = (units + p) * machines + m
            for end in ends:
                yield Row([pair, end * machines + m], [1.0, -1.0], -np.inf, 0.0)


def _room(space: Space) -> Iterator[Row]:
    """Yield the capacities, as shares of themselves."""
    room, machines = space.free + space.slack, len(space.free)
    for m, r in np.argwhere(np.isfinite(room)).tolist():
        whole = float(space.capacity[m, r]) or 1.0
        at = [u * machines + m for u in range(len(space.units))]
        shares = (space.demand[:, r] / whole).tolist()
        yield Row(at, shares, -np.inf, float(room[m, r]) / whole)
