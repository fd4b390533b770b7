"""Links as the scenario states them, read beside `emu.problem.links`.

The scheduler and the simulator ask that module. A mistake in it would be theirs and the
guards' alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import Problem

    Floats = NDArray[np.float64]

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


def most_stated(problem: Problem) -> dict[str, float]:
    """Return the most bytes per second that every link ever has, by its name."""
    found = stated_capacities(problem)
    for change in problem.cluster.changes:
        found[change.link] = max(found[change.link], change.capacity)
    return found


def fitting(problem: Problem, link: str, times: Floats) -> Floats:
    """Return the bytes that fit through a link by each of ``times``, seconds."""
    capacity, fit = stated_capacities(problem)[link], 0.0
    changes = [c for c in problem.cluster.changes if c.link == link]
    since, room = [0.0], [fit]
    for change in sorted(changes, key=lambda change: change.time):
        fit += capacity * (change.time - since[-1])
        capacity = change.capacity
        since.append(change.time)
        room.append(fit)
    beyond = np.maximum(times - since[-1], 0.0) * capacity
    return np.where(times > since[-1], fit + beyond, np.interp(times, since, room))


def stated_hops(problem: Problem) -> list[tuple[str, ...]]:
    """Return the names of the links that every edge crosses, of none within a machine.

    These are the NICs of its two machines, unless a route states others.
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
