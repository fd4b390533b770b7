"""Platforms of SimGrid (simgrid.dtd 4 and 4.1): hosts, links, routes, a cluster.

One zone is read, with routes stated in full or by the shortest way (Floyd, Dijkstra),
or one flat cluster. Hosts' speeds are left out: times of tasks are stated.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from emu.errors import DataError
from emu.host.input_file import one_error, read_text
from emu.interchange.topology import Topology, Wire
from emu.units import DURATION

_ZONES = ("zone", "AS")
_WORDS = {"host", "router", "link", "route", "prop", "loopback", *_ZONES, "cluster"}
_PREFIXES = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_PREFIXES |= {f"{p}i": 1024 ** (n + 1) for n, p in enumerate("KMGT")}


def read_platform(path: Path) -> Topology:
    """Return the topology of a platform.

    Raises DataError when it is damaged, of another version, or has more than one zone.
    """
    with one_error(path):
        text = read_text(path)
        if "<!ENTITY" in text:
            raise DataError("defines entities, which are not read", path=str(path))
        platform = ET.fromstring(text)  # noqa: S314 - without entities
        if not platform.get("version", "").startswith("4"):
            problem = f"is of version {platform.get('version')}, 4 is read"
            raise DataError(problem, path=str(path))
        zone = platform
        while any(one.tag in _ZONES for one in zone):
            inner = [one for one in zone if one.tag in (*_ZONES, "cluster", "host")]
            if len(inner) > 1:
                problem = f"has several zones within {zone.get('id') or 'the whole'}: "
                raise DataError(f"{problem}one alone is read", path=str(path))
            zone = inner[0]
        topology = Topology(str(path))
        clusters = [one for one in zone if one.tag == "cluster"]
        if len(clusters) > 1 or (clusters and zone.find("host") is not None):
            problem = "has several clusters, or hosts beside one: one alone is read"
            raise DataError(problem, path=str(path))
        for one in zone:
            if one.tag not in _WORDS:
                topology.left_out[one.tag] += 1
        if clusters:
            _read_cluster(topology, clusters[0])
        else:
            _read_zone(topology, zone)
        return topology


def _rate(text: str) -> float:
    """Return bytes per second of 125MBps, 1Gbps, 1.25e8."""
    match = re.fullmatch(
        r"\s*([\d.]+(?:[eE][-+]?\d+)?)\s*(?:([kKMGTi]*)([bB])ps)?", text
    )
    if match is None or (match[2] or "") not in _PREFIXES:
        raise ValueError(f"found {text!r} for a bandwidth")
    bits = 8 if match[3] == "b" else 1
    return float(match[1]) * _PREFIXES[match[2] or ""] / bits


def _seconds(text: str) -> float:
    bare = re.fullmatch(r"[\d.eE+-]+", text.strip())
    return float(text) if bare else DURATION.parse(text)


def _read_cluster(topology: Topology, cluster: Element) -> None:
    """Add the hosts of a flat cluster: up, the backbone if there is one, and down."""
    if cluster.get("topology", "FLAT").upper() not in ("FLAT", "CLUSTER"):
        problem = f"has a cluster of topology {cluster.get('topology')}, flat is read"
        raise DataError(problem, path=topology.origin)
    topology.left_out["speed of a host"] += 1
    numbers: list[int] = []
    for part in cluster.get("radical", "").split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    ends = cluster.get("prefix", ""), cluster.get("suffix", "")
    topology.machines = [f"{ends[0]}{number}{ends[1]}" for number in numbers]
    wire = Wire(_rate(cluster.get("bw", "")), _seconds(cluster.get("lat", "0")))
    policy = cluster.get("sharing_policy", "SPLITDUPLEX")
    back = [f"{cluster.get('id')} backbone"] * ("bb_bw" in cluster.keys())  # noqa: SIM118
    for name in back:
        lag = _seconds(cluster.get("bb_lat", "0"))
        topology.wires[name] = Wire(_rate(cluster.get("bb_bw", "")), lag)
    apart = policy == "SPLITDUPLEX"
    for name in topology.machines:
        for way in (" up", " down") if apart else ("",):
            topology.wires[f"{name} link{way}"] = wire
    up, down = (" up", " down") if apart else ("", "")
    for one in topology.machines:
        for other in topology.machines:
            ways = [f"{one} link{up}", *back, f"{other} link{down}"]
            topology.routes[one, other] = ways


def _read_zone(topology: Topology, zone: Element) -> None:
    split = _read_links(topology, zone)
    for host in zone.iter("host"):
        topology.machines.append(host.get("id", ""))
        topology.left_out["speed of a host"] += 1
    places = {*topology.machines, *(router.get("id") for router in zone.iter("router"))}
    for route in zone.iter("route"):
        ends = route.get("src", ""), route.get("dst", "")
        for end in ends:
            if end not in places:
                raise ValueError(f"a route ends at {end!r}, which is not there")
        wires = [_wire(topology, one, split) for one in route.iter("link_ctn")]
        if ends[0] == ends[1]:
            topology.left_out["route of a host to itself"] += 1
            continue
        topology.routes[ends] = wires
        if route.get("symmetrical", "YES").upper() in ("YES", "TRUE", "1"):
            back = [_reverse(wire, split) for wire in reversed(wires)]
            topology.routes.setdefault(ends[::-1], back)
    if zone.get("routing", "Full").lower() in ("floyd", "dijkstra", "dijkstracache"):
        topology.join()


def _read_links(topology: Topology, zone: Element) -> set[str]:
    """Add the links; return those that have a wire of each direction."""
    split = set[str]()
    for link in zone.iter("link"):
        name, policy = link.get("id", ""), link.get("sharing_policy", "SHARED")
        wire = Wire(
            _rate(link.get("bandwidth", "")), _seconds(link.get("latency", "0"))
        )
        if policy == "FATPIPE":
            topology.left_out["sharing_policy FATPIPE of a link, taken as shared"] += 1
        if policy == "SPLITDUPLEX":
            split.add(name)
            topology.wires |= {f"{name} up": wire, f"{name} down": wire}
        else:
            topology.wires[name] = wire
    return split


def _wire(topology: Topology, stated: Element, split: set[str]) -> str:
    name = stated.get("id", "")
    if name in split:
        name += f" {stated.get('direction', 'UP').lower()}"
    if name not in topology.wires:
        raise ValueError(f"a route names link {name!r}, which is not there")
    return name


def _reverse(wire: str, split: set[str]) -> str:
    name, _, way = wire.rpartition(" ")
    return f"{name} {'down' if way == 'up' else 'up'}" if name in split else wire
