"""A lower bound on t(S): what must cross a cut, over what the cut can carry."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from emu.systems.dgcl.planner.needs import Needs
    from emu.systems.dgcl.planner.topology import Topology

#: Of so many devices every set is looked at: 1,022 cuts.
_FEW = 10


def lower_bound(needs: Needs, topology: Topology) -> float:
    """Return seconds that no plan's t(S) is below, a row being 1.

    A row crosses a cut at least once where one side has it and the other needs it. In a
    stage of t seconds links carry no more than t times the sum of their capacities, so
    neither do some links that together every route across the cut crosses.
    """
    found = 0.0
    owners, readers, counts = _kinds(needs)
    for inside in _cuts(topology.devices):
        leaving = (np.int64(1) << owners) & inside != 0
        rows = int(counts[leaving & (readers & ~inside != 0)].sum())
        if rows:
            found = max(found, rows / _capacity(topology, inside))
    return found


def _kinds(
    needs: Needs,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return owners and readers of rows, equal ones once, and the number of each."""
    order = np.lexsort((needs.readers, needs.owners))
    owners, readers = needs.owners[order].astype(np.int64), needs.readers[order]
    new = (np.diff(owners, prepend=-1) != 0) | (np.diff(readers, prepend=-1) != 0)
    first = np.flatnonzero(new)
    return owners[first], readers[first], np.diff(first, append=len(order))


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
    chosen: list[int] = []
    missing = routes
    while missing:
        worth: dict[int, float] = {}
        for link in itertools.chain(*missing):
            worth[link] = worth.get(link, 0.0) + 1 / topology.capacities[link]
        best = max(worth, key=worth.__getitem__)
        chosen.append(best)
        missing = [route for route in missing if best not in route]
    for link in sorted(chosen, key=lambda one: -topology.capacities[one]):
        others = {*chosen} - {link}
        if all(route & others for route in routes):
            chosen.remove(link)
    return float(topology.capacities[chosen].sum())
