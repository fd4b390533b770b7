"""SPST, a tree per vertex along what lengthens the stages least; a bound on any plan.

Algorithms 1 and 2 of DGCL (Cai et al., EuroSys 2021, section 5.2), with what its text
leaves open as the released code has it: a small cost per link, a destination is no
relay on the way to another, one depth per device. The lower bound on t(S) is what must
cross a cut, over what the cut can carry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.prediction.core import lib, pointer, structure
from emu.systems.dgcl.planner import GatherPlan, Ints, Needs, PlanError, Topology

#: Of so many devices every set is looked at: 1,022 cuts.
_FEW = 10


def spst(
    needs: Needs,
    topology: Topology,
    *,
    seed: int,
    eps: float = 1e-4,
    group: int = 1,
    sweeps: int = 0,
) -> GatherPlan:
    """Return the plan of Algorithms 1 and 2.

    ``seed``: of the order of the vertices; ``eps``: cost of every link of a path, over
    the time of a row on the fastest link; ``group``: most rows of equal owner and
    readers that travel together; ``sweeps``: how often every group is planned again
    once all are, and so sees the load of later ones: its tree is taken out and grown
    anew, and the old one comes back where that costs more. 0 is the paper's algorithm.

    Raises PlanError when a device that needs a row cannot be reached.
    """
    cut_off = needs.unreachable(topology)
    if cut_off is not None:
        owner, reader = cut_off
        raise PlanError(f"no links lead from device {owner} to device {reader}")

    group_of, first = _groups(needs, group)
    groups = len(first)
    width = max(topology.devices - 1, 1)
    # What C reads and fills: a tree per group of rows, an edge from its sender to its
    # receiver in each stage, and the load of all trees by stage and link.
    trees = structure(
        "Trees",
        devices=topology.devices,
        links=len(topology.links),
        starts=topology.starts,
        crossed=topology.crossed,
        # Over a row's time on the fastest link, so that `eps` has no unit.
        row_times=topology.capacities.max(initial=1.0) / topology.capacities,
        groups=groups,
        width=width,
        owners=needs.owners[first].astype(np.int64),
        readers=needs.readers[first],
        # A group goes as one, as heavy as its rows are many.
        weights=np.bincount(group_of),
        # A tree has an edge to each device but its root at most: devices - 1, 62 at
        # most.
        senders=np.empty((groups, width), np.int8),
        receivers=np.empty((groups, width), np.int8),
        stages=np.empty((groups, width), np.int8),
        sizes=np.zeros(groups, np.int8),
        rows=np.zeros((width, len(topology.links)), np.int64),
        peaks=np.zeros(width),
    )

    # The order of the vertices matters to the plan: the seed fixes it (specs, 6b).
    draws = np.random.default_rng(seed)
    lib.grow(trees, pointer(draws.permutation(groups)), eps)
    # Orders of sweeps are drawn later: without any the plan is the paper's.
    for _ in range(sweeps):
        lib.grow_again(trees, pointer(draws.permutation(groups)), eps)
    return _tables(topology.devices, needs.vertices, group_of, trees)


def _groups(needs: Needs, most: int) -> tuple[Ints, Ints]:
    """Return each row's group, and the first row of each group."""
    positions = np.arange(len(needs))
    if most == 1:  # in the order of the rows
        return positions, positions

    order, is_first = _sort_alike(needs)
    starts = np.maximum.accumulate(np.where(is_first, positions, 0))
    # A kind of rows is cut into groups of equal size, and one of what is left.
    opens = (positions - starts) % most == 0
    group_of = np.empty(len(order), np.int64)
    group_of[order] = np.cumsum(opens) - 1
    return group_of, order[opens]


def _sort_alike(needs: Needs) -> tuple[Ints, NDArray[np.bool_]]:
    """Return rows by owner and readers, and where the first of equal ones stands."""
    # Stable: equal rows stay in the order of their vertices.
    order = np.lexsort((needs.readers, needs.owners))
    new_owner = np.diff(needs.owners[order], prepend=-1) != 0
    new_readers = np.diff(needs.readers[order], prepend=-1) != 0
    return order, new_owner | new_readers


def _tables(devices: int, vertices: Ints, group_of: Ints, trees: Any) -> GatherPlan:
    """Return the plan of grown trees."""
    counts = np.zeros(max(devices - 1, 1) * devices * devices, np.int64)
    lib.count_rows(trees, pointer(counts))

    # A cell is a stage and a pair of devices, in the order of a plan's transfers.
    cells = np.flatnonzero(counts)
    bounds = np.concatenate([[0], np.cumsum(counts[cells])])
    next_place = np.zeros(len(counts), np.int64)
    next_place[cells] = bounds[:-1]
    rows = np.empty(bounds[-1], np.int64)
    # C writes each row where its cell has its next place: the places move along.
    lib.fill_tables(
        trees,
        pointer(vertices),
        pointer(group_of),
        len(vertices),
        pointer(next_place),
        pointer(rows),
    )

    stage, pair = np.divmod(cells, devices * devices)
    sender, receiver = np.divmod(pair, devices)
    transfers = np.stack([stage, sender, receiver], axis=1)
    return GatherPlan(
        devices=devices,
        transfers=transfers.astype(np.int32),
        bounds=bounds,
        rows=rows,
    )


def lower_bound(needs: Needs, topology: Topology) -> float:
    """Return seconds that no plan's t(S) is below, a row being 1.

    A row crosses a cut at least once where one side has it and the other needs it. In a
    stage of t seconds links carry no more than t times the sum of their capacities, so
    neither do some links that together every route across the cut crosses.
    """
    order, is_first = _sort_alike(needs)
    # Rows of equal owner and readers cross the same cuts: they are counted once.
    first = np.flatnonzero(is_first)
    counts = np.diff(first, append=len(order))
    owners = np.int64(1) << needs.owners[order][first].astype(np.int64)
    readers = needs.readers[order][first]

    bound = 0.0
    for inside in _cuts(topology.devices):
        # Owner inside, a reader outside: such a row crosses this cut once at the least.
        leaves = (owners & inside != 0) & (readers & ~inside != 0)
        rows = int(counts[leaves].sum())
        if rows:
            bound = max(bound, rows / _capacity(topology, inside))
    return bound


def _cuts(devices: int) -> Iterator[int]:
    """Yield sets of devices: all, or those of one, of neighbours, and of the others."""
    everyone = (1 << devices) - 1
    if devices <= _FEW:
        yield from range(1, everyone)
        return
    # Of so many devices not every set can be looked at: neighbours share links.
    for size in {1, 2, 4, 8, devices // 2}:
        for first in range(0, devices - size + 1, size):
            inside = ((1 << size) - 1) << first
            if inside != everyone:
                yield inside
                yield everyone & ~inside


def _capacity(topology: Topology, inside: int) -> float:
    """Return the capacity of links that every route out of a set crosses one of.

    They are chosen by the greedy cover (Chvatal, 1979), and those left out again
    without which the others do.
    """
    capacities = topology.capacities
    routes = []
    for (sender, receiver), links in topology.routes.items():
        if inside >> sender & 1 and not inside >> receiver & 1:
            routes.append({*links})

    cover: list[int] = []
    missing = routes
    while missing:
        worth: dict[int, float] = {}
        for route in missing:
            for link in route:
                # A link is worth the routes that it covers, per capacity that it adds.
                worth[link] = worth.get(link, 0.0) + 1 / capacities[link]
        # The first of equal ones, in the order of the routes: the bound is always the
        # same.
        best = max(worth, key=worth.__getitem__)
        cover.append(best)
        missing = [route for route in missing if best not in route]

    # The links with most capacity first: a tighter bound where they are left out.
    for link in sorted(cover, key=lambda link: -capacities[link]):
        others = {*cover} - {link}
        if all(route & others for route in routes):
            cover.remove(link)
    return float(capacities[cover].sum())
