"""Platforms of SimGrid (simgrid.dtd 4 and 4.1): hosts, links, routes, a cluster.

One zone is read, with routes stated in full or by the shortest way (Floyd, Dijkstra),
or one flat cluster. Hosts' speeds are left out: times of tasks are stated.
"""

from __future__ import annotations

import re
from itertools import product
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
            raise DataError("defines entities, which are not read", path=path)
        platform = ET.fromstring(text)  # noqa: S314 - without entities
        if not platform.get("version", "").startswith("4"):
            problem = f"is of version {platform.get('version')}, 4 is read"
            raise DataError(problem, path=path)
        zone = platform
        while any(one.tag in _ZONES for one in zone):
            inner = [one for one in zone if one.tag in (*_ZONES, "cluster", "host")]
            if len(inner) > 1:
                problem = f"has several zones within {zone.get('id') or 'the whole'}: "
                raise DataError(f"{problem}one alone is read", path=path)
            zone = inner[0]
        topology = Topology(str(path))
        clusters = [one for one in zone if one.tag == "cluster"]
        if len(clusters) > 1 or (clusters and zone.find("host") is not None):
            problem = "has several clusters, or hosts beside one: one alone is read"
            raise DataError(problem, path=path)
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
    number, unit = r"[\d.]+(?:[eE][-+]?\d+)?", r"([kKMGTi]*)([bB])ps"
    match = re.fullmatch(rf"\s*({number})\s*(?:{unit})?", text)
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
    up, down = (" up", " down") if policy == "SPLITDUPLEX" else ("", "")
    for name in topology.machines:
        topology.wires |= {f"{name} link{way}": wire for way in (up, down)}
    for one, other in product(topology.machines, repeat=2):
        ways = [f"{one} link{up}", *back, f"{other} link{down}"]
        topology.routes[one, other] = ways


def _read_zone(topology: Topology, zone: Element) -> None:
    opposite = _read_links(topology, zone)
    for host in zone.iter("host"):
        topology.machines.append(host.get("id", ""))
        topology.left_out["speed of a host"] += 1
    places = {*topology.machines, *(router.get("id") for router in zone.iter("router"))}
    for route in zone.iter("route"):
        ends = route.get("src", ""), route.get("dst", "")
        if strange := [end for end in ends if end not in places]:
            raise ValueError(f"a route ends at {strange[0]!r}, which is not there")
        wires = []
        for one in route.iter("link_ctn"):
            name = one.get("id", "")
            if f"{name} up" in opposite:
                name += f" {one.get('direction', 'UP').lower()}"
            if name not in topology.wires:
                raise ValueError(f"a route names link {name!r}, which is not there")
            wires.append(name)
        if ends[0] == ends[1]:
            topology.left_out["route of a host to itself"] += 1
            continue
        topology.routes[ends] = wires
        if route.get("symmetrical", "YES").upper() in ("YES", "TRUE", "1"):
            back = [opposite.get(wire, wire) for wire in reversed(wires)]
            topology.routes.setdefault(ends[::-1], back)
    if zone.get("routing", "Full").lower() in ("floyd", "dijkstra", "dijkstracache"):
        topology.join()


def _read_links(topology: Topology, zone: Element) -> dict[str, str]:
    """Add the links; return the other way of each wire of one direction."""
    opposite = dict[str, str]()
    for link in zone.iter("link"):
        name, policy = link.get("id", ""), link.get("sharing_policy", "SHARED")
        rate, lag = link.get("bandwidth", ""), link.get("latency", "0")
        wire = Wire(_rate(rate), _seconds(lag))
        if policy == "FATPIPE":
            topology.left_out["sharing_policy FATPIPE of a link, taken as shared"] += 1
        if policy == "SPLITDUPLEX":
            ways = f"{name} up", f"{name} down"
            topology.wires |= dict.fromkeys(ways, wire)
            opposite |= {ways[0]: ways[1], ways[1]: ways[0]}
        else:
            topology.wires[name] = wire
    return opposite
