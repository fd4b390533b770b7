"""Section ``cluster``: the emulated machines, their NICs, links, routes and racks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Annotated, Any, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_serializer,
)

from emu.problem import Cluster, Link, Machine, Route
from emu.problem.fields.quantities import (
    MOST_FEW,
    Duration,
    Few,
    Name,
    Positive,
    Price,
    Rate,
)
from emu.problem.fields.section import Resources, Section, Trail
from emu.problem.fields.suggestion import nearest
from emu.units import RATE

#: Where a value is, and what is wrong with it.
Errors: TypeAlias = Iterator[tuple[Trail, str]]


def both_directions(found: Any) -> Any:
    """Take one quantity for both directions."""
    if isinstance(found, dict | Section):
        return found
    return {"in": found, "out": found}


class Latency(Section):
    """Seconds that a full duplex interface adds to the way of a flow."""

    inward: Duration = Field(default=0.0, alias="in")
    """To what it receives."""
    outward: Duration = Field(default=0.0, alias="out")
    """To what it sends."""


#: ``50 us`` for both directions, or ``{in: ..., out: ...}``.
EachWay = Annotated[Latency, BeforeValidator(both_directions)]
_NO_LATENCY = Latency()


class Nic(Section):
    """Capacity of a full duplex interface."""

    # Both are stated, as NICs may be faster in one direction (A27).
    inward: Rate = Field(alias="in")
    """Incoming rate."""
    outward: Rate = Field(alias="out")
    """Outgoing rate."""


class MachineNic(Nic):
    """The interface of a machine."""

    latency: EachWay = _NO_LATENCY
    """``50 us`` for each direction, or ``{in: ..., out: ...}``: the last byte of a flow
    arrives so much after it was sent; the next flow does not wait for that."""

    # Private, so that a file is written as it was read while all else sees one NIC.
    _stripes: tuple[MachineNic, ...] = PrivateAttr(default=())
    """NICs that the file lists, of which this is the sum."""

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> Any:
        if self is NO_NIC:
            return "none"
        if self._stripes:
            stripes = self._stripes
            return [nic.model_dump(mode="json") for nic in stripes]
        content = write(self)
        # Files without latencies read back as they were written.
        if self.latency == _NO_LATENCY:
            content.pop("latency", None)
        return content


#: What ``nic: none`` says; the other fields of a scenario are above zero.
NO_NIC = MachineNic.model_construct(inward=0.0, outward=0.0, latency=_NO_LATENCY)


def read_nic(found: Any, read: ValidatorFunctionWrapHandler) -> MachineNic:
    """Return a machine's interface: ``none``, one NIC, or the sum of several."""
    if found == "none":
        return NO_NIC
    if not isinstance(found, list):
        nic: MachineNic = read(both_directions(found))
        return nic
    if not found:
        raise ValueError("found no NIC, write none for a machine without one")

    # A list is one NIC: a flow that uses all has the sum of their rates.
    stripes: list[MachineNic] = [read(both_directions(stripe)) for stripe in found]
    first = stripes[0]
    # The last byte may come over any of them: with several latencies it has no one
    # time.
    if any(stripe.latency != first.latency for stripe in stripes):
        raise ValueError("bytes of a flow use all NICs: write one latency for each")
    rates = {
        "inward": sum(stripe.inward for stripe in stripes),
        "outward": sum(stripe.outward for stripe in stripes),
    }
    nic = first.model_copy(update=rates)
    nic._stripes = tuple(stripes)  # noqa: SLF001 - its own module
    return nic


_Machines = Annotated[
    tuple[Name, ...],
    Field(min_length=1),  # before the other, or the schema takes an empty list
    BeforeValidator(lambda found: [found] if isinstance(found, str) else found),
]


class LinkSection(Section):
    """A link that flows of several machines may share."""

    name: Name
    """Unique among links; routes name it."""
    bandwidth: Rate
    """Total of its flows in any direction."""
    latency: Duration = 0.0
    """Time that it adds to the way of a flow, beside bytes over bandwidth."""


class RouteSection(Section):
    """Links that flows between some machines cross; one route per ordered pair."""

    sources: _Machines = Field(alias="from")
    """Machines that send."""
    destinations: _Machines = Field(alias="to")
    """Machines that receive, each from each of those that send."""
    through: tuple[Name, ...] = Field(min_length=1)
    """Links in their order; ``out`` and ``in`` are the NICs of the two ends."""


class RackSection(Section):
    """Machines whose flows to all others cross an uplink."""

    name: Name
    """The links are called ``name up`` and ``name down``."""
    machines: tuple[Name, ...] = Field(min_length=1)
    """Machines of no other rack."""
    # Placements see it: with an uplink of 5 Gbit/s ETP found 21.9 s, without knowing of
    # it 35.0.
    uplink: Annotated[Nic, BeforeValidator(both_directions)]
    """``40 Gbit/s`` for both directions, or ``{in: ..., out: ...}``."""
    latency: EachWay = _NO_LATENCY
    """Time that the uplink adds to flows: ``5 us``, or ``{in: ..., out: ...}``."""


def rack_links(racks: Sequence[RackSection]) -> tuple[Link, ...]:
    """Return the two links of every rack."""
    links = []
    for rack in racks:
        uplink = Link(
            name=f"{rack.name} up",
            capacity=rack.uplink.outward,
            latency=rack.latency.outward,
        )
        downlink = Link(
            name=f"{rack.name} down",
            capacity=rack.uplink.inward,
            latency=rack.latency.inward,
        )
        links += [uplink, downlink]
    return tuple(links)


def rack_routes(
    racks: Sequence[RackSection],
    machines: Sequence[str],
) -> list[Route]:
    """Return the routes out of every rack, among all ``machines`` of the cluster."""
    position = {name: number for number, name in enumerate(machines)}
    members = []
    in_racks: set[int] = set()
    for rack in racks:
        positions = tuple(position[name] for name in rack.machines)
        members.append(positions)
        in_racks.update(positions)
    # Machines of no rack reach each other by their NICs alone.
    rest = tuple(set(range(len(machines))) - in_racks)

    routes = []
    ends = list(zip(racks, members, strict=True))
    for rack, sources in ends:
        uplink = f"{rack.name} up"
        for other_rack, destinations in ends:
            # Within a rack nothing is stated: the way from NIC to NIC holds.
            if rack is not other_rack:
                downlink = f"{other_rack.name} down"
                through = ("out", uplink, downlink, "in")
                route = Route(sources, destinations, through)
                routes.append(route)
    if rest:
        for rack, sources in ends:
            route = Route(sources, rest, ("out", f"{rack.name} up", "in"))
            routes.append(route)
        for rack, destinations in ends:
            route = Route(rest, destinations, ("out", f"{rack.name} down", "in"))
            routes.append(route)
    return routes


def network_errors(cluster: ClusterSection) -> Errors:
    """Yield (where, what is wrong and what would be right) of names."""
    machines = cluster.names
    names = [link.name for link in cluster.links]
    for position, name in enumerate(names):
        is_repeated = name in names[:position]
        if is_repeated or name in ("in", "out"):
            problem = f"a link cannot be called {name!r}, write another name"
            yield ("cluster", "links", position, "name"), problem

    hops: set[str] = set()
    for route in cluster.routes:
        hops.update(route.through)
    for position, link in enumerate(cluster.links):
        # A time that nothing waits for is hardly meant.
        if link.latency and link.name not in hops:
            problem = f"no route crosses {link.name!r}, so it delays nothing"
            yield ("cluster", "links", position, "latency"), problem

    # Names of racks are checked as such; here they are what routes may cross.
    rack_names = [link.name for link in rack_links(cluster.racks)]
    names += rack_names
    for name in machines:
        names += [f"{name} out", f"{name} in"]
    yield from _route_errors(cluster.routes, machines, names)
    yield from _rack_errors(cluster.racks, machines)


def _route_errors(
    routes: Sequence[RouteSection],
    machines: Sequence[str],
    links: Sequence[str],
) -> Errors:
    for position, route in enumerate(routes):
        trail: Trail = ("cluster", "routes", position)
        yield from _unknown(route.sources, machines, (*trail, "from"))
        yield from _unknown(route.destinations, machines, (*trail, "to"))
        counts = Counter(route.through)
        for name, count in counts.items():
            if name not in (*links, "in", "out"):
                problem = f"no link {name!r}, {nearest(name, links)}"
                yield (*trail, "through"), problem
            if count > 1:
                problem = f"the route crosses {name!r} {count} times, once is right"
                yield (*trail, "through"), problem


def _rack_errors(racks: Sequence[RackSection], machines: Sequence[str]) -> Errors:
    names = [rack.name for rack in racks]
    rack_of: dict[str, str] = {}
    for position, rack in enumerate(racks):
        trail: Trail = ("cluster", "racks", position)
        if rack.name in names[:position]:
            yield (*trail, "name"), f"a second rack called {rack.name!r}"
        yield from _unknown(rack.machines, machines, (*trail, "machines"))

        # A rack of all machines has an uplink that leads nowhere.
        has_latency = rack.latency != _NO_LATENCY
        if has_latency and set(machines).issubset(rack.machines):
            problem = "no machine is outside the rack, so it delays nothing"
            yield (*trail, "latency"), problem
        for name in rack.machines:
            if name in rack_of:
                problem = f"{name!r} stands in rack {rack_of[name]!r} already"
                yield (*trail, "machines"), problem
            rack_of[name] = rack.name


def _unknown(
    stated: Sequence[str],
    machines: Sequence[str],
    trail: Trail,
) -> Errors:
    for name in stated:
        if name not in machines:
            yield trail, f"no machine {name!r}, {nearest(name, machines)}"


def names_of(name: str | None, count: int, first: int) -> list[str]:
    """Return the names of equal machines, before which ``first`` others stand."""
    if name and count == 1:
        return [name]
    if name:
        return [f"{name}{number}" for number in range(count)]
    # Without a name the position counts all machines before, named ones too.
    last = first + count
    return [f"m{position}" for position in range(first, last)]


def count_slots(pieces: float) -> int:
    """Return how many slots the cores or devices of a machine are.

    Half a core runs a process as well. More than a pool may have bound nothing.
    """
    return min(max(int(pieces), 1), MOST_FEW)


class MachineSection(Resources):
    """One machine, or ``count`` equal ones.

    Any key besides the known ones is a further resource that tasks may demand.
    """

    name: Name | None = None
    """With a count the machines are called name0, name1, ...; default m0, m1, ..."""
    count: Few = 1
    """Number of equal machines."""
    nic: Annotated[MachineNic, WrapValidator(read_nic)]
    """``50 Gbit/s`` for both directions, ``{in: ..., out: ..., latency: 50 us}``, or
    ``none``; a list of NICs is striped: a flow uses all of them, as one of the sum."""

    speed: Positive = 1.0
    """Speed over this computer's: a task takes its measured CPU seconds over this.
    Stated times go by ``device``."""

    device: Name | None = None
    """Device of its tasks, a word that ``times`` may state times for:
    ``{default: 40 ms, a100: 12 ms}``."""

    price: Price | None = None
    """Price of the machine while the job runs; where one has one, all need one."""

    slots: dict[Name, Few] = Field(default_factory=dict)
    """Slots per pool that its tasks share; a pool that is absent is unlimited."""

    def build(self, name: str, unstated: dict[str, float]) -> Machine:
        """Return the machine called ``name``, with what it leaves ``unstated``."""
        return Machine(
            name=name,
            bandwidth_in=self.nic.inward,
            bandwidth_out=self.nic.outward,
            # What the machine states comes before what the cluster takes it to mean.
            resources=unstated | self.amounts(),
            speed=self.speed,
            slots=self.slots,
            latency_in=self.nic.latency.inward,
            latency_out=self.nic.latency.outward,
        )


class TopologySection(Section):
    """A file of a topology, with answers to what it leaves open."""

    file: Name
    """As ``topology`` alone has it."""
    boxes: Few = 1
    """Equal boxes that the file of one box stands for; their NICs join them."""
    nic: Rate | None = None
    """Rate of a NIC, each way, where the file has none (``nvidia-smi``, Slurm)."""
    uplink: Rate | None = None
    """Rate from a switch to the one above it, each way, where it has none (Slurm)."""


class ClusterSection(Section):
    """The emulated cluster."""

    machines: tuple[MachineSection, ...] = Field(min_length=1)
    """In the order that results are printed in."""
    links: tuple[LinkSection, ...] = ()
    """Links beside the NICs, for routes."""
    routes: tuple[RouteSection, ...] = ()
    """Between machines that are not simply joined by their NICs."""
    racks: tuple[RackSection, ...] = ()
    """Shorthand for two links and the routes of the machines of a rack."""
    topology: Name | TopologySection | None = None
    """Shorthand for machines, links and routes: ``dgx1``, ``two_dgx1``, ``pcie_8``, a
    file of these keys, or one of [others](formats.md): ``nvidia-smi topo -m``, SimGrid,
    InfraGraph, ASTRA-sim, Slurm."""

    def names_and_positions(self) -> list[tuple[str, int]]:
        """Return (name, position in ``machines``) of every machine of the cluster."""
        rows: list[tuple[str, int]] = []
        for position, machine in enumerate(self.machines):
            taken = len(rows)
            names = names_of(machine.name, machine.count, first=taken)
            rows += [(name, position) for name in names]
        return rows

    @property
    def names(self) -> list[str]:
        """Names of all machines, in their order."""
        rows = self.names_and_positions()
        return [name for name, _ in rows]

    @property
    def by_name(self) -> dict[str, MachineSection]:
        """Section of every machine, by its name."""
        sections = self.machines
        rows = self.names_and_positions()
        return {name: sections[place] for name, place in rows}

    @property
    def has_gpus(self) -> bool:
        """True where a machine has a ``gpu``; those that state none then have none."""
        return any(machine.gpu for machine in self.machines)

    def remarks(self) -> Iterator[str]:
        """Yield a line on machines with several NICs."""
        for machine in self.machines:
            stripes = machine.nic._stripes  # noqa: SLF001 - its own module
            if len(stripes) < 2:
                continue

            inward = RATE.format(machine.nic.inward)
            outward = RATE.format(machine.nic.outward)
            rate = f"{inward} in, {outward} out"
            if inward == outward:
                rate = inward
            name = machine.name or "a machine"
            yield (
                f"{len(stripes)} NICs of {name} are striped, as one of {rate}: where "
                "each has flows of its own, write links, and routes through them"
            )

    @property
    def _defaults(self) -> dict[str, float]:
        # Who states gpus of one machine means that the others have none.
        if self.has_gpus:
            return {"gpu": 0.0}
        return {}

    def roomy(self, needed: Mapping[str, float]) -> tuple[str, ...]:
        """Return the machines that offer as much, each empty, in their order.

        One that states no gpu has none where others do; else what is not stated is not
        limited.
        """
        names = []
        defaults = self._defaults
        for name, machine in self.by_name.items():
            offers = defaults | machine.amounts()
            has_all = all(
                offers.get(key, inf) >= amount for key, amount in needed.items()
            )
            if has_all:
                names.append(name)
        return tuple(names)

    def build(self) -> Cluster:
        """Return the cluster; raise ValueError as `Cluster` and `Links`."""
        names = self.names
        machines = []
        defaults = self._defaults
        for name, place in self.names_and_positions():
            section = self.machines[place]
            machines.append(section.build(name, defaults))

        links = []
        for stated_link in self.links:
            link = Link(
                name=stated_link.name,
                capacity=stated_link.bandwidth,
                latency=stated_link.latency,
            )
            links.append(link)

        position = {name: number for number, name in enumerate(names)}
        routes = []
        for stated in self.routes:
            route = Route(
                sources=tuple(position[name] for name in stated.sources),
                destinations=tuple(position[name] for name in stated.destinations),
                through=stated.through,
            )
            routes.append(route)

        return Cluster(
            machines=tuple(machines),
            # What is stated comes first: errors tell it from racks by its position.
            shared_links=(*links, *rack_links(self.racks)),
            routes=(*routes, *rack_routes(self.racks, names)),
        )
