"""Clusters of SimGrid by hand: ties round a ring, and parallel cables."""

from __future__ import annotations

import pytest

from emu.interchange.simgrid_clusters import FatTree, Torus
from emu.interchange.topology import Wire


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
