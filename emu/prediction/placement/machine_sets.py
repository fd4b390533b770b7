"""Sets of machines that are worth a try for a job, where it may leave some out.

Must not know: scenarios, systems.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, product
from math import prod

import numpy as np

from emu.prediction.scheduling.compiled_problem import Floats
from emu.problem import Cluster, Job
from emu.problem.placement import slowness

Names = tuple[str, ...]

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
    more those are left whose sizes are spread evenly. ``size``: of each, all machines
    not among them; among the prefixes are those of the slowest devices then.
    """
    everything = (*range(len(cluster.machines)),)
    unique = _list_sets(job, cluster, held, size)
    rest = sorted(unique - {everything}, key=lambda one: (len(one), one))
    if size is not None:
        rest = sorted(unique)
        most += 1
    if len(rest) > most - 1:
        places = np.linspace(0, len(rest) - 1, max(most - 1, 0)).round()
        rest = [rest[int(place)] for place in dict.fromkeys(places.tolist())]
    chosen = [everything, *rest] if size is None else rest
    return [tuple(cluster.machines[m].name for m in numbers) for numbers in chosen]


def _list_sets(
    job: Job, cluster: Cluster, held: Collection[str], size: int | None
) -> set[tuple[int, ...]]:
    """Return the sets by position, all that are worth a try."""
    must = {cluster.index(name) for name in held} if size is None else set[int]()
    factors = slowness(job, cluster)
    slow = factors.mean(axis=0) if len(factors) else np.ones(len(cluster.machines))
    order = sorted(range(len(slow)), key=lambda m: (-_nic(cluster, m), float(slow[m])))
    members = _by_kind(cluster, factors, order)

    # So many machines of each kind, for all such numbers.
    possible = prod(len(group) + 1 for group in members)
    mixtures = list[Sequence[int]]()
    if possible <= (MOST_SETS + 1 if size is None else _MOST_MIXTURES):
        for counts in product(*(range(len(group) + 1) for group in members)):
            if size is None or sum(counts) == size:
                pairs = zip(members, counts, strict=True)
                mixtures.append([m for group, n in pairs for m in group[:n]])
    if possible > MOST_SETS + 1 and not 0 < len(mixtures) <= MOST_SETS:
        mixtures = [*_prefixes(cluster, order, slow, size)]

    unique = {tuple(sorted({*mixture} | must)) for mixture in mixtures if mixture}
    return {one for one in unique if size is None or len(one) == size}


def _nic(cluster: Cluster, machine: int) -> float:
    """Return the rate of a machine's NIC, of the slower direction."""
    there = cluster.machines[machine]
    return min(there.bandwidth_in, there.bandwidth_out)


def _by_kind(
    cluster: Cluster, factors: Floats, order: Sequence[int]
) -> list[list[int]]:
    """Return the machines of each kind, alike in all that a job may notice."""
    changing = {c.link.rpartition(" ")[0] for c in cluster.changes}
    changing |= {change.machine for change in cluster.speed_changes}
    members = dict[object, list[int]]()
    for m in order:
        machine = cluster.machines[m]
        kind = (
            machine.name if machine.name in changing else "",
            str(sorted(machine.resources.items())),
            str(sorted(machine.slots.items())),
            (machine.bandwidth_in, machine.bandwidth_out),
            (machine.latency_in, machine.latency_out),
            machine.speed,
            int(cluster.links.zone[m]),
            tuple(factors[:, m]) if len(factors) else (),
        )
        members.setdefault(kind, []).append(m)
    return [*members.values()]


def _prefixes(
    cluster: Cluster, order: Sequence[int], slow: Floats, size: int | None
) -> Iterator[Sequence[int]]:
    """Yield prefixes of the orders, and whole racks after each other."""
    zone = cluster.links.zone
    racks = [[m for m in order if zone[m] == z] for z in dict.fromkeys(zone[order])]
    ways = [order, sorted(order, key=slow.__getitem__), *racks]
    if size is not None:
        ways.append(sorted(order, key=lambda m: -slow[m]))
    for way in ways:
        yield from accumulate([m] for m in way)
    yield from accumulate(racks)
