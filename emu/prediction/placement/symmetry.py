"""Units that can change places without a change in any schedule.

Samplers of one worker are interchangeable, and so are workers together with their
samplers, provided that their job, demands, times, edges and volumes are the same. A
search that uses this looks at one placement of each kind only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from emu.array_types import Ints
from emu.prediction.core import Record
from emu.prediction.placement.space import Space
from emu.problem import Realization

Teams = tuple[tuple[int, tuple[int, ...]], ...]
_Block = tuple[int, ...]  # units that change places together


def hub_followers(space: Space) -> Teams:
    """Return (hub, followers): units whose only movable partner is the hub.

    In DGTP's job the hubs are the workers and the followers their samplers.
    """
    job = space.job
    partners: list[set[int]] = [set() for _ in space.units]
    for edge, control in zip(job.edges, job.control, strict=True):
        source = space.unit_of.get(edge.source, -1)
        destination = space.unit_of.get(edge.destination, -1)
        can_move = source >= 0 and destination >= 0
        if can_move and not control and source != destination:
            partners[source].add(destination)
            partners[destination].add(source)

    followers: dict[int, list[int]] = defaultdict(list)
    for unit, hubs in enumerate(partners):
        if len(hubs) != 1:
            continue
        (hub,) = hubs
        is_hub_of_its_hub = unit in followers and hub in followers[unit]
        if not is_hub_of_its_hub:  # of a lone pair, one is the hub
            followers[hub].append(unit)

    teams = []
    for hub in sorted(followers):
        units = tuple(followers[hub])
        teams.append((hub, units))
    return tuple(teams)


class _EdgeKey(NamedTuple):
    """Properties of an edge that its image under an exchange must have as well."""

    source: int
    destination: int
    lag: int
    control: bool


class _Automorphisms:
    """Check that exchanging units maps the job and its realization onto itself."""

    def __init__(self, space: Space, realization: Realization) -> None:
        self.space = space
        self.realization = realization
        self.keys = list[_EdgeKey]()
        self.edge_at = dict[_EdgeKey, int]()
        self.touching: dict[int, list[int]] = defaultdict(list)
        self.twice = set[_EdgeKey]()

        for position, edge in enumerate(space.job.edges):
            control = space.job.control[position]
            key = _EdgeKey(
                source=edge.source,
                destination=edge.destination,
                lag=edge.lag,
                control=control,
            )
            if key in self.edge_at:
                self.twice.add(key)
            self.keys.append(key)
            self.edge_at[key] = position
            self.touching[edge.source].append(position)
            self.touching[edge.destination].append(position)

    def exchange(self, block: _Block, partner: _Block) -> bool:
        """Return True where the units of two blocks can swap places pairwise."""
        image: dict[int, int] = {}
        for unit, twin in zip(block, partner, strict=True):
            tasks = self.space.units[unit].tasks
            twin_tasks = self.space.units[twin].tasks
            for task, twin_task in zip(tasks, twin_tasks, strict=True):
                image[task] = twin_task
                image[twin_task] = task

        # Kinds, demands, slowness and times are equal: only such units get here.
        all_tasks = self.space.job.tasks
        for task, twin_task in image.items():
            if all_tasks[task].job_name != all_tasks[twin_task].job_name:
                return False
        return self._keeps_edges(image)

    def _keeps_edges(self, image: dict[int, int]) -> bool:
        edges = self.space.job.edges
        volumes = self.realization.volumes
        touched = set[int]()
        for task in image:
            touched.update(self.touching[task])

        for position in touched:
            edge = edges[position]
            key = self.keys[position]._replace(
                source=image.get(edge.source, edge.source),
                destination=image.get(edge.destination, edge.destination),
            )
            twin = self.edge_at.get(key)
            # Of two edges between the same tasks either might be the image.
            if edge.channel or twin is None or key in self.twice:
                return False
            if edges[twin].coflow != edge.coflow:
                return False
            differs = volumes[position] != volumes[twin]
            if differs.any():
                return False
        return True

    def classes(self, blocks: Iterable[_Block]) -> list[list[_Block]]:
        """Return those of some blocks that are interchangeable, class by class.

        Only blocks that take equal times are compared pair by pair: 256 machines of
        drawn times hold 440,000 pairs, 4 s of CPU.
        """
        by_times: dict[bytes, list[list[_Block]]] = defaultdict(list)
        for block in blocks:
            key = self._times_of(block)
            self._add_to_class(block, by_times[key])

        classes = chain.from_iterable(by_times.values())
        return [members for members in classes if len(members) > 1]

    def _times_of(self, block: _Block) -> bytes:
        """Return the times of all tasks of a block, as a key."""
        tasks: list[int] = []
        for unit in block:
            tasks += self.space.units[unit].tasks
        times = self.realization.times[tasks]
        return times.tobytes()

    def _add_to_class(self, block: _Block, classes: list[list[_Block]]) -> None:
        """Add a block to the class of which it can swap places, or as a new one."""
        for members in classes:
            first = members[0]
            if self.exchange(first, block):
                members.append(block)
                return
        classes.append([block])


def find_symmetry(space: Space, realization: Realization) -> Record:
    """Return the interchangeable units of ``space``, a `Symmetry` of core.h.

    Exact: volumes that differ in one byte make two units different, and relabelling
    within the result never changes a makespan.
    """
    automorphisms = _Automorphisms(space, realization)
    group_of = dict[int, int]()
    twins = []
    for number, group in enumerate(space.groups):
        group_of |= dict.fromkeys(group, number)
        single_units = [(unit,) for unit in group]
        twins += automorphisms.classes(single_units)

    twin_units = {*_units_of(twins)}
    alike: dict[tuple[int, ...], list[_Block]] = defaultdict(list)
    for hub, followers in hub_followers(space):
        # A hub that has a twin may change places without its followers.
        if hub in twin_units:
            continue
        block = (hub, *followers)
        # Blocks of unlike units are never interchangeable: only like ones are
        # compared.
        groups = tuple(group_of[unit] for unit in block)
        alike[groups].append(block)

    blocks = []
    for candidates in alike.values():
        blocks += automorphisms.classes(candidates)
    widths = []
    sizes = []
    for members in blocks:
        width = len(members[0])
        widths.append(width)
        sizes.append(width * len(members))

    return Record(
        "Symmetry",
        twin_classes=len(twins),
        twin_start=_starts(map(len, twins)),
        twin=_flat(twins),
        block_classes=len(blocks),
        block_start=_starts(sizes),
        block_width=np.array(widths, dtype=np.int64),
        block=_flat(blocks),
    )


def _starts(sizes: Iterable[int]) -> Ints:
    return np.cumsum([0, *sizes], dtype=np.int64)


def _units_of(classes: Iterable[Sequence[_Block]]) -> list[int]:
    """Return the units of all blocks, class by class."""
    units = list[int]()
    for members in classes:
        for block in members:
            units += block
    return units


def _flat(classes: Iterable[Sequence[_Block]]) -> Ints:
    units = _units_of(classes)
    return np.array(units, dtype=np.int64)


def relabel(symmetry: Record, machines: Ints, to: Ints) -> Ints:
    """Return an equal of ``machines`` in which many units stand as they do in ``to``.

    Of interchangeable blocks and units, those that agree most are paired first.
    """
    classes = []
    bounds = pairwise(symmetry.block_start)
    # Blocks first: samplers may only then change places within their worker's team.
    for (first, end), width in zip(bounds, symmetry.block_width, strict=True):
        units = symmetry.block[first:end]
        blocks = units.reshape(-1, width)
        classes.append(blocks)
    for first, end in pairwise(symmetry.twin_start):
        units = symmetry.twin[first:end]
        twins = units.reshape(-1, 1)
        classes.append(twins)

    labels = machines.copy()
    for blocks in classes:
        source = labels[blocks]
        target = to[blocks]
        agrees = source[:, None, :] == target[None, :, :]
        agreement = agrees.sum(axis=2)
        for _ in blocks:
            most = int(agreement.argmax())
            row, column = np.unravel_index(most, agreement.shape)
            block = blocks[column]
            labels[block] = source[row]
            agreement[row, :] = -1
            agreement[:, column] = -1
    return labels


def team_arrays(space: Space) -> Record:
    """Return the teams as `Teams` of core.h; a job without any has teams of one."""
    teams = [(hub, *followers) for hub, followers in hub_followers(space)]
    if not teams:
        units = range(len(space.units))
        teams = [(unit,) for unit in units]
    return Record(
        "Teams",
        count=len(teams),
        start=_starts(map(len, teams)),
        unit=_flat([teams]),
    )
