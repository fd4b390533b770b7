"""Moves of the improved search, and the random numbers that choose them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from typing_extensions import override

from emu.errors import PlacementError
from emu.prediction.core import Record, lib, pointer
from emu.prediction.placement.space import Space
from emu.prediction.scheduling.compiled_problem import Ints
from emu.problem import Placement, Problem, Realization


@dataclass(frozen=True)
class Move:
    """A process that stands elsewhere; ``source`` and ``destination`` are machines."""

    process: str
    source: str
    destination: str

    @override
    def __str__(self) -> str:
        """Return ``s2: slow0 -> big``."""
        return f"{self.process}: {self.source} -> {self.destination}"


@dataclass(frozen=True)
class Neighbour:
    """A feasible placement near another one."""

    placement: Placement
    moves: tuple[Move, ...]
    """Moves that lead to it from the placement before."""

    @classmethod
    def of(cls, problem: Problem, placement: Placement) -> Neighbour:
        """Return a placement as a neighbour of that of ``problem``."""
        after = replace(problem, placement=placement)
        return cls(placement, moves_between(problem, after))

    @override
    def __str__(self) -> str:
        """Return ``move s2 to big``, ``swap ps0 and w1``, or all moves."""
        if len({move.destination for move in self.moves}) == 1:
            names = ", ".join(move.process for move in self.moves)
            return f"move {names} to {self.moves[0].destination}"
        rest = list(self.moves)
        ones = []
        others = []
        while rest:
            one = rest.pop(0)
            way = one.destination, one.source
            back = next((m for m in rest if (m.source, m.destination) == way), None)
            if back is None:
                return "; ".join(map(str, self.moves))
            rest.remove(back)
            ones.append(one.process)
            others.append(back.process)
        word = " and " if len(ones) == 1 else " with "
        return f"swap {', '.join(ones)}{word}{', '.join(others)}"


def moves_between(before: Problem, after: Problem) -> tuple[Move, ...]:
    """Return the moves from one problem to another, of processes that both have.

    One may have fewer machines, and fewer stores with them.
    """
    homes = before.machine_of_task
    others = after.machine_of_task
    of_process = {
        name: after.job.tasks[t].name for name, (t, *_) in after.job.units.items()
    }
    return tuple(
        Move(process, homes[task], others[task])
        for process, task in of_process.items()
        if homes.get(task, others[task]) != others[task]
    )


def move(problem: Problem, machines: Mapping[str, str]) -> Neighbour:
    """Return the placement of ``problem`` with some processes on other machines.

    Raises PlacementError when a process or machine is unknown, or the placement is
    infeasible: a pin or a capacity is broken.
    """
    job = problem.job
    cluster = problem.cluster
    machine_of = list(problem.placement.machine_of)
    for process, machine in machines.items():
        if process not in job.units:
            raise PlacementError(f"no process is called {process}")
        try:
            position = cluster.index(machine)
        except ValueError as error:
            raise PlacementError(str(error)) from error
        for task in job.units[process]:
            machine_of[task] = position
    placement = Placement(tuple(machine_of))
    broken = placement.violations(job, cluster)
    if broken:
        raise PlacementError("; ".join(broken))
    return Neighbour.of(problem, placement)


# Find units that can change places without a change in any schedule.
#
# Samplers of one worker are interchangeable, and so are workers together with their
# samplers, provided that their job, demands, times, edges and volumes are the same. A
# search that uses this looks at one placement of each kind only.

Teams = tuple[tuple[int, tuple[int, ...]], ...]


def hub_followers(space: Space) -> Teams:
    """Return (hub, followers): units whose only movable partner is the hub.

    In DGTP's job the hubs are the workers and the followers their samplers.
    """
    unit_of = space.unit_of
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
        self.space = space
        self.realization = realization
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
        for pair in zip(ours, theirs, strict=True):
            one, other = (self.space.units[unit].tasks for unit in pair)
            image |= zip((*one, *other), (*other, *one), strict=True)
        times = self.realization.times
        tasks = self.space.job.tasks
        if not all(
            (times[s] == times[t]).all() and tasks[s].job_name == tasks[t].job_name
            for s, t in image.items()
        ):
            return False
        edges = self.space.job.edges
        volumes = self.realization.volumes
        for e in {e for task in image for e in self.touching[task]}:
            there = edges[e]
            control = self.space.job.control[e]
            source, to = (image.get(t, t) for t in (there.source, there.destination))
            key = source, to, there.lag, control
            if there.channel or key not in self.edge_at or key in self.twice:
                return False
            twin = self.edge_at[key]
            same = edges[twin].coflow == there.coflow
            if not (same and (volumes[e] == volumes[twin]).all()):
                return False
        return True


def find_symmetry(space: Space, realization: Realization) -> Record:
    """Return the interchangeable units of ``space``, a `Symmetry` of core.h.

    Exact: volumes that differ in one byte make two units different, and relabelling
    within the result never changes a makespan.
    """
    automorphisms = _Automorphisms(space, realization)

    def classes(blocks: Iterable[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
        # Only what takes equal times is compared pair by pair: 256 machines of drawn
        # times hold 440,000 pairs, 4 s of CPU.
        found: dict[bytes, list[list[tuple[int, ...]]]] = defaultdict(list)
        for block in blocks:
            tasks = [task for unit in block for task in space.units[unit].tasks]
            alike = found[realization.times[tasks].tobytes()]
            for others in alike:
                if automorphisms.exchange(others[0], block):
                    others.append(block)
                    break
            else:
                alike.append([block])
        every = [same for alike in found.values() for same in alike]
        return [blocks for blocks in every if len(blocks) > 1]

    kind = {u: g for g, group in enumerate(space.groups) for u in group}
    twins = [c for group in space.groups for c in classes((u,) for u in group)]
    alike: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
    twin_units = {u for same in twins for (u,) in same}
    for hub, followers in hub_followers(space):
        if hub not in twin_units:
            block = (hub, *followers)
            alike[tuple(kind[u] for u in block)].append(block)
    blocks = [c for team in alike.values() for c in classes(team)]
    return Record(
        "Symmetry",
        twin_classes=len(twins),
        twin_start=_starts(len(same) for same in twins),
        twin=_flat(same for same in twins),
        block_classes=len(blocks),
        block_start=_starts(len(same) * len(same[0]) for same in blocks),
        block_width=np.array([len(same[0]) for same in blocks], dtype=np.int64),
        block=_flat(same for same in blocks),
    )


def _starts(sizes: Iterable[int]) -> Ints:
    return np.cumsum([0, *sizes], dtype=np.int64)


def _flat(classes: Iterable[Sequence[tuple[int, ...]]]) -> Ints:
    units = [u for same in classes for block in same for u in block]
    return np.array(units, dtype=np.int64)


def canonicalise(symmetry: Record, machines: Ints) -> None:
    """Relabel interchangeable units in place so that equals become equal.

    Machines ascend within each class of twins, then blocks ascend lexicographically.
    """
    lib.canonicalise(symmetry.core, pointer(machines))


def relabel(symmetry: Record, machines: Ints, to: Ints) -> Ints:
    """Return an equal of ``machines`` in which many units stand as they do in ``to``.

    Of interchangeable blocks and units, those that agree most are paired first.
    """
    labels = machines.copy()
    starts = symmetry.block_start
    widths = symmetry.block_width
    classes = [
        symmetry.block[a:b].reshape(-1, width)
        for a, b, width in zip(starts, starts[1:], widths, strict=False)
    ]
    starts = symmetry.twin_start
    classes += [symmetry.twin[a:b, None] for a, b in pairwise(starts)]
    for rows in classes:
        source = labels[rows]
        have = to[rows]
        agree = (source[:, None, :] == have[None, :, :]).sum(axis=2)
        for _ in rows:
            one, other = np.unravel_index(int(agree.argmax()), agree.shape)
            labels[rows[other]] = source[one]
            agree[one, :] = agree[:, other] = -1
    return labels


def team_arrays(space: Space) -> Record:
    """Return the teams as `Teams` of core.h; a job without any has teams of one."""
    teams = [(hub, *followers) for hub, followers in hub_followers(space)]
    teams = teams or [(unit,) for unit in range(len(space.units))]
    starts = _starts(map(len, teams))
    return Record("Teams", count=len(teams), start=starts, unit=_flat([teams]))
