"""Drawn platforms against a slow resolver, and drawn topologies against their keys."""

from __future__ import annotations

import json
import tempfile
from itertools import permutations
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import emu
from emu.interchange.cluster_keys import cluster_keys
from emu.interchange.simgrid import read_platform
from emu.interchange.topology import Topology, Wire
from emu.problem.links import NO_ROUTE
from tests.interchange.platforms import platform

#: Route -> links of it, from one place to another.
Table = dict[tuple[str, str], list[str]]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[str], Table]:
    """Return hosts, routers, and routes of drawn links between some of them."""
    hosts = [f"h{n}" for n in range(draw(st.integers(2, 4)))]
    routers = [f"r{n}" for n in range(draw(st.integers(0, 3)))]
    pairs = [*permutations([*hosts, *routers], 2)]
    stated = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12))
    links = [f"l{n}" for n in range(8)]
    routes = st.lists(st.sampled_from(links), min_size=1, max_size=3, unique=True)
    return hosts, routers, {ends: draw(routes) for ends in stated}


def write(hosts: list[str], routers: list[str], table: Table, routing: str) -> str:
    inside = "".join(f'<host id="{name}" speed="1Gf"/>' for name in hosts)
    inside += "".join(f'<router id="{name}"/>' for name in routers)
    for number in range(8):
        inside += f'<link id="l{number}" bandwidth="{number + 1}MBps" latency="1ms"/>'
    for (source, destination), links in table.items():
        steps = "".join(f'<link_ctn id="{link}"/>' for link in links)
        ends = f'src="{source}" dst="{destination}" symmetrical="NO"'
        inside += f"<route {ends}>{steps}</route>"
    return platform(f'<zone id="z" routing="{routing}">{inside}</zone>')


def read(text: str) -> Topology:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "platform.xml"
        path.write_text(text)
        return read_platform(path)


def all_ways(table: Table, start: str, end: str, seen: set[str]) -> list[list[str]]:
    """Return the links of every way that visits no place twice."""
    if start == end:
        return [[]]
    ways = []
    for (source, destination), links in table.items():
        if source == start and destination not in seen:
            rest = all_ways(table, destination, end, {*seen, destination})
            ways += [links + way for way in rest]
    return ways


@given(tables())
def test_routes_are_among_the_shortest_of_all_ways(
    drawn: tuple[list[str], list[str], Table],
) -> None:
    hosts, routers, table = drawn
    full = read(write(hosts, routers, table, "Full"))
    joined = {
        routing: read(write(*drawn, routing)) for routing in ("Floyd", "Dijkstra")
    }
    for ends in permutations(hosts, 2):
        assert full.routes.get(ends) == table.get(ends)
        ways = all_ways(table, *ends, {ends[0]})
        shortest = min(map(len, ways), default=0)
        for topology in joined.values():
            route = topology.routes.get(ends)
            assert (route is None) == (not ways)
            if route is not None:
                assert route in ways
                assert len(route) == shortest


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Return machines and drawn routes: shared wires, private ones, unshared ones."""
    count = draw(st.integers(2, 5))
    topology = Topology("drawn", [f"m{n}" for n in range(count)])
    for name in topology.machines:
        for way in ("up", "down"):
            rate = draw(st.integers(1, 9)) * 1e6
            topology.wires[f"{name} {way}"] = Wire(rate, draw(st.integers(0, 3)) * 1e-3)
    for number in range(4):
        rate = draw(st.integers(1, 30)) * 1e6
        topology.wires[f"w{number}"] = Wire(rate, 0.0, draw(st.booleans()))
    middles = st.lists(
        st.sampled_from(["w0", "w1", "w2", "w3"]), unique=True, max_size=2
    )
    for source, destination in permutations(topology.machines, 2):
        kind = draw(st.sampled_from(["none", "whole", "whole", "bare"]))
        ends = [f"{source} up"], [f"{destination} down"]
        route = [*ends[0], *draw(middles), *ends[1]]
        if kind == "bare":
            route = route[1:-1] or ["w0"]
        if kind != "none":
            topology.routes[source, destination] = route
    topology.routes.setdefault(("m0", "m1"), ["w0"])
    return topology


@settings(max_examples=60)
@given(topologies())
def test_keys_of_a_cluster_say_the_same_routes(topology: Topology) -> None:
    wires = dict(topology.wires)
    routes = {ends: [*route] for ends, route in topology.routes.items()}
    keys: dict[str, Any] = cluster_keys(topology)
    job = {"system": "custom", "iterations": 1, "tasks": [{"name": "a", "time": "1 s"}]}
    scenario = emu.loads(json.dumps({"cluster": keys, "job": job}))
    links = scenario.to_cluster().links
    number = {name: n for n, name in enumerate(topology.machines)}
    port_of_wire = dict[str, int]()
    for ends in permutations(topology.machines, 2):
        ports = links.route(number[ends[0]], number[ends[1]])
        if ends not in routes:
            assert [links[port].name for port in ports] == [NO_ROUTE]
            continue
        assert len(ports) == len(routes[ends])
        latency = sum(wires[wire].latency for wire in routes[ends])
        assert abs(sum(links[port].latency for port in ports) - latency) < 1e-12
        narrowest = min(wires[wire].rate for wire in routes[ends])
        assert min(links[port].capacity for port in ports) == narrowest
        for wire, port in zip(routes[ends], ports, strict=True):
            if wires[wire].is_shared:  # one port, whichever route crosses it
                assert port_of_wire.setdefault(wire, port) == port
                assert links[port].capacity == wires[wire].rate
    shared_ports = [*port_of_wire.values()]
    assert len({*shared_ports}) == len(shared_ports)
