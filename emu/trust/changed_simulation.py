"""A simulation, and how changes of its input move its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from emu.array_types import Floats
from emu.prediction.simulation import makespan
from emu.problem import Cluster, Problem, Realization, Schedule
from emu.trust.waiting_flows import let_flows_wait

#: Share of its bytes that a change leaves a flow at least, and of its capacity a link.
KEPT = 0.1


class Change(NamedTuple):
    """Change of a simulation's input: a cause with its parameter."""

    work: Floats | float = 0.0
    """Seconds that (task, iteration) takes longer."""
    delays: Floats | float = 0.0
    """Seconds that (edge, iteration) takes longer, at the rate that it has."""
    waits: Floats | float = 0.0
    """Seconds that (edge, iteration) sends nothing, and leaves its links to others."""
    volumes: Floats | float = 0.0
    """Bytes that (edge, iteration) has more."""
    rates: Mapping[str, float] = MappingProxyType({})
    """Shares of their capacity that links have."""


class ChangedSimulation:
    """A simulation, and how changes of its input move its end.

    ``policy`` is the rule of its rates.
    """

    def __init__(self, simulation: Schedule, policy: str) -> None:
        # The quotas of the simulation: a tuner that chose anew would move the end, too.
        self._problem = simulation.problem.following(simulation)
        self._policy = policy
        self._work = simulation.work
        # What was never sent brings no bytes.
        self._volumes = np.nan_to_num(simulation.flow_bytes)
        seconds = simulation.flow_end - simulation.flow_start
        self._rates = np.zeros_like(self._volumes)
        np.divide(
            self._volumes,
            seconds,
            out=self._rates,
            where=seconds > 0,
        )
        self._end = self._simulate(self._problem, self._work, self._volumes)

    def move(self, change: Change, scale: float = 1.0) -> float:
        """Return the seconds by which a change moves the end, scaled."""
        longer_work = self._work + scale * change.work
        more = self._rates * change.delays + change.volumes
        volumes = self._volumes + scale * np.nan_to_num(more)
        least_volumes = KEPT * self._volumes

        problem = self._problem
        if change.rates:
            shares = {}
            for name, share in change.rates.items():
                loss = share - 1.0
                shares[name] = 1.0 + scale * loss
            cluster = with_shares(problem.cluster, shares)
            problem = replace(problem, cluster=cluster)

        end = self._simulate(
            problem,
            work=np.maximum(longer_work, 0.0),
            volumes=np.maximum(volumes, least_volumes),
            waits=scale * np.nan_to_num(change.waits),
        )
        return end - self._end

    def _simulate(
        self,
        problem: Problem,
        work: Floats,
        volumes: Floats,
        waits: Floats | float = 0.0,
    ) -> float:
        realization = Realization(work, volumes)
        if np.any(waits):
            # Only what is sent can wait.
            sent_later = np.where(volumes > 0, waits, 0.0)
            problem, realization = let_flows_wait(problem, realization, sent_later)
        return makespan(problem, realization, self._policy)


def with_shares(cluster: Cluster, shares: Mapping[str, float]) -> Cluster:
    """Return a cluster whose links have shares of their capacities, by name."""

    def share(name: str) -> float:
        return shares.get(name, 1.0)

    machines = []
    for machine in cluster.machines:
        slower = replace(
            machine,
            bandwidth_in=machine.bandwidth_in * share(f"{machine.name} in"),
            bandwidth_out=machine.bandwidth_out * share(f"{machine.name} out"),
        )
        machines.append(slower)
    links = []
    for link in cluster.shared_links:
        capacity = link.capacity * share(link.name)
        links.append(replace(link, capacity=capacity))
    changes = []
    for change in cluster.changes:
        capacity = change.capacity * share(change.link)
        changes.append(replace(change, capacity=capacity))
    return replace(
        cluster,
        machines=tuple(machines),
        shared_links=tuple(links),
        changes=tuple(changes),
    )
