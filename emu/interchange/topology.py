"""Machines, links and routes of a topology of others."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from emu.interchange.accounted import Account
from emu.interchange.shortest_ways import Way, shortest_ways

#: Machines that are read: of 400 there are 159,600 routes, which take 2.7 s of CPU.
MOST_MACHINES = 400
#: What is left out where several ways of as many wires join two machines.
TIE = "way between machines, as short as the one taken"


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
    """Answers of ``cluster.topology`` to what some files of topologies leave open."""

    boxes: int = 1
    """Equal boxes that a file of one box stands for."""
    nic: float = 0.0
    """Bytes per second of a NIC, each way; 0 where nobody said."""
    uplink: float = 0.0
    """Bytes per second between a switch and the one above it; 0 where nobody said."""


@dataclass
class Topology(Account):
    """Machines and what joins them, as a file says it."""

    machines: list[str] = field(default_factory=list)
    wires: dict[str, Wire] = field(default_factory=dict)
    routes: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Ends, machines among them, -> wires in their order."""

    def connect(self, end: str, other_end: str, wire: Wire) -> None:
        """Join two ends by a wire of each direction.

        A second edge between two ends replaces the first, and is counted.
        """
        if (end, other_end) in self.routes:
            self.leave_out("second edge between two components, the last is taken")
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
        machines = {*self.machines}
        joined_routes = {}
        for start in self.machines:
            # An NPU passes on nothing of others.
            routes = shortest_ways(start, costs, last=machines)
            for end in self.machines:
                if end != start:
                    found = routes.get(end)
                    joined_routes[start, end] = self._wires_of(found, start, end)

        # At the end, since `_wires_of` reads the edges from it.
        self.routes = joined_routes

    def _wires_of(
        self,
        found: Way | None,
        start: str,
        end: str,
    ) -> list[str]:
        """Return the wires along a way; DataError where there is none."""
        if found is None:
            raise self.error(f"{start} and {end} are not joined")
        if found.is_tie:
            self.leave_out(TIE)

        wires = []
        for leg in pairwise(found.places):
            wires += self.routes[leg]
        return wires

    def check_size(self, machines: int) -> None:
        """Raise DataError where there are more machines, or fewer, than are read."""
        if not 1 <= machines <= MOST_MACHINES:
            raise self.error(
                f"has {machines:,} machines, 1 to {MOST_MACHINES} are read"
            )
