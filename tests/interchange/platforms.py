"""Small platforms of SimGrid, and jobs of flows on topologies, for tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import emu

#: From, to, bytes.
Flow: TypeAlias = tuple[str, str, float]

_DOCTYPE = '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'


def platform(inside: str) -> str:
    return f'<?xml version="1.0"?>{_DOCTYPE}<platform version="4.1">{inside}</platform>'


def cluster(hosts: int, more: str, name: str = "c", prefix: str = "n") -> str:
    return (
        f'<cluster id="{name}" prefix="{prefix}" suffix=".x" radical="0-{hosts - 1}" '
        f'speed="1Gf" bw="125MBps" lat="50us" {more}/>'
    )


BACKBONE = platform(cluster(6, 'bb_bw="250MBps" bb_lat="100us"'))
HALF_DUPLEX = platform(cluster(4, 'sharing_policy="SHARED" limiter_link="150MBps"'))
TORUS = platform(
    '<zone id="w" routing="Full">'
    + cluster(12, 'topology="TORUS" topo_parameters="3,2,2"')
    + "</zone>"
)
FAT_TREE = platform(
    '<zone id="w" routing="Full">'
    + cluster(12, 'topology="FAT_TREE" topo_parameters="3;2,3,2;1,2,2;1,2,1"')
    + "</zone>"
)
DRAGONFLY = platform(
    '<zone id="w" routing="Full">'
    + cluster(
        24,
        'topology="DRAGONFLY" topo_parameters="3,4;2,3;4,2;1" limiter_link="130MBps"',
    )
    + "</zone>"
)
#: Two clusters and a zone of routers, joined over gateways; a bypass between two.
ZONES = platform(
    '<zone id="w" routing="Floyd">'
    + cluster(3, 'bb_bw="1GBps" bb_lat="10us" bb_sharing_policy="FATPIPE"')
    + cluster(2, 'router_id="door"', "d", "m")
    + '<zone id="z" routing="Dijkstra"><host id="A" speed="1Gf"/>'
    '<host id="B" speed="1Gf"/><router id="R"/><router id="S"/>'
    '<link id="1" bandwidth="80MBps" latency="1ms"/>'
    '<link id="2" bandwidth="60MBps" latency="2ms" sharing_policy="SPLITDUPLEX"/>'
    '<link id="3" bandwidth="40MBps" latency="3ms"/>'
    '<link id="4" bandwidth="30MBps" latency="4ms"/>'
    '<route src="A" dst="R"><link_ctn id="1"/></route>'
    '<route src="R" dst="S"><link_ctn id="2" direction="DOWN"/></route>'
    '<route src="S" dst="B" symmetrical="NO"><link_ctn id="3"/></route>'
    '<route src="B" dst="S" symmetrical="NO"><link_ctn id="3"/><link_ctn id="4"/>'
    "</route></zone>"
    '<link id="wan" bandwidth="50MBps" latency="5ms"/>'
    '<link id="lan" bandwidth="500MBps" latency="1us"/>'
    '<zoneRoute src="c" dst="z" gw_src="nc_router.x" gw_dst="R">'
    '<link_ctn id="wan"/></zoneRoute>'
    '<zoneRoute src="z" dst="d" gw_src="S" gw_dst="door"><link_ctn id="lan"/>'
    "</zoneRoute>"
    '<bypassZoneRoute src="d" dst="c" gw_src="door" gw_dst="nc_router.x">'
    '<link_ctn id="lan"/></bypassZoneRoute></zone>'
)


def makespan(topology: Path | str | dict[str, object], flows: Sequence[Flow]) -> float:
    """Return when the last of some flows has come that begin at once, by max-min."""
    tasks = []
    sent = []
    for number, (source, destination, size) in enumerate(flows):
        ends = {"from": f"s{number}", "to": f"r{number}"}
        for side, machine in (("from", source), ("to", destination)):
            tasks.append({"name": ends[side], "time": "0 s", "pin": machine})
        sent.append({**ends, "volume": f"{size!r} B"})
    stated = topology if isinstance(topology, dict) else str(topology)
    scenario = {
        "cluster": {"topology": stated},
        "job": {"system": "custom", "iterations": 1, "tasks": tasks, "flows": sent},
        "schedule": {"policy": "maxmin"},
    }
    return emu.simulate(emu.loads(json.dumps(scenario))).makespan
