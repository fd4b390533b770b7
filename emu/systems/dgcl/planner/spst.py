"""SPST: a tree per vertex, grown along what lengthens the stages least.

Algorithms 1 and 2 of DGCL (Cai et al., EuroSys 2021, section 5.2), with what its text
leaves open as the released code has it: a small cost per link, a destination is no
relay on the way to another, one depth per device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.compiled_code import njit
from emu.systems.dgcl.planner.plan import Plan, PlanError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.systems.dgcl.planner.needs import Needs
    from emu.systems.dgcl.planner.topology import Topology

_FAR = 1e300


class _Links(NamedTuple):
    """A topology, as compiled code reads it."""

    devices: int
    starts: NDArray[np.int32]
    crossed: NDArray[np.int32]
    row_times: NDArray[np.float64]


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


class _Load(NamedTuple):
    """Load of all trees on the links."""

    rows: NDArray[np.int64]
    """Rows that cross each link in each stage; shape (stages, links)."""
    peaks: NDArray[np.float64]
    """Time of each stage: of its slowest link, the fastest link's row being 1."""


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
    links = _Links(
        topology.devices, topology.starts, topology.crossed, topology.row_times
    )
    stages = max(topology.devices - 1, 1)
    load = _Load(np.zeros((stages, len(topology.links)), np.int64), np.zeros(stages))
    draws = np.random.default_rng(seed)
    _grow(links, forest, load, draws.permutation(len(forest.owners)), eps)
    for _ in range(sweeps):
        _grow_again(links, forest, load, draws.permutation(len(forest.owners)), eps)
    return _tables(topology.devices, needs.vertices, group_of, forest)


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


@njit(nogil=True)
def _grow(
    links: _Links, forest: _Forest, load: _Load, order: NDArray[np.int64], eps: float
) -> None:
    """Grow the tree of every group in turn."""
    dist = np.empty(links.devices)
    state = np.empty((3, links.devices), np.int64)
    for group in order:
        _grow_tree(links, forest, load, group, eps, dist, state)


@njit(nogil=True)
def _grow_again(
    links: _Links, forest: _Forest, load: _Load, order: NDArray[np.int64], eps: float
) -> None:
    """Grow every tree anew where that does not cost more."""
    dist = np.empty(links.devices)
    state = np.empty((3, links.devices), np.int64)
    edges = np.empty((3, links.devices), np.int8)
    for group in order:
        before, size = load.peaks.sum(), forest.sizes[group]
        edges[0, :size] = forest.senders[group, :size]
        edges[1, :size] = forest.receivers[group, :size]
        edges[2, :size] = forest.stages[group, :size]
        _put(links, forest, load, group, -1)
        _grow_tree(links, forest, load, group, eps, dist, state)
        if load.peaks.sum() > before * (1 + 1e-12):
            _put(links, forest, load, group, -1)
            forest.senders[group, :size] = edges[0, :size]
            forest.receivers[group, :size] = edges[1, :size]
            forest.stages[group, :size] = edges[2, :size]
            forest.sizes[group] = size
            _put(links, forest, load, group, 1)


@njit(nogil=True)
def _put(links: _Links, forest: _Forest, load: _Load, group: int, sign: int) -> None:
    """Add the rows of a tree to the load, or take them off it."""
    for edge in range(forest.sizes[group]):
        stage = forest.stages[group, edge]
        pair = (
            forest.senders[group, edge] * links.devices + forest.receivers[group, edge]
        )
        for at in range(links.starts[pair], links.starts[pair + 1]):
            load.rows[stage, links.crossed[at]] += sign * forest.weights[group]
    for edge in range(forest.sizes[group]):
        stage, peak = forest.stages[group, edge], 0.0
        for link in range(len(links.row_times)):
            peak = max(peak, load.rows[stage, link] * links.row_times[link])
        load.peaks[stage] = peak


@njit(nogil=True)
def _grow_tree(
    links: _Links,
    forest: _Forest,
    load: _Load,
    group: int,
    eps: float,
    dist: NDArray[np.float64],
    state: NDArray[np.int64],
) -> None:
    """Grow one tree, path by path, to the reader that lengthens the stages least."""
    depth, level, parent = state[0], state[1], state[2]
    weight, missing = forest.weights[group], forest.readers[group]
    depth[:] = -1
    depth[forest.owners[group]] = 0
    size = 0
    while missing:
        found = _nearest(links, load, missing, weight, eps * weight, dist, state)
        while depth[found] < 0:
            sender, stage = parent[found], level[found] - 1
            depth[found] = stage + 1
            missing &= ~(np.int64(1) << found)
            forest.senders[group, size] = sender
            forest.receivers[group, size] = found
            forest.stages[group, size] = stage
            size += 1
            pair = sender * links.devices + found
            for at in range(links.starts[pair], links.starts[pair + 1]):
                link = links.crossed[at]
                load.rows[stage, link] += weight
                busy = load.rows[stage, link] * links.row_times[link]
                load.peaks[stage] = max(load.peaks[stage], busy)
            found = sender
    forest.sizes[group] = size


@njit(nogil=True, inline="always")
def _nearest(
    links: _Links,
    load: _Load,
    missing: int,
    weight: int,
    eps: float,
    dist: NDArray[np.float64],
    state: NDArray[np.int64],
) -> int:
    """Return the missing reader nearest to the tree (Dijkstra, from all its devices).

    Devices of the tree have a depth in ``state[0]``; ``state[1]`` and ``state[2]``
    become the level and the parent of those on the way.
    """
    depth, level, parent = state[0], state[1], state[2]
    for device in range(links.devices):
        level[device] = depth[device]
        dist[device] = 0.0 if depth[device] >= 0 else _FAR
    settled = np.int64(0)
    while True:
        found, least = 0, _FAR
        for device in range(links.devices):
            if dist[device] < least and not settled >> device & 1:
                found, least = device, dist[device]
        settled |= np.int64(1) << found
        if missing >> found & 1:
            return found
        stage = level[found]
        peak = load.peaks[stage]
        for to in range(links.devices):
            pair = found * links.devices + to
            if links.starts[pair] == links.starts[pair + 1] or dist[to] <= least + eps:
                continue
            longest = peak
            for at in range(links.starts[pair], links.starts[pair + 1]):
                link = links.crossed[at]
                busy = (load.rows[stage, link] + weight) * links.row_times[link]
                longest = max(longest, busy)
            far = least + (longest - peak) + eps
            if far < dist[to]:
                dist[to], level[to], parent[to] = far, stage + 1, found


def _tables(
    devices: int,
    vertices: NDArray[np.int64],
    group_of: NDArray[np.int64],
    forest: _Forest,
) -> Plan:
    """Return the plan of grown trees."""
    counts = np.zeros(max(devices - 1, 1) * devices * devices, np.int64)
    _count(devices, forest, counts)
    used = np.flatnonzero(counts)
    bounds = np.concatenate([[0], np.cumsum(counts[used])])
    next_place = np.zeros(len(counts), np.int64)
    next_place[used] = bounds[:-1]
    rows = np.empty(bounds[-1], np.int64)
    _fill(devices, forest, vertices, group_of, next_place, rows)
    stage, pair = np.divmod(used, devices * devices)
    transfers = np.stack([stage, *np.divmod(pair, devices)], axis=1)
    return Plan(devices, transfers.astype(np.int32), bounds, rows)


@njit(nogil=True)
def _count(devices: int, forest: _Forest, counts: NDArray[np.int64]) -> None:
    """Count the rows of every (stage, sender, receiver)."""
    for group in range(len(forest.sizes)):
        for edge in range(forest.sizes[group]):
            place = (
                forest.stages[group, edge] * devices + forest.senders[group, edge]
            ) * devices + forest.receivers[group, edge]
            counts[place] += forest.weights[group]


@njit(nogil=True)
def _fill(
    devices: int,
    forest: _Forest,
    vertices: NDArray[np.int64],
    group_of: NDArray[np.int64],
    next_place: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> None:
    """Write every row into the tables of its tree; vertices come in their order."""
    for row in range(len(vertices)):
        group = group_of[row]
        for edge in range(forest.sizes[group]):
            place = (
                forest.stages[group, edge] * devices + forest.senders[group, edge]
            ) * devices + forest.receivers[group, edge]
            rows[next_place[place]] = vertices[row]
            next_place[place] += 1
