"""Machines, links and routes of a topology of others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, permutations
from typing import NamedTuple

from emu.errors import DataError
from emu.interchange.shortest_ways import shortest_ways
from emu.interchange.workload import Data
from emu.problem.links import NO_ROUTE
from emu.units import DURATION, RATE

#: Machines that are read: of 400 there are 160,000 routes, which take 2 s.
MOST_MACHINES = 400


class Wire(NamedTuple):
    """A link of one direction, or shared by both."""

    rate: float
    """Bytes per second; 0 where nothing says."""
    latency: float = 0.0
    """Seconds."""
    is_shared: bool = True
    """False where every flow has the whole rate for itself."""


@dataclass(frozen=True)
class Answers:
    """What some files of topologies leave open, as ``cluster.topology`` answers it."""

    boxes: int = 1
    """Equal boxes that a file of one box stands for."""
    nic: float = 0.0
    """Bytes per second of a NIC, each way; 0 where nobody said."""
    uplink: float = 0.0
    """Bytes per second between a switch and the one above it; 0 where nobody said."""


class _Nic(NamedTuple):
    """The wires that nothing but one machine sends, and receives, over."""

    outward: str
    inward: str


@dataclass
class Topology:
    """Machines and what joins them, as a file says it."""

    origin: str
    machines: list[str] = field(default_factory=list)
    wires: dict[str, Wire] = field(default_factory=dict)
    routes: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Ends, machines among them, -> wires in their order."""
    notes: list[str] = field(default_factory=list)
    """Sentences on what was assumed."""
    left_out: Counter[str] = field(default_factory=Counter)

    def connect(self, end: str, other_end: str, wire: Wire) -> None:
        """Join two ends by a wire of each direction.

        A second edge between two ends replaces the first, and is counted.
        """
        if (end, other_end) in self.routes:
            self.left_out["second edge between two components, the last is taken"] += 1
        for source, destination in ((end, other_end), (other_end, end)):
            name = f"{source}-{destination}"
            self.wires[name] = wire
            self.routes[source, destination] = [name]

    def join(self) -> None:
        """Let machines reach each other over the ends between, by the fewest wires.

        Of several ways of as many wires the one is taken whose first edges stand first
        in the file; how many pairs have others is left out by number.

        Raises DataError when one reaches no other.
        """
        self.check_size(len(self.machines))
        costs = {ends: len(wires) for ends, wires in self.routes.items()}
        joined = dict[tuple[str, str], list[str]]()
        for start in self.machines:
            ways = shortest_ways(start, costs, last={*self.machines})
            for end in self.machines:
                if end == start:
                    continue
                if end not in ways:
                    problem = f"{start} and {end} are not joined"
                    raise DataError(problem, path=self.origin)
                legs = pairwise(ways[end].places)
                joined[start, end] = [name for leg in legs for name in self.routes[leg]]
                if ways[end].is_tie:
                    self.left_out[
                        "way between machines, as short as the one taken"
                    ] += 1
        self.routes = joined

    def check_size(self, machines: int) -> None:
        """Raise DataError where there are more machines, or fewer, than are read."""
        if not 1 <= machines <= MOST_MACHINES:
            problem = f"has {machines:,} machines, 1 to {MOST_MACHINES} are read"
            raise DataError(problem, path=self.origin)

    def cluster(self) -> Data:
        """Return the keys of ``cluster`` that a topology has.

        What one machine alone sends and receives over is its NIC. Between machines
        without a route no flow may go; placements are held to that.

        Raises DataError when a route runs in a loop, all are missing, there are too
        many machines, or a wire has no rate.
        """
        self.check_size(len(self.machines))
        pairs = [*permutations(self.machines, 2)]
        missing = [ends for ends in pairs if ends not in self.routes]
        if missing and len(missing) == len(pairs):
            problem = f"has no route {' to '.join(missing[0])}, nor any other"
            raise DataError(problem, path=self.origin)
        self.routes = {ends: self.routes[ends] for ends in pairs if ends in self.routes}
        for ends in self.routes:
            self._check_route(ends)
        self._replace_unshared()

        nics = self._find_nics()
        middles = {ends: self._shorten(ends, nics) for ends in self.routes}
        middles |= dict.fromkeys(missing, (NO_ROUTE,))
        if missing:
            self.wires[NO_ROUTE] = Wire(1)
            first = " to ".join(missing[0])
            line = f"{len(missing)} pairs of machines have no route, as {first}: "
            self.notes.append(line + "no flow may go between them")

        hops = (hop for through in middles.values() for hop in through)
        links = [name for name in dict.fromkeys(hops) if name in self.wires]
        keys: Data = {
            "machines": [self._machine(name, nics.get(name)) for name in self.machines]
        }
        if links:
            keys["links"] = [self._link(name) for name in links]
        if routes := [*_group_routes(middles)]:
            keys["routes"] = routes
        return keys

    def _check_route(self, ends: tuple[str, str]) -> None:
        wires = self.routes[ends]
        if len({*wires}) < len(wires):
            twice = next(wire for wire in wires if wires.count(wire) > 1)
            problem = f"the route {ends[0]} to {ends[1]} runs in a loop: it takes "
            raise DataError(f"{problem}{twice} twice", path=self.origin)
        for name in wires:
            if not 0 < self.wires[name].rate < float("inf"):
                raise DataError(f"link {name} has no bandwidth", path=self.origin)

    def _replace_unshared(self) -> None:
        """Give what every flow has for itself a form that a shared link has, too.

        Where a shared wire of the route is narrower, the wire limits nothing, and all
        that the shared ones let through fits into their sum. Where it is the narrowest,
        each pair of machines gets one of its own.
        """
        total = sum(wire.rate for wire in self.wires.values() if wire.is_shared)
        for ends, wires in self.routes.items():
            shared = [self.wires[name].rate for name in wires if self._is_shared(name)]
            route = []
            for name in wires:
                wire = self.wires[name]
                if wire.is_shared:
                    route.append(name)
                    continue
                is_narrowest = wire.rate < min(shared, default=float("inf"))
                own_name = f"{name} {ends[0]}-{ends[1]}" if is_narrowest else name
                if is_narrowest:
                    kind = "own rate of each flow of two machines: they share it"
                    self.left_out[kind] += 1
                rate = wire.rate if is_narrowest else max(total, wire.rate)
                self.wires[f"{own_name} unshared"] = Wire(rate, wire.latency)
                route.append(f"{own_name} unshared")
            self.routes[ends] = route

    def _is_shared(self, name: str) -> bool:
        return self.wires[name].is_shared

    def _find_nics(self) -> dict[str, _Nic]:
        """Return the NIC of every machine that has one wire of its own each way."""
        firsts = defaultdict[str, set[str]](set)
        lasts = defaultdict[str, set[str]](set)
        uses = Counter[str]()
        sent = Counter[str]()
        received = Counter[str]()
        for (source, destination), wires in self.routes.items():
            firsts[source].add(wires[0])
            lasts[destination].add(wires[-1])
            uses.update(wires)
            sent[source] += 1
            received[destination] += 1

        nics = {}
        for name in self.machines:
            if len(firsts[name]) != 1 or len(lasts[name]) != 1:
                continue
            (outward,) = firsts[name]
            (inward,) = lasts[name]
            is_outward_own = uses[outward] == sent[name]
            is_inward_own = uses[inward] == received[name]
            if outward != inward and is_outward_own and is_inward_own:
                nics[name] = _Nic(outward, inward)
        return nics

    def _shorten(self, ends: tuple[str, str], nics: dict[str, _Nic]) -> tuple[str, ...]:
        """Return the names of a route as ``cluster.routes`` has them: out, ..., in."""
        source, destination = ends
        hops = [*self.routes[ends]]
        if source in nics and hops[0] == nics[source].outward:
            hops[0] = "out"
        if destination in nics and hops[-1] == nics[destination].inward:
            hops[-1] = "in"
        return tuple(hops)

    def _machine(self, name: str, nic: _Nic | None) -> Data:
        if nic is None:
            return {"name": name, "nic": "none"}
        outward = self.wires[nic.outward]
        inward = self.wires[nic.inward]
        rates: Data = {
            "in": RATE.exact(inward.rate),
            "out": RATE.exact(outward.rate),
        }
        if inward.latency or outward.latency:
            rates["latency"] = {
                "in": DURATION.exact(inward.latency),
                "out": DURATION.exact(outward.latency),
            }
        return {"name": name, "nic": rates}

    def _link(self, name: str) -> Data:
        wire = self.wires[name]
        return {
            "name": name,
            "bandwidth": RATE.exact(wire.rate),
            "latency": DURATION.exact(wire.latency),
        }


def _group_routes(middles: dict[tuple[str, str], tuple[str, ...]]) -> Iterator[Data]:
    """Yield routes of many machines each; what two NICs alone are is no route."""
    ends = defaultdict[tuple[str, ...], dict[str, set[str]]](dict)
    for (source, destination), through in middles.items():
        if through != ("out", "in"):
            # A machine stands among its own ends: a pair of itself is no pair.
            ends[through].setdefault(source, {source}).add(destination)
    for through, destinations in ends.items():
        sources = defaultdict[frozenset[str], list[str]](list)
        for source, names in destinations.items():
            sources[frozenset(names)].append(source)
        for members, senders in sources.items():
            receivers = sorted(members)
            if len(senders) == 1:
                receivers.remove(senders[0])
            yield {"from": senders, "to": receivers, "through": [*through]}
