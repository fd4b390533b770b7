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

from emu.array_types import Ints, Mask
from emu.prediction.core import lib, pointer, structure
from emu.systems.dgcl.planner import GatherPlan, Needs, PlanError, Topology

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
    owners = needs.owners[first]
    # A tree has an edge to each device but its root at most: devices - 1, 62 at most.
    width = max(topology.devices - 1, 1)
    shape = (groups, width)
    links = len(topology.links)
    fastest = topology.capacities.max(initial=1.0)

    # What C reads and fills: a tree per group of rows, an edge from its sender to its
    # receiver in each stage, and the load of all trees by stage and link.
    trees = structure(
        "Trees",
        devices=topology.devices,
        links=links,
        starts=topology.starts,
        crossed=topology.crossed,
        # Over a row's time on the fastest link, so that `eps` has no unit.
        row_times=fastest / topology.capacities,
        groups=groups,
        width=width,
        owners=owners.astype(np.int64),
        readers=needs.readers[first],
        # A group goes as one, as heavy as its rows are many.
        weights=np.bincount(group_of),
        senders=np.empty(shape, np.int8),
        receivers=np.empty(shape, np.int8),
        stages=np.empty(shape, np.int8),
        sizes=np.zeros(groups, np.int8),
        rows=np.zeros((width, links), np.int64),
        peaks=np.zeros(width),
    )

    # The order of the vertices matters to the plan: the seed fixes it (specs, 6b).
    draws = np.random.default_rng(seed)
    order = draws.permutation(groups)
    lib.grow(trees, pointer(order), eps)
    # Orders of sweeps are drawn later: without any the plan is the paper's.
    for _ in range(sweeps):
        order = draws.permutation(groups)
        lib.grow_again(trees, pointer(order), eps)
    return _tables(topology.devices, needs.vertices, group_of, trees)


def _groups(needs: Needs, most: int) -> tuple[Ints, Ints]:
    """Return each row's group, and the first row of each group."""
    positions = np.arange(len(needs))
    if most == 1:  # in the order of the rows
        return positions, positions

    order, is_first = _sort_alike(needs)
    # Where a kind of rows begins, for each of its rows.
    own_starts = np.where(is_first, positions, 0)
    starts = np.maximum.accumulate(own_starts)
    # A kind of rows is cut into groups of equal size, and one of what is left.
    places = positions - starts
    opens = places % most == 0
    group_of = np.empty(len(order), np.int64)
    group_of[order] = np.cumsum(opens) - 1
    return group_of, order[opens]


def _sort_alike(needs: Needs) -> tuple[Ints, Mask]:
    """Return rows by owner and readers, and where the first of equal ones stands."""
    # Stable: equal rows stay in the order of their vertices.
    order = np.lexsort((needs.readers, needs.owners))
    owners = needs.owners[order]
    readers = needs.readers[order]
    is_new_owner = np.diff(owners, prepend=-1) != 0
    are_new_readers = np.diff(readers, prepend=-1) != 0
    return order, is_new_owner | are_new_readers


def _tables(
    devices: int,
    vertices: Ints,
    group_of: Ints,
    trees: Any,
) -> GatherPlan:
    """Return the plan of grown trees."""
    # A cell is a stage and a pair of devices, in the order of a plan's transfers.
    stages = max(devices - 1, 1)
    pairs = devices * devices
    counts = np.zeros(stages * pairs, np.int64)
    lib.count_rows(trees, pointer(counts))

    cells = np.flatnonzero(counts)
    ends = np.cumsum(counts[cells])
    bounds = np.concatenate([[0], ends])
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

    stage, pair = np.divmod(cells, pairs)
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
    rows_of_kinds = order[first]
    owner_numbers = needs.owners[rows_of_kinds].astype(np.int64)
    owners = np.int64(1) << owner_numbers
    readers = needs.readers[rows_of_kinds]

    bound = 0.0
    for inside in _cuts(topology.devices):
        # Owner inside, a reader outside: such a row crosses this cut once at the least.
        has_owner = owners & inside != 0
        is_read_outside = readers & ~inside != 0
        crossing = counts[has_owner & is_read_outside]
        rows = int(crossing.sum())
        if rows:
            seconds = rows / _capacity(topology, inside)
            bound = max(bound, seconds)
    return bound


def _cuts(devices: int) -> Iterator[int]:
    """Yield sets of devices: all, or those of one, of neighbours, and of the others."""
    everyone = (1 << devices) - 1
    if devices <= _FEW:
        yield from range(1, everyone)
        return
    # Of so many devices not every set can be looked at: neighbours share links.
    for size in {1, 2, 4, 8, devices // 2}:
        neighbours = (1 << size) - 1
        for first in range(0, devices - size + 1, size):
            inside = neighbours << first
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
        has_sender = inside >> sender & 1
        has_receiver = inside >> receiver & 1
        if has_sender and not has_receiver:
            routes.append(set(links))

    cover: list[int] = []
    missing = routes
    while missing:
        worth: dict[int, float] = {}
        for route in missing:
            for link in route:
                # A link is worth the routes that it covers, per capacity that it adds.
                covered = worth.get(link, 0.0)
                worth[link] = covered + 1 / capacities[link]
        # Of equal ones the first in the order of routes: the bound is always the same.
        best = max(worth, key=worth.__getitem__)
        cover.append(best)
        missing = [route for route in missing if best not in route]

    # The links with most capacity first: a tighter bound where they are left out.
    by_capacity = sorted(cover, key=lambda link: -capacities[link])
    for link in by_capacity:
        others = set(cover) - {link}
        if all(route & others for route in routes):
            cover.remove(link)
    cover_capacities = capacities[cover]
    return float(cover_capacities.sum())
