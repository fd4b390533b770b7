"""What the scenario states of links, read beside `emu.problem.links`.

The scheduler and the simulator ask that module. A mistake in it would be theirs and the
guards' alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emu.problem import Problem

#: Share of a time by which a change of that time may seem to be later.
_ROUNDING = 1e-12


def stated_capacities(problem: Problem, time: float = 0.0) -> dict[str, float]:
    """Return bytes per second of every link by its name, from ``time`` on."""
    found = {link.name: link.capacity for link in problem.cluster.shared_links}
    for machine in problem.cluster.machines:
        found[f"{machine.name} out"] = machine.bandwidth_out
        found[f"{machine.name} in"] = machine.bandwidth_in
    for change in sorted(problem.cluster.changes, key=lambda change: change.time):
        if change.time <= time * (1.0 + _ROUNDING):
            found[change.link] = change.capacity
    return found


def stated_hops(problem: Problem) -> list[tuple[str, ...]]:
    """Return the names of the links that every edge crosses, of none within a machine.

    These are the NICs of its two machines, unless a route says otherwise.
    """
    cluster, machine_of = problem.cluster, problem.placement.machine_of
    through = {
        (source, destination): route.through
        for route in cluster.routes
        for source in route.sources
        for destination in route.destinations
    }
    found = []
    for edge in problem.job.edges:
        a, b = machine_of[edge.source], machine_of[edge.destination]
        nics = {
            "out": f"{cluster.machines[a].name} out",
            "in": f"{cluster.machines[b].name} in",
        }
        names = () if a == b or edge.credit else through.get((a, b), ("out", "in"))
        found.append(tuple(nics.get(name, name) for name in names))
    return found
