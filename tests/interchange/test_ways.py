"""Ways over wires: NICs, matrices of GPUs and clusters of SimGrid, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emu.errors import DataError
from emu.interchange.cluster_keys import cluster_keys
from emu.interchange.gpu_matrix import (
    GPUS,
    _guess,
    _Matrix,
    _parse,
    is_header,
    read_matrix,
)
from emu.interchange.simgrid import read_platform
from emu.interchange.simgrid_clusters import (
    Dragonfly,
    FatTree,
    Torus,
    build_grid,
    count_hosts,
)
from emu.interchange.topology import Answers, Topology, Wire
from tests.interchange.platforms import cluster, platform

pytestmark = pytest.mark.usefixtures("read_here")


def topology_of(
    wires: dict[str, Wire], routes: dict[tuple[str, str], list[str]], *machines: str
) -> Topology:
    """Return a topology of such wires and routes."""
    topology = Topology("file")
    topology.machines += machines
    topology.wires |= wires
    topology.routes |= routes
    return topology


def test_what_a_machine_alone_sends_and_receives_over_is_its_nic() -> None:
    """The wire between is a link; c has one wire for both ways, and no NIC."""
    wires = {
        "a up": Wire(10.0, 0.5),
        "a down": Wire(20.0),
        "b up": Wire(30.0),
        "b down": Wire(40.0, 0.25),
        "core": Wire(50.0, 0.125),
        "c both": Wire(60.0),
    }
    ups = {"a": "a up", "b": "b up", "c": "c both"}
    downs = {"a": "a down", "b": "b down", "c": "c both"}
    routes = {
        (source, destination): [ups[source], "core", downs[destination]]
        for source in "abc"
        for destination in "abc"
        if source != destination
    }
    keys = cluster_keys(topology_of(wires, routes, *"abc"))
    a, b, c = keys["machines"]
    assert (a["nic"]["in"], a["nic"]["out"]) == ("20 B/s", "10 B/s")
    assert a["nic"]["latency"]["out"] == "500 ms"
    assert b["nic"]["latency"]["in"] == "250 ms"
    assert c == {"name": "c", "nic": "none"}
    assert [link["name"] for link in keys["links"]] == ["core", "c both"]
    ways = {
        (source, destination): route["through"]
        for route in keys["routes"]
        for source in route["from"]
        for destination in route["to"]
        if source != destination
    }
    assert ways["a", "b"] == ["out", "core", "in"]
    assert ways["a", "c"] == ["out", "core", "c both"]
    assert ways["c", "b"] == ["c both", "core", "in"]
    assert len(ways) == 6


def test_a_wire_that_is_not_shared_limits_each_pair_by_itself() -> None:
    """Narrower than what is shared it has one for each pair, wider it limits none."""
    shared = {name: Wire(10.0) for name in ("a up", "a down", "b up", "b down")}
    for rate, name, new_rate in (
        (4.0, "pipe a-b unshared", 4.0),
        (30.0, "pipe unshared", 40.0),
        (99.0, "pipe unshared", 99.0),
        (10.0, "pipe unshared", 40.0),
    ):
        wires = shared | {"pipe": Wire(rate, 0.5, is_shared=False)}
        routes = {
            ("a", "b"): ["a up", "pipe", "b down"],
            ("b", "a"): ["b up", "pipe", "a down"],
        }
        topology = topology_of(wires, routes, "a", "b")
        keys = cluster_keys(topology)
        assert name in [link["name"] for link in keys["links"]]
        assert topology.wires[name] == Wire(new_rate, 0.5)
        assert bool(topology.left_out) == (rate == 4.0)


@pytest.mark.parametrize(
    ("wire", "route", "problem"),
    [
        (Wire(0.0), ["w"], "link w has no bandwidth"),
        (Wire(float("inf")), ["w"], "link w has no bandwidth"),
        (Wire(1.0, -1.0), ["w"], "link w has a latency of -1.0 s"),
        (Wire(1.0), ["w", "x", "w"], "route a to b runs in a loop: it takes w twice"),
    ],
)
def test_a_route_that_cannot_be_is_refused(
    wire: Wire, route: list[str], problem: str
) -> None:
    wires = {"w": wire, "x": Wire(1.0)}
    with pytest.raises(DataError, match=problem):
        cluster_keys(topology_of(wires, {("a", "b"): route}, "a", "b"))


def test_pairs_without_a_route_have_one_that_nothing_crosses() -> None:
    topology = topology_of({"w": Wire(1.0)}, {("a", "b"): ["w"]}, *"abc")
    cluster_keys(topology)
    (note,) = topology.notes
    assert note.startswith("5 pairs of machines have no route, as a to c: no flow")
    with pytest.raises(DataError, match="has no route a to b, nor any other"):
        cluster_keys(topology_of({}, {}, "a", "b"))
    assert cluster_keys(topology_of({}, {}, "a"))["machines"] == [
        {"name": "a", "nic": "none"}
    ]


MATRIX = """\
\tGPU0\tGPU1\tGPU2\tNIC0\tNIC1\tCPU Affinity\tGPU NUMA ID
GPU0\t X \tNV2\tSYS\tSYS\tPIX\t0-5\t0
GPU1\tNV2\t X \tNV6\tPXB\tNODE\t0-5\t0
GPU2\tSYS\tNV6\t X \tPHB\tPHB\t0-5\t0
NIC0\tSYS\tPXB\tPHB\t X \tSYS
"""


def matrix_of(text: str) -> _Matrix:
    """Return the matrix of a text."""
    return _parse(text.splitlines(), Topology("file"))


def test_a_matrix_has_its_words_by_row_and_column() -> None:
    """The GPU with most NVLinks stands in the middle, and has 8 of them."""
    topology = Topology("file")
    matrix = _parse(["above", *MATRIX.splitlines(), "below"], topology)
    matrix.check("file")
    assert (matrix.gpus, matrix.nics) == (["GPU0", "GPU1", "GPU2"], ["NIC0", "NIC1"])
    assert [matrix.lanes_of(name) for name in matrix.gpus] == [
        [0, 2, 0],
        [2, 0, 6],
        [0, 6, 0],
    ]
    a100 = next(gpu for gpu in GPUS.values() if gpu.lanes == 12)
    assert not matrix.has_switch(a100)
    assert not matrix.has_switch(a100._replace(lanes=8))
    assert matrix.has_switch(a100._replace(lanes=7))
    assert [matrix.nearest_nic(name) for name in matrix.gpus] == [
        "NIC1",
        "NIC0",
        "NIC0",
    ]
    assert matrix.beside == ["above", "below"]
    assert topology.left_out == {"column CPU Affinity": 1, "column GPU NUMA ID": 1}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("NV6\tPXB", "NV5\tPXB", "GPU1 to GPU2 is NV5, and back NV6"),
        ("NV2\tSYS", "XX\tSYS", "GPU0 to GPU1 is 'XX': NV1, ..., "),
        ("GPU1\tNV2\t X ", "GPU1\tNV2\tNV2", "has no whole row of GPU1, with an X"),
        ("GPU2\tSYS\tNV6\t X \tPHB\tPHB\t0-5\t0", "GPU2\tSYS", "no whole row of GPU2"),
    ],
)
def test_a_matrix_that_was_edited_is_refused(old: str, new: str, problem: str) -> None:
    assert old in MATRIX
    matrix = matrix_of(MATRIX.replace(old, new))
    with pytest.raises(DataError, match=problem):
        matrix.check("file")


def test_a_matrix_without_nics_is_whole_and_joins_no_boxes(tmp_path: Path) -> None:
    path = tmp_path / "box.txt"
    path.write_text("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n")
    read = read_matrix(path, Answers())
    assert read.routes["GPU1", "GPU0"] == ["nvlink GPU1-GPU0"]
    with pytest.raises(DataError, match="no NIC that could join several boxes"):
        read_matrix(path, Answers(boxes=2, nic=1e9))
    with pytest.raises(ValueError, match="GPU0 to NIC1 is 'XYZ'"):
        matrix_of(MATRIX.replace("PIX", "XYZ")).nearest_nic("GPU0")
    assert is_header("GPU0 CPU")
    assert is_header("GPU0 NIC0")
    assert not is_header("GPU0")
    assert not is_header("GPU0 x")
    assert not is_header("NIC0 GPU0")
    with pytest.raises(ValueError, match="it has 2 matrices of GPUs"):
        matrix_of(MATRIX + MATRIX)
    with pytest.raises(ValueError, match="a row of GPU1, one too many"):
        matrix_of(MATRIX + "GPU1\t X \n")
    with pytest.raises(ValueError, match="two columns of one name"):
        matrix_of(MATRIX.replace("GPU2\tNIC0", "GPU1\tNIC0"))


def test_a_gpu_is_guessed_by_the_lanes_that_lead_to_a_switch() -> None:
    """Eight GPUs with 12 lanes to each other are the first known GPU of 12 lanes."""
    names = [f"GPU{number}" for number in range(8)]
    rows = {
        source: {target: "X" if source == target else "NV12" for target in names}
        for source in names
    }
    gpu = _guess(_Matrix(gpus=names, rows=rows))
    first = next(gpu for gpu in GPUS.values() if gpu.lanes == 12)
    assert gpu == first
    alone = _Matrix(gpus=names[:2], rows=rows)
    assert _guess(alone) != first


def test_hosts_of_a_cluster_are_counted_by_its_parameters() -> None:
    torus = build_grid("TORUS", "3,2,2")
    tree = build_grid("FAT_TREE", "2;4,3;1,2;1,2")
    dragonfly = build_grid("DRAGONFLY", "3,4;2,3;5,1;2")
    assert isinstance(torus, Torus)
    assert isinstance(tree, FatTree)
    assert isinstance(dragonfly, Dragonfly)
    assert [count_hosts(grid) for grid in (torus, tree, dragonfly)] == [12, 12, 60]
    assert (tree.children, tree.parents, tree.cables) == ([4, 3], [1, 2], [1, 2])
    assert dragonfly.counts == (3, 2, 5, 2)
    assert (dragonfly.blue, dragonfly.black, dragonfly.green) == (4, 3, 1)
    build_grid("DRAGONFLY", "5,4;2,3;5,1;2")


@pytest.mark.parametrize(
    ("kind", "parameters", "problem"),
    [
        ("TORUS", "3;2", "one number per dimension"),
        ("TORUS", "3,0", "write numbers from 1 on"),
        ("FAT_TREE", "3;4,4;1,2;1,2", "levels;nodes below"),
        ("DRAGONFLY", "6,4;2,3;5,1;2", "6 groups need as many blades, 5 are there"),
        ("DRAGONFLY", "3,4;2,3;5,1", "groups,cables;chassis"),
        ("MESH", "3", "FLAT, TORUS, FAT_TREE or DRAGONFLY"),
    ],
)
def test_parameters_that_are_not_of_their_cluster_are_refused(
    kind: str, parameters: str, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        build_grid(kind, parameters)


def test_a_host_of_a_dragonfly_stands_by_its_number() -> None:
    """The dragonfly has 2 groups of 3 chassis of 4 blades of 2 hosts."""
    grid = Dragonfly(name="d", parent=None, counts=(2, 3, 4, 2), wire=Wire(1.0))
    assert grid._place(0) == [0, 0, 0, 0]
    assert grid._place(47) == [1, 2, 3, 1]
    assert grid._place(2 * (1 + 4 * (2 + 3 * 1))) == [1, 2, 1, 0]
    # Within a chassis over one green cable, within a group by the first chassis.
    assert grid.cross(0, 3) == [
        "d_router_0.0.0_host_0_UP",
        "d_router_0.0.0_router_0.0.1_UP",
        "d_router_0.0.1_host_1_DOWN",
    ]
    assert grid.cross(3, 0)[1] == "d_router_0.0.0_router_0.0.1_DOWN"
    assert grid.cross(0, 8)[1:-1] == ["d_router_0.0.0_router_0.1.0_UP"]
    assert grid.cross(0, 1) == [
        "d_router_0.0.0_host_0_UP",
        "d_router_0.0.0_host_1_DOWN",
    ]


def test_a_way_of_a_fat_tree_goes_as_high_as_it_has_to() -> None:
    """Two levels of two: neighbours meet at the first, others at the second."""
    tree = FatTree(
        name="f",
        parent=None,
        children=[2, 2],
        parents=[1, 2],
        cables=[1, 1],
        wire=Wire(1.0),
        limiter=5.0,
    )
    near = [wire for wire in tree.cross(0, 1) if "limiter" not in wire]
    assert [wire.rsplit("_", 1)[1] for wire in near] == ["UP", "DOWN"]
    far = [wire for wire in tree.cross(0, 2) if "limiter" not in wire]
    assert [wire.rsplit("_", 1)[1] for wire in far] == ["UP", "UP", "DOWN", "DOWN"]
    assert len(tree.cross(0, 2)) == 4 + 5
    assert {tree.wires[wire] for wire in tree.cross(0, 1) if "limiter" in wire} == {
        Wire(5.0)
    }
    # A host has no other way to itself than over a switch.
    assert len([wire for wire in tree.cross(0, 0) if "limiter" not in wire]) == 2


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (
            'bb_bw="1MBps" bb_sharing_policy="SPLITDUPLEX"',
            "bb_sharing_policy is 'SPLIT",
        ),
        ('sharing_policy="ODD"', "sharing_policy of n0.x link is 'ODD'"),
        (
            'topology="TORUS" topo_parameters="3"',
            "has 4 hosts, its topo_parameters are of 3",
        ),
    ],
)
def test_a_cluster_that_says_what_is_not_known_is_refused(
    more: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "p.xml"
    path.write_text(platform(cluster(4, more)))
    with pytest.raises(DataError, match=problem):
        read_platform(path)


def test_a_backbone_without_a_rate_or_latency_is_none(tmp_path: Path) -> None:
    """A backbone of which only the policy is stated is no backbone."""
    path = tmp_path / "p.xml"
    for more, middle in (
        ('bb_sharing_policy="ODD"', []),
        ('bb_bw="1MBps"', ["c backbone"]),
    ):
        path.write_text(platform(cluster(2, more)))
        read = read_platform(path)
        assert read.routes["n0.x", "n1.x"] == [
            "n0.x link_UP",
            *middle,
            "n1.x link_DOWN",
        ]


ROUTES = """
<zone id="z" routing="Full">
<host id="A" speed="1Gf"/><host id="B" speed="1Gf"/>
<link id="l" bandwidth="1MBps"/><link id="k" bandwidth="2MBps" latency="3ms"/>
{}</zone>"""


def test_a_route_that_is_stated_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.xml"
    one = '<route src="A" dst="B"><link_ctn id="l"/></route>'
    path.write_text(platform(ROUTES.format(one)))
    read: Any = read_platform(path)
    assert read.routes == {("A", "B"): ["l"], ("B", "A"): ["l"]}
    assert read.wires["k"] == Wire(2e6, 0.003)
    path.write_text(platform(ROUTES.format(one + one)))
    with pytest.raises(DataError, match="the route A to B is stated twice"):
        read_platform(path)
