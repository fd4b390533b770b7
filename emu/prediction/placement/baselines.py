"""Placements to start from and to compare with.

IFS (the paper's Algorithm 2), given ones, random ones, one machine after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import numpy as np

from emu.array_types import Ints
from emu.errors import InfeasiblePlacement, PlacementError
from emu.prediction.placement.packing import Packing, infeasibility
from emu.prediction.placement.space import Space
from emu.problem import Cluster, Job, Placement
from emu.problem.machine import format_amount, name_amount


def place_ifs(job: Job, cluster: Cluster, rng: np.random.Generator) -> Placement:
    """Return a feasible placement, found by the dynamic program of the paper.

    The machines are visited in a random order. A state is how many tasks of each kind
    the machines so far hold; kinds are tasks that are interchangeable, same kind and
    equal demands, whatever their names. Tasks of one process move as one, pinned ones
    (the graph stores) only take room.

    Raises InfeasiblePlacement, which names the binding resource, when no placement
    exists, and PlacementError when there are too many kinds of tasks for the program.

    References
    ----------
    .. [1] Luo, Bao, Wu, INFOCOM 2022, Alg. 2. Where it is silent or slips: counts begin
       at 0, states are kept once, every machine may be the last one (also the first),
       tasks of a kind are handed out in the order of the job.
    """
    space = Space(job, cluster)
    order = rng.permutation(len(cluster.machines)).tolist()
    machines = fill(space, order)
    if machines is None:
        raise infeasibility(space)
    return space.placement(machines.tolist())


def fill(
    space: Space,
    order: list[int],
    placed: Ints | None = None,
) -> Ints | None:
    """Return a feasible machine for every unit, or None; machines tried in ``order``.

    Raises PlacementError when there are too many different kinds of tasks for the
    program.

    ``placed``: machine of the units that stand already, -1 for the others, shape
    (units,).
    """
    if placed is None:
        units = len(space.units)
        placed = np.full(units, -1, dtype=np.int64)
    is_placed = placed >= 0
    room = space.free + space.slack
    # With a plain -= a machine on which several units stand would lose one demand
    # alone.
    machines_in_use = placed[is_placed]
    np.subtract.at(room, machines_in_use, space.demand[is_placed])
    if (room < 0).any():
        return None

    # Units that ask for nothing limited stay out of the states and go to the last
    # machine. The program would put them there too: counts are tried from 0 up, so
    # the state without them is always the first of its kind.
    groups = []
    representatives = []
    for group in space.packed:
        units_left = [unit for unit in group if not is_placed[unit]]
        groups.append(units_left)
        # Of a group all demand the same, those that are placed already included.
        first = group[0]
        representatives.append(first)
    packing = Packing(
        demand=space.demand[representatives],
        sizes=tuple(map(len, groups)),
        free=room,
    )
    solution = packing.solve(order)
    if solution is None:
        return None

    filled_machines, counts = zip(*solution, strict=True)
    last_machine = filled_machines[-1]
    machines = np.where(is_placed, placed, last_machine)
    counts_by_group = zip(*counts, strict=True)
    for group_units, group_counts in zip(groups, counts_by_group, strict=True):
        # Units of a group go in the order of the job (A11).
        machines[group_units] = np.repeat(filled_machines, group_counts)
    return machines


#: Draws before the cautious one of `_deal`, which is slow.
ATTEMPTS = 20


def place_explicit(job: Job, cluster: Cluster, tasks: Mapping[str, str]) -> Placement:
    """Return the placement that ``tasks`` spells out.

    ``tasks``: machine name by task name, or by process name for all tasks of the
    process. Pinned tasks may be left out.

    Raises PlacementError when a name is unknown, a task is left out, or a process would
    be torn apart, and InfeasiblePlacement, which states by how much, when a capacity or
    a pin is broken.
    """
    # The user may part who shares slots: where a pool is unlimited, that can be.
    space = Space(job, cluster, apart=True)
    machine_of = space.fixed.tolist()
    names = cluster.names
    numbers = {name: number for number, name in enumerate(names)}
    for (process, machine), name in _stated_machines(job, tasks).items():
        if process is None:
            problem = f"the placement names {name}, which is no task of the job"
            raise PlacementError(problem)
        if machine not in numbers:
            raise PlacementError(
                f"task {name} is placed on {machine}, "
                f"which is no machine; there are {', '.join(names)}"
            )
        number = numbers[machine]
        for position in job.units[process]:
            number_so_far = machine_of[position]
            if number_so_far not in {-1, number}:
                task_name = job.tasks[position].name
                raise PlacementError(
                    f"task {name} is placed on {machine}, but "
                    f"{task_name} must stand on {names[number_so_far]} "
                    "(pinned, or of the same process)"
                )
            machine_of[position] = number

    missing = []
    for position, task in enumerate(job.tasks):
        if machine_of[position] < 0:
            missing.append(task.name)
    if missing:
        first_missing = ", ".join(missing[:8])
        raise PlacementError(f"the placement leaves out {first_missing}")
    placement = Placement(tuple(machine_of))
    _check_capacities(space, placement)
    return placement


def _stated_machines(
    job: Job,
    tasks: Mapping[str, str],
) -> dict[tuple[str | None, str], str]:
    """Return (process, machine) -> the last name that states them; None is unknown."""
    process_of = {task.name: task.process_name for task in job.tasks}
    process_of |= {process: process for process in job.units}
    names = {}
    for name, machine in tasks.items():
        process = process_of.get(name)
        names[process, machine] = name
    return names


def _check_capacities(space: Space, placement: Placement) -> None:
    machines = space.cluster.machines
    usage = placement.usage(space.job, space.cluster)
    for machine, use in zip(machines, usage, strict=True):
        for resource in space.resources:
            capacity = machine.resources.get(resource, np.inf)
            amount = use.get(resource, 0.0)
            with_rounding = capacity * (1 + 1e-12)
            if amount > with_rounding:
                shortfall = float(amount - capacity)
                raise InfeasiblePlacement(
                    f"machine {machine.name} has {name_amount(capacity, resource)}, "
                    f"the tasks placed on it need {format_amount(amount, resource)} "
                    f"({format_amount(shortfall, resource)} more)",
                    resource=resource,
                    shortfall=shortfall,
                )


def place_random(job: Job, cluster: Cluster, rng: np.random.Generator) -> Placement:
    """Return a random feasible placement.

    Units are taken in random order, each to a random machine among those with room.

    Raises InfeasiblePlacement when no placement exists.
    """
    space = Space(job, cluster)
    return space.placement(draw_machines(space, rng))


def draw_machines(space: Space, rng: np.random.Generator) -> Ints:
    """Return the units' machines in a random feasible placement, see `place_random`.

    Raises InfeasiblePlacement when no placement exists.
    """

    def draw() -> Iterator[_Turn]:
        units = rng.permutation(len(space.units))
        for unit in units.tolist():
            machines = rng.permutation(len(space.free))
            yield unit, machines.tolist()

    return _deal(space, ATTEMPTS, draw)


def place_round_robin(job: Job, cluster: Cluster) -> Placement:
    """Return the placement that deals units to one machine after the other.

    Units in the order of the job, machines in the order of the file; a machine without
    room is passed over.

    Raises InfeasiblePlacement when no placement exists.
    """
    space = Space(job, cluster)
    return space.placement(deal_out(space))


def deal_out(space: Space) -> Ints:
    """Return the units' machines in turn, see `place_round_robin`.

    Raises InfeasiblePlacement when no placement exists.
    """
    count = len(space.free)

    def take_turns() -> Iterator[_Turn]:
        for unit in range(len(space.units)):
            # A unit's turn is its number: a machine that is full is passed over by this
            # one alone.
            machines = [(unit + step) % count for step in range(count)]
            yield unit, machines

    return _deal(space, 1, take_turns)


#: A unit, and the machines that it takes the first of that has room.
_Turn: TypeAlias = tuple[int, list[int]]


def _deal(
    space: Space,
    attempts: int,
    turns: Callable[[], Iterator[_Turn]],
) -> Ints:
    """Give every unit of ``turns()`` the first of its machines that has room.

    Where units are left over it begins anew. The last attempt is cautious: it tests, by
    IFS, that the units after each can still be placed, and so ends in an error only
    where there is no placement at all. That is slow.
    """
    order = list(range(len(space.free)))
    units = len(space.units)

    # 0 is the cautious attempt.
    for rest in range(attempts, -1, -1):
        machines = np.full(units, -1, dtype=np.int64)
        if not space.fits(machines):
            break  # pinned tasks alone are too much
        for unit, preference in turns():
            for machine in preference:
                machines[unit] = machine
                if rest:
                    has_room = space.fits(machines)
                else:
                    has_room = fill(space, order, machines) is not None
                if has_room:
                    break
            else:
                break
        else:
            return machines
    raise infeasibility(space)
