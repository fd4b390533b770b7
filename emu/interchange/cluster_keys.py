"""The keys of ``cluster`` that a topology of others becomes.

What one machine alone sends and receives over is its NIC. What every flow has for
itself gets a form that shared links have, too. Routes of the same links are one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations
from typing import NamedTuple, TypeAlias

from emu.interchange.topology import Topology, Wire
from emu.interchange.workload import Data
from emu.names import check_name
from emu.problem.fields.quantities import MOST_LETTERS
from emu.problem.links import NO_ROUTE
from emu.units import DURATION, RATE

#: Two machines, from the first to the second.
Ends: TypeAlias = tuple[str, str]
#: Names of links of a route, as ``cluster.routes`` has them: out, ..., in.
Through: TypeAlias = tuple[str, ...]
#: Routes by their ends.
Routes: TypeAlias = Mapping[Ends, list[str]]

_INFINITE = float("inf")
_UNSHARED = "rate of a flow for itself, which those of the same two machines share"


class _Nic(NamedTuple):
    """The wires that nothing but one machine sends, and receives, over."""

    outward: str
    inward: str


def cluster_keys(topology: Topology) -> Data:
    """Return machines, links and routes as a scenario has them.

    Between machines without a route no flow may go; placements are held to that.

    Raises DataError when a route runs in a loop, all are missing, there are too many
    machines, or a wire has no rate.
    """
    topology.check_size(len(topology.machines))
    pairs = [*permutations(topology.machines, 2)]
    routes = {}
    for ends in pairs:
        if ends in topology.routes:
            routes[ends] = topology.routes[ends]
    _check_routes(topology, routes)
    if pairs and not routes:
        names = " to ".join(pairs[0])
        raise topology.error(f"has no route {names}, nor any other")

    shared_routes = _replace_unshared(topology, routes)
    # With NICs 400 hosts of a cluster take 2.7 s of CPU; a route per pair took 20 s.
    nics = _find_nics(shared_routes)
    throughs = {}
    for ends, wires in shared_routes.items():
        throughs[ends] = _shorten(ends, wires, nics)
    missing = [ends for ends in pairs if ends not in routes]
    if missing:
        _note_missing(topology, missing)
        # `Placement` refuses flows over it; that the machines are there is no error.
        no_way = (NO_ROUTE,)
        throughs |= dict.fromkeys(missing, no_way)

    keys: Data = {"machines": []}
    for name in topology.machines:
        nic = nics.get(name)
        machine = _machine(name, nic, topology)
        keys["machines"].append(machine)
    link_names = _link_names(throughs, topology)
    _check_names(topology, [*topology.machines, *link_names])
    links = [_link(name, topology) for name in link_names]
    if links:
        keys["links"] = links
    group_routes = [*_group_routes(throughs)]
    if group_routes:
        keys["routes"] = group_routes
    return keys


def _check_routes(topology: Topology, routes: Routes) -> None:
    """Raise DataError where a route takes a wire twice, or one that cannot be."""
    for ends, wires in routes.items():
        counts = Counter(wires)
        for name, count in counts.items():
            # `Links` refuses that as well, but knows no names of the file.
            if count > 1:
                source, destination = ends
                raise topology.error(
                    f"the route {source} to {destination} runs in a loop: it takes "
                    f"{name} twice"
                )

            wire = topology.wires[name]
            if not 0 < wire.rate < _INFINITE:
                raise topology.error(f"link {name} has no bandwidth")
            if not 0 <= wire.latency < DURATION.limit:
                raise topology.error(f"link {name} has a latency of {wire.latency} s")


def _check_names(topology: Topology, names: Iterable[str]) -> None:
    """Raise DataError where a scenario has no such names."""
    for name in names:
        # The scenario refuses them as well, in each of its routes.
        if len(name) > MOST_LETTERS:
            raise topology.error(
                f"has a name of {len(name)} characters, at most {MOST_LETTERS} are "
                f"read: {name:.40}"
            )
        try:
            check_name(name)
        except ValueError as error:
            raise topology.error(f"has a name that is refused: {error}") from error


def _replace_unshared(topology: Topology, routes: Routes) -> dict[Ends, list[str]]:
    """Return routes of shared wires alone; others that stand for the rest are added.

    Where a shared wire of the route is narrower, an unshared one limits nothing, and
    all that the shared ones let through fits into their sum. Where it is the narrowest,
    each pair of machines gets one of its own.
    """
    all_wires = topology.wires.values()
    shared_rates = [wire.rate for wire in all_wires if wire.is_shared]
    enough = sum(shared_rates)
    new_routes = {}
    for ends, wires in routes.items():
        route_wires = [topology.wires[name] for name in wires]
        rates = [wire.rate for wire in route_wires if wire.is_shared]
        narrowest = min(rates, default=_INFINITE)
        route = []
        for name, wire in zip(wires, route_wires, strict=True):
            if wire.is_shared:
                route.append(name)
                continue

            # A pair of machines may still send two flows at once: they share it.
            if wire.rate < narrowest:
                topology.leave_out(_UNSHARED)
                source, destination = ends
                replacement = f"{name} {source}-{destination} unshared"
                rate = wire.rate
            else:
                replacement = f"{name} unshared"
                # Finite, as links have to be; what the shared ones let through fits.
                rate = max(enough, wire.rate)
            new_wire = Wire(rate, wire.latency)
            topology.wires[replacement] = new_wire
            route.append(replacement)
        new_routes[ends] = route
    return new_routes


def _find_nics(routes: Routes) -> dict[str, _Nic]:
    """Return the NIC of every machine that has one wire of its own each way."""
    firsts = defaultdict[str, set[str]](set)
    lasts = defaultdict[str, set[str]](set)
    departures = Counter[str]()
    arrivals = Counter[str]()
    uses = Counter[str]()
    for (source, destination), wires in routes.items():
        firsts[source].add(wires[0])
        lasts[destination].add(wires[-1])
        departures[source] += 1
        arrivals[destination] += 1
        uses.update(wires)

    nics = {}
    names = firsts.keys() & lasts.keys()
    for name in names:
        # One wire each way, or what leaves a machine is not one capacity.
        first_wires = firsts[name]
        last_wires = lasts[name]
        ends = [*first_wires, *last_wires]
        if len(ends) > 2:
            continue
        outward, inward = ends
        is_outward_own = uses[outward] == departures[name]
        is_inward_own = uses[inward] == arrivals[name]
        owns_both = is_outward_own and is_inward_own
        # A wire of both directions, or that another machine crosses, is no NIC.
        if owns_both and outward != inward:
            nics[name] = _Nic(outward, inward)
    return nics


def _shorten(
    ends: Ends,
    wires: list[str],
    nics: Mapping[str, _Nic],
) -> Through:
    """Return the names of a route as ``cluster.routes`` has them: out, ..., in."""
    source, destination = ends
    hops = [*wires]
    source_nic = nics.get(source)
    destination_nic = nics.get(destination)
    if source_nic and hops[0] == source_nic.outward:
        hops[0] = "out"
    if destination_nic and hops[-1] == destination_nic.inward:
        hops[-1] = "in"
    return tuple(hops)


def _note_missing(topology: Topology, missing: list[Ends]) -> None:
    """Add the link that no flow may cross, and say between how many it stands."""
    # A link needs some rate; no flow ever asks for this one.
    topology.wires[NO_ROUTE] = Wire(rate=1)
    names = " to ".join(missing[0])
    topology.notes.append(
        f"{len(missing)} pairs of machines have no route, as {names}: no flow may go "
        "between them"
    )


def _machine(name: str, nic: _Nic | None, topology: Topology) -> Data:
    if nic is None:
        return {"name": name, "nic": "none"}

    outward = topology.wires[nic.outward]
    inward = topology.wires[nic.inward]
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


def _link_names(throughs: Mapping[Ends, Through], topology: Topology) -> list[str]:
    """Return the wires that some route crosses and that are no NIC."""
    names = dict[str, None]()
    for through in throughs.values():
        names |= dict.fromkeys(through)
    return [name for name in names if name in topology.wires]


def _link(name: str, topology: Topology) -> Data:
    wire = topology.wires[name]
    return {
        "name": name,
        "bandwidth": RATE.exact(wire.rate),
        "latency": DURATION.exact(wire.latency),
    }


def _group_routes(throughs: Mapping[Ends, Through]) -> Iterator[Data]:
    """Yield routes of many machines each; what two NICs alone are is no route."""
    ends = defaultdict[Through, dict[str, set[str]]](dict)
    for (source, destination), through in throughs.items():
        if through != ("out", "in"):
            # A machine stands among its own ends: a pair of itself is no pair.
            receivers_from = ends[through]
            receivers = receivers_from.setdefault(source, {source})
            receivers.add(destination)

    for through, receivers_of in ends.items():
        senders_to = defaultdict[frozenset[str], list[str]](list)
        for source, receivers in receivers_of.items():
            members = frozenset(receivers)
            senders_to[members].append(source)

        for members, senders in senders_to.items():
            # A frozenset is walked in another order each time Python starts.
            destinations = sorted(members)
            if len(senders) == 1:
                (sender,) = senders
                destinations.remove(sender)
            yield {
                "from": senders,
                "to": destinations,
                "through": [*through],
            }
