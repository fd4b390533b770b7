"""Links, routes, and the way of a flow over them.

A link has a name and a capacity and, where it is one direction of a NIC, a machine. A
*port* is a position among the links. A flow from one machine to another crosses the
ports of their route: the NICs of the two ends, unless the cluster states another one.
Routes are kept as patterns between *zones*, machines for which all stated routes are
the same, so that what is not stated costs nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Final, TypeAlias

import numpy as np

from emu.array_types import Floats, Ints
from emu.problem.changes import CapacityChange, CapacitySteps
from emu.problem.machine import Machine, check_latency

#: Positions of links.
Ports: TypeAlias = tuple[int, ...]

#: Placeholders in the pattern of a route: the NICs of its source and its destination.
OUT: Final = -1
IN: Final = -2
#: Names of the directions of a NIC, and in the routes of a cluster of its placeholders.
ENDS = {"out": OUT, "in": IN}
#: Name of a link that no flow may cross: of machines between which there is no way.
NO_ROUTE: Final = "no route"


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

    First come the NICs, machine by machine, out before in; then the shared links. The
    parameters are as in `Cluster`.

    Raises ValueError when two links have one name, a capacity is not positive and
    finite, a latency is negative or not finite, or a machine without a NIC needs one,
    or as `CapacitySteps`; ImpossibleRoute when a route names no link or an unknown one,
    crosses one twice, needs a NIC that is not there, or states a pair of machines that
    has been stated.

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
        # -1 for machines without a NIC, such as the GPUs of a box.
        shape = (len(machines), 2)
        self.nic: Ints = np.full(shape, -1, dtype=np.int64)
        for position, machine in enumerate(machines):
            if machine.has_nic:
                out_port = len(nics)
                self.nic[position] = (out_port, out_port + 1)
                nics += _directions(machine, position)
        self._all = (*nics, *shared)
        self._check_links(shared)
        ports = {link.name: port for port, link in enumerate(self._all)}
        self.steps = CapacitySteps(self.capacities, changes, ports)

        self.zone = self._zones(routes)
        zones = int(self.zone.max()) + 1
        self.route_of: Ints = np.zeros((zones, zones), dtype=np.int64)
        patterns: list[Ports] = [(OUT, IN)]  # of what no route states
        # From here on `out` and `in` are names, too: of whichever NIC the ends have.
        ports = ports | ENDS
        for position, route in enumerate(routes):
            pattern = self._pattern(position, route, ports)
            patterns.append(pattern)
            self._state(position, route)

        # Flat, so that the core in C walks them as two arrays.
        lengths = map(len, patterns)
        flat = list(chain.from_iterable(patterns))
        self.route_start: Ints = np.cumsum([0, *lengths], dtype=np.int64)
        self.route_port: Ints = np.array(flat, dtype=np.int64)
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
    def capacities(self) -> Floats:
        """Bytes per second of every link at time 0; see ``steps`` for later ones."""
        capacities = [link.capacity for link in self._all]
        return np.array(capacities, dtype=np.float64)

    @cached_property
    def latencies(self) -> Floats:
        """Seconds of every link; of no entries where all are 0."""
        # Of no entries, so that what is simulated without latencies costs nothing.
        latencies = np.array([link.latency for link in self._all])
        if not latencies.any():
            return np.zeros(0)
        return latencies

    @cached_property
    def shared(self) -> Ports:
        """Ports that are no NIC."""
        return tuple(port for port, link in enumerate(self._all) if link.machine < 0)

    def of_machine(self, machine: int) -> Ports:
        """Return the ports of the NIC of ``machine``: out and in, or none."""
        ports = self.nic[machine].tolist()
        return tuple(port for port in ports if port >= 0)

    def route(self, source: int, destination: int) -> Ports:
        """Return the ports from one machine to another; none within a machine."""
        if source == destination:
            return ()
        from_zone = self.zone[source]
        to_zone = self.zone[destination]
        number = self.route_of[from_zone, to_zone]
        pattern = self._pattern_of(number)
        ends = {
            OUT: self.nic[source, 0],
            IN: self.nic[destination, 1],
        }
        ports = [ends.get(port, port) for port in pattern.tolist()]
        return tuple(map(int, ports))

    def _pattern_of(self, number: int) -> Ints:
        """Return the pattern of a route by its number."""
        begin = self.route_start[number]
        end = self.route_start[number + 1]
        return self.route_port[begin:end]

    def always_crossed(self, machine: int, side: int) -> bool:
        """Return True where all traffic out of (0) or into (1) it crosses its NIC."""
        if self.nic[machine, side] < 0:
            return False
        zone = self.zone[machine]
        routes = self.route_of
        if side == 1:
            routes = routes.T  # by where they lead
        numbers = routes[zone]

        is_in_zone = self.zone == zone
        if np.count_nonzero(is_in_zone) == 1:
            numbers = np.delete(numbers, [zone])  # to itself it sends nothing

        end = (OUT, IN)[side]
        patterns = map(self._pattern_of, np.unique(numbers))
        return all(end in pattern for pattern in patterns)

    def _check_links(self, shared: Sequence[Link]) -> None:
        counts = Counter(link.name for link in self._all)
        for name, count in counts.items():
            if count > 1:
                raise ValueError(f"{count} links are called {name}")

        for link in shared:
            # Routes mean the NICs of their ends by these words.
            if link.name in ENDS:
                raise ValueError(f"a link cannot be called {link.name}: NICs are")
            if not 0 < link.capacity < math.inf:
                raise ValueError(
                    f"link {link.name}: capacity {link.capacity} is not positive "
                    "and finite"
                )
            check_latency(f"link {link.name}", link.latency)

    def _zones(self, routes: Sequence[Route]) -> Ints:
        """Return a number per set of machines with the same stated routes."""
        # Of route r, 2 r is the side that sends and 2 r + 1 the one that receives.
        sides: list[list[int]] = [[] for _ in self._names]
        for position, route in enumerate(routes):
            # A machine that a route lists twice is one end of it all the same.
            for machine in set(route.sources):
                sides[machine].append(2 * position)
            for machine in set(route.destinations):
                sides[machine].append(2 * position + 1)

        numbers: dict[Ports, int] = {}
        zones = []
        for routes_of_machine in sides:
            key = tuple(routes_of_machine)
            zone = numbers.setdefault(key, len(numbers))
            zones.append(zone)
        return np.array(zones, np.int64)

    def _pattern(
        self,
        position: int,
        route: Route,
        ports: Mapping[str, int],
    ) -> Ports:
        if not route.through:
            raise ImpossibleRoute("a route needs at least one link", position)
        counts = Counter(route.through)
        for name, count in counts.items():
            if name not in ports:
                raise ImpossibleRoute(f"no link is called {name}", position)
            if count > 1:
                raise ImpossibleRoute(f"the route crosses {name} twice", position)

        pattern = tuple(ports[name] for name in route.through)
        sides = ((OUT, route.sources), (IN, route.destinations))
        for side, (end, machines) in enumerate(sides):
            if end not in pattern:
                continue
            for machine in machines:
                if self.nic[machine, side] < 0:
                    problem = f"machine {self._names[machine]} has no NIC to cross"
                    raise ImpossibleRoute(problem, position)

            ports_of_ends = set(self.nic[machines, side].tolist())
            # A route may name ``m0 out`` beside ``out``, which of m0 is the same port.
            if not ports_of_ends.isdisjoint(pattern):
                raise ImpossibleRoute("the route crosses a NIC twice", position)

        return pattern

    def _state(self, position: int, route: Route) -> None:
        """Enter a route between all zones of its machines."""
        sources = set(route.sources)
        destinations = set(route.destinations)
        in_both = len(sources & destinations)  # no machine sends itself anything
        pairs = len(sources) * len(destinations) - in_both
        if pairs <= 0:
            raise ImpossibleRoute("the route joins no two machines", position)

        rows = np.unique(self.zone[list(sources)])
        columns = np.unique(self.zone[list(destinations)])
        size = np.bincount(self.zone)
        for row in rows.tolist():
            for column in columns.tolist():
                # The way from a zone to itself matters only between two machines of it.
                is_one_machine = row == column and size[row] == 1
                is_stated = self.route_of[row, column] > 0
                if is_stated and not is_one_machine:
                    # First and last, so that they differ within one zone.
                    senders = np.flatnonzero(self.zone == row)
                    receivers = np.flatnonzero(self.zone == column)
                    sender = senders[0]
                    receiver = receivers[-1]
                    source = self._names[sender]
                    destination = self._names[receiver]
                    raise ImpossibleRoute(
                        f"the way from {source} to {destination} is stated twice",
                        position,
                    )
                self.route_of[row, column] = position + 1

    def _check_unstated(self) -> None:
        """Raise MissingRoute where a machine without a NIC has a route not stated."""
        without_nic = np.flatnonzero(self.nic[:, 0] < 0)
        for machine in without_nic.tolist():
            zone = self.zone[machine]
            routes = {
                "from": self.route_of[zone],
                "to": self.route_of[:, zone],
            }

            for direction, numbers in routes.items():
                # 0 is the way from NIC to NIC, which takes two NICs.
                is_missing = numbers[self.zone] == 0
                missing = np.flatnonzero(is_missing)
                missing = missing[missing != machine]
                if missing.size:
                    name = self._names[machine]
                    peer = self._names[missing[0]]
                    raise MissingRoute(
                        f"machine {name} has no NIC, so every route {direction} it "
                        f"must be stated; the one with {peer} is not",
                        machine,
                    )


def _directions(machine: Machine, position: int) -> tuple[Link, Link]:
    """Return the links that the NIC of a machine is, out before in."""
    outward = Link(
        name=f"{machine.name} out",
        capacity=machine.bandwidth_out,
        machine=position,
        direction="out",
        latency=machine.latency_out,
    )

    inward = Link(
        name=f"{machine.name} in",
        capacity=machine.bandwidth_in,
        machine=position,
        direction="in",
        latency=machine.latency_in,
    )
    return outward, inward
