"""What the scenario states of links, read beside `emu.problem.links`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emu.problem import Problem


def stated_capacities(problem: Problem) -> dict[str, float]:
    """Return bytes per second of every link by its name, from machines and file alone.

    The scheduler and the simulator take theirs from `Problem.capacities`. A mistake in
    making those would be theirs and the guards' alike.
    """
    found = {link.name: link.capacity for link in problem.cluster.shared_links}
    for machine in problem.cluster.machines:
        found[f"{machine.name} out"] = machine.bandwidth_out
        found[f"{machine.name} in"] = machine.bandwidth_in
    return found
