"""Find units that can change places without a change in any schedule.

Samplers of one worker are interchangeable, and so are workers together with their
samplers, provided that their job, demands, times, edges and volumes are the same. A
search that uses this looks at one placement of each kind only.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from emu.scheduling.compiled import compiled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from emu.placement.space import Space
    from emu.problem import Realization
    from emu.scheduling.compiled_problem import Ints

Teams = tuple[tuple[int, tuple[int, ...]], ...]


class Symmetry(NamedTuple):
    """Interchangeable units as flat arrays."""

    twin_start: Ints
    twin: Ints
    """Classes of units that may be permuted freely."""
    block_start: Ints
    block_width: Ints
    block: Ints
    """Classes of blocks of ``block_width`` units each, listed block by block, that may
    be permuted as wholes; corresponding units stand at the same position."""


def hub_followers(space: Space) -> Teams:
    """Return (hub, followers): units whose only movable partner is the hub.

    In DGTP's job the hubs are the workers and the followers their samplers.
    """
    unit_of = {task: u for u, unit in enumerate(space.units) for task in unit.tasks}
    partners: dict[int, set[int]] = {u: set() for u in range(len(space.units))}
    for edge, control in zip(space.job.edges, space.job.control, strict=True):
        ends = unit_of.get(edge.source, -1), unit_of.get(edge.destination, -1)
        if not control and min(ends) >= 0 and ends[0] != ends[1]:
            partners[ends[0]].add(ends[1])
            partners[ends[1]].add(ends[0])
    followers: dict[int, list[int]] = defaultdict(list)
    for unit, others in partners.items():
        if len(others) == 1:
            (hub,) = others
            if hub not in followers.get(unit, []):  # of a lone pair, one is the hub
                followers[hub].append(unit)
    return tuple((hub, tuple(units)) for hub, units in sorted(followers.items()))


class _Automorphisms:
    """Check that exchanging units maps the job and its realization onto itself."""

    def __init__(self, space: Space, realization: Realization) -> None:
        self.space, self.realization = space, realization
        self.edge_at: dict[tuple[int, int, int, bool], int] = {}
        self.touching: dict[int, list[int]] = defaultdict(list)
        self.twice: set[tuple[int, int, int, bool]] = set()
        for e, edge in enumerate(space.job.edges):
            control = space.job.control[e]
            key = (edge.source, edge.destination, edge.lag, control)
            if key in self.edge_at:
                self.twice.add(key)
            self.edge_at[key] = e
            self.touching[edge.source].append(e)
            self.touching[edge.destination].append(e)

    def exchange(self, ours: Sequence[int], theirs: Sequence[int]) -> bool:
        """Return True where units ``ours`` and ``theirs`` can swap places pairwise."""
        image: dict[int, int] = {}
        for a, b in zip(ours, theirs, strict=True):
            for s, t in zip(self._tasks(a), self._tasks(b), strict=True):
                image[s], image[t] = t, s
        times, tasks = self.realization.times, self.space.job.tasks
        return all(
            (times[s] == times[t]).all() and tasks[s].job_name == tasks[t].job_name
            for s, t in image.items()
        ) and all(
            self._kept(edge, image)
            for task in image
            for edge in self.touching.get(task, [])
        )

    def _tasks(self, unit: int) -> tuple[int, ...]:
        return self.space.units[unit].tasks

    def _kept(self, edge: int, image: dict[int, int]) -> bool:
        there = self.space.job.edges[edge]
        key = (
            image.get(there.source, there.source),
            image.get(there.destination, there.destination),
            there.lag,
            self.space.job.control[edge],
        )
        if there.channel or key not in self.edge_at or key in self.twice:
            return False
        volumes = self.realization.volumes
        return bool((volumes[edge] == volumes[self.edge_at[key]]).all())


def find_symmetry(space: Space, realization: Realization) -> Symmetry:
    """Return the interchangeable units of ``space`` under ``realization``.

    Exact: volumes that differ in one byte make two units different, and relabelling
    within the result never changes a makespan.
    """
    automorphisms = _Automorphisms(space, realization)

    def classes(blocks: Iterable[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
        found: list[list[tuple[int, ...]]] = []
        for block in blocks:
            for others in found:
                if automorphisms.exchange(others[0], block):
                    others.append(block)
                    break
            else:
                found.append([block])
        return [blocks for blocks in found if len(blocks) > 1]

    kind = {u: g for g, group in enumerate(space.groups) for u in group}
    twins = [c for group in space.groups for c in classes((u,) for u in group)]
    alike: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
    twin_units = {u for same in twins for (u,) in same}
    for hub, followers in hub_followers(space):
        if hub not in twin_units:
            block = (hub, *followers)
            alike[tuple(kind[u] for u in block)].append(block)
    blocks = [c for team in alike.values() for c in classes(team)]
    return Symmetry(
        _starts(len(same) for same in twins),
        _flat(same for same in twins),
        _starts(len(same) * len(same[0]) for same in blocks),
        np.array([len(same[0]) for same in blocks], dtype=np.int64),
        _flat(same for same in blocks),
    )


def _starts(sizes: Iterable[int]) -> Ints:
    return np.cumsum([0, *sizes], dtype=np.int64)


def _flat(classes: Iterable[list[tuple[int, ...]]]) -> Ints:
    units = [u for same in classes for block in same for u in block]
    return np.array(units, dtype=np.int64)


@compiled
def _precedes(machines: Ints, block: Ints, a: int, b: int, width: int) -> bool:
    for i in range(width):
        ours, theirs = machines[block[a + i]], machines[block[b + i]]
        if ours != theirs:
            return bool(ours < theirs)
    return False


@compiled
def canonicalise(symmetry: Symmetry, machines: Ints) -> None:
    """Relabel interchangeable units in place so that equals become equal.

    Machines ascend within each class of twins, then blocks ascend lexicographically.
    """
    twin = symmetry.twin
    for c in range(symmetry.twin_start.size - 1):
        first, end = symmetry.twin_start[c], symmetry.twin_start[c + 1]
        for i in range(first + 1, end):  # insertion sort
            j = i
            while j > first and machines[twin[j]] < machines[twin[j - 1]]:
                a, b = twin[j - 1], twin[j]
                machines[a], machines[b] = machines[b], machines[a]
                j -= 1
    block = symmetry.block
    for c in range(symmetry.block_start.size - 1):
        width = symmetry.block_width[c]
        first, end = symmetry.block_start[c], symmetry.block_start[c + 1]
        for i in range(first + width, end, width):
            j = i
            while j > first and _precedes(machines, block, j, j - width, width):
                for k in range(width):
                    a, b = block[j - width + k], block[j + k]
                    machines[a], machines[b] = machines[b], machines[a]
                j -= width


def relabelled(symmetry: Symmetry, machines: Ints, to: Ints) -> Ints:
    """Return an equal of ``machines`` in which many units stand as they do in ``to``.

    Of interchangeable blocks and units, those that agree most are paired first.
    """
    found = machines.copy()
    starts, widths = symmetry.block_start, symmetry.block_width
    classes = [
        symmetry.block[a:b].reshape(-1, width)
        for a, b, width in zip(starts, starts[1:], widths, strict=False)
    ]
    starts = symmetry.twin_start
    classes += [symmetry.twin[a:b, None] for a, b in pairwise(starts)]
    for rows in classes:
        wanted, have = found[rows], to[rows]
        agree = (wanted[:, None, :] == have[None, :, :]).sum(axis=2)
        for _ in rows:
            one, other = np.unravel_index(int(agree.argmax()), agree.shape)
            found[rows[other]] = wanted[one]
            agree[one, :] = agree[:, other] = -1
    return found
