"""Platforms of SimGrid (simgrid.dtd 4 and 4.1): zones of hosts, links and routes.

Hosts' speeds are left out: times of tasks are stated. What SimGrid's models add to a
platform is not in the file: emu's rates are those of ``network/model:CM02`` without
TCP's window, factors and cross-traffic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

from emu.errors import DataError
from emu.host.input_file import read_packed_text
from emu.interchange.accounted import NotRead, Reading, read_xml, reading_errors
from emu.interchange.simgrid_clusters import build_grid, count_hosts
from emu.interchange.simgrid_zones import (
    Ends,
    Leg,
    StarZone,
    TableZone,
    Zone,
    Zones,
)
from emu.interchange.topology import TIE, Topology, Wire

_ZONES = ("zone", "AS")
_ZONE_ROUTES = ("zoneRoute", "ASroute")
_ZONE_BYPASSES = ("bypassZoneRoute", "bypassASroute")
#: Routing of a zone -> whether its routes join to the shortest way.
_TABLES = {
    "full": False,
    "none": False,
    "floyd": True,
    "dijkstra": True,
    "dijkstracache": True,
}
_DUPLEX = ("SPLITDUPLEX", "FULLDUPLEX")  # the second is the first's older name
#: The other direction of a link that has two.
_OPPOSITES = {"UP": "DOWN", "DOWN": "UP"}
#: Prefixes of rates: only those with an i are powers of two.
_PREFIXES = {
    "": 1.0,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
}
#: Seconds of SimGrid's units; without one a number is in seconds.
_SECONDS = {
    "": 1.0,
    "w": 604800.0,
    "d": 86400.0,
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    "ps": 1e-12,
}
#: Files that change a platform while it is used.
_PROFILES = ("bandwidth_file", "latency_file", "state_file")


def read_platform(path: Path) -> Topology:
    """Return the topology of a platform.

    Raises DataError when it is damaged, of another version, has more machines than are
    read, or something that would change times and has no form here.
    """
    with reading_errors(path):
        root = read_xml(read_packed_text(path))
        version = root.text("version", "0")
        if not version.startswith("4"):
            raise DataError(f"is of version {version}, 4 is read", path=path)

        topology = Topology(str(path))
        # Before any is made.
        count = _count_machines(root)
        topology.check_size(count)
        platform = _Platform(topology)
        platform.read(root)
        platform.resolve()
        topology.left_out.update(root.left_out())
        return topology


class _Platform:
    """The zones, hosts and links so far."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._zones = Zones()
        self._tables: list[TableZone] = []
        #: The zones as they stand in the file: their routes are read last.
        self._read: list[tuple[Zone, Reading]] = []

    def read(self, root: Reading) -> None:
        """Add all that the file has."""
        for config in root.elements("config"):
            config.ignore("id")
            for prop in config.elements("prop"):
                prop.ignore("value")
                name = prop.text("id", "")
                self._topology.leave_out(f"config {name}")

        # Without a zone around them, clusters stand in the platform itself.
        # The blank keeps the name apart from those in the file.
        outermost = TableZone(" platform", None)
        self._add_zone(outermost, root)
        # A route may name a link, or a gateway, of a zone that stands further below.
        for zone, reading in self._read:
            self._read_routes(zone, reading)

    def resolve(self) -> None:
        """Find the route between every two hosts; of some there may be none."""
        topology = self._topology
        for ends in permutations(topology.machines, 2):
            wires = self._zones.find_route(*ends)
            if wires:
                topology.routes[ends] = wires
        ties = sum(table.ties for table in self._tables)
        if ties:
            topology.leave_out(TIE, ties)

    def _add_zone(self, zone: Zone, reading: Reading) -> None:
        """Add a zone, and all in it but its routes."""
        _refuse(reading, "trace", "trace_connect", "peer", "include")
        self._zones.add(zone)
        self._read.append((zone, reading))
        if isinstance(zone, TableZone):
            self._tables.append(zone)

        for router in reading.elements("router"):
            name = router.text("id")
            self._zones.place(name, zone)
        for link in reading.elements("link"):
            self._add_link(link)
        for host in reading.elements("host"):
            _refuse_profiles(host)
            host_name = host.text("id")
            self._add_host(host_name, zone)

        for inner in reading.elements(*_ZONES, "cluster"):
            if inner.kind == "cluster":
                self._add_cluster(inner, zone)
            else:
                inner_zone = _make_zone(inner, zone)
                self._add_zone(inner_zone, inner)
        if isinstance(zone, StarZone):
            # At the end: a host_link may name links and hosts that stand behind it.
            self._fill_star(zone, reading)

    def _add_host(self, name: str, zone: Zone) -> None:
        self._zones.place(name, zone)
        self._topology.machines.append(name)

    def _add_link(self, link: Reading) -> None:
        _refuse_profiles(link)
        name = link.text("id")
        policy = link.text("sharing_policy", "SHARED")
        if policy == "WIFI":
            problem = f"link {name} is WIFI, whose stations share it by their rates"
            raise NotRead(problem)
        wire = Wire(
            rate=_rate(link.text("bandwidth")),
            latency=_seconds(link.text("latency", "0")),
            is_shared=policy != "FATPIPE",
        )
        self._add_wires(name, wire, policy)

    def _add_wires(
        self,
        name: str,
        wire: Wire,
        policy: str,
    ) -> tuple[str, str]:
        """Add a link; return the wires of its direction up, and down."""
        if policy not in ("SHARED", "FATPIPE", *_DUPLEX):
            raise ValueError(f"sharing_policy of {name} is {policy!r}")
        names = (name, name)
        if policy in _DUPLEX:
            names = (f"{name}_UP", f"{name}_DOWN")
        # Both directions of a shared link are one wire.
        for wire_name in dict.fromkeys(names):
            if wire_name in self._topology.wires:
                raise ValueError(f"two links are called {wire_name!r}")
            self._topology.wires[wire_name] = wire
        return names

    def _add_cluster(self, cluster: Reading, parent: Zone) -> None:
        """Add a cluster of equal hosts, of any form."""
        # SimGrid's default of a cluster, where that of a link is SHARED.
        policy = cluster.text("sharing_policy", "SPLITDUPLEX")
        wire = Wire(
            rate=_rate(cluster.text("bw")),
            latency=_seconds(cluster.text("lat")),
            is_shared=policy != "FATPIPE",
        )
        stated_limit = cluster.text("limiter_link", "0")
        limit = _rate(stated_limit)
        form = cluster.text("topology", "FLAT")
        if form == "FLAT":
            zone = StarZone(cluster.text("id"), parent)
            self._add_flat_cluster(
                zone,
                cluster=cluster,
                wire=wire,
                policy=policy,
                limit=limit,
            )
            return

        parameters = cluster.text("topo_parameters", "")
        grid = build_grid(form, parameters)
        grid.name = cluster.text("id")
        grid.parent = parent
        grid.wires = self._topology.wires
        grid.wire = wire
        grid.is_duplex = policy in _DUPLEX
        grid.limiter = limit
        self._zones.add(grid)
        for number, host in enumerate(_host_names(cluster)):
            grid.numbers[host] = number
            self._add_host(host, grid)
        count = count_hosts(grid)
        stated_count = len(grid.numbers)
        if count != stated_count:
            raise ValueError(
                f"cluster {grid.name} has {stated_count} hosts, its "
                f"topo_parameters are of {count}"
            )

    def _add_flat_cluster(
        self,
        zone: StarZone,
        cluster: Reading,
        wire: Wire,
        policy: str,
        limit: float,
    ) -> None:
        """Add hosts that are joined in the middle, over a backbone if there is one."""
        self._zones.add(zone)
        backbone = self._add_backbone(cluster)
        for host in _host_names(cluster):
            self._add_host(host, zone)
            names = self._add_wires(f"{host} link", wire, policy)
            zone.attach(host, *names, backbone)
            if limit:
                limiter = f"{host} limiter"
                self._topology.wires[limiter] = Wire(limit)
                # The limiter is next to the host in either direction.
                ups = zone.ups[host]
                ups.insert(0, limiter)
                downs = zone.downs[host]
                downs.append(limiter)

        router = cluster.text("router_id", "")
        if not router:
            prefix = cluster.text("prefix", "")
            suffix = cluster.text("suffix", "")
            # SimGrid's own name of it: routes of the zone around take it as a gateway.
            router = f"{prefix}{zone.name}_router{suffix}"
        self._zones.place(router, zone)

    def _add_backbone(self, cluster: Reading) -> list[str]:
        """Return the wire of a cluster's backbone, none where it has none."""
        stated_rate = cluster.text("bb_bw", "") or "0"
        rate = _rate(stated_rate)
        stated_latency = cluster.text("bb_lat", "") or "0"
        latency = _seconds(stated_latency)
        policy = cluster.text("bb_sharing_policy", "SHARED")
        if not rate and not latency:
            return []
        if policy not in ("SHARED", "FATPIPE"):
            raise ValueError(f"bb_sharing_policy is {policy!r}")

        cluster_name = cluster.text("id")
        name = f"{cluster_name} backbone"
        self._topology.wires[name] = Wire(
            rate=rate,
            latency=latency,
            is_shared=policy != "FATPIPE",
        )
        return [name]

    def _fill_star(self, zone: StarZone, reading: Reading) -> None:
        """Add the links of the hosts of a zone of routing Cluster, and its cabinets."""
        backbone = []
        for element in reading.elements("backbone"):
            self._add_link(element)
            backbone.append(element.text("id"))

        for link in reading.elements("host_link"):
            host = link.text("id")
            self._zones.check_place(host, zone)
            if host in zone.ups:
                raise ValueError(f"{host} has two of host_link")
            up_wire = self._known_wire(link.text("up"))
            down_wire = self._known_wire(link.text("down"))
            zone.attach(
                host,
                up_wire=up_wire,
                down_wire=down_wire,
                backbone=backbone,
            )

        for cabinet in reading.elements("cabinet"):
            cabinet.ignore("id")
            rate = _rate(cabinet.text("bw"))
            latency = _seconds(cabinet.text("lat"))
            wire = Wire(rate, latency)
            for host in _host_names(cabinet):
                self._add_host(host, zone)
                names = self._add_wires(f"{host} link", wire, "SPLITDUPLEX")
                zone.attach(host, *names, backbone)

    def _known_wire(self, name: str) -> str:
        if name not in self._topology.wires:
            raise ValueError(f"a route names link {name!r}, which is not there")
        return name

    def _read_routes(self, zone: Zone, reading: Reading) -> None:
        """Add the routes that a zone states."""
        for route in reading.elements("route", *_ZONE_ROUTES):
            ends = _ends(route)
            leg = self._leg(route, zone, ends)
            is_symmetrical = _is_symmetrical(route)
            source, destination = ends
            # What stays on a machine crosses no link here.
            if source == destination:
                self._topology.leave_out("route of a host to itself")
                continue
            zone.add_leg(ends, leg)
            if is_symmetrical:
                back = self._turn(leg)
                ends_back = (destination, source)
                zone.add_leg(ends_back, back)

        for route in reading.elements("bypassRoute", *_ZONE_BYPASSES):
            ends = _ends(route)
            if ends in zone.bypasses:
                source, destination = ends
                raise ValueError(f"two bypasses lead from {source} to {destination}")
            zone.bypasses[ends] = self._leg(route, zone, ends)

    def _leg(self, route: Reading, zone: Zone, ends: Ends) -> Leg:
        """Return a stated route; raises ValueError when it names what is not there."""
        for end in ends:
            self._zones.check_place(end, zone)
        wires = [self._read_hop(link) for link in route.elements("link_ctn")]
        if route.kind in ("route", "bypassRoute"):
            return Leg(wires)

        source, destination = ends
        source_gateway = route.text("gw_src")
        destination_gateway = route.text("gw_dst")
        self._zones.check_gateway(source_gateway, source)
        self._zones.check_gateway(destination_gateway, destination)
        return Leg(wires, source_gateway, destination_gateway)

    def _read_hop(self, link: Reading) -> str:
        """Return the wire of a link of a route, in the direction that is stated."""
        name = link.text("id")
        direction = link.text("direction", "NONE")
        # A word with a mistake in it passed unnoticed before.
        if direction not in ("NONE", "UP", "DOWN"):
            raise ValueError(f"direction is {direction!r}, write UP or DOWN")
        # A link of one direction may be named with that direction: l2_UP.
        wires = self._topology.wires
        if name in wires or f"{name}_UP" not in wires:
            return self._known_wire(name)

        if direction == "NONE":
            self._topology.leave_out("direction of a SPLITDUPLEX link, not stated: UP")
            direction = "UP"
        return f"{name}_{direction}"

    def _turn(self, leg: Leg) -> Leg:
        """Return the way back."""
        wires = [self._opposite(wire) for wire in reversed(leg.wires)]
        return Leg(
            wires,
            source_gateway=leg.destination_gateway,
            destination_gateway=leg.source_gateway,
        )

    def _opposite(self, wire: str) -> str:
        """Return the wire of the other direction; of a shared link, the same."""
        stem, _, direction = wire.rpartition("_")
        back = _OPPOSITES.get(direction, "")
        name = f"{stem}_{back}"
        if name in self._topology.wires:
            return name
        return wire


def _ends(route: Reading) -> Ends:
    return route.text("src"), route.text("dst")


def _make_zone(reading: Reading, parent: Zone) -> Zone:
    name = reading.text("id")
    routing = reading.text("routing")
    plain_routing = routing.lower()
    if plain_routing in ("cluster", "star"):
        return StarZone(name, parent)
    if plain_routing not in _TABLES:
        raise NotRead(
            f"has a zone {name} of routing {routing}, read are "
            "Full, Floyd, Dijkstra, Cluster and None"
        )
    return TableZone(name, parent, joins_legs=_TABLES[plain_routing])


def _is_symmetrical(route: Reading) -> bool:
    """Return True where the way back is the same; ValueError for another word."""
    stated = route.text("symmetrical", "YES")
    word = stated.upper()
    # Any other word passed for one of these, and a way back came or went unnoticed.
    if word not in ("YES", "NO"):
        raise ValueError(f"symmetrical is {word!r}, write YES or NO")
    return word == "YES"


def _count_machines(reading: Reading) -> int:
    """Return the number of hosts, none of which is made for that."""
    count = len(reading.elements("host", "peer"))
    for cluster in reading.elements("cluster", "cabinet"):
        for first, last in _ranges(cluster):
            count += last - first + 1
    for zone in reading.elements(*_ZONES):
        count += _count_machines(zone)
    return count


def _host_names(cluster: Reading) -> Iterator[str]:
    prefix = cluster.text("prefix", "")
    suffix = cluster.text("suffix", "")
    for first, last in _ranges(cluster):
        for number in range(first, last + 1):
            yield f"{prefix}{number}{suffix}"


def _ranges(cluster: Reading) -> Iterator[tuple[int, int]]:
    """Yield the first and last number of every part of ``radical``."""
    radical = cluster.text("radical")
    for part in radical.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if match is None:
            raise ValueError(f"radical is {radical!r}, write 0-7 or 0-3,9")
        first = int(match[1])
        last = int(match[2] or match[1])
        if last < first:
            raise ValueError(f"radical is {radical!r}, write the lower number first")
        yield first, last


def _refuse(reading: Reading, *tags: str) -> None:
    """Raise ValueError where a zone has what changes times and has no form here."""
    for element in reading.elements(*tags):
        names = element.keys()
        attributes = [f"{name}={element.get(name)!r}" for name in names]
        text = " ".join(attributes)
        raise NotRead(f"has <{element.kind} {text}>, which is not read")


def _refuse_profiles(element: Reading) -> None:
    """Raise ValueError where a host or link changes by a file."""
    for key in _PROFILES:
        if element.text(key, ""):
            name = element.text("id")
            raise NotRead(
                f"has {key} of {element.kind} {name}, which changes "
                "it: remove it and write events in the scenario"
            )


def _rate(text: str) -> float:
    """Return bytes per second of 125MBps, 1Gbps, 1.25e8."""
    number = r"\d*\.?\d+(?:[eE][-+]?\d+)?|\d+\."
    match = re.fullmatch(rf"\s*({number})\s*(?:([kKMGTPi]*)([bB])ps)?\s*", text)
    prefix = ""
    if match:
        prefix = match[2] or ""
    if match is None or prefix not in _PREFIXES:
        raise ValueError(f"found {text!r} for a bandwidth, write 125MBps or 1Gbps")
    rate = float(match[1]) * _PREFIXES[prefix]
    counts_bits = match[3] == "b"
    if counts_bits:
        return rate / 8
    return rate


def _seconds(text: str) -> float:
    """Return seconds of 50us, 0.1; ``m`` are minutes."""
    match = re.fullmatch(r"\s*([\d.]+(?:[eE][-+]?\d+)?)\s*([a-z]*)\s*", text)
    if match is None or match[2] not in _SECONDS:
        raise ValueError(f"found {text!r} for a latency, write 50us or 1ms")
    number, unit = match.groups()
    return float(number) * _SECONDS[unit]
