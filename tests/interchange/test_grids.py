"""Clusters of SimGrid by hand: ties round a ring, and parallel cables."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.interchange.simgrid import read_platform
from emu.interchange.simgrid_clusters import FatTree, Torus
from emu.interchange.topology import Wire
from tests.interchange.platforms import DRAGONFLY, TORUS, cluster, makespan, platform


def test_half_way_round_a_ring_a_route_goes_on_by_where_it_begins() -> None:
    """As TorusZone has it: forward from the lower number, and back to it backward."""
    ring = Torus(name="t", parent=None, dimensions=[4], wire=Wire(8.0))
    assert ring.cross(0, 2) == ["t_link_0_0_UP", "t_link_1_0_UP"]
    assert ring.cross(2, 0) == ["t_link_1_0_DOWN", "t_link_0_0_DOWN"]


def test_parallel_cables_that_are_one_link_have_their_sum() -> None:
    ring = Torus(name="t", parent=None, dimensions=[4], wire=Wire(8.0, latency=0.5))
    assert ring.use("x", up=True, cables=3) == "t_x_UP"
    assert ring.wires["t_x_UP"] == Wire(24.0, latency=0.5)


@pytest.mark.parametrize(("source", "destination"), [(0, 1), (1, 0), (2, 1), (1, 2)])
def test_the_destination_picks_cables_up_and_the_source_those_down(
    source: int, destination: int
) -> None:
    tree = FatTree(
        name="f",
        parent=None,
        children=[3],
        parents=[1],
        cables=[2],
        wire=Wire(1.0),
    )
    up, down = tree.cross(source, destination)
    assert up.endswith(f"_{destination % 2}_UP")
    assert down.endswith(f"_{source % 2}_DOWN")


@pytest.mark.usefixtures("read_here")
def test_hosts_of_a_torus_are_numbered_row_by_row(tmp_path: Path) -> None:
    """Of 3 x 2 x 2 hosts the sixth is the last of the second row: (2, 1, 0)."""
    path = tmp_path / "torus.xml"
    path.write_text(TORUS)
    read = read_platform(path)

    assert len(read.routes) == 12 * 11
    assert read.routes["n0.x", "n5.x"] == ["c_link_2_0_DOWN", "c_link_2_1_UP"]
    assert read.routes["n5.x", "n0.x"] == ["c_link_5_0_UP", "c_link_0_1_DOWN"]


@pytest.mark.usefixtures("read_here")
def test_a_route_leaves_a_group_by_the_blade_of_the_other_one(tmp_path: Path) -> None:
    """Groups of two chassis of four blades; the second host goes to the third group."""
    path = tmp_path / "dragonfly.xml"
    path.write_text(DRAGONFLY)
    route = read_platform(path).routes["n1.x", "n16.x"]

    assert [wire for wire in route if not wire.endswith("limiter")] == [
        "c_router_0.0.1_host_0_UP",
        "c_router_0.0.1_router_0.0.2_UP",
        "c_router_0.0.2_router_2.0.0_UP",
        "c_router_2.0.0_host_0_DOWN",
    ]


@pytest.mark.usefixtures("read_here")
def test_flows_do_not_share_a_backbone_that_is_a_fat_pipe(tmp_path: Path) -> None:
    """Each of two has all 125 MB/s of it, 0.2 ms away."""
    path = tmp_path / "pipe.xml"
    backbone = 'bb_bw="125MBps" bb_lat="100us" bb_sharing_policy="FATPIPE"'
    path.write_text(platform(cluster(4, backbone)))
    flows = [("n0.x", "n1.x", 250e6), ("n2.x", "n3.x", 250e6)]

    assert makespan(path, flows) == pytest.approx(2.0002)
