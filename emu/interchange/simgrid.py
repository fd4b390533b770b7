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
from emu.host.input_file import read_text
from emu.interchange.accounted import NotRead, Reading, read_xml, reading_errors
from emu.interchange.simgrid_clusters import build_grid, count_hosts
from emu.interchange.simgrid_zones import Leg, StarZone, TableZone, Zone, Zones
from emu.interchange.topology import Topology, Wire

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
_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_PREFIXES |= {f"{prefix}i": 1024.0 ** (n + 1) for n, prefix in enumerate("KMGTP")}
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
        root = read_xml(read_text(path))
        version = root.text("version", "0")
        if not version.startswith("4"):
            raise DataError(f"is of version {version}, 4 is read", path=path)
        topology = Topology(str(path))
        topology.check_size(_count_machines(root))  # before any is made
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
                self._topology.left_out[f"config {prop.text('id', '')}"] += 1
        whole = TableZone(" platform", None)
        self._add_zone(whole, root)
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
            topology.left_out["way between machines, as short as the one taken"] += ties

    def _add_zone(self, zone: Zone, reading: Reading) -> None:
        """Add a zone, and all in it but its routes."""
        _refuse(reading, "trace", "trace_connect", "peer", "include")
        self._zones.add(zone)
        self._read.append((zone, reading))
        if isinstance(zone, TableZone):
            self._tables.append(zone)
        for router in reading.elements("router"):
            self._zones.place(router.text("id"), zone)
        for link in reading.elements("link"):
            self._add_link(link)
        for host in reading.elements("host"):
            _refuse_profiles(host)
            self._add_host(host.text("id"), zone)
        for inner in reading.elements(*_ZONES, "cluster"):
            if inner.kind == "cluster":
                self._add_cluster(inner, zone)
            else:
                self._add_zone(_make_zone(inner, zone), inner)
        if isinstance(zone, StarZone):
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
            _rate(link.text("bandwidth")),
            _seconds(link.text("latency", "0")),
            is_shared=policy != "FATPIPE",
        )
        self._add_wires(name, wire, policy)

    def _add_wires(self, name: str, wire: Wire, policy: str) -> tuple[str, str]:
        """Add a link; return the wires of its direction up, and down."""
        if policy not in ("SHARED", "FATPIPE", *_DUPLEX):
            raise ValueError(f"sharing_policy of {name} is {policy!r}")
        names = (name, name)
        if policy in _DUPLEX:
            names = (f"{name}_UP", f"{name}_DOWN")
        for wire_name in dict.fromkeys(names):
            if wire_name in self._topology.wires:
                raise ValueError(f"two links are called {wire_name!r}")
            self._topology.wires[wire_name] = wire
        return names

    def _add_cluster(self, cluster: Reading, parent: Zone) -> None:
        """Add a cluster of equal hosts, of any form."""
        name = cluster.text("id")
        policy = cluster.text("sharing_policy", "SPLITDUPLEX")
        form = cluster.text("topology", "FLAT")
        rate = _rate(cluster.text("bw"))
        wire = Wire(rate, _seconds(cluster.text("lat")), policy != "FATPIPE")
        hosts = [*_host_names(cluster)]
        if form == "FLAT":
            self._add_flat_cluster(StarZone(name, parent), cluster, wire, policy)
            return

        grid = build_grid(form, cluster.text("topo_parameters", ""))
        if count_hosts(grid) != len(hosts):
            problem = f"cluster {name} has {len(hosts)} hosts, its topo_parameters are "
            raise ValueError(f"{problem}of {count_hosts(grid)}")
        grid.name = name
        grid.parent = parent
        grid.wires = self._topology.wires
        grid.wire = wire
        grid.is_duplex = policy in _DUPLEX
        grid.limiter = _rate(cluster.text("limiter_link", "0"))
        grid.numbers = {host: number for number, host in enumerate(hosts)}
        self._zones.add(grid)
        for host in hosts:
            self._add_host(host, grid)

    def _add_flat_cluster(
        self, zone: StarZone, cluster: Reading, wire: Wire, policy: str
    ) -> None:
        """Add hosts that are joined in the middle, over a backbone if there is one."""
        self._zones.add(zone)
        backbone = self._add_backbone(cluster)
        limit = _rate(cluster.text("limiter_link", "0"))
        for host in _host_names(cluster):
            self._add_host(host, zone)
            up, down = self._add_wires(f"{host} link", wire, policy)
            limiter = []
            if limit:
                limiter = [f"{host} limiter"]
                self._topology.wires[limiter[0]] = Wire(limit)
            zone.ups[host] = [*limiter, up, *backbone]
            zone.downs[host] = [*backbone, down, *limiter]

        ends = cluster.text("prefix", ""), cluster.text("suffix", "")
        default = f"{ends[0]}{zone.name}_router{ends[1]}"
        self._zones.place(cluster.text("router_id", "") or default, zone)

    def _add_backbone(self, cluster: Reading) -> list[str]:
        """Return the wire of a cluster's backbone, none where it has none."""
        rate = _rate(cluster.text("bb_bw", "") or "0")
        latency = _seconds(cluster.text("bb_lat", "") or "0")
        policy = cluster.text("bb_sharing_policy", "SHARED")
        if not rate and not latency:
            return []
        if policy not in ("SHARED", "FATPIPE"):
            raise ValueError(f"bb_sharing_policy is {policy!r}")
        name = f"{cluster.text('id')} backbone"
        self._topology.wires[name] = Wire(rate, latency, policy != "FATPIPE")
        return [name]

    def _fill_star(self, zone: StarZone, reading: Reading) -> None:
        """Add the links of the hosts of a zone of routing Cluster, and its cabinets."""
        backbone = []
        for element in reading.elements("backbone"):
            self._add_link(element)
            backbone.append(element.text("id"))
        for link in reading.elements("host_link"):
            up = self._known_wire(link.text("up"))
            down = self._known_wire(link.text("down"))
            self._zones.check_place(link.text("id"), zone)
            if link.text("id") in zone.ups:
                raise ValueError(f"{link.text('id')} has two of host_link")
            zone.ups[link.text("id")] = [up, *backbone]
            zone.downs[link.text("id")] = [*backbone, down]
        for cabinet in reading.elements("cabinet"):
            cabinet.ignore("id")
            wire = Wire(_rate(cabinet.text("bw")), _seconds(cabinet.text("lat")))
            for host in _host_names(cabinet):
                self._add_host(host, zone)
                up, down = self._add_wires(f"{host} link", wire, "SPLITDUPLEX")
                zone.ups[host] = [up, *backbone]
                zone.downs[host] = [*backbone, down]

    def _known_wire(self, name: str) -> str:
        if name not in self._topology.wires:
            raise ValueError(f"a route names link {name!r}, which is not there")
        return name

    def _read_routes(self, zone: Zone, reading: Reading) -> None:
        """Add the routes that a zone states."""
        stated = reading.elements("route", *_ZONE_ROUTES)
        if stated and not isinstance(zone, TableZone):
            raise ValueError(
                f"zone {zone.name} states routes, which its routing does not"
            )
        for route in stated:
            ends = route.text("src"), route.text("dst")
            leg = self._leg(route, zone, ends)
            if ends[0] == ends[1]:
                self._topology.left_out["route of a host to itself"] += 1
                route.ignore("symmetrical")
                continue
            zone.add_leg(ends, leg)
            if _is_symmetrical(route):
                back = Leg(
                    [_opposite(wire, self._topology) for wire in reversed(leg.wires)],
                    leg.destination_gateway,
                    leg.source_gateway,
                )
                zone.add_leg((ends[1], ends[0]), back)
        for route in reading.elements("bypassRoute", *_ZONE_BYPASSES):
            ends = route.text("src"), route.text("dst")
            if ends in zone.bypasses:
                raise ValueError(f"two bypasses lead from {ends[0]} to {ends[1]}")
            zone.bypasses[ends] = self._leg(route, zone, ends)

    def _leg(self, route: Reading, zone: Zone, ends: tuple[str, str]) -> Leg:
        """Return a stated route; raises ValueError when it names what is not there."""
        for end in ends:
            self._zones.check_place(end, zone)
        wires = []
        for link in route.elements("link_ctn"):
            name = link.text("id")
            direction = link.text("direction", "NONE")
            if direction not in ("NONE", "UP", "DOWN"):
                raise ValueError(f"direction is {direction!r}, write UP or DOWN")
            if (
                f"{name}_UP" in self._topology.wires
                and name not in self._topology.wires
            ):
                if direction == "NONE":
                    kind = "direction of a SPLITDUPLEX link, not stated: UP"
                    self._topology.left_out[kind] += 1
                name += "_DOWN" if direction == "DOWN" else "_UP"
            wires.append(self._known_wire(name))
        if route.kind in ("route", "bypassRoute"):
            return Leg(wires)

        gateways = route.text("gw_src"), route.text("gw_dst")
        for gateway, end in zip(gateways, ends, strict=True):
            self._zones.check_gateway(gateway, end)
        return Leg(wires, *gateways)


def _make_zone(reading: Reading, parent: Zone) -> Zone:
    name = reading.text("id")
    routing = reading.text("routing")
    if routing.lower() in ("cluster", "star"):
        return StarZone(name, parent)
    if routing.lower() not in _TABLES:
        problem = f"has a zone {name} of routing {routing}, read are "
        raise NotRead(f"{problem}Full, Floyd, Dijkstra, Cluster and None")
    return TableZone(name, parent, joins_legs=_TABLES[routing.lower()])


def _opposite(wire: str, topology: Topology) -> str:
    """Return the wire of the other direction; of a shared link, the same."""
    for direction, other in (("_UP", "_DOWN"), ("_DOWN", "_UP")):
        name = wire.removesuffix(direction) + other
        if wire.endswith(direction) and name in topology.wires:
            return name
    return wire


def _is_symmetrical(route: Reading) -> bool:
    """Return True where the way back is the same; ValueError for another word."""
    word = route.text("symmetrical", "YES").upper()
    if word not in ("YES", "NO"):
        raise ValueError(f"symmetrical is {word!r}, write YES or NO")
    return word == "YES"


def _count_machines(reading: Reading) -> int:
    """Return the number of hosts, none of which is made for that."""
    count = len(reading.elements("host", "peer"))
    for cluster in reading.elements("cluster", "cabinet"):
        for first, last in _ranges(cluster):
            count += last - first + 1
    return count + sum(map(_count_machines, reading.elements(*_ZONES)))


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
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"radical is {radical!r}, write 0-7 or 0-3,9")
        yield int(match[1]), int(match[2] or match[1])


def _refuse(reading: Reading, *tags: str) -> None:
    """Raise ValueError where a zone has what changes times and has no form here."""
    for element in reading.elements(*tags):
        names = [f"{key}={element.get(key)!r}" for key in element.keys()]  # noqa: SIM118
        raise NotRead(f"has <{element.kind} {' '.join(names)}>, which is not read")


def _refuse_profiles(element: Reading) -> None:
    """Raise ValueError where a host or link changes by a file."""
    for key in _PROFILES:
        if element.text(key, ""):
            problem = (
                f"has {key} of {element.kind} {element.text('id')}, which changes "
            )
            raise NotRead(f"{problem}it: remove it and write events in the scenario")


def _rate(text: str) -> float:
    """Return bytes per second of 125MBps, 1Gbps, 1.25e8."""
    number = r"\d*\.?\d+(?:[eE][-+]?\d+)?|\d+\."
    match = re.fullmatch(rf"\s*({number})\s*(?:([kKMGTPi]*)([bB])ps)?\s*", text)
    if match is None or (match[2] or "") not in _PREFIXES:
        raise ValueError(f"found {text!r} for a bandwidth, write 125MBps or 1Gbps")
    bits = 8 if match[3] == "b" else 1
    return float(match[1]) * _PREFIXES[match[2] or ""] / bits


def _seconds(text: str) -> float:
    """Return seconds of 50us, 0.1; ``m`` are minutes."""
    match = re.fullmatch(r"\s*([\d.]+(?:[eE][-+]?\d+)?)\s*([a-z]*)\s*", text)
    if match is None or match[2] not in _SECONDS:
        raise ValueError(f"found {text!r} for a latency, write 50us or 1ms")
    return float(match[1]) * _SECONDS[match[2]]
