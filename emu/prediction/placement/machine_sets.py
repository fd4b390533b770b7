"""Sets of machines that are worth a try for a job, where it may leave some out.

Must not know: scenarios, systems.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate, product
from math import prod

import numpy as np

from emu.problem import Cluster, Job
from emu.problem.placement import slowness

Names = tuple[str, ...]

#: Sets up to which all are tried that differ in the kinds of their machines.
MOST_SETS = 32


def machine_sets(
    job: Job, cluster: Cluster, most: int, held: Collection[str] = ()
) -> list[Names]:
    """Return sets of machines to try, by name in the cluster's order, all of it first.

    All sets where there are at most 32 that differ in the kinds of their machines. Else
    prefixes in order of NIC, then of device, and in order of device, then of NIC; whole
    racks, and prefixes within them.

    ``job``: its tasks say how slow every machine is. ``most``: how many, at least 1; of
    more those are left whose sizes are spread evenly.
    """
    factors = slowness(job, cluster)
    slow = factors.mean(axis=0) if len(factors) else np.ones(len(cluster.machines))
    changing = {c.link.rpartition(" ")[0] for c in cluster.changes}
    changing |= {change.machine for change in cluster.speed_changes}
    zone, kind_of, speed = cluster.links.zone, list[object](), []
    for m, machine in enumerate(cluster.machines):
        alone = machine.name if machine.name in changing else ""
        rooms = sorted(machine.resources.items()), sorted(machine.slots.items())
        nic = machine.bandwidth_in, machine.bandwidth_out
        latency = machine.latency_in, machine.latency_out
        takes = tuple(factors[:, m]) if len(factors) else ()
        kind = alone, str(rooms), nic, latency, machine.speed, int(zone[m]), takes
        kind_of.append(kind)
        speed.append((-min(nic), float(slow[m]), m))
    # By NIC, then device, the fastest first.
    order = sorted(range(len(speed)), key=speed.__getitem__)
    kinds = list(dict.fromkeys(kind_of[m] for m in order))
    members = [[m for m in order if kind_of[m] == kind] for kind in kinds]
    names = [machine.name for machine in cluster.machines]
    if prod(len(group) + 1 for group in members) - 1 <= MOST_SETS:
        # So many machines of each kind, for all such numbers.
        mixtures: list[Sequence[int]] = [
            [m for group, n in zip(members, counts, strict=True) for m in group[:n]]
            for counts in product(*(range(len(group) + 1) for group in members))
        ]
    else:
        racks = [[m for m in order if zone[m] == z] for z in dict.fromkeys(zone[order])]
        ways = order, sorted(order, key=slow.__getitem__), *racks
        mixtures = [some for way in ways for some in accumulate([m] for m in way)]
        mixtures += accumulate(racks)
    must = {names.index(name) for name in held}
    unique = dict.fromkeys(tuple(sorted({*one} | must)) for one in mixtures if one)
    everything = (*range(len(names)),)
    rest = sorted(unique.keys() - {everything}, key=lambda one: (len(one), one))
    if len(rest) > most - 1:
        places = np.linspace(0, len(rest) - 1, max(most - 1, 0)).round()
        rest = [rest[int(place)] for place in dict.fromkeys(places.tolist())]
    return [tuple(names[m] for m in one) for one in (everything, *rest)]
