"""SPST, a tree per vertex along what lengthens the stages least; a bound on any plan.

Algorithms 1 and 2 of DGCL (Cai et al., EuroSys 2021, section 5.2), with what its text
leaves open as the released code has it: a small cost per link, a destination is no
relay on the way to another, one depth per device. The lower bound on t(S) is what must
cross a cut, over what the cut can carry.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.prediction.core import lib, pointer, structure
from emu.systems.dgcl.planner import Needs, Plan, PlanError, Topology

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
) -> Plan:
    """Return the plan of Algorithms 1 and 2.

    ``seed``: of the order of the vertices; ``eps``: cost of every link of a path, over
    the time of a row on the fastest link; ``group``: most rows of equal owner and
    readers that travel together; ``sweeps``: how often every group is planned again
    once all are, and so sees the load of later ones: its tree is taken out and grown
    anew, and the old one comes back where that costs more. 0 is the paper's algorithm.

    Raises PlanError when a device that needs a row cannot be reached.
    """
    if (row := needs.unreachable(topology)) is not None:
        raise PlanError(f"no links lead from device {row[0]} to device {row[1]}")
    owners = needs.owners.astype(np.int64)
    readers = needs.readers
    group_of, first, weights = _groups(owners, readers, group)
    groups = len(first)
    width = max(topology.devices - 1, 1)
    rows = np.zeros((width, len(topology.links)), np.int64)
    peaks = np.zeros(width)
    # What C reads and fills: a tree per group of rows, an edge from its sender to its
    # receiver in each stage, and the load of all trees by stage and link.
    trees = structure(
        "Trees",
        devices=topology.devices,
        links=len(topology.links),
        starts=topology.starts,
        crossed=topology.crossed,
        row_times=topology.capacities.max(initial=1.0) / topology.capacities,
        groups=groups,
        width=width,
        owners=owners[first],
        readers=readers[first],
        weights=weights,
        senders=np.empty((groups, width), np.int8),
        receivers=np.empty((groups, width), np.int8),
        stages=np.empty((groups, width), np.int8),
        sizes=np.zeros(groups, np.int8),
        rows=rows,
        peaks=peaks,
    )
    draws = np.random.default_rng(seed)
    lib.grow(trees, pointer(draws.permutation(groups)), eps)
    for _ in range(sweeps):
        lib.grow_again(trees, pointer(draws.permutation(groups)), eps)
    return _tables(topology.devices, needs.vertices, group_of, trees)


def _groups(
    owners: NDArray[np.int64], readers: NDArray[np.int64], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return each row's group, and the first row and the size of each group."""
    if most == 1:  # in the order of the rows
        each = np.arange(len(owners))
        return each, each, np.ones(len(owners), np.int64)
    order = np.lexsort((readers, owners))
    new_kind = (np.diff(owners[order], prepend=-1) != 0) | (
        np.diff(readers[order], prepend=-1) != 0
    )
    position = np.arange(len(order))
    starts = np.maximum.accumulate(np.where(new_kind, position, 0))
    new = (position - starts) % most == 0
    group_of = np.empty(len(order), np.int64)
    group_of[order] = np.cumsum(new) - 1
    return group_of, order[new], np.bincount(group_of)


def _tables(
    devices: int, vertices: NDArray[np.int64], group_of: NDArray[np.int64], trees: Any
) -> Plan:
    """Return the plan of grown trees."""
    counts = np.zeros(max(devices - 1, 1) * devices * devices, np.int64)
    lib.count_rows(trees, pointer(counts))
    cells = np.flatnonzero(counts)
    bounds = np.concatenate([[0], np.cumsum(counts[cells])])
    next_place = np.zeros(len(counts), np.int64)
    next_place[cells] = bounds[:-1]
    rows = np.empty(bounds[-1], np.int64)
    lib.fill_tables(
        trees, pointer(vertices), pointer(group_of), len(vertices),
        pointer(next_place), pointer(rows),
    )  # fmt: skip
    stage, pair = np.divmod(cells, devices * devices)
    transfers = np.stack([stage, *np.divmod(pair, devices)], axis=1)
    return Plan(devices, transfers.astype(np.int32), bounds, rows)


def lower_bound(needs: Needs, topology: Topology) -> float:
    """Return seconds that no plan's t(S) is below, a row being 1.

    A row crosses a cut at least once where one side has it and the other needs it. In a
    stage of t seconds links carry no more than t times the sum of their capacities, so
    neither do some links that together every route across the cut crosses.
    """
    bound = 0.0
    order = np.lexsort((needs.readers, needs.owners))
    owners = needs.owners[order].astype(np.int64)
    readers = needs.readers[order]
    new = (np.diff(owners, prepend=-1) != 0) | (np.diff(readers, prepend=-1) != 0)
    first = np.flatnonzero(new)  # of those of equal owner and readers
    owners, readers = owners[first], readers[first]
    counts = np.diff(first, append=len(order))
    for inside in _cuts(topology.devices):
        leaving = (np.int64(1) << owners) & inside != 0
        rows = int(counts[leaving & (readers & ~inside != 0)].sum())
        if rows:
            bound = max(bound, rows / _capacity(topology, inside))
    return bound


def _cuts(devices: int) -> Iterator[int]:
    """Yield sets of devices: all, or those of one, of neighbours, and of the others."""
    everyone = (1 << devices) - 1
    if devices <= _FEW:
        yield from range(1, everyone)
        return
    for size in {1, 2, 4, 8, devices // 2}:
        for first in range(0, devices - size + 1, size):
            within = ((1 << size) - 1) << first
            if within != everyone:
                yield within
                yield everyone & ~within


def _capacity(topology: Topology, inside: int) -> float:
    """Return the capacity of links that every route out of a set crosses one of.

    They are chosen by the greedy cover (Chvatal, 1979), and those left out again
    without which the others do.
    """
    routes = [
        {*links}
        for (sender, receiver), links in topology.routes.items()
        if inside >> sender & 1 and not inside >> receiver & 1
    ]
    ports: list[int] = []
    missing = routes
    while missing:
        worth: dict[int, float] = {}
        for link in itertools.chain(*missing):
            worth[link] = worth.get(link, 0.0) + 1 / topology.capacities[link]
        best = max(worth, key=worth.__getitem__)
        ports.append(best)
        missing = [route for route in missing if best not in route]
    for link in sorted(ports, key=lambda one: -topology.capacities[one]):
        others = {*ports} - {link}
        if all(route & others for route in routes):
            ports.remove(link)
    return float(topology.capacities[ports].sum())
