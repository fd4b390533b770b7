"""Placement of the tasks of a job, and the problem that a schedule solves."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from emu.problem.profile import Realization
from emu.problem.slots import Pool, pools_of, slot_violations
from emu.problem.slowness import slowness

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from emu.problem.cluster import Cluster
    from emu.problem.job import Job
    from emu.problem.links import Links
    from emu.problem.schedule import Schedule


@dataclass(frozen=True)
class Placement:
    """The machine of every task, y of the paper."""

    machine_of: tuple[int, ...]
    """Position in ``Cluster.machines`` for each task of the job, in order."""

    @override
    def __repr__(self) -> str:
        """Return the positions of the first machines."""
        shown = ", ".join(map(str, self.machine_of[:24]))
        rest = ", ..." if len(self.machine_of) > 24 else ""
        return f"<Placement of {len(self.machine_of)} tasks: {shown}{rest}>"

    def usage(self, job: Job, cluster: Cluster) -> list[dict[str, float]]:
        """Return, per machine, the summed demand on each resource that is demanded."""
        used: list[dict[str, float]] = [defaultdict(float) for _ in cluster.machines]
        for task, machine in zip(job.tasks, self.machine_of, strict=True):
            for resource, demand in task.demands.items():
                used[machine][resource] += demand
        return [dict(amounts) for amounts in used]

    def violations(self, job: Job, cluster: Cluster) -> list[str]:
        """Return one sentence per broken constraint of (1)-(3), none if it is feasible.

        Checked are the capacities, the pins, that a process stands in one place, and
        that no more slots are given back on a machine than are taken there.
        """
        found = []
        for machine, used in zip(
            cluster.machines, self.usage(job, cluster), strict=True
        ):
            for resource, amount in used.items():
                capacity = machine.resources.get(resource, np.inf)
                if amount > capacity * (1 + 1e-12):
                    found.append(
                        f"machine {machine.name} has {capacity:g} {resource}, "
                        f"its tasks need {amount:g}"
                    )
        for task, machine_index in zip(job.tasks, self.machine_of, strict=True):
            name = cluster.machines[machine_index].name
            if task.pinned is not None and task.pinned != name:
                found.append(
                    f"task {task.name} must stand on {task.pinned}, not {name}"
                )
        for process, members in job.units.items():
            if len({self.machine_of[task] for task in members}) > 1:
                found.append(f"process {process} stands on several machines")
        return found + slot_violations(cluster, job, self.machine_of)


@dataclass(frozen=True)
class Problem:
    """A job placed on a cluster: what a scheduler needs besides times and volumes.

    Raises
    ------
    ValueError
        When the placement does not name a machine of the cluster for every task.
    """

    cluster: Cluster
    job: Job
    placement: Placement

    def __post_init__(self) -> None:
        machines = self.placement.machine_of
        if len(machines) != len(self.job.tasks):
            raise ValueError(
                f"the placement names {len(machines)} machines "
                f"for {len(self.job.tasks)} tasks"
            )
        for task, machine in zip(self.job.tasks, machines, strict=True):
            if not 0 <= machine < len(self.cluster.machines):
                raise ValueError(f"task {task.name} is on machine number {machine}")

    def following(self, schedule: Schedule) -> Problem:
        """Return the problem whose tuners do what those of ``schedule`` did."""
        return replace(self, cluster=self.cluster.following(schedule.quotas))

    def beginning_at(self, first: int, began: float = 0.0) -> Problem:
        """Return the problem of the iterations from one on, which begin later.

        See `Job` and `Cluster`.
        """
        cluster, job = self.cluster.beginning_at(began), self.job.beginning_at(first)
        return replace(self, cluster=cluster, job=job)

    @property
    def links(self) -> Links:
        """The links of the cluster; a *port* is a position among them."""
        return self.cluster.links

    @property
    def speeds(self) -> NDArray[np.float64]:
        """Speed of the machine of every task, shape (tasks,)."""
        machines = self.cluster.machines
        return np.array([machines[m].speed for m in self.placement.machine_of])

    def work(
        self, start: NDArray[np.float64], end: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the seconds that tasks worked from ``start`` to ``end``.

        At the full speed of their machines: what is slower for a time does less. Gates
        stand on no machine.

        Parameters
        ----------
        start, end
            Seconds of (task, iteration).
        """
        steps = self.cluster.speed_steps
        worked = end - start
        for task, machine in enumerate(self.placement.machine_of):
            if len(steps.of(machine)[0]) > 1 and not self.job.tasks[task].gate:
                worked[task] = steps.work(machine, start[task], end[task])
        return worked

    @cached_property
    def slowness(self) -> NDArray[np.float64]:
        """Factor on the reference times of every task, shape (tasks,)."""
        everywhere = slowness(self.job, self.cluster)
        if not len(everywhere):
            return np.ones(len(self.job.tasks))
        return everywhere[np.arange(len(self.job.tasks)), self.placement.machine_of]

    def taken(self, reference: Realization) -> Realization:
        """Return the run on the machines of this placement, from reference times."""
        times = reference.times * self.slowness[:, None]
        return Realization(times, reference.volumes)

    def reference(self, taken: Realization) -> Realization:
        """Return the reference times of what the machines of this placement take."""
        times = taken.times / self.slowness[:, None]
        return Realization(times, taken.volumes)

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The pools that tasks share slots of."""
        return pools_of(self.cluster, self.job, self.placement.machine_of)

    @property
    def capacities(self) -> NDArray[np.float64]:
        """Capacity of every link, bytes per second."""
        return self.links.capacities

    @cached_property
    def hops(self) -> tuple[tuple[int, ...], ...]:
        """The ports that a flow of each edge crosses; empty for a local handoff."""
        machine_of = self.placement.machine_of
        return tuple(
            ()
            if control
            else self.links.route(machine_of[edge.source], machine_of[edge.destination])
            for edge, control in zip(self.job.edges, self.job.control, strict=True)
        )

    @cached_property
    def machine_of_task(self) -> dict[str, str]:
        """Name of the machine of every task, by the task's name."""
        machines = [machine.name for machine in self.cluster.machines]
        return {
            task.name: machines[machine]
            for task, machine in zip(
                self.job.tasks, self.placement.machine_of, strict=True
            )
        }

    @override
    def __repr__(self) -> str:
        """Return the sizes of job and cluster."""
        machines = len(self.cluster.machines)
        return f"<Problem: {self.job!r} on {machines} machines>"
