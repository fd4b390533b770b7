"""Compute a placement's load on every machine, and the bytes that edges send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem import Cluster, Job, Placement, Realization


@dataclass(frozen=True)
class ResourceLoad:
    """Use of one resource of one machine, in the resource's unit."""

    machine: str
    resource: str
    used: float
    capacity: float
    """Infinite where the machine does not limit it."""

    @property
    def fraction(self) -> float:
        """Used part of the capacity; infinite when something uses a capacity of 0."""
        if self.capacity == 0:
            return np.inf if self.used else 0.0
        return self.used / self.capacity


def unclaimed(job: Job, cluster: Cluster) -> tuple[str, ...]:
    """Return the resources that machines state and no task demands, sorted.

    They limit nothing, although machines state them.
    """
    demanded = {resource for task in job.tasks for resource in task.demands}
    return tuple(r for r in sorted(cluster.resource_names()) if r not in demanded)


def resource_loads(
    job: Job, cluster: Cluster, placement: Placement
) -> tuple[ResourceLoad, ...]:
    """Return the load of every machine and resource, machine by machine.

    Listed are the resources that some task demands or some machine limits, sorted.
    """
    demanded = {resource for task in job.tasks for resource in task.demands}
    resources = sorted(demanded | set(cluster.resource_names()))
    usage = placement.usage(job, cluster)
    return tuple(
        ResourceLoad(
            machine.name,
            resource,
            used.get(resource, 0.0),
            machine.resources.get(resource, np.inf),
        )
        for machine, used in zip(cluster.machines, usage, strict=True)
        for resource in resources
    )


def sent_bytes(job: Job, realization: Realization) -> NDArray[np.float64]:
    """Return the bytes that every edge sends in the whole run, shape (edges,).

    Edges of control carry nothing, and what no task would receive is not sent.
    """
    return np.array(
        [
            0.0 if control else realization.volumes[e, : job.flow_counts[e]].sum()
            for e, control in enumerate(job.control)
        ]
    )
