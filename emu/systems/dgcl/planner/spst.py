"""SPST: a tree per vertex, grown along what lengthens the stages least.

Algorithms 1 and 2 of DGCL (Cai et al., EuroSys 2021, section 5.2), with what its text
leaves open as the released code has it: a small cost per link, a destination is no
relay on the way to another, one depth per device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from emu.core import lib, pointer, structure
from emu.systems.dgcl.planner.plan import Plan, PlanError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.systems.dgcl.planner.needs import Needs
    from emu.systems.dgcl.planner.topology import Topology


class _Forest(NamedTuple):
    """A tree per group of rows: its root, leaves and edges."""

    owners: NDArray[np.int64]
    readers: NDArray[np.int64]
    weights: NDArray[np.int64]
    """Number of rows of each group."""
    senders: NDArray[np.int8]
    """Sender of each edge; shape (groups, devices - 1), as the two below."""
    receivers: NDArray[np.int8]
    stages: NDArray[np.int8]
    sizes: NDArray[np.int8]
    """Edges of each tree."""


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

    Parameters
    ----------
    seed
        Of the order of the vertices.
    eps
        Cost of every link of a path, over the time of a row on the fastest link.
    group
        Most rows of equal owner and readers that travel together.
    sweeps
        How often every group is planned again once all are: its tree is taken out and
        grown anew, and the old one comes back where that costs more. A vertex then
        sees the load of those that came after it, too. 0 is the paper's algorithm.

    Raises
    ------
    PlanError
        When a device that needs a row cannot be reached.
    """
    if (lost := needs.unreachable(topology)) is not None:
        raise PlanError(f"no links lead from device {lost[0]} to device {lost[1]}")
    group_of, forest = _ungrown(needs, topology.devices, group)
    stages = max(topology.devices - 1, 1)
    rows, peaks = np.zeros((stages, len(topology.links)), np.int64), np.zeros(stages)
    trees = _in_c(topology, forest, rows, peaks)
    draws = np.random.default_rng(seed)
    lib.grow(trees, pointer(draws.permutation(len(forest.owners))), eps)
    for _ in range(sweeps):
        lib.grow_again(trees, pointer(draws.permutation(len(forest.owners))), eps)
    return _tables(topology.devices, needs.vertices, group_of, trees)


def _ungrown(
    needs: Needs, devices: int, most: int
) -> tuple[NDArray[np.int64], _Forest]:
    """Return the group of every row, and trees without edges."""
    owners, readers = needs.owners.astype(np.int64), needs.readers
    group_of = np.arange(len(needs))
    weights = np.ones(len(needs), np.int64)
    if most > 1:
        group_of, first, weights = _groups(owners, readers, most)
        owners, readers = owners[first], readers[first]
    shape = (len(owners), max(devices - 1, 1))
    senders, receivers, stages = (np.empty(shape, np.int8) for _ in range(3))
    sizes = np.zeros(len(owners), np.int8)
    return group_of, _Forest(
        owners, readers, weights, senders, receivers, stages, sizes
    )


def _groups(
    owners: NDArray[np.int64], readers: NDArray[np.int64], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return each row's group, and the first row and the size of each group."""
    order = np.lexsort((readers, owners))
    new_kind = (np.diff(owners[order], prepend=-1) != 0) | (
        np.diff(readers[order], prepend=-1) != 0
    )
    position = np.arange(len(order))
    begins = np.maximum.accumulate(np.where(new_kind, position, 0))
    new = (position - begins) % most == 0
    group_of = np.empty(len(order), np.int64)
    group_of[order] = np.cumsum(new) - 1
    return group_of, order[new], np.bincount(group_of)


def _in_c(
    topology: Topology,
    forest: _Forest,
    rows: NDArray[np.int64],
    peaks: NDArray[np.float64],
) -> Any:
    """Return what C reads and fills: ``rows`` and ``peaks`` are the load of all trees.

    Rows that cross each link in each stage, shape (stages, links), and the time of each
    stage: of its slowest link, the fastest link's row being 1.
    """
    groups, width = forest.senders.shape
    return structure(
        "Trees",
        devices=topology.devices,
        links=len(topology.links),
        starts=topology.starts,
        crossed=topology.crossed,
        row_times=topology.row_times,
        groups=groups,
        width=width,
        **forest._asdict(),
        rows=rows,
        peaks=peaks,
    )


def _tables(
    devices: int,
    vertices: NDArray[np.int64],
    group_of: NDArray[np.int64],
    trees: Any,
) -> Plan:
    """Return the plan of grown trees."""
    counts = np.zeros(max(devices - 1, 1) * devices * devices, np.int64)
    lib.count_rows(trees, pointer(counts))
    used = np.flatnonzero(counts)
    bounds = np.concatenate([[0], np.cumsum(counts[used])])
    next_place = np.zeros(len(counts), np.int64)
    next_place[used] = bounds[:-1]
    rows = np.empty(bounds[-1], np.int64)
    lib.fill_tables(
        trees, pointer(vertices), pointer(group_of), len(vertices),
        pointer(next_place), pointer(rows),
    )  # fmt: skip
    stage, pair = np.divmod(used, devices * devices)
    transfers = np.stack([stage, *np.divmod(pair, devices)], axis=1)
    return Plan(devices, transfers.astype(np.int32), bounds, rows)
