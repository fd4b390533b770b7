"""By how much the clocks of several hosts may have moved the end of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emu.analysis.critical_path import CriticalPath
    from emu.problem import Problem


def clock_doubt(
    chain: CriticalPath, problem: Problem, hosts: Sequence[Mapping[str, Any]]
) -> float:
    """Return wall seconds by which the end may be off, since clocks are not known.

    A flow between two hosts leaves by the one's clock and arrives by the other's; what
    waits for it begins by its arrival. So along the critical path every such flow adds
    what is not known of both, and the last task what is not known of its own. Within a
    host nothing is unknown: its processes read one clock.

    Parameters
    ----------
    hosts
        What is known of each: its ``machines``, and the ``uncertainty`` of its
        ``clock``, wall seconds.
    """
    unknown = {
        machine: (place, float(host.get("clock", {}).get("uncertainty", 0.0)))
        for place, host in enumerate(hosts)
        for machine in host.get("machines", ())
    }
    machines = [machine.name for machine in problem.cluster.machines]
    at = [
        unknown.get(machines[machine], (-1, 0.0))
        for machine in problem.placement.machine_of
    ]
    parts = [at[link.task][1] for link in chain.links[-1:] if link.task >= 0]
    for link in chain.links:
        if link.edge >= 0 and link.start < link.end:
            edge = problem.job.edges[link.edge]
            (one, ours), (other, theirs) = at[edge.source], at[edge.destination]
            if one != other:
                parts.append(ours + theirs)
    return math.fsum(parts)
