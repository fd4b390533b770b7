"""Sets of machines that are worth a try for a job, where it may leave some out.

Must not know: scenarios, systems.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, product
from math import prod
from typing import TypeAlias

import numpy as np

from emu.array_types import Floats
from emu.problem import Cluster, Job
from emu.problem.placement import slowness

Names = tuple[str, ...]
Numbers = tuple[int, ...]

#: Sets up to which all are tried that differ in the kinds of their machines.
MOST_SETS = 32
#: Numbers of machines by kind that are looked through for those of one size: 0.1 s.
_MOST_MIXTURES = 50_000


def machine_sets(
    job: Job,
    cluster: Cluster,
    most: int,
    held: Collection[str] = (),
    size: int | None = None,
) -> list[Names]:
    """Return sets of machines to try, by name in the cluster's order, all of it first.

    All sets where there are at most 32 that differ in the kinds of their machines. Else
    prefixes in order of NIC, then of device, and in order of device, then of NIC; whole
    racks, and prefixes within them.

    ``job``: its tasks say how slow every machine is. ``most``: how many, at least 1; of
    more those are left whose sizes are spread evenly. ``size``: of each; all machines
    are not among these.
    """
    sets = _list_sets(job, cluster, size)
    if size is None:
        choice = _with_everything(sets, cluster, most, held)
    else:
        choice = _spread_evenly(sorted(sets), most)

    names = cluster.names
    sets_of_names = []
    for numbers in choice:
        names_of_set = [names[number] for number in numbers]
        sets_of_names.append(tuple(names_of_set))
    return sets_of_names


def _with_everything(
    sets: set[Numbers],
    cluster: Cluster,
    most: int,
    held: Collection[str],
) -> list[Numbers]:
    """Return all machines, then sets of any size, each with those that are held."""
    everything = tuple(range(len(cluster.machines)))
    held_numbers = [cluster.index(name) for name in held]
    unique = set[Numbers]()
    for numbers in sets:
        all_numbers = sorted({*numbers, *held_numbers})
        unique.add(tuple(all_numbers))
    unique.discard(everything)

    # By number first: sorting by size alone would keep the order of a set, which is
    # none.
    by_number = sorted(unique)
    by_size = sorted(by_number, key=len)
    return [everything, *_spread_evenly(by_size, most - 1)]


def _spread_evenly(sets: list[Numbers], most: int) -> list[Numbers]:
    """Return so many of the sets at most, from the first to the last."""
    if len(sets) <= most:
        return sets
    last = len(sets) - 1
    count = max(most, 0)
    places = np.linspace(0, last, count).round()
    whole_places = places.astype(int).tolist()
    # Rounding may name one place twice: hence the keys of a dict.
    unique_places = dict.fromkeys(whole_places)
    return [sets[place] for place in unique_places]


def _list_sets(job: Job, cluster: Cluster, size: int | None) -> set[Numbers]:
    """Return the sets that are worth a try, by position, none of them empty."""
    factors = slowness(job, cluster)
    machine_count = len(cluster.machines)
    slow = np.ones(machine_count)
    if len(factors):
        # All tasks count alike: how long each takes is not known here.
        slow = factors.mean(axis=0)

    def speed(number: int) -> tuple[float, float]:
        machine = cluster.machines[number]
        slower_way = min(machine.bandwidth_in, machine.bandwidth_out)
        # Negative, so that fast NICs come first, as small factors do.
        return -slower_way, float(slow[number])

    order = sorted(range(machine_count), key=speed)
    members = _by_kind(cluster, factors, order)
    if size is None:
        # All numbers but none of any kind are sets.
        mixtures = _mixtures(members, MOST_SETS + 1)
    else:
        mixtures_of_all_sizes = _mixtures(members, _MOST_MIXTURES)
        mixtures = _of_size(mixtures_of_all_sizes, size)

    # None at all: they were too many to list, or none has this size.
    if not 0 < len(mixtures) <= MOST_SETS:
        mixtures = list(_prefixes(cluster, order, slow))
        if size is not None:
            mixtures = _of_size(mixtures, size)
    return {tuple(sorted(numbers)) for numbers in mixtures}


#: Machines, by number, in any order.
_Mixture: TypeAlias = Sequence[int]


def _of_size(mixtures: Iterable[_Mixture], size: int) -> list[_Mixture]:
    return [numbers for numbers in mixtures if len(numbers) == size]


def _by_kind(
    cluster: Cluster,
    factors: Floats,
    order: Sequence[int],
) -> list[list[int]]:
    """Return the machines of each kind, alike in all that a job may notice."""
    # A machine that changes is like no other, however equal they are at time 0. Its
    # NICs are called after it: `m0 in`.
    changing = {change.machine for change in cluster.speed_changes}
    for change in cluster.changes:
        machine_name, _, _ = change.link.rpartition(" ")
        changing.add(machine_name)

    members = dict[object, list[int]]()
    for number in order:
        machine = cluster.machines[number]
        name_of_changing = machine.name if machine.name in changing else ""
        resources = sorted(machine.resources.items())
        slots = sorted(machine.slots.items())
        factors_of_tasks = factors[:, number] if len(factors) else ()
        kind = (
            name_of_changing,
            str(resources),
            str(slots),
            machine.bandwidth_in,
            machine.bandwidth_out,
            machine.latency_in,
            machine.latency_out,
            machine.speed,
            int(cluster.links.zone[number]),
            tuple(factors_of_tasks),
        )
        members.setdefault(kind, []).append(number)
    return [*members.values()]


def _mixtures(members: Sequence[_Mixture], most: int) -> list[_Mixture]:
    """Return so many machines of each kind, for all such numbers; none of too many."""
    numbers_of_kinds = []
    for group in members:
        most_of_kind = len(group)
        numbers_of_kinds.append(range(most_of_kind + 1))
    possible = prod(map(len, numbers_of_kinds))
    if possible > most:
        return []

    mixtures = list[_Mixture]()
    for counts in product(*numbers_of_kinds):
        numbers = list[int]()
        for group, count in zip(members, counts, strict=True):
            # All of a kind are alike: the first ones stand for any others.
            numbers += group[:count]
        if numbers:
            mixtures.append(numbers)
    return mixtures


def _prefixes(
    cluster: Cluster,
    order: Sequence[int],
    slow: Floats,
) -> Iterator[_Mixture]:
    """Yield prefixes of the orders, and whole racks after each other."""
    racks = dict[int, list[int]]()
    for number in order:
        rack = int(cluster.links.zone[number])
        members = racks.setdefault(rack, [])
        members.append(number)
    fastest_first = sorted(order, key=slow.__getitem__)

    for numbers in (order, fastest_first, *racks.values()):
        yield from accumulate([number] for number in numbers)
    yield from accumulate(racks.values())
