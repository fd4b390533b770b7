"""The placement of several jobs on one cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from emu.placement import PlacementResult
from emu.problem import Placement
from emu.scenario.placing import place
from emu.scenario.realize import build_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from emu.problem import Cluster, Job
    from emu.scenario.scenario import Scenario


def place_one_by_one(
    scenario: Scenario,
    job: Job,
    cluster: Cluster,
    progress: Callable[[int, int, float], None] | None = None,
) -> PlacementResult:
    """Place each of several jobs by its own policy, on what those before it leave.

    Parameters
    ----------
    job
        All jobs, as `build_job` makes them one.

    Raises
    ------
    PlacementError, ScenarioError, DataError
        As `place`, of the first job for which it does.
    """
    free, machine_of = cluster, dict[str, int]()
    for item, alone in scenario.parts():
        part = build_job(alone)
        found = place(alone, part, free, progress=progress).placement
        free = _left(free, part, found)
        for process, members in part.units.items():
            machine_of[f"{item.name}/{process}"] = found.machine_of[members[0]]
    placed = tuple(machine_of[task.process_name] for task in job.tasks)
    return PlacementResult(Placement(placed), "sequential")


def _left(cluster: Cluster, job: Job, placement: Placement) -> Cluster:
    """Return the cluster without what a placed job takes of its resources."""
    used = placement.usage(job, cluster)
    machines = [
        replace(
            machine,
            resources={
                resource: amount - taken.get(resource, 0.0)
                for resource, amount in machine.resources.items()
            },
        )
        for machine, taken in zip(cluster.machines, used, strict=True)
    ]
    return replace(cluster, machines=tuple(machines))
