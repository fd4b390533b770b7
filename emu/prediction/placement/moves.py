"""Moves of processes to other machines, and the placements that they lead to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from typing_extensions import override

from emu.errors import PlacementError
from emu.problem import Placement, Problem


@dataclass(frozen=True)
class Move:
    """A process that stands elsewhere; ``source`` and ``destination`` are machines."""

    process: str
    source: str
    destination: str

    def reverses(self, move: Move) -> bool:
        """Return True where another process goes the opposite way."""
        return self.source == move.destination and self.destination == move.source

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
        destinations = {move.destination for move in self.moves}
        if len(destinations) == 1:
            destination = destinations.pop()
            moving = ", ".join(move.process for move in self.moves)
            return f"move {moving} to {destination}"

        rest = list(self.moves)
        processes = []
        partners = []
        while rest:
            move = rest.pop(0)
            # A swap is a move and another one back.
            moves_back = [later for later in rest if later.reverses(move)]
            if not moves_back:
                return "; ".join(map(str, self.moves))
            back = moves_back[0]
            rest.remove(back)
            processes.append(move.process)
            partners.append(back.process)

        word = "and" if len(processes) == 1 else "with"
        swapped = ", ".join(processes)
        swapped_with = ", ".join(partners)
        return f"swap {swapped} {word} {swapped_with}"


def moves_between(before: Problem, after: Problem) -> tuple[Move, ...]:
    """Return the moves from one problem to another, of processes that both have.

    One may have fewer machines, and fewer stores with them.
    """
    # By name: positions of tasks differ where one job has fewer stores.
    sources = before.machine_of_task
    destinations = after.machine_of_task
    job = after.job
    moves = []
    for process, (first_task, *_) in job.units.items():
        task = job.tasks[first_task].name
        destination = destinations[task]
        source = sources.get(task, destination)
        if source != destination:
            move = Move(process, source, destination)
            moves.append(move)
    return tuple(moves)


def move(problem: Problem, machines: Mapping[str, str]) -> Neighbour:
    """Return the placement of ``problem`` with some processes on other machines.

    Raises PlacementError when a process or machine is unknown, or the placement is
    infeasible: a pin or a capacity is broken.
    """
    job = problem.job
    cluster = problem.cluster
    machine_of = list(problem.placement.machine_of)
    for process, machine in machines.items():
        tasks = job.units.get(process)
        if tasks is None:
            raise PlacementError(f"no process is called {process}")
        try:
            position = cluster.index(machine)
        except ValueError as error:
            raise PlacementError(str(error)) from error
        for task in tasks:
            machine_of[task] = position

    placement = Placement(tuple(machine_of))
    broken = placement.violations(job, cluster)
    if broken:
        raise PlacementError("; ".join(broken))
    return Neighbour.of(problem, placement)
