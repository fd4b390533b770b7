"""Zones of a SimGrid platform, and the route from any host to any other.

A zone joins its hosts, its routers and the zones within it by routes of its own. A
route into a zone ends at a gateway of it; from there on the zone itself knows the way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import NamedTuple, TypeAlias

from typing_extensions import override

from emu.interchange.shortest_ways import Way, shortest_ways

#: Names of links, in the order in which they are crossed.
Wires: TypeAlias = list[str]


class Leg(NamedTuple):
    """A route between two members of a zone."""

    wires: Wires
    source_gateway: str = ""
    """Where it begins, within the member that is a zone."""
    destination_gateway: str = ""
    """Where it ends, within the member that is a zone."""


#: Two members of a zone, from the first to the second.
Ends: TypeAlias = tuple[str, str]
#: Routes by their two ends.
Legs: TypeAlias = dict[Ends, Leg]


# Zones are compared by identity: a way out looks for the very zone.
@dataclass(eq=False)
class Zone(ABC):
    """A zone, and what is within it.

    Parameters
    ----------
    name
        Of the zone, as routes of the zone around it have it.
    parent
        The zone around it, None of the outermost.
    bypasses
        Routes that are taken instead of those of all zones below, by their ends.
    """

    name: str
    parent: Zone | None
    bypasses: Legs = field(default_factory=dict)

    @abstractmethod
    def find_leg(
        self,
        source: str,
        destination: str,
        platform: Zones,
    ) -> Leg | None:
        """Return the route between two members, None where there is none."""

    def add_leg(self, ends: Ends, leg: Leg) -> None:
        """Add a stated route; raises ValueError where the routing has none."""
        source, destination = ends
        raise ValueError(
            f"zone {self.name} states a route of {len(leg.wires)} links, "
            f"{source} to {destination}: its routing has none"
        )

    @property
    def path(self) -> list[Zone]:
        """Zones from the outermost to this one."""
        if self.parent is None:
            return [self]
        return [*self.parent.path, self]


@dataclass(eq=False)
class TableZone(Zone):
    """A zone whose routes are stated one by one (Full, Floyd, Dijkstra, None)."""

    legs: Legs = field(default_factory=dict)
    joins_legs: bool = False
    """True where routes join to the shortest way, by their number of links."""
    ties: int = 0
    """Ways that were found, beside which there are others as short."""
    _ways: dict[str, dict[str, Way]] = field(default_factory=dict)

    @override
    def find_leg(
        self,
        source: str,
        destination: str,
        platform: Zones,
    ) -> Leg | None:
        if not self.joins_legs:
            ends = (source, destination)
            return self.legs.get(ends)

        way = self._ways_from(source).get(destination)
        if way is None:
            return None
        self.ties += way.is_tie
        hops = pairwise(way.places)
        legs = [self.legs[hop] for hop in hops]
        return self._join(legs, platform)

    @override
    def add_leg(self, ends: Ends, leg: Leg) -> None:
        if ends in self.legs:
            source, destination = ends
            raise ValueError(f"the route {source} to {destination} is stated twice")
        self.legs[ends] = leg

    def _ways_from(self, source: str) -> dict[str, Way]:
        """Return the shortest ways from a member, which are found once."""
        if source not in self._ways:
            costs = {}
            for ends, leg in self.legs.items():
                # SimGrid's Floyd and Dijkstra count links: one route of three loses to
                # two of one.
                costs[ends] = len(leg.wires)
            self._ways[source] = shortest_ways(source, costs)
        return self._ways[source]

    def _join(self, legs: list[Leg], platform: Zones) -> Leg | None:
        """Return one route of several, with the ways within zones between them."""
        first = legs[0]
        last = legs[-1]
        wires = [*first.wires]
        for leg, next_leg in pairwise(legs):
            # One route may enter a zone at another gateway than the next one leaves by.
            entry = leg.destination_gateway
            exit_gateway = next_leg.source_gateway
            between = platform.find_route(entry, exit_gateway)
            if between is None:
                return None
            wires += between
            wires += next_leg.wires

        return Leg(
            wires,
            source_gateway=first.source_gateway,
            destination_gateway=last.destination_gateway,
        )


@dataclass(eq=False)
class StarZone(Zone):
    """A zone in which all is joined in the middle (Cluster)."""

    ups: dict[str, Wires] = field(default_factory=dict)
    """Links from a member to the middle, the backbone last."""
    downs: dict[str, Wires] = field(default_factory=dict)

    def attach(
        self,
        host: str,
        up_wire: str,
        down_wire: str,
        backbone: Wires,
    ) -> None:
        """Join a host to the middle, over its own links and a backbone if any."""
        self.ups[host] = [up_wire, *backbone]
        self.downs[host] = [*backbone, down_wire]

    @override
    def find_leg(
        self,
        source: str,
        destination: str,
        platform: Zones,
    ) -> Leg | None:
        ups = self.ups.get(source, [])
        downs = self.downs.get(destination, [])
        # The backbone is in both, and is crossed once.
        crossings = [*ups, *downs]
        wires = dict.fromkeys(crossings)
        return Leg([*wires])


class Zones:
    """All zones of a platform, and which of them each place is in."""

    def __init__(self) -> None:
        self._zone_of = dict[str, Zone]()
        self._inner = dict[str, Zone]()

    def add(self, zone: Zone) -> None:
        """Add a zone; raises ValueError when its name is taken."""
        # To the zone around it a zone is a member as a host is: routes end at it.
        if zone.parent is not None:
            self.place(zone.name, zone.parent)
        self._inner[zone.name] = zone

    def place(self, name: str, zone: Zone) -> None:
        """Put a host or router into a zone; raises ValueError when it is taken."""
        if name in self._zone_of:
            raise ValueError(f"two hosts, routers or zones are called {name!r}")
        self._zone_of[name] = zone

    def check_place(self, name: str, zone: Zone) -> None:
        """Raise ValueError where a zone has no member of this name."""
        if self._zone_of.get(name) is not zone:
            raise ValueError(f"a route ends at {name!r}, which is not there")

    def check_gateway(self, name: str, member: str) -> None:
        """Raise ValueError where a gateway is not within the zone that it is of."""
        zone = self._zone_of.get(name)
        names = []
        if zone is not None:
            names = [outer.name for outer in zone.path]
        is_zone = name in self._inner
        if is_zone or member not in names:
            raise ValueError(f"{name!r} is no host or router within {member!r}")

    def find_route(self, source: str, destination: str) -> Wires | None:
        """Return the links from one host or router to another, None without a way."""
        if source == destination:
            return []

        ancestor = self._common_zone(source, destination)
        sources = self._around(source, ancestor)
        destinations = self._around(destination, ancestor)
        leg = _find_bypass(sources, destinations, ancestor)
        if leg is None:
            first = sources[-1]
            last = destinations[-1]
            leg = ancestor.find_leg(first, last, self)
        if leg is None:
            return None

        # The ends of a leg lie deeper by a zone at least, so that this ends.
        source_gateway = leg.source_gateway or source
        destination_gateway = leg.destination_gateway or destination
        head = self.find_route(source, source_gateway)
        tail = self.find_route(destination_gateway, destination)
        if head is None or tail is None:
            return None
        return [*head, *leg.wires, *tail]

    def _common_zone(self, source: str, destination: str) -> Zone:
        """Return the innermost zone that two places are in."""
        source_path = self._zone_of[source].path
        destination_path = self._zone_of[destination].path
        for zone in reversed(source_path):
            if zone in destination_path:
                return zone
        raise ValueError(f"{source} and {destination} are in no zone together")

    def _around(self, name: str, ancestor: Zone) -> list[str]:
        """Return a place and the zones around it, below an ancestor, inside out."""
        zones = self._zone_of[name].path
        depth = zones.index(ancestor)
        below = zones[depth + 1 :]
        names = [zone.name for zone in reversed(below)]
        return [name, *names]


def _find_bypass(
    sources: list[str], destinations: list[str], ancestor: Zone
) -> Leg | None:
    """Return the bypass between two places, or between zones around them.

    Of several, SimGrid takes the one that leaves the innermost zones.
    """
    source_levels = range(len(sources))
    destination_levels = range(len(destinations))
    levels = product(source_levels, destination_levels)
    # The sort is stable: of two as far out the lower one at the source is first.
    for source_level, destination_level in sorted(levels, key=max):
        source = sources[source_level]
        destination = destinations[destination_level]
        ends = (source, destination)
        if ends in ancestor.bypasses:
            return ancestor.bypasses[ends]
    return None
