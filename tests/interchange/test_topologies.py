"""Topologies of others: a flow by hand in each format, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import emu
from emu.errors import PlacementError, ScenarioError
from emu.interchange.simgrid import _rate, _seconds, read_platform

pytestmark = pytest.mark.usefixtures("read_here")


def seconds(folder: Path, name: str, content: str, ends: str, size: str) -> float:
    """Return how long a flow takes between two machines."""
    (folder / name).write_text(content)
    source, destination = ends.split()
    tasks = [
        {"name": n, "time": "0 s", "pin": m}
        for n, m in zip("ab", (source, destination), strict=True)
    ]
    flow = {"from": "a", "to": "b", "volume": size}
    job = {"system": "custom", "iterations": 1, "tasks": tasks, "flows": [flow]}
    scenario = {"cluster": {"topology": str(folder / name)}, "job": job}
    return emu.simulate(emu.loads(json.dumps(scenario))).makespan


def platform(inside: str, routing: str = "Full") -> str:
    zone = f'<zone id="z" routing="{routing}">{inside}</zone>'
    return f'<?xml version="1.0"?><platform version="4.1">{zone}</platform>'


HOSTS = '<host id="A" speed="1Gf"/><host id="B" speed="1Gf"/><router id="R"/>'
LINKS = (
    '<link id="1" bandwidth="80Mbps" latency="10ms"/><link id="2" bandwidth="5MBps" '
    'latency="1ms" sharing_policy="SPLITDUPLEX"/><link id="lo" bandwidth="1MBps" '
    'sharing_policy="FATPIPE"/>'
)
LEGS = (
    '<route src="A" dst="A"><link_ctn id="lo"/></route>'
    '<route src="A" dst="R"><link_ctn id="1"/></route>'
    '<route src="R" dst="B"><link_ctn id="2" direction="UP"/></route>'
)
WAY = '<route src="A" dst="B"><link_ctn id="1"/><link_ctn id="2"/></route>'
#: One route of three links, where there is a way of two over R.
LONG = "".join(f'<link id="{n}" bandwidth="1MBps"/>' for n in "345") + (
    '<route src="A" dst="B"><link_ctn id="3"/><link_ctn id="4"/><link_ctn id="5"/>'
    "</route>"
)
CLUSTER = (
    '<platform version="4.1"><cluster id="c" prefix="n" suffix=".x" radical="0-1,7" '
    'speed="1Gf" bw="10MBps" lat="1ms" {}/></platform>'
)


def rate(value: float) -> dict[str, Any]:
    return {"bandwidth": {"gigabytes_per_second": value}}


SERVER = {
    "name": "server",
    "components": [{"name": "npu", "choice": "npu", "count": 2},
                   {"name": "nic", "choice": "nic", "count": 2},
                   {"name": "cpu", "choice": "cpu", "count": 1}],
    "links": [{"name": "pcie", "physical": rate(0.01)}],
    "edges": [{"ep1": {"component": "npu"}, "ep2": {"component": "nic[0:2]"},
               "scheme": "one2one", "link": "pcie"}],
}  # fmt: skip
SWITCH = {"name": "switch",
          "components": [{"name": "port", "choice": "port", "count": 4},
                         {"name": "asic", "choice": "switch"}],
          "links": [{"name": "in", "physical": rate(9)}],
          "edges": [{"ep1": {"component": "asic"}, "ep2": {"component": "port"},
                     "scheme": "many2many", "link": "in"}]}  # fmt: skip
FABRIC: dict[str, Any] = {
    "name": "two servers",
    "devices": [SERVER, SWITCH],
    "instances": [{"name": "host", "device": "server", "count": 2},
                  {"name": "sw", "device": "switch", "count": 1}],
    "links": [{"name": "wire", "physical": {
        "bandwidth": {"choice": "gigabits_per_second", "gigabits_per_second": 0.04},
        "latency": {"choice": "ms", "ms": 2}}}],
    "edges": [{"ep1": {"instance": "host[0:2]", "component": "nic"},
               "ep2": {"instance": "sw[0]", "component": "port[0:4]"},
               "scheme": "one2one", "link": "wire"}],
}  # fmt: skip
LONE = {
    "name": "lone",
    "components": [{"name": "npu", "type": "npu"}, {"name": "sw", "type": "x"}],
    "links": [{"name": "in", "bandwidth": {"giga_bytes_per_second": 0.01}}],
    "connections": [f"npu.{number}.in.sw.0" for number in range(3)],
}
_SIDE = [{"name": "npu", "choice": "npu", "count": 2}]
PAIRS = {
    "devices": [
        {"name": "server", "components": _SIDE, "links": [], "edges": []},
        {"name": "switch", "components": [{"name": "sw", "choice": "switch"}]},
    ],
    "instances": [{"name": "host", "device": "server", "count": 1},
                  {"name": "s", "device": "switch", "count": 1},
                  {"name": "gone", "device": "not here"}],
    "links": [{"name": "w", "physical": rate(0.005)}],
    "edges": [{"ep1": {"instance": "host[0]", "component": "npu"},
               "ep2": {"instance": "s[0]", "component": "sw"},
               "scheme": "many2many", "link": "w"}],
}  # fmt: skip
MATRIX = """\
\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\tSYS\tPXB\t0-23\t0
GPU1\tNV4\t X \tPHB\tPXB\t0-23\t0
GPU2\tSYS\tPHB\t X \tSYS\t24-47\t1
NIC0\tPXB\tPXB\tSYS\t X

Legend:

  X    = Self
"""


@pytest.mark.parametrize(
    ("name", "content", "ends", "size", "expected"),
    [
        # 10 MB at 5 MB/s, and both latencies; back over the other wire of link 2.
        ("full", platform(HOSTS + LINKS + WAY), "A B", "10 MB", 2.011),
        ("full, back", platform(HOSTS + LINKS + WAY), "B A", "10 MB", 2.011),
        ("floyd", platform(HOSTS + LINKS + LEGS, "Floyd"), "B A", "10 MB", 2.011),
        ("cluster", CLUSTER.format(""), "n0.x n7.x", "10 MB", 1.002),
        ("backbone", CLUSTER.format('bb_bw="5MBps" bb_lat="4ms"'), "n1.x n0.x",
         "10 MB", 2.006),
        # Between the servers two wires of 5 MB/s; the others are faster.
        ("fabric.json", json.dumps(FABRIC), "host.0.npu.0 host.1.npu.1",
         "10 MB", 2.004),
        # A device alone: two wires of 10 MB/s, as its connections number them.
        ("device.json", json.dumps(LONE), "lone.0.npu.0 lone.0.npu.1", "10 MB", 1.0),
        ("wrapped.json", json.dumps({"infrastructure": {"devices": [LONE]}}),
         "lone.0.npu.2 lone.0.npu.0", "10 MB", 1.0),
        # Instance by instance: of two servers each has a switch of its own.
        ("pairs.json", json.dumps(PAIRS), "host.0.npu.0 host.0.npu.1", "10 MB", 2.0),
        ("fewest links", platform(HOSTS + LINKS + LONG + LEGS, "Floyd"), "A B",
         "10 MB", 2.011),
        ("matrix", MATRIX, "GPU0 GPU1", "1 GB", 0.01),
        ("NICs between", ("\tGPU0\tNIC0\tGPU1\nGPU0\t X \tPIX\tNV4\nNIC0\tPIX\t X "
         "\tSYS\nGPU1\tNV4\tSYS\t X \n"), "GPU0 GPU1", "1 GB", 0.01),
        ("matrix", MATRIX, "GPU2 GPU0", "15.754 GB", 1.0),
    ],
)  # fmt: skip
def test_a_flow_by_hand(
    tmp_path: Path, name: str, content: str, ends: str, size: str, expected: float
) -> None:
    took = seconds(tmp_path, name, content, ends, size)
    assert took == pytest.approx(expected, rel=1e-9)


def test_a_host_of_a_star_sends_and_receives_over_links_of_its_own(
    tmp_path: Path,
) -> None:
    links = ""
    hosts = ""
    for name in "AB":
        hosts += f'<host id="{name}" speed="1Gf"/>'
        links += f'<link id="{name}1" bandwidth="1MBps" latency="1ms"/>'
        links += f'<link id="{name}2" bandwidth="2MBps" latency="1ms"/>'
        links += f'<host_link id="{name}" up="{name}1" down="{name}2"/>'
    path = tmp_path / "star.xml"
    path.write_text(platform(hosts + links, "Cluster"))
    assert read_platform(path).routes == {
        ("A", "B"): ["A1", "B2"],
        ("B", "A"): ["B1", "A2"],
    }


def test_what_is_left_out_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds(tmp_path, "p", platform(HOSTS + LINKS + WAY + LEGS), "A B", "1 MB")
    said = capsys.readouterr().err

    assert "left out: speed of a host, 2 times" in said
    assert "left out: route of a host to itself, 1 time" in said


#: C is joined to B alone.
STAR = platform(
    '<host id="A"/><host id="B"/><host id="C"/><link id="1" bandwidth="5MBps"/>'
    '<link id="2" bandwidth="2MBps"/><route src="A" dst="B"><link_ctn id="1"/></route>'
    '<route src="C" dst="B"><link_ctn id="2"/></route>'
)


def test_a_pair_without_a_route_may_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A flow between the two is refused, and no search puts one there."""
    assert seconds(tmp_path, "star", STAR, "A B", "10 MB") == pytest.approx(2)
    assert seconds(tmp_path, "star", STAR, "B C", "10 MB") == pytest.approx(5)
    assert "2 pairs of machines have no route, as A to C" in capsys.readouterr().err
    with pytest.raises(PlacementError, match="no route leads from A to C"):
        seconds(tmp_path, "star", STAR, "A C", "10 MB")

    tasks = [
        {"name": n, "time": "1 s", "pin": m} for n, m in zip("ab", "AB", strict=True)
    ]
    tasks.append({"name": "free", "time": "1 s"})
    flow = {"from": "a", "to": "free", "volume": "10 MB"}
    job = {"system": "custom", "iterations": 1, "tasks": tasks, "flows": [flow]}
    cluster = {"topology": str(tmp_path / "star")}
    placed = emu.place(emu.loads(json.dumps({"cluster": cluster, "job": job})))
    assert placed.tasks["free"] != "C"


LOOP = WAY.replace('<link_ctn id="2"/>', '<link_ctn id="2"/><link_ctn id="1"/>')


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("loop", platform(HOSTS + LINKS + LOOP), "runs in a loop: it takes 1 twice"),
        ("no route", platform(HOSTS + LINKS), "has no route A to B"),
        ("no link", platform(HOSTS + WAY), "link '1', which is not there"),
        ("no host", platform(HOSTS.replace('"A"', '"C"') + LINKS + WAY),
         "a route ends at 'A'"),
        ("apart", platform(HOSTS + LINKS, "Dijkstra"), "has no route A to B"),
        ("version", platform("").replace("4.1", "3"), "is of version 3"),
        ("Vivaldi", platform(HOSTS, "Vivaldi"), "has a zone z of routing Vivaldi"),
        ("torus", CLUSTER.format('topology="TORUS" topo_parameters="2,2"'),
         "cluster c has 3 hosts, its topo_parameters are of 4"),
        ("huge", CLUSTER.format("").replace("0-1,7", "0-2000000000"),
         "has 2,000,000,001 machines, 1 to 400 are read"),
        ("rate", platform(HOSTS + LINKS.replace("80M", "-8M")), "for a bandwidth"),
        ("WIFI", platform(HOSTS + LINKS.replace("FATPIPE", "WIFI")),
         "link lo is WIFI, whose stations share it by their rates"),
        ("cut", platform(HOSTS)[:-20], "is damaged"),
        ("fabric.json", json.dumps(FABRIC | {"edges": []}), "are not joined"),
        ("ring.json", json.dumps(PAIRS).replace("0.005", "0.0"),
         "bandwidth is 0 gigabytes_per_second, write more than that"),
        ("fabric.json", json.dumps(FABRIC | {"links": []}), "link 'wire', which"),
        ("fabric.json", json.dumps(FABRIC | {"devices": [SWITCH]}),
         "there is no instance 'host' of a device in the file"),
        ("fabric.json", json.dumps({"infrastructure": {"instances": []}}),
         "has no instance of a device that it has"),
        ("lone.json", json.dumps(LONE | {"connections": ["npu.0.sw.0"]}),
         "is not of five words"),
        ("lone.json", json.dumps(LONE).replace("npu", "fan"), "nothing computes"),
        ("ring.json", json.dumps(PAIRS).replace("many2many", "ring"),
         "has a scheme 'ring', one2one and many2many are read"),
        ("matrix", MATRIX.replace("NV4", "NV"), "GPU0 to GPU1 is 'NV'"),
        ("matrix", MATRIX.replace("GPU2\tSYS", "GPU9\tSYS"), "a row of GPU9"),
        ("matrix", MATRIX.replace("GPU2\tSYS\tPHB\t X \tSYS\t24-47\t1\n", ""),
         "no whole row of GPU2"),
        ("matrix", MATRIX.replace("GPU2\tSYS", "GPU2\tNODE"),
         "GPU0 to GPU2 is SYS, and back NODE"),
        ("matrix", MATRIX + MATRIX, "has 2 matrices of GPUs"),
        ("matrix", MATRIX.replace("\tGPU1\tGPU2", "\tGPU1\tGPU1", 1),
         "it has two columns of one name"),
    ],
)  # fmt: skip
def test_a_topology_that_cannot_be(
    tmp_path: Path, name: str, content: str, problem: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        seconds(tmp_path, name, content, "A B", "1 MB")
    assert problem in str(caught.value)
    assert caught.value.key == "cluster.topology"
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("125MBps", 125e6),
        ("1Gbps", 125e6),
        (" 1.25e8 ", 125e6),
        ("3KiBps", 3072.0),
        ("16Kibps", 2048.0),
    ],
)
def test_rates_of_simgrid_are_of_bytes_or_bits(text: str, rate: float) -> None:
    assert _rate(text) == rate


def test_every_unit_of_simgrid_has_its_size() -> None:
    """Prefixes are in thousands, and with an i in steps of 1,024."""
    for power, prefix in enumerate("kMGTP", 1):
        assert _rate(f"2{prefix}Bps") == 2 * 1000**power
        prefix_of_two = f"{prefix.upper()}i"
        assert _rate(f"3{prefix_of_two}Bps") == 3 * 1024**power
    hour = 3600.0
    lengths = {"w": 168 * hour, "d": 24 * hour, "h": hour, "m": 60.0, "s": 1.0}
    lengths |= {"": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12}
    for unit, length in lengths.items():
        assert _seconds(f"4 {unit}") == 4 * length
