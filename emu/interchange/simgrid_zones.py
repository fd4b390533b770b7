"""Zones of a SimGrid platform, and the route from any host to any other.

A zone joins its hosts, its routers and the zones within it by routes of its own. A
route into a zone ends at a gateway of it; from there on the zone itself knows the way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from typing_extensions import override

from emu.interchange.shortest_ways import Way, shortest_ways


class Leg(NamedTuple):
    """A route between two members of a zone."""

    wires: list[str]
    source_gateway: str = ""
    """Where it begins, within the member that is a zone."""
    destination_gateway: str = ""
    """Where it ends, within the member that is a zone."""


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
    bypasses: dict[tuple[str, str], Leg] = field(default_factory=dict)

    @abstractmethod
    def find_leg(self, source: str, destination: str, platform: Zones) -> Leg | None:
        """Return the route between two members, None where there is none."""

    def add_leg(self, ends: tuple[str, str], leg: Leg) -> None:
        """Add a stated route; raises ValueError where the routing has none."""
        problem = f"zone {self.name} states a route of {len(leg.wires)} links, "
        raise ValueError(f"{problem}{ends[0]} to {ends[1]}: its routing has none")

    @property
    def path(self) -> list[Zone]:
        """Zones from the outermost to this one."""
        around = self.parent.path if self.parent else []
        return [*around, self]


@dataclass(eq=False)
class TableZone(Zone):
    """A zone whose routes are stated one by one (Full, Floyd, Dijkstra, None)."""

    legs: dict[tuple[str, str], Leg] = field(default_factory=dict)
    joins_legs: bool = False
    """True where routes join to the shortest way, by their number of links."""
    ties: int = 0
    """Ways that were found, beside which there are others as short."""
    _ways: dict[str, dict[str, Way]] = field(default_factory=dict)

    @override
    def find_leg(self, source: str, destination: str, platform: Zones) -> Leg | None:
        if not self.joins_legs:
            return self.legs.get((source, destination))
        if source not in self._ways:
            costs = {ends: len(leg.wires) for ends, leg in self.legs.items()}
            self._ways[source] = shortest_ways(source, costs)
        way = self._ways[source].get(destination)
        if way is None:
            return None
        self.ties += way.is_tie
        return self._join([self.legs[ends] for ends in pairwise(way.places)], platform)

    @override
    def add_leg(self, ends: tuple[str, str], leg: Leg) -> None:
        if ends in self.legs:
            raise ValueError(f"the route {ends[0]} to {ends[1]} is stated twice")
        self.legs[ends] = leg

    def _join(self, legs: list[Leg], platform: Zones) -> Leg:
        """Return one route of several, with the ways within zones between them."""
        wires = [*legs[0].wires]
        for leg, next_leg in pairwise(legs):
            if leg.destination_gateway != next_leg.source_gateway:
                ends = leg.destination_gateway, next_leg.source_gateway
                wires += platform.find_route(*ends) or []
            wires += next_leg.wires
        return Leg(wires, legs[0].source_gateway, legs[-1].destination_gateway)


@dataclass(eq=False)
class StarZone(Zone):
    """A zone in which all is joined in the middle (Cluster)."""

    ups: dict[str, list[str]] = field(default_factory=dict)
    """Links from a member to the middle, the backbone last."""
    downs: dict[str, list[str]] = field(default_factory=dict)

    @override
    def find_leg(self, source: str, destination: str, platform: Zones) -> Leg | None:
        wires = [*self.ups.get(source, []), *self.downs.get(destination, [])]
        return Leg([*dict.fromkeys(wires)])  # the backbone is crossed once


class Zones:
    """All zones of a platform, and which of them each place is in."""

    def __init__(self) -> None:
        self._zone_of = dict[str, Zone]()
        self._inner = dict[str, Zone]()

    def add(self, zone: Zone) -> None:
        """Add a zone; raises ValueError when its name is taken."""
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
        is_within = zone is not None and member in [zone.name for zone in zone.path]
        if not is_within or name in self._inner:
            raise ValueError(f"{name!r} is no host or router within {member!r}")

    def find_route(self, source: str, destination: str) -> list[str] | None:
        """Return the links from one host or router to another, None without a way."""
        if source == destination:
            return []
        source_path = self._zone_of[source].path
        destination_path = self._zone_of[destination].path
        depth = sum(
            near is far
            for near, far in zip(source_path, destination_path, strict=False)
        )
        ancestor = source_path[depth - 1]
        leg = self._find_bypass(source, destination, ancestor)
        if leg is None:
            members = (
                source_path[depth].name if depth < len(source_path) else source,
                destination_path[depth].name
                if depth < len(destination_path)
                else destination,
            )
            leg = ancestor.find_leg(*members, self)
        if leg is None:
            return None
        return self._complete(source, leg, destination)

    def _complete(self, source: str, leg: Leg, destination: str) -> list[str] | None:
        """Return a leg with the ways to its gateways."""
        before = self.find_route(source, leg.source_gateway or source)
        behind = self.find_route(leg.destination_gateway or destination, destination)
        if before is None or behind is None:
            return None
        return [*before, *leg.wires, *behind]

    def _find_bypass(self, source: str, destination: str, ancestor: Zone) -> Leg | None:
        """Return the bypass between two places, or between zones around them.

        Of several the one is taken that leaves the innermost zones.
        """
        if not ancestor.bypasses:
            return None
        sources = self._around(source, ancestor)
        destinations = self._around(destination, ancestor)
        for most in range(max(len(sources), len(destinations))):
            levels = [(least, most) for least in range(most)]
            levels += [(most, least) for least in range(most)]
            for near, far in [*levels, (most, most)]:
                ends = sources[near : near + 1] + destinations[far : far + 1]
                if tuple(ends) in ancestor.bypasses:
                    return ancestor.bypasses[ends[0], ends[1]]
        return None

    def _around(self, name: str, ancestor: Zone) -> list[str]:
        """Return a place and the zones around it, up to an ancestor, inside out."""
        zones = self._zone_of[name].path
        below = zones[zones.index(ancestor) + 1 :]
        return [name, *(zone.name for zone in reversed(below))]
