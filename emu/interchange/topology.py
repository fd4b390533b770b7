"""Machines, links and routes of a topology of others."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

from emu.errors import DataError
from emu.interchange.workload import Data
from emu.units import DURATION, RATE

#: Routes that are written; of 300 machines there are 90,000.
_MOST_ROUTES = 200_000


class Wire(NamedTuple):
    """A link of one direction, or shared by both."""

    rate: float
    """Bytes per second; 0 where nothing says."""
    latency: float = 0.0
    """Seconds."""


@dataclass
class Topology:
    """Machines and what joins them, as a file says it."""

    origin: str
    machines: list[str] = field(default_factory=list)
    wires: dict[str, Wire] = field(default_factory=dict)
    routes: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Ends, machines among them, -> wires in their order."""
    left_out: Counter[str] = field(default_factory=Counter)

    def connect(self, one: str, other: str, wire: Wire) -> None:
        """Join two ends by a wire of each direction."""
        for ends in ((one, other), (other, one)):
            name = f"{ends[0]}-{ends[1]}"
            self.wires[name] = wire
            self.routes[ends] = [name]

    def join(self) -> None:
        """Let machines reach each other over the ends between, by the fewest wires.

        Raises DataError when one reaches no other.
        """
        near = defaultdict[str, list[str]](list)
        for one, other in self.routes:
            near[one].append(other)
        places, whole = {*self.machines}, dict[tuple[str, str], list[str]]()
        for start in self.machines:
            ways, queue = {start: list[str]()}, [start]
            for here in queue:  # grows while it is walked
                for other in near[here] if here == start or here not in places else ():
                    way = ways[here] + self.routes[here, other]
                    if other not in ways or len(way) < len(ways[other]):
                        ways[other] = way
                        queue.append(other)
            for end in self.machines:
                if end != start and end not in ways:
                    problem = f"{start} and {end} are not joined"
                    raise DataError(problem, path=self.origin)
                whole[start, end] = ways[end]
            del whole[start, start]
        self.routes = whole

    def cluster(self) -> Data:
        """Return the keys of ``cluster`` that a topology has.

        Raises DataError when a route runs in a loop or is missing, there are too many,
        or a wire has no rate.
        """
        pairs = [*permutations(self.machines, 2)]
        if len(self.machines) < 2 or len(pairs) > _MOST_ROUTES:
            problem = f"has {len(self.machines)} machines, 2 to 400 are joined"
            raise DataError(problem, path=self.origin)
        for ends in pairs:
            wires = self.routes.get(ends)
            if not wires:
                problem = f"has no route {ends[0]} to {ends[1]}"
                raise DataError(problem, path=self.origin)
            if len({*wires}) < len(wires):
                twice = next(wire for wire in wires if wires.count(wire) > 1)
                problem = f"the route {ends[0]} to {ends[1]} runs in a loop: it takes "
                raise DataError(f"{problem}{twice} twice", path=self.origin)
        names = dict.fromkeys(wire for ends in pairs for wire in self.routes[ends])
        for name in names:
            if not 0 < self.wires[name].rate < float("inf"):
                raise DataError(f"link {name} has no bandwidth", path=self.origin)
        return {
            "machines": [{"name": name, "nic": "none"} for name in self.machines],
            "links": [
                {
                    "name": name,
                    "bandwidth": RATE.exact(self.wires[name].rate),
                    "latency": DURATION.exact(self.wires[name].latency),
                }
                for name in names
            ],
            "routes": [
                {"from": a, "to": b, "through": self.routes[a, b]} for a, b in pairs
            ],
        }
