"""Clusters of SimGrid: flat ones, tori, fat trees and dragonflies.

Hosts are numbered from 0 in the order of ``radical``. Links come into being with the
first route that crosses them. Routes are those of SimGrid 3.32 and 4.1 (TorusZone,
FatTreeZone and DragonflyZone).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field

from typing_extensions import override

from emu.interchange.simgrid_zones import Leg, Zone, Zones
from emu.interchange.topology import Wire


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
    def find_leg(self, source: str, destination: str, platform: Zones) -> Leg | None:
        if source not in self.numbers or destination not in self.numbers:
            return None  # its routers are joined to nothing
        hops = self.cross(self.numbers[source], self.numbers[destination])
        return Leg([*dict.fromkeys(hops)])

    @abstractmethod
    def cross(self, source: int, destination: int) -> list[str]:
        """Return the links between two hosts, by their numbers."""

    def use(self, name: str, *, up: bool, cables: int = 1) -> str:
        """Return the wire of a link in one direction, of so many parallel cables."""
        suffix = ("_UP" if up else "_DOWN") if self.is_duplex else ""
        wire_name = f"{self.name}_{name}{suffix}"
        rate = self.wire.rate * cables
        self.wires[wire_name] = self.wire._replace(rate=rate)
        return wire_name

    def limit(self, place: str) -> list[str]:
        """Return the wire that limits a host or switch, where there are limits."""
        if not self.limiter:
            return []
        name = f"{self.name}_{place}_limiter"
        self.wires[name] = Wire(self.limiter)
        return [name]


@dataclass(eq=False)
class Torus(GridZone):
    """Hosts in rings along every dimension, the first dimension first."""

    dimensions: list[int] = field(default_factory=list)

    @override
    def cross(self, source: int, destination: int) -> list[str]:
        wires = []
        place = source
        stride = 1
        for dimension, size in enumerate(self.dimensions):
            start = source // stride % size
            end = destination // stride % size
            forward = self._goes_forward(start, end, size)
            while place // stride % size != end:
                position = place // stride % size
                step = 1 if forward else -1
                next_place = place + ((position + step) % size - position) * stride
                owner = place if forward else next_place
                wires += self.limit(f"link_{place}")
                wires.append(self.use(f"link_{owner}_{dimension}", up=forward))
                place = next_place
            stride *= size
        return [*wires, *self.limit(f"link_{destination}")]

    def _goes_forward(self, start: int, end: int, size: int) -> bool:
        half = size // 2
        is_near = start < end <= start + half
        wraps = start > half and (start + half) % size >= end
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

    children: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    cables: list[int] = field(default_factory=list)

    @override
    def cross(self, source: int, destination: int) -> list[str]:
        place = self._label(source)
        end = self._label(destination)
        wires, level = self._climb(place, end, destination)
        while level:
            # As SimGrid does: ports are looked at on from the last one taken.
            port = source % self.cables[level - 1] * self.children[level - 1]
            while level and port < self.children[level - 1] * self.cables[level - 1]:
                if port % self.children[level - 1] == end[level - 1]:
                    cable = port // self.children[level - 1]
                    upper = self._node(level, place)
                    limiter = self.limit(upper)
                    level -= 1
                    place[level] = end[level]
                    link = f"{self._node(level, place)}_{upper}_{cable}"
                    wires += [self.use(link, up=False), *limiter]
                port += 1
        return wires + self.limit(self._node(0, end))

    def _climb(
        self, place: list[int], end: list[int], destination: int
    ) -> tuple[list[str], int]:
        """Go up until the destination is below; return the links and the level."""
        wires = []
        level = 0
        rest = destination
        while not level or place[level:] != end[level:]:
            ports = self.parents[level] * self.cables[level]
            cable, parent = divmod(rest % ports, self.parents[level])
            rest //= self.parents[level]
            lower = self._node(level, place)
            place[level] = parent
            level += 1
            link = f"{lower}_{self._node(level, place)}_{cable}"
            wires += [*self.limit(lower), self.use(link, up=True)]
        return wires, level

    def _label(self, host: int) -> list[int]:
        label = []
        for count in self.children:
            host, digit = divmod(host, count)
            label.append(digit)
        return label

    def _node(self, level: int, label: list[int]) -> str:
        return f"{level}:{'.'.join(map(str, label))}"


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
    def cross(self, source: int, destination: int) -> list[str]:
        *start, host = self._place(source)
        *end, end_host = self._place(destination)
        wires = self.limit(f"host_{source}")
        wires.append(self.use(f"{self._router(start)}_host_{host}", up=True))

        place = start
        if place[0] != end[0]:
            hops, place = self._change_group(place, end[0])
            wires += hops
        if place[2] != end[2]:
            wires += self._hop(place, [*place[:2], end[2]], self.green)
            place = [place[0], 0, end[2]]  # in SimGrid the first chassis is next
        if place[1] != end[1]:
            wires += self._hop(place, end, self.black)

        wires += self.limit(self._router(end))
        wires.append(self.use(f"{self._router(end)}_host_{end_host}", up=False))
        return wires + self.limit(f"host_{destination}")

    def _change_group(
        self, place: list[int], group: int
    ) -> tuple[list[str], list[int]]:
        """Return the links to another group, and the router that they lead to.

        Of each group the router of the first chassis whose blade has the number of
        another group has the link to it.
        """
        wires = []
        first, chassis, blade = place
        if blade != group:
            wires += self._hop(place, [first, chassis, group], self.green)
        if chassis:
            wires += self._hop([first, chassis, group], [first, 0, group], self.black)
        start = [first, 0, group]
        end = [group, 0, first]
        hop = self._hop(start, end, self.blue)
        return wires + hop, end

    def _hop(self, start: list[int], end: list[int], cables: int) -> list[str]:
        """Return the limit of a router and its link to another, in this direction."""
        ends = sorted([start, end])
        name = "_".join(map(self._router, ends))
        wire = self.use(name, up=start < end, cables=cables)
        return [*self.limit(self._router(start)), wire]

    def _place(self, host: int) -> list[int]:
        digits = []
        for count in reversed(self.counts[1:]):
            host, digit = divmod(host, count)
            digits.append(digit)
        return [host, *reversed(digits)]

    def _router(self, place: list[int]) -> str:
        return "router_" + ".".join(map(str, place))


def build_grid(kind: str, parameters: str) -> Torus | FatTree | Dragonfly:
    """Return the cluster of ``topology`` and ``topo_parameters``, without its links.

    Raises ValueError when the parameters are not those of the kind.
    """
    parts = [_numbers(part) for part in parameters.split(";")]
    if kind == "TORUS" and len(parts) == 1:
        return Torus("", None, dimensions=parts[0])
    if kind == "FAT_TREE" and len(parts) == 4 and len(parts[0]) == 1:
        (levels,), children, parents, cables = parts
        if len(children) == len(parents) == len(cables) == levels:
            return FatTree("", None, children=children, parents=parents, cables=cables)
    if kind == "DRAGONFLY" and [len(part) for part in parts] == [2, 2, 2, 1]:
        (groups, blue), (chassis, black), (blades, green), (hosts,) = parts
        if groups > blades:
            raise ValueError(f"{groups} groups need as many blades, {blades} are there")
        counts = groups, chassis, blades, hosts
        return Dragonfly("", None, counts=counts, blue=blue, black=black, green=green)
    problem = f"topo_parameters of a {kind} cluster are {parameters!r}, write "
    right = {
        "TORUS": "one number per dimension: 3,2,2",
        "FAT_TREE": "levels;nodes below;switches above;cables: 2;4,4;1,2;1,2",
        "DRAGONFLY": "groups,cables;chassis,cables;blades,cables;hosts: 3,4;4,3;5,1;2",
    }
    raise ValueError(problem + right.get(kind, "FLAT, TORUS, FAT_TREE or DRAGONFLY"))


def count_hosts(grid: Torus | FatTree | Dragonfly) -> int:
    """Return the number of hosts that a cluster has by its parameters."""
    if isinstance(grid, Torus):
        return math.prod(grid.dimensions)
    if isinstance(grid, FatTree):
        return math.prod(grid.children)
    return math.prod(grid.counts)


def _numbers(text: str) -> list[int]:
    numbers = [int(word) for word in text.split(",")]
    if min(numbers) < 1:
        raise ValueError(f"topo_parameters have {text!r}, write numbers from 1 on")
    return numbers
