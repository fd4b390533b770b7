"""Clusters of SimGrid: flat ones, tori, fat trees and dragonflies.

Hosts are numbered from 0 in the order of ``radical``. Links come into being with the
first route that crosses them. Routes are those of SimGrid 3.32 and 4.1 (TorusZone,
FatTreeZone and DragonflyZone).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TypeAlias

from typing_extensions import override

from emu.interchange.simgrid_zones import Leg, Wires, Zone, Zones
from emu.interchange.topology import Wire

#: Position of a host or switch, a number per level or dimension.
Place: TypeAlias = list[int]
#: Any of the clusters.
Grid: TypeAlias = "Torus | FatTree | Dragonfly"


@dataclass(eq=False)
class GridZone(Zone):
    """A cluster whose hosts are joined by their numbers.

    Parameters
    ----------
    wires
        Of the whole platform; those of the cluster are added.
    wire
        What each of its links is like.
    is_duplex
        True where each link has both directions for itself.
    limiter
        Bytes per second of all that a host or switch passes on; 0 without a limit.
    numbers
        Number of every host.
    """

    wires: dict[str, Wire] = field(default_factory=dict)
    wire: Wire = field(default_factory=lambda: Wire(0))
    is_duplex: bool = True
    limiter: float = 0.0
    numbers: dict[str, int] = field(default_factory=dict)

    @override
    def find_leg(
        self,
        source: str,
        destination: str,
        platform: Zones,
    ) -> Leg | None:
        start = self.numbers.get(source)
        end = self.numbers.get(destination)
        if start is None or end is None:
            return None  # its routers are joined to nothing
        hops = self.cross(start, end)
        # A route may have each wire once (`cluster_keys`).
        return Leg([*dict.fromkeys(hops)])

    @abstractmethod
    def cross(self, source: int, destination: int) -> Wires:
        """Return the links between two hosts, by their numbers."""

    def use(self, name: str, *, up: bool, cables: int = 1) -> str:
        """Return the wire of a link in one direction, of so many parallel cables."""
        wire_name = f"{self.name}_{name}"
        if self.is_duplex:
            direction = "UP" if up else "DOWN"
            wire_name += f"_{direction}"
        # Of a dragonfly parallel cables are one link of their sum.
        rate = self.wire.rate * cables
        wire = self.wire._replace(rate=rate)
        self.wires[wire_name] = wire
        return wire_name

    def limit(self, place: str) -> Wires:
        """Return the wire that limits a host or switch, where there are limits."""
        if not self.limiter:
            return []
        name = f"{self.name}_{place}_limiter"
        self.wires[name] = Wire(self.limiter)
        return [name]


@dataclass(eq=False)
class Torus(GridZone):
    """Hosts in rings along every dimension, the first dimension first."""

    dimensions: Place = field(default_factory=list)

    @override
    def cross(self, source: int, destination: int) -> Wires:
        wires = []
        place = source
        stride = 1
        for dimension, size in enumerate(self.dimensions):
            start = source // stride % size
            end = destination // stride % size
            forward = self._goes_forward(start, end, size)
            step = 1 if forward else -1

            position = start
            while position != end:
                next_position = (position + step) % size
                step_length = next_position - position
                next_place = place + step_length * stride
                # Both ways a link has the name of the host it leads forward from.
                owner = place if forward else next_place
                wires += self.limit(f"link_{place}")
                link = f"link_{owner}_{dimension}"
                wire = self.use(link, up=forward)
                wires.append(wire)
                position = next_position
                place = next_place
            stride *= size

        wires += self.limit(f"link_{destination}")
        return wires

    def _goes_forward(self, start: int, end: int, size: int) -> bool:
        """Return the way that SimGrid goes round a ring, which need not be shorter."""
        # The conditions are those of TorusZone, so that every route is SimGrid's.
        half = size // 2
        is_near = start < end <= start + half
        antipode = (start + half) % size
        wraps = start > half and antipode >= end
        return is_near or wraps


@dataclass(eq=False)
class FatTree(GridZone):
    """Hosts below levels of switches (d-mod-k routing).

    Parameters
    ----------
    children, parents, cables
        Of every level from below: nodes below a switch, switches above a node, and
        parallel cables between the two.
    """

    children: Place = field(default_factory=list)
    parents: Place = field(default_factory=list)
    cables: Place = field(default_factory=list)

    @override
    def cross(self, source: int, destination: int) -> Wires:
        place = self._label(source)
        end = self._label(destination)
        # Up, the destination picks the cables; down, the source does.
        wires, level = self._climb(place, end, destination)

        while level:
            place_in_level = level - 1
            children = self.children[place_in_level]
            cables = self.cables[place_in_level]
            # As SimGrid does: ports are looked at on from the last one taken.
            port = source % cables * children
            while level and port < self._ports(level):
                children_of_level = self.children[level - 1]
                cable, child = divmod(port, children_of_level)
                if child == end[level - 1]:
                    wires += self._step_down(
                        place,
                        end=end,
                        level=level,
                        cable=cable,
                    )
                    level -= 1
                port += 1

        host = self._node(0, end)
        wires += self.limit(host)
        return wires

    def _ports(self, level: int) -> int:
        """Return how many cables lead down from a switch."""
        children = self.children[level - 1]
        cables = self.cables[level - 1]
        return children * cables

    def _step_down(
        self,
        place: Place,
        end: Place,
        level: int,
        cable: int,
    ) -> Wires:
        """Go to the switch or host below that is nearer to the end."""
        upper = self._node(level, place)
        level_below = level - 1
        place[level_below] = end[level_below]
        lower = self._node(level_below, place)
        wire = self.use(f"{lower}_{upper}_{cable}", up=False)
        return [wire, *self.limit(upper)]

    def _climb(
        self,
        place: Place,
        end: Place,
        destination: int,
    ) -> tuple[Wires, int]:
        """Go up until the destination is below; return the links and the level."""
        wires = []
        level = 0
        rest = destination
        # No two hosts are joined but over a switch: one level up at least.
        while level == 0 or place[level:] != end[level:]:
            parents = self.parents[level]
            cables = self.cables[level]
            ports = parents * cables
            port = rest % ports
            # Each level takes one digit of the destination (d-mod-k).
            rest //= parents

            lower = self._node(level, place)
            place[level] = port % parents
            level += 1
            upper = self._node(level, place)
            cable = port // parents
            wires += self.limit(lower)
            cable_wire = self.use(f"{lower}_{upper}_{cable}", up=True)
            wires.append(cable_wire)
        return wires, level

    def _label(self, host: int) -> Place:
        label = []
        for count in self.children:
            host, digit = divmod(host, count)
            label.append(digit)
        return label

    def _node(self, level: int, label: Place) -> str:
        digits = ".".join(map(str, label))
        return f"{level}:{digits}"


@dataclass(eq=False)
class Dragonfly(GridZone):
    """Groups of chassis of blades, all joined to all at every level.

    Parameters
    ----------
    counts
        Groups, chassis of a group, blades of a chassis, hosts of a blade.
    blue, black, green
        Parallel cables between groups, chassis and blades.
    """

    counts: tuple[int, int, int, int] = (1, 1, 1, 1)
    blue: int = 1
    black: int = 1
    green: int = 1

    @override
    def cross(self, source: int, destination: int) -> Wires:
        *start, host = self._place(source)
        *end, end_host = self._place(destination)
        first_router = self._router(start)
        last_router = self._router(end)
        wires = self.limit(f"host_{source}")
        host_wire = self.use(f"{first_router}_host_{host}", up=True)
        wires.append(host_wire)

        # As in DragonflyZone: first the group, then the blade, then the chassis.
        group, chassis, blade = end
        place = start
        if place[0] != group:
            hops, place = self._change_group(place, group)
            wires += hops
        if place[2] != blade:
            turn = [group, place[1], blade]
            wires += self._hop(place, turn, self.green)
            place = [group, 0, blade]  # in SimGrid the first chassis is next
        if place[1] != chassis:
            wires += self._hop(place, end, self.black)

        wires += self.limit(last_router)
        end_wire = self.use(f"{last_router}_host_{end_host}", up=False)
        wires.append(end_wire)
        wires += self.limit(f"host_{destination}")
        return wires

    def _change_group(self, place: Place, group: int) -> tuple[Wires, Place]:
        """Return the links to another group, and the router that they lead to.

        Of each group the router of the first chassis whose blade has the number of
        another group has the link to it.
        """
        wires = []
        own_group, chassis, blade = place
        turn = [own_group, chassis, group]
        if blade != group:
            wires += self._hop(place, turn, self.green)
        start = [own_group, 0, group]
        if chassis:
            wires += self._hop(turn, start, self.black)

        end = [group, 0, own_group]
        wires += self._hop(start, end, self.blue)
        return wires, end

    def _hop(self, start: Place, end: Place, cables: int) -> Wires:
        """Return the limit of a router and its link to another, in this direction."""
        # A link has one name both ways; up is from the lower router.
        first, second = sorted([start, end])
        lower = self._router(first)
        upper = self._router(second)
        is_up = start < end
        wires = self.limit(self._router(start))
        name = f"{lower}_{upper}"
        wire = self.use(name, up=is_up, cables=cables)
        wires.append(wire)
        return wires

    def _place(self, host: int) -> Place:
        digits = []
        for count in reversed(self.counts[1:]):
            host, digit = divmod(host, count)
            digits.append(digit)
        return [host, *reversed(digits)]

    def _router(self, place: Place) -> str:
        numbers = ".".join(map(str, place))
        return f"router_{numbers}"


def build_grid(kind: str, parameters: str) -> Grid:
    """Return the cluster of ``topology`` and ``topo_parameters``, without its links.

    Raises ValueError when the parameters are not those of the kind.
    """
    parts = [_numbers(part) for part in parameters.split(";")]
    lengths = [len(part) for part in parts]
    if kind == "TORUS" and len(parts) == 1:
        # `simgrid` sets the name, the parent and the wires of all three.
        return Torus(name="", parent=None, dimensions=parts[0])
    # Of a dragonfly these are groups, which its own check below does not ask for.
    levels = parts[0][0]
    if kind == "FAT_TREE" and lengths == [1, levels, levels, levels]:
        return FatTree(
            name="",
            parent=None,
            children=parts[1],
            parents=parts[2],
            cables=parts[3],
        )
    if kind == "DRAGONFLY" and lengths == [2, 2, 2, 1]:
        return _build_dragonfly(parts)

    right = {
        "TORUS": "one number per dimension: 3,2,2",
        "FAT_TREE": "levels;nodes below;switches above;cables: 2;4,4;1,2;1,2",
        "DRAGONFLY": "groups,cables;chassis,cables;blades,cables;hosts: 3,4;4,3;5,1;2",
    }
    known = right.get(kind, "FLAT, TORUS, FAT_TREE or DRAGONFLY")
    raise ValueError(
        f"topo_parameters of a {kind} cluster are {parameters!r}, write {known}"
    )


def _build_dragonfly(parts: list[Place]) -> Dragonfly:
    groups, blue = parts[0]
    chassis, black = parts[1]
    blades, green = parts[2]
    (hosts,) = parts[3]
    # `_change_group` leaves over the blade of the other group's number.
    if groups > blades:
        raise ValueError(f"{groups} groups need as many blades, {blades} are there")

    return Dragonfly(
        name="",
        parent=None,
        counts=(groups, chassis, blades, hosts),
        blue=blue,
        black=black,
        green=green,
    )


def count_hosts(grid: Grid) -> int:
    """Return the number of hosts that a cluster has by its parameters."""
    if isinstance(grid, Torus):
        return math.prod(grid.dimensions)
    if isinstance(grid, FatTree):
        return math.prod(grid.children)
    return math.prod(grid.counts)


def _numbers(text: str) -> Place:
    words = text.split(",")
    decimals = [word for word in words if word.strip().isdecimal()]
    numbers = [int(word) for word in decimals]
    if len(numbers) < len(words) or min(numbers) < 1:
        raise ValueError(f"topo_parameters have {text!r}, write numbers from 1 on")
    return numbers
