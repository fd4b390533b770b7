"""Machines, links, tuned pools, and the cluster that they form.

A link has a name and a capacity and, where it is one direction of a NIC, a machine. A
*port* is a position among the links. A flow from one machine to another crosses the
ports of their route: the NICs of the two ends, unless the cluster states another one.
Routes are kept as patterns between *zones*, machines for which all stated routes are
the same, so that what is not stated costs nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from emu.problem.changes import CapacityChange, CapacitySteps, SpeedChange, SpeedSteps

#: The shortest period, seconds: a tuning is an event of the schedule.
LEAST_PERIOD = 1e-3
#: Placeholders in the pattern of a route: the NICs of its source and its destination.
OUT: Final = -1
IN: Final = -2
_ENDS = {"out": OUT, "in": IN}
#: Seconds after which a change comes that was made before.
_AT_ONCE = 1e-9
_Change = TypeVar("_Change", "CapacityChange", "SpeedChange")


@dataclass(frozen=True)
class Machine:
    """One emulated machine, m of the paper.

    Raises
    ------
    ValueError
        When a bandwidth or the speed is not positive and finite, a latency is negative
        or not finite, a capacity is negative or NaN, or a pool has no slots.
    """

    name: str
    """Unique in its cluster."""
    bandwidth_in: float
    bandwidth_out: float
    """NIC capacity per direction, bytes per second, positive and finite; both 0 for a
    machine without a NIC, all of whose routes the cluster states."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """Capacity per resource name, C_m^r: ``cpu`` and ``gpu`` in pieces, ``memory`` in
    bytes, any further one in its own unit. A resource that is absent is unlimited."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """Number of slots per pool, at least 1; a pool that is absent is unlimited."""
    speed: float = 1.0
    """Speed of real work, in multiples of that of the computer that measured it: CPU
    seconds divided by it are emulated seconds. Positive and finite."""
    latency_in: float = 0.0
    latency_out: float = 0.0
    """Seconds that each direction of the NIC adds to the way of a flow."""

    @property
    def has_nic(self) -> bool:
        """True where it has a network interface."""
        return self.bandwidth_in > 0 or self.bandwidth_out > 0

    def __post_init__(self) -> None:
        for direction in ("in", "out"):
            bandwidth = getattr(self, f"bandwidth_{direction}")
            absent = self.bandwidth_in == self.bandwidth_out == 0
            if not (absent or (math.isfinite(bandwidth) and bandwidth > 0)):
                raise ValueError(
                    f"machine {self.name}: bandwidth {direction} is {bandwidth}, "
                    "it must be positive and finite"
                )
            _check_latency(
                f"machine {self.name}", getattr(self, f"latency_{direction}")
            )
        if not (math.isfinite(self.speed) and self.speed > 0):
            raise ValueError(
                f"machine {self.name}: speed is {self.speed}, it must be positive and "
                "finite"
            )
        for resource, capacity in self.resources.items():
            if not capacity >= 0:
                raise ValueError(
                    f"machine {self.name}: capacity of {resource} is {capacity}"
                )
        for pool, slots in self.slots.items():
            if slots < 1:
                raise ValueError(f"machine {self.name}: pool {pool} has {slots} slots")


def _check_latency(subject: str, latency: float) -> None:
    if not (math.isfinite(latency) and latency >= 0):
        raise ValueError(f"{subject}: latency {latency} is negative or not finite")


@dataclass(frozen=True)
class Tuner:
    """A pool of a machine whose number of slots changes while a job runs.

    It begins with the machine's slots. Every period, once nothing else happens at that
    instant, the tasks that wait for the watched pool are counted. Where the slope of
    the last five counts (least squares) is positive the quota becomes 9/10 of itself,
    rounded down and at least 1; where it is negative 11/10, rounded up. A slot that is
    held is not taken away: a smaller quota holds from when it is given back.

    The autotuner of Dorylus (OSDI 2021, section 6): lambdas that outrun their server's
    threads only wait. The paper states neither period nor steps; these are ours.

    Raises
    ------
    ValueError
        When the period is shorter than 1 ms or not finite, or a quota is below 1.
    """

    machine: int
    """Position of the machine."""
    pool: str
    watched: str
    """Name of the tuned pool, and of the one whose queue counts, on that machine."""
    most: int
    """The largest quota."""
    period: float = 1.0
    """Seconds between two looks, the first after one period."""
    path: tuple[int, ...] = ()
    """Quotas to set at the first looks whatever waits: those of a run to repeat."""

    def steps(self, quota: int) -> set[int]:
        """Return the quotas that one look may leave, of a quota before it."""
        return {quota, max(1, 9 * quota // 10), min(self.most, (11 * quota + 9) // 10)}

    def __post_init__(self) -> None:
        if not LEAST_PERIOD <= self.period < math.inf:
            raise ValueError(
                f"tuner of {self.pool}: a period of {self.period} s, it must be "
                f"{LEAST_PERIOD} s or more"
            )
        if min(self.most, *self.path, self.most) < 1:
            raise ValueError(f"tuner of {self.pool}: a quota must be 1 or more")


@dataclass(frozen=True)
class Link:
    """One capacity that flows cross."""

    name: str
    """Unique in its cluster; ``m0 out`` and ``m0 in`` for the NIC of machine m0."""
    capacity: float
    """Bytes per second at time 0, positive and finite."""
    machine: int = -1
    """Position of the machine whose NIC it is, -1 where it is no NIC."""
    direction: str = ""
    """``out`` or ``in`` of the NIC, empty where it is none."""
    latency: float = 0.0
    """Seconds that it adds to the way of a flow: the last byte arrives so much after
    the network has served it. Rates, turns and credits do not wait for that."""


@dataclass(frozen=True)
class Route:
    """Links that flows between some machines cross instead of their NICs alone."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]
    """Positions of machines; flows from each of the first to each of the second."""
    through: tuple[str, ...]
    """Names of links in the order in which they are crossed; ``out`` is the NIC of the
    source, ``in`` that of the destination."""


class ImpossibleRoute(ValueError):
    """A route that cannot be; ``position`` is its place among those stated."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


class MissingRoute(ValueError):
    """A route that a machine without a NIC needs; ``machine`` is its position."""

    def __init__(self, message: str, machine: int) -> None:
        super().__init__(message)
        self.machine = machine


class Links:
    """The links of a cluster and its routes.

    First come the NICs, machine by machine, out before in; then the shared links.

    Parameters
    ----------
    machines, shared, routes, changes
        As in `Cluster`.

    Attributes
    ----------
    nic
        Ports of the NIC of every machine, out and in, -1 without; shape (machines, 2).
    zone
        Zone of every machine.
    route_of
        Number of the route from zone to zone, shape (zones, zones).
    route_start, route_port
        Pattern of every route: ports, `OUT` or `IN`, flat.
    steps
        Capacities over time.

    Raises
    ------
    ValueError
        When two links have one name, a capacity is not positive and finite, a latency
        is negative or not finite, or a machine without a NIC needs one, or as
        `CapacitySteps`.
    ImpossibleRoute
        When a route names no link or an unknown one, crosses one twice, needs a NIC
        that is not there, or states a pair of machines that has been stated.
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        shared: Sequence[Link] = (),
        routes: Sequence[Route] = (),
        changes: Sequence[CapacityChange] = (),
    ) -> None:
        nics: list[Link] = []
        self._names = [machine.name for machine in machines]
        self.nic: NDArray[np.int64] = np.full((len(machines), 2), -1, dtype=np.int64)
        for m, machine in enumerate(machines):
            if machine.has_nic:
                self.nic[m] = len(nics), len(nics) + 1
                nics += [
                    Link(
                        f"{machine.name} {way}",
                        getattr(machine, f"bandwidth_{way}"),
                        m,
                        way,
                        getattr(machine, f"latency_{way}"),
                    )
                    for way in ("out", "in")
                ]
        self._all = (*nics, *shared)
        self._check_links(shared)
        ports = {link.name: port for port, link in enumerate(self._all)}
        self.steps = CapacitySteps(self.capacities, changes, ports)
        self.zone = self._zones(routes)
        zones = int(self.zone.max()) + 1
        self.route_of: NDArray[np.int64] = np.zeros((zones, zones), dtype=np.int64)
        patterns: list[tuple[int, ...]] = [(OUT, IN)]
        ports = ports | _ENDS
        for position, route in enumerate(routes):
            patterns.append(self._pattern(position, route, ports))
            self._state(position, route)
        self.route_start: NDArray[np.int64] = np.cumsum(
            [0, *map(len, patterns)], dtype=np.int64
        )
        self.route_port: NDArray[np.int64] = np.array(
            [port for pattern in patterns for port in pattern], dtype=np.int64
        )
        self._check_unstated()

    def __len__(self) -> int:
        """Return the number of links."""
        return len(self._all)

    def __getitem__(self, port: int) -> Link:
        """Return the link at a position."""
        return self._all[port]

    def __iter__(self) -> Iterator[Link]:
        """Return the links in their order."""
        return iter(self._all)

    @cached_property
    def capacities(self) -> NDArray[np.float64]:
        """Bytes per second of every link at time 0; see ``steps`` for later ones."""
        return np.array([link.capacity for link in self._all], dtype=np.float64)

    @cached_property
    def latencies(self) -> NDArray[np.float64]:
        """Seconds of every link; of no entries where all are 0."""
        latencies = np.array([link.latency for link in self._all], dtype=np.float64)
        return latencies if latencies.any() else latencies[:0]

    def latency(self, source: int, destination: int) -> float:
        """Return the seconds that flows from one machine to another take beside bytes.

        The sum over the links of their route, 0 within a machine.
        """
        if not self.latencies.size:
            return 0.0
        return float(self.latencies[[*self.route(source, destination)]].sum())

    @cached_property
    def shared(self) -> tuple[int, ...]:
        """Ports that are no NIC."""
        return tuple(p for p, link in enumerate(self._all) if link.machine < 0)

    def of_machine(self, machine: int) -> tuple[int, ...]:
        """Return the ports of the NIC of ``machine``: out and in, or none."""
        return tuple(int(port) for port in self.nic[machine] if port >= 0)

    def route(self, source: int, destination: int) -> tuple[int, ...]:
        """Return the ports from one machine to another; none within a machine."""
        if source == destination:
            return ()
        number = self.route_of[self.zone[source], self.zone[destination]]
        ends = {OUT: self.nic[source, 0], IN: self.nic[destination, 1]}
        pattern = self.route_port[
            self.route_start[number] : self.route_start[number + 1]
        ]
        return tuple(int(ends.get(port, port)) for port in pattern.tolist())

    def always_crossed(self, machine: int, side: int) -> bool:
        """Return True where all traffic out of (0) or into (1) it crosses its NIC."""
        if self.nic[machine, side] < 0:
            return False
        zone = self.zone[machine]
        alone = np.count_nonzero(self.zone == zone) == 1
        numbers = np.delete(
            (self.route_of[zone] if side == 0 else self.route_of[:, zone]),
            [zone] if alone else [],
        )
        return bool(self.nic[machine, side] >= 0) and all(
            (OUT, IN)[side]
            in self.route_port[self.route_start[n] : self.route_start[n + 1]]
            for n in np.unique(numbers)
        )

    def _check_links(self, shared: Sequence[Link]) -> None:
        for name, count in Counter(link.name for link in self._all).items():
            if count > 1:
                raise ValueError(f"{count} links are called {name}")
        for link in shared:
            if link.name in _ENDS:
                raise ValueError(f"a link cannot be called {link.name}: NICs are")
            if not (math.isfinite(link.capacity) and link.capacity > 0):
                raise ValueError(
                    f"link {link.name}: capacity {link.capacity} is not positive "
                    "and finite"
                )
            _check_latency(f"link {link.name}", link.latency)

    def _zones(self, routes: Sequence[Route]) -> NDArray[np.int64]:
        """Return a number per set of machines with the same stated routes."""
        zones: list[list[int]] = [[] for _ in self._names]
        for position, route in enumerate(routes):
            for machine in {*route.sources}:
                zones[machine].append(2 * position)
            for machine in {*route.destinations}:
                zones[machine].append(2 * position + 1)
        order: dict[tuple[int, ...], int] = {}
        return np.array(
            [order.setdefault(tuple(what), len(order)) for what in zones],
            np.int64,
        )

    def _pattern(
        self, position: int, route: Route, ports: Mapping[str, int]
    ) -> tuple[int, ...]:
        if not route.through:
            raise ImpossibleRoute("a route needs at least one link", position)
        for name, count in Counter(route.through).items():
            if name not in ports:
                raise ImpossibleRoute(f"no link is called {name}", position)
            if count > 1:
                raise ImpossibleRoute(f"the route crosses {name} twice", position)
        pattern = tuple(ports[name] for name in route.through)
        for end, machines, side in (
            (OUT, route.sources, 0),
            (IN, route.destinations, 1),
        ):
            own = {int(self.nic[m, side]) for m in machines}
            if end in pattern and -1 in own:
                bare = next(m for m in machines if self.nic[m, side] < 0)
                problem = f"machine {self._names[bare]} has no NIC to cross"
                raise ImpossibleRoute(problem, position)
            if end in pattern and own & {*pattern}:
                raise ImpossibleRoute("the route crosses a NIC twice", position)
        return pattern

    def _state(self, position: int, route: Route) -> None:
        """Enter a route between all zones of its machines."""
        sources, destinations = {*route.sources}, {*route.destinations}
        pairs = len(sources) * len(destinations) - len(sources & destinations)
        if pairs <= 0:
            raise ImpossibleRoute("the route joins no two machines", position)
        rows = np.unique(self.zone[[*sources]])
        columns = np.unique(self.zone[[*destinations]])
        size = np.bincount(self.zone)
        for row in rows.tolist():
            for column in columns.tolist():
                alone = row == column and size[row] == 1
                if self.route_of[row, column] and not alone:
                    a = int(np.flatnonzero(self.zone == row)[0])
                    b = int(np.flatnonzero(self.zone == column)[-1])
                    raise ImpossibleRoute(
                        f"the way from {self._names[a]} to {self._names[b]} is "
                        "stated twice",
                        position,
                    )
                self.route_of[row, column] = position + 1

    def _check_unstated(self) -> None:
        """Raise MissingRoute where a machine without a NIC has a route not stated."""
        for m in np.flatnonzero(self.nic[:, 0] < 0).tolist():
            row = self.route_of[self.zone[m]][self.zone]
            column = self.route_of[:, self.zone[m]][self.zone]
            for numbers, way in ((row, "from"), (column, "to")):
                missing = np.flatnonzero(numbers == 0)
                other = missing[missing != m]
                if other.size:
                    raise MissingRoute(
                        f"machine {self._names[m]} has no NIC, so every route {way} "
                        f"it must be stated; the one with {self._names[other[0]]} "
                        "is not",
                        m,
                    )


@dataclass(frozen=True)
class Cluster:
    """The machines of a scenario, in the order of the file, and what joins them.

    Raises
    ------
    ValueError
        When there is no machine or a name occurs twice, a tuner is of a machine that
        is not there, of a pool without slots or one that another tunes, or as `Links`
        and `SpeedSteps`.
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
        for name, count in Counter(machine.name for machine in self.machines).items():
            if count > 1:
                raise ValueError(f"machine {name} occurs twice")
        _ = self.links, self.speed_steps  # checks them
        counts = Counter((tuner.machine, tuner.pool) for tuner in self.tuners)
        for (machine, pool), count in counts.items():
            if not 0 <= machine < len(self.machines):
                raise ValueError(f"a tuner is of machine number {machine}")
            name, slots = self.machines[machine].name, self.machines[machine].slots
            if count > 1:
                raise ValueError(f"pool {pool} of {name} has {count} tuners")
            if pool not in slots:
                raise ValueError(f"pool {pool} of {name} is tuned: it needs slots")

    def only(self, names: Collection[str]) -> Cluster:
        """Return the cluster of these machines alone, with all shared links.

        Whatever is of other machines goes: their routes, changes and tuners.
        """
        numbers = [m for m, one in enumerate(self.machines) if one.name in names]
        place = {m: position for position, m in enumerate(numbers)}
        machines = tuple(self.machines[m] for m in numbers)
        routes = []
        for route in self.routes:
            sources = tuple(place[m] for m in route.sources if m in place)
            ends = tuple(place[m] for m in route.destinations if m in place)
            if sources and ends:
                routes.append(Route(sources, ends, route.through))
        nics = {f"{machine.name} {way}" for machine in machines for way in _ENDS}
        links = nics | {link.name for link in self.shared_links}
        return replace(
            self,
            machines=machines,
            routes=tuple(routes),
            changes=tuple(c for c in self.changes if c.link in links),
            tuners=tuple(
                replace(tuner, machine=place[tuner.machine])
                for tuner in self.tuners
                if tuner.machine in place
            ),
            speed_changes=tuple(c for c in self.speed_changes if c.machine in names),
        )

    @property
    def tuned_names(self) -> tuple[str, ...]:
        """Names of the tuned pools: ``lambdas of m0``."""
        return tuple(
            f"{tuner.pool} of {self.machines[tuner.machine].name}"
            for tuner in self.tuners
        )

    def following(self, quotas: NDArray[np.int64] | None) -> Cluster:
        """Return the cluster whose tuners do what those of a schedule did.

        Parameters
        ----------
        quotas
            `Schedule.quotas`; beyond them tuners go by their rule.
        """
        paths = self.paths_of(quotas)
        tuners = zip(self.tuners, paths, strict=True)
        return replace(self, tuners=tuple(replace(t, path=path) for t, path in tuners))

    def paths_of(self, quotas: NDArray[np.int64] | None) -> list[tuple[int, ...]]:
        """Return the quotas that each tuner has set."""
        if quotas is None:
            return [() for _ in self.tuners]
        return [tuple(q for q in column if q > 0) for column in quotas.T.tolist()]

    @cached_property
    def links(self) -> Links:
        """All links, and the route between every two machines."""
        return Links(self.machines, self.shared_links, self.routes, self.changes)

    @cached_property
    def speed_steps(self) -> SpeedSteps:
        """The share of its speed that every machine has, over time."""
        return SpeedSteps(self.speed_changes, self._positions)

    def beginning_at(self, began: float) -> Cluster:
        """Return the cluster as it is for what begins so many seconds later.

        What has changed by then does so in its first nanosecond: what links and
        machines have at first stays what others are a share of.
        """
        if not began:
            return self
        return replace(
            self,
            changes=_shift_changes(self.changes, began, lambda change: change.link),
            speed_changes=_shift_changes(
                self.speed_changes, began, lambda c: c.machine
            ),
        )

    def with_capacities(self, ports: Collection[int], factor: float) -> Cluster:
        """Return the cluster with the capacities of some links times ``factor``.

        Whatever they become later is times ``factor``, too.
        """
        capacities = self.links.capacities.copy()
        capacities[list(ports)] *= factor
        names = {self.links[port].name for port in ports}
        changes = tuple(
            replace(c, capacity=c.capacity * factor) if c.link in names else c
            for c in self.changes
        )
        return replace(self._of(capacities), changes=changes)

    def with_latencies(self, factor: float) -> Cluster:
        """Return the cluster with all latencies times ``factor``."""
        machines = tuple(
            replace(
                machine,
                latency_in=machine.latency_in * factor,
                latency_out=machine.latency_out * factor,
            )
            for machine in self.machines
        )
        links = (
            replace(link, latency=link.latency * factor) for link in self.shared_links
        )
        return replace(self, machines=machines, shared_links=tuple(links))

    @cached_property
    def widest(self) -> Cluster:
        """The cluster whose links always have the most that they ever have.

        And whose machines have all of their speed. Nothing takes less time anywhere:
        what lower bounds may count on.
        """
        if not (self.changes or self.speed_changes):
            return self
        widest = self._of(self.links.steps.most)
        return replace(widest, changes=(), speed_changes=())

    def _of(self, capacities: NDArray[np.float64]) -> Cluster:
        """Return the cluster with other capacities at time 0."""
        links = tuple(
            replace(link, capacity=float(capacities[port]))
            for link, port in zip(self.shared_links, self.links.shared, strict=True)
        )
        machines = tuple(
            replace(
                machine,
                bandwidth_out=float(capacities[ports[0]]),
                bandwidth_in=float(capacities[ports[1]]),
            )
            if (ports := self.links.of_machine(m))
            else machine
            for m, machine in enumerate(self.machines)
        )
        return replace(self, machines=machines, shared_links=links)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {machine.name: m for m, machine in enumerate(self.machines)}

    def index(self, name: str) -> int:
        """Return the position of the machine called ``name``.

        Raises
        ------
        ValueError
            When there is none.
        """
        if name in self._positions:
            return self._positions[name]
        names = ", ".join(machine.name for machine in self.machines)
        raise ValueError(f"no machine is called {name}; there are {names}")

    def resource_names(self) -> tuple[str, ...]:
        """Return every resource that some machine limits, sorted."""
        return tuple(sorted({r for one in self.machines for r in one.resources}))


def _shift_changes(
    changes: Sequence[_Change], began: float, subject: Callable[[_Change], str]
) -> tuple[_Change, ...]:
    """Return changes at times since ``began``; of those before it, each last one."""
    found: dict[tuple[str, float], _Change] = {}
    for change in sorted(changes, key=lambda change: change.time):
        time = max(change.time - began, _AT_ONCE)
        found[subject(change), time] = replace(change, time=time)
    return tuple(found.values())
