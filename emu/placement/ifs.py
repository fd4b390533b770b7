"""IFS, the paper's first feasible placement (Algorithm 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from emu.placement.packing import Packing, infeasibility
from emu.placement.space import Space

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import Cluster, Job, Placement


def place_ifs(job: Job, cluster: Cluster, rng: np.random.Generator) -> Placement:
    """Return a feasible placement, found by the dynamic program of the paper.

    The machines are visited in a random order. A state is how many tasks of each kind
    the machines so far hold; kinds are tasks that are interchangeable, same kind and
    equal demands, whatever their names. Tasks of one process move as one, pinned ones
    (the graph stores) only take room.

    Parameters
    ----------
    rng
        Draws the order of the machines.

    Raises
    ------
    InfeasiblePlacement
        When no placement exists; the error names the binding resource.
    PlacementError
        When there are too many different kinds of tasks for the program.

    References
    ----------
    .. [1] Luo, Bao, Wu, INFOCOM 2022, Alg. 2. Where it is silent or slips: counts begin
       at 0, states are kept once, every machine may be the last one (also the first),
       tasks of a kind are handed out in the order of the job.
    """
    space = Space(job, cluster)
    order = rng.permutation(len(cluster.machines)).tolist()
    machines = fill(space, order)
    if machines is None:
        raise infeasibility(space)
    return space.placement(machines.tolist())


def fill(
    space: Space, order: list[int], placed: NDArray[np.int64] | None = None
) -> NDArray[np.int64] | None:
    """Return a feasible machine for every unit, or None; machines tried in ``order``.

    Parameters
    ----------
    placed
        Machine of the units that stand already, -1 for the others, shape (units,).

    Raises
    ------
    PlacementError
        When there are too many different kinds of tasks for the program.
    """
    if placed is None:
        placed = np.full(len(space.units), -1, dtype=np.int64)
    standing = np.nonzero(placed >= 0)[0]
    room = space.free + space.slack
    np.subtract.at(room, placed[standing], space.demand[standing])
    if (room < 0).any():
        return None
    # Units that ask for nothing limited stay out of the states and go to the last
    # machine. The program would put them there too: counts are tried from 0 up, so
    # the state without them is always the first of its kind.
    groups = [[u for u in group if placed[u] < 0] for group in space.packed]
    first = [group[0] for group in space.packed]
    solution = Packing(space.demand[first], tuple(map(len, groups)), room).solve(order)
    if solution is None:
        return None
    machines = np.where(placed >= 0, placed, solution[-1][0])
    for position, group in enumerate(groups):
        where = [machine for machine, _ in solution]
        machines[group] = np.repeat(where, [counts[position] for _, counts in solution])
    return machines
