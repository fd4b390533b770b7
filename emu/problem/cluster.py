"""The cluster that machines, links and tuned pools form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from emu.array_types import Floats, Ints
from emu.problem.changes import CapacityChange, SpeedChange, SpeedSteps
from emu.problem.links import ENDS, Link, Links, Route
from emu.problem.machine import Machine, Tuner

#: Seconds after which a change comes that was made before.
_AT_ONCE = 1e-9
_Change = TypeVar("_Change", "CapacityChange", "SpeedChange")


@dataclass(frozen=True)
class Cluster:
    """The machines of a scenario, in the order of the file, and what joins them.

    Raises ValueError when there is no machine or a name occurs twice, a tuner is of a
    machine that is not there, of a pool without slots or one that another tunes, or as
    `Links` and `SpeedSteps`.
    """

    machines: tuple[Machine, ...]
    shared_links: tuple[Link, ...] = ()
    """Links beside the NICs that routes may cross."""
    routes: tuple[Route, ...] = ()
    """Routes that are not simply from NIC to NIC."""
    changes: tuple[CapacityChange, ...] = ()
    """Capacities that become others while a job runs, in any order."""
    tuners: tuple[Tuner, ...] = ()
    """Pools whose slots change while a job runs."""
    speed_changes: tuple[SpeedChange, ...] = ()
    """Machines that are slower, or stand still, while a job runs, in any order."""

    def __post_init__(self) -> None:
        if not self.machines:
            raise ValueError("a cluster needs at least one machine")
        counts = Counter(self.names)
        for name, count in counts.items():
            if count > 1:
                raise ValueError(f"machine {name} occurs twice")
        _ = self.links  # to make them checks them
        _ = self.speed_steps
        self._check_tuners()

    def _check_tuners(self) -> None:
        # Two tuners of a pool would each undo what the other sets.
        counts = Counter((tuner.machine, tuner.pool) for tuner in self.tuners)
        for (position, pool), count in counts.items():
            if not 0 <= position < len(self.machines):
                raise ValueError(f"a tuner is of machine number {position}")
            machine = self.machines[position]
            if count > 1:
                raise ValueError(f"pool {pool} of {machine.name} has {count} tuners")
            if pool not in machine.slots:
                raise ValueError(
                    f"pool {pool} of {machine.name} is tuned: it needs slots"
                )

    def only(self, names: Collection[str]) -> Cluster:
        """Return the cluster of these machines, what is theirs, all shared links."""
        machines: list[Machine] = []
        place: dict[int, int] = {}  # position here -> position there
        for position, machine in enumerate(self.machines):
            if machine.name in names:
                place[position] = len(machines)
                machines.append(machine)

        routes = []
        for route in self.routes:
            sources = _move(route.sources, place)
            destinations = _move(route.destinations, place)
            # One machine that is left of both ends sends itself nothing.
            ends = {*sources, *destinations}
            if sources and destinations and len(ends) > 1:
                routes.append(Route(sources, destinations, route.through))

        # A change of a NIC that is gone would name no link.
        links = {link.name for link in self.shared_links}
        for machine in machines:
            links.update(f"{machine.name} {direction}" for direction in ENDS)
        # Positions are others here: what is of a machine that is gone goes with it.
        tuners = [
            replace(tuner, machine=place[tuner.machine])
            for tuner in self.tuners
            if tuner.machine in place
        ]
        changes = [change for change in self.changes if change.link in links]
        speed_changes = [
            change for change in self.speed_changes if change.machine in names
        ]
        return replace(
            self,
            machines=tuple(machines),
            routes=tuple(routes),
            changes=tuple(changes),
            tuners=tuple(tuners),
            speed_changes=tuple(speed_changes),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the machines, in their order."""
        return tuple(machine.name for machine in self.machines)

    @property
    def tuned_names(self) -> tuple[str, ...]:
        """Names of the tuned pools: ``lambdas of m0``."""
        names = []
        for tuner in self.tuners:
            machine = self.machines[tuner.machine]
            names.append(f"{tuner.pool} of {machine.name}")
        return tuple(names)

    def following(self, quotas: Ints | None) -> Cluster:
        """Return the cluster whose tuners set these quotas before they go by rule."""
        paths = self.paths_of(quotas)
        tuners = []
        for tuner, path in zip(self.tuners, paths, strict=True):
            tuners.append(replace(tuner, path=path))
        return replace(self, tuners=tuple(tuners))

    def paths_of(self, quotas: Ints | None) -> list[tuple[int, ...]]:
        """Return the quotas that each tuner has set."""
        if quotas is None:
            return [() for _ in self.tuners]
        paths = []
        for column in quotas.T.tolist():
            # 0 where a tuner looked less often than another one.
            path = tuple(quota for quota in column if quota > 0)
            paths.append(path)
        return paths

    @cached_property
    def links(self) -> Links:
        """All links, and the route between every two machines."""
        return Links(
            machines=self.machines,
            shared=self.shared_links,
            routes=self.routes,
            changes=self.changes,
        )

    @cached_property
    def speed_steps(self) -> SpeedSteps:
        """The share of its speed that every machine has, over time."""
        return SpeedSteps(self.speed_changes, self._positions)

    def beginning_at(self, began: float) -> Cluster:
        """Return the cluster as it is for what begins so many seconds later.

        What has changed by then does so in its first nanosecond: what links and
        machines have at first stays what others are a share of.
        """
        # The same object, so that what was computed of it is kept.
        if not began:
            return self
        return replace(
            self,
            changes=_shift_changes(
                self.changes,
                began,
                subject=lambda change: change.link,
            ),
            speed_changes=_shift_changes(
                self.speed_changes,
                began,
                subject=lambda change: change.machine,
            ),
        )

    def with_capacities(self, ports: Collection[int], factor: float) -> Cluster:
        """Return the cluster with some links' capacities, then and later, scaled."""
        capacities = self.links.capacities.copy()
        capacities[list(ports)] *= factor
        # Changes state what a link has then, no share of it: these are scaled as well.
        cluster = self._having(capacities)

        names = {self.links[port].name for port in ports}
        changes = []
        for change in self.changes:
            share = factor if change.link in names else 1.0
            capacity = change.capacity * share
            changes.append(replace(change, capacity=capacity))
        return replace(cluster, changes=tuple(changes))

    def with_latencies(self, factor: float) -> Cluster:
        """Return the cluster with all latencies times ``factor``."""
        machines = []
        for machine in self.machines:
            slower = replace(
                machine,
                latency_in=machine.latency_in * factor,
                latency_out=machine.latency_out * factor,
            )
            machines.append(slower)

        links = []
        for link in self.shared_links:
            latency = link.latency * factor
            links.append(replace(link, latency=latency))

        return replace(
            self,
            machines=tuple(machines),
            shared_links=tuple(links),
        )

    @cached_property
    def widest(self) -> Cluster:
        """The cluster whose links always have the most that they ever have.

        And whose machines have all of their speed. Nothing takes less time anywhere:
        what lower bounds may count on.
        """
        if not (self.changes or self.speed_changes):
            return self
        widest = self._having(self.links.steps.most)
        return replace(widest, changes=(), speed_changes=())

    def _having(self, capacities: Floats) -> Cluster:
        """Return the cluster with other capacities at time 0."""
        links = []
        for link, port in zip(self.shared_links, self.links.shared, strict=True):
            capacity = float(capacities[port])
            links.append(replace(link, capacity=capacity))
        machines = list(self.machines)

        for position, machine in enumerate(machines):
            ports = self.links.of_machine(position)
            # A machine without a NIC has none.
            if ports:
                outward, inward = ports
                machines[position] = replace(
                    machine,
                    bandwidth_out=float(capacities[outward]),
                    bandwidth_in=float(capacities[inward]),
                )
        return replace(
            self,
            machines=tuple(machines),
            shared_links=tuple(links),
        )

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    def index(self, name: str) -> int:
        """Return the position of the machine called ``name``, else raise ValueError."""
        if name in self._positions:
            return self._positions[name]
        names = ", ".join(self.names)
        raise ValueError(f"no machine is called {name}; there are {names}")

    def resource_names(self) -> tuple[str, ...]:
        """Return every resource that some machine limits, sorted."""
        names: set[str] = set()
        for machine in self.machines:
            names.update(machine.resources)
        # A set has no order, and names of resources are columns to searches.
        return tuple(sorted(names))


def _move(machines: Iterable[int], place: Mapping[int, int]) -> tuple[int, ...]:
    """Return the places that some machines have elsewhere, without those that go."""
    return tuple(place[machine] for machine in machines if machine in place)


def _shift_changes(
    changes: Sequence[_Change],
    began: float,
    subject: Callable[[_Change], str],
) -> tuple[_Change, ...]:
    """Return changes at times since ``began``; of those before it, each last one."""
    newest: dict[tuple[str, float], _Change] = {}
    # Later ones take the place of earlier ones of the same first instant.
    in_order = sorted(changes, key=lambda change: change.time)
    for change in in_order:
        # A change at 0 would be refused, as a cluster's own state is that of 0.
        time = max(change.time - began, _AT_ONCE)
        key = (subject(change), time)
        newest[key] = replace(change, time=time)
    return tuple(newest.values())
